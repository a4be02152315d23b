//! Snapshots in memory. What is not here: their content.

use async_trait::async_trait;
use toolgate_core::id::{SessionId, TenantId};

use super::MemoryStore;
use crate::error::StoreError;
use crate::limits;
use crate::session::SessionKey;
use crate::snapshot::{Snapshot, Snapshots};

fn key(tenant: &TenantId, session: SessionId) -> SessionKey {
    SessionKey { tenant: tenant.clone(), session }
}

#[async_trait]
impl Snapshots for MemoryStore {
    async fn snapshot(&self, tenant: &TenantId, session: SessionId) -> Result<Option<Snapshot>, StoreError> {
        Ok(self.with(|state| state.sessions.get(&key(tenant, session))?.snapshot.clone()))
    }

    async fn snapshot_put(&self, tenant: &TenantId, session: SessionId, snapshot: &Snapshot) -> Result<(), StoreError> {
        limits::snapshot(snapshot)?;
        self.with(|state| {
            let Some(session) = state.sessions.get_mut(&key(tenant, session)) else { return };
            let kept = session.snapshot.as_ref();
            if kept.is_none_or(|kept| kept.seq < snapshot.seq || kept.form != snapshot.form) {
                session.snapshot = Some(snapshot.clone());
            }
        });
        Ok(())
    }
}
