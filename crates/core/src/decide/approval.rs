//! Answers of approvers: bound to the exact bytes that were shown, used once.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

use super::calls::Origin;
use super::{Close, Draft, Reply, redact};
use crate::bundle::find_identity_key;
use crate::event::{ApprovalContent, ApprovalDecided, ApprovalVerb, CallEnd, EndCause, Event, GrantGiven};
use crate::id::{CallId, SessionId, Sha256Digest, ToolId};
use crate::input::{ApprovalAnswer, ApprovalDecision, GrantAsked};
use crate::json::Json;
use crate::output::NotExecuted;
use crate::reason::{Refusal, RefusalCode, RejectReason};
use crate::schema::describe;
use crate::session::{Awaited, AwaitedApproval, Call, CallState, Pause};
use crate::tool::Venue;

mod pause;
mod revoke;

pub use revoke::revocable;

/// How long a grant holds where nobody says: a day, in milliseconds.
const GRANT_MS: u64 = 24 * 60 * 60 * 1_000;

/// Digest of what exactly is approved: tool, canonical arguments, venue, session, bundle.
#[must_use]
pub fn approval_digest(
    session: SessionId,
    bundle: Sha256Digest,
    tool: &ToolId,
    venue: Venue,
    args: &Json,
) -> Sha256Digest {
    let mut hash = Sha256::new();
    let venue: &[u8] = match venue {
        Venue::Server => b"server",
        Venue::Client => b"client",
    };
    let session = session.to_string();
    for part in [
        b"toolgate.approval.v1".as_slice(),
        tool.as_str().as_bytes(),
        args.as_str().as_bytes(),
        venue,
        session.as_bytes(),
        bundle.as_bytes(),
    ] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    Sha256Digest::from_bytes(hash.finalize().into())
}

pub(super) fn answer(draft: &mut Draft<'_>, answer: &ApprovalAnswer) -> Result<Reply, Refusal> {
    if answer.bundle.is_some_and(|named| draft.bundle.digest() != named) {
        let detail = format!("the session is pinned to the bundle {}", draft.bundle.digest());
        return Err(Refusal::new(RefusalCode::ApprovalBundleMismatch, detail));
    }
    if answer.decision == ApprovalDecision::Revoke {
        return revoke::revoke(draft, answer);
    }
    let subject = match waiting(draft, answer) {
        Ok(subject) => subject,
        Err(refusal) => return already(draft, answer).ok_or(refusal),
    };
    let opened = &subject.awaited().opened;
    if draft.at >= opened.expires_at {
        return Err(Refusal::new(RefusalCode::ApprovalExpired, "the approval has lapsed; nobody answered in time"));
    }
    if opened.digest != answer.digest {
        let detail = "what waits is not what was shown; look again and decide with the current digest";
        return Err(Refusal::new(RefusalCode::ApprovalDigestMismatch, detail));
    }
    if !matches!(answer.decision, ApprovalDecision::Deny { .. }) {
        permitted(draft, answer)?;
        if subject.awaited().approved_by.contains(&answer.by) {
            return already(draft, answer).ok_or_else(|| {
                Refusal::new(RefusalCode::ApprovalUsed, "this person has approved it already; others must as well")
            });
        }
    }
    match subject {
        Subject::Call(call, awaited) => answer_call(draft, answer, &call, &awaited)?,
        Subject::Pause(pause) => pause::answer(draft, answer, &pause)?,
    }
    Ok(Reply::Accepted)
}

fn answer_call(
    draft: &mut Draft<'_>,
    answer: &ApprovalAnswer,
    call: &Call,
    awaited: &AwaitedApproval,
) -> Result<(), Refusal> {
    match &answer.decision {
        // Who writes the very arguments that wait has approved them: nothing starts anew.
        ApprovalDecision::Edit { args } if call.args.as_ref() == Some(args) => {
            approve(draft, answer, call, awaited, None);
        }
        ApprovalDecision::Approve { grant } => {
            let given = grant.as_ref().map(|asked| granted(draft, call, asked)).transpose()?;
            approve(draft, answer, call, awaited, given);
        }
        ApprovalDecision::Deny { message } => {
            let mut event = record(answer, &call.id, ApprovalVerb::Deny);
            event.content.message.clone_from(message);
            draft.push(Event::ApprovalDecided(Box::new(event)));
            let detail = match message {
                Some(message) => format!("approval_denied: {message}"),
                None => "approval_denied: an approver said no".to_owned(),
            };
            let reason = RejectReason::ApprovalDenied;
            draft.end_call(&call.id, Close::refused(NotExecuted::Denied, EndCause::Approver, reason, &detail));
            draft.go_on_after(reason, detail);
        }
        ApprovalDecision::Edit { args } => edit(draft, answer, call, args)?,
        ApprovalDecision::Revoke => {}
    }
    Ok(())
}

