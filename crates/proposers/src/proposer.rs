//! The trait every model adapter has, and the factory that makes one adapter per model definition. What is not here:
//! any provider's format.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use async_trait::async_trait;
use toolgate_core::ask::Ask;
use toolgate_core::bundle::model::{ModelDef, Provider};
use toolgate_core::proposal::Ballot;

use crate::classifier::{ChatClassifier, Classifier};
use crate::exchange::Exchange;
use crate::http::Transport;
use crate::openai::ChatProposer;
use crate::scripted::{ScriptedClassifier, ScriptedProposer};
use crate::secret::{EnvSecrets, SecretSource};

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
    /// `timeout_ms`, queueing and retries included. Dropping the future gives up the request and its place.
    async fn propose(&self, ask: &Ask, seat: Seat) -> Ballot;
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
}

struct Shared {
    transport: Transport,
    secrets: Arc<dyn SecretSource>,
    salt: [u8; 32],
    /// Proposers in use, by the JSON of their definition: equal definitions share one concurrency limit.
    made: Mutex<HashMap<String, Weak<dyn Proposer>>>,
}

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
        let transport = Transport::new()?;
        Ok(Self { shared: Arc::new(Shared { transport, secrets, salt, made: Mutex::default() }) })
    }

    /// The proposer of this definition. A definition that cannot work gives a proposer whose ballots say so.
    #[must_use]
    pub fn proposer(&self, def: &ModelDef) -> Arc<dyn Proposer> {
        // Serialising a definition cannot fail; without a key the proposer is merely not shared.
        let key = serde_json::to_string(def).unwrap_or_default();
        let mut made = self.shared.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(proposer) = made.get(&key).and_then(Weak::upgrade) {
            return proposer;
        }
        let proposer: Arc<dyn Proposer> = match def.provider {
            Provider::Scripted => Arc::new(ScriptedProposer::new(def.clone())),
            Provider::Openai => Arc::new(ChatProposer::new(self.exchange(def), self.shared.salt)),
        };
        made.retain(|_, old| old.strong_count() > 0);
        made.insert(key, Arc::downgrade(&proposer));
        proposer
    }

    /// A classifier that asks the model of this definition.
    #[must_use]
    pub fn classifier(&self, def: &ModelDef) -> Arc<dyn Classifier> {
        match def.provider {
            Provider::Scripted => Arc::new(ScriptedClassifier::new(def.clone())),
            Provider::Openai => Arc::new(ChatClassifier::new(self.exchange(def))),
        }
    }

    fn exchange(&self, def: &ModelDef) -> Exchange {
        Exchange::new(self.shared.transport.clone(), Arc::clone(&self.shared.secrets), def.clone())
    }
}
