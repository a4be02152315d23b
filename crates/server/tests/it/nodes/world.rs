//! Nodes over one PostgreSQL database, each on a thread of its own, so that one can be paused or killed alone.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::json;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use toolgate_core::bundle::Bundle;
use toolgate_core::event::Recorded;
use toolgate_core::id::{ActorId, InputId, ProfileName, SessionId, Sha256Digest, TenantId};
use toolgate_core::input::{Input, Message, Narrowed, Stop};
use toolgate_core::output::OutcomeStatus;
use toolgate_proposers::{EnvSecrets, Proposers};
use toolgate_server::caller::Caller;
use toolgate_server::clock::{Clock, SystemClock};
use toolgate_server::hooks::HttpHooks;
use toolgate_server::metrics::Metrics;
use toolgate_server::sessions::{
    Bundles, Deltas, Deps, Nodes, OpenRequest, Opened, SessionSettings, Sessions, Submission,
};
use toolgate_server::tools::{AddressPolicy, RawOutcome, ToolOrder, ToolRunner};
use toolgate_store::{BundleRow, Lanes, MasterKey, NodeId, NodeStart, PostgresOptions, PostgresStore, Store, Unsafe};

pub(super) const WAIT: Duration = Duration::from_secs(60);
static COUNT: AtomicU32 = AtomicU32::new(0);

/// The database of one test, gone with it.
pub(super) struct Database {
    url: String,
}

fn cluster() -> String {
    std::env::var("TOOLGATE_TEST_POSTGRES_URL").expect("TOOLGATE_TEST_POSTGRES_URL names a throw-away cluster")
}

async fn at_cluster(sql: String) {
    let mut conn = PgConnection::connect(&cluster()).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut conn).await.unwrap();
    conn.close().await.unwrap();
}

impl Database {
    pub(super) async fn new() -> Self {
        let name = format!("tgn_{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        at_cluster(format!("CREATE DATABASE {name}")).await;
        let cluster = cluster();
        Self { url: format!("{}/{name}", cluster.rsplit_once('/').unwrap().0) }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let name = self.url.rsplit_once('/').unwrap().1.to_owned();
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(at_cluster(format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")));
        });
        let _ = dropping.join();
    }
}

/// Tools that answer once the test lets them.
#[derive(Debug)]
pub(super) struct Gate {
    pub(super) begun: Semaphore,
    pub(super) may_end: Semaphore,
}

impl Gate {
    pub(super) fn closed() -> Arc<Self> {
        Arc::new(Self { begun: Semaphore::new(0), may_end: Semaphore::new(0) })
    }

    pub(super) fn open() -> Arc<Self> {
        Arc::new(Self { begun: Semaphore::new(0), may_end: Semaphore::new(1_000_000) })
    }
}

#[async_trait::async_trait]
impl ToolRunner for Gate {
    async fn run(&self, _: &ToolOrder) -> RawOutcome {
        self.begun.add_permits(1);
        self.may_end.acquire().await.unwrap().forget();
        RawOutcome::bare(OutcomeStatus::Ok, "done")
    }
}

fn bundle() -> serde_json::Value {
    json!({
        "version": 1,
        "tools": {
            "look": {"description": "Looks.", "parameters": {}, "venue": "server", "class": "read", "tags": ["seen"], "executor": {"builtin": "echo"}},
            "terminal": {"description": "Runs.", "parameters": {"properties": {"cmd": {"type": "string"}}, "required": ["cmd"]}, "venue": "client"}
        },
        "models": {
            "server": {"provider": "scripted", "script": [{"calls": [{"tool": "look", "args": {}}]}, {"done": "seen"}]},
            "client": {"provider": "scripted", "script": [{"calls": [{"tool": "terminal", "args": {"cmd": "make"}}]}, {"done": "built"}, {"done": "more"}]}
        },
        "default_harness": {"max_steps": 5, "max_tool_calls": 5, "deadline_ms": 600000},
        "profiles": {
            "server": {"tools": ["look"], "model": "server"},
            "client": {"tools": ["terminal"], "model": "client"}
        }
    })
}

/// One node on a thread of its own.
pub(super) struct TestNode {
    runtime: Option<Runtime>,
    pub(super) sessions: Sessions,
    pub(super) caller: Caller,
    pub(super) name: NodeId,
    pub(super) gate: Arc<Gate>,
    pub(super) store: Arc<dyn Store>,
}

pub(super) fn quick() -> SessionSettings {
    SessionSettings {
        lease: Duration::from_secs(2),
        append_patience: Duration::from_secs(30),
        ..SessionSettings::default()
    }
}

impl TestNode {
    pub(super) async fn start(database: &Database, name: &str, gate: Arc<Gate>, settings: SessionSettings) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (url, name) = (database.url.clone(), NodeId::new(name).unwrap());
        let (runner, id) = (Arc::clone(&gate), name.clone());
        let starting = runtime.spawn(async move {
            let options = PostgresOptions { unsafe_settings: Unsafe::Accept, ..PostgresOptions::default() };
            let store: Arc<dyn Store> = Arc::new(PostgresStore::open(&url, &options).await.unwrap());
            let tenant = TenantId::new("acme").unwrap();
            let source = Bundle::load(&bundle().to_string()).unwrap();
            let row = BundleRow {
                digest: source.digest(),
                body: source.source().as_str().as_bytes().to_vec(),
                created_by: ActorId::new("ops").unwrap(),
                created_at: SystemClock.now(),
            };
            store.bundle_put(&tenant, &row).await.unwrap();
            store.bundle_set_current(&tenant, None, &row.digest).await.unwrap();
            let start = NodeStart { node: id, ttl: settings.lease, protocol: 1, version: String::new() };
            let node = store.node_start(&start).await.unwrap();
            let sessions = Sessions::new(Deps {
                lanes: Lanes::start(Arc::clone(&store), std::num::NonZeroUsize::MIN),
                store: Arc::clone(&store),
                clock: Arc::new(SystemClock),
                node,
                master: MasterKey::from_bytes([7; 32]),
                models: Proposers::new().unwrap(),
                deltas: Deltas::default(),
                metrics: Metrics::default(),
                tools: runner,
                hooks: Arc::new(HttpHooks::new(AddressPolicy::Private, Arc::new(EnvSecrets)).unwrap()),
                bundles: Bundles::default(),
                nodes: Nodes::default(),
                settings,
                stopping: CancellationToken::new(),
            });
            sessions.start().await.unwrap();
            (sessions, store)
        });
        let (sessions, store) = starting.await.unwrap();
        let caller = Caller {
            tenant: TenantId::new("acme").unwrap(),
            actor: ActorId::new("alice").unwrap(),
            credential: "k1".to_owned(),
            scopes: BTreeSet::new(),
            ceiling: None,
        };
        Self { runtime: Some(runtime), sessions, caller, name, gate, store }
    }

