//! `toolgate node`: what it lists, and that a drained node is one that nobody is sent to any more.

use std::process::Command;
use std::time::{Duration, Instant};

use toolgate_tests::{Backend, TestServer};

use crate::program::{TOOLGATE, run};

/// `toolgate node ...` on the database of a server that runs.
fn node(server: &TestServer, arguments: &[&str]) -> (bool, String) {
    let data_dir = server.data_dir().display().to_string();
    let output = Command::new(TOOLGATE)
        .arg("node")
        .args(arguments)
        .args(["--data-dir", &data_dir, "--database-url", server.database_url()])
        .env("TOOLGATE__STORAGE__ALLOW_UNSAFE_DURABILITY", "true")
        .output()
        .unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output.status.success(), text)
}

/// Name, state and sessions of the one node.
fn listed(server: &TestServer) -> (String, String, String) {
    let (done, text) = node(server, &["list"]);
    assert!(done, "{text}");
    let line: Vec<&str> = text.lines().nth(1).unwrap_or_else(|| panic!("{text}")).split('\t').collect();
    (line[0].to_owned(), line[5].to_owned(), line[6].to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_listed_with_its_sessions_until_it_is_drained() {
    let server = TestServer::start(Backend::Postgres).await;
    let caller = server.caller();
    caller
        .put_bundle(&serde_json::json!({
            "version": 1,
            "models": {"m": {"provider": "scripted", "script": [{"done": "over"}]}},
            "default_model": "m",
            "default_harness": {"max_steps": 2, "max_tool_calls": 1, "deadline_ms": 60_000},
            "profiles": {"default": {"tools": []}}
        }))
        .await;
    let id = caller.open("default", "go").await;
    caller.until_ended(&id, 1).await;
    let (name, state, sessions) = listed(&server);
    assert_eq!((state.as_str(), sessions.as_str()), ("alive", "1"));

    let (done, text) = node(&server, &["drain", &name]);
    assert!(done, "{text}");
    let address = server.url().trim_start_matches("http://").to_owned();
    let until = Instant::now() + Duration::from_secs(20);
    while run(&["health", "--address", &address]).status.success() {
        assert!(Instant::now() < until, "a drained node goes on saying that it is ready");
    }
    assert_eq!(listed(&server).1, "draining");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_does_not_exist_is_not_drained() {
    let server = TestServer::start(Backend::Postgres).await;
    let (done, text) = node(&server, &["drain", "nobody"]);
    assert!(!done && text.contains("there is no node `nobody`"), "{text}");
    let (done, text) = node(&server, &["drain", ""]);
    assert!(!done, "{text}");
    server.stop().await;
}
