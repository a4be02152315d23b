//! Frames about calls: taken over, under way, done. What is not here: whether a report fits its call (the core).

use toolgate_core::event::Event;
use toolgate_core::id::CallId;
use toolgate_core::input::{self, Input, OutcomeReport, Reporter};

use super::{Driver, require, within};
use crate::caller::Scope;
use crate::channel::outcome::outcome;
use crate::crash;
use crate::error::{ApiError, ErrorCode};
use crate::http::probe::noting;
use crate::wire::frame::{CallAck, CallProgress, CallSettled, ServerFrame, ToolOutcome};

impl Driver {
    pub(super) async fn ack(&self, frame: &CallAck) -> Result<(), ApiError> {
        crash::point("K7");
        require(&self.connection, Scope::ClientExecute)?;
        let input = Input::CallAck(input::CallAck {
            call: frame.call_id.clone(),
            attempt: frame.attempt,
            instance: self.connection.client.clone(),
        });
        self.submit(frame.session_id, None, input).await.map(drop)
    }

    pub(super) fn progress(&self, frame: CallProgress) -> Result<(), ApiError> {
        crash::point("K8");
        require(&self.connection, Scope::ClientExecute)?;
        within("/note", Some(&frame.note))?;
        let session = frame.session_id.parse().map_err(|_| ApiError::invalid("/session_id", "no session id"))?;
        CallId::parse(&frame.call_id).map_err(|_| ApiError::invalid("/call_id", "no call id"))?;
        if !self.followed.contains(&session) {
            return Err(ApiError::not_found());
        }
        self.connection.place.tell_others(session, &ServerFrame::CallProgress(frame));
        Ok(())
    }

    pub(super) async fn outcome(&self, frame: &ToolOutcome) -> Result<(), ApiError> {
        let connection = &self.connection;
        require(connection, Scope::ClientExecute)?;
        let cap = self.cap(frame).await?;
        let report = OutcomeReport {
            call: frame.call_id.clone(),
            attempt: frame.attempt,
            reporter: Reporter::Client {
                instance: connection.client.clone(),
                by: connection.caller.actor.clone(),
                fence: frame.fence,
                args_hash: frame.args_hash,
            },
            outcome: outcome(frame, cap)?,
        };
        crash::point("K9");
        let taken = self.submit(frame.session_id, None, Input::Outcome(report)).await?;
        let recorded = taken.events.iter().find_map(|recorded| match &recorded.event {
            Event::CallEnded(ended) if ended.call == frame.call_id => Some(recorded.seq),
            _ => None,
        });
        let Some(seq) = taken.already.or(recorded) else {
            return Err(ApiError::new(ErrorCode::Internal, "the report was taken without a record"));
        };
        connection.offered().remove(&frame.call_id);
        let settled = CallSettled {
            session_id: frame.session_id.to_string(),
            call_id: frame.call_id.to_string(),
            seq,
            end: None,
        };
        // An ended connection is noticed where the next frame is read.
        let _ = connection.outbox.control(&ServerFrame::CallSettled(settled)).await;
        Ok(())
    }

    /// The limit for the output of an open call; a closed one has none, since nothing new is taken for it.
    async fn cap(&self, frame: &ToolOutcome) -> Result<Option<u64>, ApiError> {
        let connection = &self.connection;
        if frame.result.is_none() && frame.output.is_none() {
            return Ok(None);
        }
        let snapshot = connection.app.sessions().snapshot(&connection.caller.tenant, frame.session_id).await;
        let snapshot = noting(&connection.app, &connection.caller, frame.session_id, snapshot).await?;
        let tool = snapshot.state.call(&frame.call_id).and_then(|call| call.tool.as_ref());
        Ok(tool.and_then(|tool| snapshot.bundle.tool(tool)).map(|tool| tool.def.max_output_bytes))
    }
}
