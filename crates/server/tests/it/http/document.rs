//! What the server answers against what its document says: every body that is seen here fits its schema.

use std::collections::BTreeSet;

use axum::body::Body;
use axum::http::Method;
use serde_json::{Value, json};

use super::world::{Answer, World, id};

struct Document(Value);

impl Document {
    fn new() -> Self {
        let document = toolgate_server::openapi::document();
        Self(serde_json::to_value(document).unwrap())
    }

    /// Fails unless the operation documents this status, and the body fits.
    #[track_caller]
    fn fits(&self, method: &str, path: &str, answer: &Answer) {
        let operation = &self.0["paths"][path][method];
        assert!(operation.is_object(), "{method} {path} is not documented");
        let mut response = &operation["responses"][answer.status.as_str()];
        if let Some(reference) = response["$ref"].as_str() {
            response = self.0.pointer(reference.strip_prefix('#').unwrap()).unwrap();
        }
        assert!(response.is_object(), "{method} {path} does not document {}: {}", answer.status, answer.text);
        if answer.text.is_empty() {
            return;
        }
        let media = answer.header("content-type").split(';').next().unwrap();
        let schema = &response["content"][media]["schema"];
        assert!(schema.is_object(), "{method} {path} does not document {media} for {}", answer.status);
        let root = json!({"$schema": "https://json-schema.org/draft/2020-12/schema", "allOf": [schema], "components": self.0["components"]});
        let validator = jsonschema::validator_for(&root).unwrap();
        let faults: Vec<String> =
            validator.iter_errors(&answer.json()).map(|fault| format!("{}: {fault}", fault.instance_path())).collect();
        assert!(faults.is_empty(), "{method} {path} {}: {faults:#?}\n{}", answer.status, answer.text);
    }
}

#[tokio::test]
async fn answers_fit_their_schemas() {
    let document = Document::new();
    let (_, caller) = World::start().await;
    let mut sessions = Vec::new();
    for profile in ["server", "client", "approval"] {
        let body = json!({"profile": profile, "prompt": "go", "id": profile});
        for _ in 0..2 {
            let answer = caller.post_with("/v1/sessions", &[("prefer", "wait=15")], &body).await;
            document.fits("post", "/v1/sessions", &answer);
            sessions.push(answer.json());
        }
    }
    let approval = id(&sessions[4]["waiting"]["approvals"][0]);
    document.fits("get", "/v1/approvals", &caller.get("/v1/approvals").await);
    let shown = caller.get(&format!("/v1/approvals/{approval}")).await;
    document.fits("get", "/v1/approvals/{id}", &shown);
    let decision = json!({"decision": "edit", "digest": shown.json()["digest"], "arguments": {"text": "x"}});
    let decided = caller.post(&format!("/v1/approvals/{approval}/decision"), &decision).await;
    document.fits("post", "/v1/approvals/{id}/decision", &decided);
    document.fits("get", "/v1/approvals/{id}", &caller.get(&format!("/v1/approvals/{approval}")).await);
    let said = caller.post(&format!("/v1/sessions/{}/messages", id(&sessions[0])), &json!({"text": "more"})).await;
    document.fits("post", "/v1/sessions/{id}/messages", &said);
    let refused = caller.post(&format!("/v1/sessions/{}/messages", id(&sessions[2])), &json!({"text": "more"})).await;
    document.fits("post", "/v1/sessions/{id}/messages", &refused);
    let mut kinds = BTreeSet::new();
    for session in [&sessions[0], &sessions[2], &sessions[4]] {
        let path = |rest: &str| format!("/v1/sessions/{}{rest}", id(session));
        document.fits(
            "post",
            "/v1/sessions/{id}/cancel",
            &caller.post(&path("/cancel"), &json!({"reason": "x"})).await,
        );
        document.fits("post", "/v1/sessions/{id}/close", &caller.post(&path("/close"), &json!({})).await);
        document.fits("get", "/v1/sessions/{id}", &caller.get(&path("")).await);
        let events = caller.get(&path("/events?limit=1000")).await;
        document.fits("get", "/v1/sessions/{id}/events", &events);
        kinds.extend(events.json()["items"].as_array().unwrap().iter().map(|e| e["type"].as_str().unwrap().to_owned()));
        document.fits("get", "/v1/sessions/{id}/calls", &caller.get(&path("/calls")).await);
        document.fits("post", "/v1/sessions/{id}/verify", &caller.post(&path("/verify"), &json!({})).await);
    }
    for kind in [
        "session_opened",
        "run_started",
        "ballot_received",
        "call_decided",
        "call_ended",
        "approval_decided",
        "message_received",
        "run_ended",
        "cancel_requested",
        "close_requested",
        "session_closed",
    ] {
        assert!(kinds.contains(kind), "{kind} was not seen among {kinds:?}");
    }
    for list in ["/v1/sessions", "/v1/api-keys", "/v1/security-events", "/v1/bundle"] {
        document.fits("get", list, &caller.get(list).await);
    }
    let bundle =
        caller.text(Method::PUT, "/v1/bundle", &[("if-match", "*")], &super::world::bundle().to_string()).await;
    document.fits("put", "/v1/bundle", &bundle);
    document.fits("put", "/v1/bundle", &caller.put("/v1/bundle", &json!({})).await);
    let key = caller.post("/v1/api-keys", &json!({"actor": "bob", "scopes": ["sessions:read"]})).await;
    document.fits("post", "/v1/api-keys", &key);
    let delete =
        caller.request(Method::DELETE, &format!("/v1/api-keys/{}", id(&key.json()))).body(Body::empty()).unwrap();
    document.fits("delete", "/v1/api-keys/{id}", &caller.send(delete).await);
    for open in ["/healthz", "/readyz"] {
        document.fits("get", open, &caller.get(open).await);
    }
}

/// Every operation answers with a documented status to a caller without a key, and to nonsense.
#[tokio::test]
async fn every_operation_is_served_and_refuses_as_documented() {
    let document = Document::new();
    let (_, caller) = World::start().await;
    let nobody = caller.with_key("nothing");
    for (path, item) in document.0["paths"].as_object().unwrap() {
        let concrete = path.replace("{id}", "x").replace("{digest}", "x");
        for method in item.as_object().unwrap().keys() {
            let verb: Method = method.to_uppercase().parse().unwrap();
            let answer = nobody.text(verb.clone(), &concrete, &[], "[1").await;
            if path.starts_with("/v1/") {
                document.fits(method, path, &answer);
                answer.problem(401, "unauthenticated");
            }
            let answer = caller.text(verb, &concrete, &[], "[1").await;
            document.fits(method, path, &answer);
            assert!(answer.status.as_u16() < 500, "{method} {path}: {}", answer.text);
        }
    }
}
