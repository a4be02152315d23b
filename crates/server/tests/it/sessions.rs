//! Sessions over the in-memory store, with a scripted model and the builtin tools.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::json;
use tokio_util::sync::CancellationToken;
use toolgate_core::event::Event;
use toolgate_core::id::{ActorId, ClientInstance, ProfileName, SessionId, Sha256Digest, TenantId};
use toolgate_core::input::{Input, Message, Narrowed, OutcomeReport, Reporter, Stop};
use toolgate_core::output::{Outcome, OutcomeStatus, Output};
use toolgate_core::reason::Ending;
use toolgate_core::session::{Phase, Session};
use toolgate_core::time::Timestamp;
use toolgate_proposers::Proposers;
use toolgate_server::caller::Caller;
use toolgate_server::clock::{Clock, SharedClock, SystemClock};
use toolgate_server::metrics::Metrics;
use toolgate_server::sessions::{
    Bundles, Deltas, Deps, Nodes, OpenRequest, Opened, SessionSettings, Sessions, Snapshot, Submission, VerifyFault,
};
use toolgate_server::tools::{AddressPolicy, HttpRunner, Tools};
use toolgate_store::{
    BundleRow, Cluster, Codec, EventLog, MasterKey, MemoryStore, NodeId, NodeStart, Registry, Snapshot as Snapshotted,
    Snapshots,
};

const WAIT: Duration = Duration::from_secs(20);
/// Steps that leave more rows than are folded without a snapshot.
const STEPS: u32 = 100;

fn bundle() -> serde_json::Value {
    json!({
        "version": 1,
        "tools": {
            "add": {"description": "Adds.", "parameters": {"properties": {"a": {"type": "number"}, "b": {"type": "number"}}, "required": ["a", "b"]},
                    "venue": "server", "class": "read", "tags": ["math"], "executor": {"builtin": "add"}},
            "terminal": {"description": "Runs.", "parameters": {"properties": {"cmd": {"type": "string"}}, "required": ["cmd"]}, "venue": "client"}
        },
        "models": {
            "server": {"provider": "scripted", "script": [
                {"calls": [{"tool": "add", "args": {"a": 1, "b": 2}}]},
                {"done": "three"},
                {"done": "again"}
            ]},
            "client": {"provider": "scripted", "script": [
                {"calls": [{"tool": "terminal", "args": {"cmd": "make"}}]},
                {"done": "built"}
            ]},
            "long": {"provider": "scripted", "script": (0..STEPS)
                .map(|step| json!({"calls": [{"tool": "add", "args": {"a": step, "b": 2}}]}))
                .chain([json!({"done": "enough"})])
                .collect::<Vec<_>>()}
        },
        "default_harness": {"max_steps": 5, "max_tool_calls": 5, "deadline_ms": 60000},
        "profiles": {
            "server": {"tools": ["add"], "model": "server", "trace_requirements": {"math": 1}},
            "client": {"tools": ["terminal"], "model": "client"},
            "long": {"tools": ["add"], "model": "long", "harness": {"max_steps": STEPS + 1, "max_tool_calls": STEPS, "deadline_ms": 600_000}}
        }
    })
}

struct World {
    sessions: Sessions,
    caller: Caller,
}

/// The bundle as the store keeps it.
fn bundle_row() -> BundleRow {
    let source = toolgate_core::bundle::Bundle::load(&bundle().to_string()).unwrap();
    BundleRow {
        digest: source.digest(),
        body: source.source().as_str().as_bytes().to_vec(),
        created_by: ActorId::new("ops").unwrap(),
        created_at: SystemClock.now(),
    }
}

async fn start(store: Arc<MemoryStore>) -> World {
    start_with(store, Arc::new(SystemClock), SessionSettings::default()).await
}

