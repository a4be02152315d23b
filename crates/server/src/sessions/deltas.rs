//! Pieces of answers on their way from the models to those who asked to see them while they come. Nothing is recorded,
//! nothing is decided on them and nobody waits for anybody: whoever reads too slowly loses pieces. What is not here: how
//! pieces are taken out of a provider's stream (`toolgate-proposers`), their forms on the wire (`wire::delta`).

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use toolgate_core::bundle::Bundle;
use toolgate_core::id::SessionId;
use toolgate_core::input::Seat;
use toolgate_proposers::{Delta, DeltaSink};
use toolgate_store::SessionKey;

/// Pieces that wait for the slowest reader of a session; older ones are lost to it.
const WAITING: usize = 128;
/// Longest text of one piece, in bytes; longer ones are handed on in several.
const LONGEST: usize = 8 * 1024;

/// What a piece shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shown {
    /// More of the answer's text.
    Text(String),
    /// A call begins. It is neither complete nor decided.
    Call {
        /// Which call of the answer, from 0.
        index: usize,
        /// The name as the model wrote it.
        name: String,
    },
    /// More of the text of a call's arguments.
    Arguments {
        /// Which call of the answer, from 0.
        index: usize,
        /// The piece.
        text: String,
    },
    /// Everything so far of this attempt is void; another one follows, or none.
    Discarded,
    /// An answer comes, and nothing of it is shown, since it may hold what a tool's contract calls secret.
    Withheld,
}

/// A piece of the answer that one ballot waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// The session.
    pub session: SessionId,
    /// The ballot.
    pub seat: Seat,
    /// How many attempts of it were thrown away before, so that pieces of two are never taken for one answer.
    pub retry: u32,
    /// Place among the pieces of its attempt, from 1; a gap says that some were lost.
    pub n: u64,
    /// What it shows.
    pub shown: Shown,
}

/// Who wants pieces of which session. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Deltas {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Sessions somebody watches: nearly always none, and then nothing else is looked at.
    watched: AtomicUsize,
    sessions: Mutex<HashMap<SessionKey, broadcast::Sender<Arc<Piece>>>>,
}

impl Deltas {
    fn sessions(&self) -> MutexGuard<'_, HashMap<SessionKey, broadcast::Sender<Arc<Piece>>>> {
        self.shared.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches a session of a tenant from now on. A session that is not there, or that another node owns, shows nothing.
    pub(super) fn watch(&self, key: SessionKey) -> Watcher {
        let mut sessions = self.sessions();
        let receiver = sessions.entry(key.clone()).or_insert_with(|| broadcast::Sender::new(WAITING)).subscribe();
        self.shared.watched.store(sessions.len(), Ordering::Relaxed);
        drop(sessions);
        Watcher { deltas: self.clone(), key, receiver }
    }

    /// Where the pieces of one ballot go.
    pub(super) fn sink(&self, key: SessionKey, seat: Seat, bundle: &Bundle) -> Sink {
        Sink { deltas: self.clone(), key, seat, withholds: withholds(bundle), place: Mutex::default() }
    }

    /// Whether anybody watches any session.
    #[cfg(test)]
    pub(crate) fn is_watched(&self) -> bool {
        !self.sessions().is_empty()
    }

    fn sender(&self, key: &SessionKey) -> Option<broadcast::Sender<Arc<Piece>>> {
        if self.shared.watched.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.sessions().get(key).cloned()
    }
}

/// Whether answers under a bundle may hold what is never shown. Whether one does is known only once it is whole, and a
/// model may name a tool that it was not offered, so that every tool of the bundle counts.
fn withholds(bundle: &Bundle) -> bool {
    bundle.tools().any(|tool| !tool.def.redact.is_empty())
}

/// Somebody's view of a session's pieces. Dropping it ends the view.
#[derive(Debug)]
pub struct Watcher {
    deltas: Deltas,
    key: SessionKey,
    receiver: broadcast::Receiver<Arc<Piece>>,
}

