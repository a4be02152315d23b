//! An approval is taken back: what it granted ends, and its call is closed if it was not sent yet.

use super::record;
use crate::decide::{Close, Draft, Reply};
use crate::event::{ApprovalVerb, EndCause, Event};
use crate::id::CallId;
use crate::input::ApprovalAnswer;
use crate::output::NotExecuted;
use crate::reason::{Refusal, RefusalCode, RejectReason};
use crate::session::{Awaited, Call, CallState, GivenAnswer};

pub(super) fn revoke(draft: &mut Draft<'_>, answer: &ApprovalAnswer) -> Result<Reply, Refusal> {
    let mut given = draft.session.answers.iter().filter(|given| given.approval == answer.approval);
    if let Some(earlier) = given.clone().find(|given| given.verb == ApprovalVerb::Revoke) {
        return Ok(Reply::Already { seq: earlier.seq });
    }
    let approved = given.find(|given| given.verb == ApprovalVerb::Approve && given.settled).cloned();
    let unsent = approved.as_ref().and_then(|given| unsent_call(draft, given));
    let grant = draft.session.grants.iter().find(|grant| grant.approval == answer.approval);
    let known = approved.as_ref().map(|given| (given.call.clone(), given.digest));
    let call: CallId = match (&unsent, grant, known) {
        (Some(call), _, _) => call.id.clone(),
        (None, Some(grant), _) => grant.call.clone(),
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

/// The approved call, if nothing was sent on it.
fn unsent_call(draft: &Draft<'_>, given: &GivenAnswer) -> Option<Call> {
    let call = draft.session.call(&given.call)?;
    let unsent = matches!(call.state, CallState::Queued | CallState::Waiting(Awaited::Reservation));
    unsent.then(|| call.clone())
}
