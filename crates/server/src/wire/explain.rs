//! An explanation as callers see it. What is not here: what is explained (the core's `explain`), which also writes the
//! text for people.

use std::collections::BTreeSet;

use serde::Serialize;
use toolgate_core::event::{ConsensusResult, LedgerAnswer};
use toolgate_core::explain::{
    Admitted, Answer, Asked, Basis, Consensus, Decided, End, Explanation, LookedAt, RefusedReport, Reserved, Sent,
};
use utoipa::ToSchema;

use super::event::fact::{ChargeView, DispatchView, GrantView, LimitsView, PolicyView, ReporterView};
use super::event::{class_word, control_word, reporter, venue_word};
use super::{RawJson, time_text};

/// Why a call was decided as it was, and what became of it.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ExplanationView {
    /// The call.
    pub call_id: String,
    /// The run, from 1.
    pub run: u32,
    /// The step within the run, from 1.
    pub step: u32,
    /// Place within the step, from 0.
    pub index: u32,
    /// The decision and its cause.
    pub decision: DecisionExplained,
    /// What was asked.
    pub asked: AskedView,
    /// By what it was judged.
    pub basis: BasisView,
    /// The layers of the pipeline that were asked, in order, each with its inputs by name.
    pub layers: Vec<LayerView>,
    /// What the policies found, rule by rule, where they were asked.
    pub policy: Option<PolicyView>,
    /// How the ballots of the step added up, where there were several.
    pub consensus: Option<ConsensusView>,
    /// The call whose approver wrote these arguments instead.
    pub edited_from: Option<String>,
    /// The approver who wrote these arguments; with `edited_from`.
    pub edited_by: Option<String>,
    /// The admission hook that wrote these arguments; with `edited_from`.
    pub rewritten_by: Option<String>,
    /// The approver's answer that holds these arguments.
    pub edit: Option<AnswerView>,
    /// The edited call that took this one's place.
    pub replaced_by: Option<String>,
    /// The earlier call whose outcome was returned.
    pub replay_of: Option<String>,
    /// The earlier approval that covers this call.
    pub granted_by: Option<String>,
    /// The admission hooks that must let it pass, in order.
    pub hooks: Vec<String>,
    /// What they answered.
    pub admissions: Vec<AdmittedView>,
    /// What the tenant's ledger must grant.
    pub charges: Vec<ChargeView>,
    /// What the ledger answered.
    pub ledger: Vec<ReservedView>,
    /// What humans were asked.
    pub approval: Option<AskingView>,
    /// What they answered, in order.
    pub answers: Vec<AnswerView>,
    /// Each leave to send the call.
    pub dispatches: Vec<SentView>,
    /// Clients that took it over.
    pub acknowledged: Vec<AcknowledgedView>,
    /// Reports about it that were refused.
    pub refused_reports: Vec<RefusedReportView>,
    /// Its one terminal record; null while it is open.
    pub end: Option<EndView>,
    /// How its run ended; null while it goes on.
    pub run_ending: Option<&'static str>,
}

/// The decision about a call and its cause.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct DecisionExplained {
    /// Place in the log.
    pub seq: u64,
    /// When.
    pub at: String,
    /// `allow`, `escalate` or `reject`.
    pub decision: &'static str,
    /// The reason code, unless allowed.
    pub reason: Option<&'static str>,
    /// The layer that decided.
    pub layer: &'static str,
    /// Whether the rejection ends the run.
    pub ends_run: bool,
    /// What made the decision, in one sentence.
    pub cause: String,
    /// What would change the answer, or what the call was warned of.
    pub change: Option<String>,
}

/// What a call asked for.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct AskedView {
    /// The tool's name as the model wrote it.
    pub name: String,
    /// The tool, if it exists.
    pub tool: Option<String>,
    /// Hash of its contract.
    pub tool_version: Option<String>,
    /// Who would execute: `server` or `client`.
    pub venue: Option<&'static str>,
    /// `read`, `idempotent` or `once`.
    pub class: Option<&'static str>,
    /// Evidence that a success counts for.
    pub tags: BTreeSet<String>,
    /// The canonical arguments, redacted where the tool says so; null when unreadable.
    #[schema(value_type = RawJson)]
    pub args: Option<RawJson>,
    /// Hash of the full canonical arguments.
    pub args_hash: Option<String>,
    /// Length of the full canonical arguments in bytes.
    pub args_bytes: u64,
    /// Whether `args` differs from what was hashed.
    pub redacted: bool,
    /// Fields that the contract derives from the arguments, as policies read them.
    #[schema(value_type = RawJson)]
    pub derived: Option<RawJson>,
    /// The caller's idempotency key towards the tool.
    pub idempotency_key: Option<String>,
}

