//! One run: database, nodes, stubs and callers are started, the nemesis has its way, everything heals and comes to rest; then
//! every log is read by API and from the database and checked. What is not here: what must hold (`check`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, sleep, timeout};
use toolgate_core::id::{SessionId, TenantId};
use toolgate_server::config::Settings;
use toolgate_server::local::master_key;
use toolgate_server::node::{FIRST_TENANT, open_database};
use toolgate_server::sessions::{VerifyFault, verify_stored};
use toolgate_store::{MasterKey, Store};

use crate::callers::Callers;
use crate::check::{Checker, Findings};
use crate::database::{Cluster, Reader};
use crate::dice::dice;
use crate::evidence::{Digest, SessionLog, Told};
use crate::front;
use crate::nemesis::{Deck, Done, Fault, Nemesis};
use crate::node::{Launch, Node};
use crate::outside::Outside;
use crate::stubs::{Stubs, bundle};

/// The longest start of a node in peace.
const START: Duration = Duration::from_secs(60);
/// Sessions that have to be under way before the first fault, and the longest wait for them.
const WARM: u64 = 100;
/// The longest time from the last fault until every session is over: an idempotency key may be held for 35 s by a process
/// that died with it, and more than one request of a session may meet that.
const HEAL: Duration = Duration::from_secs(120);
/// The longest time for sending requests again, and for reading and checking the logs.
const CHECK: Duration = Duration::from_secs(600);
/// Time between two looks at the heads of all chains.
const LOOK: Duration = Duration::from_millis(400);
/// Logs read at once.
const READERS: usize = 4;
/// Answered requests that are sent again.
const REPEATED: usize = 300;

/// What the nodes share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Base {
    /// A PostgreSQL cluster.
    Postgres,
    /// One with a synchronous copy.
    Copied,
    /// Nothing: there is one, with a file.
    Sqlite,
}

/// What to run.
#[derive(Debug, Clone)]
pub struct Run {
    /// The program.
    pub program: PathBuf,
    /// The folder of `postgres`.
    pub scripts: PathBuf,
    /// The seed.
    pub seed: u64,
    /// What the nodes share.
    pub base: Base,
    /// Nodes.
    pub nodes: usize,
    /// Callers at once.
    pub callers: usize,
    /// The lease of a node.
    pub lease: Duration,
    /// Mean time between two faults.
    pub pace: Duration,
    /// Faults.
    pub deck: Deck,
    /// Where logs of nodes go.
    pub keep: Option<PathBuf>,
}

/// How it went.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// What the nemesis did.
    pub done: Done,
    /// What the checker found.
    pub findings: Findings,
    /// Sessions played.
    pub sessions: u64,
    /// Requests that tools got.
    pub asked: u64,
    /// Acknowledged requests.
    pub acks: u64,
    /// Events that were shown.
    pub seen: u64,
    /// Answers of 500.
    pub defects: u64,
    /// Requests that got no answer in time, by node.
    pub unanswered: Vec<u64>,
    /// Time of the faults, of healing, and of checking.
    pub times: [Duration; 3],
}

/// Ends a task with whoever started it.
struct Bound(JoinHandle<()>);

