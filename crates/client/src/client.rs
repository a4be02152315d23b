//! The REST client: one method per operation. Writes carry an idempotency key, so that they are sent again safely where no
//! answer came. What is not here: the channel (`executor`).

use std::fmt;
use std::time::Duration;

use reqwest::header::{ACCEPT, HeaderMap, HeaderValue, IF_MATCH, RETRY_AFTER};
use reqwest::{Method, RequestBuilder, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use url::Url;

use crate::error::{ApiFailure, ClientError};
use crate::model::{Approval, BundleInfo, Decision, EventPage, Page, Session, SessionRequest, Verification};
use crate::random;

/// Times a request is sent at most.
const TRIES: u32 = 4;
/// First wait before a request is sent again; doubles.
const WAIT_FIRST: Duration = Duration::from_millis(100);
/// Longest wait that a server may ask for.
const WAIT_MOST: Duration = Duration::from_secs(10);

/// A Toolgate server and a key. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    base: Url,
    key: HeaderValue,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("base", &self.base.as_str()).finish_non_exhaustive()
    }
}

impl Client {
    /// A client of the server at `base`, for example `https://toolgate.example`.
    pub fn new(base: &str, key: &str) -> Result<Self, ClientError> {
        // Another part of the process may have installed one already, and any will do.
        drop(rustls::crypto::ring::default_provider().install_default());
        let settings = |why: &str| ClientError::Settings(why.to_owned());
        let mut base = Url::parse(base).map_err(|error| ClientError::Settings(error.to_string()))?;
        if !matches!(base.scheme(), "http" | "https") || base.host().is_none() {
            return Err(settings("the address must begin with http:// or https://"));
        }
        if !base.path().ends_with('/') {
            base.set_path(&format!("{}/", base.path()));
        }
        let mut key =
            HeaderValue::from_str(&format!("Bearer {key}")).map_err(|_| settings("the key has bad characters"))?;
        key.set_sensitive(true);
        let http = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(Duration::from_secs(10))
            .timeout(Duration::from_secs(90))
            .user_agent(concat!("toolgate-client/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| ClientError::Settings(error.to_string()))?;
        Ok(Self { http, base, key })
    }

    /// The address of the channel.
    pub(crate) fn channel_url(&self) -> Result<Url, ClientError> {
        let mut url = self.url("v1/channel")?;
        let scheme = if url.scheme() == "https" { "wss" } else { "ws" };
        url.set_scheme(scheme).map_err(|()| ClientError::Settings("the address has no channel".to_owned()))?;
        Ok(url)
    }

    /// The value of the `Authorization` header.
    pub(crate) const fn authorization(&self) -> &HeaderValue {
        &self.key
    }

    /// Starts a session.
    pub async fn create_session(&self, request: &SessionRequest) -> Result<Session, ClientError> {
        self.post("v1/sessions", request).await
    }

    /// Starts a session and waits until it is idle or waits for somebody, at most so many seconds (up to 60).
    pub async fn create_session_and_wait(
        &self,
        request: &SessionRequest,
        seconds: u32,
    ) -> Result<Session, ClientError> {
        let (url, key) = (self.url("v1/sessions")?, random::hex());
        self.send(|| {
            let post = self.request(Method::POST, &url).header("idempotency-key", &key).json(request);
            post.header("prefer", format!("wait={seconds}"))
        })
        .await
    }

    /// A session as it is now.
    pub async fn session(&self, id: &str) -> Result<Session, ClientError> {
        self.get(&["v1", "sessions", id], &[]).await
    }

    /// Says something more; opens the next run.
    pub async fn add_message(&self, id: &str, text: &str) -> Result<Session, ClientError> {
        self.post_to(&["v1", "sessions", id, "messages"], &json!({ "text": text })).await
    }

    /// Stops the run.
    pub async fn cancel(&self, id: &str, reason: Option<&str>) -> Result<Session, ClientError> {
        self.post_to(&["v1", "sessions", id, "cancel"], &json!({ "reason": reason })).await
    }

    /// Closes the session for good.
    pub async fn close(&self, id: &str, reason: Option<&str>) -> Result<Session, ClientError> {
        self.post_to(&["v1", "sessions", id, "close"], &json!({ "reason": reason })).await
    }

    /// Events after `after_seq`, at most `limit`; waits up to `wait` seconds for the first.
    pub async fn events(&self, id: &str, after_seq: u64, limit: u32, wait: u32) -> Result<EventPage, ClientError> {
        let query = [("after_seq", after_seq.to_string()), ("limit", limit.to_string()), ("wait", wait.to_string())];
        self.get(&["v1", "sessions", id, "events"], &query).await
    }

    /// Approvals, newest first; `status` for example `pending`.
    pub async fn approvals(&self, status: Option<&str>, cursor: Option<&str>) -> Result<Page<Approval>, ClientError> {
        let given = [("status", status), ("cursor", cursor)];
        let query: Vec<_> =
            given.iter().filter_map(|(name, value)| value.map(|value| (*name, value.to_owned()))).collect();
        self.get(&["v1", "approvals"], &query).await
    }

    /// An approval with exactly what is approved.
    pub async fn approval(&self, id: &str) -> Result<Approval, ClientError> {
        self.get(&["v1", "approvals", id], &[]).await
    }

    /// Decides an approval. A second answer gives the recorded first one.
    pub async fn decide(&self, id: &str, decision: &Decision) -> Result<Approval, ClientError> {
        self.post_to(&["v1", "approvals", id, "decision"], decision).await
    }

    /// Checks a session's chain and decides every recorded input again.
    pub async fn verify(&self, id: &str) -> Result<Verification, ClientError> {
        self.post_to(&["v1", "sessions", id, "verify"], &json!({})).await
    }

    /// Why a call was decided as it was, and what became of it, as lines for people.
    pub async fn explain(&self, session: &str, call: &str) -> Result<String, ClientError> {
        let url = self.path(&["v1", "sessions", session, "calls", call, "explain"])?;
        let body = self.exchange(|| self.request(Method::GET, &url).header(ACCEPT, "text/plain")).await?;
        String::from_utf8(body).map_err(|error| ClientError::Answer(error.to_string()))
    }

    /// Puts a bundle. `replaces` is the digest of the bundle that it replaces; absent where there is none yet.
    pub async fn put_bundle(&self, bundle: &Value, replaces: Option<&str>) -> Result<BundleInfo, ClientError> {
        let url = self.url("v1/bundle")?;
        let tag = replaces.map(|digest| if digest == "*" { "*".to_owned() } else { format!("\"{digest}\"") });
        self.send(|| {
            let put = self.request(Method::PUT, &url).json(bundle);
            match &tag {
                Some(tag) => put.header(IF_MATCH, tag),
                None => put,
            }
        })
        .await
    }

    fn url(&self, path: &str) -> Result<Url, ClientError> {
        self.base.join(path).map_err(|error| ClientError::Settings(error.to_string()))
    }

    /// A path of segments, each escaped: an id from elsewhere cannot lead to another place.
    fn path(&self, segments: &[&str]) -> Result<Url, ClientError> {
        let mut url = self.base.clone();
        match url.path_segments_mut() {
            Ok(mut path) => {
                path.pop_if_empty().extend(segments);
            }
            Err(()) => return Err(ClientError::Settings("the address cannot have a path".to_owned())),
        }
        Ok(url)
    }

    async fn get<T: DeserializeOwned>(&self, path: &[&str], query: &[(&str, String)]) -> Result<T, ClientError> {
        let mut url = self.path(path)?;
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        self.send(|| self.request(Method::GET, &url)).await
    }

    async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, ClientError> {
        self.post_to(&path.split('/').collect::<Vec<_>>(), body).await
    }

    async fn post_to<T: DeserializeOwned>(&self, path: &[&str], body: &impl Serialize) -> Result<T, ClientError> {
        let (url, key) = (self.path(path)?, random::hex());
        self.send(|| self.request(Method::POST, &url).header("idempotency-key", &key).json(body)).await
    }

    fn request(&self, method: Method, url: &Url) -> RequestBuilder {
        self.http.request(method, url.clone()).header(reqwest::header::AUTHORIZATION, &self.key)
    }

    /// Sends a request and reads the answer as JSON.
    async fn send<T: DeserializeOwned>(&self, build: impl Fn() -> RequestBuilder) -> Result<T, ClientError> {
        let body = self.exchange(build).await?;
        serde_json::from_slice(&body).map_err(|error| ClientError::Answer(error.to_string()))
    }

    /// Sends a request until there is an answer that stands.
    async fn exchange(&self, build: impl Fn() -> RequestBuilder) -> Result<Vec<u8>, ClientError> {
        let mut tried = 0;
        let mut wait = WAIT_FIRST;
        loop {
            tried += 1;
            let error = match once(build()).await {
                Ok(body) => return Ok(body),
                Err(error) => error,
            };
            let after = match &error {
                ClientError::Transport(_) => Some(wait),
                ClientError::Api(failure)
                    if matches!(failure.status, 503 | 429) || failure.code == "idempotency_in_progress" =>
                {
                    Some(failure.retry_after.unwrap_or(wait).min(WAIT_MOST))
                }
                ClientError::Api(_) | ClientError::Settings(_) | ClientError::Answer(_) | ClientError::Ended => None,
            };
            match after {
                Some(after) if tried < TRIES => tokio::time::sleep(jittered(after)).await,
                Some(_) | None => return Err(error),
            }
            wait *= 2;
        }
    }
}

/// Between the whole of a time and one and a half of it.
fn jittered(time: Duration) -> Duration {
    let half = u64::try_from(time.as_millis() / 2).unwrap_or(u64::MAX).max(1);
    time + Duration::from_millis(random::number() % half)
}

async fn once(request: RequestBuilder) -> Result<Vec<u8>, ClientError> {
    let response = request.send().await.map_err(transport)?;
    let (status, retry_after) = (response.status(), retry_after(response.headers()));
    let body = response.bytes().await.map_err(transport)?;
    if status.is_success() {
        return Ok(body.into());
    }
    let failure = serde_json::from_slice(&body).unwrap_or_else(|_| unexplained(status));
    Err(ClientError::Api(Box::new(ApiFailure { retry_after, ..failure })))
}

/// An error without a problem document comes from something in between.
fn unexplained(status: StatusCode) -> ApiFailure {
    ApiFailure {
        code: "unexplained".to_owned(),
        status: status.as_u16(),
        title: String::new(),
        detail: format!("{status} without a problem document"),
        request_id: None,
        retry_after: None,
    }
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds))
}

fn transport(error: reqwest::Error) -> ClientError {
    ClientError::Transport(error.without_url())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_joined_and_keys_are_not_printed() {
        let client = Client::new("https://toolgate.example/base", "tg_live_secret").unwrap();
        assert_eq!(client.channel_url().unwrap().as_str(), "wss://toolgate.example/base/v1/channel");
        let escaped = client.path(&["v1", "sessions", "../../keys?x"]).unwrap();
        assert_eq!(escaped.as_str(), "https://toolgate.example/base/v1/sessions/..%2F..%2Fkeys%3Fx");
        assert!(!format!("{client:?}{:?}", client.authorization()).contains("secret"));
        for address in ["ftp://a.example", "nonsense", "data:x"] {
            assert!(matches!(Client::new(address, "k"), Err(ClientError::Settings(_))), "{address}");
        }
        assert!(Client::new("http://a.example", "bad\nkey").is_err());
    }
}
