//! Fills the wire's forms from the domain's events: one match, no field forgotten silently. What is not here: the forms.

use toolgate_core::event::{self, ApprovalOpened, CallEnd, Dispatch, EndCause, Event, Limits, Recorded};
use toolgate_core::input::{Narrowed, Reporter};
use toolgate_core::json::Json;
use toolgate_core::output::{Body, Output};
use toolgate_core::proposal::{Ballot, BallotVerdict, Proposal, ProposedArgs, ProposedCall, Usage};
use toolgate_core::tool::{ToolClass, Venue};

use super::control::control_word;
use super::fact::{
    AdmissionOpenedView, ApprovalContent, ApprovalDecided, ApprovalOpenedView, BallotContent, BallotReceived, BlobView,
    BudgetSettled, CallAcknowledged, CallContent, CallDecided, CallEnded, ChargeView, ClassificationContent,
    ClassificationReceived, ClientAttached, CutView, DeficitView, DispatchView, EndedContent, Fact, FindingView,
    GrantView, LimitsView, MessageReceived, NarrowedView, OpenedContent, OutcomeRefused, OutputView, OwnerChanged,
    PolicyView, ProfileChosen, ProposedCallView, RaiseView, ReporterView, RunContent, RunEnded, RunStarted,
    SessionClosed, SessionOpened, StepEnded, StopContent, StopRequested, TextContent, Ticked, UsageView, WrapUpStarted,
};
use crate::wire::{RawJson, time_text};

impl From<&Event> for Fact {
    fn from(event: &Event) -> Self {
        match event {
            Event::SessionOpened(e) => Self::SessionOpened(Box::new(opened(e))),
            Event::OwnerChanged(e) => {
                Self::OwnerChanged(OwnerChanged { node: e.node.clone(), incarnation: e.incarnation })
            }
            Event::ClassificationReceived(e) => Self::ClassificationReceived(classified(e)),
            Event::ProfileChosen(e) => Self::ProfileChosen(ProfileChosen {
                profile: e.profile.to_string(),
                label: e.label.as_ref().map(ToString::to_string),
                trace_requirements: e.trace_requirements.iter().map(|(tag, n)| (tag.to_string(), *n)).collect(),
            }),
            Event::MessageReceived(e) => {
                Self::MessageReceived(MessageReceived { by: e.by.to_string(), content: text(&e.content) })
            }
            Event::RunStarted(e) => Self::RunStarted(RunStarted {
                rules_version: e.rules_version,
                schema_engine: e.schema_engine.clone(),
                limits: (&e.limits).into(),
                deadline_at: time_text(e.deadline_at),
            }),
            Event::BallotReceived(e) => Self::BallotReceived(Box::new(ballot(e))),
            Event::SummaryAsked(e) => Self::SummaryAsked(super::summary::asked(e)),
            Event::SummaryReceived(e) => Self::SummaryReceived(Box::new(super::summary::received(e))),
            Event::VoteWidened(e) => Self::VoteWidened(super::vote::widened(e)),
            Event::ConsensusDecided(e) => Self::ConsensusDecided(super::vote::consensus(e)),
            Event::CallDecided(e) => Self::CallDecided(Box::new(decided(e))),
            Event::CallDispatched(e) => Self::CallDispatched((&e.dispatch).into()),
            Event::CallAcknowledged(e) => {
                Self::CallAcknowledged(CallAcknowledged { attempt: e.attempt, client_id: e.instance.to_string() })
            }
            Event::CallEnded(e) => Self::CallEnded(Box::new(ended(e))),
            Event::ApprovalDecided(e) => Self::ApprovalDecided(Box::new(approval(e))),
            Event::AdmissionAnswered(e) => Self::AdmissionAnswered(Box::new(super::control::admission(e))),
            Event::ApprovalReminded(e) => Self::ApprovalReminded(super::control::reminded(e)),
            Event::BudgetReserved(e) => Self::BudgetReserved(super::control::reserved(e)),
            Event::ReservationAnswered(e) => Self::ReservationAnswered(super::control::answered(e)),
            Event::BudgetSettled(e) => Self::BudgetSettled(BudgetSettled { settled: e.settled.clone() }),
            Event::RunPaused(e) => Self::RunPaused(Box::new(super::control::paused(e))),
            Event::WrapUpStarted(_) => Self::WrapUpStarted(WrapUpStarted {}),
            Event::StepEnded(e) => Self::StepEnded(StepEnded {
                reason: e.reason.code(),
                deficits: e
                    .deficits
                    .iter()
                    .map(|(tag, d)| (tag.to_string(), DeficitView { have: d.have, need: d.need }))
                    .collect(),
                content: text(&e.content),
            }),
            Event::RunEnded(e) => Self::RunEnded(RunEnded {
                ending: e.ending.code(),
                steps: e.steps,
                tool_calls: e.tool_calls,
                model_calls: e.model_calls,
                wrapped_up: e.wrapped_up,
                shadow: e.shadow.iter().map(FindingView::from).collect(),
                content: RunContent { output: raw(e.content.output.as_ref()), detail: e.content.detail.clone() },
            }),
            Event::ClientAttached(e) => Self::ClientAttached(ClientAttached {
                client_id: e.instance.to_string(),
                by: e.by.to_string(),
                capabilities: e.capabilities.iter().map(ToString::to_string).collect(),
            }),
            Event::CancelRequested(e) => Self::CancelRequested(stop(e)),
            Event::CloseRequested(e) => Self::CloseRequested(stop(e)),
            Event::SessionClosed(e) => Self::SessionClosed(SessionClosed { runs: e.runs }),
            Event::Ticked(_) => Self::Ticked(Ticked {}),
            Event::Recovered(_) => Self::Recovered(Ticked {}),
            Event::OutcomeRefused(e) => Self::OutcomeRefused(OutcomeRefused {
                code: e.code.code(),
                reporter: reporter(&e.reporter),
                claimed: e.claimed.code(),
            }),
        }
    }
}

