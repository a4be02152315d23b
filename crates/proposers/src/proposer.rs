//! The trait every model adapter has, and the factory that makes one adapter per model definition. What is not here:
//! any provider's format.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;
use toolgate_core::ask::Ask;
use toolgate_core::bundle::model::{ModelDef, Provider};
use toolgate_core::proposal::{Ballot, ProviderFailure};

use crate::breaker::{Breaker, BreakerStates};
use crate::classifier::{Classifier, ModelClassifier};
use crate::delta::DeltaSink;
use crate::envelope::{JsonEnvelope, ToolProtocol};
use crate::exchange::Exchange;
use crate::http::{CONNECT, Failure, Transport};
use crate::model::{Model, ModelProposer};
use crate::scripted::{ScriptedClassifier, ScriptedProposer};
use crate::secret::{EnvSecrets, SecretSource};
use crate::tokens;

/// Which ballot of which round is asked for. It names the request in traces; it does not change what is sent, so that a
/// round that is asked again after a restart sends the same bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seat {
    /// The step, from 1.
    pub step: u32,
    /// The ballot within the round, from 0.
    pub ballot: u32,
    /// The attempt of the round, from 0: a split vote may be repeated.
    pub attempt: u32,
}

/// A model that can be asked for its next step.
#[async_trait]
pub trait Proposer: Send + Sync + fmt::Debug {
    /// Asks once. Never fails: no answer and an unreadable answer are ballots too. Bounded in time by the model's
    /// `timeout_ms` (and that of its fallback), queueing and retries included. Dropping the future gives up the request and
    /// its place. Pieces of a streamed answer go to `deltas` while they come; the ballot does not depend on them.
    async fn propose_watched(&self, ask: &Ask, seat: Seat, deltas: Option<&dyn DeltaSink>) -> Ballot;

    /// The same without anybody who watches.
    async fn propose(&self, ask: &Ask, seat: Seat) -> Ballot {
        self.propose_watched(ask, seat, None).await
    }
}

/// Why the factory cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The operating system gave no randomness.
    #[error("no randomness from the operating system")]
    Randomness,
    /// The HTTP client could not be made, for example because no trust store can be read.
    #[error("HTTP client: {0}")]
    Client(String),
}

/// Makes proposers: one per model definition, shared by all sessions that pin it, with one connection pool for all.
#[derive(Clone)]
pub struct Proposers {
    shared: Arc<Shared>,
    protocol: Arc<dyn ToolProtocol>,
}

struct Shared {
    transport: Transport,
    secrets: Arc<dyn SecretSource>,
    salt: [u8; 32],
    /// Models by the JSON of their definition: equal definitions share one limit.
    models: Mutex<Kept<String, Model>>,
    /// What fails is a provider, not a definition.
    breakers: Mutex<Kept<Provided, Breaker>>,
}

/// Who provides a model: the address and the name of the key.
type Provided = (Option<String>, Option<String>);

impl fmt::Debug for Proposers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proposers").finish_non_exhaustive()
    }
}

impl Proposers {
    /// A factory that reads API keys from the environment.
    pub fn new() -> Result<Self, SetupError> {
        Self::with_secrets(Arc::new(EnvSecrets))
    }

    /// A factory that reads API keys from elsewhere.
    pub fn with_secrets(secrets: Arc<dyn SecretSource>) -> Result<Self, SetupError> {
        let mut salt = [0_u8; 32];
        getrandom::fill(&mut salt).map_err(|_| SetupError::Randomness)?;
        let transport = Transport::new(CONNECT)?;
        let shared = Shared { transport, secrets, salt, models: Mutex::default(), breakers: Mutex::default() };
        Ok(Self { shared: Arc::new(shared), protocol: Arc::new(JsonEnvelope) })
    }

    /// The same factory with another text protocol for models that have no native calls.
    #[must_use]
    pub fn with_protocol(self, protocol: Arc<dyn ToolProtocol>) -> Self {
        Self { protocol, ..self }
    }

