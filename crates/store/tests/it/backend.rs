//! One store of each kind, fresh for each test.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use sqlx::Connection as _;
use sqlx::{AssertSqlSafe, PgConnection, SqliteConnection};
use tempfile::TempDir;
use tokio::sync::{Mutex, OnceCell};
use toolgate_store::{MemoryStore, PostgresOptions, PostgresStore, SqliteStore, Store, Unsafe};

/// A fresh store, and the way past it that a tampering operator has.
pub(crate) struct Backend {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) raw: Raw,
}

/// How to reach the database without the store.
pub(crate) enum Raw {
    Memory,
    Sqlite(TempDir),
    Postgres(String),
}

static TEMPLATE: OnceCell<String> = OnceCell::const_new();
static CREATING: Mutex<()> = Mutex::const_new(());
static COUNT: AtomicU32 = AtomicU32::new(0);

/// The cluster's URL.
pub(crate) fn cluster() -> String {
    std::env::var("TOOLGATE_TEST_POSTGRES_URL").unwrap_or_else(|_| {
        panic!(
            "TOOLGATE_TEST_POSTGRES_URL is not set: start a throw-away cluster with `scripts/postgres start DIR PORT` \
             and set the variable to the URL it prints (`scripts/test` does both)"
        )
    })
}

/// The URL of another database of the cluster.
pub(crate) fn database_url(name: &str) -> String {
    let url = cluster();
    let (server, _) = url.rsplit_once('/').expect("the URL names a database");
    format!("{server}/{name}")
}

/// The options for a cluster that runs without fsync.
pub(crate) fn options() -> PostgresOptions {
    PostgresOptions { max_connections: 8, unsafe_settings: Unsafe::Accept, ..PostgresOptions::default() }
}

/// Runs SQL at the cluster as its superuser.
pub(crate) async fn at_cluster(sql: String) {
    let mut conn = PgConnection::connect(&cluster()).await.expect("the cluster answers");
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut conn).await.unwrap();
    conn.close().await.unwrap();
}

fn fresh_name() -> String {
    format!("tg_{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Makes an empty database and gives its URL.
pub(crate) async fn empty_database() -> String {
    let name = fresh_name();
    let _one = CREATING.lock().await;
    at_cluster(format!("CREATE DATABASE {name}")).await;
    database_url(&name)
}

async fn migrated_database() -> String {
    let template = TEMPLATE
        .get_or_init(|| async {
            let url = empty_database().await;
            PostgresStore::open(&url, &options()).await.unwrap().close().await;
            url.rsplit_once('/').unwrap().1.to_owned()
        })
        .await;
    let name = fresh_name();
    let _one = CREATING.lock().await;
    at_cluster(format!("CREATE DATABASE {name} TEMPLATE {template}")).await;
    database_url(&name)
}

impl Backend {
    pub(crate) fn memory() -> Self {
        Self { store: Arc::new(MemoryStore::new()), raw: Raw::Memory }
    }

    pub(crate) async fn sqlite() -> Self {
        let dir = TempDir::new().unwrap();
        let store = SqliteStore::open(&dir.path().join("log.sqlite")).await.unwrap();
        Self { store: Arc::new(store), raw: Raw::Sqlite(dir) }
    }

    pub(crate) async fn postgres() -> Self {
        let url = migrated_database().await;
        let store = PostgresStore::open(&url, &options()).await.unwrap();
        Self { store: Arc::new(store), raw: Raw::Postgres(url) }
    }

    /// A second store over the same database, as another process would have; the same store in memory.
    pub(crate) async fn second(&self) -> Arc<dyn Store> {
        match &self.raw {
            Raw::Memory => Arc::clone(&self.store),
            Raw::Sqlite(dir) => Arc::new(SqliteStore::open(&dir.path().join("log.sqlite")).await.unwrap()),
            Raw::Postgres(url) => Arc::new(PostgresStore::open(url, &options()).await.unwrap()),
        }
    }

    /// Runs SQL past the store, as an operator could.
    pub(crate) async fn operator(&self, sql: &str) -> Result<u64, sqlx::Error> {
        self.raw.operator(sql).await
    }
}

/// A database of a test goes with the test: a run makes about a hundred, of 8 MB each.
impl Drop for Raw {
    fn drop(&mut self) {
        let Self::Postgres(url) = self else { return };
        let Some((_, name)) = url.rsplit_once('/') else { return };
        let sql = format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)");
        // The test's own runtime is busy dropping this; a failure here must not hide that of the test.
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let mut conn = PgConnection::connect(&cluster()).await.map_err(std::io::Error::other)?;
                sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut conn).await.map_err(std::io::Error::other)
            })
        });
        let _ = dropping.join();
    }
}

impl Raw {
    async fn operator(&self, sql: &str) -> Result<u64, sqlx::Error> {
        match self {
            Self::Memory => panic!("memory has no operator"),
            Self::Sqlite(dir) => {
                let path = dir.path().join("log.sqlite");
                let mut conn = SqliteConnection::connect(path.to_str().unwrap()).await?;
                sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut conn).await.map(|done| done.rows_affected())
            }
            Self::Postgres(url) => {
                let mut conn = PgConnection::connect(url).await?;
                sqlx::raw_sql("SET search_path = toolgate").execute(&mut conn).await?;
                let done = sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut conn).await;
                conn.close().await?;
                done.map(|done| done.rows_affected())
            }
        }
    }
}
