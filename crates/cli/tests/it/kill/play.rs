//! Plays one cell: starts the program with the point armed, drives a session of two runs over the public interfaces until
//! the process aborts, starts it again, drives to the end. What is not here: what must hold then (`check`).

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use toolgate_client::{Client, Executor, ExecutorOptions, Notice, handler};
use toolgate_tests::Backend;

use super::cell::{Cell, Plan, backend_name};
use super::check;
use super::database::{Cluster, migrations};
use super::outside::Outside;
use super::process::{Served, Started};
use super::stubs::World;
use crate::program::verify;

/// The instance that executes first, and the one that comes when the first has died with the server.
pub(super) const FIRST: &str = "ide-1";
pub(super) const SECOND: &str = "ide-2";

/// Time that a process whose point is reached needs to be gone.
const MOMENT: Duration = Duration::from_secs(10);

/// What is there at the end, for the checks.
pub(super) struct Played {
    pub(super) cell: Cell,
    pub(super) plan: Plan,
    pub(super) world: Arc<World>,
    pub(super) outside: Outside,
    pub(super) session: String,
    /// Sequence number and kind of what the client was told.
    pub(super) told: Vec<(u64, String)>,
    /// What the program logged over its lives.
    pub(super) log: String,
}

/// The client's end of a cell.
struct Hands {
    url: String,
    world: Arc<World>,
    executor: Mutex<Option<Executor>>,
    told: Arc<Mutex<Vec<(u64, String)>>>,
}

impl Hands {
    /// A client instance takes the executor's place, and the one before is gone with what it ran.
    fn attach(&self, key: &str, instance: &str, session: &str) {
        let world = Arc::clone(&self.world);
        let work = handler(move |call| Arc::clone(&world).at_client(call));
        let (sender, mut notices) = tokio::sync::mpsc::channel(64);
        let told = Arc::clone(&self.told);
        tokio::spawn(async move {
            while let Some(notice) = notices.recv().await {
                if let Notice::Event(event) = notice {
                    told.lock().unwrap().push((event.seq, event.event.kind));
                }
            }
        });
        let options = ExecutorOptions::new(Client::new(&self.url, key).unwrap());
        let options = options.client_id(instance).session(session, 0).tool("work", work).notices(sender);
        *self.executor.lock().unwrap() = Some(Executor::start(options).unwrap());
    }

    /// The instance is gone with everything that it ran; whether there was one.
    async fn die(&self) -> bool {
        let executor = self.executor.lock().unwrap().take();
        match executor {
            Some(executor) => {
                executor.stop().await;
                true
            }
            None => false,
        }
    }
}

/// Plays a cell and checks it; panics where something does not hold.
pub(super) async fn play(cell: Cell, cluster: &Cluster, database: &str) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let plan = Plan::of(&cell, migrations(backend_name(cell.backend)));
    let database_url = match cell.backend {
        Backend::Sqlite => String::new(),
        Backend::Postgres => cluster.database(database, cell.point != "K16").await,
    };
    let world = World::new(cell, plan.clone());
    let stubs = world.serve().await;
    let mut served = Served::new(database_url);
    let started = served.launch(Some(&failpoints(&cell, &plan))).await;
    if cell.point == "K16" {
        assert_eq!(started, Started::Aborted, "not ready before its schema is");
        assert_eq!(served.launch(None).await, Started::Listening);
    } else {
        assert_eq!(started, Started::Listening);
    }
    let key = served.key.clone().unwrap();
    let outside = Outside::new(served.url(), key.clone(), served.lives());
    let _ = world.outside.set(outside.clone());
    let approver = prepare(&outside, &bundle(&cell, &plan, &stubs), &plan).await;
    let hands = Arc::new(Hands {
        url: served.url(),
        world: Arc::clone(&world),
        executor: Mutex::new(None),
        told: Arc::default(),
    });
    let mut drive = tokio::spawn(drive(cell, outside.clone(), approver, Arc::clone(&hands)));
    let session = if cell.point == "K16" {
        world.crashed();
        drive.await.unwrap()
    } else {
        let early = tokio::select! {
            biased;
            () = served.until_aborted() => None,
            done = &mut drive => Some(done),
        };
        if early.is_some() {
            // The stream may show the last event in the moment before the process is gone.
            let aborted = tokio::time::timeout(MOMENT, served.until_aborted()).await;
            aborted.expect("the point was never reached");
        }
        crashed(&cell, &plan, &hands, &outside, &world).await;
        if cell.point == "K13" && served.launch(Some("K13=return")).await == Started::Listening {
            served.until_aborted().await;
        }
        assert_eq!(served.launch(None).await, Started::Listening);
        match early {
            Some(done) => done.unwrap(),
            None => drive.await.unwrap(),
        }
    };
    let played =
        Played { cell, plan, world, outside, session, told: hands.told.lock().unwrap().clone(), log: served.log() };
    check::all(&played).await;
    let (good, text) = verify(&served.data_dir(), served.database_url(), &played.session);
    assert!(good, "{text}");
    hands.die().await;
    served.kill().await;
    if cell.backend == Backend::Postgres {
        cluster.drop_database(database).await;
    }
}

