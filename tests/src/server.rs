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

    async fn halt(&mut self) {
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

    /// The data directory.
    #[must_use]
    pub fn data_dir(&self) -> std::path::PathBuf {
        self.dir.path().join("data")
    }
}

/// A new empty database in the test cluster.
pub async fn fresh_database() -> String {
    let url = std::env::var(POSTGRES_VARIABLE).unwrap_or_else(|_| {
        panic!("{POSTGRES_VARIABLE} is not set: run `scripts/test`, which starts a PostgreSQL cluster for the tests")
    });
    let mut name = [0_u8; 8];
    getrandom_fill(&mut name);
    let name = format!("e2e_{}", hex::encode(name));
    let mut connection = sqlx::PgConnection::connect(&url).await.expect("the test cluster answers");
    let statement = format!("CREATE DATABASE {name}");
    connection.execute(sqlx::AssertSqlSafe(statement)).await.expect("a database for the test");
    let mut parsed = url::Url::parse(&url).expect("a URL");
    parsed.set_path(&name);
    parsed.to_string()
}

/// Random bytes by way of a hash of a fresh session id: the tests need uniqueness, not secrecy.
fn getrandom_fill(bytes: &mut [u8]) {
    let id = toolgate_server::clock::new_session_id().to_string();
    let digest = toolgate_core::id::Sha256Digest::of(id.as_bytes());
    bytes.iter_mut().zip(digest.as_bytes()).for_each(|(to, from)| *to = *from);
}