async fn start_with(store: Arc<MemoryStore>, clock: SharedClock, settings: SessionSettings) -> World {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let tenant = TenantId::new("acme").unwrap();
    let row = bundle_row();
    store.bundle_put(&tenant, &row).await.unwrap();
    store.bundle_set_current(&tenant, None, &row.digest).await.unwrap();
    let node = store
        .node_start(&NodeStart {
            node: NodeId::new("n1").unwrap(),
            ttl: std::time::Duration::from_secs(10),
            protocol: 1,
            version: String::new(),
        })
        .await
        .unwrap();
    let deps = Deps {
        lanes: toolgate_store::Lanes::start(Arc::clone(&store) as _, std::num::NonZeroUsize::MIN),
        store,
        clock,
        node,
        master: MasterKey::from_bytes([7; 32]),
        hooks: Arc::new(
            toolgate_server::hooks::HttpHooks::new(
                toolgate_server::tools::AddressPolicy::Private,
                Arc::new(toolgate_proposers::EnvSecrets),
            )
            .unwrap(),
        ),
        models: Proposers::new().unwrap(),
        deltas: Deltas::default(),
        metrics: Metrics::default(),
        tools: Arc::new(Tools::new(
            HttpRunner::new(AddressPolicy::Private, Arc::new(toolgate_proposers::EnvSecrets), Arc::new(SystemClock))
                .unwrap(),
        )),
        bundles: Bundles::default(),
        nodes: Nodes::default(),
        settings,
        stopping: CancellationToken::new(),
    };
    let sessions = Sessions::new(deps);
    sessions.start().await.unwrap();
    let caller = Caller {
        tenant,
        actor: ActorId::new("alice").unwrap(),
        credential: "k1".to_owned(),
        scopes: BTreeSet::new(),
        ceiling: None,
    };
    World { sessions, caller }
}

fn request(profile: &str) -> OpenRequest {
    OpenRequest {
        alias: None,
        profile: Some(ProfileName::new(profile).unwrap()),
        label: None,
        capabilities: BTreeSet::new(),
        limits: Narrowed::default(),
        control: None,
        dry_run: false,
        output_schema: None,
        prompt: "go".to_owned(),
        metadata: BTreeMap::new(),
        trace: None,
        fingerprint: Sha256Digest::of(b"body"),
        idempotency: None,
    }
}

async fn open(world: &World, profile: &str) -> SessionId {
    match world.sessions.open(&world.caller, request(profile)).await.unwrap() {
        Opened::Created(snapshot) | Opened::Existing(snapshot) => snapshot.state.id,
    }
}

/// Waits on the head until the run has ended.
async fn ended(world: &World, session: SessionId, run: u32) -> Snapshot {
    let wait = async {
        let mut head = world.sessions.watch(&world.caller.tenant, session).await.unwrap();
        loop {
            let snapshot = world.sessions.snapshot(&world.caller.tenant, session).await.unwrap();
            let current = snapshot.state.run.as_ref().unwrap();
            if current.no == run && matches!(current.phase, Phase::Ended(_)) {
                return snapshot;
            }
            head.changed().await.unwrap();
        }
    };
    tokio::time::timeout(WAIT, wait).await.expect("the run ends in time")
}

fn ending(snapshot: &Snapshot) -> Ending {
    match snapshot.state.run.as_ref().unwrap().phase {
        Phase::Ended(ending) => ending,
        Phase::Asking(_) | Phase::Acting(_) => panic!("the run goes on"),
    }
}

#[tokio::test]
async fn a_server_call_runs_and_a_message_starts_the_next_run() {
    let world = start(Arc::new(MemoryStore::new())).await;
    let session = open(&world, "server").await;
    let first = ended(&world, session, 1).await;
    assert_eq!(ending(&first), Ending::Done);
    assert_eq!(first.state.run.as_ref().unwrap().output.as_ref().unwrap().as_str(), "\"three\"");
    let message = Message { by: world.caller.actor.clone(), text: "more".to_owned() };
    let submission = Submission { id: None, input: Input::Message(message), idempotency: None };
    world.sessions.submit(&world.caller.tenant, session, submission).await.unwrap();
    // The second run has no evidence yet, so its `done` is refused and the script runs out.
    let second = ended(&world, session, 2).await;
    assert_eq!(ending(&second), Ending::ProviderFailed);
    let report = world.sessions.verify(&world.caller.tenant, session).await.unwrap();
    assert!(report.fault.is_none(), "{report:?}");
    assert_eq!(report.events, second.state.head);
}

