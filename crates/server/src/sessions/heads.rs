//! What those who watch a session see of it, and the heads of sessions that somebody watches here and another node owns:
//! one query per round for all of them. What is not here: sessions in this node's memory, whose heads move with their
//! appends (`actor`).

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use toolgate_core::session::{Session, Status};
use toolgate_store::{MAX_PAGE, StoreError};

use super::deps::Deps;
use super::live::{Live, Recent};
use super::registry::Registry;

/// What is known of a session without asking it.
#[derive(Debug, Clone, Default)]
pub struct Head {
    /// The last durable sequence number that was heard of. A hint; the log is the truth.
    pub seq: u64,
    /// Whether the session is in this node's memory and known to run on, so that there is nothing to look for yet.
    pub runs: bool,
    /// The end of the log, where somebody follows the session here.
    recent: Recent,
}

/// Where those who watch a session learn of its head.
#[derive(Debug, Clone)]
pub(super) struct Watched {
    pub(super) head: watch::Sender<Head>,
    /// As many owners as there are followers, and this.
    followers: Arc<()>,
}

impl Watched {
    /// A session of which no more is known than that its log goes so far.
    pub(super) fn at(seq: u64) -> Self {
        let head = Head { seq, runs: false, recent: Recent::default() };
        Self { head: watch::Sender::new(head), followers: Arc::new(()) }
    }

    pub(super) fn follow(&self) -> Follow {
        Follow { head: self.head.subscribe(), look: true, _counted: Arc::clone(&self.followers) }
    }

    /// Whether anybody wants the events themselves.
    pub(super) fn is_followed(&self) -> bool {
        // The registry's and the actor's.
        Arc::strong_count(&self.followers) > 2
    }

    /// Tells of a durable state in memory, and of the events that led to it since the last time.
    pub(super) fn publish(&self, state: &Session, fresh: Vec<Live>) {
        self.head.send_modify(|head| {
            head.seq = state.head;
            head.runs = state.status() == Status::Running;
            head.recent = head.recent.and(fresh).ending_at(state.head);
        });
    }

    /// Nothing is known of the session any more but that its log went so far.
    pub(super) fn rests(&self) {
        self.head.send_if_modified(|head| {
            head.recent = Recent::default();
            std::mem::take(&mut head.runs)
        });
    }
}

/// What waiting for more has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum More {
    /// There may be more.
    Perhaps,
    /// Nothing was heard for as long as one would wait.
    NotYet,
    /// The session has left memory, and whoever loads it next tells others: follow it anew.
    Gone,
}

/// A place in the log of a session from which somebody follows it.
#[derive(Debug)]
pub struct Follow {
    head: watch::Receiver<Head>,
    /// Whether to look into the log though nothing says that there is more.
    look: bool,
    _counted: Arc<()>,
}

impl Follow {
    /// The last sequence number that was heard of; a hint.
    #[must_use]
    pub fn seq(&self) -> u64 {
        self.head.borrow().seq
    }

    /// Waits until there may be more, or for so long. What is read next after the time is over is read from the log.
    pub async fn more(&mut self, patience: Duration) -> More {
        let changed = tokio::time::timeout(patience, self.head.changed()).await;
        self.look = changed.is_err();
        match changed {
            Ok(Ok(())) => More::Perhaps,
            Ok(Err(_)) => More::Gone,
            Err(_) => More::NotYet,
        }
    }

    /// What is known to come after a place, and whether it is known that nothing else does.
    pub(super) fn after(&mut self, seq: u64) -> Option<Vec<Arc<Live>>> {
        let head = self.head.borrow_and_update();
        let events = head.recent.after(seq)?;
        (!events.is_empty() || !self.look).then(|| events.to_vec())
    }
}

/// Time between rounds.
const EVERY: Duration = Duration::from_millis(100);

/// Looks until the server stops.
pub(super) async fn keep(deps: Arc<Deps>, registry: Arc<Registry>) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            () = deps.stopping.cancelled() => return,
        }
        if let Err(error) = round(&deps, &registry).await {
            tracing::debug!(%error, "heads of sessions elsewhere could not be looked at");
        }
    }
}

async fn round(deps: &Deps, registry: &Registry) -> Result<(), StoreError> {
    for keys in registry.watched_elsewhere().chunks(MAX_PAGE as usize) {
        for (key, head) in deps.store.heads(keys).await? {
            registry.raise(&key, head);
        }
    }
    Ok(())
}
