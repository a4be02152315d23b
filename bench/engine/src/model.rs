//! A model that answers at once over HTTP: ten calls, then the end. It notes how long the server took from one answer to
//! the next question of the same session. What is not here: who starts the sessions (`load`).

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde_json::json;

/// Tool steps of a session.
pub(crate) const STEPS: usize = 10;
/// Before the number of a session in its prompt.
pub(crate) const TAG: &str = "bench-session-";

/// The stub model.
#[derive(Debug, Clone)]
pub(crate) struct Model {
    pub(crate) base_url: String,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Debug, Default)]
struct Seen {
    /// When each session got its last answer.
    answered: HashMap<u64, Instant>,
    overheads: Vec<Duration>,
}

impl Model {
    pub(crate) async fn start() -> Self {
        let seen = Arc::<Mutex<Seen>>::default();
        let router = Router::new().route("/v1/chat/completions", post(complete)).with_state(Arc::clone(&seen));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let base_url = format!("http://{}/v1", listener.local_addr().expect("an address"));
        let listener = axum::serve::ListenerExt::tap_io(listener, |socket| {
            let _ = socket.set_nodelay(true);
        });
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { base_url, seen }
    }

    /// The overheads noted since the last time this was asked.
    pub(crate) fn take(&self) -> Vec<Duration> {
        let mut seen = self.seen.lock().expect("nobody panics with the lock");
        seen.answered.clear();
        std::mem::take(&mut seen.overheads)
    }
}

async fn complete(State(seen): State<Arc<Mutex<Seen>>>, body: Bytes) -> Response {
    let now = Instant::now();
    let text = String::from_utf8_lossy(&body);
    let session: Option<u64> = text
        .find(TAG)
        .and_then(|at| text.get(at + TAG.len()..))
        .map(|rest| rest.chars().take_while(char::is_ascii_digit).collect::<String>())
        .and_then(|digits| digits.parse().ok());
    let step = text.matches("\"role\":\"assistant\"").count();
    let message = if step < STEPS {
        let arguments = json!({"n": step, "text": "a".repeat(200)}).to_string();
        json!({"role": "assistant", "content": null, "tool_calls": [
            {"id": format!("c{step}"), "type": "function", "function": {"name": "echo", "arguments": arguments}}]})
    } else {
        json!({"role": "assistant", "content": "done"})
    };
    let finish = if step < STEPS { "tool_calls" } else { "stop" };
    let answer = json!({"choices": [{"index": 0, "finish_reason": finish, "message": message}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20}})
    .to_string();
    if let Some(session) = session {
        let mut seen = seen.lock().expect("nobody panics with the lock");
        if let Some(last) = seen.answered.insert(session, Instant::now()) {
            seen.overheads.push(now - last);
        }
        if step >= STEPS {
            seen.answered.remove(&session);
        }
    }
    ([("content-type", "application/json")], answer).into_response()
}
