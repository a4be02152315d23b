//! The outside observer of a cell: what was acknowledged, byte for byte. It reads the stream, sends requests under an
//! idempotency key, and when the server is gone waits for its next life and asks again, as callers are told to.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use reqwest::StatusCode;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::watch;

use super::WAIT;

/// Time before the same question to a server that is not ready for it.
const AGAIN: Duration = Duration::from_millis(50);

/// An answer that a caller has in hands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ack {
    pub(super) status: StatusCode,
    pub(super) body: String,
}

impl Ack {
    /// Not ready, or the process that held the key has died with it, which is forgotten after a while.
    fn says_come_again(&self) -> bool {
        self.status == StatusCode::SERVICE_UNAVAILABLE
            || self.status == StatusCode::CONFLICT && self.body.contains("idempotency_in_progress")
    }
}

/// Somebody outside with a key.
#[derive(Clone)]
pub(super) struct Outside {
    url: String,
    key: String,
    http: reqwest::Client,
    lives: watch::Receiver<u32>,
    seen: Arc<watch::Sender<BTreeMap<u64, Event>>>,
    acks: Arc<Mutex<Vec<(Request, Ack)>>>,
}

/// A request that is sent again until it is answered.
#[derive(Debug, Clone)]
pub(super) struct Request {
    pub(super) path: String,
    pub(super) body: Value,
    pub(super) key: String,
}

/// An event as the stream showed it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Event {
    pub(super) raw: String,
    pub(super) value: Value,
}

#[derive(Deserialize)]
struct Page<'a> {
    #[serde(borrow)]
    items: Vec<&'a RawValue>,
}

impl Outside {
    pub(super) fn new(url: String, key: String, lives: watch::Receiver<u32>) -> Self {
        let http = reqwest::Client::builder().timeout(WAIT).build().unwrap();
        let seen = Arc::new(watch::Sender::new(BTreeMap::new()));
        Self { url, key, http, lives, seen, acks: Arc::default() }
    }

    /// Somebody else who sees the same.
    pub(super) fn with_key(&self, key: &str) -> Self {
        Self { key: key.to_owned(), acks: Arc::default(), ..self.clone() }
    }

    pub(super) fn key(&self) -> &str {
        &self.key
    }

    /// Puts a document.
    pub(super) async fn put(&self, path: &str, body: &Value) -> Ack {
        self.ask(|| self.http.put(format!("{}{path}", self.url)).bearer_auth(&self.key).json(body)).await
    }

    /// Sends a request without an idempotency key.
    pub(super) async fn make(&self, path: &str, body: &Value) -> Ack {
        self.ask(|| self.http.post(format!("{}{path}", self.url)).bearer_auth(&self.key).json(body)).await
    }

    /// Sends a request until it is answered, and keeps the answer.
    pub(super) async fn post(&self, path: &str, body: Value, key: &str) -> Ack {
        let request = Request { path: path.to_owned(), body, key: key.to_owned() };
        let ack = self.send(&request).await;
        assert!(ack.status.is_success(), "{path}: {} {}", ack.status, ack.body);
        self.acks.lock().unwrap().push((request, ack.clone()));
        ack
    }

    /// Sends a request until it is answered.
    pub(super) async fn send(&self, request: &Request) -> Ack {
        self.ask(|| {
            let builder = self.http.post(format!("{}{}", self.url, request.path));
            builder.bearer_auth(&self.key).header("idempotency-key", &request.key).json(&request.body)
        })
        .await
    }

    pub(super) async fn get(&self, path: &str) -> Ack {
        self.ask(|| self.http.get(format!("{}{path}", self.url)).bearer_auth(&self.key)).await
    }

    /// Asks until there is an answer that is not "come again".
    async fn ask(&self, request: impl Fn() -> reqwest::RequestBuilder) -> Ack {
        let mut lives = self.lives.clone();
        let answered = async {
            loop {
                let life = *lives.borrow_and_update();
                let answer = async {
                    let response = request().send().await?;
                    let status = response.status();
                    Ok::<_, reqwest::Error>(Ack { status, body: response.text().await? })
                };
                match answer.await {
                    // "Come again": sooner than it says, within the bound of the whole question.
                    Ok(ack) if ack.says_come_again() => tokio::time::sleep(AGAIN).await,
                    Ok(ack) => return ack,
                    // The process is gone or going; there is nobody to ask before its next life.
                    Err(_) if *lives.borrow() == life => lives.changed().await.unwrap(),
                    Err(_) => {}
                }
            }
        };
        tokio::time::timeout(WAIT, answered).await.expect("an answer in time")
    }

    /// Follows a session's stream for ever.
    pub(super) async fn follow(self, session: String) {
        loop {
            let after = self.seen.borrow().last_key_value().map_or(0, |(seq, _)| *seq);
            let page = self.page(&session, after, "&wait=5").await;
            self.seen.send_if_modified(|seen| {
                let before = seen.len();
                seen.extend(page);
                seen.len() > before
            });
        }
    }

    async fn page(&self, session: &str, after: u64, more: &str) -> Vec<(u64, Event)> {
        let ack = self.get(&format!("/v1/sessions/{session}/events?after_seq={after}&limit=200{more}")).await;
        assert_eq!(ack.status, StatusCode::OK, "{}", ack.body);
        let page: Page<'_> = serde_json::from_str(&ack.body).unwrap();
        let event = |raw: &RawValue| {
            let value: Value = serde_json::from_str(raw.get()).unwrap();
            (value["seq"].as_u64().unwrap(), Event { raw: raw.get().to_owned(), value })
        };
        page.items.into_iter().map(event).collect()
    }

    /// Every event of a session, read anew.
    pub(super) async fn whole_log(&self, session: &str) -> BTreeMap<u64, Event> {
        let mut log: BTreeMap<u64, Event> = BTreeMap::new();
        loop {
            let after = log.last_key_value().map_or(0, |(seq, _)| *seq);
            let page = self.page(session, after, "").await;
            if page.is_empty() {
                return log;
            }
            log.extend(page);
        }
    }

    /// Waits until the stream has shown what is waited for.
    pub(super) async fn until(
        &self,
        what: &str,
        holds: impl Fn(&BTreeMap<u64, Event>) -> bool,
    ) -> BTreeMap<u64, Event> {
        let mut seen = self.seen.subscribe();
        match tokio::time::timeout(WAIT, seen.wait_for(|seen| holds(seen))).await {
            Ok(found) => found.unwrap().clone(),
            Err(_) => {
                let last: Vec<String> =
                    self.seen.borrow().values().rev().take(6).map(|event| event.raw.clone()).collect();
                panic!("waited for {what}; the stream's end, newest first: {last:#?}")
            }
        }
    }

    /// Waits until the stream has shown something, however long it takes; nothing when nobody follows any more.
    pub(super) async fn changed(&self, holds: impl Fn(&BTreeMap<u64, Event>) -> bool) -> Option<BTreeMap<u64, Event>> {
        let mut seen = self.seen.subscribe();
        seen.wait_for(|seen| holds(seen)).await.ok().map(|seen| seen.clone())
    }

    /// What the stream has shown.
    pub(super) fn seen(&self) -> BTreeMap<u64, Event> {
        self.seen.borrow().clone()
    }

    /// What was acknowledged.
    pub(super) fn acks(&self) -> Vec<(Request, Ack)> {
        self.acks.lock().unwrap().clone()
    }
}
