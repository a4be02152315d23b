//! Refusing a PostgreSQL server whose settings lose acknowledged rows.

use sqlx::postgres::PgPool;

use crate::error::StoreError;
use crate::sql::cells::Cells;
use crate::sql::failure::store_error;

/// The lowest supported `server_version_num`.
const MINIMUM: i64 = 130_000;

/// What to do about settings under which acknowledged rows may be lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unsafe {
    /// Do not start.
    Refuse,
    /// Start and warn: for tests, and where losing rows is acceptable.
    Accept,
}

/// Each setting that may lose rows, the values that do, and the mend.
const SETTINGS: [(&str, &[&str], &str); 3] = [
    (
        "fsync",
        &["off"],
        "set `fsync = on` in postgresql.conf and restart: without it a power cut can lose or corrupt the log",
    ),
    ("full_page_writes", &["off"], "set `full_page_writes = on`: without it a power cut can corrupt the log"),
    (
        "synchronous_commit",
        &["off"],
        "set `synchronous_commit = on` for the server, the database and the role: without it acknowledged rows are lost in a crash",
    ),
];

/// One setting under which acknowledged rows may be lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Risk {
    /// The setting's name.
    pub setting: &'static str,
    /// Its present value.
    pub value: String,
    /// What to do about it.
    pub remedy: &'static str,
}

/// Refuses a server that is too old.
pub(super) async fn check_version(pool: &PgPool) -> Result<(), StoreError> {
    let sql =
        "SELECT current_setting('server_version_num')::bigint AS number, current_setting('server_version') AS version";
    let row = sqlx::query(sql).fetch_one(pool).await.map_err(store_error)?;
    if row.int("number")? < MINIMUM {
        return Err(StoreError::UnsupportedServer { version: row.text("version")?, minimum: "13" });
    }
    Ok(())
}

/// The settings that may lose rows, as a connection of this pool sees them.
pub(super) async fn risks(pool: &PgPool) -> Result<Vec<Risk>, StoreError> {
    let sql = "SELECT current_setting('fsync') AS fsync, current_setting('full_page_writes') AS full_page_writes, \
         current_setting('synchronous_commit') AS synchronous_commit";
    let row = sqlx::query(sql).fetch_one(pool).await.map_err(store_error)?;
    let mut risks = Vec::new();
    for (setting, refused, remedy) in SETTINGS {
        let value = row.text(setting)?;
        if refused.contains(&value.as_str()) {
            risks.push(Risk { setting, value, remedy });
        }
    }
    Ok(risks)
}
