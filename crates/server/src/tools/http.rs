//! HTTP tools: one `POST` of the exact canonical arguments, bounded in time and size, to a checked address. What is not
//! here: which addresses are allowed (`address`), whether the call is sent again (the core decides).

use std::error::Error as _;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::redirect::Policy;
use secrecy::{ExposeSecret, SecretString};
use tokio::time::{Instant, timeout_at};
use toolgate_core::output::OutcomeStatus;
use toolgate_core::tool::{HttpExecutor, SECRET_PREFIX, ToolClass};
use toolgate_proposers::SecretSource;
use url::Url;

use super::address::{AddressPolicy, BadAddress, CheckedResolver};
use super::{RawOutcome, RawOutput, ToolOrder, scrub};
use crate::clock::SharedClock;
use crate::crash;
use crate::wire::time_text;

/// Time for the connection alone.
const CONNECT: Duration = Duration::from_secs(10);
/// Bytes beyond the cap that are still counted, before the connection is closed.
const COUNTED: u64 = 4 * 1024 * 1024;
/// Longest media type that is kept, in bytes.
const MAX_MEDIA_TYPE: usize = 128;

/// Runs HTTP tools. Cheap to clone.
#[derive(Clone)]
pub struct HttpRunner {
    /// For `read` and `idempotent` calls: connections are kept.
    kept: reqwest::Client,
    /// For `once` calls: each has a connection of its own, since a request on a kept connection that the other side has
    /// just closed has an unknown fate.
    fresh: reqwest::Client,
    policy: AddressPolicy,
    secrets: Arc<dyn SecretSource>,
    clock: SharedClock,
}

impl fmt::Debug for HttpRunner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpRunner").field("policy", &self.policy).finish_non_exhaustive()
    }
}

/// The HTTP client cannot be built on this machine.
#[derive(Debug, thiserror::Error)]
#[error("the HTTP client for tools cannot be built")]
pub struct ToolSetupError(#[source] reqwest::Error);

impl HttpRunner {
    /// Makes a runner under an address policy.
    pub fn new(
        policy: AddressPolicy,
        secrets: Arc<dyn SecretSource>,
        clock: SharedClock,
    ) -> Result<Self, ToolSetupError> {
        let kept = checked_client(policy)?;
        let fresh = builder(policy).pool_max_idle_per_host(0).http1_only().build().map_err(ToolSetupError)?;
        Ok(Self { kept, fresh, policy, secrets, clock })
    }

    /// Runs one attempt.
    pub async fn run(&self, order: &ToolOrder, executor: &HttpExecutor) -> RawOutcome {
        let Some(left) = self.time_left(order) else {
            return RawOutcome::bare(OutcomeStatus::Failed, "its time was over before it was sent; nothing was sent");
        };
        let secret = match self.secret(executor) {
            Ok(secret) => secret,
            Err(why) => return RawOutcome::bare(OutcomeStatus::Failed, &why),
        };
        let request = match self.request(order, executor, secret.as_ref()) {
            Ok(request) => request,
            Err(why) => return RawOutcome::bare(OutcomeStatus::Failed, &why),
        };
        crash::point("K6");
        let until = Instant::now() + left;
        let secret = secret.as_ref();
        let response = match timeout_at(until, request.send()).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return not_answered(error, secret),
            Err(_) => {
                let detail = "no answer in time; it may have happened";
                return RawOutcome::bare(OutcomeStatus::TimedOut, detail);
            }
        };
        // The head of the answer has come, its end has not: whether the effect is done is known to the tool alone.
        crash::point("K7");
        crash::point("K8");
        read(response, order.tool.max_output_bytes, until, secret).await
    }

    /// The shorter of the tool's time-out and what is left until the dispatch is overdue.
    fn time_left(&self, order: &ToolOrder) -> Option<Duration> {
        let left = order.order.deadline_at.as_micros().saturating_sub(self.clock.now().as_micros());
        let left = u64::try_from(left).ok().filter(|left| *left > 0)?;
        Some(Duration::from_micros(left).min(Duration::from_millis(order.tool.timeout_ms)))
    }

    fn secret(&self, executor: &HttpExecutor) -> Result<Option<SecretString>, String> {
        let secret = bearer_secret(&*self.secrets, executor.bearer_env.as_deref());
        secret.map_err(|why| format!("{why}; nothing was sent"))
    }

    fn request(
        &self,
        order: &ToolOrder,
        executor: &HttpExecutor,
        secret: Option<&SecretString>,
    ) -> Result<reqwest::RequestBuilder, String> {
        let url = Url::parse(&executor.url).map_err(|error| format!("the tool's URL cannot be read: {error}"))?;
        self.policy.check(&url).map_err(|error| format!("{error}; nothing was sent"))?;
        let client = if order.tool.class == ToolClass::Once { &self.fresh } else { &self.kept };
        let ToolOrder { tenant, actor, session, order, .. } = order;
        let mut request = client
            .post(url)
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT_ENCODING, "identity")
            .header("idempotency-key", order.call.as_str())
            .header("toolgate-call-id", order.call.as_str())
            .header("toolgate-attempt", order.attempt)
            .header("toolgate-fence", order.fence)
            .header("toolgate-not-after", time_text(order.deadline_at))
            // Identity goes beside the arguments, which may not carry it. All three are visible ASCII.
            .header("toolgate-tenant", tenant.as_str())
            .header("toolgate-actor", actor.as_str())
            .header("toolgate-session", session.to_string())
            .body(order.args.as_str().to_owned());
        if let Some(secret) = secret {
            let value =
                bearer(secret).ok_or_else(|| "the tool's secret has characters that no header may carry".to_owned())?;
            request = request.header(AUTHORIZATION, value);
        }
        Ok(request)
    }
}

