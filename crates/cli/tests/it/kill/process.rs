//! `toolgate serve` as a process of its own, told where to abort, on a port that stays the same over its lives. What is
//! not here: databases (`database`).

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicU16, Ordering};

use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::watch;

use super::WAIT;
use crate::program::TOOLGATE;

/// SIGABRT: what a crash point ends with, and nothing else.
const ABORTED: i32 = 6;

/// Ports from here on are given to no outgoing connection, so that a restarted server finds its own free.
const FIRST_PORT: u16 = 20_000;
const PORTS: u16 = 10_000;

/// A server over its lives.
pub(super) struct Served {
    dir: TempDir,
    database_url: String,
    port: u16,
    process: Option<(Child, Lines<BufReader<ChildStdout>>)>,
    /// The first key, once a life has printed it.
    pub(super) key: Option<String>,
    /// Lives that listen so far.
    lives: watch::Sender<u32>,
    started: u32,
}

/// How a start went.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Started {
    Listening,
    Aborted,
}

impl Served {
    pub(super) fn new(database_url: String) -> Self {
        let lives = watch::Sender::new(0);
        let dir = TempDir::new().unwrap();
        Self { dir, database_url, port: free_port(), process: None, key: None, lives, started: 0 }
    }

    pub(super) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub(super) fn lives(&self) -> watch::Receiver<u32> {
        self.lives.subscribe()
    }

    pub(super) fn data_dir(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    pub(super) fn database_url(&self) -> &str {
        &self.database_url
    }

    /// What the lives so far have logged.
    pub(super) fn log(&self) -> String {
        (1..=self.started).map(|life| std::fs::read_to_string(self.log_of(life)).unwrap_or_default()).collect()
    }

    fn log_of(&self, life: u32) -> PathBuf {
        self.dir.path().join(format!("life-{life}.log"))
    }

    /// Starts a life that aborts as `failpoints` says, and waits until it listens or is over.
    pub(super) async fn launch(&mut self, failpoints: Option<&str>) -> Started {
        self.started += 1;
        let log = std::fs::File::create(self.log_of(self.started)).unwrap();
        let mut command = Command::new(TOOLGATE);
        command
            .args(["serve", "--allow-private-tools", "--bind", &format!("127.0.0.1:{}", self.port)])
            .args(["--data-dir", &self.data_dir().display().to_string()])
            .env_remove("FAILPOINTS")
            .env("RUST_LOG", "warn")
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true);
        if !self.database_url.is_empty() {
            command.args(["--database-url", &self.database_url]);
        }
        if let Some(failpoints) = failpoints {
            command.env("FAILPOINTS", failpoints);
        }
        let mut process = command.spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut listening = false;
        let up = async {
            while let Some(line) = lines.next_line().await.unwrap() {
                if let Some((_, key)) = line.split_once("shown only now): ") {
                    self.key = Some(key.to_owned());
                }
                listening |= line.starts_with("listening on");
                if listening && self.key.is_some() {
                    return true;
                }
            }
            false
        };
        let up = tokio::time::timeout(WAIT, up).await.expect("the server starts in time");
        self.process = Some((process, lines));
        if up {
            self.lives.send_modify(|lives| *lives += 1);
            return Started::Listening;
        }
        self.until_aborted().await;
        Started::Aborted
    }

    /// Waits until the process is over, and fails unless it was a crash point that ended it.
    pub(super) async fn until_aborted(&mut self) {
        let (process, _) = self.process.as_mut().expect("a life");
        let status = tokio::time::timeout(WAIT, process.wait()).await.expect("the process ends in time").unwrap();
        self.process = None;
        assert_eq!(status.signal(), Some(ABORTED), "{status}");
    }

    /// SIGKILL, when everything is seen.
    pub(super) async fn kill(&mut self) {
        if let Some((mut process, _)) = self.process.take() {
            process.kill().await.unwrap();
        }
    }
}

fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Other test programs may look for ports at the same time: each begins somewhere else.
    let offset = u16::try_from(std::process::id() % u32::from(PORTS)).unwrap();
    loop {
        let next = NEXT.fetch_add(1, Ordering::SeqCst).wrapping_add(offset) % PORTS;
        let port = FIRST_PORT + next;
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
