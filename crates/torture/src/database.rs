//! The database of a run: a throw-away PostgreSQL cluster with fsync on that is crashed and started again or fails over to a
//! synchronous copy, or the SQLite file of the one node; and reading it, beside the program under test. What is not here: judging what was read (`check`).

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use sqlx::postgres::{PgPool, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool, SqlitePoolOptions};
use tempfile::TempDir;
use tokio::process::Command;
use tokio::sync::Mutex;

use crate::evidence::{Digest, Row};
use crate::road::Road;

/// How long a statement of the driver waits for a connection.
const ACQUIRE: Duration = Duration::from_secs(5);

/// One server of PostgreSQL, in a folder of its own.
#[derive(Debug)]
struct Server {
    script: PathBuf,
    dir: TempDir,
    port: u16,
}

impl Server {
    /// A place for one that does not run yet.
    fn place(script: &Path) -> Self {
        let dir = TempDir::new().expect("a temporary directory");
        // PostgreSQL runs as another user, who must find its folder.
        std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .expect("its folder is this program's own");
        let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port");
        Self { script: script.to_owned(), dir, port: free.port() }
    }

    async fn run(&self, command: &str, ports: &[u16]) {
        let output = Command::new(&self.script)
            .arg(command)
            .arg(self.dir.path().join("pg"))
            .args(ports.iter().map(u16::to_string))
            .env("PG_DURABLE", "1")
            .stdin(Stdio::null())
            .output()
            .await
            .expect("`scripts/postgres` runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "scripts/postgres {command}: {said}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let stop = std::process::Command::new(&self.script).arg("stop").arg(self.dir.path().join("pg")).output();
        if let Err(error) = stop {
            println!("a database was not stopped: {error}");
        }
    }
}

/// A PostgreSQL cluster of the run's own; with a synchronous copy, if wanted, that takes over when the first one is lost.
#[derive(Debug)]
pub struct Cluster {
    road: Road,
    primary: Mutex<Server>,
    copy: Mutex<Option<Server>>,
}

impl Cluster {
    /// Starts one with `scripts/postgres`.
    pub async fn start(scripts: &Path, copied: bool) -> Self {
        let script = std::fs::canonicalize(scripts.join("postgres")).expect("`scripts/postgres`; name its folder");
        let primary = Server::place(&script);
        primary.run("start", &[primary.port]).await;
        let road = Road::to(primary.port).await;
        let cluster = Self { road, primary: Mutex::new(primary), copy: Mutex::new(None) };
        if copied {
            // From here on nothing is committed that no copy has on disk. Before the copy is made: it takes the setting over with
            // the folder, and waits for a copy of its own once it is the primary.
            let pool =
                PgPoolOptions::new().max_connections(1).connect(&cluster.url()).await.expect("the cluster answers");
            for statement in ["ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()"] {
                sqlx::query(statement).execute(&pool).await.expect("its settings");
            }
            pool.close().await;
            let copy = copy_of(&*cluster.primary.lock().await).await;
            *cluster.copy.lock().await = Some(copy);
        }
        cluster
    }

    /// Where the primary is found.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.road.port())
    }

    /// Stops the primary as a power cut would.
    pub async fn crash(&self) {
        self.primary.lock().await.run("crash", &[]).await;
    }

    /// Starts it again; it answers when this returns.
    pub async fn restart(&self) {
        self.primary.lock().await.run("restart", &[]).await;
    }

    /// The primary is lost for good after a crash: the copy takes its place, and gets a copy of its own.
    pub async fn fail_over(&self) {
        let mut copy = self.copy.lock().await;
        let Some(next) = copy.take() else { return };
        next.run("promote", &[]).await;
        self.road.turn(next.port);
        // Without it what is acknowledged could be lost with the next primary, and every fault found would be the test's own.
        assert_eq!(synchronous(next.port).await, "*", "the new primary waits for its copy");
        let fresh = copy_of(&next).await;
        *self.primary.lock().await = next;
        *copy = Some(fresh);
    }
}

/// The copies that a cluster waits for.
async fn synchronous(port: u16) -> String {
    let url = format!("postgres://postgres@127.0.0.1:{port}/postgres");
    let pool = PgPoolOptions::new().max_connections(1).connect(&url).await.expect("the cluster answers");
    let names = sqlx::query_scalar("SHOW synchronous_standby_names").fetch_one(&pool).await.expect("its setting");
    pool.close().await;
    names
}

/// A streaming copy, made from what the primary has now.
async fn copy_of(primary: &Server) -> Server {
    let copy = Server::place(&primary.script);
    copy.run("standby", &[copy.port, primary.port]).await;
    copy
}

/// A reader of the tables.
#[derive(Debug, Clone)]
pub enum Reader {
    /// PostgreSQL.
    Postgres(PgPool),
    /// The file.
    Sqlite(SqlitePool),
}

/// A session's own row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// The session as the API names it.
    pub session: String,
    /// The number of its last row.
    pub seq: u64,
    /// Its hash.
    pub hash: Digest,
    /// Whether work is under way.
    pub active: bool,
}

