//! An HTTP tool with a journal of what it was asked: the outside witness of what really ran.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde_json::Value;
use tokio::sync::watch;

use crate::WAIT;

/// One request that reached the tool.
#[derive(Debug, Clone)]
pub struct Ran {
    /// The last part of the path.
    pub tool: String,
    /// The exact body.
    pub body: String,
    /// The call id that came with it.
    pub call_id: String,
    /// The idempotency key that came with it.
    pub idempotency_key: String,
    /// Every header.
    pub headers: HeaderMap,
}

/// The stub tool.
#[derive(Clone)]
pub struct FakeTool {
    /// `http://127.0.0.1:PORT`.
    pub url: String,
    inner: Arc<Inner>,
}

type Answer = dyn Fn(&Ran) -> Response + Send + Sync;

struct Inner {
    journal: watch::Sender<Vec<Ran>>,
    /// Requests are answered only while this is true.
    open: watch::Sender<bool>,
    answer: Box<Answer>,
}

impl FakeTool {
    /// A tool that answers every request with this function of it: status and body.
    pub async fn start(answer: impl Fn(&Ran) -> (u16, Vec<u8>) + Send + Sync + 'static) -> Self {
        Self::responding(move |ran| {
            let (status, bytes) = answer(ran);
            (StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), bytes).into_response()
        })
        .await
    }

    /// A tool that answers every request with this function of it: a whole response.
    pub async fn responding(answer: impl Fn(&Ran) -> Response + Send + Sync + 'static) -> Self {
        let inner = Arc::new(Inner {
            journal: watch::Sender::new(Vec::new()),
            open: watch::Sender::new(true),
            answer: Box::new(answer),
        });
        let router = Router::new().route("/{tool}", post(run)).with_state(Arc::clone(&inner));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, inner }
    }

    /// A tool that answers `{"ok":true}`.
    pub async fn ok() -> Self {
        Self::start(|_| (200, br#"{"ok":true}"#.to_vec())).await
    }

    /// The bundle's executor for a tool of this name.
    #[must_use]
    pub fn executor(&self, tool: &str) -> Value {
        serde_json::json!({"http": {"url": format!("{}/{tool}", self.url)}})
    }

    /// Holds every further request back until `release`.
    pub fn hold(&self) {
        self.inner.open.send_replace(false);
    }

    /// Answers what was held back, and everything after.
    pub fn release(&self) {
        self.inner.open.send_replace(true);
    }

    /// What has reached the tool so far.
    #[must_use]
    pub fn journal(&self) -> Vec<Ran> {
        self.inner.journal.borrow().clone()
    }

    /// Waits until this many requests have reached the tool.
    pub async fn until_ran(&self, count: usize) {
        let mut journal = self.inner.journal.subscribe();
        let ran = tokio::time::timeout(WAIT, journal.wait_for(|journal| journal.len() >= count)).await;
        drop(ran.expect("the tool is asked in time").expect("the tool lives"));
    }
}

async fn run(State(inner): State<Arc<Inner>>, Path(tool): Path<String>, headers: HeaderMap, body: Bytes) -> Response {
    let header = |name: &str| headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default().to_owned();
    let ran = Ran {
        tool,
        body: String::from_utf8_lossy(&body).into_owned(),
        call_id: header("toolgate-call-id"),
        idempotency_key: header("idempotency-key"),
        headers: headers.clone(),
    };
    inner.journal.send_modify(|journal| journal.push(ran.clone()));
    let mut open = inner.open.subscribe();
    if open.wait_for(|open| *open).await.is_err() {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    (inner.answer)(&ran)
}
