//! A model over HTTP that thinks: for each question a plan says how long, whether it waits for the others, and whether it
//! answers with a call or with the end. What is not here: the model that answers at once and takes times (`model`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde_json::json;
use tokio::sync::{Barrier, watch};

/// A question, as far as plans look at it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Question {
    /// Results of tools so far, whether they are in it or were cut from it: every call is numbered.
    pub(crate) steps: usize,
    /// Whether the last word is a tool's.
    pub(crate) after_tool: bool,
}

/// What is answered, and when.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// Where all sessions meet before they go on.
    pub(crate) gate: Option<Arc<Gate>>,
    /// What must be so before anything else happens.
    pub(crate) held: Option<watch::Receiver<bool>>,
    pub(crate) thinks: Duration,
    /// The end of the run instead of a call.
    pub(crate) done: bool,
}

/// A point that all sessions reach before any goes beyond it.
#[derive(Debug)]
pub(crate) struct Gate {
    reached: Barrier,
    left: Barrier,
}

impl Gate {
    /// For so many sessions, and one who looks while they stand still.
    pub(crate) fn new(sessions: usize) -> Arc<Self> {
        Arc::new(Self { reached: Barrier::new(sessions + 1), left: Barrier::new(sessions + 1) })
    }

    async fn pass(&self) {
        self.reached.wait().await;
        self.left.wait().await;
    }

    /// Looks once all have come, and lets them go.
    pub(crate) async fn look<T>(&self, look: impl FnOnce() -> T) -> T {
        self.reached.wait().await;
        let seen = look();
        self.left.wait().await;
        seen
    }
}

type Planner = dyn Fn(Question) -> Plan + Send + Sync;

/// The model.
#[derive(Clone)]
pub(crate) struct Stub {
    pub(crate) base_url: String,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    asked: AtomicU64,
    bytes: AtomicU64,
}

struct Shared {
    counts: Arc<Counts>,
    plan: Box<Planner>,
}

impl Stub {
    pub(crate) async fn start(plan: impl Fn(Question) -> Plan + Send + Sync + 'static) -> Self {
        let counts = Arc::<Counts>::default();
        let shared = Arc::new(Shared { counts: Arc::clone(&counts), plan: Box::new(plan) });
        let router = Router::new()
            .route("/v1/chat/completions", post(complete))
            .layer(DefaultBodyLimit::max(64 * 1024 * 1024))
            .with_state(shared);
        // Thousands connect at the same moment.
        let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
        socket.bind("127.0.0.1:0".parse().expect("an address")).expect("a port");
        let listener = socket.listen(16_384).expect("it listens");
        let base_url = format!("http://{}/v1", listener.local_addr().expect("an address"));
        let listener = axum::serve::ListenerExt::tap_io(listener, |socket| {
            let _ = socket.set_nodelay(true);
        });
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { base_url, counts }
    }

    /// Questions that have come.
    pub(crate) fn asked(&self) -> u64 {
        self.counts.asked.load(Ordering::Relaxed)
    }

    /// Bytes of all questions.
    pub(crate) fn bytes(&self) -> u64 {
        self.counts.bytes.load(Ordering::Relaxed)
    }
}

async fn complete(State(shared): State<Arc<Shared>>, body: Bytes) -> Response {
    shared.counts.asked.fetch_add(1, Ordering::Relaxed);
    shared.counts.bytes.fetch_add(body.len() as u64, Ordering::Relaxed);
    let text = String::from_utf8_lossy(&body);
    let steps = last_number(&text).map_or(0, |number| number + 1);
    let after_tool = text.rfind("\"role\":\"tool\"") > text.rfind("\"role\":\"user\"");
    let plan = (shared.plan)(Question { steps, after_tool });
    drop(text);
    drop(body);
    if let Some(mut held) = plan.held {
        // An end of the sender ends the run as well.
        let _ = held.wait_for(|free| *free).await;
    }
    if let Some(gate) = plan.gate {
        gate.pass().await;
    }
    if plan.thinks > Duration::ZERO {
        tokio::time::sleep(plan.thinks).await;
    }
    let (finish, message) = if plan.done {
        ("stop", json!({"role": "assistant", "content": "done"}))
    } else {
        let arguments = json!({"n": steps, "text": "a".repeat(200)}).to_string();
        let call = json!({"id": format!("c{steps}"), "type": "function",
            "function": {"name": "echo", "arguments": arguments}});
        ("tool_calls", json!({"role": "assistant", "content": null, "tool_calls": [call]}))
    };
    let answer = json!({"choices": [{"index": 0, "finish_reason": finish, "message": message}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20}});
    ([("content-type", "application/json")], answer.to_string()).into_response()
}

/// The number of the newest call that a question shows.
fn last_number(text: &str) -> Option<usize> {
    let (_, rest) = text.rsplit_once(r#"\"n\":"#)?;
    let digits = rest.trim_start().split(|letter: char| !letter.is_ascii_digit()).next()?;
    digits.parse().ok()
}
