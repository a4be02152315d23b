//! Keys, scopes, ceilings, tenants: who is let in, and what others see.

use std::time::Duration;

use axum::body::Body;
use axum::http::{Method, Request};
use serde_json::{Value, json};
use toolgate_server::caller::Scope;
use toolgate_server::clock::Clock as _;
use toolgate_store::Registry as _;

use super::world::{World, id};

#[tokio::test]
async fn only_the_whole_key_opens() {
    let (_, caller) = World::start().await;
    caller.get("/v1/sessions").await.expect(200);
    let key = caller.key.clone();
    let mut forged = key.clone();
    // One digit of the secret, with the check of the real one.
    let place = forged.len() - 12;
    let other = if &forged[place..=place] == "0" { "1" } else { "0" };
    forged.replace_range(place..=place, other);
    for wrong in ["", "x", &key[..key.len() - 1], &format!("{key}0"), &forged, &key.to_uppercase()] {
        let answer = caller.with_key(wrong).get("/v1/sessions").await;
        assert!(answer.header("www-authenticate").starts_with("Bearer"));
        answer.problem(401, "unauthenticated");
    }
    let bare = Request::builder().uri("/v1/sessions").body(Body::empty()).unwrap();
    caller.send(bare).await.problem(401, "unauthenticated");
    let basic = Request::builder().uri("/v1/sessions").header("authorization", format!("Basic {key}"));
    caller.send(basic.body(Body::empty()).unwrap()).await.problem(401, "unauthenticated");
    let twice = caller.request(Method::GET, "/v1/sessions").header("authorization", format!("Bearer {key}"));
    caller.send(twice.body(Body::empty()).unwrap()).await.problem(401, "unauthenticated");
}

#[tokio::test]
async fn another_servers_key_is_unknown() {
    let (_, caller) = World::start().await;
    let (other, _) = World::start().await;
    let stranger = other.caller("acme").await;
    caller.with_key(&stranger.key).get("/v1/sessions").await.problem(401, "unauthenticated");
}

#[tokio::test]
async fn an_expired_key_and_a_revoked_one_say_so_within_five_seconds() {
    let (world, admin) = World::start().await;
    let end = world.clock.now().plus_ms(60_000);
    let short = world.scoped("acme", &[Scope::SessionsRead], None, Some(end)).await;
    short.get("/v1/sessions").await.expect(200);
    // Revoked behind this node's back: believed for at most five seconds.
    let revoked = world.scoped("acme", &[Scope::SessionsRead], None, None).await;
    revoked.get("/v1/sessions").await.expect(200);
    let tenant = toolgate_core::id::TenantId::new("acme").unwrap();
    assert!(world.store.api_key_revoke(&tenant, &revoked.id, world.clock.now()).await.unwrap());
    world.clock.advance(Duration::from_secs(5));
    revoked.get("/v1/sessions").await.problem(401, "credential_revoked");
    // Revoked through this node: at once.
    let third = world.scoped("acme", &[Scope::SessionsRead], None, None).await;
    third.get("/v1/sessions").await.expect(200);
    let delete = admin.request(Method::DELETE, &format!("/v1/api-keys/{}", third.id)).body(Body::empty()).unwrap();
    admin.send(delete).await.expect(204);
    third.get("/v1/sessions").await.problem(401, "credential_revoked");
    world.clock.advance(Duration::from_secs(60));
    short.get("/v1/sessions").await.problem(401, "credential_expired");
}

