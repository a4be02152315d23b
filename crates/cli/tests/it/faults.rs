//! Faults of the machine under a real server: no space left under its database, no file descriptors left. What is not here:
//! death (`crash`, `kill`), the database's own faults (the torture driver).
#![cfg(target_os = "linux")]

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use toolgate_tests::Caller;

use crate::program::TOOLGATE;

/// Longest wait for a server to notice that things are better or worse.
const WAIT: Duration = Duration::from_secs(60);
/// Time between two looks.
const LOOK: Duration = Duration::from_millis(50);
/// Requests that must be enough to use up what a full disk leaves to files that are there already.
const TRIES: usize = 500;
/// Descriptors of a server that gets few.
const FEW: usize = 96;

/// A server that a shell prepares the place for: `$1` is its data folder, the rest is its command.
struct Served {
    child: Child,
    dir: TempDir,
    address: SocketAddr,
    key: String,
}

impl Served {
    fn start(prepare: &[&str], script: &str) -> Self {
        let dir = TempDir::new().unwrap();
        let data = dir.path().display().to_string();
        let command = [prepare, &["sh", "-c", script, "sh", &data, TOOLGATE, "serve", "--data-dir", &data]].concat();
        let mut child = Command::new(command[0])
            .args(&command[1..])
            .args(["--bind", "127.0.0.1:0"])
            .env("TOOLGATE__SESSIONS__LEASE_MS", "2000")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (mut address, mut key) = (None, None);
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            let line = line.unwrap();
            if let Some((_, shown)) = line.split_once("shown only now): ") {
                key = Some(shown.to_owned());
            }
            if let Some(at) = line.strip_prefix("listening on http://") {
                address = at.parse().ok();
            }
            if address.is_some() && key.is_some() {
                break;
            }
        }
        let (address, key) = address.zip(key).expect("the server starts; its file system needs `unshare` and `mount`");
        Self { child, dir, address, key }
    }

    async fn caller(&self) -> Caller {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let caller = Caller::new(format!("http://{}", self.address), self.key.clone());
        caller.put_bundle(&bundle()).await;
        caller
    }

    /// A file in the data folder as the server sees it.
    fn file(&self, name: &str) -> PathBuf {
        let seen = format!("/proc/{}/root{}", self.child.id(), self.dir.path().display());
        PathBuf::from(seen).join(name)
    }

    fn lives(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn bundle() -> Value {
    json!({
        "version": 1,
        "models": {"m": {"provider": "scripted", "script": [
            {"calls": [{"tool": "echo", "args": {"text": "a"}}]}, {"done": "echoed"}]}},
        "default_model": "m",
        "default_harness": {"max_steps": 4, "max_tool_calls": 4, "deadline_ms": 600_000},
        "tools": {"echo": {"description": "Says its arguments.", "venue": "server", "class": "read",
            "executor": {"builtin": "echo"},
            "parameters": {"properties": {"text": {"type": "string"}}, "required": ["text"]}}},
        "profiles": {"p": ["echo"]}
    })
}

/// Waits until the server's readiness is this.
async fn readiness(caller: &Caller, status: u16) {
    let waited = async {
        while caller.get("/readyz").await.status.as_u16() != status {
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::time::timeout(WAIT, waited).await.unwrap_or_else(|_| panic!("readiness never becomes {status}"));
}

/// Fills the file system of a file.
fn fill(path: &PathBuf) {
    let mut filler = File::create(path).unwrap();
    for block in [1 << 16, 1 << 10, 1] {
        loop {
            match filler.write_all(&vec![0; block]) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::StorageFull => break,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

/// Opens a session; its id, or the code that it was refused with.
async fn open(caller: &Caller) -> Result<String, String> {
    let answer = caller.post("/v1/sessions", &json!({"profile": "p", "prompt": "x".repeat(20_000)})).await;
    match answer.status.as_u16() {
        201 => Ok(answer.json()["id"].as_str().unwrap().to_owned()),
        503 => {
            assert!(answer.headers.contains_key("retry-after"), "{}", answer.text);
            Err(answer.code())
        }
        other => panic!("{other}: {}", answer.text),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_space_under_sqlite_refuses_writes_and_loses_nothing() {
    // A file system of its own; no root is needed for it.
    let prepare = ["unshare", "--map-root-user", "--mount"];
    let mut served = Served::start(&prepare, "mount -t tmpfs -o size=24m tmpfs \"$1\" && shift && exec \"$@\"");
    let caller = served.caller().await;
    let before = open(&caller).await.unwrap();
    caller.until_ended(&before, 1).await;
    let filler = served.file("filler");
    fill(&filler);
    let mut acknowledged = vec![before.clone()];
    let mut refused = None;
    for _ in 0..TRIES {
        match open(&caller).await {
            Ok(id) => acknowledged.push(id),
            Err(code) => {
                refused = Some(code);
                break;
            }
        }
    }
    assert_eq!(refused.as_deref(), Some("storage_full"), "after {} sessions", acknowledged.len());
    readiness(&caller, 503).await;
    assert_eq!(caller.get("/healthz").await.status.as_u16(), 200);
    assert_eq!(caller.session(&before).await["run"]["ending"], "done", "what is there can be read");
    std::fs::remove_file(&filler).unwrap();
    readiness(&caller, 200).await;
    acknowledged.push(open(&caller).await.unwrap());
    for id in &acknowledged {
        assert_eq!(caller.until_ended(id, 1).await["run"]["ending"], "done");
        caller.verified(id).await;
    }
    assert!(served.lives());
}

#[tokio::test(flavor = "multi_thread")]
async fn no_file_descriptors_left_is_survived() {
    let script = format!("ulimit -n {FEW} && shift && exec \"$@\"");
    let mut served = Served::start(&[], &script);
    let caller = served.caller().await;
    let before = open(&caller).await.unwrap();
    caller.until_ended(&before, 1).await;
    // The kernel accepts these for the server, which has no descriptors for all of them.
    let held: Vec<TcpStream> = (0..FEW * 2).map(|_| TcpStream::connect(served.address).unwrap()).collect();
    let full = async {
        while std::fs::read_dir(format!("/proc/{}/fd", served.child.id())).unwrap().count() < FEW {
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::time::timeout(WAIT, full).await.expect("the descriptors are used up");
    drop(held);
    readiness(&caller, 200).await;
    let after = open(&caller).await.unwrap();
    for id in [before, after] {
        assert_eq!(caller.until_ended(&id, 1).await["run"]["ending"], "done");
        caller.verified(&id).await;
    }
    assert!(served.lives());
}
