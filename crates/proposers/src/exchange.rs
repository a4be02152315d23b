//! One question to one model: waits for a free place, sends, repeats what is worth repeating, all within the model's
//! time. What is not here: what the answer means.

use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout_at};
use toolgate_core::bundle::model::ModelDef;
use toolgate_core::proposal::ProviderFailure;
use url::Url;

use crate::http::{Failure, Received, Transport, chat_url};
use crate::openai::completion::is_transient;
use crate::quote;
use crate::secret::{SecretSource, scrub_body, scrub_text};

/// Longest time for one question, whatever the definition says.
const MAX_TIMEOUT_MS: u64 = 600_000;
/// Longest wait that a server may ask for.
const MAX_WAIT: Duration = Duration::from_secs(120);
/// First and longest back-off when the server asks for none.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(8));

/// The way to one model. All its clones share the concurrency limit.
#[derive(Debug, Clone)]
pub(crate) struct Exchange {
    transport: Transport,
    secrets: Arc<dyn SecretSource>,
    def: Arc<ModelDef>,
    url: Result<Arc<Url>, Failure>,
    places: Arc<Semaphore>,
}

impl Exchange {
    pub(crate) fn new(transport: Transport, secrets: Arc<dyn SecretSource>, def: ModelDef) -> Self {
        let places = usize::try_from(def.max_concurrency).unwrap_or(usize::MAX).clamp(1, Semaphore::MAX_PERMITS);
        let url = chat_url(def.base_url.as_deref());
        Self { transport, secrets, url, def: Arc::new(def), places: Arc::new(Semaphore::new(places)) }
    }

    pub(crate) fn def(&self) -> &ModelDef {
        &self.def
    }

    /// Sends a body and gives the last answer that came. Takes at most the model's `timeout_ms`, waiting included; no
    /// text in it holds the API key.
    pub(crate) async fn run(&self, body: &Value) -> Result<Received, Failure> {
        let key = self.key()?;
        let deadline = Instant::now() + Duration::from_millis(self.def.timeout_ms.min(MAX_TIMEOUT_MS));
        match self.attempts(body, key.as_ref(), deadline).await {
            Ok(received) => Ok(Received {
                content_type: received.content_type.map(|kind| scrub_text(&kind, key.as_ref())),
                body: scrub_body(received.body, key.as_ref()),
                ..received
            }),
            Err(failure) => {
                Err(Failure::new(failure.reason, quote::detail(&scrub_text(&failure.detail, key.as_ref()))))
            }
        }
    }

    async fn attempts(&self, body: &Value, key: Option<&SecretString>, deadline: Instant) -> Result<Received, Failure> {
        let url = self.url.clone()?;
        let mut attempt = 0;
        loop {
            let Ok(outcome) = timeout_at(deadline, self.once(&url, key, body)).await else {
                return Err(self.out_of_time());
            };
            let wait = match &outcome {
                Ok(received) if !is_transient(received.reply()) || received.should_retry == Some(false) => None,
                Ok(received) => Some(received.retry_after.unwrap_or_else(|| backoff(attempt))),
                Err(failure) if failure.reason == ProviderFailure::Transport => Some(backoff(attempt)),
                Err(_) => None,
            };
            let now = Instant::now();
            let Some(wait) =
                wait.filter(|wait| attempt < self.def.retries && *wait <= MAX_WAIT && now + *wait < deadline)
            else {
                return outcome;
            };
            tracing::debug!(model = self.def.model, attempt, wait_ms = wait.as_millis(), "asking again");
            sleep(wait).await;
            attempt += 1;
        }
    }

    /// One attempt. The place is given back when the future is dropped, wherever it stands, and is not held between
    /// attempts.
    async fn once(&self, url: &Url, key: Option<&SecretString>, body: &Value) -> Result<Received, Failure> {
        let closed = |_| Failure::new(ProviderFailure::Transport, "the model's queue is closed");
        let _place = self.places.acquire().await.map_err(closed)?;
        self.transport.post(url, key, body).await
    }

    fn out_of_time(&self) -> Failure {
        Failure::new(ProviderFailure::TimedOut, format!("no complete answer within {} ms", self.def.timeout_ms))
    }

    fn key(&self) -> Result<Option<SecretString>, Failure> {
        let Some(name) = &self.def.api_key_env else { return Ok(None) };
        let missing = || {
            Failure::new(ProviderFailure::Misconfigured, format!("the secret `{}` is not set", quote::clip(name, 80)))
        };
        self.secrets.secret(name).map(Some).ok_or_else(missing)
    }
}

/// Full jitter: anything between nothing and a bound that doubles, so that many sessions do not come back at once.
fn backoff(attempt: u32) -> Duration {
    let (first, longest) = BACKOFF;
    let bound = first.saturating_mul(1 << attempt.min(10)).min(longest);
    // Without randomness the full wait is the safe choice.
    let share = getrandom::u32().map_or(1.0, |n| f64::from(n) / f64::from(u32::MAX));
    bound.mul_f64(share)
}
