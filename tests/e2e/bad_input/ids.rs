//! Ids that name nothing: absent, of another tenant, without the form of an id. One answer for all of them.

use reqwest::Method;
use serde_json::{Value, json};
use toolgate_tests::caller::Answer;
use toolgate_tests::world::{bundle, server_tool, with};
use toolgate_tests::{Backend, Caller, FakeModel, FakeTool, TestServer};

use super::{absent, digest, good_body, operations};

/// The operations with an id or digest in their path.
fn with_ids() -> Vec<(Method, String)> {
    operations().into_iter().filter(|(_, path)| path.contains('{')).collect()
}

/// Asks with this id in the path; the answer, and its body with the id taken out.
async fn ask(caller: &Caller, method: &Method, template: &str, id: &str, digest: &str) -> (Answer, String) {
    let path = template.replace("{id}", id).replace("{digest}", digest);
    let path = path.replace("{call_id}", &format!("call_{}", "0".repeat(32)));
    let request = caller.request(method.clone(), &path).header("x-request-id", "one-and-the-same");
    let request = match good_body(method, template) {
        Some(body) => request.json(&body),
        None => request,
    };
    let answer = Caller::send(request).await;
    let body = answer.text.replace(&path, "PATH");
    (answer, body)
}

/// What the first tenant has: one of each kind of thing with an id.
struct Owned {
    session: String,
    approval: String,
    key: String,
    bundle: String,
    blob: String,
}

impl Owned {
    fn id(&self, template: &str) -> &str {
        match template {
            _ if template.contains("/approvals/") => &self.approval,
            _ if template.contains("/api-keys/") => &self.key,
            _ => &self.session,
        }
    }

    fn digest(&self, template: &str) -> &str {
        if template.contains("/blobs/") { &self.blob } else { &self.bundle }
    }
}

async fn owned(backend: Backend) -> (TestServer, Caller, Owned) {
    let answers = vec![FakeModel::calls(&[("look", "{}")]), FakeModel::calls(&[("act", "{}")])];
    let model = FakeModel::start(answers).await;
    let tool = FakeTool::start(|_| (200, vec![b'x'; 100_000])).await;
    let act = with(server_tool(&tool, "act", "once"), "/requires_approval", json!(true));
    let tools = json!({"look": server_tool(&tool, "look", "read"), "act": act});
    let server = TestServer::start(backend).await;
    let caller = server.caller();
    caller.put_bundle(&bundle(&model.entry(), &tools)).await;
    let session = caller.open("default", "go").await;
    let view = caller.until(&session, "an approval", |s| s["status"] == "waiting_approval").await;
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let ended = caller.events_of(&session, "call_ended").await;
    let owned = Owned {
        approval: text(&view["waiting"]["approvals"][0]["id"]),
        bundle: text(&view["bundle"]),
        blob: text(&ended[0]["content"]["output"]["blob"]["digest"]),
        key: text(&caller.get("/v1/api-keys").await.json()["items"][0]["id"]),
        session,
    };
    (server, caller, owned)
}

async fn one_answer(backend: Backend) {
    let (server, owner, owned) = owned(backend).await;
    let stranger = server.tenant("stranger").await;
    let before =
        (owner.session(&owned.session).await, owner.get(&format!("/v1/approvals/{}", owned.approval)).await.json());
    for (method, template) in with_ids() {
        let (own_id, own_digest) = (owned.id(&template).to_owned(), owned.digest(&template).to_owned());
        let (absent_id, absent_digest) = (absent(&template), digest());
        let (expected, body) = ask(&stranger, &method, &template, &absent_id, &absent_digest).await;
        assert_eq!(expected.expect(404).code(), "not_found", "{method} {template}");
        let mut probes = vec![(own_id.clone(), own_digest.clone()), (own_id.clone(), absent_digest.clone())];
        if template.contains("{id}") {
            let malformed = [
                "x".to_owned(),
                "%00".to_owned(),
                "%ff".to_owned(),
                "..%2f..%2fetc%2fpasswd".to_owned(),
                "'; DROP TABLE sessions; --".replace(' ', "%20"),
                own_id.to_uppercase(),
                format!("{own_id}x"),
                own_id[..own_id.len() - 1].to_owned(),
                "y".repeat(4_000),
            ];
            probes.extend(malformed.into_iter().map(|id| (id, absent_digest.clone())));
        }
        if template.contains("{digest}") {
            let malformed = [
                "sha256:".to_owned(),
                "%00".to_owned(),
                own_digest.to_uppercase(),
                own_digest.replace("sha256", "md5"),
            ];
            probes.extend(malformed.into_iter().map(|digest| (own_id.clone(), digest)));
        }
        for (id, digest) in probes {
            let (answer, found) = ask(&stranger, &method, &template, &id, &digest).await;
            assert_eq!(answer.status, 404, "{method} {template} {id} {digest}: {}", answer.text);
            assert_eq!(found, body, "{method} {template} {id} {digest}");
        }
    }
    // Nothing has changed for the owner, and the owner's own ids do work.
    let after =
        (owner.session(&owned.session).await, owner.get(&format!("/v1/approvals/{}", owned.approval)).await.json());
    assert_eq!(after, before);
    for (method, template) in with_ids() {
        if method == Method::GET {
            let (answer, _) = ask(&owner, &method, &template, owned.id(&template), owned.digest(&template)).await;
            if template.contains("{call_id}") {
                // The owner is told which of the two is absent.
                assert_eq!(answer.expect(404).code(), "unknown_call");
            } else {
                answer.expect(200);
            }
        }
    }
    owner.verified(&owned.session).await;
    server.stop().await;
}

#[tokio::test]
async fn foreign_absent_and_malformed_ids_get_one_answer_on_sqlite() {
    one_answer(Backend::Sqlite).await;
}

#[tokio::test]
async fn foreign_absent_and_malformed_ids_get_one_answer_on_postgres() {
    one_answer(Backend::Postgres).await;
}

#[tokio::test]
async fn unknown_paths_and_methods_are_problems_too() {
    let (server, caller, owned) = owned(Backend::Sqlite).await;
    let session = format!("/v1/sessions/{}", owned.session);
    for path in [
        "/",
        "/v1",
        "/v1/",
        "/v2/sessions",
        "/v1/session",
        "/v1/sessions/",
        "//v1/sessions",
        "/v1//sessions",
        "/metrics",
        "/v1/sessions/a/b/c/d",
        "/.env",
        "/V1/sessions",
    ] {
        assert_eq!(caller.get(path).await.expect(404).code(), "not_found", "{path}");
    }
    for (method, path) in [
        (Method::DELETE, session.as_str()),
        (Method::PATCH, session.as_str()),
        (Method::PUT, "/v1/sessions"),
        (Method::POST, "/v1/bundle"),
        (Method::POST, "/healthz"),
        (Method::GET, "/v1/approvals/x/decision"),
    ] {
        let refused = Caller::send(caller.request(method.clone(), path).json(&json!({}))).await.expect(405);
        assert_eq!(refused.code(), "method_not_allowed", "{method} {path}");
        assert!(refused.headers.contains_key("allow"), "{method} {path}");
    }
    server.stop().await;
}
