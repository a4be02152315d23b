//! The same request again: by the caller's own id, and by an idempotency key.

use reqwest::Method;
use serde_json::json;
use toolgate_tests::world::usual;
use toolgate_tests::{Backend, Caller, FakeModel, FakeTool, TestServer};

use super::{keyed, prompt};

async fn aliases(backend: Backend) {
    let (model, tool) = (FakeModel::start_with(vec![FakeModel::text("done")], true).await, FakeTool::ok().await);
    let server = TestServer::start(backend).await;
    let caller = server.caller();
    caller.put_bundle(&usual(&model, &tool)).await;
    let body = json!({"id": "ticket-17", "profile": "default", "prompt": "one", "metadata": {"a": "b"}});
    let first = caller.post("/v1/sessions", &body).await.expect(201);
    let id = first.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(first.headers["location"], format!("/v1/sessions/{id}"));
    assert_eq!(first.json()["alias"], "ticket-17");
    // The same body in another spelling is the same body.
    let reordered = r#"{"prompt":"one", "metadata":{"a":"b"},"profile":"default","id":"ticket-17"}"#;
    let request = caller.request(Method::POST, "/v1/sessions").header("content-type", "application/json");
    let second = Caller::send(request.body(reordered)).await.expect(200);
    assert_eq!(second.json()["id"], id.as_str());
    let other = json!({"id": "ticket-17", "profile": "default", "prompt": "two", "metadata": {"a": "b"}});
    let conflict = caller.post("/v1/sessions", &other).await.expect(409);
    assert_eq!(conflict.code(), "alias_conflict");
    assert!(conflict.json()["detail"].as_str().unwrap().contains(&id), "{}", conflict.text);
    caller.until_ended(&id, 1).await;
    // Still the same once the run is over.
    assert_eq!(caller.post("/v1/sessions", &body).await.expect(200).json()["id"], id.as_str());
    let found = caller.get("/v1/sessions?alias=ticket-17").await.expect(200).json();
    assert_eq!(found["items"].as_array().unwrap().len(), 1);
    assert_eq!(found["items"][0]["id"], id.as_str());
    assert_eq!(caller.get("/v1/sessions?alias=ticket-18").await.expect(200).json()["items"], json!([]));
    // One session, one run, one question to the model.
    assert_eq!(model.requests().len(), 1);
    server.stop().await;
}

#[tokio::test]
async fn an_alias_starts_one_session_on_sqlite() {
    aliases(Backend::Sqlite).await;
}

#[tokio::test]
async fn an_alias_starts_one_session_on_postgres() {
    aliases(Backend::Postgres).await;
}

async fn idempotency(backend: Backend) {
    let (model, tool) = (FakeModel::start_with(vec![FakeModel::text("done")], true).await, FakeTool::ok().await);
    let server = TestServer::start(backend).await;
    let caller = server.caller();
    caller.put_bundle(&usual(&model, &tool)).await;
    let first = keyed(&caller, "/v1/sessions", "k-1", &prompt("one")).await.expect(201);
    assert_eq!(first.headers["idempotency-replayed"], "false");
    let id = first.json()["id"].as_str().unwrap().to_owned();
    caller.until_ended(&id, 1).await;
    let again = keyed(&caller, "/v1/sessions", "\"k-1\"", &prompt("one")).await.expect(201);
    assert_eq!(again.headers["idempotency-replayed"], "true");
    assert_eq!(again.headers["location"], first.headers["location"]);
    assert_eq!(again.text, first.text, "the very same answer");
    let other = keyed(&caller, "/v1/sessions", "k-1", &prompt("two")).await.expect(422);
    assert_eq!(other.code(), "idempotency_key_reused");
    // The key belongs to one operation: the same one for a message is another key.
    let say = format!("/v1/sessions/{id}/messages");
    let said = keyed(&caller, &say, "k-1", &json!({"text": "more"})).await.expect(202);
    assert_eq!(said.headers["idempotency-replayed"], "false");
    caller.until_ended(&id, 2).await;
    let repeated = keyed(&caller, &say, "k-1", &json!({"text": "more"})).await.expect(202);
    assert_eq!(repeated.headers["idempotency-replayed"], "true");
    assert_eq!(caller.session(&id).await["run"]["no"], 2, "the repetition started no run");
    // ... and to one session.
    let second = caller.open("default", "another").await;
    let elsewhere = keyed(&caller, &format!("/v1/sessions/{second}/messages"), "k-1", &json!({"text": "more"})).await;
    assert_eq!(elsewhere.expect(422).code(), "idempotency_key_reused");
    let list = caller.get("/v1/sessions").await.expect(200).json();
    assert_eq!(list["items"].as_array().unwrap().len(), 2);
    caller.verified(&id).await;
    server.stop().await;
}

#[tokio::test]
async fn an_idempotency_key_repeats_the_answer_and_not_the_effect_on_sqlite() {
    idempotency(Backend::Sqlite).await;
}

#[tokio::test]
async fn an_idempotency_key_repeats_the_answer_and_not_the_effect_on_postgres() {
    idempotency(Backend::Postgres).await;
}

#[tokio::test]
async fn twins_with_one_key_start_one_session() {
    let (model, tool) = (FakeModel::start_with(vec![FakeModel::text("done")], true).await, FakeTool::ok().await);
    let server = TestServer::start(Backend::Postgres).await;
    let caller = server.caller();
    caller.put_bundle(&usual(&model, &tool)).await;
    let twin = || {
        let caller = caller.clone();
        async move { keyed(&caller, "/v1/sessions", "twin", &prompt("one")).await }
    };
    let (a, b, c, d) = tokio::join!(twin(), twin(), twin(), twin());
    let mut ids = Vec::new();
    for answer in [a, b, c, d] {
        match answer.status.as_u16() {
            201 => ids.push(answer.json()["id"].clone()),
            409 => {
                assert_eq!(answer.code(), "idempotency_in_progress");
                assert!(answer.headers.contains_key("retry-after"));
            }
            other => panic!("{other}: {}", answer.text),
        }
    }
    assert!(!ids.is_empty());
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    assert_eq!(twin().await.expect(201).json()["id"], ids[0]);
    assert_eq!(caller.get("/v1/sessions").await.json()["items"].as_array().unwrap().len(), 1);
    server.stop().await;
}