impl From<&Recorded> for Fact {
    fn from(recorded: &Recorded) -> Self {
        Self::from(&recorded.event)
    }
}

fn raw(json: Option<&Json>) -> Option<RawJson> {
    json.map(RawJson::from)
}

fn text(content: &event::TextContent) -> TextContent {
    TextContent { text: content.text.clone() }
}

fn opened(e: &event::SessionOpened) -> SessionOpened {
    SessionOpened {
        by: e.by.to_string(),
        alias: e.alias.clone(),
        bundle: e.bundle.to_string(),
        profile: e.profile.as_ref().map(ToString::to_string),
        label: e.label.as_ref().map(ToString::to_string),
        ceiling: e.ceiling.as_ref().map(|names| names.iter().map(ToString::to_string).collect()),
        capabilities: e.capabilities.iter().map(ToString::to_string).collect(),
        limits: (&e.limits).into(),
        control: e.control.map(control_word),
        dry_run: e.dry_run,
        rules_version: e.rules_version,
        trace: e.trace.clone(),
        content: OpenedContent {
            prompt: e.content.prompt.clone(),
            output_schema: raw(e.content.output_schema.as_ref()),
            metadata: e.content.metadata.clone(),
        },
    }
}

fn classified(e: &event::ClassificationReceived) -> ClassificationReceived {
    let found = e.content.found.as_ref();
    ClassificationReceived {
        attempt: e.attempt,
        usage: (&e.usage).into(),
        content: ClassificationContent {
            label: found.map(|found| found.label.clone()),
            confidence_milli: found.map(|found| found.confidence_milli),
            reasoning: found.and_then(|found| found.reasoning.clone()),
            failure: e.content.failed.as_ref().map(|failed| failed.detail.clone()),
        },
    }
}

fn ballot(e: &event::BallotReceived) -> BallotReceived {
    BallotReceived {
        round: e.seat.round,
        ballot: e.seat.ballot,
        of: e.of,
        attempt: e.seat.attempt,
        verdict: e.verdict.clone(),
        reason: e.reason.clone(),
        calls: e.calls,
        usage: (&e.usage).into(),
        model: e.model.clone(),
        cost_microusd: e.cost_microusd,
        charged: (&e.charged).into(),
        cut: e.cut.map(|cut| CutView { results: cut.results, answers: cut.answers, bytes: cut.bytes }),
        content: BallotContent {
            redacted: e.content.redacted.iter().map(ToString::to_string).collect(),
            ..ballot_content(&e.content.ballot)
        },
    }
}

