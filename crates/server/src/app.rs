//! What every handler shares: the sessions, the store's registry, the clock, the keys, the limits. What is not here:
//! the routes (`router`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use toolgate_store::Store;

use crate::auth::{Authenticator, Pepper};
use crate::clock::SharedClock;
use crate::http::cursor::CursorKey;
use crate::http::probe::ProbeLimit;
use crate::sessions::Sessions;

/// Bounds of the HTTP side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HttpLimits {
    /// Bytes of a request body.
    pub body_bytes: usize,
    /// Time for a request, apart from the wait that it asks for.
    pub request: Duration,
    /// The longest wait a request may ask for, in seconds.
    pub max_wait_s: u64,
    /// Event streams that are open at once.
    pub streams: usize,
    /// Time without events after which a stream says that it is alive.
    pub keep_alive: Duration,
    /// Time that a reader of a stream may stand still before it is cut off.
    pub slow_reader: Duration,
    /// How long an idempotency key is remembered.
    pub idempotency_ttl: Duration,
    /// Probes of ids outside the tenant that are written to its security log, per minute.
    pub probes_per_minute: u32,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            body_bytes: 1024 * 1024,
            request: Duration::from_secs(30),
            max_wait_s: 60,
            streams: 1_024,
            keep_alive: Duration::from_secs(15),
            slow_reader: Duration::from_secs(30),
            idempotency_ttl: Duration::from_secs(24 * 60 * 60),
            probes_per_minute: 20,
        }
    }
}

/// The shared handles. Cheap to clone.
#[derive(Debug, Clone)]
pub struct App {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    sessions: Sessions,
    store: Arc<dyn Store>,
    clock: SharedClock,
    auth: Authenticator,
    limits: HttpLimits,
    cursors: CursorKey,
    probes: ProbeLimit,
    streams: Arc<Semaphore>,
    ready: AtomicBool,
    stopping: CancellationToken,
}

impl App {
    /// Puts the handles together. Not ready until [`App::set_ready`].
    #[must_use]
    pub fn new(
        sessions: Sessions,
        store: Arc<dyn Store>,
        clock: SharedClock,
        pepper: Pepper,
        limits: HttpLimits,
    ) -> Self {
        Self {
            inner: Arc::new(Inner {
                sessions,
                cursors: CursorKey::new(pepper.clone()),
                auth: Authenticator::new(Arc::clone(&store), Arc::clone(&clock), pepper),
                store,
                clock,
                probes: ProbeLimit::new(limits.probes_per_minute),
                streams: Arc::new(Semaphore::new(limits.streams)),
                limits,
                ready: AtomicBool::new(false),
                stopping: CancellationToken::new(),
            }),
        }
    }

    /// The sessions.
    #[must_use]
    pub fn sessions(&self) -> &Sessions {
        &self.inner.sessions
    }

    /// What belongs to tenants and to the cluster. Handlers use its `Registry` part and the lists.
    #[must_use]
    pub fn store(&self) -> &dyn Store {
        self.inner.store.as_ref()
    }

    /// The clock.
    #[must_use]
    pub fn clock(&self) -> &SharedClock {
        &self.inner.clock
    }

    /// The check of API keys.
    #[must_use]
    pub fn auth(&self) -> &Authenticator {
        &self.inner.auth
    }

    /// The bounds.
    #[must_use]
    pub fn limits(&self) -> &HttpLimits {
        &self.inner.limits
    }

    /// What cursors are marked with.
    pub(crate) fn cursors(&self) -> &CursorKey {
        &self.inner.cursors
    }

    /// How many probes are still written down.
    pub(crate) fn probes(&self) -> &ProbeLimit {
        &self.inner.probes
    }

    /// The places for open streams.
    pub(crate) fn streams(&self) -> &Arc<Semaphore> {
        &self.inner.streams
    }

    /// Whether requests are taken.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.inner.ready.load(Ordering::Acquire) && !self.inner.stopping.is_cancelled()
    }

    /// Says that requests are taken from now on, or not any more.
    pub fn set_ready(&self, ready: bool) {
        self.inner.ready.store(ready, Ordering::Release);
    }

    /// Cancelled when the server begins to stop: streams say goodbye, readiness turns red.
    #[must_use]
    pub fn stopping(&self) -> &CancellationToken {
        &self.inner.stopping
    }
}
