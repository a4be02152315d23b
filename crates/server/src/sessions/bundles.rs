//! Compiled bundles by digest, and the one place where bundles are compiled: not on the threads that serve everybody, few at
//! once, and each once for all who ask. Bundles are immutable, so an entry is never stale. What is not here: putting bundles.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OnceCell, Semaphore};
use toolgate_core::bundle::{Bundle, BundleFault};
use toolgate_core::id::{Sha256Digest, TenantId};
use toolgate_store::Store;

use crate::failure::Failure;

/// Bundles kept compiled; beyond it the cache starts over.
const KEPT: usize = 256;
/// Bundles compiled at once.
const AT_ONCE: usize = 2;

type Key = (TenantId, Sha256Digest);
type Slot = Arc<OnceCell<Arc<Bundle>>>;

/// A cache of compiled bundles.
#[derive(Debug)]
pub struct Bundles {
    compiled: Mutex<HashMap<Key, Slot>>,
    compiling: Semaphore,
}

impl Default for Bundles {
    fn default() -> Self {
        Self { compiled: Mutex::default(), compiling: Semaphore::new(AT_ONCE) }
    }
}

impl Bundles {
    /// The bundle of this digest.
    pub async fn get(
        &self,
        store: &dyn Store,
        tenant: &TenantId,
        digest: Sha256Digest,
    ) -> Result<Arc<Bundle>, Failure> {
        let slot = self.slot((tenant.clone(), digest));
        let compiled = slot.get_or_try_init(|| async {
            let row = store.bundle(tenant, &digest).await?.ok_or(Failure::NoBundle)?;
            let text = String::from_utf8(row.body).map_err(|_| Failure::BundleBroken(Vec::new()))?;
            self.compile(text).await?.map(Arc::new).map_err(Failure::BundleBroken)
        });
        compiled.await.map(Arc::clone)
    }

    /// The bundle that new sessions of the tenant pin.
    pub async fn current(&self, store: &dyn Store, tenant: &TenantId) -> Result<Arc<Bundle>, Failure> {
        let row = store.bundle_current(tenant).await?.ok_or(Failure::NoBundle)?;
        self.get(store, tenant, row.digest).await
    }

    /// Compiles a bundle, or says everything that is wrong with it.
    pub async fn compile(&self, text: String) -> Result<Result<Bundle, Vec<BundleFault>>, Failure> {
        let internal = |error: &dyn std::error::Error| Failure::Internal(error.to_string());
        let _leave = self.compiling.acquire().await.map_err(|error| internal(&error))?;
        tokio::task::spawn_blocking(move || Bundle::load(&text)).await.map_err(|error| internal(&error))
    }

    fn slot(&self, key: Key) -> Slot {
        let mut compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        if compiled.len() >= KEPT && !compiled.contains_key(&key) {
            compiled.clear();
        }
        Arc::clone(compiled.entry(key).or_default())
    }
}
