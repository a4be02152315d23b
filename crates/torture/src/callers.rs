//! Callers: each plays one session after the other, from its start over several runs to its end, with a human who approves
//! and, for sessions with client tools, a client on the channel that may die and be replaced. What is not here: requests and
//! what is kept of their answers (`outside`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};
use toolgate_client::{Answer as Output, Call, CallFailure, Client, Executor, ExecutorOptions, Notice, handler};

use crate::dice::dice;
use crate::evidence::Fact;
use crate::journal::{Asked, TOOLS, lock};
use crate::outside::Outside;
use crate::stubs::{Stubs, words};

/// Seconds that a page of events is waited for.
const WAIT_S: u64 = 5;
/// Time before a place at a session is asked for again, or a page whose session nobody could show.
const AGAIN: Duration = Duration::from_millis(300);
/// Notices on their way from a client.
const NOTICES: usize = 256;

type Events = BTreeMap<u64, Value>;

/// What callers share.
#[derive(Debug)]
pub struct Callers {
    /// Who starts and continues sessions, and holds the channel.
    pub outside: Outside,
    /// Who decides approvals.
    pub approver: Outside,
    /// Where the channel is reached.
    pub front: String,
    /// The outside world.
    pub stubs: Arc<Stubs>,
    /// The seed of the run.
    pub seed: u64,
    next: AtomicU64,
    ended: AtomicU64,
    stop: watch::Sender<bool>,
    doing: Mutex<BTreeMap<usize, String>>,
    complaints: Mutex<Vec<String>>,
}

/// Ends a task with whoever started it.
struct Bound(AbortHandle);

impl Drop for Bound {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn bound(task: impl Future<Output = ()> + Send + 'static) -> Bound {
    Bound(tokio::spawn(task).abort_handle())
}

impl Callers {
    /// Callers that have not begun.
    #[must_use]
    pub fn new(outside: Outside, approver: Outside, front: String, stubs: Arc<Stubs>, seed: u64) -> Arc<Self> {
        Arc::new(Self {
            outside,
            approver,
            front,
            stubs,
            seed,
            next: AtomicU64::new(1),
            ended: AtomicU64::new(0),
            stop: watch::Sender::new(false),
            doing: Mutex::default(),
            complaints: Mutex::default(),
        })
    }

    /// Sessions that were played to their end.
    #[must_use]
    pub fn ended(&self) -> u64 {
        self.ended.load(Ordering::Relaxed)
    }

