//! A stream of events that goes on: replay, then live, with no gap, as SSE or NDJSON. What is not here: choosing the
//! form (`routes::events`).
//!
//! The log is read from a place onwards, again and again; the watched head only says when. A queue of fixed length
//! stands between reader and socket: who reads too slowly is cut off and resumes by the last id. Pieces of models' answers
//! go between the events where somebody asked for them, and are dropped as soon as the queue is half full.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream::unfold;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::Instant;
use toolgate_core::event::{Event, Recorded};
use toolgate_core::id::SessionId;

use crate::app::App;
use crate::caller::Caller;
use crate::error::{ApiError, ErrorCode};
use crate::http::headers::EventForm;
use crate::sessions::{Follow, Live, More, Piece, Watcher};
use crate::wire::delta::DeltaLine;
use crate::wire::event::EventView;

/// Frames between reader and socket.
const QUEUE: usize = 64;
/// Events read at once.
const BATCH: u32 = 200;
/// How often the credential of an open stream is looked at again, and the log without a hint.
const LOOK_AGAIN: Duration = Duration::from_secs(4);
/// When a client should come back after a planned end, and after a lost connection.
const RECONNECT_MS: u64 = 2_000;

/// What is to be streamed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    pub(super) session: SessionId,
    pub(super) after: u64,
    pub(super) form: EventForm,
    /// Go on after the last event.
    pub(super) follow: bool,
    /// Show pieces of answers as well.
    pub(super) deltas: bool,
}

/// Starts the stream, if there is a place for it.
pub(super) async fn open(app: App, caller: Caller, wanted: Wanted) -> Result<Response, ApiError> {
    let place = Arc::clone(app.streams()).try_acquire_owned().map_err(|_| {
        ApiError::new(ErrorCode::TooManyStreams, "this server holds as many streams as it may; try again")
    })?;
    // Watched before anything is read, so that nothing falls between.
    let follow = app.sessions().follow(&caller.tenant, wanted.session).await?;
    let deltas = wanted.deltas.then(|| app.sessions().deltas(&caller.tenant, wanted.session));
    let (frames, queue) = mpsc::channel::<Bytes>(QUEUE);
    let now = Instant::now();
    let feed = Feed { app, caller, wanted, follow, deltas, frames, quiet_since: now, checked: now };
    tokio::spawn(feed.run(place));
    let body = Body::from_stream(unfold(queue, |mut queue| async move {
        let frame = queue.recv().await?;
        Some((Ok::<_, std::convert::Infallible>(frame), queue))
    }));
    let media = match wanted.form {
        EventForm::Sse => "text/event-stream",
        EventForm::Lines | EventForm::Page => "application/x-ndjson",
    };
    let mut response = body.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    Ok(response)
}

/// Why a stream ends. None of them is told to the reader but a planned stop; it resumes by the last id.
enum End {
    /// Nothing can follow.
    Over,
    /// The reader is gone or too slow.
    Reader,
    /// The server stops.
    Stopping,
    /// The log cannot be read, or the credential is no longer good.
    Failed(ApiError),
}

struct Feed {
    app: App,
    caller: Caller,
    wanted: Wanted,
    follow: Follow,
    deltas: Option<Watcher>,
    frames: mpsc::Sender<Bytes>,
    /// When something was sent last.
    quiet_since: Instant,
    /// When the credential was looked at last.
    checked: Instant,
}

impl Feed {
    async fn run(mut self, _place: OwnedSemaphorePermit) {
        match self.feed().await {
            End::Over => {}
            End::Reader => tracing::debug!(session = %self.wanted.session, "a stream's reader is gone or too slow"),
            End::Stopping => {
                if self.wanted.form == EventForm::Sse {
                    let text = format!("event: closing\ndata: {{\"reconnect_ms\":{RECONNECT_MS}}}\n\n");
                    let _ = self.send(text.into()).await;
                }
            }
            End::Failed(error) => tracing::warn!(session = %self.wanted.session, %error, "a stream ended early"),
        }
    }

