//! API keys over REST: shown once, listed without secret, revoked.

use axum::body::Body;
use axum::http::Method;
use serde_json::json;
use toolgate_server::caller::Scope;

use super::world::{World, id};

#[tokio::test]
async fn a_made_key_works_and_is_shown_once() {
    let (world, admin) = World::start().await;
    let body =
        json!({"actor": "bob", "scopes": ["sessions:read", "sessions:write"], "profiles": ["client"], "label": "ci"});
    let headers = [("idempotency-key", "make-1")];
    let answer = admin.post_with("/v1/api-keys", &headers, &body).await.expect(201);
    let made = answer.json();
    assert_eq!(answer.header("location"), format!("/v1/api-keys/{}", id(&made)));
    let key = made["key"].as_str().unwrap().to_owned();
    assert!(key.starts_with(&format!("tg_live_{}_", id(&made))));
    // The repetition names the key, but the secret is gone; no second key was made.
    let again = admin.post_with("/v1/api-keys", &headers, &body).await.expect(201);
    assert_eq!((again.header("idempotency-replayed"), &again.json()["id"]), ("true", &made["id"]));
    assert!(again.json().get("key").is_none());
    let listed = admin.get("/v1/api-keys").await.expect(200);
    assert!(!listed.text.contains(&key[30..]), "no secret in the list");
    let rows = listed.json();
    let row = rows["items"].as_array().unwrap().iter().find(|row| row["id"] == made["id"]).unwrap();
    assert_eq!((&row["actor"], &row["profiles"], &row["label"]), (&json!("bob"), &json!(["client"]), &json!("ci")));
    assert_eq!(rows["items"].as_array().unwrap().len(), 2);

    let bob = admin.with_key(&key);
    let session = bob.post("/v1/sessions", &json!({"profile": "client", "prompt": "go"})).await.expect(201).json();
    let events = admin.get(&format!("/v1/sessions/{}/events", id(&session))).await.json();
    assert_eq!(events["items"][0]["by"], "bob");
    bob.post("/v1/sessions", &json!({"profile": "server", "prompt": "go"})).await.problem(403, "profile_not_permitted");
    bob.get("/v1/api-keys").await.problem(403, "insufficient_scope");

    let delete = || admin.request(Method::DELETE, &format!("/v1/api-keys/{}", id(&made))).body(Body::empty()).unwrap();
    let stranger = world.caller("other").await;
    let foreign = stranger.request(Method::DELETE, &format!("/v1/api-keys/{}", id(&made))).body(Body::empty()).unwrap();
    stranger.send(foreign).await.problem(404, "not_found");
    for nothing in ["x", "%00", &"0".repeat(20)] {
        let absent = admin.request(Method::DELETE, &format!("/v1/api-keys/{nothing}")).body(Body::empty()).unwrap();
        admin.send(absent).await.problem(404, "not_found");
    }
    bob.get("/v1/sessions").await.expect(200);
    admin.send(delete()).await.expect(204);
    admin.send(delete()).await.expect(204);
    bob.get("/v1/sessions").await.problem(401, "credential_revoked");
    let log = admin.get("/v1/security-events").await.json();
    let codes: Vec<&str> =
        log["items"].as_array().unwrap().iter().map(|entry| entry["code"].as_str().unwrap()).collect();
    assert_eq!(codes, ["api_key_revoked", "api_key_created", "bundle_changed"]);
}

#[tokio::test]
async fn a_key_cannot_widen_its_makers_ceiling() {
    let (world, _) = World::start().await;
    let narrow = world.scoped("acme", &Scope::ALL, Some(&["client"]), None).await;
    let wide = json!({"actor": "bob", "scopes": ["sessions:write"], "profiles": ["client", "server"]});
    narrow.post("/v1/api-keys", &wide).await.problem(403, "insufficient_scope");
    let unsaid = json!({"actor": "bob", "scopes": ["sessions:write"]});
    assert_eq!(narrow.post("/v1/api-keys", &unsaid).await.expect(201).json()["profiles"], json!(["client"]));
}

#[tokio::test]
async fn keys_without_sense_are_refused() {
    let (_, admin) = World::start().await;
    for (body, pointer) in [
        (json!({"actor": "bob", "scopes": []}), "/scopes"),
        (json!({"actor": "bob", "scopes": ["sessions:read", "everything"]}), "/scopes/1"),
        (json!({"actor": "b ob", "scopes": ["sessions:read"]}), "/actor"),
        (json!({"actor": "bob", "scopes": ["sessions:read"], "profiles": []}), "/profiles"),
        (json!({"actor": "bob", "scopes": ["sessions:read"], "expires_at": "2020-01-01T00:00:00Z"}), "/expires_at"),
        (json!({"actor": "bob", "scopes": ["sessions:read"], "expires_at": "soon"}), "/expires_at"),
        (json!({"actor": "bob", "scopes": ["sessions:read"], "label": "x".repeat(201)}), "/label"),
        (json!({"actor": "bob", "scopes": ["sessions:read"], "label": "a\u{0}b"}), "/label"),
    ] {
        let problem = admin.post("/v1/api-keys", &body).await.problem(422, "invalid_request");
        assert_eq!(problem["errors"][0]["pointer"], pointer, "{problem:#}");
    }
    let forged = json!({"actor": "bob", "scopes": ["sessions:read"], "tenant": "other"});
    admin.post("/v1/api-keys", &forged).await.problem(422, "invalid_request");
    assert_eq!(admin.get("/v1/api-keys").await.json()["items"].as_array().unwrap().len(), 1);
}
