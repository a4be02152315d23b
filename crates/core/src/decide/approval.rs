//! Answers of approvers: bound to the exact bytes that were shown, used once.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

use super::{Close, Draft, Reply, redact};
use crate::event::{ApprovalContent, ApprovalDecided, ApprovalOpened, ApprovalVerb, EndCause, Event};
use crate::id::{CallId, SessionId, Sha256Digest, ToolId};
use crate::input::{ApprovalAnswer, ApprovalDecision};
use crate::json::Json;
use crate::output::NotExecuted;
use crate::proposal::{ProposedArgs, ProposedCall};
use crate::reason::{Refusal, RefusalCode, RejectReason};
use crate::session::{Call, CallState};
use crate::tool::Venue;

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
    let (call, approval) = waiting(draft, answer)?;
    if draft.at >= approval.expires_at {
        return Err(Refusal::new(RefusalCode::ApprovalClosed, "the approval has expired"));
    }
    if approval.digest != answer.digest {
        let detail = "what waits is not what was shown; look again and decide with the current digest";
        return Err(Refusal::new(RefusalCode::ApprovalDigestMismatch, detail));
    }
    match &answer.decision {
        ApprovalDecision::Approve => {
            record(draft, answer, &call, ApprovalVerb::Approve, None, None);
            draft.advance();
        }
        ApprovalDecision::Deny { message } => {
            record(draft, answer, &call, ApprovalVerb::Deny, message.clone(), None);
            let detail = match message {
                Some(message) => format!("approval_denied: {message}"),
                None => "approval_denied: an approver said no".to_owned(),
            };
            draft.end_call(&call.id, Close::not_executed(NotExecuted::Denied, EndCause::Approver, &detail));
            draft.go_on_after(RejectReason::ApprovalDenied, detail);
        }
        ApprovalDecision::Edit { args } => edit(draft, answer, &call, args)?,
    }
    Ok(Reply::Accepted)
}

/// The call that waits for this approval.
fn waiting(draft: &Draft<'_>, answer: &ApprovalAnswer) -> Result<(Call, ApprovalOpened), Refusal> {
    let found = draft.session.calls().iter().find_map(|call| match &call.state {
        CallState::Waiting(approval) if approval.id == answer.approval => Some((call.clone(), approval.clone())),
        CallState::Waiting(_) | CallState::Queued | CallState::Dispatched(_) | CallState::Ended(_) => None,
    });
    found.ok_or_else(|| {
        let of_open = draft.session.calls().iter().map(|call| &call.approval);
        let of_ended = draft.session.recent_calls.iter().map(|ended| &ended.approval);
        if of_open.chain(of_ended).flatten().any(|id| *id == answer.approval) {
            Refusal::new(RefusalCode::ApprovalClosed, "the approval is decided or over")
        } else {
            Refusal::new(RefusalCode::UnknownApproval, "the session has no such approval")
        }
    })
}

fn record(
    draft: &mut Draft<'_>,
    answer: &ApprovalAnswer,
    call: &Call,
    verb: ApprovalVerb,
    message: Option<String>,
    args: Option<(&Json, CallId)>,
) {
    let mut sealed = BTreeMap::new();
    let shown = args.map(|(full, new_id)| match redact::cut(full, redact::pointers(draft.bundle, &call.tool_text)) {
        None => (full.clone(), false),
        Some(shown) => {
            sealed.insert(new_id, full.clone());
            (shown, true)
        }
    });
    let (args, redacted) = shown.map_or((None, false), |(args, redacted)| (Some(args), redacted));
    draft.push(Event::ApprovalDecided(ApprovalDecided {
        approval: answer.approval.clone(),
        call: call.id.clone(),
        by: answer.by.clone(),
        digest: answer.digest,
        decision: verb,
        content: ApprovalContent { message, args, redacted },
        sealed,
    }));
}

/// An edit closes the original and judges a new linked call; its author's approval is the edit itself.
fn edit(draft: &mut Draft<'_>, answer: &ApprovalAnswer, call: &Call, args: &Json) -> Result<(), Refusal> {
    if !args.value().is_object() {
        return Err(Refusal::new(RefusalCode::EditInvalid, "the edited arguments must be a JSON object"));
    }
    let Some((run, step)) = draft.step() else {
        return Err(Refusal::new(RefusalCode::NoActiveRun, "no run is under way"));
    };
    let index = u32::try_from(draft.session.calls().len()).unwrap_or(u32::MAX);
    let new_id = CallId::at(draft.session.id, run, step, index);
    record(draft, answer, call, ApprovalVerb::Edit, None, Some((args, new_id.clone())));
    let mut close = Close::not_executed(NotExecuted::Denied, EndCause::Approver, "an approver changed the arguments");
    close.replaced_by = Some(new_id);
    draft.end_call(&call.id, close);
    let proposed = ProposedCall {
        tool: call.tool_text.clone(),
        provider_id: None,
        args: ProposedArgs::Readable(args.clone()),
        raw_args: args.as_str().to_owned(),
    };
    let Some(decided) = draft.decided(index, &proposed, None, Some(&call.id)) else { return Ok(()) };
    let fatal = decided.reason.filter(|_| decided.ends_run);
    let detail = decided.content.detail.clone();
    draft.push(Event::CallDecided(Box::new(decided)));
    match fatal {
        Some(reason) => draft.end_run(reason.into(), None, detail),
        None => draft.advance(),
    }
    Ok(())
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
