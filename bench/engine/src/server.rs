//! The server under load: the program as users start it, over a fresh database. What is not here: the load (`load`,
//! `open`).

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::{database, process};

/// Where the log is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Database {
    /// Nowhere: the same server with a log in memory.
    Memory,
    /// The embedded file.
    Sqlite,
    /// A database of its own.
    Postgres,
}

/// How a server is started.
#[derive(Debug, Clone)]
pub(crate) struct Setup<'a> {
    pub(crate) program: &'a Path,
    pub(crate) database: Database,
    /// The cluster in which a database is made.
    pub(crate) cluster: &'a str,
    pub(crate) bundle: Value,
    /// Variables of its environment.
    pub(crate) settings: Vec<(&'static str, String)>,
}

impl<'a> Setup<'a> {
    /// On PostgreSQL, with the settings of the defaults.
    pub(crate) const fn postgres(program: &'a Path, cluster: &'a str, bundle: Value) -> Self {
        Self { program, database: Database::Postgres, cluster, bundle, settings: Vec::new() }
    }

    pub(crate) fn with(mut self, name: &'static str, value: impl ToString) -> Self {
        self.settings.push((name, value.to_string()));
        self
    }
}

/// A running server.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) url: String,
    pub(crate) key: String,
    pub(crate) database_url: String,
    program: PathBuf,
    database: Database,
    settings: Vec<(&'static str, String)>,
    child: Child,
    /// The database's first process, where it is another one than the server.
    postmaster: Option<u32>,
    dir: TempDir,
}

impl Server {
    pub(crate) async fn start(setup: Setup<'_>) -> Self {
        let dir = TempDir::new().expect("a temporary directory");
        let (database_url, postmaster) = match setup.database {
            Database::Memory => ("memory:".to_owned(), None),
            Database::Sqlite => (String::new(), None),
            Database::Postgres => {
                let (url, pid) = database::fresh(setup.cluster).await;
                (url, Some(pid))
            }
        };
        let mut command = command(setup.program, setup.database, &database_url, dir.path(), &setup.settings);
        let mut child = command.spawn().expect("the program starts; build it with `cargo build --release`");
        let (url, key) = listening(&mut child, true).await;
        let server = Self {
            url,
            key,
            database_url,
            program: setup.program.to_owned(),
            database: setup.database,
            settings: setup.settings,
            child,
            postmaster,
            dir,
        };
        server.put_bundle(&server.key, &setup.bundle).await;
        server
    }

    pub(crate) async fn put_bundle(&self, key: &str, bundle: &Value) {
        let client = reqwest::Client::new();
        let request = client.put(format!("{}/v1/bundle", self.url)).bearer_auth(key).json(bundle);
        let answer = request.send().await.expect("the server answers");
        assert!(answer.status().is_success(), "{}", answer.text().await.unwrap_or_default());
    }

    /// A key of another tenant with every scope.
    pub(crate) async fn tenant_key(&self, tenant: &str) -> String {
        let made = Command::new(&self.program)
            .args(["key", "new", "--tenant", tenant, "--actor", "bench", "--scope", "all", "--data-dir"])
            .arg(self.dir.path().join("data"))
            .env("TOOLGATE__STORAGE__DATABASE_URL", &self.database_url)
            .output()
            .await
            .expect("the program runs");
        let said = String::from_utf8_lossy(&made.stdout);
        let key = said.split_whitespace().find(|word| word.starts_with("tg_"));
        key.expect("the program prints a key").to_owned()
    }

    fn pid(&self) -> u32 {
        self.child.id().unwrap_or_default()
    }

    /// CPU time of the server and its database.
    pub(crate) fn spent(&self) -> Duration {
        self.spent_alone() + self.spent_by_database()
    }

    /// CPU time of the server.
    pub(crate) fn spent_alone(&self) -> Duration {
        process::spent(self.pid())
    }

    /// CPU time of the whole cluster.
    pub(crate) fn spent_by_database(&self) -> Duration {
        self.postmaster.map_or(Duration::ZERO, |postmaster| {
            process::spent(postmaster) + process::children(postmaster).into_iter().map(process::spent).sum::<Duration>()
        })
    }

    /// Memory of the server alone.
    pub(crate) fn resident_mib(&self) -> f64 {
        process::resident_mib(self.pid())
    }

    /// Kills it, and waits until it is gone.
    pub(crate) async fn kill(&mut self) {
        self.child.kill().await.expect("the server ends");
    }

    /// Starts it again where it was; answers when that began. It may listen only much later.
    pub(crate) fn start_again(&mut self) -> Instant {
        let mut command = command(&self.program, self.database, &self.database_url, self.dir.path(), &self.settings);
        let began = Instant::now();
        self.child = command.spawn().expect("the program starts");
        began
    }

    /// Waits until it listens after it was started again.
    pub(crate) async fn listens(&mut self) {
        (self.url, _) = listening(&mut self.child, false).await;
    }

    /// Ends it; what it wrote is not needed any more.
    pub(crate) async fn stop(mut self) {
        self.kill().await;
        if self.database == Database::Postgres {
            database::drop(&self.database_url).await;
        }
    }
}

fn command(
    program: &Path,
    database: Database,
    database_url: &str,
    dir: &Path,
    settings: &[(&'static str, String)],
) -> Command {
    let mut command = Command::new(program);
    command
        .args(["serve", "--bind", "127.0.0.1:0", "--data-dir"])
        .arg(dir.join("data"))
        .env("TOOLGATE__STORAGE__DATABASE_URL", database_url)
        // Under load many statements are slow, and the log would say so of each.
        .env("RUST_LOG", "error")
        .envs(settings.iter().map(|(name, value)| (name, value)))
        .stdout(Stdio::piped())
        .kill_on_drop(true);
    if database == Database::Memory {
        command.arg("--allow-unsafe-durability");
    }
    command
}

/// Where it listens, and the key that the first start on a database prints.
async fn listening(child: &mut Child, first: bool) -> (String, String) {
    let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
    let (mut url, mut key) = (String::new(), String::new());
    while url.is_empty() || (first && key.is_empty()) {
        let line = lines.next_line().await.expect("its output").expect("the server says where it listens");
        if let Some(at) = line.strip_prefix("listening on ") {
            at.clone_into(&mut url);
        } else if let Some((_, printed)) = line.split_once("shown only now): ") {
            printed.clone_into(&mut key);
        }
    }
    (url, key)
}
