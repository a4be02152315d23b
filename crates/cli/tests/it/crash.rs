//! kill -9 of `serve` with a client call open, on both databases: after the restart the run goes on, the client gets its
//! call again, exactly one outcome is recorded, the log verifies.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;
use tokio::sync::{mpsc, watch};
use toolgate_client::{Answer, Client, Executor, ExecutorOptions, SessionRequest, handler};
use toolgate_tests::server::fresh_database;
use toolgate_tests::{Backend, Caller};

use crate::program::{TOOLGATE, verify};

const WAIT: Duration = Duration::from_secs(60);

/// `toolgate serve` as a process of its own, on a port that stays the same over its lives.
struct Served {
    dir: TempDir,
    database_url: String,
    port: u16,
    process: Option<Child>,
    key: String,
}

impl Served {
    async fn start(backend: Backend) -> Self {
        let database_url = match backend {
            Backend::Sqlite => String::new(),
            Backend::Postgres => fresh_database().await,
        };
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut served = Self { dir: TempDir::new().unwrap(), database_url, port, process: None, key: String::new() };
        served.launch();
        served
    }

    /// Starts the process and waits for its line that it listens.
    fn launch(&mut self) {
        let mut command = Command::new(TOOLGATE);
        command
            .args(["serve", "--bind", &format!("127.0.0.1:{}", self.port)])
            .args(["--data-dir", &self.dir.path().display().to_string()])
            // The throw-away cluster of the ordinary tests runs without fsync; `scripts/show main-crash` brings a durable one.
            .env("TOOLGATE__STORAGE__ALLOW_UNSAFE_DURABILITY", "true")
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit());
        if !self.database_url.is_empty() {
            command.args(["--database-url", &self.database_url]);
        }
        let mut process = command.spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut listening = false;
        for line in lines {
            let line = line.unwrap();
            if let Some((_, key)) = line.split_once("shown only now): ") {
                key.clone_into(&mut self.key);
            }
            listening |= line.starts_with("listening on");
            if listening && !self.key.is_empty() {
                break;
            }
        }
        assert!(listening, "the server did not start");
        self.process = Some(process);
    }

    /// SIGKILL: no handler of the process runs.
    fn kill(&mut self) {
        let mut process = self.process.take().unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(process) = self.process.as_mut() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

fn bundle(class: &str) -> serde_json::Value {
    json!({
        "version": 1,
        "models": {"m": {"provider": "scripted", "script": [
            {"calls": [{"tool": "build", "args": {"target": "all"}}]}, {"done": "built"}]}},
        "default_model": "m",
        "default_harness": {"max_steps": 4, "max_tool_calls": 4, "deadline_ms": 600_000},
        "tools": {"build": {"description": "Builds.", "venue": "client", "class": class, "timeout_ms": 300_000,
            "parameters": {"properties": {"target": {"type": "string"}}, "required": ["target"]}}},
        "profiles": {"p": ["build"]}
    })
}

/// A client whose handler reports each start and waits until it may end.
struct Hands {
    executor: Executor,
    started: mpsc::Receiver<(String, u32)>,
    may_end: watch::Sender<bool>,
    runs: Arc<AtomicUsize>,
}

fn hands(served: &Served, client_id: &str, session: &str) -> Hands {
    let (tell, started) = mpsc::channel(16);
    let may_end = watch::Sender::new(false);
    let runs = Arc::new(AtomicUsize::new(0));
    let (counter, gate) = (Arc::clone(&runs), may_end.clone());
    let build = handler(move |call| {
        let (tell, counter, mut gate) = (tell.clone(), Arc::clone(&counter), gate.subscribe());
        async move {
            counter.fetch_add(1, Ordering::SeqCst);
            tell.send((call.offer.call_id.clone(), call.offer.attempt)).await.unwrap();
            gate.wait_for(|open| *open).await.unwrap();
            Ok(Answer::Json(json!({"built": true})))
        }
    });
    let client = Client::new(&served.url(), &served.key).unwrap();
    let options = ExecutorOptions::new(client).client_id(client_id).session(session, 0).tool("build", build);
    Hands { executor: Executor::start(options).unwrap(), started, may_end, runs }
}

async fn next_start(hands: &mut Hands) -> (String, u32) {
    tokio::time::timeout(WAIT, hands.started.recv()).await.expect("the client gets its call").unwrap()
}

/// The outcome rows of a session, after its run has ended well.
async fn outcomes(caller: &Caller, id: &str) -> Vec<serde_json::Value> {
    let session = caller.until_ended(id, 1).await;
    assert_eq!(session["run"]["ending"], "done", "{session:#}");
    caller.events_of(id, "call_ended").await
}

async fn open(served: &Served, class: &str) -> (Caller, String) {
    let caller = Caller::new(served.url(), served.key.clone());
    caller.put_bundle(&bundle(class)).await;
    let client = Client::new(&served.url(), &served.key).unwrap();
    let session = client.create_session(&SessionRequest::new("p", "build it")).await.unwrap();
    (caller, session.id)
}

/// The client lives on over the crash: it never runs the call twice, and its one outcome is recorded once.
async fn the_client_lives_on(backend: Backend) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut served = Served::start(backend).await;
    let (caller, id) = open(&served, "once").await;
    let mut hands = hands(&served, "ide-1", &id);
    let (call, attempt) = next_start(&mut hands).await;
    assert_eq!(attempt, 1);
    served.kill();
    served.launch();
    // Only now does the work end, so the outcome reaches a server that has never seen this connection.
    hands.may_end.send_replace(true);
    let ended = outcomes(&caller, &id).await;
    assert_eq!(ended.len(), 1, "{ended:#?}");
    assert_eq!((ended[0]["call_id"].as_str().unwrap(), ended[0]["status"].as_str().unwrap()), (call.as_str(), "ok"));
    assert_eq!(hands.runs.load(Ordering::SeqCst), 1, "a `once` call ran once");
    assert_eq!(caller.events_of(&id, "owner_changed").await.len(), 1);
    caller.verified(&id).await;
    hands.executor.stop().await;
    let (good, text) = verify(served.dir.path(), &served.database_url, &id);
    assert!(good, "{text}");
    println!("{backend:?}: killed with an open `once` call; the living client reported once, 1 outcome, verified");
}

/// The client dies with the server: an `idempotent` call is offered again to the next one.
async fn the_client_dies_too(backend: Backend) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut served = Served::start(backend).await;
    let (caller, id) = open(&served, "idempotent").await;
    let mut first = hands(&served, "ide-1", &id);
    let (call, _) = next_start(&mut first).await;
    served.kill();
    drop(first);
    served.launch();
    let mut second = hands(&served, "ide-2", &id);
    let (again, attempt) = next_start(&mut second).await;
    assert_eq!((again.as_str(), attempt), (call.as_str(), 2));
    second.may_end.send_replace(true);
    let ended = outcomes(&caller, &id).await;
    assert_eq!(ended.len(), 1, "{ended:#?}");
    caller.verified(&id).await;
    second.executor.stop().await;
    println!("{backend:?}: killed with the client; the next client got the call again, 1 outcome, verified");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_living_client_on_sqlite() {
    the_client_lives_on(Backend::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_living_client_on_postgres() {
    the_client_lives_on(Backend::Postgres).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_client_on_sqlite() {
    the_client_dies_too(Backend::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_client_on_postgres() {
    the_client_dies_too(Backend::Postgres).await;
}