impl Watcher {
    /// The next piece.
    pub async fn next(&mut self) -> Arc<Piece> {
        loop {
            match self.receiver.recv().await {
                Ok(piece) => return piece,
                // What was lost is gone; `n` shows the gap.
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return std::future::pending().await,
            }
        }
    }

    /// A piece that has come already.
    pub fn waiting(&mut self) -> Option<Arc<Piece>> {
        loop {
            match self.receiver.try_recv() {
                Ok(piece) => return Some(piece),
                Err(TryRecvError::Lagged(_)) => {}
                Err(TryRecvError::Empty | TryRecvError::Closed) => return None,
            }
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let mut sessions = self.deltas.sessions();
        // This one is still counted.
        if sessions.get(&self.key).is_some_and(|sender| sender.receiver_count() <= 1) {
            sessions.remove(&self.key);
        }
        self.deltas.shared.watched.store(sessions.len(), Ordering::Relaxed);
    }
}

/// Where the pieces of one ballot go. Never waits.
#[derive(Debug)]
pub(super) struct Sink {
    deltas: Deltas,
    key: SessionKey,
    seat: Seat,
    withholds: bool,
    place: Mutex<Place>,
}

#[derive(Debug, Default)]
struct Place {
    retry: u32,
    n: u64,
}

impl Sink {
    fn show(&self, place: &mut Place, sender: Option<&broadcast::Sender<Arc<Piece>>>, shown: Shown) {
        place.n += 1;
        let Some(sender) = sender else { return };
        let (session, seat) = (self.key.session, self.seat);
        // Nobody may be left who watches.
        let _ = sender.send(Arc::new(Piece { session, seat, retry: place.retry, n: place.n, shown }));
    }
}

impl DeltaSink for Sink {
    fn delta(&self, delta: Delta) {
        let mut place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        let sender = self.deltas.sender(&self.key);
        let sender = sender.as_ref();
        match delta {
            Delta::Discarded => {
                self.show(&mut place, sender, Shown::Discarded);
                *place = Place { retry: place.retry.saturating_add(1), n: 0 };
            }
            // The log shows nobody what a model thinks, so that nobody is shown it here.
            Delta::Reasoning(_) => {}
            Delta::Text(_) | Delta::Call { .. } | Delta::Arguments { .. } if self.withholds => {
                if place.n == 0 {
                    self.show(&mut place, sender, Shown::Withheld);
                }
            }
            Delta::Text(text) => {
                for text in cut(&text) {
                    self.show(&mut place, sender, Shown::Text(text.to_owned()));
                }
            }
            Delta::Call { at, name } => {
                let name = cut(&name).next().unwrap_or_default().to_owned();
                self.show(&mut place, sender, Shown::Call { index: at, name });
            }
            Delta::Arguments { at, text } => {
                for text in cut(&text) {
                    self.show(&mut place, sender, Shown::Arguments { index: at, text: text.to_owned() });
                }
            }
        }
    }
}

/// A text in pieces of bounded length.
fn cut(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let (piece, after) = rest.split_at(rest.floor_char_boundary(LONGEST));
        rest = after;
        (!piece.is_empty()).then_some(piece)
    })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use serde_json::{Value, json};
    use toolgate_core::id::TenantId;

    use super::*;

    const SEAT: Seat = Seat { run: 1, step: 1, round: 1, ballot: 1, attempt: 1 };

    fn key(tenant: &str) -> SessionKey {
        let session = "ses_01a228f32d97767e9c20a4e838e1021d".parse().unwrap();
        SessionKey { tenant: TenantId::new(tenant).unwrap(), session }
    }

    fn bundle(redact: &Value) -> Bundle {
        let tool = json!({"description": "x", "parameters": {"properties": {"pin": {"type": "string"}}},
                          "venue": "server", "executor": {"builtin": "echo"}, "redact": redact});
        let text = json!({
            "version": 1, "tools": {"secretive": tool, "plain": {"description": "x", "parameters": {"properties": {}}, "venue": "server", "executor": {"builtin": "echo"}}},
            "models": {"m": {"provider": "scripted", "script": [{"done": "x"}]}},
            "default_harness": {"max_steps": 1, "max_tool_calls": 1, "deadline_ms": 60_000},
            "profiles": {"p": {"tools": ["plain"], "model": "m"}}
        });
        Bundle::load(&text.to_string()).unwrap()
    }

    fn text(text: &str) -> Delta {
        Delta::Text(text.to_owned())
    }

    fn all(watcher: &mut Watcher) -> Vec<(u32, u64, Shown)> {
        std::iter::from_fn(|| watcher.waiting()).map(|piece| (piece.retry, piece.n, piece.shown.clone())).collect()
    }

    #[test]
    fn attempts_are_told_apart_and_places_counted_also_while_nobody_watches() {
        let deltas = Deltas::default();
        let sink = deltas.sink(key("acme"), SEAT, &bundle(&json!([])));
        sink.delta(text("unseen"));
        let mut watcher = deltas.watch(key("acme"));
        for delta in [text("a"), Delta::Reasoning("hm".to_owned()), Delta::Discarded, text("b")] {
            sink.delta(delta);
        }
        let seen = all(&mut watcher);
        let shown = |text: &str| Shown::Text(text.to_owned());
        assert_eq!(seen, [(0, 2, shown("a")), (0, 3, Shown::Discarded), (1, 1, shown("b"))]);
    }

    #[test]
    fn nothing_is_shown_where_a_tool_of_the_bundle_redacts() {
        let deltas = Deltas::default();
        let mut watcher = deltas.watch(key("acme"));
        let sink = deltas.sink(key("acme"), SEAT, &bundle(&json!(["/pin"])));
        for delta in [
            text("the pin is 1234"),
            Delta::Call { at: 0, name: "secretive".to_owned() },
            Delta::Arguments { at: 0, text: "1234".to_owned() },
            Delta::Discarded,
            text("1234"),
        ] {
            sink.delta(delta);
        }
        assert_eq!(all(&mut watcher), [(0, 1, Shown::Withheld), (0, 2, Shown::Discarded), (1, 1, Shown::Withheld)]);
    }

    #[test]
    fn tenants_and_sessions_see_their_own_and_nothing_is_kept_for_nobody() {
        let deltas = Deltas::default();
        let (mut own, mut foreign) = (deltas.watch(key("acme")), deltas.watch(key("other")));
        let second = deltas.watch(key("acme"));
        let sink = deltas.sink(key("acme"), SEAT, &bundle(&json!([])));
        sink.delta(text("mine"));
        assert_eq!((all(&mut own).len(), all(&mut foreign).len()), (1, 0));
        drop((own, foreign));
        assert!(deltas.sender(&key("acme")).is_some());
        drop(second);
        assert!(deltas.sessions().is_empty() && deltas.sender(&key("acme")).is_none());
        sink.delta(text("unseen"));
    }

    #[test]
    fn who_reads_too_slowly_loses_the_oldest_and_memory_is_bounded() {
        let deltas = Deltas::default();
        let mut watcher = deltas.watch(key("acme"));
        let sink = deltas.sink(key("acme"), SEAT, &bundle(&json!([])));
        sink.delta(text(&"\u{1f600}".repeat(LONGEST)));
        sink.delta(text("end"));
        let seen = all(&mut watcher);
        let whole = 4 * LONGEST / LONGEST + 1;
        assert_eq!(seen.len(), whole);
        assert!(seen.iter().all(|(_, _, shown)| matches!(shown, Shown::Text(text) if text.len() <= LONGEST)));
        for _ in 0..10 * WAITING {
            sink.delta(text("x"));
        }
        let seen = all(&mut watcher);
        assert_eq!((seen.len(), seen.last().unwrap().1), (WAITING, (whole + 10 * WAITING) as u64));
    }
}
