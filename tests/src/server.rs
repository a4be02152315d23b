//! A real server for one test. What is not here: what is asked of it (`caller`).

use std::time::Duration;

use secrecy::ExposeSecret;
use sqlx::{Connection, Executor};
use tempfile::TempDir;
use toolgate_server::config::Settings;
use toolgate_server::node::Node;

use crate::caller::Caller;

/// The variable that names the PostgreSQL cluster of the tests; `scripts/test` starts one and sets it.
const POSTGRES_VARIABLE: &str = "TOOLGATE_TEST_POSTGRES_URL";

/// The database under a test server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// The embedded file.
    Sqlite,
    /// A database of its own in the test cluster.
    Postgres,
}

/// A server on a free port. Dropping it stops nothing gracefully; call `stop` where that matters.
pub struct TestServer {
    dir: TempDir,
    database_url: String,
    node: Option<Node>,
    key: String,
}

impl TestServer {
    /// Starts over a fresh database.
    pub async fn start(backend: Backend) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let dir = TempDir::new().expect("a temporary directory");
        let database_url = match backend {
            Backend::Sqlite => String::new(),
            Backend::Postgres => fresh_database().await,
        };
        let mut server = Self { dir, database_url, node: None, key: String::new() };
        server.launch().await;
        server
    }

    /// Starts over SQLite with this bundle, and answers the caller with every scope.
    pub async fn with_bundle(bundle: &serde_json::Value) -> (Self, Caller) {
        let server = Self::start(Backend::Sqlite).await;
        let caller = server.caller();
        caller.put_bundle(bundle).await;
        (server, caller)
    }

    async fn launch(&mut self) {
        let overrides = [
            ("server.bind", "127.0.0.1:0".to_owned()),
            ("server.metrics_bind", "127.0.0.1:0".to_owned()),
            ("storage.data_dir", self.dir.path().join("data").display().to_string()),
            ("storage.database_url", self.database_url.clone()),
            // The test cluster runs without fsync; crash tests start their own server.
            ("storage.allow_unsafe_durability", "true".to_owned()),
            ("tools.addresses", "private".to_owned()),
        ];
        let settings = Settings::load(None, &overrides).expect("settings");
        let node = Node::start(&settings).await.expect("the server starts");
        if let Some(key) = &node.first_key {
            key.expose_secret().clone_into(&mut self.key);
        }
        self.node = Some(node);
    }

    /// Stops gracefully and starts again over the same database, on another port.
    pub async fn restart(&mut self) {
        self.halt().await;
        self.launch().await;
    }

    /// Stops gracefully.
    pub async fn stop(mut self) {
        self.halt().await;
    }

    /// Stops gracefully, and keeps the database for those who look at it.
    pub async fn halt(&mut self) {
        if let Some(node) = self.node.take() {
            tokio::time::timeout(Duration::from_secs(30), node.stop()).await.expect("the server stops in time");
        }
    }

    /// The running node.
    #[must_use]
    pub fn node(&self) -> &Node {
        self.node.as_ref().expect("the server runs")
    }

    /// `http://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.node().addr)
    }

    /// The figures for operators, as text.
    pub async fn metrics(&self) -> String {
        let addr = self.node().metrics_addr.expect("the figures are served");
        let answer = reqwest::get(format!("http://{addr}/metrics")).await.expect("the figures");
        assert_eq!(answer.status(), 200);
        assert_eq!(answer.headers()["content-type"], "text/plain; version=0.0.4; charset=utf-8");
        answer.text().await.expect("text")
    }

    /// The first key, with every scope.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// A caller with the first key.
    #[must_use]
    pub fn caller(&self) -> Caller {
        Caller::new(self.url(), self.key.clone())
    }

    /// The PostgreSQL URL; empty over SQLite.
    #[must_use]
    pub fn database_url(&self) -> &str {
        &self.database_url
    }

    /// The data directory.
    #[must_use]
    pub fn data_dir(&self) -> std::path::PathBuf {
        self.dir.path().join("data")
    }
}

/// A copy of a stopped server's database, gone when dropped (SQLite) or with the cluster (PostgreSQL).
pub struct DatabaseCopy {
    dir: TempDir,
    database_url: String,
}

impl DatabaseCopy {
    /// The data directory of the copy.
    #[must_use]
    pub fn data_dir(&self) -> &std::path::Path {
        self.dir.path()
    }

    /// The PostgreSQL URL of the copy; empty over SQLite.
    #[must_use]
    pub fn database_url(&self) -> &str {
        &self.database_url
    }
}

/// Copies the database of a stopped server, keys included.
pub async fn copy_database(server: &TestServer) -> DatabaseCopy {
    let dir = TempDir::new().expect("a temporary directory");
    for entry in std::fs::read_dir(server.data_dir()).expect("the data directory") {
        let entry = entry.expect("an entry");
        std::fs::copy(entry.path(), dir.path().join(entry.file_name())).expect("a copy");
    }
    let database_url = match server.database_url() {
        "" => String::new(),
        url => clone_database(url).await,
    };
    DatabaseCopy { dir, database_url }
}

async fn clone_database(url: &str) -> String {
    let mut parsed = url::Url::parse(url).expect("a URL");
    let template = parsed.path().trim_start_matches('/').to_owned();
    let name = fresh_name();
    let mut connection = sqlx::PgConnection::connect(&cluster()).await.expect("the test cluster answers");
    let statement = format!("CREATE DATABASE {name} TEMPLATE {template}");
    connection.execute(sqlx::AssertSqlSafe(statement)).await.expect("a copy of the database");
    parsed.set_path(&name);
    parsed.to_string()
}

/// A new empty database in the test cluster.
pub async fn fresh_database() -> String {
    let url = cluster();
    let name = fresh_name();
    let mut connection = sqlx::PgConnection::connect(&url).await.expect("the test cluster answers");
    let statement = format!("CREATE DATABASE {name}");
    connection.execute(sqlx::AssertSqlSafe(statement)).await.expect("a database for the test");
    let mut parsed = url::Url::parse(&url).expect("a URL");
    parsed.set_path(&name);
    parsed.to_string()
}

fn cluster() -> String {
    std::env::var(POSTGRES_VARIABLE).unwrap_or_else(|_| {
        panic!("{POSTGRES_VARIABLE} is not set: run `scripts/test`, which starts a PostgreSQL cluster for the tests")
    })
}

fn fresh_name() -> String {
    format!("e2e_{}", toolgate_server::clock::new_session_id().uuid().simple())
}
