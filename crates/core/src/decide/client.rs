//! Clients that execute: who is there, and what a change of instance means for what was sent.

use super::{Close, Draft, MAX_ATTEMPTS, Reply};
use crate::event::{AttachedClient, CallAcknowledged, EndCause, Event};
use crate::input::{CallAck, ClientAttached};
use crate::output::OutcomeStatus;
use crate::reason::{Ending, Refusal, RefusalCode};
use crate::session::CallState;
use crate::tool::{ToolClass, Venue};

pub(super) fn attach(draft: &mut Draft<'_>, client: &ClientAttached) -> Result<Reply, Refusal> {
    let same = draft.session.executor.as_ref() == Some(&client.instance);
    if same && draft.session.executor_by.as_ref() != Some(&client.by) {
        // Nobody may take over by name what was sent to somebody else's machine: it would run a second time there.
        let detail = "this client id is that of another actor's client; choose one of your own";
        return Err(Refusal::new(RefusalCode::ExecutorTaken, detail));
    }
    if same && draft.session.capabilities == client.capabilities {
        return Ok(Reply::Unchanged);
    }
    draft.push(Event::ClientAttached(AttachedClient {
        instance: client.instance.clone(),
        by: client.by.clone(),
        capabilities: client.capabilities.clone(),
    }));
    if draft.ended_by_deadline() {
        return Ok(Reply::Accepted);
    }
    for call in draft.open_calls() {
        let CallState::Dispatched(open) = &call.state else { continue };
        if call.venue != Some(Venue::Client) || open.instance.as_ref() == Some(&client.instance) {
            continue;
        }
        let again = call.class != Some(ToolClass::Once) && open.attempt < MAX_ATTEMPTS;
        if let Some(dispatch) = draft.leave_to_send(&call, open.attempt + 1).filter(|_| again) {
            draft.dispatch(&call.id, dispatch);
            continue;
        }
        let detail = "it was sent to a client that is gone; it may have happened";
        draft.end_call(&call.id, Close::unknown(OutcomeStatus::Indeterminate, EndCause::ClientLost, detail));
        if draft.stops_in_doubt(&call, OutcomeStatus::Indeterminate) {
            draft.end_run(Ending::IndeterminateOutcome, None, Some(detail.to_owned()));
            return Ok(Reply::Accepted);
        }
    }
    draft.advance();
    Ok(Reply::Accepted)
}

pub(super) fn acknowledge(draft: &mut Draft<'_>, ack: &CallAck) -> Result<Reply, Refusal> {
    let Some(call) = draft.session.call(&ack.call) else {
        if draft.session.recent_calls.iter().any(|ended| ended.call == ack.call) {
            return Err(Refusal::new(RefusalCode::CallNotDispatched, "the call is over"));
        }
        return Err(Refusal::new(RefusalCode::UnknownCall, "the session has no such call"));
    };
    let CallState::Dispatched(open) = &call.state else {
        return Err(Refusal::new(RefusalCode::CallNotDispatched, "the call is not open"));
    };
    if open.instance.as_ref() != Some(&ack.instance) {
        return Err(Refusal::new(RefusalCode::CallNotDispatched, "the call was sent to another client instance"));
    }
    if open.attempt != ack.attempt {
        return Err(Refusal::new(RefusalCode::StaleAttempt, format!("attempt {} is open", open.attempt)));
    }
    if open.acknowledged {
        return Ok(Reply::Unchanged);
    }
    draft.push(Event::CallAcknowledged(CallAcknowledged {
        call: ack.call.clone(),
        attempt: ack.attempt,
        instance: ack.instance.clone(),
    }));
    Ok(Reply::Accepted)
}
