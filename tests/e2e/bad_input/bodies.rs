//! Bodies: too large, no JSON, JSON of another shape, shapes without meaning.

use reqwest::Method;
use serde_json::{Value, json};
use toolgate_tests::caller::Answer;
use toolgate_tests::{Backend, Caller};

use super::{digest, with_bodies, world};

async fn send(caller: &Caller, method: &Method, path: &str, body: impl Into<reqwest::Body>) -> Answer {
    let request = caller.request(method.clone(), path).header("content-type", "application/json");
    Caller::send(request.body(body)).await
}

#[tokio::test]
async fn a_body_over_the_limit_is_413_on_every_operation() {
    let (server, caller) = world(Backend::Sqlite).await;
    for (method, path) in with_bodies() {
        let large = format!("{{\"prompt\":\"{}\"}}", "x".repeat(1 << 20));
        assert_eq!(send(&caller, &method, &path, large).await.expect(413).code(), "payload_too_large", "{path}");
        // The same without a length, so that it shows only while it arrives.
        let pieces = (0..40).map(|_| Ok::<_, std::io::Error>(vec![b' '; 64 * 1024]));
        let endless = reqwest::Body::wrap_stream(futures_util::stream::iter(pieces));
        assert_eq!(send(&caller, &method, &path, endless).await.expect(413).code(), "payload_too_large", "{path}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_text_over_its_limit_is_413_with_its_place() {
    let (server, caller) = world(Backend::Sqlite).await;
    let (most, more) = ("x".repeat(256 * 1024), "x".repeat(256 * 1024 + 1));
    let id = caller.open("default", "go").await;
    caller.until_ended(&id, 1).await;
    let say = format!("/v1/sessions/{id}/messages");
    for (path, field, body) in [
        ("/v1/sessions", "prompt", json!({"profile": "default", "prompt": more})),
        (say.as_str(), "text", json!({"text": more})),
    ] {
        let refused = caller.post(path, &body).await.expect(413);
        assert_eq!(refused.json()["errors"][0]["pointer"], format!("/{field}"));
    }
    caller.post(&say, &json!({"text": most})).await.expect(202);
    server.stop().await;
}

#[tokio::test]
async fn what_is_no_json_is_400_on_every_operation() {
    let (server, caller) = world(Backend::Sqlite).await;
    let deep = |open: &str, close: &str, times: usize| format!("{}1{}", open.repeat(times), close.repeat(times));
    let texts: Vec<(&str, Vec<u8>)> = vec![
        ("blank", b" \n".to_vec()),
        ("half an object", b"{\"prompt\":".to_vec()),
        ("two values", b"{} {}".to_vec()),
        ("a trailing comma", b"{\"prompt\":\"a\",}".to_vec()),
        ("single quotes", b"{'prompt':'a'}".to_vec()),
        ("a duplicate key", b"{\"prompt\":\"a\",\"pr\\u006fmpt\":\"b\"}".to_vec()),
        ("a duplicate key below", b"{\"metadata\":{\"a\":\"1\",\"a\":\"2\"}}".to_vec()),
        ("a lone surrogate", b"{\"prompt\":\"\\ud800\"}".to_vec()),
        ("NaN", b"{\"prompt\":NaN}".to_vec()),
        ("a number without end", b"{\"prompt\":1e999}".to_vec()),
        ("a number that loses digits", b"{\"prompt\":123456789012345678901234567890}".to_vec()),
        ("a raw control character", b"{\"prompt\":\"a\nb\"}".to_vec()),
        ("no UTF-8", b"{\"prompt\":\"\xff\"}".to_vec()),
        ("a byte order mark", b"\xef\xbb\xbf{}".to_vec()),
        ("65 levels", deep("[", "]", 65).into_bytes()),
        ("an abyss of arrays", deep("[", "]", 200_000).into_bytes()),
        ("an abyss of objects", deep("{\"a\":", "}", 150_000).into_bytes()),
    ];
    for (method, path) in with_bodies() {
        for (what, text) in &texts {
            let refused = send(&caller, &method, &path, text.clone()).await.expect(400);
            assert_eq!(refused.code(), "malformed", "{method} {path}: {what}");
        }
    }
    assert_eq!(caller.get("/v1/sessions").await.json()["items"], json!([]));
    assert_eq!(caller.get("/healthz").await.expect(200).json()["status"], "ok");
    server.stop().await;
}

#[tokio::test]
async fn a_body_is_needed_where_nothing_else_says_what_to_do() {
    let (server, caller) = world(Backend::Sqlite).await;
    for (method, path) in with_bodies() {
        let optional = ["/cancel", "/close", "/verify"].iter().any(|verb| path.ends_with(verb));
        let answer =
            Caller::send(caller.request(method.clone(), &path).header("content-type", "application/json")).await;
        assert_eq!(answer.status.as_u16(), if optional { 404 } else { 400 }, "{method} {path}: {}", answer.text);
    }
    server.stop().await;
}

#[tokio::test]
async fn another_media_type_is_415_on_every_operation() {
    let (server, caller) = world(Backend::Sqlite).await;
    for (method, path) in with_bodies() {
        for media_type in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""] {
            let request = caller.request(method.clone(), &path).header("content-type", media_type).body("{}");
            assert_eq!(
                Caller::send(request).await.expect(415).code(),
                "unsupported_media_type",
                "{path}: {media_type}"
            );
        }
        assert_eq!(Caller::send(caller.request(method.clone(), &path).body("{}")).await.expect(415).status, 415);
    }
    server.stop().await;
}

#[tokio::test]
async fn another_shape_is_422_with_its_place() {
    let (server, caller) = world(Backend::Sqlite).await;
    let id = caller.open("default", "go").await;
    let start = |extra: Value| {
        let mut body = json!({"profile": "default", "prompt": "go"});
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        ("/v1/sessions".to_owned(), body)
    };
    let session = |verb: &str, body: Value| (format!("/v1/sessions/{id}/{verb}"), body);
    let key = |body: Value| ("/v1/api-keys".to_owned(), body);
    let decision = |body: Value| (format!("/v1/approvals/apr_{}/decision", "0".repeat(32)), body);
    let cases = [
        (start(json!({"tenant": "other"})), "/tenant"),
        (start(json!({"prompt": 5})), "/prompt"),
        (start(json!({"prompt": null})), "/prompt"),
        (start(json!({"prompt": "  \n"})), "/prompt"),
        (start(json!({"profile": "No Such Form"})), "/profile"),
        (start(json!({"label": ["a"]})), "/label"),
        (start(json!({"capabilities": "terminal"})), "/capabilities"),
        (start(json!({"capabilities": ["ok", "N O"]})), "/capabilities/1"),
        (start(json!({"limits": {"max_steps": "many"}})), "/limits/max_steps"),
        (start(json!({"limits": {"max_steps": -1}})), "/limits/max_steps"),
        (start(json!({"limits": {"max_steps": 1.5}})), "/limits/max_steps"),
        (start(json!({"limits": {"max_steps": 5_000_000_000_u64}})), "/limits/max_steps"),
        (start(json!({"limits": {"max_stepz": 1}})), "/limits/max_stepz"),
        (start(json!({"limits": [3, 3, 3, 60_000]})), "/limits"),
        (start(json!({"control": {"all": null}})), "/control"),
        (start(json!({"metadata": [["a", "b"]]})), "/metadata"),
        (start(json!({"metadata": {"a": 1}})), "/metadata/a"),
        (start(json!({"metadata": {"": "x"}})), "/metadata/"),
        (start(json!({"metadata": {"a/b~c": "x".repeat(1_025)}})), "/metadata/a~1b~0c"),
        (start(json!({"id": ""})), "/id"),
        (start(json!({"id": "with space"})), "/id"),
        (start(json!({"id": "nul\u{0}"})), "/id"),
        (start(json!({"id": "x".repeat(129)})), "/id"),
        (session("messages", json!({"text": ["a"]})), "/text"),
        (session("messages", json!({"text": "a", "role": "system"})), "/role"),
        (session("messages", json!({})), ""),
        (session("messages", json!([])), ""),
        (session("cancel", json!({"reason": 5})), "/reason"),
        (session("cancel", json!({"reason": "x".repeat(2_001)})), "/reason"),
        (session("cancel", json!({"force": true})), "/force"),
        (session("close", json!({"by": "somebody"})), "/by"),
        (session("verify", json!({"deep": true})), "/deep"),
        (decision(json!({"decision": {"approve": null}, "digest": digest()})), "/decision"),
        (decision(json!({"decision": "approve", "digest": digest(), "grant": [["n"], 5_000]})), "/grant"),
        (decision(json!(["approve", digest()])), ""),
        (key(json!({"actor": "a b", "scopes": ["sessions:read"]})), "/actor"),
        (key(json!({"actor": "a", "scopes": []})), "/scopes"),
        (key(json!({"actor": "a", "scopes": ["sessions:read", "everything"]})), "/scopes/1"),
        (key(json!({"actor": "a", "scopes": ["profile:default"]})), "/scopes/0"),
        (key(json!({"actor": "a", "scopes": ["sessions:read"], "profiles": []})), "/profiles"),
        (key(json!({"actor": "a", "scopes": ["sessions:read"], "tenant": "other"})), "/tenant"),
        (key(json!({"actor": "a", "scopes": ["sessions:read"], "label": "x".repeat(201)})), "/label"),
        (key(json!({"actor": "a", "scopes": ["sessions:read"], "expires_at": "tomorrow"})), "/expires_at"),
        (key(json!({"actor": "a", "scopes": ["sessions:read"], "expires_at": "2001-01-01T00:00:00Z"})), "/expires_at"),
    ];
    for ((path, body), pointer) in cases {
        let refused = caller.post(&path, &body).await.expect(422);
        assert_eq!(refused.code(), "invalid_request", "{path} {body}");
        assert_eq!(refused.json()["errors"][0]["pointer"], pointer, "{path} {body}: {}", refused.text);
    }
    let crowd: serde_json::Map<String, Value> = (0..33).map(|n| (format!("k{n}"), json!("v"))).collect();
    let (path, body) = start(json!({ "metadata": crowd }));
    assert_eq!(caller.post(&path, &body).await.expect(422).json()["errors"][0]["pointer"], "/metadata");
    assert_eq!(caller.get("/v1/sessions").await.json()["items"].as_array().unwrap().len(), 1);
    assert_eq!(caller.get("/v1/api-keys").await.json()["items"].as_array().unwrap().len(), 1);
    server.stop().await;
}

async fn odd_but_valid(backend: Backend) {
    let (server, caller) = world(backend).await;
    let odd = "NUL \u{0}, \u{1f}, \u{fffe}, \u{202e}evil, 😀, '; DROP TABLE events; --";
    let body = json!({"profile": "default", "prompt": odd, "metadata": {"k\u{0}": odd}});
    let id = caller.post("/v1/sessions", &body).await.expect(201).json()["id"].as_str().unwrap().to_owned();
    caller.until_ended(&id, 1).await;
    caller.post(&format!("/v1/sessions/{id}/messages"), &json!({ "text": odd })).await.expect(202);
    caller.until_ended(&id, 2).await;
    caller.post(&format!("/v1/sessions/{id}/close"), &json!({ "reason": odd })).await.expect(200);
    let events = caller.events(&id).await;
    assert_eq!(
        (&events[0]["content"]["prompt"], &events[0]["content"]["metadata"]["k\u{0}"]),
        (&json!(odd), &json!(odd))
    );
    assert_eq!(caller.events_of(&id, "message_received").await[0]["content"]["text"], odd);
    assert_eq!(caller.events_of(&id, "close_requested").await[0]["content"]["reason"], odd);
    caller.verified(&id).await;
    // A name for people goes into a column of its own; whether it can hold every character must not show as a defect.
    let labelled = caller.post("/v1/api-keys", &json!({"actor": "a", "scopes": ["audit:read"], "label": odd})).await;
    assert!([201, 422].contains(&labelled.status.as_u16()), "{}", labelled.text);
    server.stop().await;
}

#[tokio::test]
async fn every_character_that_json_has_is_kept_on_sqlite() {
    odd_but_valid(Backend::Sqlite).await;
}

#[tokio::test]
async fn every_character_that_json_has_is_kept_on_postgres() {
    odd_but_valid(Backend::Postgres).await;
}