    async fn feed(&mut self) -> End {
        if self.wanted.form == EventForm::Sse && !self.send(format!("retry: {RECONNECT_MS}\n\n").into()).await {
            return End::Reader;
        }
        let mut after = self.wanted.after;
        loop {
            let (sessions, tenant, session) = (self.app.sessions(), &self.caller.tenant, self.wanted.session);
            let read = sessions.next_events(&mut self.follow, tenant, session, after, BATCH).await;
            let events = match read {
                Ok(events) => events,
                Err(failure) => return End::Failed(failure.into()),
            };
            if !events.is_empty() {
                // The pieces of an answer came before it was recorded.
                while let Some(piece) = self.deltas.as_mut().and_then(Watcher::waiting) {
                    self.show(&piece);
                }
            }
            for live in &events {
                let frame = self.frame(live);
                if !self.send(frame).await {
                    return End::Reader;
                }
                after = live.recorded.seq;
            }
            if events.iter().any(|live| matches!(live.recorded.event, Event::SessionClosed(_))) {
                // Late refusals may still be recorded, but nothing that anybody waits for.
                return End::Over;
            }
            if !events.is_empty() {
                continue;
            }
            if !self.wanted.follow {
                return End::Over;
            }
            if let Some(end) = self.pause().await {
                return end;
            }
        }
    }

    /// Waits until the log may have moved, shows pieces, keeps the connection alive, and looks whether the credential is still
    /// good.
    async fn pause(&mut self) -> Option<End> {
        loop {
            let keep_alive = self.quiet_since + self.app.limits().keep_alive;
            let until = keep_alive.min(self.checked + LOOK_AGAIN).max(Instant::now());
            let looked = tokio::select! {
                biased;
                () = self.app.stopping().cancelled() => return Some(End::Stopping),
                () = self.frames.closed() => return Some(End::Reader),
                more = self.follow.more(until.saturating_duration_since(Instant::now())) => match more {
                    More::Perhaps | More::NotYet => true,
                    More::Gone => {
                        // The owner unloaded the session; follow it anew, though not in a tight loop.
                        tokio::time::sleep(Duration::from_millis(100)).await;
                        match self.app.sessions().follow(&self.caller.tenant, self.wanted.session).await {
                            Ok(follow) => self.follow = follow,
                            Err(failure) => return Some(End::Failed(failure.into())),
                        }
                        return None;
                    }
                },
                piece = next(self.deltas.as_mut()) => {
                    self.show(&piece);
                    false
                }
            };
            if Instant::now() >= self.checked + LOOK_AGAIN {
                if let Err(error) = self.app.auth().recheck(&self.caller.credential).await {
                    return Some(End::Failed(error.into()));
                }
                self.checked = Instant::now();
            }
            if Instant::now() >= keep_alive {
                let alive = match self.wanted.form {
                    EventForm::Sse => ": keep-alive\n\n",
                    EventForm::Lines | EventForm::Page => "\n",
                };
                if !self.send(Bytes::from_static(alive.as_bytes())).await {
                    return Some(End::Reader);
                }
            }
            if looked {
                return None;
            }
        }
    }

    /// Shows a piece of an answer if there is room: it must not stand in the way of an event.
    fn show(&self, piece: &Piece) {
        if self.frames.capacity() <= QUEUE / 2 {
            return;
        }
        // As with events, nothing in it can fail to be written.
        let json = serde_json::to_string(&DeltaLine::ModelDelta(piece.into())).unwrap_or_default();
        let frame = match self.wanted.form {
            // Without an id: a reader that comes back goes on after the last event.
            EventForm::Sse => format!("event: model_delta\ndata: {json}\n\n"),
            EventForm::Lines | EventForm::Page => format!("{json}\n"),
        };
        let _ = self.frames.try_send(frame.into());
    }

    fn frame(&self, live: &Live) -> Bytes {
        // The wire's own types serialize, on one line; the fallback cannot be reached.
        let json = |recorded: &Recorded| {
            serde_json::to_string(&EventView::of(self.wanted.session, recorded)).unwrap_or_default()
        };
        match self.wanted.form {
            EventForm::Sse => live.sse(|recorded| {
                let (seq, kind, json) = (recorded.seq, recorded.event.kind(), json(recorded));
                format!("id: {seq}\nevent: {kind}\ndata: {json}\n\n").into()
            }),
            EventForm::Lines | EventForm::Page => live.line(|recorded| format!("{}\n", json(recorded)).into()),
        }
    }

    /// Puts a frame into the queue; `false` when the reader is gone, or did not take anything for too long.
    async fn send(&mut self, frame: Bytes) -> bool {
        let patience = self.app.limits().slow_reader;
        let sent = self.frames.send_timeout(frame, patience).await.is_ok();
        self.quiet_since = Instant::now();
        sent
    }
}

/// The next piece; none comes where nobody asked for any.
async fn next(deltas: Option<&mut Watcher>) -> Arc<Piece> {
    match deltas {
        Some(watcher) => watcher.next().await,
        None => std::future::pending().await,
    }
}