/// By what a call was judged.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct BasisView {
    /// Who started the session.
    pub by: Option<String>,
    /// Digest of the pinned bundle.
    pub bundle: Option<String>,
    /// The session's profile.
    pub profile: Option<String>,
    /// The label that led to it.
    pub label: Option<String>,
    /// Version of the deciding behaviour.
    pub rules_version: Option<u32>,
    /// The schema engine.
    pub schema_engine: Option<String>,
    /// The bounds of the run.
    pub limits: Option<LimitsView>,
    /// The control mode that the session asked for.
    pub control: Option<&'static str>,
    /// Decides and records, and executes nothing.
    pub dry_run: bool,
}

/// A layer of the pipeline that was asked.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct LayerView {
    /// Its name.
    pub layer: String,
    /// `passed` or `decided`.
    pub answer: &'static str,
    /// What it looked at, by name.
    pub looked_at: Vec<&'static str>,
}

/// How the ballots of a step added up.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ConsensusView {
    /// The round.
    pub round: u32,
    /// Ballots that were asked for.
    pub n: u32,
    /// `first`, `k_of_n`, `plurality`, `majority`, `supermajority` or `unanimous`.
    pub rule: &'static str,
    /// Ballots needed.
    pub k: u32,
    /// The tool for which a larger vote was held than the round began with.
    pub widened_for: Option<String>,
    /// Where the profile asks for that: `tool` or `risk`.
    pub widened_by: Option<&'static str>,
    /// Ballots of equal proposals, largest group first.
    pub groups: Vec<Vec<u32>>,
    /// Ballots without a readable proposal.
    pub unreadable: Vec<u32>,
    /// Ballots that could change nothing any more and were given up.
    pub cancelled: Vec<u32>,
    /// `agreed`, `escalated`, `retry` or `rejected`.
    pub result: &'static str,
    /// The ballot whose proposal stands, when agreed or escalated.
    pub ballot: Option<u32>,
}

/// A question to a human.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct AskingView {
    /// The approval.
    pub id: String,
    /// When it lapses.
    pub expires_at: String,
    /// Digest of what exactly is approved.
    pub digest: String,
    /// How many different people must approve.
    pub approvers: u32,
    /// Reminders sent.
    pub reminders: u32,
}

/// An admission hook's answer.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct AdmittedView {
    /// Place in the log.
    pub seq: u64,
    /// When.
    pub at: String,
    /// The hook.
    pub hook: String,
    /// The question it answers.
    pub attempt: u32,
    /// `allow`, `deny`, `rewrite` or `failed`; the last is a denial.
    pub verdict: &'static str,
    /// Its words.
    pub reason: Option<String>,
}

/// The ledger's answer.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ReservedView {
    /// Place in the log.
    pub seq: u64,
    /// When.
    pub at: String,
    /// `granted` or `refused`.
    pub answer: &'static str,
    /// The counter that refused.
    pub counter: Option<String>,
    /// What stands on it.
    pub used: Option<u64>,
    /// Its limit.
    pub limit: Option<u64>,
}

/// A human's answer.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct AnswerView {
    /// Place in the log.
    pub seq: u64,
    /// When.
    pub at: String,
    /// The approval it answers.
    pub approval_id: String,
    /// Who.
    pub by: String,
    /// Digest of what they saw.
    pub digest: String,
    /// `approve`, `deny`, `edit` or `revoke`.
    pub decision: &'static str,
    /// Approvals still missing after it.
    pub missing: u32,
    /// What it covers from then on besides this call.
    pub grant: Option<GrantView>,
    /// Their words.
    pub message: Option<String>,
}

/// A leave to send a call.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct SentView {
    /// Place in the log; the fence of the attempt.
    pub seq: u64,
    /// When.
    pub at: String,
    /// Attempt, deadline and addressee.
    #[serde(flatten)]
    pub dispatch: DispatchView,
}

