//! What an auditor finds besides a session's own log: forged identities in the tenant's security log. What is not here:
//! probes of foreign ids (the server's own tests), the chain (the program's tests).

use serde_json::Value;
use toolgate_tests::world::usual;
use toolgate_tests::{Backend, Caller, FakeModel, FakeTool, TestServer};

async fn security_log(caller: &Caller) -> Vec<Value> {
    caller.get("/v1/security-events").await.expect(200).json()["items"].as_array().unwrap().clone()
}

async fn a_forged_identity(backend: Backend) {
    let forged = r#"{"text":"a secret","options":[{"Tenant-ID":"other"}]}"#;
    let model = FakeModel::start(vec![FakeModel::calls(&[("look", r#"{"text":"fine"}"#), ("look", forged)])]).await;
    let tool = FakeTool::ok().await;
    let server = TestServer::start(backend).await;
    let caller = server.caller();
    caller.put_bundle(&usual(&model, &tool)).await;
    let id = caller.open("default", "go").await;
    let session = caller.until_ended(&id, 1).await;
    assert_eq!(session["run"]["ending"], "cross_tenant_denied");
    assert!(tool.journal().is_empty(), "the call beside it was not sent either");

    let decided = caller.events_of(&id, "call_decided").await;
    assert_eq!(decided[1]["reason"], "cross_tenant_denied");
    assert_eq!(decided[1]["layer"], "identity");
    let entries = security_log(&caller).await;
    let found: Vec<&Value> = entries.iter().filter(|entry| entry["code"] == "cross_tenant_denied").collect();
    assert_eq!(found.len(), 1, "{entries:?}");
    assert_eq!(found[0]["session_id"], id.as_str());
    assert_eq!(found[0]["detail"]["call_id"], decided[1]["call_id"]);
    assert!(found[0]["actor"].is_string());
    assert!(!found[0].to_string().contains("secret"), "an entry holds no content");

    let other = server.tenant("other").await;
    assert!(!security_log(&other).await.iter().any(|entry| entry["code"] == "cross_tenant_denied"));
    caller.verified(&id).await;
    server.stop().await;
}

#[tokio::test]
async fn a_forged_identity_is_in_the_security_log_on_sqlite() {
    a_forged_identity(Backend::Sqlite).await;
}

#[tokio::test]
async fn a_forged_identity_is_in_the_security_log_on_postgres() {
    a_forged_identity(Backend::Postgres).await;
}
