//! Ends from outside: cancel a run, close a session.

use super::{Draft, Reply};
use crate::event::{Event, SessionClosed, StopContent, StopRequested};
use crate::input::Stop;
use crate::reason::{Ending, Refusal, RefusalCode};

pub(super) fn cancel(draft: &mut Draft<'_>, stop: &Stop) -> Result<Reply, Refusal> {
    if !under_way(draft) {
        return Err(Refusal::new(RefusalCode::NoActiveRun, "no run is under way"));
    }
    draft.push(Event::CancelRequested(requested(stop)));
    draft.end_run(Ending::Cancelled, None, stop.reason.clone());
    Ok(Reply::Accepted)
}

pub(super) fn close(draft: &mut Draft<'_>, stop: &Stop) -> Result<Reply, Refusal> {
    draft.push(Event::CloseRequested(requested(stop)));
    if under_way(draft) {
        draft.end_run(Ending::Cancelled, None, stop.reason.clone());
    }
    let runs = draft.session.run.as_ref().map_or(0, |run| run.no);
    draft.push(Event::SessionClosed(SessionClosed { runs }));
    Ok(Reply::Accepted)
}

fn under_way(draft: &Draft<'_>) -> bool {
    draft.session.active_run().is_some() || draft.session.classifying.is_some()
}

fn requested(stop: &Stop) -> StopRequested {
    StopRequested { by: stop.by.clone(), content: StopContent { reason: stop.reason.clone() } }
}
