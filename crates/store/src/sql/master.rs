//! Whether a server has the master key that the database was written with. What is not here: the key itself (`keys`).

use toolgate_core::id::{SessionId, TenantId};

use crate::error::StoreError;
use crate::keys::{MasterKey, WrappedKey};
use crate::name::KeyId;
use crate::sql::cells::{Cells, corrupt};
use crate::sql::{Database, values};

/// One row where anything was ever written for a tenant.
const FILLED: &str = "SELECT one FROM (SELECT 1 AS one FROM session UNION ALL SELECT 1 FROM api_key UNION ALL \
     SELECT 1 FROM bundle UNION ALL SELECT 1 FROM content_key UNION ALL SELECT 1 FROM idempotency UNION ALL \
     SELECT 1 FROM security_log UNION ALL SELECT 1 FROM ledger_counter) AS filled LIMIT 1";

/// Compares the key with the database, or writes down the proof of it where nothing contradicts.
pub(super) async fn check(database: &impl Database, master: &MasterKey) -> Result<(), StoreError> {
    let value = master.check_value();
    if let Some(there) = stored(database).await? {
        return if there == value { Ok(()) } else { Err(StoreError::OtherMasterKey) };
    }
    if !database.read(FILLED, Vec::new()).await?.is_empty() {
        prove(database, master).await?;
    }
    let sql = "INSERT INTO master_check (one, value) VALUES (1, $1) ON CONFLICT (one) DO NOTHING";
    database.execute(sql, values![value.as_slice()]).await?;
    // Of servers that start at once with different keys the first one wins.
    match stored(database).await? {
        Some(there) if there == value => Ok(()),
        Some(_) => Err(StoreError::OtherMasterKey),
        None => Err(StoreError::UnprovenMasterKey),
    }
}

async fn stored(database: &impl Database) -> Result<Option<[u8; 32]>, StoreError> {
    let rows = database.read("SELECT value FROM master_check WHERE one = 1", Vec::new()).await?;
    rows.first().map(|row| row.hash("value")).transpose()
}

/// A database of a release that kept no proof: the key must open the first content key there is.
async fn prove(database: &impl Database, master: &MasterKey) -> Result<(), StoreError> {
    let sql = "SELECT tenant, session, key_id, wrapped FROM content_key ORDER BY tenant, session, key_id LIMIT 1";
    let rows = database.read(sql, Vec::new()).await?;
    let row = rows.first().ok_or(StoreError::UnprovenMasterKey)?;
    let tenant = TenantId::new(&row.text("tenant")?).map_err(|error| corrupt("tenant", error))?;
    let session = SessionId::from_uuid(row.key("session")?);
    let id = KeyId::parse(&row.text("key_id")?).map_err(|error| corrupt("key_id", error))?;
    let wrapped = WrappedKey { id, wrapped: row.bytes("wrapped")? };
    match master.unwrap(&tenant, session, &wrapped) {
        Ok(_) => Ok(()),
        Err(_) => Err(StoreError::OtherMasterKey),
    }
}
