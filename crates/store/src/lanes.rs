//! Group commit: appends of many sessions reach the database in one write each time, through a few lanes. A lane writes
//! what came while its last write was under way and never waits for more. What is not here: how a backend writes several
//! appends (`EventLog::append_many`), and who sends an append again (its caller).

use std::fmt;
use std::future::Future;
use std::num::NonZeroUsize;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use crate::append::{Append, Appended};
use crate::crash;
use crate::error::StoreError;
use crate::event_log::Store;

/// Appends of one write. Backends cut larger batches into statements by themselves; this bounds what one failure meets.
const MOST: usize = 512;
/// Appends that wait for a lane beside those it takes; further callers wait for room.
const WAITING: usize = 1_024;

/// The lanes through which sessions append. Appends of one session always take the same lane, in the order given.
pub struct Lanes {
    lanes: Vec<mpsc::Sender<Waiting>>,
}

/// An append and whoever waits for its answer.
struct Waiting {
    append: Arc<Append>,
    answer: oneshot::Sender<Result<Appended, StoreError>>,
}

impl Lanes {
    /// Starts so many lanes over a store; each writes one batch at a time. They end when this is dropped and everything
    /// given to them is written.
    #[must_use]
    pub fn start(store: Arc<dyn Store>, lanes: NonZeroUsize) -> Self {
        Self::over(lanes, move |appends| {
            let store = Arc::clone(&store);
            async move { store.append_many(appends).await }
        })
    }

    fn over<W, F>(lanes: NonZeroUsize, write: W) -> Self
    where
        W: Fn(Vec<Arc<Append>>) -> F + Clone + Send + 'static,
        F: Future<Output = Vec<Result<Appended, StoreError>>> + Send + 'static,
    {
        let start = |_| {
            let (sender, receiver) = mpsc::channel(WAITING);
            tokio::spawn(lane(receiver, write.clone()));
            sender
        };
        Self { lanes: (0..lanes.get()).map(start).collect() }
    }

    /// Appends, as [`EventLog::append`](crate::EventLog::append) does. May be dropped half-way: an append that a lane has
    /// taken is written all the same.
    ///
    /// # Errors
    /// Those of `append`. After [`StoreError::Unavailable`] the outcome is unknown: send the very same value again.
    pub async fn append(&self, append: Arc<Append>) -> Result<Appended, StoreError> {
        let (answer, answered) = oneshot::channel();
        let lane = self.lane_of(&append).ok_or_else(gone)?;
        lane.send(Waiting { append, answer }).await.map_err(|_| gone())?;
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

async fn lane<W, F>(mut waiting: mpsc::Receiver<Waiting>, write: W)
where
    W: Fn(Vec<Arc<Append>>) -> F,
    F: Future<Output = Vec<Result<Appended, StoreError>>> + Send + 'static,
{
    let mut batch = Vec::new();
    while waiting.recv_many(&mut batch, MOST).await > 0 {
        let appends = batch.iter().map(|one| Arc::clone(&one.append)).collect();
        // A task of its own: a write that panics costs its own batch, not the lane.
        let mut answers = crash::reply(tokio::spawn(write(appends)).await.unwrap_or_default()).into_iter();
        for Waiting { append: _, answer } in batch.drain(..) {
            // Whoever is gone has no use for the answer; the append is written all the same.
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