#[tokio::test]
async fn every_operation_needs_its_scope() {
    let (world, all) = World::start().await;
    let session = id(&all.settled("server").await);
    let path = |rest: &str| format!("/v1/sessions/{session}{rest}");
    let read = vec![Scope::SessionsRead, Scope::AuditRead];
    let any = vec![Scope::ApprovalsWrite, Scope::SessionsRead, Scope::AuditRead];
    let decision = json!({"decision": "approve", "digest": format!("sha256:{}", "0".repeat(64))});
    let decide = format!("/v1/approvals/apr_{}/decision", "0".repeat(32));
    let key = json!({"actor": "bob", "scopes": ["sessions:read"]});
    let get = |path: String, scopes: &[Scope]| (Method::GET, path, json!({}), scopes.to_vec());
    let post = |path: String, body: Value, scopes: &[Scope]| (Method::POST, path, body, scopes.to_vec());
    let operations = [
        post("/v1/sessions".to_owned(), json!({"profile": "client", "prompt": "x"}), &[Scope::SessionsWrite]),
        get("/v1/sessions".to_owned(), &read),
        get(path(""), &read),
        get(path("/events"), &read),
        get(path("/calls"), &read),
        get(path(&format!("/blobs/sha256:{}", "0".repeat(64))), &read),
        post(path("/messages"), json!({"text": "x"}), &[Scope::SessionsWrite]),
        post(path("/cancel"), json!({}), &[Scope::SessionsWrite]),
        post(path("/close"), json!({}), &[Scope::SessionsWrite]),
        post(path("/verify"), json!({}), &read),
        get("/v1/approvals".to_owned(), &any),
        get(format!("/v1/approvals/apr_{}", "0".repeat(32)), &any),
        post(decide, decision, &[Scope::ApprovalsWrite]),
        (Method::PUT, "/v1/bundle".to_owned(), super::world::bundle(), vec![Scope::RegistryWrite]),
        get("/v1/bundle".to_owned(), &[Scope::RegistryWrite, Scope::SessionsRead, Scope::AuditRead]),
        get(
            format!("/v1/bundles/sha256:{}", "0".repeat(64)),
            &[Scope::RegistryWrite, Scope::SessionsRead, Scope::AuditRead],
        ),
        get("/v1/api-keys".to_owned(), &[Scope::KeysAdmin]),
        post("/v1/api-keys".to_owned(), key, &[Scope::KeysAdmin]),
        (Method::DELETE, "/v1/api-keys/x".to_owned(), json!({}), vec![Scope::KeysAdmin]),
        get("/v1/security-events".to_owned(), &[Scope::AuditRead]),
    ];
    for scope in Scope::ALL {
        let caller = world.scoped("acme", &[scope], None, None).await;
        for (method, path, body, allowed) in &operations {
            let answer = caller.text(method.clone(), path, &[], &body.to_string()).await;
            let refused = answer.status.as_u16() == 403;
            assert_eq!(refused, !allowed.contains(&scope), "{method} {path} with {}: {}", scope.word(), answer.text);
            if refused {
                assert!(answer.header("www-authenticate").contains("insufficient_scope"));
                answer.problem(403, "insufficient_scope");
            } else {
                assert!(answer.status.as_u16() != 401 && answer.status.as_u16() < 500, "{}", answer.text);
            }
        }
    }
}

#[tokio::test]
async fn the_ceiling_of_a_key_holds() {
    let (world, _) = World::start().await;
    let narrow = world.scoped("acme", &Scope::ALL, Some(&["client"]), None).await;
    let body = json!({"profile": "server", "prompt": "x"});
    narrow.post("/v1/sessions", &body).await.problem(403, "profile_not_permitted");
    narrow.post("/v1/sessions", &json!({"profile": "client", "prompt": "x"})).await.expect(201);
}

