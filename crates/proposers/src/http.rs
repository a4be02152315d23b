//! The shared HTTP client: bounded in time and size, no redirects, no secrets in errors. What is not here: which request
//! is made and whether it is made again (`exchange`).

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::redirect::Policy;
use secrecy::{ExposeSecret, SecretString};
use tokio::time::{Instant, timeout_at};
use toolgate_core::bundle::model::Auth;
use toolgate_core::proposal::ProviderFailure;
use url::{Host, Url};

use crate::answer::{Answer, Reply, Unread};
use crate::anthropic;
use crate::delta::Delta;
use crate::proposer::SetupError;
use crate::quote::failed;
use crate::secret::{scrub_body, scrub_text};
use crate::stream::Stream;
use crate::wire::{self, Wire};

pub(crate) mod retry_after;

/// Largest body that is read, in bytes.
pub(crate) const MAX_BODY: usize = 2 << 20;
/// Time for the connection alone, unless the definition says otherwise.
pub(crate) const CONNECT: Duration = Duration::from_secs(10);
/// Why a wait was given up.
const NO_FIRST_BYTE: &str = "no first byte within the time for it";
const NO_FURTHER_BYTE: &str = "the answer stopped: no further byte within the time for it";

/// Why no reply came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) reason: ProviderFailure,
    pub(crate) detail: String,
}

impl From<Failure> for Unread {
    fn from(failure: Failure) -> Self {
        failed(failure.reason, &failure.detail).into()
    }
}

impl Failure {
    pub(crate) fn new(reason: ProviderFailure, detail: impl Into<String>) -> Self {
        Self { reason, detail: detail.into() }
    }
}

/// What a server says about asking again.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Advice {
    /// How long it asks to wait before the next attempt.
    pub(crate) retry_after: Option<Duration>,
    /// Its own word on whether to try again.
    pub(crate) should_retry: Option<bool>,
}

/// A request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) url: &'a Url,
    pub(crate) wire: Wire,
    pub(crate) auth: Auth,
    pub(crate) key: Option<&'a SecretString>,
    /// JSON.
    pub(crate) body: &'a Bytes,
    pub(crate) waits: Waits,
}

/// How long to wait for bytes; the time for the whole is the caller's.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Waits {
    /// Until the first one of the answer's body.
    pub(crate) first_byte: Option<Duration>,
    /// Between two pieces of it.
    pub(crate) idle: Option<Duration>,
}

/// Where the bytes of an answer come from.
pub(crate) trait Source: Send {
    /// The next bytes; none at the end.
    fn piece(&mut self) -> impl Future<Output = Result<Option<impl AsRef<[u8]> + Send>, Failure>> + Send;
}

impl Source for reqwest::Response {
    async fn piece(&mut self) -> Result<Option<impl AsRef<[u8]> + Send>, Failure> {
        self.chunk().await.map_err(|error| transport_failure(error, "the answer broke off"))
    }
}

/// What is known of an answer before its body.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) status: u16,
    pub(crate) content_type: Option<String>,
    /// The length that the server announces.
    pub(crate) announced: Option<u64>,
}

/// How a body is read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reading<'a> {
    pub(crate) wire: Wire,
    pub(crate) key: Option<&'a SecretString>,
    /// When the first byte has to be there.
    pub(crate) patience: Option<Instant>,
    pub(crate) idle: Option<Duration>,
}

/// Two clients with one configuration: addresses on this machine never go through a proxy.
#[derive(Debug, Clone)]
pub(crate) struct Transport {
    remote: reqwest::Client,
    local: reqwest::Client,
}

impl Transport {
    /// Clients that give up a connection after this time.
    pub(crate) fn new(connect: Duration) -> Result<Self, SetupError> {
        // Another part of the process may have installed one already, and any will do.
        drop(rustls::crypto::ring::default_provider().install_default());
        let client =
            |builder: reqwest::ClientBuilder| builder.build().map_err(|error| SetupError::Client(chain(&error)));
        Ok(Self { remote: client(builder(connect))?, local: client(builder(connect).no_proxy())? })
    }

