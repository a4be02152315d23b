//! Databases of a run: made fresh, dropped at the end, and whose process they belong to. What is not here: what is in them.

use sqlx::{Connection, Executor, PgConnection, Row};
use url::Url;

/// A new database in the cluster, and the process id of the cluster's first process.
pub(crate) async fn fresh(cluster: &str) -> (String, u32) {
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

/// Removes a database that nobody needs any more, whoever is still connected.
pub(crate) async fn drop(url: &str) {
    let mut cluster = Url::parse(url).expect("a URL");
    let name = cluster.path().trim_start_matches('/').to_owned();
    cluster.set_path("postgres");
    let mut connection = PgConnection::connect(cluster.as_str()).await.expect("the cluster answers");
    let remove = format!("DROP DATABASE {name} WITH (FORCE)");
    connection.execute(sqlx::AssertSqlSafe(remove)).await.expect("the database is dropped");
}

/// A connection to it.
pub(crate) async fn connect(url: &str) -> PgConnection {
    PgConnection::connect(url).await.expect("the database answers")
}

/// The one number that a query answers.
pub(crate) async fn number(connection: &mut PgConnection, sql: &'static str) -> i64 {
    connection.fetch_one(sql).await.expect("the query runs").get(0)
}
