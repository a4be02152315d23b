//! The outside observer: sends requests to any node until one answers, keeps every answer that promises something and a
//! digest of every event it is shown. What is not here: who asks for what (`callers`).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use reqwest::{RequestBuilder, StatusCode};
use serde_json::Value;
use tokio::time::sleep;

use crate::evidence::{Ack, Digest, Fact, Told, digest};
use crate::journal::lock;

/// Time before the same question to another node.
const AGAIN: Duration = Duration::from_millis(60);
/// A node that is paused longer than this is given up for another one.
const PATIENCE: Duration = Duration::from_secs(10);
/// Events asked for at once.
const PAGE: usize = 200;

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Its body.
    pub body: String,
}

impl Answer {
    /// The body as JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_default()
    }

    /// Not now: another node, or a moment later.
    fn says_come_again(&self) -> bool {
        self.status.is_server_error()
            || self.status == StatusCode::TOO_MANY_REQUESTS
            || self.status == StatusCode::CONFLICT && self.body.contains("idempotency_in_progress")
    }
}

/// A request under an idempotency key.
#[derive(Debug, Clone)]
pub struct Request {
    /// Its path.
    pub path: String,
    /// Its body.
    pub body: Value,
    /// Its key.
    pub key: String,
}

/// Somebody outside with a key. Clones share what they have seen.
#[derive(Debug, Clone)]
pub struct Outside {
    nodes: Arc<[String]>,
    key: String,
    http: reqwest::Client,
    next: Arc<AtomicUsize>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    acks: Mutex<Vec<Ack>>,
    answers: Mutex<Vec<(Request, Answer)>>,
    seen: Mutex<BTreeMap<String, BTreeMap<u64, Digest>>>,
    contradictions: Mutex<Vec<String>>,
    /// Answers of 500, which say that the server has a defect.
    defects: AtomicU64,
    progress: AtomicU64,
    /// Requests that got no answer in time, by node.
    unanswered: Mutex<BTreeMap<usize, u64>>,
}

impl Outside {
    /// Somebody who knows these nodes, as `host:port`.
    #[must_use]
    pub fn new(nodes: Vec<String>, key: String) -> Self {
        let http = reqwest::Client::builder().timeout(PATIENCE).build().expect("an HTTP client");
        Self { nodes: nodes.into(), key, http, next: Arc::default(), shared: Arc::default() }
    }

    /// Somebody else whose sightings are kept with these.
    #[must_use]
    pub fn with_key(&self, key: &str) -> Self {
        Self { key: key.to_owned(), ..self.clone() }
    }

    /// The API key.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Facts and events that outsiders were told so far.
    #[must_use]
    pub fn progress(&self) -> u64 {
        self.shared.progress.load(Ordering::Relaxed)
    }

    /// Answers of 500 so far.
    #[must_use]
    pub fn defects(&self) -> u64 {
        self.shared.defects.load(Ordering::Relaxed)
    }

    /// Requests that got no answer in time, by node.
    #[must_use]
    pub fn unanswered(&self) -> Vec<u64> {
        let all = lock(&self.shared.unanswered);
        (0..self.nodes.len()).map(|node| all.get(&node).copied().unwrap_or_default()).collect()
    }

    /// Asks one node after the other until there is an answer that is not "come again". Without a bound: whoever waits for
    /// a caller has one.
    pub async fn ask(&self, request: impl Fn(&reqwest::Client, &str) -> RequestBuilder) -> Answer {
        loop {
            let turn = self.next.fetch_add(1, Ordering::Relaxed) % self.nodes.len().max(1);
            let node = self.nodes.get(turn).map(String::as_str).unwrap_or_default();
            let builder = request(&self.http, &format!("http://{node}")).bearer_auth(&self.key);
            let answer = async {
                let response = builder.send().await?;
                Ok::<_, reqwest::Error>(Answer { status: response.status(), body: response.text().await? })
            };
            match answer.await {
                Ok(answer) if !answer.says_come_again() => return answer,
                Ok(answer) if answer.status == StatusCode::INTERNAL_SERVER_ERROR => {
                    let before = self.shared.defects.fetch_add(1, Ordering::Relaxed);
                    if before == 0 {
                        println!("500: {}", answer.body);
                    }
                }
                Err(error) if error.is_timeout() => *lock(&self.shared.unanswered).entry(turn).or_default() += 1,
                Ok(_) | Err(_) => {}
            }
            sleep(AGAIN).await;
        }
    }