    /// Posts JSON and reads the whole answer; pieces of a stream go to `watch` while they come. The caller bounds the time.
    pub(crate) async fn post(
        &self,
        request: Request<'_>,
        watch: &(dyn Fn(Delta) + Sync),
    ) -> (Advice, Result<Answer, Unread>) {
        let patience = request.waits.first_byte.map(|time| Instant::now() + time);
        let response = match within(patience, NO_FIRST_BYTE, self.send(request)).await {
            Ok(Ok(response)) => response,
            Ok(Err(failure)) | Err(failure) => return (Advice::default(), Err(failure.into())),
        };
        let headers = response.headers();
        let advice = Advice {
            retry_after: retry_after::read(|name| text(headers, name)),
            should_retry: text(headers, "x-should-retry").and_then(|value| value.parse().ok()),
        };
        let head = Head {
            status: response.status().as_u16(),
            content_type: text(headers, CONTENT_TYPE.as_str()).map(str::to_owned),
            announced: text(headers, CONTENT_LENGTH.as_str()).and_then(|length| length.parse().ok()),
        };
        let reading = Reading { wire: request.wire, key: request.key, patience, idle: request.waits.idle };
        (advice, read(head, response, reading, watch).await)
    }

    async fn send(&self, request: Request<'_>) -> Result<reqwest::Response, Failure> {
        let client = if is_local(request.url) { &self.local } else { &self.remote };
        let mut builder =
            client.post(request.url.clone()).header(CONTENT_TYPE, "application/json").body(request.body.clone());
        if request.wire == Wire::Messages {
            builder = builder.header("anthropic-version", anthropic::VERSION);
        }
        if let Some(key) = request.key {
            let (name, before) = match request.auth {
                Auth::Bearer => ("authorization", "Bearer "),
                Auth::ApiKey => ("api-key", ""),
                Auth::XApiKey => ("x-api-key", ""),
            };
            builder = builder.header(name, secret_value(before, key)?);
        }
        builder.send().await.map_err(|error| transport_failure(error, "no answer"))
    }
}

/// Waits no longer than this.
async fn within<T>(patience: Option<Instant>, late: &str, work: impl Future<Output = T>) -> Result<T, Failure> {
    let Some(until) = patience else { return Ok(work.await) };
    timeout_at(until, work).await.map_err(|_| Failure::new(ProviderFailure::TimedOut, late))
}

fn builder(connect: Duration) -> reqwest::ClientBuilder {
    reqwest::Client::builder()
        .redirect(Policy::none())
        .connect_timeout(connect)
        .pool_idle_timeout(Duration::from_secs(60))
        .user_agent(concat!("toolgate/", env!("CARGO_PKG_VERSION")))
}

fn is_local(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name.eq_ignore_ascii_case("localhost"),
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    }
}

fn secret_value(before: &str, key: &SecretString) -> Result<HeaderValue, Failure> {
    let mut value = HeaderValue::from_str(&format!("{before}{}", key.expose_secret())).map_err(|_| {
        Failure::new(ProviderFailure::Misconfigured, "the API key has characters that no header may carry")
    })?;
    value.set_sensitive(true);
    Ok(value)
}

