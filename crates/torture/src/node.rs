//! One server over its lives: started as users start it, on a port and a directory of its own, started again until it
//! stands. What is not here: what is done to it (`nemesis`).

use std::fs::OpenOptions;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, timeout};

/// Ports from here on are given to no outgoing connection, so that a restarted server finds its own free.
const FIRST_PORT: u16 = 20_000;
const PORTS: u16 = 10_000;
/// Time between two looks at something that changes by itself.
const LOOK: Duration = Duration::from_millis(50);
/// Time before a server that could not start is started again, as a supervisor would.
const AGAIN: Duration = Duration::from_millis(300);
/// A developer log beyond this begins anew.
const LOG_MOST: u64 = 8 << 20;

/// How its servers are started.
#[derive(Debug, Clone)]
pub struct Launch {
    /// The program.
    pub program: PathBuf,
    /// The database; empty for a file of the node's own.
    pub database_url: String,
    /// The master key of all nodes.
    pub master_key_file: PathBuf,
    /// The lease.
    pub lease: Duration,
    /// Where the log of each node goes in the end.
    pub keep: Option<PathBuf>,
}

/// A server.
#[derive(Debug)]
pub struct Node {
    /// Its place among the nodes.
    pub place: usize,
    launch: Launch,
    port: u16,
    dir: TempDir,
    life: Mutex<Option<Child>>,
    http: reqwest::Client,
}