#[tokio::test]
async fn a_client_call_waits_for_its_client_and_survives_a_new_server() {
    let store = Arc::new(MemoryStore::new());
    let world = start(Arc::clone(&store)).await;
    let session = open(&world, "client").await;
    let instance = ClientInstance::new("ide-1").unwrap();
    let mut attached = world.sessions.attach(&world.caller, session, instance.clone(), BTreeSet::new()).await.unwrap();
    let order = tokio::time::timeout(WAIT, attached.offers.recv()).await.unwrap().unwrap();
    assert_eq!(order.args.as_str(), r#"{"cmd":"make"}"#);
    // The server goes away with the call open; another incarnation of the node takes the session over.
    world.sessions.stop().await;
    let world = start(Arc::clone(&store)).await;
    let mut attached = world.sessions.attach(&world.caller, session, instance.clone(), BTreeSet::new()).await.unwrap();
    let again = tokio::time::timeout(WAIT, attached.offers.recv()).await.unwrap().unwrap();
    assert_eq!((&again.call, again.attempt, again.fence), (&order.call, order.attempt, order.fence));
    let report = OutcomeReport {
        call: again.call.clone(),
        attempt: again.attempt,
        reporter: Reporter::Client {
            instance,
            by: world.caller.actor.clone(),
            fence: again.fence,
            args_hash: again.args_hash,
        },
        outcome: Outcome {
            status: OutcomeStatus::Ok,
            output: Some(Output::text("text/plain", "made".to_owned())),
            detail: None,
        },
    };
    let submit = || Submission { id: None, input: Input::Outcome(report.clone()), idempotency: None };
    let taken = world.sessions.submit(&world.caller.tenant, session, submit()).await.unwrap();
    let repeated = world.sessions.submit(&world.caller.tenant, session, submit()).await.unwrap();
    assert_eq!(repeated.already, Some(taken.events[0].seq));
    assert_eq!(ending(&ended(&world, session, 1).await), Ending::Done);
    let events = world.sessions.events(&world.caller.tenant, session, 0, 100).await.unwrap();
    let outcomes = events.iter().filter(|e| matches!(e.event, Event::CallEnded(_))).count();
    assert_eq!(outcomes, 1);
    assert!(events.iter().any(|e| matches!(e.event, Event::OwnerChanged(_))));
    assert!(world.sessions.verify(&world.caller.tenant, session).await.unwrap().fault.is_none());
}

#[tokio::test]
async fn another_tenant_sees_nothing() {
    let world = start(Arc::new(MemoryStore::new())).await;
    let session = open(&world, "client").await;
    let other = TenantId::new("other").unwrap();
    assert!(world.sessions.snapshot(&other, session).await.is_err());
    assert!(world.sessions.events(&other, session, 0, 10).await.is_err());
    assert!(world.sessions.watch(&other, session).await.is_err());
    assert!(world.sessions.verify(&other, session).await.is_err());
}

#[tokio::test]
async fn a_session_without_work_leaves_memory_and_comes_back() {
    let settings = SessionSettings { idle_after: Duration::from_millis(50), ..SessionSettings::default() };
    let world = start_with(Arc::new(MemoryStore::new()), Arc::new(SystemClock), settings).await;
    let session = open(&world, "server").await;
    ended(&world, session, 1).await;
    let gone = async {
        while world.sessions.in_memory() > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(WAIT, gone).await.expect("an idle session leaves memory");
    let message = Message { by: world.caller.actor.clone(), text: "more".to_owned() };
    let submission = Submission { id: None, input: Input::Message(message), idempotency: None };
    world.sessions.submit(&world.caller.tenant, session, submission).await.unwrap();
    let snapshot = ended(&world, session, 2).await;
    let owners = snapshot.state.epoch;
    assert_eq!(owners, 1, "the same node needs no new ownership to load its own session again");
    assert!(world.sessions.verify(&world.caller.tenant, session).await.unwrap().fault.is_none());
}

/// A clock that makes whoever reads it next panic, as often as it is told to.
#[derive(Debug, Default)]
struct Trap {
    armed: AtomicU32,
}

impl Clock for Trap {
    fn now(&self) -> Timestamp {
        let trapped = self.armed.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
        assert!(!trapped, "the trap was armed");
        SystemClock.now()
    }
}

#[tokio::test]
async fn a_panic_in_one_session_hurts_no_other_and_the_session_goes_on() {
    let trap = Arc::new(Trap::default());
    let clock: SharedClock = trap.clone();
    let world = start_with(Arc::new(MemoryStore::new()), clock, SessionSettings::default()).await;
    let hurt = open(&world, "client").await;
    let other = open(&world, "client").await;
    let tenant = &world.caller.tenant;
    let cancel = || Submission {
        id: None,
        input: Input::Cancel(Stop { by: ActorId::new("alice").unwrap(), reason: None }),
        idempotency: None,
    };
    trap.armed.store(1, Ordering::SeqCst);
    // The panic meets the input itself, and its sender is told; or it meets the actor just before, and the input waits
    // in the mailbox for the actor's next life. Either way nothing is half done.
    if world.sessions.submit(tenant, hurt, cancel()).await.is_err() {
        world.sessions.submit(tenant, hurt, cancel()).await.unwrap();
    }
    assert_eq!(trap.armed.load(Ordering::SeqCst), 0, "somebody has panicked");
    assert_eq!(ending(&ended(&world, hurt, 1).await), Ending::Cancelled);
    world.sessions.submit(tenant, other, cancel()).await.unwrap();
    assert_eq!(ending(&ended(&world, other, 1).await), Ending::Cancelled);
    for session in [hurt, other] {
        assert!(world.sessions.verify(tenant, session).await.unwrap().fault.is_none());
    }
}

#[test]
fn a_verification_leaves_the_servers_threads_to_others() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build().unwrap();
    runtime.block_on(async {
        let world = start(Arc::new(MemoryStore::new())).await;
        let session = open(&world, "server").await;
        ended(&world, session, 1).await;
        // The one thread for long work is taken: what is verified all the same is verified on a thread that serves.
        let (release, held) = std::sync::mpsc::sync_channel::<()>(1);
        let occupied = tokio::task::spawn_blocking(move || held.recv());
        let mut verifying = std::pin::pin!(world.sessions.verify(&world.caller.tenant, session));
        for _ in 0..100 {
            assert!(futures_util::poll!(verifying.as_mut()).is_pending());
            tokio::task::yield_now().await;
        }
        release.send(()).unwrap();
        occupied.await.unwrap().unwrap();
        assert!(verifying.await.unwrap().fault.is_none());
    });
}

/// All who ask for a bundle that nobody has compiled yet wait for one compilation, and get the same.
#[tokio::test]
async fn a_bundle_is_compiled_once_for_all_who_ask() {
    let store = Arc::new(MemoryStore::new());
    let tenant = TenantId::new("acme").unwrap();
    let row = bundle_row();
    store.bundle_put(&tenant, &row).await.unwrap();
    let bundles = Bundles::default();
    let asked = (0..8).map(|_| bundles.get(&*store, &tenant, row.digest));
    let found: Vec<_> = futures_util::future::join_all(asked).await.into_iter().map(Result::unwrap).collect();
    assert!(found.iter().all(|one| Arc::ptr_eq(one, &found[0])));
    // What is not there is asked for anew each time, and found once it is.
    let other = TenantId::new("other").unwrap();
    assert!(bundles.get(&*store, &other, row.digest).await.is_err());
    store.bundle_put(&other, &row).await.unwrap();
    assert_eq!(bundles.get(&*store, &other, row.digest).await.unwrap().digest(), row.digest);
}

/// The session's keys and what they open.
async fn codec(store: &MemoryStore, tenant: &TenantId, session: SessionId) -> Codec {
    let keys = store.session_keys(tenant, session).await.unwrap();
    Codec::open(tenant.clone(), session, MasterKey::from_bytes([7; 32]), &keys).unwrap()
}

#[tokio::test]
async fn a_long_log_leaves_a_snapshot_that_the_next_load_begins_with() {
    let store = Arc::new(MemoryStore::new());
    let world = start(Arc::clone(&store)).await;
    let tenant = world.caller.tenant.clone();
    let session = open(&world, "long").await;
    let told = ended(&world, session, 1).await;
    assert_eq!(ending(&told), Ending::Done);
    assert_eq!(store.snapshot(&tenant, session).await.unwrap(), None, "a session that runs needs none");
    world.sessions.stop().await;
    let world = start(Arc::clone(&store)).await;
    let loaded = world.sessions.snapshot(&tenant, session).await.unwrap();
    let kept = store.snapshot(&tenant, session).await.unwrap().expect("a long log was read");
    let codec = codec(&store, &tenant, session).await;
    let state = codec.restore(&kept).expect("it can be read");
    assert_eq!(kept.seq, told.state.head);
    assert_eq!((&state.transcript, state.rounds), (&loaded.state.transcript, told.state.rounds));
    // What comes after it is folded onto it.
    let message = Message { by: world.caller.actor.clone(), text: "more".to_owned() };
    let submission = Submission { id: None, input: Input::Message(message), idempotency: None };
    world.sessions.submit(&tenant, session, submission).await.unwrap();
    let second = ended(&world, session, 2).await;
    world.sessions.stop().await;
    let world = start(Arc::clone(&store)).await;
    let loaded = world.sessions.snapshot(&tenant, session).await.unwrap();
    assert!(kept.seq < loaded.state.head, "there is a tail");
    assert_eq!(loaded.state.transcript, second.state.transcript);
    assert_eq!(loaded.state.spent, second.state.spent);
    let report = world.sessions.verify(&tenant, session).await.unwrap();
    assert!(report.fault.is_none(), "{report:?}");
}

#[tokio::test]
async fn a_snapshot_that_strays_from_the_log_is_named_and_one_of_another_log_is_not_used() {
    let store = Arc::new(MemoryStore::new());
    let world = start(Arc::clone(&store)).await;
    let tenant = world.caller.tenant.clone();
    let session = open(&world, "long").await;
    let told = ended(&world, session, 1).await;
    world.sessions.stop().await;
    let codec = codec(&store, &tenant, session).await;
    let last = store.read(&tenant, session, told.state.head - 1, 1).await.unwrap().remove(0);
    let mut state = Session::clone(&told.state);
    state.rounds += 1_000;
    // Of a row that the log does not have.
    let foreign = codec.snapshot(&state, [9; 32]).unwrap().unwrap();
    for (put, rounds) in
        [(foreign, told.state.rounds), (codec.snapshot(&state, last.hash).unwrap().unwrap(), state.rounds)]
    {
        // Another form in between gives way to whatever comes.
        store.snapshot_put(&tenant, session, &Snapshotted { form: "older".to_owned(), ..put.clone() }).await.unwrap();
        store.snapshot_put(&tenant, session, &put).await.unwrap();
        let world = start(Arc::clone(&store)).await;
        let loaded = world.sessions.snapshot(&tenant, session).await.unwrap();
        assert_eq!(loaded.state.rounds, rounds);
        world.sessions.stop().await;
    }
    let world = start(Arc::clone(&store)).await;
    let report = world.sessions.verify(&tenant, session).await.unwrap();
    let Some(VerifyFault::Chain { seq, detail }) = report.fault else { panic!("{report:?}") };
    assert_eq!(seq, told.state.head);
    assert!(detail.contains("kept"), "{detail}");
}
