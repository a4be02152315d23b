//! The shared HTTP client: bounded in time and size, no redirects, no secrets in errors. What is not here: which request
//! is made and whether it is made again (`exchange`).

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::redirect::Policy;
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use toolgate_core::proposal::ProviderFailure;
use url::{Host, Url};

use crate::openai::Reply;
use crate::proposer::SetupError;

pub(crate) mod retry_after;

/// Largest body that is read, in bytes.
pub(crate) const MAX_BODY: usize = 2 << 20;
/// Time for the connection alone.
const CONNECT: Duration = Duration::from_secs(10);

/// Why no reply came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) reason: ProviderFailure,
    pub(crate) detail: String,
}

impl Failure {
    pub(crate) fn new(reason: ProviderFailure, detail: impl Into<String>) -> Self {
        Self { reason, detail: detail.into() }
    }
}

/// A reply, read to its end.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) status: u16,
    pub(crate) content_type: Option<String>,
    /// How long the server asks to wait before the next attempt.
    pub(crate) retry_after: Option<Duration>,
    /// The server's own word on whether to try again.
    pub(crate) should_retry: Option<bool>,
    pub(crate) body: Vec<u8>,
}

impl Received {
    pub(crate) fn reply(&self) -> Reply<'_> {
        Reply { status: self.status, content_type: self.content_type.as_deref(), body: &self.body }
    }
}

/// Two clients with one configuration: addresses on this machine never go through a proxy.
#[derive(Debug, Clone)]
pub(crate) struct Transport {
    remote: reqwest::Client,
    local: reqwest::Client,
}

impl Transport {
    pub(crate) fn new() -> Result<Self, SetupError> {
        // Another part of the process may have installed one already, and any will do.
        drop(rustls::crypto::ring::default_provider().install_default());
        let client =
            |builder: reqwest::ClientBuilder| builder.build().map_err(|error| SetupError::Client(chain(&error)));
        Ok(Self { remote: client(builder())?, local: client(builder().no_proxy())? })
    }

    /// Posts JSON and reads the whole answer. The caller bounds the time.
    pub(crate) async fn post(&self, url: &Url, key: Option<&SecretString>, body: &Value) -> Result<Received, Failure> {
        let client = if is_local(url) { &self.local } else { &self.remote };
        let mut request = client.post(url.clone()).json(body);
        if let Some(key) = key {
            request = request.header(AUTHORIZATION, bearer(key)?);
        }
        let response = request.send().await.map_err(|error| transport_failure(error, "no answer"))?;
        read(response).await
    }
}

fn builder() -> reqwest::ClientBuilder {
    reqwest::Client::builder()
        .redirect(Policy::none())
        .connect_timeout(CONNECT)
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

fn bearer(key: &SecretString) -> Result<HeaderValue, Failure> {
    let mut value = HeaderValue::from_str(&format!("Bearer {}", key.expose_secret())).map_err(|_| {
        Failure::new(ProviderFailure::Misconfigured, "the API key has characters that no header may carry")
    })?;
    value.set_sensitive(true);
    Ok(value)
}

async fn read(mut response: reqwest::Response) -> Result<Received, Failure> {
    let headers = response.headers();
    let announced = text(headers, CONTENT_LENGTH.as_str()).and_then(|length| length.parse::<u64>().ok());
    let mut received = Received {
        status: response.status().as_u16(),
        content_type: text(headers, CONTENT_TYPE.as_str()).map(str::to_owned),
        retry_after: retry_after::read(|name| text(headers, name)),
        should_retry: text(headers, "x-should-retry").and_then(|value| value.parse().ok()),
        body: Vec::new(),
    };
    if announced.is_some_and(|length| length > MAX_BODY as u64) {
        return Err(too_large());
    }
    while let Some(chunk) = response.chunk().await.map_err(|error| transport_failure(error, "the answer broke off"))? {
        if received.body.len() + chunk.len() > MAX_BODY {
            return Err(too_large());
        }
        received.body.extend_from_slice(&chunk);
    }
    Ok(received)
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

/// The address of the chat endpoint under a base URL.
pub(crate) fn chat_url(base: Option<&str>) -> Result<Arc<Url>, Failure> {
    let wrong = |what: &str| Failure::new(ProviderFailure::Misconfigured, what);
    let base = base.ok_or_else(|| wrong("the model has no `base_url`"))?;
    let mut url = Url::parse(base).map_err(|error| wrong(&format!("`base_url` is no URL: {error}")))?;
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        return Err(wrong("`base_url` must start with http:// or https://"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(wrong("`base_url` holds credentials; name a variable in `api_key_env` instead"));
    }
    if !url.path().trim_end_matches('/').ends_with("/chat/completions") {
        let mut path = url.path_segments_mut().map_err(|()| wrong("`base_url` cannot have a path"))?;
        path.pop_if_empty().extend(["chat", "completions"]);
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
            assert_eq!(chat_url(Some(base)).unwrap().as_str(), url);
        }
        for base in
            [None, Some("ftp://a.example"), Some("nonsense"), Some("https://user:pw@a.example/v1"), Some("data:x")]
        {
            let failure = chat_url(base).unwrap_err();
            assert_eq!(failure.reason, ProviderFailure::Misconfigured);
            assert!(!failure.detail.contains("pw@"));
        }
    }
}