    /// So many callers begin.
    #[must_use]
    pub fn start(self: &Arc<Self>, callers: usize) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        for place in 0..callers {
            let all = Arc::clone(self);
            tasks.spawn(async move {
                while !*all.stop.borrow() {
                    let no = all.next.fetch_add(1, Ordering::Relaxed);
                    Play::new(&all, place, no).run().await;
                    lock(&all.doing).remove(&place);
                    all.ended.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        tasks
    }

    /// No further sessions; those at work are played to their end, or complained about.
    pub async fn finish(&self, mut tasks: JoinSet<()>, within: Duration) -> Vec<String> {
        self.stop.send_replace(true);
        let mut panicked = Vec::new();
        let ending = async {
            while let Some(ended) = tasks.join_next().await {
                if let Err(error) = ended {
                    panicked.push(format!("a caller: {error}"));
                }
            }
        };
        let late = timeout(within, ending).await.is_err();
        let mut complaints = std::mem::take(&mut *lock(&self.complaints));
        complaints.extend(panicked);
        if late {
            let doing = lock(&self.doing);
            complaints.extend(doing.values().map(|what| format!("not over {within:?} after the last fault: {what}")));
        }
        complaints
    }

    fn complain(&self, what: String) {
        lock(&self.complaints).push(what);
    }
}

/// One session.
struct Play<'a> {
    all: &'a Arc<Callers>,
    place: usize,
    no: u64,
    kind: &'static str,
    dice: Rng,
    session: String,
    events: Arc<watch::Sender<Events>>,
}

impl<'a> Play<'a> {
    fn new(all: &'a Arc<Callers>, place: usize, no: u64) -> Self {
        let mut dice = dice(all.seed, &format!("caller/{no}"));
        let kind = dice.choice(["server", "server", "strict", "client", "client"]).unwrap_or("server");
        Self { all, place, no, kind, dice, session: String::new(), events: Arc::new(watch::Sender::default()) }
    }

    fn at(&self, what: &str) {
        let last = self.events.borrow().last_key_value().map(|(_, event)| event.to_string()).unwrap_or_default();
        let what = format!("{} ({}, {}): {what}; last shown: {last}", self.session, self.no, self.kind);
        lock(&self.all.doing).insert(self.place, what);
    }

    async fn run(mut self) {
        self.at("its start");
        let prompt = words(self.no, self.kind, 1);
        let body = json!({"profile": self.kind, "prompt": prompt});
        let answer = self.all.outside.post("/v1/sessions", body, &format!("start-{}", self.no)).await;
        let Some(session) = answer.json().get("id").and_then(Value::as_str).map(str::to_owned) else {
            return self.all.complain(format!("a session was refused: {} {}", answer.status, answer.body));
        };
        self.session = session;
        self.all.outside.acknowledged(&self.session, Fact::Started(prompt));
        let _following = bound(follow(self.all.outside.clone(), self.session.clone(), Arc::clone(&self.events)));
        let _approving = bound(approve(Arc::clone(self.all), self.dice.fork(), Arc::clone(&self.events)));
        let _client = (self.kind == "client").then(|| self.client());
        let runs = self.dice.u64(1..4);
        let cancelled = (self.dice.u8(..100) < 15).then(|| self.dice.u64(1..=runs));
        for run in 1..=runs {
            if run > 1 && !self.say(run).await {
                return;
            }
            if cancelled == Some(run) {
                self.cancel(run).await;
            }
            self.at(&format!("the end of run {run}"));
            self.until(|events| events.values().any(|event| ended(event, run))).await;
        }
        if self.dice.u8(..100) < 60 {
            self.close().await;
        }
    }

    async fn until(&self, holds: impl Fn(&Events) -> bool) {
        // The sender lives here, so that this ends only when it holds; whoever waits for the callers has a bound.
        let _ = self.events.subscribe().wait_for(|events| holds(events)).await;
    }

    async fn say(&self, run: u64) -> bool {
        self.at(&format!("the answer to message {run}"));
        let text = words(self.no, self.kind, run);
        let path = format!("/v1/sessions/{}/messages", self.session);
        let answer = self.all.outside.post(&path, json!({"text": text}), &format!("say-{}-{run}", self.no)).await;
        if !answer.status.is_success() {
            self.all.complain(format!("{}: message {run}: {} {}", self.session, answer.status, answer.body));
            return false;
        }
        self.all.outside.acknowledged(&self.session, Fact::Said(text));
        true
    }

    /// Cancels a run after some of its events.
    async fn cancel(&mut self, run: u64) {
        self.at(&format!("the cancelling of run {run}"));
        let after = self.dice.usize(1..8);
        let of = |event: &&Value| event.get("run").and_then(Value::as_u64) == Some(run);
        self.until(|events| {
            events.values().filter(of).count() > after || events.values().any(|event| ended(event, run))
        })
        .await;
        let path = format!("/v1/sessions/{}/cancel", self.session);
        let answer = self.all.outside.post(&path, json!({"reason": "torture"}), &format!("cancel-{}", self.no)).await;
        match answer.status {
            status if status.is_success() => self.all.outside.acknowledged(&self.session, Fact::Cancelled),
            StatusCode::CONFLICT if answer.body.contains("no_active_run") => {}
            status => self.all.complain(format!("{}: cancel: {status} {}", self.session, answer.body)),
        }
    }

    async fn close(&self) {
        self.at("its close");
        let path = format!("/v1/sessions/{}/close", self.session);
        let answer = self.all.outside.post(&path, json!({"reason": "over"}), &format!("close-{}", self.no)).await;
        if !answer.status.is_success() {
            return self.all.complain(format!("{}: close: {} {}", self.session, answer.status, answer.body));
        }
        self.all.outside.acknowledged(&self.session, Fact::Closed);
        self.until(|events| events.values().any(|event| kind(event) == "session_closed")).await;
    }

    /// A client for the session, which dies once in some sessions and is replaced by another one.
    fn client(&mut self) -> Bound {
        let (all, session, events) = (Arc::clone(self.all), self.session.clone(), Arc::clone(&self.events));
        let dies = (self.dice.u8(..100) < 30).then(|| self.dice.u64(..800));
        let no = self.no;
        bound(async move {
            if let Some(moment) = dies {
                let instance = format!("ide-{no}-1");
                let first = attend(&all, &session, &instance);
                let called = async {
                    let mut events = events.subscribe();
                    let sent = |event: &Value| event.get("venue").and_then(Value::as_str) == Some("client");
                    let _ = events.wait_for(|events| events.values().any(sent)).await;
                    sleep(Duration::from_millis(moment)).await;
                };
                tokio::select! {
                    () = first => {}
                    () = called => {}
                }
            }
            attend(&all, &session, &format!("ide-{no}-2")).await;
        })
    }
}

fn kind(event: &Value) -> &str {
    event.get("type").and_then(Value::as_str).unwrap_or_default()
}

fn ended(event: &Value, run: u64) -> bool {
    kind(event) == "run_ended" && event.get("run").and_then(Value::as_u64) == Some(run)
}

/// Follows a session over REST, at whichever node answers.
async fn follow(outside: Outside, session: String, events: Arc<watch::Sender<Events>>) {
    loop {
        let after = events.borrow().last_key_value().map_or(0, |(seq, _)| *seq);
        let page = outside.page(&session, after, WAIT_S).await;
        if page.is_empty() {
            // Also a closed session, which answers at once; its caller ends this.
            sleep(AGAIN).await;
            continue;
        }
        for event in &page {
            outside.shown(&session, event);
        }
        let seq = |event: &Value| event.get("seq").and_then(Value::as_u64);
        events.send_modify(|events| events.extend(page.into_iter().filter_map(|event| Some((seq(&event)?, event)))));
    }
}

/// A human who answers whatever is asked, mostly with yes.
async fn approve(all: Arc<Callers>, mut dice: Rng, events: Arc<watch::Sender<Events>>) {
    let mut answered: BTreeSet<String> = BTreeSet::new();
    let asked = |event: &Value| {
        let text = |name: &str| Some(event.get("approval")?.get(name)?.as_str()?.to_owned());
        let session = event.get("session_id")?.as_str()?.to_owned();
        Some((session, text("id")?, text("digest")?))
    };
    let mut watching = events.subscribe();
    loop {
        let open = |events: &Events, answered: &BTreeSet<String>| {
            events.values().filter_map(asked).find(|(_, approval, _)| !answered.contains(approval))
        };
        let found = match watching.wait_for(|events| open(events, &answered).is_some()).await {
            Ok(events) => open(&events, &answered),
            Err(_) => return,
        };
        let Some((session, approval, digest)) = found else { return };
        let decision = if dice.u8(..100) < 80 { "approve" } else { "deny" };
        let path = format!("/v1/approvals/{approval}/decision");
        let body = json!({"decision": decision, "digest": digest});
        let answer = if dice.bool() {
            let request = crate::outside::Request { path, body, key: format!("decide-{approval}") };
            all.approver.send(&request).await
        } else {
            all.approver.make(&path, &body).await
        };
        if answer.status.is_success() {
            let decision = decision.to_owned();
            all.approver.acknowledged(&session, Fact::Decided { approval: approval.clone(), decision });
        } else if !["approval_closed", "approval_expired"].iter().any(|code| answer.body.contains(code)) {
            all.complain(format!("{session}: approval {approval}: {} {}", answer.status, answer.body));
        }
        answered.insert(approval);
    }
}

/// Runs the session's client calls as one instance, until it is dropped.
async fn attend(all: &Arc<Callers>, session: &str, instance: &str) {
    let (notices, mut told) = mpsc::channel(NOTICES);
    let Ok(client) = Client::new(&format!("http://{}", all.front), all.outside.key()) else { return };
    let mut options = ExecutorOptions::new(client).client_id(instance).session(session, 0).notices(notices);
    for tool in TOOLS.iter().filter(|tool| tool.at_client) {
        let all = Arc::clone(all);
        options = options.tool(tool.name, handler(move |call| run(Arc::clone(&all), call)));
    }
    let executor = match Executor::start(options) {
        Ok(executor) => executor,
        Err(error) => return all.complain(format!("{session}: the client cannot start: {error}")),
    };
    let mut last = 0;
    while let Some(notice) = told.recv().await {
        match notice {
            Notice::Event(event) => {
                last = event.seq;
                all.outside.shown(session, &shown(&event.event));
            }
            Notice::Refused(refused) if refused.code == "executor_taken" => {
                sleep(AGAIN).await;
                let _ = executor.follow(session, last).await;
            }
            Notice::Connected { .. } | Notice::Disconnected | Notice::Final(_) | Notice::Refused(_) => {}
        }
    }
}

/// The event of a notice as the API shows it.
fn shown(event: &toolgate_client::Event) -> Value {
    let mut members = event.fields.clone();
    members.insert("seq".to_owned(), event.seq.into());
    members.insert("session_id".to_owned(), event.session_id.clone().into());
    members.insert("at".to_owned(), event.at.clone().into());
    members.insert("type".to_owned(), event.kind.clone().into());
    members.insert("run".to_owned(), event.run.into());
    members.insert("step".to_owned(), event.step.into());
    members.insert("call_id".to_owned(), event.call_id.clone().into());
    Value::Object(members)
}

async fn run(all: Arc<Callers>, call: Call) -> Result<Output, CallFailure> {
    let offer = &call.offer;
    let Some(tool) = TOOLS.iter().find(|tool| tool.name == offer.tool) else {
        return Err(CallFailure::Denied("no such tool".to_owned()));
    };
    let asked = Asked {
        call: offer.call_id.clone(),
        attempt: offer.attempt.into(),
        fence: offer.fence,
        tool: offer.tool.clone(),
        args: offer.args.get().to_owned(),
        receipt: 0,
    };
    let receipt = all.stubs.journal.note(tool.class, asked);
    sleep(all.stubs.works(&offer.call_id, offer.attempt.into())).await;
    Ok(Output::Json(json!({ "receipt": receipt })))
}
