//! Databases for cells: a durable PostgreSQL cluster (the given one, or one of its own) with one migrated template, copied
//! for each cell. SQLite files need nothing.

use std::path::{Path, PathBuf};
use std::process::Command;

use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, Row};
use tempfile::TempDir;
use toolgate_store::{PostgresOptions, PostgresStore};

/// The variable that names the cluster of the tests.
const POSTGRES_VARIABLE: &str = "TOOLGATE_TEST_POSTGRES_URL";

/// A cluster whose acknowledged rows survive.
pub(super) struct Cluster {
    url: String,
    template: String,
    own: Option<TempDir>,
}

impl Cluster {
    /// The cluster of the tests when it runs with fsync, else one that is started here and removed at the end.
    pub(super) async fn durable() -> Self {
        let given = std::env::var(POSTGRES_VARIABLE).unwrap_or_default();
        let (url, own) = if !given.is_empty() && is_durable(&given).await { (given, None) } else { start() };
        let template = format!("kill_{}", std::process::id());
        let cluster = Self { url, template, own };
        cluster.make(&format!("CREATE DATABASE {}", cluster.template)).await;
        let store = PostgresStore::open(&cluster.url_of(&cluster.template), &PostgresOptions::default()).await.unwrap();
        store.close().await;
        cluster
    }

    /// A database for a cell: brought up to date, unless the cell is about that.
    pub(super) async fn database(&self, name: &str, migrated: bool) -> String {
        let template = if migrated { self.template.as_str() } else { "template0" };
        self.make(&format!("CREATE DATABASE {name} TEMPLATE {template}")).await;
        self.url_of(name)
    }

    pub(super) async fn drop_database(&self, name: &str) {
        self.make(&format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await;
    }

    async fn make(&self, statement: &str) {
        let mut connection = PgConnection::connect(&self.url).await.expect("the cluster answers");
        connection.execute(AssertSqlSafe(statement.to_owned())).await.unwrap();
        connection.close().await.unwrap();
    }

    fn url_of(&self, name: &str) -> String {
        let (server, _) = self.url.rsplit_once('/').unwrap();
        format!("{server}/{name}")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Some(dir) = &self.own {
            let _ = postgres(&["stop", &dir.path().join("pg").display().to_string()]);
        }
    }
}

async fn is_durable(url: &str) -> bool {
    let mut connection = PgConnection::connect(url).await.expect("the test cluster answers");
    let sql = "SELECT current_setting('fsync') = 'on' AND current_setting('synchronous_commit') = 'on' AS durable";
    let row = connection.fetch_one(sql).await.unwrap();
    row.get("durable")
}

fn start() -> (String, Option<TempDir>) {
    let dir = TempDir::new().unwrap();
    // PostgreSQL runs as another user, who must find its folder.
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    drop(listener);
    let output = postgres(&["start", &dir.path().join("pg").display().to_string(), &port]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    (String::from_utf8(output.stdout).unwrap().trim().to_owned(), Some(dir))
}

fn postgres(arguments: &[&str]) -> std::process::Output {
    let script = root().join("scripts/postgres");
    Command::new(script).args(arguments).env("PG_DURABLE", "1").output().unwrap()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Migrations of a database: the ones that a crash can fall into.
pub(super) fn migrations(folder: &str) -> u64 {
    std::fs::read_dir(root().join("migrations").join(folder)).unwrap().count() as u64
}
