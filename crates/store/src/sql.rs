//! What PostgreSQL and SQLite share: values, cells, and the statements that read the same on both. What is not here:
//! appending, creating and taking over (`postgres`, `sqlite`), where the two differ.

use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;

use uuid::Uuid;

use crate::append::{Append, Appended, Created, NewSession, TakeOver, TakenOver, Write, Wrote};
use crate::cluster::Hints;
use crate::error::StoreError;
use crate::ledger::{Posting, Reserved};
use crate::name::NodeId;

pub(crate) mod cells;
mod cluster;
mod columns;
pub(crate) mod failure;
mod ledger;
mod log;
mod master;
mod registry;
mod snapshots;
pub(crate) mod statements;

/// A bound value. The type is known also where the value is absent, because PostgreSQL asks for it.
#[derive(Debug, Clone)]
pub(crate) enum Value {
    Int(Option<i64>),
    Flag(bool),
    Text(Option<String>),
    Bytes(Option<Vec<u8>>),
    Key(Option<Uuid>),
}

macro_rules! value_from {
    ($($from:ty => $to:ident($map:expr)),* $(,)?) => {
        $(impl From<$from> for Value {
            fn from(value: $from) -> Self {
                Self::$to($map(value))
            }
        })*
    };
}

value_from! {
    i64 => Int(Some),
    Option<i64> => Int(|value| value),
    u32 => Int(|value| Some(i64::from(value))),
    u16 => Int(|value| Some(i64::from(value))),
    bool => Flag(|value| value),
    &str => Text(|value: &str| Some(value.to_owned())),
    String => Text(Some),
    Option<String> => Text(|value| value),
    Option<&str> => Text(|value: Option<&str>| value.map(str::to_owned)),
    Vec<u8> => Bytes(Some),
    &[u8] => Bytes(|value: &[u8]| Some(value.to_vec())),
    Uuid => Key(Some),
    Option<Uuid> => Key(|value| value),
}

/// Collects bound values.
macro_rules! values {
    ($($value:expr),* $(,)?) => { vec![$($crate::sql::Value::from($value)),*] };
}
pub(crate) use values;

/// A database that keeps a store. Every call runs in a task of its own, so that a caller that goes away cancels nothing.
pub(crate) trait Database: Debug + Send + Sync + 'static {
    /// A result row.
    type Row: cells::Cells + Send + 'static;

    /// What this database spells its own way.
    const STATEMENTS: &'static statements::Statements;

    /// Reads rows.
    fn read(
        &self,
        sql: &'static str,
        values: Vec<Value>,
    ) -> impl Future<Output = Result<Vec<Self::Row>, StoreError>> + Send;

    /// Writes with one statement and reads what it returns.
    fn write(
        &self,
        sql: &'static str,
        values: Vec<Value>,
    ) -> impl Future<Output = Result<Vec<Self::Row>, StoreError>> + Send;

    /// Writes with one statement and reads what it returns, without waiting behind other work.
    fn at_once(
        &self,
        sql: &'static str,
        values: Vec<Value>,
    ) -> impl Future<Output = Result<Vec<Self::Row>, StoreError>> + Send;

    /// Wakes nodes.
    fn hint(&self, nodes: Vec<NodeId>) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Where hints for a node arrive.
    fn hints(&self, node: NodeId) -> impl Future<Output = Result<Option<Box<dyn Hints>>, StoreError>> + Send;

    /// Writes with one statement; how many rows it changed.
    fn execute(&self, sql: &'static str, values: Vec<Value>) -> impl Future<Output = Result<u64, StoreError>> + Send;

    /// Applies a checked append. A repeated input and a taken idempotency key come back as [`Refused`].
    fn append(&self, append: Arc<Append>) -> impl Future<Output = Result<Appended, Refused>> + Send;

    /// Applies several checked writes, each for itself.
    fn write_many(&self, writes: Vec<Write>) -> impl Future<Output = Vec<Result<Wrote, Refused>>> + Send;

    /// Creates a checked session. A taken alias comes back as [`Refused`].
    fn create(&self, new: Arc<NewSession>) -> impl Future<Output = Result<Created, Refused>> + Send;

    /// Applies a checked take-over.
    fn take_over(&self, take_over: Arc<TakeOver>) -> impl Future<Output = Result<TakenOver, StoreError>> + Send;

    /// Applies a checked posting to the ledger.
    fn post(&self, posting: Posting) -> impl Future<Output = Result<Reserved, StoreError>> + Send;
}

/// Why a database did not apply a write; the part of the answer that must still be looked up is the shared code's work.
#[derive(Debug)]
pub(crate) enum Refused {
    /// An input id is in the log already.
    DuplicateInput,
    /// The idempotency key is taken.
    Idempotency,
    /// The alias is taken.
    Alias,
    /// A failure.
    Failed(StoreError),
}

impl From<StoreError> for Refused {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

/// A store in an SQL database; see [`crate::PostgresStore`] and [`crate::SqliteStore`].
#[derive(Debug)]
pub struct SqlStore<D> {
    pub(crate) database: D,
}

/// Runs store work in a task of its own: it ends on its own terms even when the caller is dropped.
pub(crate) async fn detached<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T, StoreError> {
    tokio::spawn(work).await.map_err(|error| StoreError::Unavailable(Box::new(error)))
}
