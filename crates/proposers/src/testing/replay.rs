//! An answer read from bytes at hand in the place of a connection, by the code that reads connections: bounds of time and size
//! hold, and under paused time nothing is waited for. What is not here: connections.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use toolgate_core::ask::Ask;
use toolgate_core::bundle::model::ModelDef;
use toolgate_core::proposal::Ballot;

use crate::envelope::JsonEnvelope;
use crate::exchange::{out_of_time, total, waits};
use crate::http::{Failure, Head, Reading, Source, read};
use crate::wire::{Asked, Wire, judged};

/// An answer as a server sends it.
#[derive(Debug, Clone)]
pub struct Sent<'a> {
    /// The HTTP status.
    pub status: u16,
    /// The `Content-Type`.
    pub content_type: &'a str,
    /// The bytes of the body that come.
    pub body: &'a [u8],
    /// Sent in pieces of this size, at least 1.
    pub piece: usize,
    /// Time before each of them.
    pub every: Duration,
    /// After the last of them nothing comes, not even the end.
    pub hangs: bool,
}

struct Canned<'a> {
    pieces: std::slice::Chunks<'a, u8>,
    every: Duration,
    hangs: bool,
}

impl Source for Canned<'_> {
    async fn piece(&mut self) -> Result<Option<impl AsRef<[u8]> + Send>, Failure> {
        match self.pieces.next() {
            Some(piece) => {
                if !self.every.is_zero() {
                    sleep(self.every).await;
                }
                Ok(Some(piece))
            }
            None if self.hangs => std::future::pending().await,
            None => Ok(None),
        }
    }
}

/// What one attempt makes of an answer, within the times of the definition.
pub async fn replay(sent: Sent<'_>, ask: &Ask, def: &ModelDef) -> Ballot {
    let head = Head { status: sent.status, content_type: Some(sent.content_type.to_owned()), announced: None };
    let source = Canned { pieces: sent.body.chunks(sent.piece.max(1)), every: sent.every, hangs: sent.hangs };
    let waits = waits(def);
    let patience = waits.first_byte.map(|time| Instant::now() + time);
    let reading = Reading { wire: Wire::of(def.provider), key: None, patience, idle: waits.idle };
    let answer = timeout(total(def), read(head, source, reading, &|_| {})).await;
    let answer = answer.unwrap_or_else(|_| Err(out_of_time(def)));
    judged(answer, ask, def, (Asked::first(def.calls), &JsonEnvelope))
}
