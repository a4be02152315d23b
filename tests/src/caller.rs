//! A plain HTTP caller with a key: asks, checks the status, gives JSON back. What is not here: the Rust client, which
//! has tests of its own.

use std::time::Duration;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::WAIT;
use crate::contract::{CONTRACT, Judged};

/// Somebody with an API key.
#[derive(Clone)]
pub struct Caller {
    url: String,
    key: String,
    http: reqwest::Client,
}

/// An answer, read whole.
#[derive(Debug)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: reqwest::header::HeaderMap,
    /// The body as text.
    pub text: String,
    /// The body as it came.
    pub bytes: Vec<u8>,
}

impl Answer {
    /// The body as JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error} in {}", self.text))
    }

    /// Fails the test unless the status is this one.
    pub fn expect(self, status: u16) -> Self {
        assert_eq!(self.status.as_u16(), status, "{}", self.text);
        self
    }

    /// The problem code of an error.
    #[must_use]
    pub fn code(&self) -> String {
        self.json()["code"].as_str().unwrap_or_else(|| panic!("no code in {}", self.text)).to_owned()
    }
}

impl Caller {
    /// A caller of this server with this key.
    #[must_use]
    pub fn new(url: String, key: String) -> Self {
        let http = reqwest::Client::builder().timeout(Duration::from_secs(90)).build().expect("an HTTP client");
        Self { url, key, http }
    }

    /// The same key at another address.
    #[must_use]
    pub fn at(&self, url: String) -> Self {
        Self { url, ..self.clone() }
    }

    /// The key.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The address.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// A request that can be changed before it is sent.
    pub fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.http.request(method, format!("{}{path}", self.url)).bearer_auth(&self.key)
    }

    /// Sends a request and reads the answer whole. Fails the test if the answer is not one that `openapi.yaml` documents.
    pub async fn send(request: reqwest::RequestBuilder) -> Answer {
        let (http, request) = request.build_split();
        let request = request.expect("a request that can be sent");
        let (method, url) = (request.method().clone(), request.url().clone());
        let response = http.execute(request).await.expect("the server answers");
        let (status, headers) = (response.status(), response.headers().clone());
        let bytes = response.bytes().await.expect("a whole body").to_vec();
        CONTRACT.judge(&Judged {
            method: method.as_str(),
            path: url.path(),
            status: status.as_u16(),
            headers: &headers,
            body: &bytes,
        });
        let text = String::from_utf8_lossy(&bytes).into_owned();
        Answer { status, headers, text, bytes }
    }

    /// GET.
    pub async fn get(&self, path: &str) -> Answer {
        Self::send(self.request(Method::GET, path)).await
    }

    /// POST of a JSON body.
    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        Self::send(self.request(Method::POST, path).json(body)).await
    }

    /// Puts a bundle and fails the test if it is refused.
    pub async fn put_bundle(&self, bundle: &Value) {
        let answer = Self::send(self.request(Method::PUT, "/v1/bundle").json(bundle)).await;
        assert!(answer.status.is_success(), "{}", answer.text);
    }

    /// Starts a session and gives its id.
    pub async fn open(&self, profile: &str, prompt: &str) -> String {
        let answer = self.post("/v1/sessions", &json!({"profile": profile, "prompt": prompt})).await.expect(201);
        answer.json()["id"].as_str().expect("an id").to_owned()
    }

    /// The session as the API shows it.
    pub async fn session(&self, id: &str) -> Value {
        self.get(&format!("/v1/sessions/{id}")).await.expect(200).json()
    }

    /// Every event of a session.
    pub async fn events(&self, id: &str) -> Vec<Value> {
        let mut all: Vec<Value> = Vec::new();
        loop {
            let after = all.last().map_or(0, |event| event["seq"].as_u64().expect("a seq"));
            let page = self.get(&format!("/v1/sessions/{id}/events?after_seq={after}&limit=200")).await.expect(200);
            let items = page.json()["items"].as_array().expect("items").clone();
            if items.is_empty() {
                return all;
            }
            all.extend(items);
        }
    }

    /// Events of one type.
    pub async fn events_of(&self, id: &str, kind: &str) -> Vec<Value> {
        self.events(id).await.into_iter().filter(|event| event["type"] == kind).collect()
    }

    /// Waits until this many events of a type are in the log, and gives them.
    pub async fn until_events(&self, id: &str, kind: &str, count: usize) -> Vec<Value> {
        let deadline = tokio::time::Instant::now() + WAIT;
        loop {
            let events = self.events(id).await;
            let head = events.last().map_or(0, |event| event["seq"].as_u64().expect("a seq"));
            let found: Vec<Value> = events.into_iter().filter(|event| event["type"] == kind).collect();
            if found.len() >= count {
                return found;
            }
            assert!(tokio::time::Instant::now() < deadline, "waited for {count} `{kind}`, found {found:#?}");
            let _ = self.get(&format!("/v1/sessions/{id}/events?after_seq={head}&limit=1&wait=1")).await.expect(200);
        }
    }

    /// Waits until the session as the API shows it satisfies a condition.
    pub async fn until(&self, id: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let deadline = tokio::time::Instant::now() + WAIT;
        loop {
            let session = self.session(id).await;
            if holds(&session) {
                return session;
            }
            assert!(tokio::time::Instant::now() < deadline, "waited for {what}, but: {session:#}");
            // Long poll: answers as soon as something new is in the log, and after a second at the latest.
            let head = session["head_seq"].as_u64().unwrap_or(0);
            let _ = self.get(&format!("/v1/sessions/{id}/events?after_seq={head}&limit=1&wait=1")).await.expect(200);
        }
    }

    /// Waits until run `no` has ended and gives the session.
    pub async fn until_ended(&self, id: &str, no: u64) -> Value {
        self.until(id, "the run to end", |session| session["run"]["no"] == no && session["run"]["ending"].is_string())
            .await
    }

    /// Verifies a session and fails the test unless its log is whole.
    pub async fn verified(&self, id: &str) {
        let report = self.post(&format!("/v1/sessions/{id}/verify"), &json!({})).await.expect(200).json();
        assert_eq!(report["verified"], true, "{report:#}");
    }
}
