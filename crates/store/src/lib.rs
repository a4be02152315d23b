//! The append-only log of Toolgate on PostgreSQL, on SQLite and in memory, behind one contract.
//!
//! Promises: what `append` acknowledged is durable; each session has one chain of rows without gap or fork; an owner that
//! was replaced cannot write; rows are never changed; a tenant reads only its own. What is not here: decisions (`toolgate-core`),
//! HTTP and session actors (`toolgate-server`).

mod append;
pub mod chain;
mod cluster;
mod codec;
pub mod crash;
mod error;
mod event_log;
mod fence;
mod header;
mod keys;
mod lanes;
mod ledger;
mod limits;
mod memory;
mod name;
mod page;
mod postgres;
mod record;
mod row;
mod session;
mod snapshot;
mod sql;
mod sqlite;

pub use append::{Append, Appended, Created, NewSession, Projection, Sealed, TakeOver, TakenOver, Write, Wrote};
pub use cluster::{Cluster, Fate, HandOver, HandOverState, Hints, NodeStart, Renewed};
pub use codec::{ApprovalBody, Codec, CodecError, Encoded};
pub use error::{Guard, StoreError};
pub use event_log::{EventLog, MAX_PAGE, MAX_PAGE_BYTES, Registry, Store};
pub use header::{FORMAT, Header, PayloadMeta};
pub use keys::{ContentKey, KeyError, MasterKey, WrappedKey, place};
pub use lanes::{Lanes, Written};
pub use ledger::{
    Charge, Ledger, MAX_AMOUNT, MAX_CHARGES, MAX_COUNTER, MAX_SETTLEMENTS, Reservation, Reserved, Settlement, Usage,
    UsageCursor,
};
pub use limits::{MAX_CONTENT, MAX_HEADER, MAX_ROWS, MAX_TEXT, OWNER_CHANGED};
pub use memory::MemoryStore;
pub use name::{KeyId, NodeId, NodeIdentity};
pub use postgres::{PostgresOptions, PostgresStore, Risk, Unsafe, durability_risks};
pub use record::{
    ApiKeyRow, ApprovalCursor, ApprovalRow, ApprovalStatus, Blob, BundleRow, Claimed, IdempotencyClaim, IdempotencyKey,
    IdempotencyRow, InboxPut, InboxRow, NodeRow, OutboxRow, SecurityCursor, SecurityRow,
};
pub use row::{AFTER_CLOSE, Marks, Row, SESSION_CLOSED};
pub use session::{Page, SessionCursor, SessionFilter, SessionKey, SessionRow, Wanted};
pub use snapshot::{Snapshot, Snapshots};
pub use sql::SqlStore;
pub use sqlite::SqliteStore;