impl Node {
    /// A node that was never started.
    #[must_use]
    pub fn new(place: usize, launch: Launch) -> Self {
        let dir = TempDir::new().expect("a temporary directory");
        let http = reqwest::Client::builder().timeout(Duration::from_secs(2)).build().expect("an HTTP client");
        Self { place, launch, port: free_port(), dir, life: Mutex::new(None), http }
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Its directory.
    #[must_use]
    pub fn data_dir(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn log(&self) -> PathBuf {
        self.dir.path().join("log")
    }

    /// The end of what it logged.
    #[must_use]
    pub fn last_words(&self) -> String {
        let log = std::fs::read_to_string(self.log()).unwrap_or_default();
        let lines: Vec<&str> = log.lines().rev().take(15).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }

    /// Starts it, again and again while it ends by itself, until it listens. Answers the first key, if it printed one.
    pub async fn up(&self, bound: Duration) -> Result<Option<String>, String> {
        let until = Instant::now() + bound;
        loop {
            match timeout(until.saturating_duration_since(Instant::now()), self.launch()).await {
                Ok(Some(key)) => return Ok(key),
                Ok(None) if Instant::now() < until => sleep(AGAIN).await,
                Ok(None) | Err(_) => {
                    let place = self.place;
                    return Err(format!("node {place} did not start within {bound:?}: {}", self.last_words()));
                }
            }
        }
    }

    /// One start; nothing when the process ended before it listened.
    async fn launch(&self) -> Option<Option<String>> {
        let fresh = std::fs::metadata(self.log()).is_ok_and(|log| log.len() > LOG_MOST);
        let log = OpenOptions::new().create(true).append(!fresh).write(true).truncate(fresh).open(self.log());
        let mut child = Command::new(&self.launch.program)
            .args(["serve", "--allow-private-tools", "--bind", &self.address(), "--data-dir"])
            .arg(self.data_dir())
            .env_remove("FAILPOINTS")
            .env_remove("TOOLGATE_MASTER_KEY")
            .env_remove("TOOLGATE_DATABASE_URL")
            .env("TOOLGATE__STORAGE__DATABASE_URL", &self.launch.database_url)
            .env("TOOLGATE__STORAGE__MASTER_KEY_FILE", &self.launch.master_key_file)
            .env("TOOLGATE__SESSIONS__LEASE_MS", self.launch.lease.as_millis().to_string())
            .env("RUST_LOG", "warn,toolgate_server::sessions=info")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log.expect("its log"))
            .kill_on_drop(true)
            .spawn()
            .expect("the program starts; build it with `cargo build`, or name it with `--program`");
        let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let (mut key, mut listens) = (None, false);
        // The key, where there is one, is the line after the address; the number of resumed sessions may come instead.
        while let Ok(Some(line)) = lines.next_line().await {
            if let Some((_, printed)) = line.split_once("shown only now): ") {
                key = Some(printed.to_owned());
            }
            listens |= line.starts_with("listening on");
            if listens {
                break;
            }
        }
        if !listens {
            let _ = child.wait().await;
            return None;
        }
        if key.is_none() {
            // Said at once or not at all.
            if let Ok(Ok(Some(line))) = timeout(Duration::from_millis(200), lines.next_line()).await {
                key = line.split_once("shown only now): ").map(|(_, printed)| printed.to_owned());
            }
        }
        // Whoever prints needs somebody who reads.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        *self.life.lock().await = Some(child);
        Some(key)
    }

    /// Sends a signal; says when there is nobody to send it to, since nothing but this driver ends a server.
    pub async fn signal(&self, name: &str) -> Result<(), String> {
        let mut life = self.life.lock().await;
        let child = life.as_mut().ok_or_else(|| format!("node {} is not running", self.place))?;
        if let Ok(Some(status)) = child.try_wait() {
            return Err(format!("node {} ended by itself ({status}): {}", self.place, self.last_words()));
        }
        let pid = child.id().unwrap_or_default().to_string();
        let done = Command::new("kill").args([name, &pid]).status().await.expect("`kill` runs");
        if done.success() { Ok(()) } else { Err(format!("node {}: `kill {name}` failed", self.place)) }
    }

    /// Waits until its process is over.
    pub async fn over(&self, bound: Duration) -> Result<ExitStatus, String> {
        let mut life = self.life.lock().await;
        let Some(child) = life.as_mut() else { return Err(format!("node {} is not running", self.place)) };
        match timeout(bound, child.wait()).await {
            Ok(status) => {
                *life = None;
                status.map_err(|error| format!("node {}: {error}", self.place))
            }
            Err(_) => Err(format!("node {} did not end within {bound:?}: {}", self.place, self.last_words())),
        }
    }

    /// SIGKILL, whatever it is doing.
    pub async fn kill(&self) {
        if let Some(mut child) = self.life.lock().await.take() {
            let _ = child.kill().await;
        }
    }

    /// Waits until it says that it is ready, or that it is not.
    pub async fn until_ready(&self, ready: bool, bound: Duration) -> Result<(), String> {
        let url = format!("http://{}/readyz", self.address());
        let looking = async {
            loop {
                let answer = self.http.get(&url).send().await;
                if answer.is_ok_and(|answer| answer.status().is_success() == ready) {
                    return;
                }
                sleep(LOOK).await;
            }
        };
        let word = if ready { "ready" } else { "red" };
        let late = |_| format!("node {} was not {word} within {bound:?}: {}", self.place, self.last_words());
        timeout(bound, looking).await.map_err(late)
    }

    /// The name by which the database knows it.
    #[must_use]
    pub fn name(&self) -> String {
        std::fs::read_to_string(self.data_dir().join("node-id")).unwrap_or_default().trim().to_owned()
    }

    /// `toolgate node drain` on it, as an operator would from anywhere.
    pub async fn drain(&self) -> bool {
        let output = Command::new(&self.launch.program)
            .args(["node", "drain", &self.name(), "--data-dir"])
            .arg(self.data_dir())
            .env("TOOLGATE__STORAGE__DATABASE_URL", &self.launch.database_url)
            .env("TOOLGATE__STORAGE__MASTER_KEY_FILE", &self.launch.master_key_file)
            .stdin(Stdio::null())
            .output()
            .await;
        output.is_ok_and(|output| output.status.success())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let Some(folder) = &self.launch.keep else { return };
        if let Err(error) = std::fs::copy(self.log(), folder.join(format!("node-{}.log", self.place))) {
            println!("the log of node {} was not kept: {error}", self.place);
        }
    }
}

fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Other programs may look for ports at the same time: each begins somewhere else.
    let offset = u16::try_from(std::process::id() % u32::from(PORTS)).unwrap_or_default();
    loop {
        let port = FIRST_PORT + NEXT.fetch_add(1, Ordering::SeqCst).wrapping_add(offset) % PORTS;
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
