//! What goes out of a connection: two bounded lanes and the one writer. Offers and answers go before events, pings before
//! both, so that a backlog delays neither. What is not here: what is sent.

use std::fmt;

use axum::extract::ws::{CloseFrame, Message, Utf8Bytes};
use futures_util::{Sink, SinkExt};
use tokio::sync::mpsc;
use tokio::time::{Duration, Instant, MissedTickBehavior, interval_at, timeout};

use super::ChannelSettings;
use super::close::{CloseReason, Exit};
use crate::wire::frame::{Closing, ServerFrame};

/// Time for the last words of a connection.
const FAREWELL: Duration = Duration::from_secs(2);
/// Most milliseconds after which clients are told to come back; drawn at random, so that they do not come all at once.
const RECONNECT_MOST_MS: u64 = 5_000;

/// The connection has ended; nothing can be sent any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ended;

/// The sending side. Cheap to clone; waits where a lane is full.
#[derive(Clone)]
pub(super) struct Outbox {
    control: mpsc::Sender<Utf8Bytes>,
    bulk: mpsc::Sender<Utf8Bytes>,
}

impl fmt::Debug for Outbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Outbox")
    }
}

/// The lanes as the writer sees them.
pub(super) struct Lanes {
    control: mpsc::Receiver<Utf8Bytes>,
    bulk: mpsc::Receiver<Utf8Bytes>,
}

/// The two ends of the lanes.
pub(super) fn lanes(settings: &ChannelSettings) -> (Outbox, Lanes) {
    let (control, from_control) = mpsc::channel(settings.control_queue.max(1));
    let (bulk, from_bulk) = mpsc::channel(settings.bulk_queue.max(1));
    (Outbox { control, bulk }, Lanes { control: from_control, bulk: from_bulk })
}

impl Outbox {
    /// Sends an offer or an answer.
    pub(super) async fn control(&self, frame: &ServerFrame) -> Result<(), Ended> {
        self.control.send(frame.text().into()).await.map_err(|_| Ended)
    }

    /// Sends an event.
    pub(super) async fn bulk(&self, frame: &ServerFrame) -> Result<(), Ended> {
        self.bulk_text(frame.text().into()).await
    }

    /// Sends an event that is a text already.
    pub(super) async fn bulk_text(&self, text: Utf8Bytes) -> Result<(), Ended> {
        self.bulk.send(text).await.map_err(|_| Ended)
    }

    /// Sends what may get lost, if there is room. It must not stand in the way of an event.
    pub(super) fn if_room(&self, frame: &ServerFrame) {
        if self.bulk.capacity() > self.bulk.max_capacity() / 2 {
            // Progress is worth nothing later.
            let _ = self.bulk.try_send(frame.text().into());
        }
    }
}

/// Writes until the connection ends, then says goodbye.
pub(super) async fn write<K>(mut sink: K, mut lanes: Lanes, exit: &Exit, settings: &ChannelSettings)
where
    K: Sink<Message> + Unpin,
{
    let mut ping = interval_at(Instant::now() + settings.heartbeat, settings.heartbeat);
    ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let message = tokio::select! {
            biased;
            () = exit.closing() => break,
            _ = ping.tick() => Message::Ping(Vec::new().into()),
            Some(text) = lanes.control.recv() => Message::Text(text),
            Some(text) = lanes.bulk.recv() => Message::Text(text),
        };
        let sent = tokio::select! {
            sent = timeout(settings.stall, sink.send(message)) => sent,
            // Something ends the connection while its client takes nothing: it has a moment left to take this.
            () = after_closing(exit) => return,
        };
        match sent {
            Ok(Ok(())) => {}
            Ok(Err(_)) => {
                exit.close(CloseReason::Gone);
                return;
            }
            Err(_) => {
                exit.close(CloseReason::TooSlow);
                break;
            }
        }
    }
    // The other side may be gone or stuck; the log has everything.
    let _ = timeout(FAREWELL, farewell(&mut sink, &mut lanes, exit.reason().unwrap_or(CloseReason::Gone))).await;
}

async fn after_closing(exit: &Exit) {
    exit.closing().await;
    tokio::time::sleep(FAREWELL).await;
}

/// The answers that still wait, `Closing` before a restart, and the close frame.
async fn farewell<K>(sink: &mut K, lanes: &mut Lanes, reason: CloseReason) -> Result<(), K::Error>
where
    K: Sink<Message> + Unpin,
{
    while let Ok(text) = lanes.control.try_recv() {
        sink.send(Message::Text(text)).await?;
    }
    if reason == CloseReason::Restart {
        let closing = ServerFrame::Closing(Closing { reconnect_ms: reconnect_ms() });
        sink.send(Message::Text(closing.text().into())).await?;
    }
    let frame = CloseFrame { code: reason.code(), reason: Utf8Bytes::from_static(reason.text()) };
    sink.send(Message::Close(Some(frame))).await?;
    sink.close().await
}

fn reconnect_ms() -> u64 {
    // Without randomness all clients come back at once, which the rate limits bear.
    getrandom::u64().unwrap_or(RECONNECT_MOST_MS) % RECONNECT_MOST_MS
}
