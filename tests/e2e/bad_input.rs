//! Requests that are wrong: each is refused with its status, its code and its place, as a problem document, and changes
//! nothing. What is not here: what a model or a tool gets wrong.

mod bodies;
mod bundles;
mod credentials;
mod ids;
mod parameters;

use reqwest::Method;
use serde_json::{Value, json};
use toolgate_tests::contract::CONTRACT;
use toolgate_tests::world::usual;
use toolgate_tests::{Backend, Caller, FakeModel, FakeTool, TestServer};

/// A server with a bundle whose model says `done` to everything.
async fn world(backend: Backend) -> (TestServer, Caller) {
    let (model, tool) = (FakeModel::start_with(vec![FakeModel::text("done")], true).await, FakeTool::ok().await);
    let server = TestServer::start(backend).await;
    let caller = server.caller();
    caller.put_bundle(&usual(&model, &tool)).await;
    (server, caller)
}

/// An id of each kind that has the right form and names nothing.
fn absent(template: &str) -> String {
    match template {
        _ if template.contains("/approvals/") => format!("apr_{}", "0".repeat(32)),
        _ if template.contains("/api-keys/") => "0".repeat(20),
        _ => "ses_018f3c7a000070008000000000000001".to_owned(),
    }
}

fn digest() -> String {
    format!("sha256:{}", "0".repeat(64))
}

/// Every operation with its template.
fn operations() -> Vec<(Method, String)> {
    let operations = CONTRACT.operations().into_iter();
    let method = |name: &str| Method::from_bytes(name.to_ascii_uppercase().as_bytes()).unwrap();
    operations.map(|(name, path)| (method(&name), path)).filter(|(_, path)| path.starts_with("/v1/")).collect()
}

/// A body that this operation takes; none where it takes none.
fn good_body(method: &Method, template: &str) -> Option<Value> {
    match (method.as_str(), template) {
        ("POST", "/v1/sessions") => Some(json!({"profile": "default", "prompt": "go"})),
        ("POST", "/v1/sessions/{id}/messages") => Some(json!({"text": "more"})),
        ("POST", "/v1/sessions/{id}/cancel" | "/v1/sessions/{id}/close" | "/v1/sessions/{id}/verify") => {
            Some(json!({}))
        }
        ("POST", "/v1/approvals/{id}/decision") => Some(json!({"decision": "approve", "digest": digest()})),
        ("POST", "/v1/api-keys") => Some(json!({"actor": "a", "scopes": ["sessions:read"]})),
        ("PUT", "/v1/bundle") => Some(json!({"version": 1})),
        ("GET" | "DELETE", _) => None,
        other => panic!("a new operation needs a body here: {other:?}"),
    }
}

/// The operations that take a body, on ids that name nothing.
fn with_bodies() -> Vec<(Method, String)> {
    let all = operations().into_iter().filter(|(method, path)| good_body(method, path).is_some());
    all.map(|(method, path)| (method, path.replace("{id}", &absent(&path)))).collect()
}
