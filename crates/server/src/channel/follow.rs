//! Follows one session for one connection: what the log holds after the cursor, then what is added, in order and without
//! gap. Reads pages, so that a slow client costs no memory. What is not here: offers (`execute`).

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use toolgate_core::event::{EndCause, Event, Recorded};
use toolgate_core::id::SessionId;
use toolgate_core::input::Reporter;

use super::connection::Connection;
use super::outbox::Ended;
use crate::caller::Scope;
use crate::error::ApiError;
use crate::sessions::{Follow, Live, More, Piece, Watcher};
use crate::wire::RawJson;
use crate::wire::event::EventView;
use crate::wire::frame::{CallSettled, FinalOutput, ServerFrame, StreamEvent};

/// Events read at once.
const PAGE: u32 = 64;
/// First wait after a failure that may pass; doubles up to the most.
const RETRY_FIRST: Duration = Duration::from_millis(100);
/// Longest wait after a failure that may pass.
const RETRY_MOST: Duration = Duration::from_secs(5);

/// A session that a connection follows.
pub(super) struct Followed {
    pub(super) session: SessionId,
    /// The last event that the client has.
    pub(super) cursor: u64,
    /// The frame that started the session, for its first event.
    pub(super) started_by: Option<String>,
    /// Where the events come from.
    pub(super) follow: Follow,
}

/// Follows until the connection ends or the session cannot be read any more.
pub(super) async fn follow(connection: Arc<Connection>, mut followed: Followed) -> Result<(), Ended> {
    let mut retry = RETRY_FIRST;
    let wanted = connection.deltas && connection.may(Scope::SessionsRead);
    let mut deltas = wanted.then(|| connection.app.sessions().deltas(&connection.caller.tenant, followed.session));
    loop {
        let (tenant, session) = (&connection.caller.tenant, followed.session);
        let sessions = connection.app.sessions();
        match sessions.next_events(&mut followed.follow, tenant, session, followed.cursor, PAGE).await {
            Ok(page) => {
                retry = RETRY_FIRST;
                if !page.is_empty() {
                    // The pieces of an answer came before it was recorded.
                    while let Some(piece) = deltas.as_mut().and_then(Watcher::waiting) {
                        show(&connection, &piece);
                    }
                }
                for live in &page {
                    deliver(&connection, &followed, live).await?;
                    followed.cursor = live.recorded.seq;
                }
                if page.is_empty() {
                    more(&connection, &mut followed, deltas.as_mut()).await;
                }
            }
            Err(failure) => {
                let error = ApiError::from(failure);
                if error.code().retry_after_s().is_none() {
                    return connection.refuse(&error, Some(session.to_string())).await;
                }
                tokio::time::sleep(retry).await;
                retry = (retry * 2).min(RETRY_MOST);
            }
        }
    }
}

/// Waits until there may be more, and shows pieces of answers meanwhile.
async fn more(connection: &Connection, followed: &mut Followed, mut deltas: Option<&mut Watcher>) {
    let until = Instant::now() + connection.channel.settings().poll;
    let more = loop {
        let next = async {
            match &mut deltas {
                Some(watcher) => watcher.next().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            more = followed.follow.more(until.saturating_duration_since(Instant::now())) => break more,
            piece = next => show(connection, &piece),
        }
    };
    if more == More::Gone {
        tokio::time::sleep(RETRY_FIRST).await;
        if let Ok(follow) = connection.app.sessions().follow(&connection.caller.tenant, followed.session).await {
            followed.follow = follow;
        }
    }
}

/// Shows a piece of an answer, if there is room.
fn show(connection: &Connection, piece: &Piece) {
    connection.outbox.if_room(&ServerFrame::ModelDelta(piece.into()));
}

async fn deliver(connection: &Connection, followed: &Followed, live: &Live) -> Result<(), Ended> {
    let (session, recorded) = (followed.session, &live.recorded);
    if connection.may(Scope::SessionsRead) {
        let started = followed.started_by.clone().filter(|_| recorded.seq == 1);
        let text = match started.or_else(|| frame_id(connection, recorded)) {
            // The answer to this client's own frame; all others get the same text.
            Some(re) => stream_event(session, recorded, Some(re)).text().into(),
            None => live.frame(|recorded| stream_event(session, recorded, None).text().into()),
        };
        connection.outbox.bulk_text(text).await?;
        if let Event::RunEnded(ended) = &recorded.event {
            let frame = FinalOutput {
                session_id: session.to_string(),
                seq: recorded.seq,
                run: ended.run,
                ending: ended.ending.code().to_owned(),
                output: ended.content.output.as_ref().map(RawJson::from),
                detail: ended.content.detail.clone(),
            };
            connection.outbox.bulk(&ServerFrame::FinalOutput(frame)).await?;
        }
    }
    let Event::CallEnded(ended) = &recorded.event else { return Ok(()) };
    let was_offered = connection.offered().remove(&ended.call);
    // The client's own report is answered where it is taken.
    let own =
        matches!(&ended.cause, EndCause::Reported(Reporter::Client { instance, .. }) if *instance == connection.client);
    if !was_offered || own {
        return Ok(());
    }
    let frame = CallSettled {
        session_id: session.to_string(),
        call_id: ended.call.to_string(),
        seq: recorded.seq,
        end: Some(ended.end.code().to_owned()),
    };
    connection.outbox.control(&ServerFrame::CallSettled(frame)).await
}

/// The frame of an event.
pub(super) fn stream_event(session: SessionId, recorded: &Recorded, re: Option<String>) -> ServerFrame {
    ServerFrame::StreamEvent(Box::new(StreamEvent {
        session_id: session.to_string(),
        seq: recorded.seq,
        re,
        event: EventView::of(session, recorded),
    }))
}

/// The client's own id of the frame that an event records, if this client sent it.
fn frame_id(connection: &Connection, recorded: &Recorded) -> Option<String> {
    let id = recorded.input_id.as_ref()?.as_str();
    id.strip_prefix(&connection.input_prefix).map(str::to_owned)
}
