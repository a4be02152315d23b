//! Housekeeping of a running node: windows of the tenants' ledgers that are long over are forgotten. What is not here:
//! content that retention or erasure removes.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use toolgate_core::time::Timestamp;
use toolgate_store::Store;

use crate::clock::SharedClock;

/// Time between rounds.
const EVERY: Duration = Duration::from_secs(60 * 60);
/// The longest window has 31 days; what began earlier than this is over, and nobody asks about it again.
const KEPT_MICROS: i64 = 35 * 24 * 60 * 60 * 1_000_000;
/// Rows of one write.
const PAGE: u32 = 1_000;

/// The housekeeping of a running node.
#[derive(Debug)]
pub struct Sweeper {
    stop: CancellationToken,
    worker: JoinHandle<()>,
}

impl Sweeper {
    /// Starts it; the first round begins at once.
    #[must_use]
    pub fn start(store: Arc<dyn Store>, clock: SharedClock) -> Self {
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let worker = tokio::spawn(async move {
            // Cut off anywhere: what a round leaves is found by the next.
            let rounds = async {
                loop {
                    sweep(&*store, clock.now()).await;
                    tokio::time::sleep(EVERY).await;
                }
            };
            tokio::select! {
                () = stopped.cancelled() => {}
                () = rounds => {}
            }
        });
        Self { stop, worker }
    }

    /// Ends it.
    pub async fn stop(self) {
        self.stop.cancel();
        if let Err(error) = self.worker.await {
            tracing::warn!(%error, "housekeeping did not end well");
        }
    }
}

/// How long the answer to an input that left no record is kept.
const ANSWERS_KEPT_MICROS: i64 = 24 * 60 * 60 * 1_000_000;

/// Forgets what is over, page by page.
async fn sweep(store: &dyn Store, now: Timestamp) {
    let answered = Timestamp(now.as_micros().saturating_sub(ANSWERS_KEPT_MICROS));
    while let Ok(gone) = store.inbox_sweep(answered, PAGE).await {
        if gone < u64::from(PAGE) {
            break;
        }
    }
    let before = Timestamp(now.as_micros().saturating_sub(KEPT_MICROS));
    loop {
        match store.ledger_sweep(before, PAGE).await {
            Ok(gone) if gone < u64::from(PAGE) => return,
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(%error, "the ledger is swept again later");
                return;
            }
        }
    }
}
