//! Bundles over REST: versions, conditions, faults.

use axum::http::Method;
use serde_json::json;
use toolgate_server::app::HttpLimits;

use super::world::{World, bundle};

#[tokio::test]
async fn a_bundle_is_named_by_its_content_and_replaced_on_condition() {
    let world = World::bare(HttpLimits::default()).await;
    let caller = world.caller("acme").await;
    caller.get("/v1/bundle").await.problem(404, "not_found");
    let put = |headers: &'static [(&'static str, &'static str)], body: serde_json::Value| {
        let caller = caller.clone();
        async move { caller.text(Method::PUT, "/v1/bundle", headers, &body.to_string()).await }
    };
    put(&[("if-match", "*")], bundle()).await.problem(412, "precondition_failed");
    let first = put(&[("if-none-match", "*")], bundle()).await.expect(201);
    let digest = first.json()["digest"].as_str().unwrap().to_owned();
    assert_eq!(first.header("etag"), format!("\"{digest}\""));
    assert_eq!(first.json()["created_by"], "alice");
    put(&[("if-none-match", "*")], bundle()).await.problem(412, "precondition_failed");
    put(&[], bundle()).await.problem(428, "precondition_required");
    put(&[("if-match", "sha256:0")], bundle()).await.problem(400, "malformed");

    let mut changed = bundle();
    changed["profiles"]["server"]["description"] = json!("changed");
    let tag = format!("\"{digest}\"");
    let second = caller.text(Method::PUT, "/v1/bundle", &[("if-match", &tag)], &changed.to_string()).await.expect(201);
    let new_digest = second.json()["digest"].as_str().unwrap().to_owned();
    assert_ne!(new_digest, digest);
    // Who read the old one may not write over the new one.
    let stale = caller.text(Method::PUT, "/v1/bundle", &[("if-match", &tag)], &bundle().to_string()).await;
    stale.problem(412, "precondition_failed");
    // The same content again, in another spelling, is the same version.
    let spelled = serde_json::to_string_pretty(&changed).unwrap();
    let again = caller.text(Method::PUT, "/v1/bundle", &[("if-match", "*")], &spelled).await.expect(200);
    assert_eq!(again.json()["digest"], new_digest.as_str());

    let current = caller.get("/v1/bundle").await.expect(200);
    assert_eq!(current.header("etag"), format!("\"{new_digest}\""));
    assert_eq!(current.json(), changed);
    assert_eq!(caller.get(&format!("/v1/bundles/{digest}")).await.expect(200).json(), bundle());
    let same = caller.request(Method::GET, "/v1/bundle").header("if-none-match", format!("\"{new_digest}\""));
    caller.send(same.body(axum::body::Body::empty()).unwrap()).await.expect(304);
    let log = caller.get("/v1/security-events").await.json();
    assert_eq!(log["items"].as_array().unwrap().iter().filter(|entry| entry["code"] == "bundle_changed").count(), 2);
}

#[tokio::test]
async fn all_faults_are_listed_with_their_place_and_rule() {
    let (_, caller) = World::start().await;
    let mut broken = bundle();
    broken["profiles"]["server"]["tools"] = json!(["add", "nothing"]);
    broken["profiles"]["client"]["model"] = json!("nobody");
    broken["tools"]["add"]["parameters"] = json!({"type": "nonsense"});
    let problem = caller
        .text(Method::PUT, "/v1/bundle", &[("if-match", "*")], &broken.to_string())
        .await
        .problem(422, "bundle_invalid");
    let faults = problem["errors"].as_array().unwrap();
    assert!(faults.len() >= 3, "{problem:#}");
    for place in ["/profiles/server/tools", "/profiles/client/model", "/tools/add/parameters"] {
        assert!(faults.iter().any(|f| f["pointer"].as_str().unwrap().starts_with(place)), "{place}: {problem:#}");
    }
    assert!(faults.iter().all(|fault| !fault["code"].as_str().unwrap().is_empty()));
    caller.text(Method::PUT, "/v1/bundle", &[("if-match", "*")], "{\"version\":1,").await.problem(400, "malformed");
    let unknown = json!({"version": 1, "profiles": {}, "models": {}, "extra": 1});
    caller
        .text(Method::PUT, "/v1/bundle", &[("if-match", "*")], &unknown.to_string())
        .await
        .problem(422, "bundle_invalid");
    assert_eq!(caller.get("/v1/bundle").await.expect(200).json(), bundle());
}

#[tokio::test]
async fn running_sessions_keep_their_version() {
    let (_, caller) = World::start().await;
    let before = caller.settled("client").await;
    let mut changed = bundle();
    changed["profiles"]["client"]["description"] = json!("changed");
    caller.text(Method::PUT, "/v1/bundle", &[("if-match", "*")], &changed.to_string()).await.expect(201);
    let after = caller.settled("client").await;
    assert_ne!(before["bundle"], after["bundle"]);
    let same = caller.get(&format!("/v1/sessions/{}", super::world::id(&before))).await.json();
    assert_eq!(same["bundle"], before["bundle"]);
}
