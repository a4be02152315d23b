//! Observers: told of each call, step and run that is over, at least once, without holding anything up. What is not here:
//! admission hooks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use toolgate_tests::world::{bundle, two_tools, with};
use toolgate_tests::{Backend, FakeModel, FakeTool, TestServer};

/// The bundle of one run with a call, and an observer of everything.
fn observed(model: &FakeModel, tool: &FakeTool, observer: &FakeTool) -> Value {
    let told = json!([{"name": "audit", "on": ["call", "step", "run"], "url": format!("{}/audit", observer.url)}]);
    with(bundle(&model.entry(), &two_tools(tool)), "/observers", told)
}

fn answers() -> Vec<Value> {
    vec![FakeModel::calls(&[("look", "{}"), ("nothing", "{}")]), FakeModel::text("done")]
}

/// What an observer was told, by its idempotency key.
fn told(observer: &FakeTool) -> BTreeMap<String, Value> {
    let facts = observer.journal().into_iter();
    facts.map(|ran| (ran.idempotency_key, serde_json::from_str(&ran.body).unwrap())).collect()
}

async fn everything_is_told(backend: Backend) {
    // The first three deliveries fail: they come again, under the same keys.
    let failed = Arc::new(AtomicUsize::new(0));
    let observer = FakeTool::start(move |_| {
        let status = if failed.fetch_add(1, Ordering::SeqCst) < 3 { 500 } else { 200 };
        (status, Vec::new())
    })
    .await;
    let (model, tool) = (FakeModel::start(answers()).await, FakeTool::ok().await);
    let server = TestServer::start(backend).await;
    let caller = server.caller();
    caller.put_bundle(&observed(&model, &tool, &observer)).await;
    let id = caller.open("default", "go").await;
    assert_eq!(caller.until_ended(&id, 1).await["run"]["ending"], "done");
    observer.until_ran(8).await;
    let told = told(&observer);
    let kinds: Vec<(&str, &str)> = {
        let mut facts: Vec<&Value> = told.values().collect();
        facts.sort_by_key(|fact| (fact["seq"].as_u64(), fact["type"].as_str().map(ToOwned::to_owned)));
        facts.iter().map(|fact| (fact["type"].as_str().unwrap(), fact["status"].as_str().unwrap())).collect()
    };
    assert_eq!(
        kinds.iter().copied().collect::<BTreeSet<_>>(),
        BTreeSet::from([
            ("call_decided", "rejected"),
            ("call_ended", "ok"),
            ("step_ended", "completed"),
            ("step_ended", "run_ended"),
            ("run_ended", "done"),
        ])
    );
    assert_eq!(told.len(), 5, "each fact has one key, however often it is told: {told:#?}");
    let events = caller.events(&id).await;
    for fact in told.values() {
        assert_eq!((&fact["session_id"], &fact["observer"]), (&json!(id), &json!("audit")));
        let seq = usize::try_from(fact["seq"].as_u64().unwrap()).unwrap();
        assert_eq!(events[seq - 1]["seq"], fact["seq"]);
        assert!(!fact.to_string().contains("go"), "facts are thin: {fact}");
    }
    server.stop().await;
}

#[tokio::test]
async fn everything_is_told_on_sqlite() {
    everything_is_told(Backend::Sqlite).await;
}

#[tokio::test]
async fn everything_is_told_on_postgres() {
    everything_is_told(Backend::Postgres).await;
}

#[tokio::test]
async fn a_dead_observer_holds_up_nothing_and_is_told_after_a_restart() {
    let observer = FakeTool::ok().await;
    observer.hold();
    let (model, tool) = (FakeModel::start(answers()).await, FakeTool::ok().await);
    let mut server = TestServer::start(Backend::Sqlite).await;
    let caller = server.caller();
    caller.put_bundle(&observed(&model, &tool, &observer)).await;
    let id = caller.open("default", "go").await;
    assert_eq!(caller.until_ended(&id, 1).await["run"]["ending"], "done");
    // Nothing was answered so far; the server stops all the same, and its next start tells everything again.
    server.restart().await;
    observer.release();
    let before = observer.journal().len();
    observer.until_ran(before + 5).await;
    assert_eq!(told(&observer).len(), 5);
    server.stop().await;
}
