//! Compiled bundles by digest. Bundles are immutable, so an entry is never stale. What is not here: putting bundles.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use toolgate_core::bundle::Bundle;
use toolgate_core::id::{Sha256Digest, TenantId};
use toolgate_store::Store;

use crate::failure::Failure;

/// Bundles kept compiled; beyond it the cache starts over.
const KEPT: usize = 256;

/// A cache of compiled bundles.
#[derive(Debug, Default)]
pub struct Bundles {
    compiled: Mutex<HashMap<(TenantId, Sha256Digest), Arc<Bundle>>>,
}

impl Bundles {
    /// The bundle of this digest.
    pub async fn get(
        &self,
        store: &dyn Store,
        tenant: &TenantId,
        digest: Sha256Digest,
    ) -> Result<Arc<Bundle>, Failure> {
        let key = (tenant.clone(), digest);
        if let Some(bundle) = self.lock().get(&key) {
            return Ok(Arc::clone(bundle));
        }
        let row = store.bundle(tenant, &digest).await?.ok_or(Failure::NoBundle)?;
        let bundle = Arc::new(compile(&row.body)?);
        let mut compiled = self.lock();
        if compiled.len() >= KEPT {
            compiled.clear();
        }
        compiled.insert(key, Arc::clone(&bundle));
        Ok(bundle)
    }

    /// The bundle that new sessions of the tenant pin.
    pub async fn current(&self, store: &dyn Store, tenant: &TenantId) -> Result<Arc<Bundle>, Failure> {
        let row = store.bundle_current(tenant).await?.ok_or(Failure::NoBundle)?;
        self.get(store, tenant, row.digest).await
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<(TenantId, Sha256Digest), Arc<Bundle>>> {
        self.compiled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn compile(body: &[u8]) -> Result<Bundle, Failure> {
    let text = std::str::from_utf8(body).map_err(|_| Failure::BundleBroken(Vec::new()))?;
    Bundle::load(text).map_err(Failure::BundleBroken)
}
