//! The policy layer: puts the call and what happened before in front of the engine, and turns its judgement into the
//! pipeline's terms. What is not here: the rules (`toolgate-policy`).

use std::sync::Arc;

use serde_json::Value;
use toolgate_policy::{
    CallStatus, Code, Decision as PolicyDecision, EarlierCall, Facts, Judgement, Policy, Principal, SessionFacts,
    history::{RepeatLevel, Repetition},
};

use super::{Judge, Layer, Stop, repeat_key};
use crate::ask::Entry;
use crate::bundle::{Bundle, Tool};
use crate::event::{CallEnd, FindingRecord, PolicyRecord};
use crate::id::Sha256Digest;
use crate::json::Json;
use crate::output::{NotExecuted, OutcomeStatus};
use crate::proposal::ProposedArgs;
use crate::reason::RejectReason;
use crate::session::{Call, CallState, PastCall, Phase, Session};

impl Judge<'_, '_> {
    /// Asks the policies. A denial stops here; a wish for a human is kept for the approval layer.
    pub(super) fn policy(&mut self, tool: &Tool, args: &Value) -> Result<(), Stop> {
        let Some(policy) = self.situation.bundle.policy() else { return Ok(()) };
        let judgement = self.ask_engine(policy, tool, args);
        self.verdict.derived = derived(&judgement);
        self.verdict.rules.extend(judgement.findings.iter().map(|finding| format!("policy:{}", finding.rule_id)));
        let decided = judgement
            .first
            .as_ref()
            .map(|first| (reason_of(first.code), format!("`{}`: {}", first.rule_id, first.detail)));
        let decision = judgement.decision;
        self.verdict.policy = Some(PolicyRecord::from(judgement));
        let Some((reason, detail)) = decided else { return Ok(()) };
        match decision {
            PolicyDecision::Allow => Ok(()),
            PolicyDecision::Ask => {
                self.ask = Some(format!("a human must approve it, says {detail}"));
                Ok(())
            }
            PolicyDecision::Deny => Err((reason, detail)),
        }
    }

    fn ask_engine(&self, policy: &Policy, tool: &Tool, args: &Value) -> Judgement {
        let session = self.situation.session;
        let current: Vec<Option<Value>> =
            open_step(session).map(|call| call.shown_args.as_ref().map(Json::value)).collect();
        let earlier = earlier_calls(session, &current);
        let words = session.map(user_words).unwrap_or_default();
        let opened = session.and_then(|session| session.opened.as_ref());
        let run = session.and_then(Session::active_run);
        let id = session.map(|session| session.id.to_string()).unwrap_or_default();
        let profile = session.and_then(|session| session.profile.as_ref());
        policy.judge(&Facts {
            tool: tool.id.as_str(),
            args,
            profile: profile.map_or("", |name| name.as_str()),
            principal: Principal {
                tenant: opened.map_or("", |opened| opened.tenant.as_str()),
                id: opened.map_or("", |opened| opened.by.as_str()),
                roles: &[],
            },
            session: SessionFacts {
                id: &id,
                label: session.and_then(|session| session.label.as_ref()).map(crate::id::Label::as_str),
                run: run.map_or(1, |run| run.no),
                step: run.map_or(1, |run| match &run.phase {
                    Phase::Asking(round) => round.step,
                    Phase::Acting(step) => step.no,
                    Phase::Ended(_) => run.steps,
                }),
                tool_calls: u64::from(self.situation.tool_calls),
                spent_micros: run.map_or(0, |run| run.spent.cost_microusd),
                limit_micros: self.situation.limits.max_cost_microusd,
                ballots: run.map_or(self.situation.limits.ballots, |run| match &run.phase {
                    Phase::Asking(round) => round.n,
                    Phase::Acting(step) => step.ballots,
                    Phase::Ended(_) => run.limits.ballots,
                }),
                agreed: run.map_or(1, |run| match &run.phase {
                    Phase::Asking(round) => round.agreed,
                    Phase::Acting(step) => step.agreed,
                    Phase::Ended(_) => 1,
                }),
            },
            at_micros: u64::try_from(self.situation.at.as_micros()).unwrap_or(0),
            earlier: &earlier,
            user_words: &words,
            resolved_paths: None,
        })
    }