/// Reads a body, within its bounds of time and size. The caller bounds the time for the whole.
pub(crate) async fn read(
    head: Head,
    mut source: impl Source,
    reading: Reading<'_>,
    watch: &(dyn Fn(Delta) + Sync),
) -> Result<Answer, Unread> {
    let Head { status, content_type: kind, announced } = head;
    let mut stream =
        (wire::is_success(status) && wire::is_stream(kind.as_deref(), b"")).then(|| Stream::new(reading.wire));
    if stream.is_none() && announced.is_some_and(|length| length > MAX_BODY as u64) {
        return Err(too_large().into());
    }
    let mut body = Vec::new();
    let mut deltas = Vec::new();
    let mut patience = reading.patience;
    loop {
        let (until, late) = match patience.take() {
            Some(first) => (Some(first), NO_FIRST_BYTE),
            None => (reading.idle.map(|idle| Instant::now() + idle), NO_FURTHER_BYTE),
        };
        let piece = match within(until, late, source.piece()).await {
            Ok(Ok(Some(piece))) => piece,
            Ok(Ok(None)) => break,
            Ok(Err(failure)) | Err(failure) => {
                // What broke off after the end of the answer is no loss.
                return match stream.map(Stream::finish) {
                    Some(Ok(answer)) => Ok(answer),
                    Some(Err(unread)) => Err(Unread { usage: unread.usage, ..failure.into() }),
                    None => Err(failure.into()),
                };
            }
        };
        let piece = piece.as_ref();
        match &mut stream {
            Some(stream) => {
                let goes_on = stream.push(piece, &mut deltas);
                deltas.drain(..).for_each(watch);
                if !goes_on {
                    break;
                }
            }
            None if body.len() + piece.len() > MAX_BODY => return Err(too_large().into()),
            None => body.extend_from_slice(piece),
        }
    }
    match stream {
        Some(stream) => stream.finish(),
        None => {
            let body = scrub_body(body, reading.key);
            let kind = kind.map(|kind| scrub_text(&kind, reading.key));
            wire::read(Reply { status, content_type: kind.as_deref(), body: &body }, reading.wire)
        }
    }
}

fn too_large() -> Failure {
    Failure::new(ProviderFailure::TooLarge, format!("the answer is larger than {MAX_BODY} bytes"))
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

fn transport_failure(error: reqwest::Error, what: &str) -> Failure {
    let reason = if error.is_timeout() && !error.is_connect() {
        ProviderFailure::TimedOut
    } else if error.is_builder() {
        ProviderFailure::Misconfigured
    } else {
        ProviderFailure::Transport
    };
    // The address may hold more than the operator wants in a log.
    Failure::new(reason, format!("{what}: {}", chain(&error.without_url())))
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

/// The address of the endpoint under a base URL.
pub(crate) fn endpoint(base: Option<&str>, wire: Wire) -> Result<Arc<Url>, Failure> {
    let wrong = |what: &str| Failure::new(ProviderFailure::Misconfigured, what);
    let base = base.ok_or_else(|| wrong("the model has no `base_url`"))?;
    let mut url = Url::parse(base).map_err(|error| wrong(&format!("`base_url` is no URL: {error}")))?;
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        return Err(wrong("`base_url` must start with http:// or https://"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(wrong("`base_url` holds credentials; name a variable in `api_key_env` instead"));
    }
    let end = format!("/{}", wire.path().join("/"));
    if !url.path().trim_end_matches('/').ends_with(&end) {
        let mut path = url.path_segments_mut().map_err(|()| wrong("`base_url` cannot have a path"))?;
        path.pop_if_empty().extend(wire.path());
    }
    Ok(Arc::new(url))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn the_endpoint_is_joined_and_bad_addresses_are_refused() {
        for (base, url) in [
            ("http://127.0.0.1:8089/v1", "http://127.0.0.1:8089/v1/chat/completions"),
            ("http://127.0.0.1:8089/v1/", "http://127.0.0.1:8089/v1/chat/completions"),
            (
                "https://a.example/x/chat/completions?api-version=1",
                "https://a.example/x/chat/completions?api-version=1",
            ),
            ("https://a.example?v=1", "https://a.example/chat/completions?v=1"),
        ] {
            assert_eq!(endpoint(Some(base), Wire::Chat).unwrap().as_str(), url);
        }
        for base in
            [None, Some("ftp://a.example"), Some("nonsense"), Some("https://user:pw@a.example/v1"), Some("data:x")]
        {
            let failure = endpoint(base, Wire::Chat).unwrap_err();
            assert_eq!(failure.reason, ProviderFailure::Misconfigured);
            assert!(!failure.detail.contains("pw@"));
        }
    }
}
