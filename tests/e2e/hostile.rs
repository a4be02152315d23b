//! What befalls a server from outside: a database that is away, and comes back. Kills of the whole process are in the
//! tests of the program.

use std::sync::Arc;

use secrecy::ExposeSecret;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use toolgate_server::config::Settings;
use toolgate_server::node::Node;
use toolgate_tests::server::fresh_database;
use toolgate_tests::{Caller, FakeTool, WAIT};
use url::Url;

/// A road to the database that can be cut and mended.
struct Road {
    url: String,
    open: Arc<watch::Sender<bool>>,
}

impl Road {
    async fn to(database_url: &str) -> Self {
        let mut url = Url::parse(database_url).unwrap();
        let target = format!("{}:{}", url.host_str().unwrap(), url.port().unwrap_or(5432));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        url.set_host(Some("127.0.0.1")).unwrap();
        url.set_port(Some(listener.local_addr().unwrap().port())).unwrap();
        let open = Arc::new(watch::Sender::new(true));
        let gate = Arc::clone(&open);
        tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let mut cut = gate.subscribe();
                let target = target.clone();
                tokio::spawn(async move {
                    let carried = async {
                        let mut far = TcpStream::connect(target).await?;
                        copy_bidirectional(&mut near, &mut far).await
                    };
                    tokio::select! {
                        _ = cut.wait_for(|open| !*open) => {}
                        _ = carried => {}
                    }
                });
            }
        });
        Self { url: url.to_string(), open }
    }

    fn cut(&self) {
        self.open.send_replace(false);
    }

    fn mend(&self) {
        self.open.send_replace(true);
    }
}

/// A server that has little patience with its database.
async fn impatient(database_url: &str, dir: &TempDir) -> (Node, Caller) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let overrides = [
        ("server.bind", "127.0.0.1:0".to_owned()),
        ("storage.data_dir", dir.path().join("data").display().to_string()),
        ("storage.database_url", database_url.to_owned()),
        ("storage.allow_unsafe_durability", "true".to_owned()),
        ("sessions.append_patience_ms", "50".to_owned()),
        ("tools.addresses", "private".to_owned()),
    ];
    let node = Node::start(&Settings::load(None, &overrides).unwrap()).await.unwrap();
    let key = node.first_key.as_ref().unwrap().expose_secret().to_owned();
    let caller = Caller::new(format!("http://{}", node.addr), key);
    (node, caller)
}

/// Three calls in a row, then done.
fn bundle(tool: &FakeTool) -> Value {
    let call = |n: u32| json!({"calls": [{"tool": "work", "args": {"n": n}}]});
    json!({
        "version": 1,
        "tools": {"work": {"description": "Works.", "venue": "server", "class": "once", "executor": tool.executor("work"),
            "parameters": {"properties": {"n": {"type": "integer"}}, "required": ["n"]}}},
        "models": {"m": {"provider": "scripted", "script": [call(1), call(2), call(3), {"done": "over"}]}},
        "default_model": "m",
        "default_harness": {"max_steps": 5, "max_tool_calls": 5, "deadline_ms": 600_000},
        "profiles": {"default": {"tools": ["work"], "on_indeterminate": "feedback"}}
    })
}

/// Waits until the first run has ended, and comes again as often as it is told to: connections that died in the outage
/// may be met after it.
async fn ended_after_the_outage(caller: &Caller, session: &str) -> Value {
    let deadline = tokio::time::Instant::now() + WAIT;
    loop {
        let answer = caller.get(&format!("/v1/sessions/{session}")).await;
        if answer.status.as_u16() == 503 {
            assert_eq!(answer.json()["code"], "store_unavailable", "{}", answer.text);
            assert!(answer.headers.contains_key("retry-after"), "{:?}", answer.headers);
        } else {
            let session = answer.expect(200).json();
            if session["run"]["ending"].is_string() {
                return session;
            }
        }
        assert!(tokio::time::Instant::now() < deadline, "the run did not end after the outage");
    }
}

/// The outage is longer than the patience of everybody: the append is given up, the session cannot be loaded again and
/// leaves memory. Nobody asks for it afterwards; it must go on by itself, long before its deadline.
#[tokio::test(flavor = "multi_thread")]
async fn runs_go_on_after_an_outage_that_outlasts_all_patience() {
    let road = Road::to(&fresh_database().await).await;
    let dir = TempDir::new().unwrap();
    let (node, caller) = impatient(&road.url, &dir).await;
    let tool = FakeTool::ok().await;
    caller.put_bundle(&bundle(&tool)).await;
    tool.hold();
    let mut sessions = Vec::new();
    for _ in 0..5 {
        sessions.push(caller.open("default", "go").await);
    }
    tool.until_ran(sessions.len()).await;
    road.cut();
    tool.release();
    let forgotten = async {
        while node.app().sessions().in_memory() > 0 {
            // The process lives, whatever its database does.
            caller.get("/healthz").await.expect(200);
        }
    };
    tokio::time::timeout(WAIT, forgotten).await.expect("sessions leave memory when they cannot be loaded");
    road.mend();
    for session in &sessions {
        let ended = ended_after_the_outage(&caller, session).await;
        assert_eq!(ended["run"]["ending"], "done", "{ended:#}");
        caller.verified(session).await;
    }
    let mut calls: Vec<String> = tool.journal().into_iter().map(|ran| ran.call_id).collect();
    calls.sort();
    let reached = calls.len();
    calls.dedup();
    assert_eq!(calls.len(), reached, "a `once` call was sent twice");
    node.stop().await;
}

/// Everybody who waits for a session that cannot be loaded is told the same: come again.
#[tokio::test(flavor = "multi_thread")]
async fn all_who_wait_for_a_session_during_an_outage_are_told_to_come_again() {
    let road = Road::to(&fresh_database().await).await;
    let dir = TempDir::new().unwrap();
    let (node, caller) = impatient(&road.url, &dir).await;
    let tool = FakeTool::ok().await;
    caller.put_bundle(&bundle(&tool)).await;
    tool.hold();
    let session = caller.open("default", "go").await;
    tool.until_ran(1).await;
    road.cut();
    let path = format!("/v1/sessions/{session}/cancel");
    let stop = json!({});
    let asked = (0..20).map(|_| caller.post(&path, &stop));
    for answer in futures_util::future::join_all(asked).await {
        assert_eq!(answer.status.as_u16(), 503, "{}", answer.text);
    }
    road.mend();
    tool.release();
    let ended = ended_after_the_outage(&caller, &session).await;
    assert!(["done", "cancelled"].contains(&ended["run"]["ending"].as_str().unwrap()), "{ended:#}");
    node.stop().await;
}
