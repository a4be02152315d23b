//! Answers of admission hooks. Every hook must let a call pass; the first that objects, or gives no usable answer, denies
//! it. A hook that rewrites makes a new linked call, which is judged again from the beginning.

use std::collections::BTreeMap;

use super::calls::Origin;
use super::{Close, Draft, Reply, redact};
use crate::bundle::{HookKind, Tool};
use crate::event::{AdmissionAnswered, AdmissionContent, AdmissionOpened, AdmissionVerb, EndCause, Event};
use crate::id::{CallId, Sha256Digest};
use crate::input::{AdmissionAnswer, AdmissionVerdict};
use crate::json::Json;
use crate::output::NotExecuted;
use crate::proposal::{ProposedArgs, ProposedCall};
use crate::reason::{Refusal, RefusalCode, RejectReason};
use crate::session::{Awaited, AwaitedAdmission, Call, CallState};
use crate::time::Timestamp;
use toolgate_policy::RuleId;

/// Time that a hook's own time-out has before Toolgate denies the call without it, in milliseconds.
const ADMISSION_GRACE_MS: u64 = 5_000;

pub(super) fn answer(draft: &mut Draft<'_>, answer: &AdmissionAnswer) -> Result<Reply, Refusal> {
    let stale = || Refusal::new(RefusalCode::StaleAdmission, "the call waits for no answer of this hook");
    let call = draft.session.call(&answer.call).cloned().ok_or_else(stale)?;
    let CallState::Waiting(Awaited::Admission(awaited)) = &call.state else { return Err(stale()) };
    if awaited.hooks.first() != Some(&answer.hook) || awaited.attempt != answer.attempt {
        return Err(stale());
    }
    let answer = sound(draft, answer, &call);
    match &answer.verdict {
        AdmissionVerdict::Allow { reason } => passed(draft, &answer, &call, awaited, reason.clone()),
        AdmissionVerdict::Deny { reason } => {
            let detail = reason.clone().unwrap_or_else(|| "no reason was given".to_owned());
            denied(draft, &answer, &call, AdmissionVerb::Deny, reason.clone(), &detail);
        }
        AdmissionVerdict::Failed { detail } => {
            let told = "it gave no usable answer, which is a denial";
            denied(draft, &answer, &call, AdmissionVerb::Failed, Some(detail.clone()), told);
        }
        AdmissionVerdict::Rewrite { reason, args } => rewritten(draft, &answer, &call, reason.clone(), args),
    }
    Ok(Reply::Accepted)
}

/// An answer that the hook may not give is no usable answer; arguments written as they were are none.
fn sound(draft: &Draft<'_>, answer: &AdmissionAnswer, call: &Call) -> AdmissionAnswer {
    let AdmissionVerdict::Rewrite { reason, args } = &answer.verdict else { return answer.clone() };
    let failed = |detail: &str| AdmissionVerdict::Failed { detail: detail.to_owned() };
    let verdict = if draft.bundle.hook(&answer.hook).is_none_or(|hook| hook.kind != HookKind::Mutating) {
        failed("a validating hook may not write arguments")
    } else if !args.value().is_object() {
        failed("the written arguments are no JSON object")
    } else if Some(args.hash()) == call.args_hash {
        AdmissionVerdict::Allow { reason: reason.clone() }
    } else {
        return answer.clone();
    };
    AdmissionAnswer { verdict, ..answer.clone() }
}

fn passed(
    draft: &mut Draft<'_>,
    answer: &AdmissionAnswer,
    call: &Call,
    awaited: &AwaitedAdmission,
    reason: Option<String>,
) {
    let next = awaited.hooks.iter().find(|hook| **hook != answer.hook);
    let next_by = next.map(|hook| draft.answer_by(hook));
    let digest = awaited.digest.filter(|_| next.is_none());
    let approval = digest.and_then(|digest| draft.ask_about(call, digest));
    let mut event = record(draft, answer, call, AdmissionVerb::Allow, reason);
    event.next_by = next_by;
    event.approval = approval;
    draft.push(Event::AdmissionAnswered(Box::new(event)));
    draft.advance();
}

fn denied(
    draft: &mut Draft<'_>,
    answer: &AdmissionAnswer,
    call: &Call,
    verb: AdmissionVerb,
    reason: Option<String>,
    told: &str,
) {
    let event = record(draft, answer, call, verb, reason);
    draft.push(Event::AdmissionAnswered(Box::new(event)));
    draft.refuse_admission(call, &answer.hook, told);
}