/// A client took a call over.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct AcknowledgedView {
    /// Place in the log.
    pub seq: u64,
    /// When.
    pub at: String,
    /// The attempt.
    pub attempt: u32,
    /// The client instance.
    pub client_id: String,
}

/// A report about a call that was refused.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct RefusedReportView {
    /// Place in the log.
    pub seq: u64,
    /// When.
    pub at: String,
    /// Why.
    pub code: &'static str,
    /// Who sent it.
    pub reporter: ReporterView,
    /// The status it claimed.
    pub claimed: &'static str,
}

/// The terminal record of a call.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct EndView {
    /// Place in the log.
    pub seq: u64,
    /// When.
    pub at: String,
    /// An outcome, or why it was not executed.
    pub status: &'static str,
    /// What closed it; `decision` where the rejection itself is the record.
    pub cause: &'static str,
    /// The reason code, where something else than its outcome closed it.
    pub reason: Option<&'static str>,
    /// Who reported it.
    pub reporter: Option<ReporterView>,
    /// The last attempt; 0 when never dispatched.
    pub attempt: u32,
    /// Size of the output in bytes.
    pub output_bytes: u64,
    /// A sentence about it.
    pub detail: Option<String>,
}

impl From<&Explanation> for ExplanationView {
    fn from(e: &Explanation) -> Self {
        Self {
            call_id: e.call.to_string(),
            run: e.run,
            step: e.step,
            index: e.index,
            decision: (&e.decided).into(),
            asked: (&e.asked).into(),
            basis: (&e.basis).into(),
            layers: e.layers.iter().map(LayerView::from).collect(),
            policy: e.policy.as_ref().map(PolicyView::from),
            consensus: e.consensus.as_ref().map(ConsensusView::from),
            edited_from: e.edited_from.as_ref().map(ToString::to_string),
            edited_by: e.edited_by.as_ref().map(ToString::to_string),
            rewritten_by: e.rewritten_by.as_ref().map(ToString::to_string),
            edit: e.edit.as_ref().map(AnswerView::from),
            replaced_by: e.replaced_by.as_ref().map(ToString::to_string),
            replay_of: e.replay_of.as_ref().map(ToString::to_string),
            granted_by: e.granted_by.as_ref().map(ToString::to_string),
            hooks: e.hooks.iter().map(ToString::to_string).collect(),
            admissions: e.admissions.iter().map(AdmittedView::from).collect(),
            charges: e.charges.iter().map(ChargeView::from).collect(),
            ledger: e.ledger.iter().map(ReservedView::from).collect(),
            approval: e.approval.as_ref().map(|asking| AskingView {
                approvers: asking.approvers,
                reminders: asking.reminders,
                id: asking.id.to_string(),
                expires_at: time_text(asking.expires_at),
                digest: asking.digest.to_string(),
            }),
            answers: e.answers.iter().map(AnswerView::from).collect(),
            dispatches: e.dispatches.iter().map(SentView::from).collect(),
            acknowledged: e
                .acknowledged
                .iter()
                .map(|ack| AcknowledgedView {
                    seq: ack.seq,
                    at: time_text(ack.at),
                    attempt: ack.attempt,
                    client_id: ack.instance.to_string(),
                })
                .collect(),
            refused_reports: e.refused.iter().map(RefusedReportView::from).collect(),
            end: e.end.as_ref().map(EndView::from),
            run_ending: e.run_ending.map(toolgate_core::reason::Ending::code),
        }
    }
}

impl From<&Decided> for DecisionExplained {
    fn from(decided: &Decided) -> Self {
        Self {
            seq: decided.seq,
            at: time_text(decided.at),
            decision: decided.decision.code(),
            reason: decided.reason.map(toolgate_core::reason::RejectReason::code),
            layer: decided.layer.code(),
            ends_run: decided.ends_run,
            cause: decided.cause.clone(),
            change: decided.change.clone(),
        }
    }
}

impl From<&Asked> for AskedView {
    fn from(asked: &Asked) -> Self {
        Self {
            name: asked.name.clone(),
            tool: asked.tool.as_ref().map(ToString::to_string),
            tool_version: asked.tool_version.map(|version| version.to_string()),
            venue: asked.venue.map(venue_word),
            class: asked.class.map(class_word),
            tags: asked.tags.iter().map(ToString::to_string).collect(),
            args: asked.args.as_ref().map(RawJson::from),
            args_hash: asked.args_hash.map(|hash| hash.to_string()),
            args_bytes: asked.args_bytes,
            redacted: asked.redacted,
            derived: asked.derived.as_ref().map(RawJson::from),
            idempotency_key: asked.idempotency_key.clone(),
        }
    }
}