    /// The proposer of this definition, without fallback, for no tenant in particular. A definition that cannot work gives
    /// a proposer whose ballots say so.
    #[must_use]
    pub fn proposer(&self, def: &ModelDef) -> Arc<dyn Proposer> {
        self.proposer_for("", def, None)
    }

    /// The proposer of this definition for a tenant: tenants that wait for a place take turns. `fallback` is the definition
    /// that `ModelDef::fallback` names.
    #[must_use]
    pub fn proposer_for(&self, tenant: &str, def: &ModelDef, fallback: Option<&ModelDef>) -> Arc<dyn Proposer> {
        if def.provider == Provider::Scripted {
            return Arc::new(ScriptedProposer::new(def.clone()));
        }
        Arc::new(ModelProposer {
            model: self.model(def),
            tenant: Arc::from(tenant),
            salt: self.shared.salt,
            protocol: Arc::clone(&self.protocol),
            fallback: fallback.map(|def| self.proposer_for(tenant, def, None)),
        })
    }

    /// The breakers of the providers that are in use.
    #[must_use]
    pub fn breakers(&self) -> BreakerStates {
        let all = self.shared.breakers.lock().unwrap_or_else(PoisonError::into_inner);
        let mut states = BreakerStates::default();
        for (breaker, _) in all.values() {
            *(if breaker.is_open() { &mut states.open } else { &mut states.closed }) += 1;
        }
        states
    }

    /// A classifier that asks the model of this definition.
    #[must_use]
    pub fn classifier(&self, def: &ModelDef) -> Arc<dyn Classifier> {
        match def.provider {
            Provider::Scripted => Arc::new(ScriptedClassifier::new(def.clone())),
            Provider::Openai | Provider::OpenaiResponses | Provider::Anthropic => {
                Arc::new(ModelClassifier::new(self.model(def)))
            }
        }
    }

    fn model(&self, def: &ModelDef) -> Arc<Model> {
        // Serialising a definition cannot fail; without a key the model is merely not shared.
        let key = serde_json::to_string(def).unwrap_or_default();
        let provider = (def.base_url.clone(), def.api_key_env.clone());
        let make = || {
            if !tokens::is_known(def.tokenizer) {
                tracing::warn!(model = def.model, "this program was built without tokenizers; tokens are estimated");
            }
            let breaker = shared(&self.shared.breakers, provider, Breaker::default);
            // The time for a connection belongs to a client, so that another one needs a client of its own.
            let transport = match def.connect_timeout_ms {
                None => Ok(self.shared.transport.clone()),
                Some(ms) => Transport::new(Duration::from_millis(ms))
                    .map_err(|error| Failure::new(ProviderFailure::Misconfigured, error.to_string())),
            };
            Model::new(Exchange::new(transport, Arc::clone(&self.shared.secrets), def.clone(), breaker))
        };
        shared(&self.shared.models, key, make)
    }
}

/// Values and when they were asked for last. What a breaker and a gate know must outlive the question that taught them.
type Kept<K, V> = HashMap<K, (Arc<V>, Instant)>;

/// How long a value is kept that nobody holds: longer than a breaker stays open.
const KEPT: Duration = Duration::from_secs(15 * 60);
/// Values that are kept at most besides those that somebody holds.
const MOST_KEPT: usize = 1_024;

/// The value of a key, made where there is none.
fn shared<K: Eq + Hash + Clone, V>(all: &Mutex<Kept<K, V>>, key: K, make: impl FnOnce() -> V) -> Arc<V> {
    let now = Instant::now();
    let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((value, asked)) = all.get_mut(&key) {
        *asked = now;
        return Arc::clone(value);
    }
    let is_held = |value: &Arc<V>| Arc::strong_count(value) > 1;
    all.retain(|_, (value, asked)| is_held(value) || now.duration_since(*asked) < KEPT);
    if all.len() >= MOST_KEPT {
        let idle = all.iter().filter(|(_, (value, _))| !is_held(value));
        if let Some(oldest) = idle.min_by_key(|(_, (_, asked))| *asked).map(|(key, _)| key.clone()) {
            all.remove(&oldest);
        }
    }
    let value = Arc::new(make());
    all.insert(key, (Arc::clone(&value), now));
    value
}
