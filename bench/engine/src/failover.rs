//! Two real servers over one database: one with a thousand sessions under way is killed, and the time until each of them
//! has its next event is taken; then the other, which has them all, is told to stop, and the time until it has given all
//! of them away is taken. What is not here: throughput (`load`).

use std::collections::HashMap;
use std::path::Path;
use std::process::{ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde_json::json;
use sqlx::postgres::PgPool;
use sqlx::{Connection, Executor, PgConnection, Row};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// Sessions under way.
const SESSIONS: usize = 1_000;
/// How long the model thinks.
const THINKS: Duration = Duration::from_secs(4);
/// The lease of a node.
const LEASE: Duration = Duration::from_secs(3);
/// The most that a take-over may take beyond the lease, for 99 of 100 sessions.
const BEYOND: Duration = Duration::from_secs(3);
/// The most that giving everything away may take.
const DRAIN: Duration = Duration::from_secs(1);
/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(120);
/// Time between two looks at the database.
const LOOK: Duration = Duration::from_millis(20);

struct Node {
    url: String,
    key: Option<String>,
    child: Child,
    _dir: TempDir,
}

impl Node {
    async fn start(program: &Path, database: &str) -> Self {
        let dir = TempDir::new().expect("a temporary directory");
        let mut child = Command::new(program)
            .args(["serve", "--bind", "127.0.0.1:0", "--data-dir"])
            .arg(dir.path().join("data"))
            .env("TOOLGATE__STORAGE__DATABASE_URL", database)
            .env("TOOLGATE__SESSIONS__LEASE_MS", LEASE.as_millis().to_string())
            .env("TOOLGATE_MASTER_KEY", "5a".repeat(32))
            .env("RUST_LOG", "error")
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the program starts; build it with `cargo build --release`");
        let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let mut url = String::new();
        let mut key = None;
        let saying = async {
            while let Some(line) = lines.next_line().await.expect("its output") {
                if let Some(at) = line.strip_prefix("listening on ") {
                    at.clone_into(&mut url);
                } else if let Some((_, printed)) = line.split_once("shown only now): ") {
                    key = Some(printed.to_owned());
                }
                if key.is_some() {
                    break;
                }
            }
        };
        // Only the first server of a database prints a key.
        let _ = tokio::time::timeout(Duration::from_secs(5), saying).await;
        assert!(!url.is_empty(), "the server says where it listens");
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Self { url, key, child, _dir: dir }
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().expect("it runs").to_string();
        let done = std::process::Command::new("kill").args([name, &pid]).status().expect("`kill` runs");
        assert!(done.success(), "the signal arrives");
    }
}

async fn think() -> Response {
    tokio::time::sleep(THINKS).await;
    let message = json!({"role": "assistant", "content": null, "tool_calls": [
        {"id": "c", "type": "function", "function": {"name": "echo", "arguments": "{}"}}]});
    let answer = json!({"choices": [{"index": 0, "finish_reason": "tool_calls", "message": message}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20}});
    ([("content-type", "application/json")], answer.to_string()).into_response()
}

async fn put_bundle(node: &Node, key: &str, model: &str) {
    let bundle = json!({
        "version": 1,
        "models": {"m": {"provider": "openai", "base_url": model, "model": "stub"}},
        "default_model": "m",
        "default_harness": {"max_steps": 200, "max_tool_calls": 200, "deadline_ms": 3_600_000},
        "tools": {"echo": {"description": "Says its arguments.", "venue": "server", "class": "read", "parameters": {},
            "executor": {"builtin": "echo"}}},
        "profiles": {"default": {"tools": ["echo"]}}
    });
    let request = reqwest::Client::new().put(format!("{}/v1/bundle", node.url)).bearer_auth(key).json(&bundle);
    let answer = request.send().await.expect("the server answers");
    assert!(answer.status().is_success(), "{}", answer.text().await.unwrap_or_default());
}

async fn open_all(node: &Node, key: &str) {
    let client = Arc::new(reqwest::Client::new());
    let starters: Vec<_> = (0..20)
        .map(|_| {
            let (client, url, key) = (Arc::clone(&client), format!("{}/v1/sessions", node.url), key.to_owned());
            tokio::spawn(async move {
                for _ in 0..SESSIONS / 20 {
                    let body = json!({"profile": "default", "prompt": "go on"});
                    let request = client.post(&url).bearer_auth(&key).json(&body);
                    let answer = request.send().await.expect("the server answers");
                    assert!(answer.status().is_success(), "{}", answer.text().await.unwrap_or_default());
                }
            })
        })
        .collect();
    for starter in starters {
        starter.await.expect("sessions start");
    }
}

/// Head and owner of every session.
async fn look(pool: &PgPool) -> HashMap<Vec<u8>, (i64, Option<String>)> {
    let sql = "SELECT uuid_send(session) AS session, head_seq, owner FROM toolgate.session";
    let rows = pool.fetch_all(sql).await.expect("the database answers");
    rows.iter().map(|row| (row.get("session"), (row.get("head_seq"), row.get("owner")))).collect()
}

/// Times until each session meets the condition, sorted.
async fn times(
    pool: &PgPool,
    from: Instant,
    met: impl Fn(&[u8], i64, Option<&str>) -> bool,
) -> Result<Vec<Duration>, String> {
    let mut done: HashMap<Vec<u8>, Duration> = HashMap::new();
    while done.len() < SESSIONS {
        if from.elapsed() > PATIENCE {
            return Err(format!("after {} s only {} of {SESSIONS} sessions", PATIENCE.as_secs(), done.len()));
        }
        let now = look(pool).await;
        let at = from.elapsed();
        for (session, (head, owner)) in now {
            if met(&session, head, owner.as_deref()) {
                done.entry(session).or_insert(at);
            }
        }
        tokio::time::sleep(LOOK).await;
    }
    let mut times: Vec<Duration> = done.into_values().collect();
    times.sort_unstable();
    Ok(times)
}

fn share(times: &[Duration], percent: usize) -> Duration {
    let at = (times.len() * percent).div_ceil(100).saturating_sub(1);
    times.get(at).copied().unwrap_or_default()
}

async fn fresh(cluster: &str) -> String {
    let mut connection = PgConnection::connect(cluster).await.expect("the cluster answers");
    let name = format!("failover_{}", std::process::id());
    connection.execute(sqlx::AssertSqlSafe(format!("CREATE DATABASE {name}"))).await.expect("a database is made");
    let mut url = url::Url::parse(cluster).expect("a URL");
    url.set_path(&name);
    url.to_string()
}

pub(crate) async fn run(program: &Path, cluster: &str) -> ExitCode {
    match measured(program, cluster).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            println!("does not hold: {why}");
            ExitCode::FAILURE
        }
    }
}

