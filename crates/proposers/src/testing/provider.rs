//! A fake OpenAI-style provider on a port of this machine. It gives its answers in order and keeps what it was sent, with
//! what a strict provider would have refused. What is not here: the list of what is refused (`history`).

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::{history, stream_of};

/// Largest request that is read, in bytes.
const MAX_REQUEST: usize = 64 << 20;

/// One answer of the fake provider.
#[derive(Debug, Clone)]
pub struct FakeAnswer {
    status: u16,
    headers: Vec<(String, String)>,
    body: Bytes,
    /// Sent in pieces of this size.
    piece: Option<usize>,
    /// Only so many bytes are sent.
    cut_at: Option<usize>,
    hangs: bool,
    wait: Duration,
}

impl FakeAnswer {
    /// A body of JSON with status 200.
    #[must_use]
    pub fn json(body: &Value) -> Self {
        Self::raw(200, "application/json", body.to_string())
    }

    /// A chat completion as a stream.
    #[must_use]
    pub fn stream(completion: &Value) -> Self {
        Self::raw(200, "text/event-stream", stream_of(completion)).pieces_of(7)
    }

    /// An error as OpenAI writes it.
    #[must_use]
    pub fn error(status: u16, code: &str, message: &str) -> Self {
        Self { status, ..Self::json(&json!({"error": {"code": code, "message": message}})) }
    }

    /// Any bytes.
    #[must_use]
    pub fn raw(status: u16, content_type: &str, body: impl Into<Bytes>) -> Self {
        Self {
            status,
            headers: vec![("content-type".to_owned(), content_type.to_owned())],
            body: body.into(),
            piece: None,
            cut_at: None,
            hangs: false,
            wait: Duration::ZERO,
        }
    }

    /// With one more header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sent in pieces of so many bytes.
    #[must_use]
    pub const fn pieces_of(mut self, bytes: usize) -> Self {
        self.piece = Some(bytes);
        self
    }

    /// The connection ends after so many bytes of the body.
    #[must_use]
    pub const fn cut_at(mut self, bytes: usize) -> Self {
        self.cut_at = Some(bytes);
        self
    }

    /// After the last byte the connection stays open without a word.
    #[must_use]
    pub const fn then_hangs(mut self) -> Self {
        self.hangs = true;
        self
    }

    /// Nothing is sent before this time.
    #[must_use]
    pub const fn after(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    fn response(self, sent: Arc<AtomicUsize>) -> Response {
        let end = self.cut_at.unwrap_or(self.body.len()).min(self.body.len());
        let body = self.body.slice(..end);
        let size = self.piece.unwrap_or(end).max(1);
        let (is_cut, hangs) = (self.cut_at.is_some(), self.hangs);
        let pieces: Vec<Result<Bytes, std::io::Error>> =
            (0..end).step_by(size).map(|at| Ok(body.slice(at..(at + size).min(end)))).collect();
        let last = stream::once(async move {
            if hangs {
                std::future::pending::<()>().await;
            }
            if is_cut { Err(std::io::Error::other("cut")) } else { Ok(Bytes::new()) }
        });
        // One piece at a time, so that what was sent before a cut also arrives.
        let pieces = stream::iter(pieces).then(move |piece| {
            if let Ok(piece) = &piece {
                sent.fetch_add(piece.len(), Ordering::Relaxed);
            }
            async move {
                tokio::task::yield_now().await;
                piece
            }
        });
        let mut response = Body::from_stream(pieces.chain(last)).into_response();
        *response.status_mut() = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut headers = HeaderMap::new();
        for (name, value) in self.headers {
            if let (Ok(name), Ok(value)) = (name.parse::<axum::http::HeaderName>(), value.parse()) {
                headers.insert(name, value);
            }
        }
        *response.headers_mut() = headers;
        response
    }
}

/// What a fake provider is to do.
#[derive(Debug, Clone, Default)]
pub struct FakeProviderBuilder {
    answers: Vec<FakeAnswer>,
    repeat_last: bool,
}

impl FakeProviderBuilder {
    /// One more answer.
    #[must_use]
    pub fn answer(mut self, answer: FakeAnswer) -> Self {
        self.answers.push(answer);
        self
    }

    /// Repeats the last answer for ever instead of failing when the answers run out.
    #[must_use]
    pub const fn repeat_last(mut self) -> Self {
        self.repeat_last = true;
        self
    }

    /// Listens on a free port of this machine; fails where none can be had.
    pub async fn start(self) -> std::io::Result<FakeProvider> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared { plan: self, seen: Mutex::default(), sent: Arc::default() });
        let app = Router::new().fallback(serve).with_state(Arc::clone(&shared));
        let task = tokio::spawn(async move { drop(axum::serve(listener, app).await) });
        Ok(FakeProvider { address, shared, task })
    }
}

#[derive(Debug)]
struct Shared {
    plan: FakeProviderBuilder,
    seen: Mutex<Seen>,
    sent: Arc<AtomicUsize>,
}

#[derive(Debug, Default)]
struct Seen {
    requests: Vec<Value>,
    faults: Vec<String>,
}

impl Shared {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A fake provider; it stops when it is dropped.
#[derive(Debug)]
pub struct FakeProvider {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl Drop for FakeProvider {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl FakeProvider {
    /// A provider without answers.
    #[must_use]
    pub fn build() -> FakeProviderBuilder {
        FakeProviderBuilder::default()
    }

    /// The `base_url` for a bundle.
    #[must_use]
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// The bodies that came, in order.
    #[must_use]
    pub fn requests(&self) -> Vec<Value> {
        self.shared.seen().requests.clone()
    }

    /// How many bytes of its answers were taken, as far as this side can tell: buffers on the way count as taken.
    #[must_use]
    pub fn sent(&self) -> usize {
        self.shared.sent.load(Ordering::Relaxed)
    }

    /// What was wrong with them, each with the number of the request, from 0; also that the answers ran out.
    #[must_use]
    pub fn faults(&self) -> Vec<String> {
        self.shared.seen().faults.clone()
    }
}

async fn serve(State(shared): State<Arc<Shared>>, request: axum::extract::Request) -> Response {
    let path = request.uri().path().to_owned();
    let body = axum::body::to_bytes(request.into_body(), MAX_REQUEST).await.unwrap_or_default();
    let body: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let answer = {
        let mut seen = shared.seen();
        let at = seen.requests.len();
        let mut faults = history::faults(&body);
        if !path.ends_with("/chat/completions") {
            faults.push(format!("the path `{path}`"));
        }
        let answer =
            shared.plan.answers.get(at).or_else(|| shared.plan.answers.last().filter(|_| shared.plan.repeat_last));
        if answer.is_none() {
            faults.push("no answer is left for it".to_owned());
        }
        seen.faults.extend(faults.into_iter().map(|fault| format!("request {at}: {fault}")));
        seen.requests.push(body);
        answer.cloned()
    };
    match answer {
        Some(answer) => {
            tokio::time::sleep(answer.wait).await;
            answer.response(Arc::clone(&shared.sent))
        }
        // A status that nobody repeats.
        None => FakeAnswer::error(400, "no_answer_left", "the fake provider has given all its answers")
            .response(Arc::clone(&shared.sent)),
    }
}