fn ballot_content(ballot: &Ballot) -> BallotContent {
    let mut content = BallotContent {
        text: ballot.text.clone(),
        calls: Vec::new(),
        output: None,
        detail: None,
        normalised: ballot.normalised.clone(),
        redacted: Vec::new(),
    };
    match &ballot.verdict {
        BallotVerdict::Proposal(Proposal::Calls(calls)) => content.calls = calls.iter().map(proposed).collect(),
        BallotVerdict::Proposal(Proposal::Done { output }) => content.output = Some(output.into()),
        BallotVerdict::Malformed { detail, .. } | BallotVerdict::Failed { detail, .. } => {
            content.detail = Some(detail.clone());
        }
    }
    content
}

fn proposed(call: &ProposedCall) -> ProposedCallView {
    let (args, fault) = match &call.args {
        ProposedArgs::Readable(args) => (Some(args.into()), None),
        ProposedArgs::Malformed { detail, .. } => (None, Some(detail.clone())),
    };
    ProposedCallView {
        tool: call.tool.clone(),
        provider_id: call.provider_id.clone(),
        args,
        fault,
        raw_args: call.raw_args.clone(),
    }
}

fn decided(e: &event::CallDecided) -> CallDecided {
    CallDecided {
        index: e.index,
        edited_from: e.edited_from.as_ref().map(ToString::to_string),
        edited_by: e.edited_by.as_ref().map(ToString::to_string),
        rewritten_by: e.rewritten_by.as_ref().map(ToString::to_string),
        tool: e.tool.as_ref().map(ToString::to_string),
        tool_version: e.tool_version.as_ref().map(ToString::to_string),
        venue: e.venue.map(venue_word),
        class: e.class.map(class_word),
        tags: e.tags.iter().map(ToString::to_string).collect(),
        decision: e.decision.code(),
        reason: e.reason.map(toolgate_core::reason::RejectReason::code),
        layer: e.layer.code(),
        rules: e.rules.clone(),
        replay_of: e.replay_of.as_ref().map(ToString::to_string),
        dispatch: e.dispatch.as_ref().map(DispatchView::from),
        approval: e.approval.as_ref().map(ApprovalOpenedView::from),
        admission: e.admission.as_ref().map(AdmissionOpenedView::from),
        granted_by: e.granted_by.as_ref().map(ToString::to_string),
        policy: e.policy.as_ref().map(PolicyView::from),
        ends_run: e.ends_run,
        args_bytes: e.args_bytes,
        content: CallContent {
            tool: e.content.tool.clone(),
            args: raw(e.content.args.as_ref()),
            args_hash: e.content.args_hash.as_ref().map(ToString::to_string),
            redacted: e.content.redacted,
            derived: raw(e.content.derived.as_ref()),
            charges: e.content.charges.iter().map(ChargeView::from).collect(),
            idempotency_key: e.content.idempotency_key.clone(),
            detail: e.content.detail.clone(),
        },
    }
}

fn ended(e: &event::CallEnded) -> CallEnded {
    let outcome = e.content.outcome.as_ref();
    CallEnded {
        attempt: e.attempt,
        status: e.end.code(),
        dispatched: matches!(e.end, CallEnd::Outcome(_)),
        cause: cause_word(&e.cause),
        reporter: match &e.cause {
            EndCause::Reported(by) => Some(reporter(by)),
            EndCause::Timeout
            | EndCause::Cancelled
            | EndCause::OwnerLost
            | EndCause::ClientLost
            | EndCause::RunEnded
            | EndCause::Approver
            | EndCause::ApprovalExpired
            | EndCause::Replayed
            | EndCause::Admission
            | EndCause::Ledger
            | EndCause::DryRun => None,
        },
        reason: e.reason.map(toolgate_core::reason::RejectReason::code),
        replaced_by: e.replaced_by.as_ref().map(ToString::to_string),
        output_bytes: e.output_bytes,
        content: EndedContent {
            output: outcome.and_then(|outcome| outcome.output.as_ref()).map(OutputView::from),
            outcome_detail: outcome.and_then(|outcome| outcome.detail.clone()),
            detail: e.content.detail.clone(),
        },
    }
}

fn approval(e: &event::ApprovalDecided) -> ApprovalDecided {
    ApprovalDecided {
        approval_id: e.approval.to_string(),
        by: e.by.to_string(),
        digest: e.digest.to_string(),
        decision: e.decision.code(),
        missing: e.missing,
        grant: e.grant.as_ref().map(GrantView::from),
        raises: e.raises.iter().map(RaiseView::from).collect(),
        content: ApprovalContent {
            message: e.content.message.clone(),
            args: raw(e.content.args.as_ref()),
            redacted: e.content.redacted,
        },
    }
}

