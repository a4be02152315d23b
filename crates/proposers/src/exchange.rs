//! One question to one model: waits for a free place, sends, repeats what is worth repeating, all within the model's
//! time. What is not here: what the answer means.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use secrecy::SecretString;
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout_at};
use toolgate_core::bundle::model::{Auth, ModelDef};
use toolgate_core::proposal::{BallotVerdict, MalformedReason, ProviderFailure, Usage};
use url::Url;

use crate::answer::{Answer, Unread};
use crate::breaker::Breaker;
use crate::delta::{Cleaner, Delta, DeltaSink};
use crate::gate::Gate;
use crate::http::{Advice, Failure, Request, Transport, Waits, endpoint};
use crate::quote;
use crate::secret::{SecretSource, scrub_text};
use crate::wire::Wire;

/// Longest time for one question, whatever the definition says.
const MAX_TIMEOUT_MS: u64 = 600_000;
/// Longest wait that a server may ask for.
const MAX_WAIT: Duration = Duration::from_secs(120);
/// First and longest back-off when the server asks for none.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(8));

/// The way to one model, shared by all who ask it.
#[derive(Debug)]
pub(crate) struct Exchange {
    transport: Result<Transport, Failure>,
    secrets: Arc<dyn SecretSource>,
    def: ModelDef,
    url: Result<Arc<Url>, Failure>,
    gate: Arc<Gate>,
    breaker: Arc<Breaker>,
}

/// What came of a question.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) answer: Result<Answer, Unread>,
    /// One entry for each attempt whose pieces were thrown away.
    pub(crate) notes: Vec<String>,
    /// What those attempts cost, as far as the provider said.
    pub(crate) wasted: Usage,
}

impl From<Failure> for Told {
    fn from(failure: Failure) -> Self {
        Self { answer: Err(failure.into()), notes: Vec::new(), wasted: Usage::default() }
    }
}

/// Who asks, and who watches.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asker<'a> {
    pub(crate) tenant: &'a Arc<str>,
    pub(crate) deltas: Option<&'a dyn DeltaSink>,
}

impl Exchange {
    pub(crate) fn new(
        transport: Result<Transport, Failure>,
        secrets: Arc<dyn SecretSource>,
        def: ModelDef,
        breaker: Arc<Breaker>,
    ) -> Self {
        let interval = Duration::from_millis(def.min_interval_ms);
        let gate = Arc::new(Gate::new(def.max_concurrency, def.max_concurrency_per_tenant, interval));
        let url = endpoint(def.base_url.as_deref(), Wire::of(def.provider));
        Self { transport, secrets, url, def, gate, breaker }
    }

    pub(crate) const fn def(&self) -> &ModelDef {
        &self.def
    }

    /// Sends a body and gives what the last attempt brought. Takes at most the model's `timeout_ms`, waiting included; no
    /// text in it holds the API key.
    pub(crate) async fn run(&self, body: &Bytes, asker: Asker<'_>) -> Told {
        let ready = || -> Result<_, Failure> {
            Ok((self.key()?, self.url.clone()?, self.transport.as_ref().map_err(Clone::clone)?))
        };
        let (key, url, transport) = match ready() {
            Ok(found) => found,
            Err(failure) => return failure.into(),
        };
        let deadline = Instant::now() + total(&self.def);
        let wire = Wire::of(self.def.provider);
        let usual = if wire == Wire::Messages { Auth::XApiKey } else { Auth::Bearer };
        let request = Request {
            url: &url,
            wire,
            auth: self.def.auth.unwrap_or(usual),
            key: key.as_ref(),
            body,
            waits: waits(&self.def),
        };
        let mut told = self.attempts((transport, request), asker, deadline).await;
        if let Some(key) = &key {
            match &mut told.answer {
                Ok(answer) => answer.scrub(key),
                Err(unread) => scrub_verdict(&mut unread.verdict, key),
            }
        }
        told
    }