/// One form for both: ids as hex digits, numbers and bytes as they are.
const HEADS: [&str; 2] = [
    "SELECT replace(session::text, '-', '') AS session, head_seq, head_hash, active::int::bigint AS active FROM toolgate.session",
    "SELECT lower(hex(session)) AS session, head_seq, head_hash, active FROM session",
];
const ROWS: [&str; 2] = [
    "SELECT seq, epoch, kind, call, allow::int::bigint AS allow, dispatch_attempt, prev_hash, hash FROM toolgate.event
     WHERE session = $1::uuid ORDER BY seq",
    "SELECT seq, epoch, kind, call, allow, dispatch_attempt, prev_hash, hash FROM event
     WHERE session = unhex($1) ORDER BY seq",
];
/// Inputs that nobody has answered yet.
const INBOX: &str = "SELECT count(*) FROM toolgate.inbox WHERE answered_at IS NULL";
/// Sessions that a node owns in its present life; those of an earlier one are nobody's.
const OWNED: &str = "SELECT s.session::text || ' ' || s.status || CASE WHEN s.active THEN ' at work' ELSE '' END
     FROM toolgate.session s JOIN toolgate.node n ON n.node = s.owner AND n.incarnation = s.owner_incarnation
     WHERE n.node = $1";
/// All connections but this one.
const CUT: &str = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
     WHERE datname = current_database() AND pid <> pg_backend_pid() AND usename IS NOT NULL";

/// Before the hex digits of a session's id.
const PREFIX: &str = "ses_";

type HeadColumns = (String, i64, Vec<u8>, i64);

impl Reader {
    /// Reads the cluster. It connects when it is asked.
    pub fn postgres(url: &str) -> Self {
        let pool = PgPoolOptions::new().max_connections(4).acquire_timeout(ACQUIRE).connect_lazy(url);
        Self::Postgres(pool.expect("the URL of the cluster"))
    }

    /// Reads a file that a node writes.
    pub fn sqlite(file: &Path) -> Self {
        let options = SqliteConnectOptions::new().filename(file).read_only(true).busy_timeout(ACQUIRE);
        Self::Sqlite(SqlitePoolOptions::new().max_connections(2).acquire_timeout(ACQUIRE).connect_lazy_with(options))
    }

    /// Where every session stands.
    pub async fn heads(&self) -> Result<Vec<Head>, sqlx::Error> {
        let rows: Vec<HeadColumns> = match self {
            Self::Postgres(pool) => sqlx::query_as(HEADS[0]).fetch_all(pool).await?,
            Self::Sqlite(pool) => sqlx::query_as(HEADS[1]).fetch_all(pool).await?,
        };
        let head = |(session, seq, hash, active): HeadColumns| Head {
            session: format!("{PREFIX}{session}"),
            seq: seq.unsigned_abs(),
            hash: bytes(&hash),
            active: active != 0,
        };
        Ok(rows.into_iter().map(head).collect())
    }

    /// All rows of a session.
    pub async fn rows(&self, session: &str) -> Result<Vec<Row>, sqlx::Error> {
        let id = session.trim_start_matches(PREFIX);
        match self {
            Self::Postgres(pool) => {
                let rows = sqlx::query(ROWS[0]).bind(id).fetch_all(pool).await?;
                rows.iter().map(row).collect()
            }
            Self::Sqlite(pool) => {
                let rows = sqlx::query(ROWS[1]).bind(id).fetch_all(pool).await?;
                rows.iter().map(row).collect()
            }
        }
    }

    /// Inputs that wait in inboxes; SQLite's one node has none.
    pub async fn waiting(&self) -> Result<i64, sqlx::Error> {
        match self {
            Self::Postgres(pool) => sqlx::query_scalar(INBOX).fetch_one(pool).await,
            Self::Sqlite(_) => Ok(0),
        }
    }

    /// Sessions that a node owns now, each in words.
    pub async fn owned(&self, node: &str) -> Result<Vec<String>, sqlx::Error> {
        match self {
            Self::Postgres(pool) => sqlx::query_scalar(OWNED).bind(node).fetch_all(pool).await,
            Self::Sqlite(_) => Ok(Vec::new()),
        }
    }

    /// Drops every connection to the database, except where there are none.
    pub async fn cut(&self) -> Result<i64, sqlx::Error> {
        match self {
            Self::Postgres(pool) => sqlx::query_scalar(CUT).fetch_one(pool).await,
            Self::Sqlite(_) => Ok(0),
        }
    }

    /// Ends its connections.
    pub async fn close(&self) {
        match self {
            Self::Postgres(pool) => pool.close().await,
            Self::Sqlite(pool) => pool.close().await,
        }
    }
}

fn bytes(column: &[u8]) -> Digest {
    // The tables hold nothing else than 32 bytes here.
    column.try_into().unwrap_or_default()
}

fn row<'r, R>(row: &'r R) -> Result<Row, sqlx::Error>
where
    R: sqlx::Row,
    &'static str: sqlx::ColumnIndex<R>,
    i64: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database>,
    String: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database>,
    Vec<u8>: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database>,
    Option<i64>: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database>,
    Option<String>: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database>,
{
    Ok(Row {
        seq: row.try_get::<i64, _>("seq")?.unsigned_abs(),
        epoch: row.try_get::<i64, _>("epoch")?.unsigned_abs(),
        kind: row.try_get("kind")?,
        call: row.try_get("call")?,
        allow: row.try_get::<i64, _>("allow")? != 0,
        dispatch: row.try_get::<Option<i64>, _>("dispatch_attempt")?.map(i64::unsigned_abs),
        prev_hash: bytes(&row.try_get::<Vec<u8>, _>("prev_hash")?),
        hash: bytes(&row.try_get::<Vec<u8>, _>("hash")?),
    })
}
