//! Query parameters and headers that cannot be read.

use reqwest::Method;
use serde_json::json;
use toolgate_tests::{Backend, Caller};

use super::world;

async fn refused_parameters(backend: Backend) {
    let (server, caller) = world(backend).await;
    let id = caller.open("default", "go").await;
    caller.until_ended(&id, 1).await;
    let events = format!("/v1/sessions/{id}/events");
    for path in [
        "/v1/sessions?stauts=idle".to_owned(),
        "/v1/sessions?status=sleeping".to_owned(),
        "/v1/sessions?status=idle&status=closed".to_owned(),
        "/v1/sessions?limit=many".to_owned(),
        "/v1/sessions?limit=-1".to_owned(),
        "/v1/sessions?limit=99999999999".to_owned(),
        "/v1/sessions?profile=No%20Form".to_owned(),
        "/v1/sessions?profile=%00".to_owned(),
        "/v1/sessions?created_from=yesterday".to_owned(),
        "/v1/sessions?created_before=2026-13-01T00:00:00Z".to_owned(),
        "/v1/sessions?alias=a&status=idle".to_owned(),
        "/v1/approvals?status=open".to_owned(),
        "/v1/api-keys?sort=name".to_owned(),
        "/v1/security-events?limit=x".to_owned(),
        format!("{events}?after_seq=-1"),
        format!("{events}?after_seq=x"),
        format!("{events}?wait=soon"),
        format!("{events}?follow=maybe"),
        format!("{events}?cursor=x"),
        format!("/v1/sessions/{id}/calls?after_seq=1.5"),
    ] {
        let refused = caller.get(&path).await.expect(400);
        assert_eq!(refused.code(), "invalid_parameter", "{path}");
        assert!(!refused.json()["errors"].as_array().unwrap().is_empty(), "{path}: {}", refused.text);
    }
    // Nothing has such an alias, so nothing is found; what no alias can look like must not show as a defect.
    for alias in ["", "%00", "%ff", "a%20b", "%F0%9F%98%80", &"x".repeat(2_000)] {
        let answer = caller.get(&format!("/v1/sessions?alias={alias}")).await;
        assert!([200, 400].contains(&answer.status.as_u16()), "{alias}: {}", answer.text);
        assert!(answer.status == 400 || answer.json()["items"] == json!([]), "{alias}");
    }
    server.stop().await;
}

#[tokio::test]
async fn parameters_that_cannot_be_read_are_refused_on_sqlite() {
    refused_parameters(Backend::Sqlite).await;
}

#[tokio::test]
async fn parameters_that_cannot_be_read_are_refused_on_postgres() {
    refused_parameters(Backend::Postgres).await;
}

#[tokio::test]
async fn cursors_of_nobody_are_refused() {
    let (server, caller) = world(Backend::Sqlite).await;
    for list in ["/v1/sessions", "/v1/approvals", "/v1/api-keys", "/v1/security-events"] {
        for cursor in
            ["", "x", "AAAA", "%00", "AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", &"A".repeat(5_000)]
        {
            let refused = caller.get(&format!("{list}?cursor={cursor}")).await.expect(400);
            assert_eq!(refused.code(), "cursor_invalid", "{list} {cursor}");
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn headers_that_cannot_be_read_are_refused() {
    let (server, caller) = world(Backend::Sqlite).await;
    let id = caller.open("default", "go").await;
    caller.until_ended(&id, 1).await;
    let start = || caller.request(Method::POST, "/v1/sessions").json(&json!({"profile": "default", "prompt": "go"}));
    let long = "k".repeat(256);
    for key in ["", "\"\"", "\"open", "\"a\"b", &long, "ümlaut"] {
        let refused = Caller::send(start().header("idempotency-key", key)).await.expect(400);
        assert_eq!(
            (refused.code().as_str(), &refused.json()["errors"][0]["pointer"]),
            ("malformed", &json!("idempotency-key")),
            "{key}"
        );
    }
    let twice = start().header("idempotency-key", "a").header("idempotency-key", "b");
    Caller::send(twice).await.expect(400);
    let events = || caller.request(Method::GET, &format!("/v1/sessions/{id}/events"));
    for last in ["x", "-1", "1.0", "99999999999999999999999"] {
        let stream = events().header("accept", "text/event-stream").header("last-event-id", last);
        assert_eq!(Caller::send(stream).await.expect(400).code(), "malformed", "{last}");
    }
    for accept in ["image/png", "application/json;q=0", "text/html"] {
        let refused = Caller::send(events().header("accept", accept)).await.expect(406);
        assert_eq!(refused.code(), "not_acceptable", "{accept}");
    }
    let list = caller.get("/v1/sessions").await.expect(200).json();
    assert_eq!(list["items"].as_array().unwrap().len(), 1, "no refused request has started anything");
    // Ids of requests are echoed when they can be, and replaced when they cannot.
    let echoed =
        Caller::send(caller.request(Method::GET, "/v1/nothing").header("x-request-id", "my-id-1")).await.expect(404);
    assert_eq!(
        (&echoed.json()["request_id"], echoed.headers["x-request-id"].as_bytes()),
        (&json!("my-id-1"), &b"my-id-1"[..])
    );
    let long = "r".repeat(129);
    let replaced =
        Caller::send(caller.request(Method::GET, "/v1/nothing").header("x-request-id", &long)).await.expect(404);
    assert!(replaced.json()["request_id"].as_str().unwrap().starts_with("req_"));
    server.stop().await;
}