    async fn attempts(&self, way: (&Transport, Request<'_>), asker: Asker<'_>, deadline: Instant) -> Told {
        let mut attempt = 0;
        let mut told = Told { answer: Err(out_of_time(&self.def)), notes: Vec::new(), wasted: Usage::default() };
        loop {
            let is_out = AtomicBool::new(false);
            let Ok((advice, answer)) = timeout_at(deadline, self.once(way, asker, &is_out)).await else {
                if is_out.load(Ordering::Relaxed) {
                    self.breaker.count(self.def.breaker, true);
                }
                return told;
            };
            let transient = answer.as_ref().err().filter(|unread| unread.is_transient());
            let wait = transient
                .filter(|_| advice.should_retry != Some(false) && attempt < self.def.retries)
                .map(|unread| (unread, advice.retry_after.unwrap_or_else(|| backoff(attempt))));
            let fits = |wait: Duration| wait <= MAX_WAIT && Instant::now() + wait < deadline;
            let Some((unread, wait)) = wait.filter(|(_, wait)| fits(*wait)) else {
                return Told { answer, ..told };
            };
            tracing::debug!(model = self.def.model, attempt, wait_ms = wait.as_millis(), "asking again");
            told.notes.push(format!("attempt_discarded:{}", reason_of(&unread.verdict)));
            told.wasted = sum(told.wasted, unread.usage);
            if let Some(sink) = asker.deltas {
                sink.delta(Delta::Discarded);
            }
            sleep(wait).await;
            attempt += 1;
        }
    }

    /// One attempt. The place is given back when the future is dropped, wherever it stands, and is not held between
    /// attempts. `is_out` is set once the provider is really asked: waiting for a place says nothing about it.
    async fn once(
        &self,
        (transport, request): (&Transport, Request<'_>),
        asker: Asker<'_>,
        is_out: &AtomicBool,
    ) -> (Advice, Result<Answer, Unread>) {
        let give_up = Advice { should_retry: Some(false), ..Advice::default() };
        let Ok(_place) = self.gate.enter(asker.tenant).await else {
            let full = Failure::new(ProviderFailure::RateLimited, "too many questions wait for this model");
            return (give_up, Err(full.into()));
        };
        if let Err(left) = self.breaker.check(self.def.breaker) {
            return (give_up, Err(left_alone(left)));
        }
        is_out.store(true, Ordering::Relaxed);
        let cleaner = Mutex::new(Cleaner::new(request.key));
        let watch = |delta: Delta| {
            if let Some(sink) = asker.deltas {
                let shown = cleaner.lock().unwrap_or_else(PoisonError::into_inner).push(delta);
                shown.into_iter().for_each(|delta| sink.delta(delta));
            }
        };
        let (advice, answer) = transport.post(request, &watch).await;
        if let Some(sink) = asker.deltas.filter(|_| answer.is_ok()) {
            cleaner.into_inner().unwrap_or_else(PoisonError::into_inner).finish().for_each(|delta| sink.delta(delta));
        }
        let failed = answer.as_ref().is_err_and(Unread::is_transient);
        self.breaker.count(self.def.breaker, failed);
        (advice, answer)
    }

    fn key(&self) -> Result<Option<SecretString>, Failure> {
        let Some(name) = &self.def.api_key_env else { return Ok(None) };
        let missing = || {
            Failure::new(ProviderFailure::Misconfigured, format!("the secret `{}` is not set", quote::clip(name, 80)))
        };
        self.secrets.secret(name).map(Some).ok_or_else(missing)
    }
}

/// The time for one question, waiting and retries included.
pub(crate) fn total(def: &ModelDef) -> Duration {
    Duration::from_millis(def.timeout_ms.min(MAX_TIMEOUT_MS))
}

pub(crate) fn waits(def: &ModelDef) -> Waits {
    let time = |ms: Option<u64>| ms.map(Duration::from_millis);
    Waits { first_byte: time(def.first_byte_timeout_ms), idle: time(def.idle_timeout_ms) }
}

/// What is said once the time for the whole is over.
pub(crate) fn out_of_time(def: &ModelDef) -> Unread {
    Failure::new(ProviderFailure::TimedOut, format!("no complete answer within {} ms", def.timeout_ms)).into()
}

fn left_alone(left: Duration) -> Unread {
    let said =
        format!("the provider failed several times in a row and is not asked for another {} ms", left.as_millis());
    Failure::new(ProviderFailure::ServerError, said).into()
}

fn scrub_verdict(verdict: &mut BallotVerdict, key: &SecretString) {
    match verdict {
        BallotVerdict::Failed { detail, .. } | BallotVerdict::Malformed { detail, .. } => {
            *detail = quote::detail(&scrub_text(detail, Some(key)));
        }
        BallotVerdict::Proposal(_) => {}
    }
}

/// The closed reason as it stands in the log.
fn reason_of(verdict: &BallotVerdict) -> String {
    let word = |value: Result<Value, _>| value.ok().and_then(|value| value.as_str().map(str::to_owned));
    match verdict {
        BallotVerdict::Failed { reason, .. } => word(serde_json::to_value(reason)).unwrap_or_default(),
        BallotVerdict::Malformed { reason, .. } => {
            word(serde_json::to_value::<MalformedReason>(*reason)).unwrap_or_default()
        }
        BallotVerdict::Proposal(_) => String::new(),
    }
}

/// Two costs together; unknown and unknown stay unknown.
pub(crate) fn sum(one: Usage, other: Usage) -> Usage {
    let add = |one: Option<u64>, other: Option<u64>| match (one, other) {
        (Some(one), Some(other)) => Some(one.saturating_add(other)),
        (known, None) | (None, known) => known,
    };
    Usage {
        input_tokens: add(one.input_tokens, other.input_tokens),
        output_tokens: add(one.output_tokens, other.output_tokens),
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