impl Drop for Bound {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Runs it.
pub async fn run(run: &Run) -> Result<Outcome, String> {
    let dir = TempDir::new().map_err(|error| error.to_string())?;
    let key_file = dir.path().join("master.key");
    std::fs::write(&key_file, "5a".repeat(32)).map_err(|error| error.to_string())?;
    let cluster = match run.base {
        Base::Postgres | Base::Copied => Some(Arc::new(Cluster::start(&run.scripts, run.base == Base::Copied).await)),
        Base::Sqlite => None,
    };
    let launch = Launch {
        program: run.program.clone(),
        database_url: cluster.as_ref().map_or_else(String::new, |cluster| cluster.url()),
        master_key_file: key_file.clone(),
        lease: run.lease,
        keep: run.keep.clone(),
    };
    let nodes: Vec<Arc<Node>> = (0..run.nodes).map(|place| Arc::new(Node::new(place, launch.clone()))).collect();
    let (stubs, stubs_url, task) = Stubs::start(run.seed).await;
    let _stubs = Bound(task);
    let addresses: Vec<String> = nodes.iter().map(|node| node.address()).collect();
    let (front, task) = front::start(addresses.clone()).await;
    let _front = Bound(task);
    let mut key = None;
    for node in &nodes {
        key = key.or(node.up(START).await?);
        node.until_ready(true, START).await?;
    }
    let outside = Outside::new(addresses, key.ok_or("no node printed a first key")?);
    let reader = match &cluster {
        Some(cluster) => Reader::postgres(&cluster.url()),
        None => Reader::sqlite(&nodes.first().ok_or("no node")?.data_dir().join("toolgate.sqlite")),
    };
    let approver = prepare(&outside, &stubs_url).await?;
    let callers = Callers::new(outside.clone(), approver, front, Arc::clone(&stubs), run.seed);
    let watching = Watching::start(reader.clone());
    let tasks = callers.start(run.callers);
    let begun = Instant::now();
    while outside.progress() < WARM {
        if begun.elapsed() > START {
            return Err(format!("callers were told {} things in {START:?}", outside.progress()));
        }
        sleep(LOOK).await;
    }
    let nemesis = Arc::new(Nemesis {
        nodes: nodes.clone(),
        cluster: cluster.clone(),
        reader: reader.clone(),
        lease: run.lease,
        pace: run.pace,
        outside: outside.clone(),
    });
    let tell = |done: &Done| {
        let faults: Vec<String> = done.times.iter().map(|(fault, times)| format!("{times} {}", fault.word())).collect();
        println!(
            "{:4.0} s: {}; {} sessions over, {} tool requests",
            begun.elapsed().as_secs_f64(),
            faults.join(", "),
            callers.ended(),
            stubs.journal.len()
        );
    };
    let done = nemesis.run(&run.deck, &mut dice(run.seed, "nemesis"), tell).await;
    tell(&done);
    let (faults, healing) = (begun.elapsed(), Instant::now());
    let mut complaints = done.complaints.clone();
    complaints.extend(callers.finish(tasks, HEAL).await);
    complaints.extend(at_rest(&reader, HEAL.saturating_sub(healing.elapsed()).max(LOOK * 10)).await);
    let healed = healing.elapsed();
    println!("{:4.0} s: healed", begun.elapsed().as_secs_f64());
    let checking = Instant::now();
    let heads = watching.stop().await;
    let mut told = Told { heads, ..outside.told() };
    told.complaints.extend(complaints);
    if timeout(CHECK, repeat(&outside, &mut told, run.seed)).await.is_err() {
        told.complaints.push(format!("{REPEATED} answered requests sent again took more than {CHECK:?}"));
    }
    println!("{:4.0} s: answered requests were sent again", begun.elapsed().as_secs_f64());
    told.journal = stubs.journal.all();
    let (store, master) = stored(&nodes, &launch, &key_file).await?;
    let checked = timeout(CHECK, check(&told, &reader, &outside, &*store, &master)).await;
    let findings = checked.map_err(|_| format!("the logs could not be read within {CHECK:?}"))??;
    for node in &nodes {
        node.kill().await;
    }
    reader.close().await;
    Ok(Outcome {
        done,
        findings,
        sessions: callers.ended(),
        asked: told.journal.len() as u64,
        acks: told.acks.len() as u64,
        seen: told.seen.values().map(|events| events.len() as u64).sum(),
        defects: outside.defects(),
        unanswered: outside.unanswered(),
        times: [faults, healed, checking.elapsed()],
    })
}

/// Puts the bundle and makes the approver's key.
async fn prepare(outside: &Outside, stubs: &str) -> Result<Outside, String> {
    let put = outside.put("/v1/bundle", &bundle(stubs)).await;
    if !put.status.is_success() {
        return Err(format!("the bundle: {} {}", put.status, put.body));
    }
    let wanted = json!({"actor": "grace", "scopes": ["approvals:write"]});
    let made = outside.make("/v1/api-keys", &wanted).await;
    let key = made.json().get("key").and_then(Value::as_str).map(str::to_owned);
    key.map(|key| outside.with_key(&key)).ok_or_else(|| format!("the approver's key: {} {}", made.status, made.body))
}

/// Waits until no session is at work and no inbox holds anything.
async fn at_rest(reader: &Reader, within: Duration) -> Option<String> {
    let begun = Instant::now();
    loop {
        let active: Result<Vec<String>, _> = reader
            .heads()
            .await
            .map(|heads| heads.into_iter().filter(|head| head.active).map(|head| head.session).collect());
        let waiting = reader.waiting().await;
        if matches!((&active, &waiting), (Ok(active), Ok(0)) if active.is_empty()) {
            return None;
        }
        if begun.elapsed() > within {
            return Some(format!("at work when all should rest: {active:?}; inputs in inboxes: {waiting:?}"));
        }
        sleep(LOOK).await;
    }
}

/// Somebody who looks at the heads of all chains while the run goes on: what is visible there is durable.
struct Watching {
    task: JoinHandle<BTreeMap<String, BTreeMap<u64, Digest>>>,
    stop: watch::Sender<bool>,
}

impl Watching {
    fn start(reader: Reader) -> Self {
        let stop = watch::Sender::new(false);
        let mut stopped = stop.subscribe();
        let task = tokio::spawn(async move {
            let mut found: BTreeMap<String, BTreeMap<u64, Digest>> = BTreeMap::new();
            let mut every = tokio::time::interval(LOOK);
            every.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                tokio::select! {
                    _ = every.tick() => {}
                    _ = stopped.wait_for(|stop| *stop) => return found,
                }
                // The database is away now and then.
                for head in reader.heads().await.unwrap_or_default() {
                    found.entry(head.session).or_default().entry(head.seq).or_insert(head.hash);
                }
            }
        });
        Self { task, stop }
    }