    /// Reads something.
    pub async fn get(&self, path: &str) -> Answer {
        self.ask(|http, node| http.get(format!("{node}{path}"))).await
    }

    /// Puts a document.
    pub async fn put(&self, path: &str, body: &Value) -> Answer {
        self.ask(|http, node| http.put(format!("{node}{path}")).json(body)).await
    }

    /// Sends a request without a key.
    pub async fn make(&self, path: &str, body: &Value) -> Answer {
        self.ask(|http, node| http.post(format!("{node}{path}")).json(body)).await
    }

    /// Sends a request under its key.
    pub async fn send(&self, request: &Request) -> Answer {
        self.ask(|http, node| {
            let post = http.post(format!("{node}{}", request.path));
            post.header("idempotency-key", &request.key).json(&request.body)
        })
        .await
    }

    /// Sends a request under its key, and keeps the answer to compare it with the next one.
    pub async fn post(&self, path: &str, body: Value, key: &str) -> Answer {
        let request = Request { path: path.to_owned(), body, key: key.to_owned() };
        let answer = self.send(&request).await;
        if answer.status.is_success() {
            lock(&self.shared.answers).push((request, answer.clone()));
        }
        answer
    }

    /// Notes that something was acknowledged.
    pub fn acknowledged(&self, session: &str, fact: Fact) {
        self.shared.progress.fetch_add(1, Ordering::Relaxed);
        lock(&self.shared.acks).push(Ack { session: session.to_owned(), fact });
    }

    /// Notes that an event was shown.
    pub fn shown(&self, session: &str, event: &Value) {
        let Some(seq) = event.get("seq").and_then(Value::as_u64) else { return };
        let new = digest(event);
        self.shared.progress.fetch_add(1, Ordering::Relaxed);
        let mut seen = lock(&self.shared.seen);
        let before = seen.entry(session.to_owned()).or_default().insert(seq, new);
        if before.is_some_and(|before| before != new) {
            lock(&self.shared.contradictions).push(format!("{session}: event {seq} was shown in two forms: {event}"));
        }
    }

    /// The events after a place, waiting for the first of them.
    pub async fn page(&self, session: &str, after: u64, wait: u64) -> Vec<Value> {
        let path = format!("/v1/sessions/{session}/events?after_seq={after}&limit={PAGE}&wait={wait}");
        let mut page = self.get(&path).await.json();
        match page.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) => items,
            Some(_) | None => Vec::new(),
        }
    }

    /// Every event of a session, read anew.
    pub async fn whole_log(&self, session: &str) -> Vec<Value> {
        let mut log: Vec<Value> = Vec::new();
        loop {
            let after = log.last().and_then(|event| event.get("seq")?.as_u64()).unwrap_or_default();
            let page = self.page(session, after, 0).await;
            if page.is_empty() {
                return log;
            }
            log.extend(page);
        }
    }

    /// Answers that were kept.
    #[must_use]
    pub fn answers(&self) -> Vec<(Request, Answer)> {
        lock(&self.shared.answers).clone()
    }

    /// What is in hands, but for the journal and the heads.
    #[must_use]
    pub fn told(&self) -> Told {
        Told {
            acks: lock(&self.shared.acks).clone(),
            seen: lock(&self.shared.seen).clone(),
            contradictions: lock(&self.shared.contradictions).clone(),
            ..Told::default()
        }
    }
}