impl From<&Basis> for BasisView {
    fn from(basis: &Basis) -> Self {
        Self {
            by: basis.by.as_ref().map(ToString::to_string),
            bundle: basis.bundle.map(|bundle| bundle.to_string()),
            profile: basis.profile.as_ref().map(ToString::to_string),
            label: basis.label.as_ref().map(ToString::to_string),
            rules_version: basis.rules_version,
            schema_engine: basis.schema_engine.clone(),
            limits: basis.limits.as_ref().map(LimitsView::from),
            control: basis.control.map(control_word),
            dry_run: basis.dry_run,
        }
    }
}

impl From<&LookedAt> for LayerView {
    fn from(layer: &LookedAt) -> Self {
        Self { layer: layer.layer.clone(), answer: layer.answer.code(), looked_at: layer.inputs.clone() }
    }
}

impl From<&Consensus> for ConsensusView {
    fn from(consensus: &Consensus) -> Self {
        let (result, ballot) = match consensus.result {
            ConsensusResult::Agreed { ballot } => ("agreed", Some(ballot)),
            ConsensusResult::Escalated { ballot } => ("escalated", Some(ballot)),
            ConsensusResult::Retry => ("retry", None),
            ConsensusResult::Rejected => ("rejected", None),
        };
        Self {
            round: consensus.round,
            n: consensus.n,
            rule: consensus.rule.code(),
            k: consensus.k,
            widened_for: consensus.widened.as_ref().map(|(tool, _)| tool.to_string()),
            widened_by: consensus.widened.as_ref().map(|(_, why)| why.code()),
            groups: consensus.groups.clone(),
            unreadable: consensus.unreadable.clone(),
            cancelled: consensus.cancelled.clone(),
            result,
            ballot,
        }
    }
}

impl From<&Answer> for AnswerView {
    fn from(answer: &Answer) -> Self {
        Self {
            seq: answer.seq,
            at: time_text(answer.at),
            approval_id: answer.approval.to_string(),
            by: answer.by.to_string(),
            digest: answer.digest.to_string(),
            decision: answer.verb.code(),
            missing: answer.missing,
            grant: answer.grant.as_ref().map(GrantView::from),
            message: answer.message.clone(),
        }
    }
}

impl From<&Admitted> for AdmittedView {
    fn from(admitted: &Admitted) -> Self {
        Self {
            seq: admitted.seq,
            at: time_text(admitted.at),
            hook: admitted.hook.to_string(),
            attempt: admitted.attempt,
            verdict: admitted.verdict.code(),
            reason: admitted.reason.clone(),
        }
    }
}

impl From<&Reserved> for ReservedView {
    fn from(reserved: &Reserved) -> Self {
        let (answer, refused) = match &reserved.answer {
            LedgerAnswer::Granted => ("granted", None),
            LedgerAnswer::Refused { counter, used, limit } => ("refused", Some((counter.clone(), *used, *limit))),
        };
        let (used, limit) = (refused.as_ref().map(|found| found.1), refused.as_ref().map(|found| found.2));
        let counter = refused.map(|found| found.0);
        Self { seq: reserved.seq, at: time_text(reserved.at), answer, counter, used, limit }
    }
}

impl From<&Sent> for SentView {
    fn from(sent: &Sent) -> Self {
        Self { seq: sent.seq, at: time_text(sent.at), dispatch: (&sent.dispatch).into() }
    }
}

impl From<&RefusedReport> for RefusedReportView {
    fn from(refused: &RefusedReport) -> Self {
        Self {
            seq: refused.seq,
            at: time_text(refused.at),
            code: refused.code.code(),
            reporter: reporter(&refused.reporter),
            claimed: refused.claimed.code(),
        }
    }
}

impl From<&End> for EndView {
    fn from(end: &End) -> Self {
        Self {
            seq: end.seq,
            at: time_text(end.at),
            status: end.end.code(),
            cause: end.cause,
            reason: end.reason.map(toolgate_core::reason::RejectReason::code),
            reporter: end.reporter.as_ref().map(reporter),
            attempt: end.attempt,
            output_bytes: end.output_bytes,
            detail: end.detail.clone(),
        }
    }
}