fn approve(
    draft: &mut Draft<'_>,
    answer: &ApprovalAnswer,
    call: &Call,
    awaited: &AwaitedApproval,
    grant: Option<GrantGiven>,
) {
    let mut event = record(answer, &call.id, ApprovalVerb::Approve);
    event.missing = missing(awaited);
    event.grant = grant.filter(|_| event.missing == 0);
    draft.push(Event::ApprovalDecided(Box::new(event)));
    draft.advance();
}

/// Approvals that are still missing once this one is there.
fn missing(awaited: &AwaitedApproval) -> u32 {
    let have = u32::try_from(awaited.approved_by.len()).unwrap_or(u32::MAX).saturating_add(1);
    awaited.opened.approvers.saturating_sub(have)
}

/// Whoever asked for the work may not approve it, unless the profile says so: four eyes.
fn permitted(draft: &Draft<'_>, answer: &ApprovalAnswer) -> Result<(), Refusal> {
    let allowed = draft.profile().is_some_and(|profile| profile.approval.self_approval);
    if allowed || !draft.session.speakers.contains(&answer.by) {
        return Ok(());
    }
    let detail = "whoever started the session or spoke in it may not approve its calls; they may deny them";
    Err(Refusal::new(RefusalCode::SelfApproval, detail))
}

/// Checks what an approver leaves open for further calls.
fn granted(draft: &Draft<'_>, call: &Call, asked: &GrantAsked) -> Result<GrantGiven, Refusal> {
    let refuse = |detail: String| Err(Refusal::new(RefusalCode::GrantInvalid, detail));
    if !redact::pointers(draft.bundle, &call.tool_text).is_empty() {
        return refuse("the tool redacts arguments, so that each of its calls needs an approval of its own".to_owned());
    }
    let ttl_ms = asked.ttl_ms.unwrap_or(GRANT_MS);
    if !(1_000..=2_592_000_000).contains(&ttl_ms) {
        return refuse(format!("`ttl_ms` is {ttl_ms}; 1,000 to 2,592,000,000"));
    }
    let args = call.args.as_ref().map(Json::value).unwrap_or_default();
    if let Some(name) = asked.open.iter().find(|name| args.get(name.as_str()).is_none()) {
        return refuse(format!("the call has no argument `{name}` that could be left open"));
    }
    Ok(GrantGiven { open: asked.open.clone(), expires_at: draft.at.plus_ms(ttl_ms) })
}

/// What an answer is about.
enum Subject {
    Call(Box<Call>, AwaitedApproval),
    Pause(Box<Pause>),
}

impl Subject {
    const fn awaited(&self) -> &AwaitedApproval {
        match self {
            Self::Call(_, awaited) => awaited,
            Self::Pause(pause) => &pause.approval,
        }
    }
}

/// The call or pause that waits for this approval.
fn waiting(draft: &Draft<'_>, answer: &ApprovalAnswer) -> Result<Subject, Refusal> {
    let paused = draft.session.pause().filter(|pause| pause.approval.opened.id == answer.approval);
    if let Some(pause) = paused {
        return Ok(Subject::Pause(Box::new(pause.clone())));
    }
    let found = draft.session.calls().iter().find_map(|call| match &call.state {
        CallState::Waiting(Awaited::Approval(awaited)) if awaited.opened.id == answer.approval => {
            Some(Subject::Call(Box::new(call.clone()), awaited.clone()))
        }
        CallState::Waiting(_) | CallState::Queued | CallState::Dispatched(_) | CallState::Ended(_) => None,
    });
    found.ok_or_else(|| why_not(draft, answer))
}

