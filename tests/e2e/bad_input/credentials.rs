//! Who asks: no key, an unknown, revoked or expired one, one without the scope.

use std::collections::BTreeMap;

use reqwest::Method;
use serde_json::json;
use toolgate_tests::{Backend, Caller, WAIT};

use super::{absent, digest, good_body, operations, world};

/// The scopes of which one is enough, by operation.
const NEEDED: [(&str, &str, &[&str]); 22] = [
    ("POST", "/v1/sessions", &["sessions:write"]),
    ("GET", "/v1/sessions", &["sessions:read", "audit:read"]),
    ("GET", "/v1/sessions/{id}", &["sessions:read", "audit:read"]),
    ("POST", "/v1/sessions/{id}/messages", &["sessions:write"]),
    ("POST", "/v1/sessions/{id}/cancel", &["sessions:write"]),
    ("POST", "/v1/sessions/{id}/close", &["sessions:write"]),
    ("GET", "/v1/sessions/{id}/events", &["sessions:read", "audit:read"]),
    ("GET", "/v1/sessions/{id}/calls", &["sessions:read", "audit:read"]),
    ("GET", "/v1/sessions/{id}/calls/{call_id}/explain", &["sessions:read", "audit:read"]),
    ("GET", "/v1/sessions/{id}/blobs/{digest}", &["sessions:read", "audit:read"]),
    ("POST", "/v1/sessions/{id}/verify", &["sessions:read", "audit:read"]),
    ("GET", "/v1/approvals", &["sessions:read", "audit:read", "approvals:write"]),
    ("GET", "/v1/approvals/{id}", &["sessions:read", "audit:read", "approvals:write"]),
    ("POST", "/v1/approvals/{id}/decision", &["approvals:write"]),
    ("GET", "/v1/bundle", &["sessions:read", "audit:read", "registry:write"]),
    ("PUT", "/v1/bundle", &["registry:write"]),
    ("GET", "/v1/bundles/{digest}", &["sessions:read", "audit:read", "registry:write"]),
    ("POST", "/v1/api-keys", &["keys:admin"]),
    ("GET", "/v1/api-keys", &["keys:admin"]),
    ("DELETE", "/v1/api-keys/{id}", &["keys:admin"]),
    ("GET", "/v1/security-events", &["audit:read"]),
    ("GET", "/v1/usage", &["sessions:read", "audit:read"]),
];

const SCOPES: [&str; 7] = [
    "sessions:read",
    "sessions:write",
    "client:execute",
    "approvals:write",
    "audit:read",
    "registry:write",
    "keys:admin",
];

fn request(caller: &Caller, method: &Method, template: &str) -> reqwest::RequestBuilder {
    let path = template.replace("{id}", &absent(template)).replace("{digest}", &digest());
    let path = path.replace("{call_id}", &format!("call_{}", "0".repeat(32)));
    let request = caller.request(method.clone(), &path);
    match good_body(method, template) {
        Some(body) => request.json(&body),
        None => request,
    }
}