async fn measured(program: &Path, cluster: &str) -> Result<bool, String> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let model = format!("http://{}/v1", listener.local_addr().expect("an address"));
    let router = Router::new().route("/v1/chat/completions", post(think));
    tokio::spawn(async move { axum::serve(listener, router).await });
    let database = fresh(cluster).await;
    let one = Node::start(program, &database).await;
    let key = one.key.clone().expect("the first server prints a key");
    put_bundle(&one, &key, &model).await;
    let two = Node::start(program, &database).await;
    let pool = PgPool::connect(&database).await.expect("the database answers");
    open_all(&one, &key).await;
    // Every session has taken a step by then.
    times(&pool, Instant::now(), |_, head, _| head >= 4).await?;
    let before = look(&pool).await;
    let owner = before.values().next().and_then(|(_, owner)| owner.clone()).ok_or("the sessions have an owner")?;

    one.signal("-KILL");
    let killed = Instant::now();
    // What the killed one had sent to the database may still be committed.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let before = look(&pool).await;
    let next = times(&pool, killed, |session, head, now| {
        now != Some(owner.as_str()) && before.get(session).is_some_and(|(old, _)| head > *old)
    })
    .await?;
    let failover = (share(&next, 50), share(&next, 99), share(&next, 100));

    let three = Node::start(program, &database).await;
    // The newcomer is known, and the sessions are at work.
    let ready = reqwest::get(format!("{}/readyz", three.url)).await.map_err(|error| error.to_string())?;
    assert!(ready.status().is_success(), "the third server is ready");
    tokio::time::sleep(Duration::from_secs(2)).await;
    let holder = look(&pool).await.values().find_map(|(_, owner)| owner.clone()).ok_or("nobody owns a session")?;
    two.signal("-TERM");
    let told = Instant::now();
    let (left, taken) = tokio::join!(
        times(&pool, told, |_, _, now| now != Some(holder.as_str())),
        times(&pool, told, |_, _, now| now.is_some_and(|now| now != holder)),
    );
    let (left, taken) = (left?, taken?);

    println!("sessions {SESSIONS}, lease {} ms, model {} ms", LEASE.as_millis(), THINKS.as_millis());
    let bound = LEASE + BEYOND;
    let holds = failover.1 <= bound;
    println!(
        "kill -9 to next event: p50 {} ms, p99 {} ms, most {} ms (p99 at most {} ms: {})",
        failover.0.as_millis(),
        failover.1.as_millis(),
        failover.2.as_millis(),
        bound.as_millis(),
        word(holds)
    );
    let drained = share(&left, 100) <= DRAIN;
    println!(
        "SIGTERM to given away: p50 {} ms, all {} ms (at most {} ms: {})",
        share(&left, 50).as_millis(),
        share(&left, 100).as_millis(),
        DRAIN.as_millis(),
        word(drained)
    );
    println!(
        "SIGTERM to at work elsewhere: p50 {} ms, p99 {} ms, most {} ms (no bound)",
        share(&taken, 50).as_millis(),
        share(&taken, 99).as_millis(),
        share(&taken, 100).as_millis()
    );
    Ok(holds && drained)
}

const fn word(holds: bool) -> &'static str {
    if holds { "holds" } else { "does not hold" }
}