#[tokio::test]
async fn another_tenants_things_are_the_same_404_as_nothing() {
    let (world, acme) = World::start().await;
    let waiting = acme.settled("approval").await;
    let (session, approval) = (id(&waiting), id(&waiting["waiting"]["approvals"][0]));
    let digest = waiting["waiting"]["approvals"][0]["digest"].clone();
    let other = world.caller("other").await;
    let nothing = format!("ses_{}", "0".repeat(32));
    let no_approval = format!("apr_{}", "0".repeat(32));
    let no_digest = format!("sha256:{}", "0".repeat(64));
    for (foreign, absent) in [
        (format!("/v1/sessions/{session}"), format!("/v1/sessions/{nothing}")),
        (format!("/v1/sessions/{session}/events"), format!("/v1/sessions/{nothing}/events")),
        (format!("/v1/sessions/{session}/calls"), format!("/v1/sessions/{nothing}/calls")),
        (format!("/v1/sessions/{session}/blobs/{no_digest}"), format!("/v1/sessions/{nothing}/blobs/{no_digest}")),
        (format!("/v1/approvals/{approval}"), format!("/v1/approvals/{no_approval}")),
        (format!("/v1/bundles/{}", waiting["bundle"].as_str().unwrap()), format!("/v1/bundles/{no_digest}")),
    ] {
        same_404(
            &other.get(&foreign).await.problem(404, "not_found"),
            &other.get(&absent).await.problem(404, "not_found"),
        );
    }
    let decision = json!({"decision": "approve", "digest": digest});
    for (path, body) in [
        ("/v1/sessions/{}/messages", json!({"text": "x"})),
        ("/v1/sessions/{}/cancel", json!({})),
        ("/v1/sessions/{}/close", json!({})),
        ("/v1/sessions/{}/verify", json!({})),
        ("/v1/approvals/{}/decision", decision),
    ] {
        let of = |session: &str, approval: &str| {
            path.replace("{}", if path.starts_with("/v1/sessions") { session } else { approval })
        };
        let foreign = other.post(&of(&session, &approval), &body).await.problem(404, "not_found");
        let absent = other.post(&of(&nothing, &no_approval), &body).await.problem(404, "not_found");
        same_404(&foreign, &absent);
    }
    // Nothing of it had an effect, and lists stay empty.
    assert_eq!(acme.get(&format!("/v1/sessions/{session}")).await.json()["status"], "waiting_approval");
    for list in ["/v1/sessions", "/v1/approvals"] {
        assert_eq!(other.get(list).await.expect(200).json()["items"], json!([]));
    }
    // The prober's own tenant has it on record; the owner's has not.
    let entries = other.get("/v1/security-events?limit=200").await.expect(200).json();
    let probes: Vec<_> =
        entries["items"].as_array().unwrap().iter().filter(|e| e["code"] == "unknown_session_id").collect();
    assert!(probes.iter().any(|entry| entry["session_id"] == session.as_str()), "{entries:#}");
    assert!(probes.iter().all(|entry| entry["actor"] == "alice"));
    let own = acme.get("/v1/security-events").await.expect(200).json();
    assert!(own["items"].as_array().unwrap().iter().all(|entry| entry["code"] == "bundle_changed"), "{own:#}");
}

fn same_404(foreign: &serde_json::Value, absent: &serde_json::Value) {
    for field in ["type", "title", "status", "code", "detail", "errors"] {
        assert_eq!(foreign[field], absent[field]);
    }
}

#[tokio::test]
async fn probes_are_noted_up_to_a_rate() {
    let (world, _) = World::start().await;
    let other = world.caller("other").await;
    let per_minute = usize::try_from(world.app.limits().probes_per_minute).unwrap();
    for n in 0..per_minute + 10 {
        other.get(&format!("/v1/sessions/ses_{n:032x}")).await.problem(404, "not_found");
    }
    let noted = other.get("/v1/security-events?limit=200").await.json()["items"].as_array().unwrap().len();
    // The minute may have turned in between.
    assert!((per_minute..per_minute + 10).contains(&noted), "{noted}");
}

#[tokio::test]
async fn ids_without_form_are_not_found() {
    let (_, caller) = World::start().await;
    for path in ["/v1/sessions/x", "/v1/sessions/SES_0", "/v1/approvals/x", "/v1/bundles/x", "/v1/sessions/%00/events"]
    {
        caller.get(path).await.problem(404, "not_found");
    }
}
