//! `Registry` in memory.

use std::collections::btree_map::Entry;

use async_trait::async_trait;
use toolgate_core::id::{Sha256Digest, TenantId};
use toolgate_core::time::Timestamp;

use super::{MemoryStore, Stored};
use crate::error::StoreError;
use crate::event_log::Registry;
use crate::keys::MasterKey;
use crate::limits;
use crate::page::{page, page_limit, page_size};
use crate::record::{
    ApiKeyRow, BundleRow, Claimed, IdempotencyClaim, IdempotencyKey, IdempotencyRow, SecurityCursor, SecurityRow,
};
use crate::session::Page;

#[async_trait]
impl Registry for MemoryStore {
    async fn idempotency_claim(&self, claim: &IdempotencyClaim) -> Result<Claimed, StoreError> {
        limits::claim(claim)?;
        Ok(self.with(|state| {
            match state.idempotency.get(&claim.key) {
                Some(stored) if stored.expires_at > claim.now => {
                    return match &stored.answer {
                        _ if stored.fingerprint != claim.fingerprint => Claimed::OtherBody,
                        Some(answer) => Claimed::Done(Box::new(answer.clone())),
                        None => Claimed::InProgress,
                    };
                }
                _ => {}
            }
            let stored = Stored { fingerprint: claim.fingerprint, expires_at: claim.claimed_until, answer: None };
            state.idempotency.insert(claim.key.clone(), stored);
            Claimed::New
        }))
    }

    async fn idempotency_get(&self, key: &IdempotencyKey) -> Result<Option<IdempotencyRow>, StoreError> {
        limits::idempotency_key(key)?;
        Ok(self.with(|state| state.idempotency.get(key).and_then(|stored| stored.answer.clone())))
    }

    async fn idempotency_put(&self, row: &IdempotencyRow) -> Result<bool, StoreError> {
        limits::idempotency_row(row)?;
        Ok(self.with(|state| {
            let taken = state.idempotency.get(&row.key);
            if taken.is_some_and(|stored| stored.answer.is_some() || stored.fingerprint != row.fingerprint) {
                return false;
            }
            let stored = Stored { fingerprint: row.fingerprint, expires_at: row.expires_at, answer: Some(row.clone()) };
            state.idempotency.insert(row.key.clone(), stored);
            true
        }))
    }

    async fn idempotency_release(&self, key: &IdempotencyKey) -> Result<(), StoreError> {
        limits::idempotency_key(key)?;
        self.with(|state| {
            if state.idempotency.get(key).is_some_and(|stored| stored.answer.is_none()) {
                state.idempotency.remove(key);
            }
        });
        Ok(())
    }

    async fn idempotency_sweep(&self, now: Timestamp, limit: u32) -> Result<u64, StoreError> {
        Ok(self.with(|state| {
            let expired = state.idempotency.iter().filter(|(_, stored)| stored.expires_at <= now);
            let keys: Vec<_> = expired.map(|(key, _)| key.clone()).take(page_size(page_limit(limit))).collect();
            for key in &keys {
                state.idempotency.remove(key);
            }
            keys.len() as u64
        }))
    }

    async fn bundle_put(&self, tenant: &TenantId, bundle: &BundleRow) -> Result<bool, StoreError> {
        limits::bundle(bundle)?;
        Ok(self.with(|state| match state.bundles.entry((tenant.clone(), bundle.digest)) {
            Entry::Occupied(_) => false,
            Entry::Vacant(place) => {
                place.insert(bundle.clone());
                true
            }
        }))
    }

    async fn bundle(&self, tenant: &TenantId, digest: &Sha256Digest) -> Result<Option<BundleRow>, StoreError> {
        Ok(self.with(|state| state.bundles.get(&(tenant.clone(), *digest)).cloned()))
    }

    async fn bundle_current(&self, tenant: &TenantId) -> Result<Option<BundleRow>, StoreError> {
        Ok(self.with(|state| {
            let digest = *state.current.get(tenant)?;
            state.bundles.get(&(tenant.clone(), digest)).cloned()
        }))
    }

    async fn bundle_set_current(
        &self,
        tenant: &TenantId,
        expected: Option<&Sha256Digest>,
        digest: &Sha256Digest,
    ) -> Result<bool, StoreError> {
        self.with(|state| {
            if !state.bundles.contains_key(&(tenant.clone(), *digest)) {
                return Err(StoreError::Invalid("the bundle is not stored"));
            }
            if state.current.get(tenant) != expected {
                return Ok(false);
            }
            state.current.insert(tenant.clone(), *digest);
            Ok(true)
        })
    }

    async fn api_key_put(&self, key: &ApiKeyRow) -> Result<bool, StoreError> {
        limits::api_key(key)?;
        Ok(self.with(|state| match state.api_keys.entry(key.key_id.clone()) {
            Entry::Occupied(_) => false,
            Entry::Vacant(place) => {
                place.insert(key.clone());
                true
            }
        }))
    }

    async fn api_key_find(&self, key_id: &str) -> Result<Option<ApiKeyRow>, StoreError> {
        Ok(self.with(|state| state.api_keys.get(key_id).cloned()))
    }

    async fn api_key_list(
        &self,
        tenant: &TenantId,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Page<ApiKeyRow, String>, StoreError> {
        let shown = |row: &&ApiKeyRow| row.tenant == *tenant && after.is_none_or(|after| row.key_id.as_str() > after);
        let items = self.with(|state| state.api_keys.values().filter(shown).cloned().collect());
        Ok(page(items, page_limit(limit), |row: &ApiKeyRow| row.key_id.clone()))
    }

    async fn api_key_revoke(&self, tenant: &TenantId, key_id: &str, at: Timestamp) -> Result<bool, StoreError> {
        Ok(self.with(|state| match state.api_keys.get_mut(key_id) {
            Some(key) if key.tenant == *tenant => {
                key.revoked_at = key.revoked_at.or(Some(at));
                true
            }
            _ => false,
        }))
    }

    async fn security_append(&self, tenant: &TenantId, row: &SecurityRow) -> Result<(), StoreError> {
        limits::security(row)?;
        self.with(|state| {
            state.security.entry((tenant.clone(), row.id.clone())).or_insert_with(|| row.clone());
        });
        Ok(())
    }

    async fn security_list(
        &self,
        tenant: &TenantId,
        after: Option<&SecurityCursor>,
        limit: u32,
    ) -> Result<Page<SecurityRow, SecurityCursor>, StoreError> {
        let before = |row: &SecurityRow| after.is_none_or(|after| (row.at, &row.id) < (after.at, &after.id));
        let mut items: Vec<SecurityRow> = self.with(|state| {
            let own = state.security.iter().filter(|((owner, _), row)| owner == tenant && before(row));
            own.map(|(_, row)| row.clone()).collect()
        });
        items.sort_by(|a, b| (b.at, &b.id).cmp(&(a.at, &a.id)));
        Ok(page(items, page_limit(limit), |row| SecurityCursor { at: row.at, id: row.id.clone() }))
    }

    async fn check_master(&self, master: &MasterKey) -> Result<(), StoreError> {
        self.with(|state| {
            let value = master.check_value();
            match state.master {
                Some(there) if there == value => Ok(()),
                Some(_) => Err(StoreError::OtherMasterKey),
                None => {
                    state.prove(master)?;
                    state.master = Some(value);
                    Ok(())
                }
            }
        })
    }

    async fn ping(&self) -> Result<(), StoreError> {
        Ok(())
    }
}
