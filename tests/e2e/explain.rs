//! Who may ask why a call was decided, and in which forms. What is not here: what the text says, and that an export gives
//! the same (the program's tests).

use reqwest::Method;
use serde_json::{Value, json};
use toolgate_tests::world::usual;
use toolgate_tests::{Backend, Caller, FakeModel, FakeTool, TestServer};

async fn as_text(caller: &Caller, path: &str, accept: &str) -> toolgate_tests::caller::Answer {
    Caller::send(caller.request(Method::GET, path).header("accept", accept)).await
}

async fn explains(backend: Backend) {
    let answers = vec![FakeModel::calls(&[("look", r#"{"text":"a"}"#), ("nothing", "{}")]), FakeModel::text("done")];
    let (model, tool) = (FakeModel::start(answers).await, FakeTool::ok().await);
    let server = TestServer::start(backend).await;
    let caller = server.caller();
    caller.put_bundle(&usual(&model, &tool)).await;
    let id = caller.open("default", "go").await;
    caller.until_ended(&id, 1).await;
    let decided = caller.events_of(&id, "call_decided").await;
    let path = |call: &Value| format!("/v1/sessions/{id}/calls/{}/explain", call["call_id"].as_str().unwrap());

    let allowed = caller.get(&path(&decided[0])).await.expect(200).json();
    assert_eq!(allowed["decision"]["cause"], "every layer let it pass");
    assert_eq!(allowed["asked"]["args"], json!({"text": "a"}));
    assert_eq!((&allowed["end"]["status"], &allowed["run_ending"]), (&json!("ok"), &json!("done")));
    assert_eq!(allowed["dispatches"][0]["seq"], decided[0]["seq"]);
    assert_eq!(allowed["layers"][0], json!({"layer": "form", "answer": "passed", "looked_at": ["call.args"]}));
    let refused = caller.get(&path(&decided[1])).await.expect(200).json();
    assert_eq!(refused["decision"]["reason"], "unknown_tool");
    assert_eq!(refused["decision"]["cause"], "the layer `registry` refuses it: unknown_tool");
    assert_eq!(refused["layers"][1]["answer"], "decided");
    let text = as_text(&caller, &path(&decided[1]), "text/*, application/json;q=0.5").await.expect(200);
    assert!(text.headers["content-type"].to_str().unwrap().starts_with("text/plain"));
    assert!(text.text.starts_with("call: call_"), "{}", text.text);

    assert_eq!(as_text(&caller, &path(&decided[0]), "image/png").await.expect(406).code(), "not_acceptable");
    let nowhere = json!({"call_id": format!("call_{}", "0".repeat(32))});
    assert_eq!(caller.get(&path(&nowhere)).await.expect(404).code(), "unknown_call");
    assert_eq!(caller.get(&path(&json!({"call_id": "x"}))).await.expect(404).code(), "not_found");
    let unknown = format!("/v1/sessions/ses_018f3c7a000070008000000000000001/calls/{}/explain", "call_0");
    assert_eq!(caller.get(&unknown).await.expect(404).code(), "not_found");
    let approver = caller.with_scopes("grace", &["approvals:write"]).await;
    assert_eq!(approver.get(&path(&decided[0])).await.expect(403).code(), "insufficient_scope");
    let auditor = caller.with_scopes("paul", &["audit:read"]).await;
    auditor.get(&path(&decided[0])).await.expect(200);

    // Another tenant learns nothing: the same answer for a call that is there and for a session that is nowhere.
    let other = server.tenant("other").await;
    let foreign = other.get(&path(&decided[0])).await.expect(404);
    let nowhere = decided[0]["call_id"].as_str().unwrap();
    let nowhere = format!("/v1/sessions/ses_018f3c7a000070008000000000000001/calls/{nowhere}/explain");
    let absent = other.get(&nowhere).await.expect(404);
    let (foreign, absent) = (foreign.json(), absent.json());
    assert_eq!((&foreign["code"], &foreign["detail"]), (&absent["code"], &absent["detail"]));
    assert_eq!(foreign["code"], "not_found");
    server.stop().await;
}

#[tokio::test]
async fn a_call_is_explained_to_those_who_may_read_on_sqlite() {
    explains(Backend::Sqlite).await;
}

#[tokio::test]
async fn a_call_is_explained_to_those_who_may_read_on_postgres() {
    explains(Backend::Postgres).await;
}
