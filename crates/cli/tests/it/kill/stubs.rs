//! The outside world of a cell: a model that answers by what it is shown, so that a question asked again gets the same
//! answer, and the tool's own journal, kept by the server's HTTP tool and by the client's handler alike.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use axum::routing::post;
use axum::{Json, Router};
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use tokio::sync::watch;
use toolgate_client::{Answer, Call, CallFailure};

use super::cell::{Cell, Plan};
use super::outside::{Event, Outside};

/// One time that the tool was asked for a call.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) call: String,
    pub(super) attempt: u64,
    pub(super) fence: u64,
    pub(super) key: String,
    pub(super) args: String,
    /// Asked before the crash was over.
    pub(super) before: bool,
    /// Whether it did what it was asked for, by itself or by remembering that it has.
    pub(super) done: bool,
}

/// What the outside has seen and does.
pub(super) struct World {
    cell: Cell,
    plan: Plan,
    asked: Mutex<Vec<Asked>>,
    /// Effects by call: what an `idempotent` tool does twice under one key, it has done once.
    effects: Mutex<BTreeMap<String, u64>>,
    model_asked: Mutex<Vec<(u64, usize)>>,
    /// Who sees the stream.
    pub(super) outside: OnceLock<Outside>,
    /// False until the process has aborted.
    crashed: watch::Sender<bool>,
}

impl World {
    pub(super) fn new(cell: Cell, plan: Plan) -> Arc<Self> {
        let crashed = watch::Sender::new(false);
        Arc::new(Self {
            cell,
            plan,
            asked: Mutex::default(),
            effects: Mutex::default(),
            model_asked: Mutex::default(),
            outside: OnceLock::new(),
            crashed,
        })
    }

    /// Starts the endpoints; their address.
    pub(super) async fn serve(self: &Arc<Self>) -> String {
        let router = Router::new()
            .route("/v1/chat/completions", post(complete))
            .route("/work", post(work))
            .with_state(Arc::clone(self));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        url
    }

    /// The process is gone: what was held may go on.
    pub(super) fn crashed(&self) {
        self.crashed.send_replace(true);
    }

    pub(super) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    pub(super) fn effects(&self, call: &str) -> u64 {
        self.effects.lock().unwrap().get(call).copied().unwrap_or(0)
    }

    pub(super) fn all_effects(&self) -> BTreeMap<String, u64> {
        self.effects.lock().unwrap().clone()
    }

    /// Every question to the model: run and step, from 1 and 0.
    pub(super) fn model_asked(&self) -> Vec<(u64, usize)> {
        self.model_asked.lock().unwrap().clone()
    }

    /// Notes that the tool was asked; its place, and whether this is the time at which the cell crashes.
    fn note(&self, asked: Asked) -> (usize, bool) {
        let mut all = self.asked.lock().unwrap();
        all.push(asked);
        let now = all.len() as u64 == self.plan.hit;
        (all.len() - 1, now && !*self.crashed.borrow())
    }

    /// The effect itself.
    fn act(&self, place: usize) {
        let mut all = self.asked.lock().unwrap();
        let asked = &mut all[place];
        let mut effects = self.effects.lock().unwrap();
        let done = effects.entry(asked.call.clone()).or_insert(0);
        if self.cell.class != "idempotent" || *done == 0 {
            *done += 1;
        }
        asked.done = true;
    }

    async fn until_crashed(&self) {
        let mut crashed = self.crashed.subscribe();
        crashed.wait_for(|crashed| *crashed).await.unwrap();
    }

    /// The server has heard that the call has begun, so that the next one is the next to say so.
    async fn until_acknowledged(&self, call: &str) {
        let acknowledged = |event: &Event| event.value["type"] == "call_acknowledged" && event.value["call_id"] == call;
        let outside = self.outside.get().unwrap();
        tokio::select! {
            seen = outside.changed(|seen| seen.values().any(acknowledged)) => drop(seen),
            () = self.until_crashed() => {}
        }
    }

