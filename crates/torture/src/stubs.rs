//! The outside world: a model that answers by what it is shown, so that a question asked again gets the same answer, and
//! HTTP tools that take a moment and keep a journal. What is not here: clients that run calls (`callers`).

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::dice::dice;
use crate::journal::{Asked, Journal, TOOLS};

/// The longest that the model thinks, in milliseconds.
const THINKS_MS: u64 = 250;
/// The longest that a tool works, in milliseconds.
const WORKS_MS: u64 = 700;

/// Stub endpoints of one run.
#[derive(Debug)]
pub struct Stubs {
    seed: u64,
    /// What the tools were asked.
    pub journal: Journal,
}

/// The prompt of a run of a session; the model reads it back.
#[must_use]
pub fn words(session: u64, kind: &str, run: u64) -> String {
    format!("torture {session} {kind} {run}")
}

impl Stubs {
    /// Starts the endpoints; their address.
    pub async fn start(seed: u64) -> (Arc<Self>, String, JoinHandle<()>) {
        let stubs = Arc::new(Self { seed, journal: Journal::default() });
        let router = Router::new()
            .route("/v1/chat/completions", post(complete))
            .route("/tools/{name}", post(work))
            .with_state(Arc::clone(&stubs));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let task = tokio::spawn(async move {
            let _ = axum::serve(listener, router).await;
        });
        (stubs, url, task)
    }

    /// How long a tool works on an attempt.
    #[must_use]
    pub fn works(&self, call: &str, attempt: u64) -> Duration {
        Duration::from_millis(dice(self.seed, &format!("{call}/{attempt}")).u64(..WORKS_MS))
    }
}

/// An HTTP tool: notes first, works then.
async fn work(State(stubs): State<Arc<Stubs>>, Path(name): Path<String>, headers: HeaderMap, body: Bytes) -> Response {
    let Some(tool) = TOOLS.iter().find(|tool| tool.name == name) else { return StatusCode::NOT_FOUND.into_response() };
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let asked = Asked {
        call: text("toolgate-call-id"),
        attempt: text("toolgate-attempt").parse().unwrap_or_default(),
        fence: text("toolgate-fence").parse().unwrap_or_default(),
        tool: name,
        args: String::from_utf8_lossy(&body).into_owned(),
        receipt: 0,
    };
    let works = stubs.works(&asked.call, asked.attempt);
    let receipt = stubs.journal.note(tool.class, asked);
    tokio::time::sleep(works).await;
    Json(json!({ "receipt": receipt })).into_response()
}

/// The model: the words of the last user say which run it is, the answers after them which step.
async fn complete(State(stubs): State<Arc<Stubs>>, Json(request): Json<Value>) -> Response {
    let messages = request.get("messages").and_then(Value::as_array).cloned().unwrap_or_default();
    let role = |message: &Value, role: &str| message.get("role").and_then(Value::as_str) == Some(role);
    let told = |message: &Value| -> Option<(u64, String, u64)> {
        let words = message.get("content")?.as_str().filter(|_| role(message, "user"))?;
        let mut words = words.strip_prefix("torture ")?.split(' ');
        let (session, kind, run) = (words.next()?.parse().ok()?, words.next()?.to_owned(), words.next()?.parse().ok()?);
        Some((session, kind, run))
    };
    let Some((place, (session, kind, run))) =
        messages.iter().enumerate().rev().find_map(|(place, message)| Some((place, told(message)?)))
    else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let step =
        messages.iter().skip(place).filter(|message| message.get("tool_calls").is_some_and(Value::is_array)).count();
    let steps = dice(stubs.seed, &format!("{session}/{run}")).usize(1..4);
    let mut drawn = dice(stubs.seed, &format!("{session}/{run}/{step}"));
    tokio::time::sleep(Duration::from_millis(drawn.u64(..THINKS_MS))).await;
    let (message, reason) = if step < steps {
        let tools: Vec<&str> =
            TOOLS.iter().filter(|tool| !tool.at_client || kind == "client").map(|tool| tool.name).collect();
        let call = |n: u64| {
            let tool = drawn.choice(&tools).copied().unwrap_or("look");
            let args = json!({"session": session, "n": run * 1_000 + step as u64 * 10 + n}).to_string();
            json!({"id": format!("c{run}-{step}-{n}"), "type": "function", "function": {"name": tool, "arguments": args}})
        };
        let calls: Vec<Value> = (0..1 + u64::from(step % 2 == 0)).map(call).collect();
        (json!({"role": "assistant", "content": null, "tool_calls": calls}), "tool_calls")
    } else {
        (json!({"role": "assistant", "content": format!("run {run} is done")}), "stop")
    };
    let choice = json!({"index": 0, "finish_reason": reason, "message": message});
    Json(json!({"choices": [choice], "usage": {"prompt_tokens": 20, "completion_tokens": 5}})).into_response()
}

/// The bundle of a run: its tools and three profiles, two of them for sessions without a client.
#[must_use]
pub fn bundle(stubs: &str) -> Value {
    let tool = |tool: &crate::journal::Tool| {
        let mut made = json!({"description": "Works.", "class": tool.class.word(), "timeout_ms": 20_000,
            "venue": if tool.at_client { "client" } else { "server" }, "requires_approval": tool.approved,
            "parameters": {"properties": {"session": {"type": "integer"}, "n": {"type": "integer"}}, "required": ["session", "n"]}});
        if !tool.at_client
            && let Some(made) = made.as_object_mut()
        {
            made.insert("executor".to_owned(), json!({"http": {"url": format!("{stubs}/tools/{}", tool.name)}}));
        }
        (tool.name.to_owned(), made)
    };
    let names = |at_client: bool| -> Vec<&str> {
        TOOLS.iter().filter(|tool| at_client || !tool.at_client).map(|tool| tool.name).collect()
    };
    json!({
        "version": 1,
        "models": {"m": {"provider": "openai", "base_url": format!("{stubs}/v1"), "model": "stub", "retries": 0,
            "timeout_ms": 20_000, "max_output_tokens": 1_000}},
        "default_model": "m",
        "default_harness": {"max_steps": 30, "max_tool_calls": 60, "deadline_ms": 900_000, "max_model_calls": 200,
            "max_parallel_calls": 2},
        "tools": TOOLS.iter().map(tool).collect::<serde_json::Map<_, _>>(),
        "profiles": {
            "server": {"tools": names(false), "on_indeterminate": "feedback"},
            "strict": {"tools": names(false), "on_indeterminate": "end"},
            "client": {"tools": names(true), "on_indeterminate": "feedback"},
        }
    })
}