fn stop(e: &event::StopRequested) -> StopRequested {
    StopRequested { by: e.by.to_string(), content: StopContent { reason: e.content.reason.clone() } }
}

/// Who reported, as the wire shows it.
pub(crate) fn reporter(reporter: &Reporter) -> ReporterView {
    match reporter {
        Reporter::Server => ReporterView { venue: "server", client_id: None, by: None },
        Reporter::Client { instance, by, .. } => {
            ReporterView { venue: "client", client_id: Some(instance.to_string()), by: Some(by.to_string()) }
        }
    }
}

const fn cause_word(cause: &EndCause) -> &'static str {
    match cause {
        EndCause::Reported(_) => "reported",
        EndCause::Timeout => "timeout",
        EndCause::Cancelled => "cancelled",
        EndCause::OwnerLost => "owner_lost",
        EndCause::ClientLost => "client_lost",
        EndCause::RunEnded => "run_ended",
        EndCause::Approver => "approver",
        EndCause::ApprovalExpired => "approval_expired",
        EndCause::Replayed => "replayed",
        EndCause::Admission => "admission",
        EndCause::Ledger => "ledger",
        EndCause::DryRun => "dry_run",
    }
}

/// The word for a venue.
pub(crate) const fn venue_word(venue: Venue) -> &'static str {
    match venue {
        Venue::Server => "server",
        Venue::Client => "client",
    }
}

/// The word for a tool class.
pub(crate) const fn class_word(class: ToolClass) -> &'static str {
    match class {
        ToolClass::Read => "read",
        ToolClass::Idempotent => "idempotent",
        ToolClass::Once => "once",
    }
}

impl From<&Dispatch> for DispatchView {
    fn from(dispatch: &Dispatch) -> Self {
        Self {
            attempt: dispatch.attempt,
            deadline_at: time_text(dispatch.deadline_at),
            client_id: dispatch.instance.as_ref().map(ToString::to_string),
        }
    }
}

impl From<&ApprovalOpened> for ApprovalOpenedView {
    fn from(approval: &ApprovalOpened) -> Self {
        Self {
            id: approval.id.to_string(),
            expires_at: time_text(approval.expires_at),
            digest: approval.digest.to_string(),
            approvers: approval.approvers,
            approved_by: approval.approved_by.iter().map(ToString::to_string).collect(),
        }
    }
}

impl From<&Limits> for LimitsView {
    fn from(limits: &Limits) -> Self {
        Self {
            max_steps: limits.max_steps,
            max_tool_calls: limits.max_tool_calls,
            max_model_calls: limits.max_model_calls,
            deadline_ms: limits.deadline_ms,
            max_parallel_calls: limits.max_parallel_calls,
            max_consecutive_rejections: limits.max_consecutive_rejections,
            max_parse_failures: limits.max_parse_failures,
            max_output_schema_failures: limits.max_output_schema_failures,
            repeat_limit: limits.repeat_limit,
            ballots: limits.ballots,
            max_tokens: limits.max_tokens,
            max_cost_microusd: limits.max_cost_microusd,
        }
    }
}

impl From<&Narrowed> for NarrowedView {
    fn from(limits: &Narrowed) -> Self {
        Self {
            max_steps: limits.max_steps,
            max_tool_calls: limits.max_tool_calls,
            max_model_calls: limits.max_model_calls,
            deadline_ms: limits.deadline_ms,
        }
    }
}

impl From<&Usage> for UsageView {
    fn from(usage: &Usage) -> Self {
        Self { input_tokens: usage.input_tokens, output_tokens: usage.output_tokens }
    }
}

impl From<&Output> for OutputView {
    fn from(output: &Output) -> Self {
        let (text, base64, blob) = match &output.body {
            Body::Text(text) => (Some(text.clone()), None, None),
            Body::Base64(text) => (None, Some(text.clone()), None),
            Body::Blob { digest, size, preview } => {
                (None, None, Some(BlobView { digest: digest.to_string(), size: *size, preview: preview.clone() }))
            }
        };
        Self { media_type: output.media_type.clone(), text, base64, blob, truncated_from: output.truncated_from }
    }
}