    /// The first call is held until the crash, so that the next is allowed and has to wait.
    fn holds_first(&self, place: usize) -> bool {
        self.plan.approval && place == 0
    }

    /// What the client does with a call.
    pub(super) async fn at_client(self: Arc<Self>, call: Call) -> Result<Answer, CallFailure> {
        let offer = &call.offer;
        let (place, now) = self.note(Asked {
            call: offer.call_id.clone(),
            attempt: offer.attempt.into(),
            fence: offer.fence,
            key: offer.call_id.clone(),
            args: offer.args.get().to_owned(),
            before: !*self.crashed.borrow(),
            done: false,
        });
        if now && self.cell.point == "K7" || self.holds_first(place) {
            self.until_crashed().await;
        } else if self.cell.point == "K7" {
            self.until_acknowledged(&offer.call_id).await;
        }
        self.act(place);
        if now && self.cell.point == "K8" {
            call.progress("done");
            self.until_crashed().await;
        }
        Ok(Answer::Json(json!({"worked": offer.call_id})))
    }
}

/// The HTTP tool.
async fn work(State(world): State<Arc<World>>, headers: HeaderMap, body: Bytes) -> Response {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let (place, now) = world.note(Asked {
        call: text("toolgate-call-id"),
        attempt: text("toolgate-attempt").parse().unwrap(),
        fence: text("toolgate-fence").parse().unwrap(),
        key: text("idempotency-key"),
        args: String::from_utf8(body.to_vec()).unwrap(),
        before: !*world.crashed.borrow(),
        done: false,
    });
    let held = now && matches!(world.cell.point, "K7" | "K8");
    if held && world.cell.point == "K7" {
        return never_ending();
    }
    if world.holds_first(place) {
        world.until_crashed().await;
    }
    world.act(place);
    if held { never_ending() } else { Response::new(Body::from(r#"{"worked":true}"#)) }
}

/// The head of an answer whose end never comes.
fn never_ending() -> Response {
    let begin = stream::iter([Ok::<_, std::convert::Infallible>(Bytes::from_static(b"{"))]);
    Response::new(Body::from_stream(begin.chain(stream::pending())))
}

/// The model: the words of the last user say which run it is, the answers after them which step.
async fn complete(State(world): State<Arc<World>>, Json(request): Json<Value>) -> Json<Value> {
    let messages = request["messages"].as_array().unwrap();
    let run_of = |message: &Value| -> Option<u64> {
        let words = message["content"].as_str().filter(|_| message["role"] == "user")?;
        words.strip_prefix("run ")?.trim().parse().ok()
    };
    let place = messages.iter().rposition(|message| run_of(message).is_some()).unwrap();
    let run = run_of(&messages[place]).unwrap();
    let step = messages[place..].iter().filter(|message| message["tool_calls"].is_array()).count();
    world.model_asked.lock().unwrap().push((run, step));
    let Plan { steps, calls, first, .. } = world.plan;
    let (steps, calls) = if run == 1 { (steps, calls) } else { (1, 1) };
    let message = if (step as u64) < steps {
        let call = |n: u64| {
            let args = json!({"n": first + run * 100 + step as u64 * 10 + n}).to_string();
            json!({"id": format!("c{run}-{step}-{n}"), "type": "function", "function": {"name": "work", "arguments": args}})
        };
        // Odd seeds propose them the other way round.
        let mut all: Vec<Value> = (0..calls).map(call).collect();
        if first % 2 == 1 {
            all.reverse();
        }
        json!({"role": "assistant", "content": null, "tool_calls": all})
    } else {
        json!({"role": "assistant", "content": format!("run {run} is done")})
    };
    let reason = if message["tool_calls"].is_array() { "tool_calls" } else { "stop" };
    Json(json!({"choices": [{"index": 0, "finish_reason": reason, "message": message}],
        "usage": {"prompt_tokens": 20, "completion_tokens": 5}}))
}
