//! `Idempotency-Key`: one effect, one answer, however often it is sent.

use std::time::Duration;

use serde_json::{Value, json};
use toolgate_core::id::{Sha256Digest, TenantId};
use toolgate_server::clock::Clock as _;
use toolgate_store::{Claimed, IdempotencyClaim, IdempotencyKey, Registry as _};

use super::world::{Caller, World, id};

async fn sessions(caller: &Caller) -> usize {
    caller.get("/v1/sessions?limit=200").await.expect(200).json()["items"].as_array().unwrap().len()
}

#[tokio::test]
async fn the_same_request_again_gets_the_stored_answer() {
    let (_, caller) = World::start().await;
    let body = json!({"profile": "client", "prompt": "go"});
    let first = caller.post_with("/v1/sessions", &[("idempotency-key", "\"k-1\"")], &body).await.expect(201);
    assert_eq!(first.header("idempotency-replayed"), "false");
    // The bare form is the same key.
    let second = caller.post_with("/v1/sessions", &[("idempotency-key", "k-1")], &body).await.expect(201);
    assert_eq!(second.header("idempotency-replayed"), "true");
    assert_eq!(second.header("location"), first.header("location"));
    assert_eq!(first.text, second.text);
    assert_eq!(sessions(&caller).await, 1);
    let other = json!({"profile": "client", "prompt": "other"});
    caller
        .post_with("/v1/sessions", &[("idempotency-key", "k-1")], &other)
        .await
        .problem(422, "idempotency_key_reused");
    caller.post_with("/v1/sessions", &[("idempotency-key", "k-2")], &body).await.expect(201);
    assert_eq!(sessions(&caller).await, 2);
}

#[tokio::test]
async fn a_key_belongs_to_its_credential_and_route() {
    let (world, caller) = World::start().await;
    let body = json!({"profile": "client", "prompt": "go"});
    let headers = [("idempotency-key", "k")];
    let first = caller.post_with("/v1/sessions", &headers, &body).await.expect(201).json();
    let colleague = world.caller("acme").await;
    let second = colleague.post_with("/v1/sessions", &headers, &body).await.expect(201).json();
    assert_ne!(id(&first), id(&second));
    caller.post_with(&format!("/v1/sessions/{}/cancel", id(&first)), &headers, &json!({})).await.expect(200);
}

#[tokio::test]
async fn requests_at_once_have_one_effect() {
    let (_, caller) = World::start().await;
    let body = json!({"profile": "client", "prompt": "go"});
    let send = || async { caller.post_with("/v1/sessions", &[("idempotency-key", "race")], &body).await };
    let answers = futures_util::future::join_all((0..8).map(|_| send())).await;
    let mut firsts = 0;
    for answer in answers {
        match answer.status.as_u16() {
            201 => firsts += usize::from(answer.header("idempotency-replayed") == "false"),
            _ => {
                assert!(answer.headers.contains_key("retry-after"));
                answer.problem(409, "idempotency_in_progress");
            }
        }
    }
    assert_eq!((firsts, sessions(&caller).await), (1, 1));
}

#[tokio::test]
async fn a_message_with_a_key_is_said_once() {
    let (_, caller) = World::start().await;
    let session = id(&caller.settled("server").await);
    let path = format!("/v1/sessions/{session}/messages");
    let headers = [("idempotency-key", "m-1"), ("prefer", "wait=15")];
    let first = caller.post_with(&path, &headers, &json!({"text": "more"})).await.expect(202);
    let again = caller.post_with(&path, &headers, &json!({"text": "more"})).await.expect(202);
    assert_eq!((first.header("idempotency-replayed"), again.header("idempotency-replayed")), ("false", "true"));
    assert_eq!(again.json()["run"]["no"], 2);
    let events = caller.get(&format!("/v1/sessions/{session}/events?limit=1000")).await.json();
    let said = events["items"].as_array().unwrap().iter().filter(|e| e["type"] == "message_received").count();
    assert_eq!(said, 1);
    // The same key for another session is another request.
    let other = id(&caller.settled("server").await);
    let path = format!("/v1/sessions/{other}/messages");
    caller.post_with(&path, &headers, &json!({"text": "more"})).await.problem(422, "idempotency_key_reused");
}

