//! Snapshots in a database. What is not here: their content.

use async_trait::async_trait;
use toolgate_core::id::{SessionId, TenantId};

use super::cells::Cells;
use super::{Database, SqlStore, columns, values};
use crate::append::Sealed;
use crate::error::StoreError;
use crate::limits;
use crate::snapshot::{Snapshot, Snapshots};

#[async_trait]
impl<D: Database> Snapshots for SqlStore<D> {
    async fn snapshot(&self, tenant: &TenantId, session: SessionId) -> Result<Option<Snapshot>, StoreError> {
        let sql = "SELECT seq, hash, form, key_id, state FROM snapshot WHERE tenant = $1 AND session = $2";
        let rows = self.database.read(sql, values![tenant.as_str(), session.uuid()]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        Ok(Some(Snapshot {
            seq: row.count("seq")?,
            hash: row.hash("hash")?,
            form: row.text("form")?,
            state: Sealed { key: columns::key_id(row, "key_id")?, bytes: row.bytes("state")? },
        }))
    }

    async fn snapshot_put(&self, tenant: &TenantId, session: SessionId, snapshot: &Snapshot) -> Result<(), StoreError> {
        limits::snapshot(snapshot)?;
        let sql = "INSERT INTO snapshot (tenant, session, seq, hash, form, key_id, state) SELECT $1, $2, $3, $4, $5, $6, $7 \
             WHERE EXISTS (SELECT 1 FROM session s WHERE s.tenant = $1 AND s.session = $2) \
             ON CONFLICT (tenant, session) DO UPDATE SET seq = excluded.seq, hash = excluded.hash, form = excluded.form, \
             key_id = excluded.key_id, state = excluded.state \
             WHERE snapshot.seq < excluded.seq OR snapshot.form <> excluded.form";
        let bound = values![
            tenant.as_str(),
            session.uuid(),
            i64::try_from(snapshot.seq).unwrap_or(i64::MAX),
            snapshot.hash.as_slice(),
            snapshot.form.as_str(),
            snapshot.state.key.as_str(),
            snapshot.state.bytes.as_slice(),
        ];
        self.database.execute(sql, bound).await.map(drop)
    }
}
