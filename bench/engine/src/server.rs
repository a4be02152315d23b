//! The server under load: the program as users start it, over a fresh database. What is not here: the load (`load`).

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::json;
use sqlx::{Connection, Executor, PgConnection, Row};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use url::Url;

use crate::model::Model;
use crate::process;

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

/// A running server.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) url: String,
    pub(crate) key: String,
    pub(crate) database_url: String,
    child: Child,
    /// The database's first process, where it is another one than the server.
    postmaster: Option<u32>,
    _dir: TempDir,
}

impl Server {
    pub(crate) async fn start(program: &Path, database: Database, cluster: &str, model: &Model) -> Self {
        let dir = TempDir::new().expect("a temporary directory");
        let (database_url, postmaster) = match database {
            Database::Memory => ("memory:".to_owned(), None),
            Database::Sqlite => (String::new(), None),
            Database::Postgres => {
                let (url, pid) = fresh(cluster).await;
                (url, Some(pid))
            }
        };
        let mut command = Command::new(program);
        command
            .args(["serve", "--bind", "127.0.0.1:0", "--data-dir"])
            .arg(dir.path().join("data"))
            .env("TOOLGATE__STORAGE__DATABASE_URL", &database_url)
            .env("RUST_LOG", "warn")
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        if database == Database::Memory {
            command.arg("--allow-unsafe-durability");
        }
        let mut child = command.spawn().expect("the program starts; build it with `cargo build --release`");
        let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let (mut url, mut key) = (String::new(), String::new());
        while url.is_empty() || key.is_empty() {
            let line = lines.next_line().await.expect("its output").expect("the server says where it listens");
            if let Some(at) = line.strip_prefix("listening on ") {
                at.clone_into(&mut url);
            } else if let Some((_, printed)) = line.split_once("shown only now): ") {
                printed.clone_into(&mut key);
            }
        }
        let server = Self { url, key, database_url, child, postmaster, _dir: dir };
        server.put_bundle(model).await;
        server
    }

    async fn put_bundle(&self, model: &Model) {
        let bundle = json!({
            "version": 1,
            "models": {"m": {"provider": "openai", "base_url": model.base_url, "model": "stub"}},
            "default_model": "m",
            "default_harness": {"max_steps": 20, "max_tool_calls": 20, "deadline_ms": 600_000},
            "tools": {"echo": {"description": "Says its arguments.", "venue": "server", "class": "read",
                "executor": {"builtin": "echo"},
                "parameters": {"type": "object", "required": ["n", "text"], "additionalProperties": false,
                    "properties": {"n": {"type": "integer", "minimum": 0}, "text": {"type": "string", "maxLength": 1_000}}}}},
            "policies": {
                "arguments": {"small": {"on": {"tools": ["echo"]}, "argument": "/n", "max": 100}},
                "totals": {"few": {"on": {"tools": ["echo"]}, "max_count": 100, "scope": "run"}},
                "cedar": {"main": {"text": "permit(principal, action == Action::\"echo\", resource) when {context.input.n < 100};"}}
            },
            "profiles": {"default": {"tools": ["echo"]}}
        });
        let client = reqwest::Client::new();
        let request = client.put(format!("{}/v1/bundle", self.url)).bearer_auth(&self.key).json(&bundle);
        let answer = request.send().await.expect("the server answers");
        assert!(answer.status().is_success(), "{}", answer.text().await.unwrap_or_default());
    }

    fn pid(&self) -> u32 {
        self.child.id().unwrap_or_default()
    }

    /// CPU time of the server and its database.
    pub(crate) fn spent(&self) -> Duration {
        let database = self.postmaster.map_or(Duration::ZERO, |postmaster| {
            process::spent(postmaster) + process::children(postmaster).into_iter().map(process::spent).sum::<Duration>()
        });
        process::spent(self.pid()) + database
    }

    /// Memory of the server alone.
    pub(crate) fn resident_mib(&self) -> f64 {
        process::resident_mib(self.pid())
    }

    /// Ends it; what it wrote is not needed any more.
    pub(crate) async fn stop(mut self) {
        self.child.kill().await.expect("the server ends");
    }
}

/// A new database in the cluster, and the process id of the cluster's first process.
async fn fresh(cluster: &str) -> (String, u32) {
    let mut connection = PgConnection::connect(cluster).await.expect("the cluster answers");
    let name = format!("bench_{}_{}", std::process::id(), std::time::UNIX_EPOCH.elapsed().map_or(0, |t| t.as_millis()));
    let make = format!("CREATE DATABASE {name}");
    connection.execute(sqlx::AssertSqlSafe(make)).await.expect("a database is made");
    // What was written before must not be flushed while something is measured.
    connection.execute("CHECKPOINT").await.expect("a checkpoint");
    let own: i32 = connection.fetch_one("SELECT pg_backend_pid()").await.expect("its process").get(0);
    let stat = std::fs::read_to_string(format!("/proc/{own}/stat")).expect("the cluster is on this machine");
    let parent =
        stat.rsplit_once(") ").and_then(|(_, fields)| fields.split(' ').nth(1)).and_then(|pid| pid.parse().ok());
    let mut url = Url::parse(cluster).expect("a URL");
    url.set_path(&name);
    (url.to_string(), parent.expect("a parent"))
}