#[tokio::test]
async fn what_was_applied_before_a_crash_is_not_applied_again() {
    let (world, caller) = World::start().await;
    let session = id(&caller.settled("server").await);
    let path = format!("/v1/sessions/{session}/messages");
    let headers = [("idempotency-key", "m-1"), ("prefer", "wait=15")];
    caller.post_with(&path, &headers, &json!({"text": "more"})).await.expect(202);
    // As if the answer had been lost with the node: the key is forgotten, the log is not.
    world.clock.advance(Duration::from_secs(25 * 60 * 60));
    assert!(world.store.idempotency_sweep(world.clock.now(), 100).await.unwrap() > 0);
    let again = caller.post_with(&path, &headers, &json!({"text": "more"})).await.expect(202);
    assert_eq!(again.json()["run"]["no"], 2, "{}", again.text);
    let events = caller.get(&format!("/v1/sessions/{session}/events?limit=1000")).await.json();
    let said = events["items"].as_array().unwrap().iter().filter(|e| e["type"] == "message_received").count();
    assert_eq!(said, 1);
}

#[tokio::test]
async fn refusals_for_good_are_kept_and_refusals_for_now_are_not() {
    let (_, caller) = World::start().await;
    let unknown = json!({"profile": "nobody", "prompt": "go"});
    for replayed in ["false", "true"] {
        let answer = caller.post_with("/v1/sessions", &[("idempotency-key", "u")], &unknown).await;
        assert_eq!(answer.header("idempotency-replayed"), replayed);
        assert_eq!(answer.header("content-type"), "application/problem+json");
        assert_eq!(answer.expect(422).json()["code"], "unknown_profile");
    }
    let session = id(&caller.settled("client").await);
    let path = format!("/v1/sessions/{session}/messages");
    let headers = [("idempotency-key", "later")];
    caller.post_with(&path, &headers, &json!({"text": "x"})).await.problem(409, "run_active");
    caller.post(&format!("/v1/sessions/{session}/cancel"), &json!({})).await.expect(200);
    caller.post_with(&path, &headers, &json!({"text": "x"})).await.expect(202);
}

#[tokio::test]
async fn a_claim_that_never_finished_is_free_again_in_time() {
    let (world, caller) = World::start().await;
    let body = json!({"profile": "client", "prompt": "go"});
    let claim = IdempotencyClaim {
        key: IdempotencyKey {
            tenant: TenantId::new("acme").unwrap(),
            credential: caller.id.clone(),
            route: "POST /v1/sessions".to_owned(),
            key: "lost".to_owned(),
        },
        fingerprint: fingerprint(&body),
        now: world.clock.now(),
        claimed_until: world.clock.now().plus_ms(35_000),
    };
    assert_eq!(world.store.idempotency_claim(&claim).await.unwrap(), Claimed::New);
    let headers = [("idempotency-key", "lost")];
    caller.post_with("/v1/sessions", &headers, &body).await.problem(409, "idempotency_in_progress");
    world.clock.advance(Duration::from_secs(36));
    caller.post_with("/v1/sessions", &headers, &body).await.expect(201);
}

fn fingerprint(body: &Value) -> Sha256Digest {
    toolgate_core::json::Json::from_value(body).hash()
}

#[tokio::test]
async fn unreadable_keys_are_refused() {
    let (_, caller) = World::start().await;
    let body = json!({"profile": "client", "prompt": "go"});
    let long = "k".repeat(256);
    for wrong in ["", "\"open", "\"a\"b", "\"bad \\x escape\"", &long] {
        caller.post_with("/v1/sessions", &[("idempotency-key", wrong)], &body).await.problem(400, "malformed");
    }
    let twice = [("idempotency-key", "a"), ("idempotency-key", "b")];
    caller.post_with("/v1/sessions", &twice, &body).await.problem(400, "malformed");
    assert_eq!(sessions(&caller).await, 0);
}