    /// Refuses a call that goes round in circles, as the bundle's loop rule counts.
    pub(super) fn refused_loop(&self) -> Result<(), Stop> {
        match self.loop_found().filter(|found| !found.shadow) {
            Some(found) if found.level == RepeatLevel::Refuse => Err((RejectReason::RepeatedCall, loop_detail(&found))),
            Some(_) | None => Ok(()),
        }
    }

    /// At the last level of the loop rule the run ends, also where the call was refused for another reason.
    pub(super) fn or_ended_loop(&mut self, result: Result<(), Stop>) -> Result<(), Stop> {
        if matches!(result, Err((RejectReason::CrossTenantDenied, _))) {
            return result;
        }
        let found = self.loop_found();
        if let Some(found) = found.as_ref().filter(|found| found.shadow) {
            self.record_loop(found);
        }
        match found.filter(|found| !found.shadow) {
            Some(found) if found.level == RepeatLevel::End => {
                self.verdict.layer = Layer::Repetition;
                self.verdict.ends_run = true;
                Err((RejectReason::RepeatedCall, loop_detail(&found)))
            }
            Some(found) if found.level == RepeatLevel::Warn && result.is_ok() => {
                self.verdict.detail = Some(loop_detail(&found));
                result
            }
            Some(_) | None => result,
        }
    }

    fn loop_found(&self) -> Option<Repetition> {
        let policy = self.situation.bundle.policy().filter(|policy| policy.counts_repetitions())?;
        let ProposedArgs::Readable(args) = &self.proposed.args else { return None };
        let session = self.situation.session?;
        let key = self.key_of_call(args);
        let profile = session.profile.as_ref().map_or("", |name| name.as_str());
        policy.repetition(&keys(session), &key, &self.proposed.tool, profile)
    }

    /// Records what the loop rule in shadow found; calls that no policy was asked about have no place for it.
    fn record_loop(&mut self, found: &Repetition) {
        let outcome = match found.level {
            RepeatLevel::Warn => "pass",
            RepeatLevel::Refuse | RepeatLevel::End => "deny",
        };
        let finding = in_shadow("repeats", outcome, RejectReason::RepeatedCall, loop_detail(found), REPEATS);
        if let Some(policy) = &mut self.verdict.policy {
            policy.findings.push(finding);
            self.verdict.rules.push("policy:repeats".to_owned());
        }
    }
}

/// Evidence that the policies miss before the run may be done: in sentences, and what rules in shadow miss.
pub(crate) fn missing_evidence(bundle: &Bundle, session: &Session) -> (Vec<String>, Vec<FindingRecord>) {
    let Some(policy) = bundle.policy() else { return (Vec::new(), Vec::new()) };
    let current: Vec<Option<Value>> = Vec::new();
    let profile = session.profile.as_ref().map_or("", |name| name.as_str());
    let run = session.run.as_ref().map_or(0, |run| run.no);
    let deficits = policy.deficits(profile, run, &earlier_calls(Some(session), &current));
    let (shadow, enforced): (Vec<_>, Vec<_>) = deficits.into_iter().partition(|deficit| deficit.shadow);
    let shadow = shadow.into_iter().map(|missing| {
        in_shadow(&missing.rule_id, "deny", RejectReason::TraceRequirementsNotMet, missing.detail, EVIDENCE)
    });
    (enforced.into_iter().map(|deficit| deficit.detail).collect(), shadow.collect())
}

/// What evidence rules look at.
const EVIDENCE: &str = "successful calls of the run";
/// What the loop rule looks at.
const REPEATS: &str = "canonical calls of the run";

/// What a rule in shadow that is none of a call's layers found.
fn in_shadow(rule: &str, outcome: &'static str, code: RejectReason, detail: String, looked_at: &str) -> FindingRecord {
    FindingRecord {
        rule: rule.into(),
        outcome: outcome.into(),
        code: Some(code.code().into()),
        shadow: true,
        detail: Some(detail),
        looked_at: [looked_at.to_owned()].into(),
    }
}

/// The canonical calls of the run so far, oldest first, rejected and unknown ones included.
fn keys(session: &Session) -> Vec<Sha256Digest> {
    let run = session.run.as_ref().map_or(0, |run| run.no);
    let past = session.history.iter().filter(|past| past.run == run).filter_map(|past| past.key);
    let current = session.calls().iter().filter_map(|call| Some(repeat_key(&call.tool_text, call.args_hash?)));
    past.chain(current).collect()
}

fn loop_detail(found: &Repetition) -> String {
    format!("{}; do something else or finish", found.detail)
}

