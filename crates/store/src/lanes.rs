//! Group commit: writes of many sessions reach the database in one write each time, through a few lanes. A lane writes
//! what came while its last write was under way and never waits for more. What is not here: how a backend writes several
//! appends (`EventLog::write_many`), and who sends a write again (its caller).

use std::fmt;
use std::future::Future;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{mpsc, oneshot};

use crate::append::{Append, Appended, Created, NewSession, Write, Wrote};
use crate::crash;
use crate::error::StoreError;
use crate::event_log::Store;

/// Writes of one batch. Backends cut larger batches into statements by themselves; this bounds what one failure meets.
const MOST: usize = 512;
/// Writes that wait for a lane beside those it takes; further callers wait for room.
const WAITING: usize = 1_024;

/// The lanes through which sessions write. Writes of one session always take the same lane, in the order given.
pub struct Lanes {
    lanes: Vec<mpsc::Sender<Waiting>>,
    counts: Arc<Counts>,
}

/// What the lanes have written so far, failures included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Written {
    /// Appends and creations of sessions.
    pub writes: u64,
    /// Writes of the database that carried them.
    pub batches: u64,
}

#[derive(Debug, Default)]
struct Counts {
    writes: AtomicU64,
    batches: AtomicU64,
}

/// A write and whoever waits for its answer.
struct Waiting {
    write: Write,
    answer: oneshot::Sender<Result<Wrote, StoreError>>,
}

impl Lanes {
    /// Starts so many lanes over a store; each writes one batch at a time. They end when this is dropped and everything
    /// given to them is written.
    #[must_use]
    pub fn start(store: Arc<dyn Store>, lanes: NonZeroUsize) -> Self {
        Self::over(lanes, move |writes| {
            let store = Arc::clone(&store);
            async move { store.write_many(writes).await }
        })
    }

    fn over<W, F>(lanes: NonZeroUsize, write: W) -> Self
    where
        W: Fn(Vec<Write>) -> F + Clone + Send + 'static,
        F: Future<Output = Vec<Result<Wrote, StoreError>>> + Send + 'static,
    {
        let counts = Arc::<Counts>::default();
        let start = |_| {
            let (sender, receiver) = mpsc::channel(WAITING);
            tokio::spawn(lane(receiver, write.clone(), Arc::clone(&counts)));
            sender
        };
        Self { lanes: (0..lanes.get()).map(start).collect(), counts }
    }

    /// What was written so far.
    #[must_use]
    pub fn written(&self) -> Written {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Written { writes: read(&self.counts.writes), batches: read(&self.counts.batches) }
    }

    /// Appends, as [`EventLog::append`](crate::EventLog::append) does. May be dropped half-way: an append that a lane has
    /// taken is written all the same.
    ///
    /// # Errors
    /// Those of `append`. After [`StoreError::Unavailable`] the outcome is unknown: send the very same value again.
    pub async fn append(&self, append: Arc<Append>) -> Result<Appended, StoreError> {
        match self.write(Write::Append(append)).await? {
            Wrote::Append(appended) => Ok(appended),
            Wrote::Create(_) => Err(gone()),
        }
    }

    /// Creates a session, as [`EventLog::create_session`](crate::EventLog::create_session) does. May be dropped half-way.
    ///
    /// # Errors
    /// Those of `create_session`. After [`StoreError::Unavailable`] the outcome is unknown: send the very same value again.
    pub async fn create(&self, new: Arc<NewSession>) -> Result<Created, StoreError> {
        match self.write(Write::Create(new)).await? {
            Wrote::Create(created) => Ok(created),
            Wrote::Append(_) => Err(gone()),
        }
    }

    async fn write(&self, write: Write) -> Result<Wrote, StoreError> {
        let (answer, answered) = oneshot::channel();
        let lane = self.lane_of(write.append()).ok_or_else(gone)?;
        lane.send(Waiting { write, answer }).await.map_err(|_| gone())?;
        answered.await.unwrap_or_else(|_| Err(gone()))
    }

    fn lane_of(&self, append: &Append) -> Option<&mpsc::Sender<Waiting>> {
        let count = u128::try_from(self.lanes.len()).ok()?;
        let place = append.session.uuid().as_u128().checked_rem(count)?;
        self.lanes.get(usize::try_from(place).ok()?)
    }
}

impl fmt::Debug for Lanes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lanes").field("lanes", &self.lanes.len()).finish()
    }
}

async fn lane<W, F>(mut waiting: mpsc::Receiver<Waiting>, write: W, counts: Arc<Counts>)
where
    W: Fn(Vec<Write>) -> F,
    F: Future<Output = Vec<Result<Wrote, StoreError>>> + Send + 'static,
{
    let mut batch = Vec::new();
    while waiting.recv_many(&mut batch, MOST).await > 0 {
        let writes: Vec<Write> = batch.iter().map(|one| one.write.clone()).collect();
        counts.writes.fetch_add(writes.len() as u64, Ordering::Relaxed);
        counts.batches.fetch_add(1, Ordering::Relaxed);
        // A task of its own: a write that panics costs its own batch, not the lane.
        let mut answers = crash::reply(tokio::spawn(write(writes)).await.unwrap_or_default()).into_iter();
        for Waiting { write: _, answer } in batch.drain(..) {
            // Whoever is gone has no use for the answer; it is written all the same.
            let _ = answer.send(answers.next().unwrap_or_else(|| Err(gone())));
        }
    }
}

fn gone() -> StoreError {
    StoreError::Unavailable("the write ended without an answer".into())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests;