    async fn stop(self) -> BTreeMap<String, BTreeMap<u64, Digest>> {
        self.stop.send_replace(true);
        self.task.await.expect("looking does not fail")
    }
}

/// Sends some of the answered requests again.
async fn repeat(outside: &Outside, told: &mut Told, seed: u64) {
    let mut answers = outside.answers();
    dice(seed, "repeat").shuffle(&mut answers);
    answers.truncate(REPEATED);
    told.repeated = answers.len() as u64;
    for (request, answer) in answers {
        let again = outside.send(&request).await;
        if again != answer {
            told.other_answers.push(format!("{request:?}: {answer:?}, then {again:?}"));
        }
    }
}

/// The store as `toolgate verify` opens it.
async fn stored(nodes: &[Arc<Node>], launch: &Launch, key_file: &Path) -> Result<(Arc<dyn Store>, MasterKey), String> {
    let data_dir = nodes.first().map(|node| node.data_dir()).unwrap_or_default();
    let overrides = [
        ("storage.data_dir", data_dir.display().to_string()),
        ("storage.database_url", launch.database_url.clone()),
        ("storage.master_key_file", key_file.display().to_string()),
    ];
    let settings = Settings::load(None, &overrides).map_err(|error| error.to_string())?;
    let master = master_key(&settings.storage).map_err(|error| error.to_string())?;
    let store = open_database(&settings.storage).await.map_err(|error| error.to_string())?;
    Ok((store, master))
}

async fn check(
    told: &Told,
    reader: &Reader,
    outside: &Outside,
    store: &dyn Store,
    master: &MasterKey,
) -> Result<Findings, String> {
    let heads = reader.heads().await.map_err(|error| error.to_string())?;
    let mut checker = Checker::new(told);
    let mut logs = stream::iter(heads)
        .map(|head| async move {
            let rows = reader.rows(&head.session).await.map_err(|error| format!("{}: {error}", head.session))?;
            let events = outside.whole_log(&head.session).await;
            let verified = verify(store, master, &head.session).await;
            let (id, active) = (head.session, head.active);
            Ok::<_, String>(SessionLog { id, head: (head.seq, head.hash), active, rows, events, verified })
        })
        .buffer_unordered(READERS);
    while let Some(log) = logs.next().await {
        checker.session(&log?);
    }
    Ok(checker.finish())
}

/// What `toolgate verify` says, by the same code.
async fn verify(store: &dyn Store, master: &MasterKey, session: &str) -> Result<u64, String> {
    let id: SessionId = session.parse().map_err(|error| format!("{error}"))?;
    let tenant = TenantId::new(FIRST_TENANT).map_err(|error| error.to_string())?;
    let report = verify_stored(store, master, &tenant, id).await.map_err(|error| error.to_string())?;
    match report.fault {
        None if report.redacted.is_empty() => Ok(report.redecided),
        None => Err(format!("{} inputs cannot be decided again", report.redacted.len())),
        Some(VerifyFault::Chain { seq, detail }) => Err(format!("broken at {seq}: {detail}")),
        Some(VerifyFault::Decision(divergence)) => Err(divergence.to_string()),
        Some(VerifyFault::Invariant(broken)) => Err(broken.to_string()),
        Some(VerifyFault::Erased { seq }) => Err(format!("unreadable from {seq} on")),
    }
}

impl Outcome {
    /// Whether faults, sessions and effects were as many as asked for, so that what holds says something.
    #[must_use]
    pub fn too_little(&self, deck: &Deck) -> Option<String> {
        for (fault, times) in &deck.0 {
            let done = self.done.times.get(fault).copied().unwrap_or_default();
            if done < *times {
                return Some(format!("{done} of {times} {}", fault.word()));
            }
        }
        let ended = |class: &str| -> u64 {
            self.findings.ends.iter().filter(|((of, _), _)| of == class).map(|(_, times)| *times).sum()
        };
        for class in ["read", "idempotent", "once"] {
            if ended(class) == 0 {
                return Some(format!("no `{class}` call"));
            }
        }
        let faults: u64 = deck.0.values().sum();
        let owners = self.findings.kinds.get("owner_changed").copied().unwrap_or_default();
        (faults > 0 && owners == 0).then(|| "no session ever changed its owner".to_owned())
    }

    /// Faults of a kind that were done.
    #[must_use]
    pub fn times(&self, fault: Fault) -> u64 {
        self.done.times.get(&fault).copied().unwrap_or_default()
    }
}