    /// Runs work on the node's own thread.
    pub(super) async fn on<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> T {
        let running = self.runtime.as_ref().unwrap().spawn(work);
        tokio::time::timeout(WAIT, running).await.expect("in time").unwrap()
    }

    pub(super) async fn open(&self, profile: &str) -> SessionId {
        let (sessions, caller, profile) = (self.sessions.clone(), self.caller.clone(), profile.to_owned());
        self.on(async move {
            let request = OpenRequest {
                alias: None,
                profile: Some(ProfileName::new(&profile).unwrap()),
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
            };
            match sessions.open(&caller, request).await.unwrap() {
                Opened::Created(snapshot) | Opened::Existing(snapshot) => snapshot.state.id,
            }
        })
        .await
    }

    pub(super) async fn submit(
        &self,
        session: SessionId,
        submission: Submission,
    ) -> Result<toolgate_server::sessions::Taken, toolgate_server::failure::Failure> {
        let (sessions, tenant) = (self.sessions.clone(), self.caller.tenant.clone());
        self.on(async move { sessions.submit(&tenant, session, submission).await }).await
    }

    /// The first so many events, once they are there.
    pub(super) async fn until(
        &self,
        session: SessionId,
        what: impl Fn(&[Recorded]) -> bool + Send + 'static,
    ) -> Vec<Recorded> {
        let (sessions, tenant) = (self.sessions.clone(), self.caller.tenant.clone());
        self.on(async move {
            let mut head = sessions.watch(&tenant, session).await.unwrap();
            loop {
                head.mark_unchanged();
                let events = sessions.events(&tenant, session, 0, 1_000).await.unwrap();
                if what(&events) {
                    return events;
                }
                if head.changed().await.is_err() {
                    head = sessions.watch(&tenant, session).await.unwrap();
                }
            }
        })
        .await
    }

    /// The node that owns a session.
    pub(super) async fn owner(&self, session: SessionId) -> Option<NodeId> {
        let row = self.store.session(&self.caller.tenant, session).await.unwrap().unwrap();
        row.owner.map(|owner| owner.node)
    }

    /// Stands still, as a process that was sent SIGSTOP, until the answer is dropped.
    pub(super) async fn pause(&self) -> std::sync::mpsc::SyncSender<()> {
        let (release, held) = std::sync::mpsc::sync_channel::<()>(0);
        let (stands, standing) = tokio::sync::oneshot::channel();
        self.runtime.as_ref().unwrap().spawn(async move {
            let _ = stands.send(());
            let _ = held.recv();
        });
        standing.await.unwrap();
        release
    }

    /// Ends as a process that was killed: nothing is released.
    pub(super) fn kill(&mut self) {
        self.runtime.take().unwrap().shutdown_background();
    }
}

impl Drop for TestNode {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

pub(super) fn message(id: Option<&str>, text: &str) -> Submission {
    let input = Input::Message(Message { by: ActorId::new("alice").unwrap(), text: text.to_owned() });
    Submission { id: id.map(|id| InputId::new(id).unwrap()), input, idempotency: None }
}

pub(super) fn cancel(id: Option<&str>) -> Submission {
    let input = Input::Cancel(Stop { by: ActorId::new("alice").unwrap(), reason: None });
    Submission { id: id.map(|id| InputId::new(id).unwrap()), input, idempotency: None }
}