fn rewritten(draft: &mut Draft<'_>, answer: &AdmissionAnswer, call: &Call, reason: Option<String>, args: &Json) {
    let Some(new_id) = draft.next_call() else { return };
    let mut event = record(draft, answer, call, AdmissionVerb::Rewrite, reason.clone());
    let written = redact::written(draft.bundle, &call.tool_text, &new_id, args);
    (event.content.args, event.content.redacted) = (Some(written.shown), written.redacted);
    event.sealed = written.sealed;
    draft.push(Event::AdmissionAnswered(Box::new(event)));
    let why = reason.map_or_else(String::new, |reason| format!(": {reason}"));
    let detail = format!("the admission hook `{}` wrote other arguments{why}", answer.hook);
    let mut close = Close::not_executed(NotExecuted::Rejected, EndCause::Admission, &detail);
    close.replaced_by = Some(new_id);
    draft.end_call(&call.id, close);
    draft.judge_again(call, args, Origin::Rewritten { from: &call.id, hook: &answer.hook });
}

fn record(
    draft: &Draft<'_>,
    answer: &AdmissionAnswer,
    call: &Call,
    verdict: AdmissionVerb,
    reason: Option<String>,
) -> AdmissionAnswered {
    let (run, step) = draft.step().unwrap_or_default();
    AdmissionAnswered {
        call: call.id.clone(),
        run,
        step,
        hook: answer.hook.clone(),
        attempt: answer.attempt,
        verdict,
        next_by: None,
        approval: None,
        content: AdmissionContent { reason, args: None, redacted: false },
        sealed: BTreeMap::new(),
    }
}

impl Draft<'_> {
    /// The hooks that a call must pass; a rewritten one those after its author.
    pub(super) fn admission(
        &self,
        tool: &Tool,
        origin: &Origin<'_>,
        digest: Option<Sha256Digest>,
    ) -> Option<AdmissionOpened> {
        let hooks = self.bundle.hooks_on(tool).map(|hook| hook.name.clone());
        let hooks: Vec<RuleId> = match origin {
            Origin::Rewritten { hook: author, .. } => hooks.skip_while(|name| name != *author).skip(1).collect(),
            Origin::Proposed | Origin::Edited { .. } => hooks.collect(),
        };
        let first = hooks.first()?;
        Some(AdmissionOpened { answer_by: self.answer_by(first), hooks, digest })
    }

    fn answer_by(&self, hook: &RuleId) -> Timestamp {
        let timeout_ms = self.bundle.hook(hook).map_or(0, |hook| hook.timeout_ms);
        self.at.plus_ms(timeout_ms.saturating_add(ADMISSION_GRACE_MS))
    }

    /// Closes a call that a hook did not let pass.
    pub(super) fn refuse_admission(&mut self, call: &Call, hook: &RuleId, told: &str) {
        let detail = format!("{}: the admission hook `{hook}`: {told}", RejectReason::AdmissionDenied.code());
        self.end_call(
            &call.id,
            Close::refused(NotExecuted::Rejected, EndCause::Admission, RejectReason::AdmissionDenied, &detail),
        );
        self.go_on_after(RejectReason::AdmissionDenied, detail);
    }

    /// The id of the next call of the step.
    pub(super) fn next_call(&self) -> Option<CallId> {
        let (run, step) = self.step()?;
        let index = u32::try_from(self.session.calls().len()).unwrap_or(u32::MAX);
        Some(CallId::at(self.session.id, run, step, index))
    }

    /// Judges the call that takes the place of another one, and goes on.
    pub(super) fn judge_again(&mut self, call: &Call, args: &Json, origin: Origin<'_>) {
        let index = u32::try_from(self.session.calls().len()).unwrap_or(u32::MAX);
        let proposed = ProposedCall {
            tool: call.tool_text.clone(),
            provider_id: None,
            args: ProposedArgs::Readable(args.clone()),
            raw_args: args.as_str().to_owned(),
        };
        let Some(decided) = self.decided(index, &proposed, None, &origin) else { return };
        let fatal = decided.reason.filter(|_| decided.ends_run);
        let detail = decided.content.detail.clone();
        self.push(Event::CallDecided(Box::new(decided)));
        match fatal {
            Some(reason) => self.end_run(reason.into(), None, detail),
            None => self.advance(),
        }
    }
}
