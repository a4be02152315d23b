//! Connections between their uses. The driver's pool asks the database after every use whether the connection still
//! answers: a second round trip for each statement. Those whose last statement went well are kept here instead; all others
//! go back to the pool, which tries or replaces them. What is not here: how connections are made (`postgres`).

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgArguments, PgPool, PgQueryResult, PgRow};
use sqlx::query::Query;
use sqlx::{Connection as _, Postgres};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A connection that was idle for longer is tried before it is used: the server may have gone in the meantime.
pub(super) const TRUSTED_IDLE: Duration = Duration::from_secs(1);
/// A connection that is older goes back to the pool, so that none lives for ever.
const KEPT_AT_MOST: Duration = Duration::from_secs(30 * 60);

/// The connections to one database. Cheap to clone.
#[derive(Clone)]
pub(super) struct Kept {
    pool: PgPool,
    /// How long a statement waits for a connection.
    patience: Duration,
    /// As many as the pool has connections: whoever has a place finds one here or gets one of the pool.
    places: Arc<Semaphore>,
    idle: Arc<Mutex<Vec<Idle>>>,
}

struct Idle {
    connection: PoolConnection<Postgres>,
    opened: Instant,
    since: Instant,
}

/// A connection in use.
struct Lease {
    connection: PoolConnection<Postgres>,
    opened: Instant,
    _place: OwnedSemaphorePermit,
}

impl Kept {
    pub(super) fn new(pool: PgPool, connections: u32, patience: Duration) -> Self {
        let places = Arc::new(Semaphore::new(usize::try_from(connections).unwrap_or(1).max(1)));
        Self { pool, patience, places, idle: Arc::default() }
    }

    /// Exactly one row.
    pub(super) async fn fetch_one(&self, query: Query<'_, Postgres, PgArguments>) -> Result<PgRow, sqlx::Error> {
        let mut lease = self.take().await?;
        let row = query.fetch_one(&mut *lease.connection).await?;
        self.keep(lease);
        Ok(row)
    }

    /// All rows.
    pub(super) async fn fetch_all(&self, query: Query<'_, Postgres, PgArguments>) -> Result<Vec<PgRow>, sqlx::Error> {
        let mut lease = self.take().await?;
        let rows = query.fetch_all(&mut *lease.connection).await?;
        self.keep(lease);
        Ok(rows)
    }

    /// No rows.
    pub(super) async fn execute(&self, query: Query<'_, Postgres, PgArguments>) -> Result<PgQueryResult, sqlx::Error> {
        let mut lease = self.take().await?;
        let done = query.execute(&mut *lease.connection).await?;
        self.keep(lease);
        Ok(done)
    }

    /// Closes all connections; waits for those in use.
    pub(super) async fn close(&self) {
        self.places.close();
        self.idle().clear();
        self.pool.close().await;
    }

    async fn take(&self) -> Result<Lease, sqlx::Error> {
        let place = tokio::time::timeout(self.patience, Arc::clone(&self.places).acquire_owned()).await;
        let place = place.map_err(|_| sqlx::Error::PoolTimedOut)?.map_err(|_| sqlx::Error::PoolClosed)?;
        while let Some(Idle { mut connection, opened, since }) = self.pop() {
            if since.elapsed() <= TRUSTED_IDLE || connection.ping().await.is_ok() {
                return Ok(Lease { connection, opened, _place: place });
            }
        }
        let connection = self.pool.acquire().await?;
        Ok(Lease { connection, opened: Instant::now(), _place: place })
    }

    fn keep(&self, lease: Lease) {
        let Lease { connection, opened, _place } = lease;
        if opened.elapsed() < KEPT_AT_MOST && !self.places.is_closed() {
            self.idle().push(Idle { connection, opened, since: Instant::now() });
        }
    }

    fn pop(&self) -> Option<Idle> {
        self.idle().pop()
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Idle>> {
        // A list of connections is whole whatever panicked beside it.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kept").field("pool", &self.pool).finish_non_exhaustive()
    }
}
