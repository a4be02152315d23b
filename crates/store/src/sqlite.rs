//! The store in an SQLite file: one writer connection, a pool of readers. What is not here: keeping two servers from
//! opening the same file (the server holds a lock file), and the statements shared with PostgreSQL (`sql`).

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sqlx::Sqlite as Driver;
use sqlx::sqlite::{
    SqliteArguments, SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteRow,
    SqliteSynchronous,
};

use crate::append::{Append, Appended, Created, NewSession, TakeOver, TakenOver, Write, Wrote};
use crate::cluster::Hints;
use crate::crash;
use crate::error::StoreError;
use crate::ledger::{Posting, Reserved};
use crate::name::NodeId;
use crate::sql::failure::store_error;
use crate::sql::statements::{self, Statements};
use crate::sql::{Database, Refused, SqlStore, Value, detached};

mod append;
mod ledger;

/// How long a statement waits for a lock that another process holds.
const BUSY: Duration = Duration::from_secs(15);

/// How many connections read at the same time.
const READERS: u32 = 4;

/// The store in an SQLite file.
pub type SqliteStore = SqlStore<Sqlite>;

/// The two pools over one SQLite file.
#[derive(Debug, Clone)]
pub struct Sqlite {
    writer: SqlitePool,
    readers: SqlitePool,
}

impl SqlStore<Sqlite> {
    /// Opens the file, makes it if it is not there, and brings its schema up to date.
    ///
    /// # Errors
    /// [`StoreError::Migration`] when the file was written by a later release; otherwise as for every call.
    pub async fn open(path: &Path) -> Result<Self, StoreError> {
        let options = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .foreign_keys(true)
            .busy_timeout(BUSY)
            .pragma("recursive_triggers", "ON");
        // One writer: who waits for it waits in the pool's fair queue, not for SQLite's lock.
        let writer = SqlitePoolOptions::new()
            .max_connections(1)
            .min_connections(1)
            .idle_timeout(None)
            .max_lifetime(None)
            .test_before_acquire(false)
            .connect_with(options.clone())
            .await
            .map_err(store_error)?;
        let migrator = sqlx::migrate!("../../migrations/sqlite");
        let migrated = async {
            crash::in_migration(&migrator, &writer).await?;
            migrator.run(&writer).await
        };
        migrated.await.map_err(|error| StoreError::Migration(Box::new(error)))?;
        let readers = SqlitePoolOptions::new()
            .max_connections(READERS)
            .test_before_acquire(false)
            .connect_with(options.read_only(true))
            .await
            .map_err(store_error)?;
        Ok(Self { database: Sqlite { writer, readers } })
    }

    /// Closes all connections; the write-ahead log is folded into the file.
    pub async fn close(&self) {
        self.database.readers.close().await;
        self.database.writer.close().await;
    }
}

type Query = sqlx::query::Query<'static, Driver, SqliteArguments>;

fn bound(sql: &'static str, values: Vec<Value>) -> Query {
    values.into_iter().fold(sqlx::query(sql), |query, value| match value {
        Value::Int(value) => query.bind(value),
        Value::Flag(value) => query.bind(value),
        Value::Text(value) => query.bind(value),
        Value::Bytes(value) => query.bind(value),
        Value::Key(value) => query.bind(value),
    })
}

impl Database for Sqlite {
    type Row = SqliteRow;

    const STATEMENTS: &'static Statements = &statements::SQLITE;

    async fn at_once(&self, sql: &'static str, values: Vec<Value>) -> Result<Vec<SqliteRow>, StoreError> {
        // The file has one writer, and its node no neighbours that would take its sessions.
        self.write(sql, values).await
    }

    async fn hint(&self, _: Vec<NodeId>) -> Result<(), StoreError> {
        Ok(())
    }

    async fn hints(&self, _: NodeId) -> Result<Option<Box<dyn Hints>>, StoreError> {
        Ok(None)
    }

    async fn read(&self, sql: &'static str, values: Vec<Value>) -> Result<Vec<SqliteRow>, StoreError> {
        let pool = self.readers.clone();
        detached(async move { bound(sql, values).fetch_all(&pool).await.map_err(store_error) }).await?
    }

    async fn write(&self, sql: &'static str, values: Vec<Value>) -> Result<Vec<SqliteRow>, StoreError> {
        let pool = self.writer.clone();
        detached(async move { bound(sql, values).fetch_all(&pool).await.map_err(store_error) }).await?
    }

    async fn execute(&self, sql: &'static str, values: Vec<Value>) -> Result<u64, StoreError> {
        let pool = self.writer.clone();
        detached(async move {
            bound(sql, values).execute(&pool).await.map(|done| done.rows_affected()).map_err(store_error)
        })
        .await?
    }

    async fn append(&self, append: Arc<Append>) -> Result<Appended, Refused> {
        let pool = self.writer.clone();
        detached(async move { append::append(&pool, &append).await }).await?
    }

    async fn write_many(&self, writes: Vec<Write>) -> Vec<Result<Wrote, Refused>> {
        let pool = self.writer.clone();
        let count = writes.len();
        match detached(async move { append::write_many(&pool, &writes).await }).await {
            Ok(answers) => answers,
            Err(_) => {
                (0..count).map(|_| Err(StoreError::Unavailable("the batch was not finished".into()).into())).collect()
            }
        }
    }

    async fn create(&self, new: Arc<NewSession>) -> Result<Created, Refused> {
        let pool = self.writer.clone();
        detached(async move { append::create(&pool, &new).await }).await?
    }

    async fn take_over(&self, take_over: Arc<TakeOver>) -> Result<TakenOver, StoreError> {
        let pool = self.writer.clone();
        detached(async move { append::take_over(&pool, &take_over).await }).await?
    }

    async fn post(&self, posting: Posting) -> Result<Reserved, StoreError> {
        let pool = self.writer.clone();
        detached(async move { ledger::post(&pool, &posting).await }).await?
    }
}