/// Why an approval cannot be answered any more.
fn why_not(draft: &Draft<'_>, answer: &ApprovalAnswer) -> Refusal {
    let given = draft.session.answers.iter().rev().find(|given| given.approval == answer.approval);
    if let Some(given) = given.filter(|given| given.verb == ApprovalVerb::Revoke) {
        return Refusal::new(RefusalCode::ApprovalRevoked, format!("`{}` took the approval back", given.by));
    }
    if let Some(given) = given.filter(|given| given.settled) {
        let detail = format!("`{}` has answered it already: {}; see seq {}", given.by, given.verb.code(), given.seq);
        return Refusal::new(RefusalCode::ApprovalUsed, detail);
    }
    let of_open = draft.session.calls().iter().any(|call| call.approval.as_ref() == Some(&answer.approval));
    let ended = draft.session.recent_calls.iter().rev().find(|ended| ended.approval.as_ref() == Some(&answer.approval));
    match ended.map(|ended| ended.end) {
        Some(CallEnd::NotExecuted(NotExecuted::Expired)) => {
            Refusal::new(RefusalCode::ApprovalExpired, "the approval has lapsed; nobody answered in time")
        }
        Some(_) => Refusal::new(RefusalCode::ApprovalClosed, "the call is over"),
        None if of_open || given.is_some() => Refusal::new(RefusalCode::ApprovalClosed, "the approval is over"),
        None => Refusal::new(RefusalCode::UnknownApproval, "the session has no such approval"),
    }
}

/// The same answer to the same question was recorded before: that record stands, whoever asks again.
fn already(draft: &Draft<'_>, answer: &ApprovalAnswer) -> Option<Reply> {
    let verb = match answer.decision {
        ApprovalDecision::Approve { .. } => ApprovalVerb::Approve,
        ApprovalDecision::Deny { .. } => ApprovalVerb::Deny,
        // Whether the arguments are the same is not kept.
        ApprovalDecision::Edit { .. } | ApprovalDecision::Revoke => return None,
    };
    let given = draft.session.answers.iter().rev().find(|given| given.approval == answer.approval)?;
    let same = given.verb == verb && given.digest == answer.digest && (given.settled || given.by == answer.by);
    same.then_some(Reply::Already { seq: given.seq })
}

/// The record of an answer, as far as all answers have it.
fn record(answer: &ApprovalAnswer, call: &CallId, verb: ApprovalVerb) -> ApprovalDecided {
    ApprovalDecided {
        approval: answer.approval.clone(),
        call: call.clone(),
        by: answer.by.clone(),
        digest: answer.digest,
        decision: verb,
        missing: 0,
        grant: None,
        raises: Vec::new(),
        content: ApprovalContent { message: None, args: None, redacted: false },
        sealed: BTreeMap::new(),
    }
}

/// An edit closes the original and judges a new linked call; its author's approval is the edit itself.
fn edit(draft: &mut Draft<'_>, answer: &ApprovalAnswer, call: &Call, args: &Json) -> Result<(), Refusal> {
    fits(draft, call, args)?;
    let Some(new_id) = draft.next_call() else {
        return Err(Refusal::new(RefusalCode::NoActiveRun, "no run is under way"));
    };
    let mut event = record(answer, &call.id, ApprovalVerb::Edit);
    let written = redact::written(draft.bundle, &call.tool_text, &new_id, args);
    (event.content.args, event.content.redacted) = (Some(written.shown), written.redacted);
    event.sealed = written.sealed;
    draft.push(Event::ApprovalDecided(Box::new(event)));
    let mut close = Close::not_executed(NotExecuted::Denied, EndCause::Approver, "an approver changed the arguments");
    close.replaced_by = Some(new_id);
    draft.end_call(&call.id, close);
    draft.judge_again(call, args, Origin::Edited { from: &call.id, by: &answer.by });
    Ok(())
}

/// An approver hears at once of arguments that do not match the schema: the approval stays open for better ones. Whatever
/// else speaks against them is a decision, and is recorded.
fn fits(draft: &Draft<'_>, call: &Call, args: &Json) -> Result<(), Refusal> {
    let refuse = |detail: String| Err(Refusal::new(RefusalCode::EditInvalid, detail));
    let value = args.value();
    if !value.is_object() {
        return refuse("the edited arguments must be a JSON object".to_owned());
    }
    // A forged identity is recorded, whatever the schema says of it.
    if find_identity_key(draft.bundle, &value).is_some() {
        return Ok(());
    }
    let tool = ToolId::new(call.tool_text.as_str()).ok().and_then(|id| draft.bundle.tool(&id));
    let mismatches = tool.map(|tool| tool.parameters.mismatches(&value, !tool.def.redact.is_empty()));
    match mismatches.filter(|mismatches| !mismatches.is_empty()) {
        Some(mismatches) => refuse(describe(&mismatches)),
        None => Ok(()),
    }
}

impl Draft<'_> {
    /// After a call was closed for this reason: the run ends, or goes on.
    pub(super) fn go_on_after(&mut self, reason: RejectReason, detail: String) {
        if self.ends_run(reason) {
            self.end_run(reason.into(), None, Some(detail));
        } else {
            self.advance();
        }
    }
}