#[tokio::test]
async fn every_operation_takes_exactly_its_scopes() {
    let (server, caller) = world(Backend::Sqlite).await;
    let mut keys = BTreeMap::new();
    for scope in SCOPES {
        keys.insert(scope, caller.with_scopes(&scope.replace(':', "-"), &[scope]).await);
    }
    let operations = operations();
    assert_eq!(operations.len(), NEEDED.len(), "the table above has every operation");
    for (method, template) in operations {
        let needed = NEEDED.iter().find(|(name, path, _)| *name == method.as_str() && *path == template);
        let (_, _, needed) = needed.unwrap_or_else(|| panic!("{method} {template} is not in the table"));
        for (scope, key) in &keys {
            let answer = Caller::send(request(key, &method, &template)).await;
            if needed.contains(scope) {
                assert_ne!(answer.status, 403, "{method} {template} with {scope}: {}", answer.text);
            } else {
                assert_eq!(answer.expect(403).code(), "insufficient_scope", "{method} {template} with {scope}");
            }
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn whoever_has_no_key_gets_nowhere() {
    let (server, caller) = world(Backend::Sqlite).await;
    let http = reqwest::Client::new();
    let key = caller.key();
    let mut changed = key.to_owned();
    changed
        .replace_range(key.len() - 12..key.len() - 11, if key.as_bytes()[key.len() - 12] == b'0' { "1" } else { "0" });
    let headers: [Option<String>; 9] = [
        None,
        Some(String::new()),
        Some("Bearer".to_owned()),
        Some("Bearer ".to_owned()),
        Some(key.to_owned()),
        Some(format!("Basic {key}")),
        Some(format!("Bearer {changed}")),
        Some(format!("Bearer {}", &key[..key.len() - 1])),
        Some(format!("Bearer {key} {key}")),
    ];
    for header in headers {
        let plain = http.get(format!("{}/v1/sessions", caller.url()));
        let request = match &header {
            Some(value) => plain.header("authorization", value),
            None => plain,
        };
        let refused = Caller::send(request).await.expect(401);
        assert_eq!(refused.code(), "unauthenticated", "{header:?}");
        assert!(!refused.text.contains(key), "{header:?}");
    }
    let twice = caller.request(Method::GET, "/v1/sessions").header("authorization", format!("Bearer {key}"));
    Caller::send(twice).await.expect(401);
    // The scheme's name has no case.
    let lower = http.get(format!("{}/v1/sessions", caller.url())).header("authorization", format!("bearer {key}"));
    Caller::send(lower).await.expect(200);
    // A key in the query is no key.
    Caller::send(http.get(format!("{}/v1/sessions?key={key}", caller.url()))).await.expect(401);
    server.stop().await;
}

#[tokio::test]
async fn a_revoked_key_stops_working() {
    let (server, caller) = world(Backend::Sqlite).await;
    let (id, other) = caller.made(&json!({"actor": "temp", "scopes": ["sessions:read"]})).await;
    other.get("/v1/sessions").await.expect(200);
    let revoke = || caller.request(Method::DELETE, &format!("/v1/api-keys/{id}"));
    Caller::send(revoke()).await.expect(204);
    assert_eq!(other.get("/v1/sessions").await.expect(401).code(), "credential_revoked");
    Caller::send(revoke()).await.expect(204);
    let listed = caller.get("/v1/api-keys").await.expect(200).json();
    let entry = listed["items"].as_array().unwrap().iter().find(|key| key["id"] == id.as_str()).unwrap().clone();
    assert!(entry["revoked_at"].is_string() && entry.get("key").is_none(), "{entry}");
    let log = caller.get("/v1/security-events").await.expect(200).json();
    let revocations =
        log["items"].as_array().unwrap().iter().filter(|entry| entry["code"] == "api_key_revoked").count();
    assert_eq!(revocations, 1, "revoking again changes nothing");
    server.stop().await;
}

#[tokio::test]
async fn an_expired_key_stops_working() {
    let (server, caller) = world(Backend::Sqlite).await;
    let soon = toolgate_server::wire::time_text(server.node().app().clock().now().plus_ms(700));
    let body = json!({"actor": "temp", "scopes": ["sessions:read"], "expires_at": soon});
    let (_, other) = caller.made(&body).await;
    let deadline = tokio::time::Instant::now() + WAIT;
    loop {
        let answer = other.get("/v1/sessions").await;
        if answer.status == 401 {
            assert_eq!(answer.code(), "credential_expired");
            break;
        }
        assert_eq!(answer.status, 200);
        assert!(tokio::time::Instant::now() < deadline, "the key never expired");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_key_cannot_make_a_wider_one() {
    let (server, caller) = world(Backend::Sqlite).await;
    let narrow =
        json!({"actor": "lead", "scopes": ["keys:admin", "sessions:write", "sessions:read"], "profiles": ["default"]});
    let (_, lead) = caller.made(&narrow).await;
    let wider = json!({"actor": "x", "scopes": ["sessions:write"], "profiles": ["default", "other"]});
    assert_eq!(lead.post("/v1/api-keys", &wider).await.expect(403).code(), "insufficient_scope");
    // Left out, the profiles are those of the maker, not all.
    let made = lead.post("/v1/api-keys", &json!({"actor": "x", "scopes": ["sessions:write"]})).await.expect(201);
    assert_eq!(made.json()["profiles"], json!(["default"]));
    server.stop().await;
}