/// What the environment of the first life says.
fn failpoints(cell: &Cell, plan: &Plan) -> String {
    let at = |point: &str, hit: u64, then: &str| match hit {
        0 | 1 => format!("{point}={then}"),
        _ => format!("{point}={}*off->{then}", hit - 1),
    };
    match cell.point {
        // The reply of one append is lost, and the process dies when the same bytes, sent again, are known already.
        "K10" => format!("{};{}", at("K10-lost", plan.hit, "1*return->off"), at("K10", plan.hit + 1, "return")),
        // A take-over needs something to take over: the first life dies with a call under way.
        "K13" => at("K6", plan.hit, "return"),
        // Only the call that is to be lost says how far it is.
        "K8" if cell.at_client() => at("K8", 1, "return"),
        point => at(point, plan.hit, "return"),
    }
}

/// The process is gone, and perhaps the client with it.
async fn crashed(cell: &Cell, plan: &Plan, hands: &Hands, outside: &Outside, world: &World) {
    let dies = cell.at_client() && plan.client_dies;
    let session = outside.seen().values().next().map(|event| event.value["session_id"].as_str().unwrap().to_owned());
    let died = dies && hands.die().await;
    world.crashed();
    if let (true, Some(session)) = (died, session) {
        hands.attach(outside.key(), SECOND, &session);
    }
}

/// Puts the bundle, and makes a key for a human where one is asked.
async fn prepare(outside: &Outside, bundle: &Value, plan: &Plan) -> Option<Outside> {
    let ack = outside.put("/v1/bundle", bundle).await;
    assert!(ack.status.is_success(), "{}", ack.body);
    if !plan.approval {
        return None;
    }
    let ack = outside.make("/v1/api-keys", &json!({"actor": "grace", "scopes": ["approvals:write"]})).await;
    let made: Value = serde_json::from_str(&ack.body).unwrap();
    Some(outside.with_key(made["key"].as_str().unwrap_or_else(|| panic!("{made}"))))
}

fn bundle(cell: &Cell, plan: &Plan, stubs: &str) -> Value {
    let mut tool = json!({"description": "Works.", "venue": cell.venue, "class": cell.class, "timeout_ms": 120_000,
        "requires_approval": plan.approval,
        "parameters": {"properties": {"n": {"type": "integer"}}, "required": ["n"]}});
    if !cell.at_client() {
        tool["executor"] = json!({"http": {"url": format!("{stubs}/work")}});
    }
    let mut profile = json!({"tools": ["work"], "on_indeterminate": if plan.goes_on { "feedback" } else { "end" }});
    if cell.point == "K4" {
        // A vote of two: between the first and the second there is a proposal and no decision.
        profile["consensus"] = json!({"n": 2, "k": 2});
    }
    json!({
        "version": 1,
        "models": {"m": {"provider": "openai", "base_url": format!("{stubs}/v1"), "model": "fake", "retries": 0,
            "timeout_ms": 30_000, "max_output_tokens": 1_000}},
        "default_model": "m",
        "default_harness": {"max_steps": 12, "max_tool_calls": 50, "deadline_ms": 600_000, "max_model_calls": 60,
            "max_parallel_calls": plan.parallel, "max_tokens": 50_000_000},
        "tools": {"work": tool},
        "profiles": {"p": profile}
    })
}

/// The session from the outside: two runs, each to its end, over as many lives as it takes.
async fn drive(cell: Cell, outside: Outside, approver: Option<Outside>, hands: Arc<Hands>) -> String {
    let ack = outside.post("/v1/sessions", json!({"profile": "p", "prompt": "run 1"}), "first").await;
    let session: Value = serde_json::from_str(&ack.body).unwrap();
    let session = session["id"].as_str().unwrap().to_owned();
    let following = tokio::spawn(outside.clone().follow(session.clone()));
    if cell.at_client() {
        outside.until("the first events", |seen| !seen.is_empty()).await;
        hands.attach(outside.key(), FIRST, &session);
    }
    let human = approver.map(|approver| tokio::spawn(approve(approver)));
    outside.until("the end of the first run", |seen| check::ending(seen, 1).is_some()).await;
    outside.post(&format!("/v1/sessions/{session}/messages"), json!({"text": "run 2"}), "second").await;
    outside.until("the end of the second run", |seen| check::ending(seen, 2).is_some()).await;
    following.abort();
    if let Some(human) = human {
        human.abort();
    }
    session
}

/// A human who approves whatever is asked.
async fn approve(outside: Outside) {
    let mut answered = BTreeSet::new();
    loop {
        let asked = |event: &Value| {
            let approval = &event["approval"];
            Some((approval["id"].as_str()?.to_owned(), approval["digest"].clone()))
        };
        let open = |seen: &std::collections::BTreeMap<u64, super::outside::Event>, answered: &BTreeSet<String>| {
            let mut all = seen.values().filter_map(|event| asked(&event.value));
            all.find(|(id, _)| !answered.contains(id))
        };
        // Nobody may ask again; then the end of the cell ends this.
        let Some(seen) = outside.changed(|seen| open(seen, &answered).is_some()).await else { return };
        let (id, digest) = open(&seen, &answered).unwrap();
        let body = json!({"decision": "approve", "digest": digest});
        // Without a key: the decision is bound by its digest and used once, and a key would be held for a while by the
        // process that died with it.
        let ack = outside.make(&format!("/v1/approvals/{id}/decision"), &body).await;
        assert!(ack.status.is_success(), "{}", ack.body);
        answered.insert(id);
    }
}
