//! An approval is taken back: what it granted ends, and its call is closed if it was not sent yet.

use super::record;
use crate::decide::{Close, Draft, Reply};
use crate::event::{ApprovalVerb, EndCause, Event};
use crate::id::{ApprovalId, CallId};
use crate::input::ApprovalAnswer;
use crate::output::NotExecuted;
use crate::reason::{Refusal, RefusalCode, RejectReason};
use crate::session::{Awaited, Call, CallState, Session};

pub(super) fn revoke(draft: &mut Draft<'_>, answer: &ApprovalAnswer) -> Result<Reply, Refusal> {
    let mut given = draft.session.answers.iter().filter(|given| given.approval == answer.approval);
    if let Some(earlier) = given.clone().find(|given| given.verb == ApprovalVerb::Revoke) {
        return Ok(Reply::Already { seq: earlier.seq });
    }
    let approved = given.find(|given| given.verb == ApprovalVerb::Approve && given.settled).cloned();
    let standing = Standing::of(&draft.session, &answer.approval);
    let unsent = standing.unsent.cloned();
    let call: CallId = match (&unsent, standing.granted, &approved) {
        (Some(call), _, _) => call.id.clone(),
        (None, Some(call), _) => call.clone(),
        (None, None, Some(_)) => {
            let detail = "the call was sent on it, or is over; it cannot be taken back";
            return Err(Refusal::new(RefusalCode::ApprovalNotRevocable, detail));
        }
        (None, None, None) => {
            return Err(Refusal::new(RefusalCode::ApprovalNotRevocable, "no approval of this id was given"));
        }
    };
    if approved.as_ref().is_some_and(|given| given.digest != answer.digest) {
        let detail = "what was approved is not what was shown; look again";
        return Err(Refusal::new(RefusalCode::ApprovalDigestMismatch, detail));
    }
    draft.push(Event::ApprovalDecided(Box::new(record(answer, &call, ApprovalVerb::Revoke))));
    if let Some(call) = unsent {
        let (reason, detail) = (RejectReason::ApprovalDenied, "approval_denied: the approval was taken back");
        draft.end_call(&call.id, Close::refused(NotExecuted::Denied, EndCause::Approver, reason, detail));
        draft.go_on_after(reason, detail.to_owned());
    }
    Ok(Reply::Accepted)
}

/// Whether an approval can be taken back: its call is not sent yet, or it covers further calls.
#[must_use]
pub fn revocable(session: &Session, approval: &ApprovalId) -> bool {
    let standing = Standing::of(session, approval);
    !session.closed && (standing.unsent.is_some() || standing.granted.is_some())
}

/// What still stands on an approval.
struct Standing<'a> {
    /// The approved call, if nothing was sent on it.
    unsent: Option<&'a Call>,
    /// The call on which leave for further ones was given.
    granted: Option<&'a CallId>,
}

impl<'a> Standing<'a> {
    fn of(session: &'a Session, approval: &ApprovalId) -> Self {
        let approved = session
            .answers
            .iter()
            .find(|given| given.approval == *approval && given.verb == ApprovalVerb::Approve && given.settled);
        let call = approved.and_then(|given| session.call(&given.call));
        let unsent = |call: &&Call| matches!(call.state, CallState::Queued | CallState::Waiting(Awaited::Reservation));
        let granted = session.grants.iter().find(|grant| grant.approval == *approval);
        Self { unsent: call.filter(unsent), granted: granted.map(|grant| &grant.call) }
    }
}