fn open_step(session: Option<&Session>) -> impl Iterator<Item = &Call> {
    session.map(Session::calls).unwrap_or_default().iter()
}

/// What the user wrote, oldest first.
fn user_words(session: &Session) -> Vec<&str> {
    let text = |entry: &Arc<Entry>| matches!(**entry, Entry::User { .. });
    session
        .transcript
        .iter()
        .filter(|entry| text(entry))
        .filter_map(|entry| match &**entry {
            Entry::User { text } => Some(text.as_str()),
            Entry::Model { .. } | Entry::Result { .. } | Entry::Feedback { .. } | Entry::Summary { .. } => None,
        })
        .collect()
}

/// Calls of completed steps, then those of this step that were decided before.
fn earlier_calls<'a>(session: Option<&'a Session>, current: &'a [Option<Value>]) -> Vec<EarlierCall<'a>> {
    let Some(session) = session else { return Vec::new() };
    let run = session.run.as_ref().map_or(0, |run| run.no);
    let past = session.history.iter().map(|past| of_past(past));
    let here = session.calls().iter().zip(current).map(|(call, args)| of_current(run, call, args.as_ref()));
    past.chain(here).collect()
}

fn of_past(past: &PastCall) -> EarlierCall<'_> {
    EarlierCall {
        run: past.run,
        tool: &past.tool,
        status: status(past.end, past.replayed),
        args: past.args.as_ref(),
        result: Some(&past.result),
        at_micros: u64::try_from(past.decided_at.as_micros()).unwrap_or(0),
    }
}

fn of_current<'a>(run: u32, call: &'a Call, args: Option<&'a Value>) -> EarlierCall<'a> {
    let (status, result) = match &call.state {
        CallState::Waiting(_) => (CallStatus::Waiting, None),
        CallState::Queued | CallState::Dispatched(_) => (CallStatus::Running, None),
        CallState::Ended(ended) => (status(ended.end, ended.replayed), Some(ended.shown.as_str())),
    };
    EarlierCall {
        run,
        tool: &call.tool_text,
        status,
        args,
        result,
        at_micros: u64::try_from(call.decided_at.as_micros()).unwrap_or(0),
    }
}

const fn status(end: CallEnd, replayed: bool) -> CallStatus {
    match end {
        CallEnd::Outcome(OutcomeStatus::Ok) => CallStatus::Ok,
        CallEnd::Outcome(OutcomeStatus::Failed) => CallStatus::Failed,
        CallEnd::Outcome(OutcomeStatus::TimedOut) => CallStatus::TimedOut,
        CallEnd::Outcome(OutcomeStatus::DeniedByClient) => CallStatus::DeniedByClient,
        CallEnd::Outcome(OutcomeStatus::Indeterminate) => CallStatus::Indeterminate,
        CallEnd::NotExecuted(_) if replayed => CallStatus::Replayed,
        CallEnd::NotExecuted(NotExecuted::DryRun) => CallStatus::DryRun,
        CallEnd::NotExecuted(_) => CallStatus::NotExecuted,
    }
}

/// The pipeline's code for the engine's.
const fn reason_of(code: Code) -> RejectReason {
    match code {
        Code::UnknownTool => RejectReason::UnknownTool,
        Code::Denylisted => RejectReason::Denylisted,
        Code::DerivedRefused
        | Code::ArgumentMissing
        | Code::ArgumentWrongKind
        | Code::ArgumentRule
        | Code::AmountZeroSuspicious
        | Code::AmountNegative
        | Code::AmountImplausiblyLarge
        | Code::TextImplausiblyLong
        | Code::HiddenCharacters => RejectReason::ArgumentRule,
        Code::SequenceRule => RejectReason::SequenceRule,
        Code::RateLimited => RejectReason::RateLimited,
        Code::CumulativeLimit => RejectReason::CumulativeLimit,
        Code::OriginUnknown => RejectReason::OriginUnknown,
        Code::PolicyForbids
        | Code::PolicyNotPermitted
        | Code::PolicyEscalates
        | Code::ContextInvalid
        | Code::PolicyFault => RejectReason::PolicyDenied,
    }
}

fn derived(judgement: &Judgement) -> Option<Json> {
    if judgement.derived.is_empty() {
        return None;
    }
    serde_json::to_value(&judgement.derived).ok().map(|value| Json::from_value(&value))
}