/// The secret that a bundle names; a bundle may name only variables that the operator gives to bundles.
pub(crate) fn bearer_secret(secrets: &dyn SecretSource, name: Option<&str>) -> Result<Option<SecretString>, String> {
    let Some(name) = name else { return Ok(None) };
    if !name.starts_with(SECRET_PREFIX) {
        return Err(format!("`bearer_env` must name a variable that begins with {SECRET_PREFIX}"));
    }
    secrets.secret(name).map(Some).ok_or_else(|| format!("the variable {name} is not set"))
}

/// The header that carries a secret; none when no header may carry its characters.
pub(crate) fn bearer(secret: &SecretString) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(&format!("Bearer {}", secret.expose_secret())).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// A client that keeps connections and goes to permitted addresses only.
pub(crate) fn checked_client(policy: AddressPolicy) -> Result<reqwest::Client, ToolSetupError> {
    builder(policy).pool_idle_timeout(Duration::from_secs(30)).build().map_err(ToolSetupError)
}

fn builder(policy: AddressPolicy) -> reqwest::ClientBuilder {
    // Another part of the process may have installed one already, and any will do.
    drop(rustls::crypto::ring::default_provider().install_default());
    reqwest::Client::builder()
        .redirect(Policy::none())
        .retry(reqwest::retry::never())
        .referer(false)
        .no_proxy()
        .dns_resolver(Arc::new(CheckedResolver { policy }))
        .connect_timeout(CONNECT)
        .user_agent(concat!("toolgate/", env!("CARGO_PKG_VERSION")))
}

/// What went wrong with a request, without its address or secret.
pub(crate) fn sending_failed(error: reqwest::Error, secret: Option<&SecretString>) -> String {
    let error = error.without_url();
    match bad_address(&error) {
        Some(bad) => bad.to_string(),
        None => scrub::sentence(&chain(&error), secret),
    }
}

/// No head of an answer came.
fn not_answered(error: reqwest::Error, secret: Option<&SecretString>) -> RawOutcome {
    // The URL may hold more than the operator wants people or models to see.
    let error = error.without_url();
    if let Some(bad) = bad_address(&error) {
        return RawOutcome::bare(OutcomeStatus::Failed, &format!("{bad}; nothing was sent"));
    }
    let (status, what) = if error.is_connect() || error.is_builder() {
        (OutcomeStatus::Failed, "no connection; nothing was sent")
    } else if error.is_timeout() {
        (OutcomeStatus::TimedOut, "no answer in time; it may have happened")
    } else {
        (OutcomeStatus::Indeterminate, "the connection broke before an answer came; it may have happened")
    };
    RawOutcome::bare(status, &scrub::sentence(&format!("{what}: {}", chain(&error)), secret))
}

/// The guard's own refusal, if that is what stopped the connection.
fn bad_address(error: &reqwest::Error) -> Option<&BadAddress> {
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(bad) = error.downcast_ref::<BadAddress>() {
            return Some(bad);
        }
        cause = error.source();
    }
    None
}

/// An error with its causes, outermost first.
fn chain(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

async fn read(mut response: reqwest::Response, cap: u64, until: Instant, secret: Option<&SecretString>) -> RawOutcome {
    let status = response.status();
    let media_type = media_type(&response);
    let announced = response.content_length();
    let mut kept = Kept { bytes: Vec::new(), cap, seen: 0 };
    let broken = loop {
        match timeout_at(until, response.chunk()).await {
            Ok(Ok(Some(chunk))) => kept.take(&chunk),
            Ok(Ok(None)) => break None,
            Ok(Err(error)) => break Some((OutcomeStatus::Indeterminate, chain(&error.without_url()))),
            Err(_) => break Some((OutcomeStatus::TimedOut, "the rest did not come in time".to_owned())),
        }
        // Enough is known: what is kept is complete, and how much there is was announced or is more than worth counting.
        if kept.seen > cap && (announced.is_some() || kept.seen > cap.saturating_add(COUNTED)) {
            break None;
        }
    };
    // Dropping the answer closes the connection where its end was not reached.
    drop(response);
    let output = RawOutput {
        media_type,
        truncated_from: (kept.seen > cap).then(|| announced.unwrap_or(0).max(kept.seen)),
        bytes: scrub::body(kept.bytes, secret),
    };
    let code = status.as_u16();
    match broken {
        // It answered that it had failed; a broken end does not change that.
        _ if !status.is_success() => RawOutcome {
            output: Some(output),
            ..RawOutcome::bare(OutcomeStatus::Failed, &format!("the tool answered {code}"))
        },
        None => RawOutcome::ok(output),
        Some((outcome, why)) => {
            let detail = format!("the tool answered {code}, but the answer is not complete: {why}");
            RawOutcome { output: Some(output), ..RawOutcome::bare(outcome, &scrub::sentence(&detail, secret)) }
        }
    }
}

/// Bytes up to the cap; further ones are only counted.
struct Kept {
    bytes: Vec<u8>,
    cap: u64,
    seen: u64,
}

impl Kept {
    fn take(&mut self, chunk: &[u8]) {
        let room = usize::try_from(self.cap.saturating_sub(self.seen)).unwrap_or(usize::MAX);
        self.bytes.extend_from_slice(chunk.get(..room).unwrap_or(chunk));
        self.seen = self.seen.saturating_add(chunk.len() as u64);
    }
}

fn media_type(response: &reqwest::Response) -> String {
    let stated = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let usable = stated.filter(|text| !text.is_empty() && text.len() <= MAX_MEDIA_TYPE);
    usable.unwrap_or("application/octet-stream").to_owned()
}

#[cfg(test)]
mod tests;
