//! What a model is told around the conversation: the profile's texts with the values of the moment, and at the end of the
//! steps that it must finish.

use serde_json::{Value, json};
use toolgate_tests::world::{usual, with};
use toolgate_tests::{FakeModel, FakeTool, TestServer};

fn system(request: &Value) -> String {
    request["messages"][0]["content"].as_str().unwrap_or_default().to_owned()
}

fn look() -> Value {
    FakeModel::calls(&[("look", "{}")])
}

#[tokio::test]
async fn texts_stand_before_and_after_with_the_values_of_the_moment() {
    let (model, tool) = (FakeModel::start(vec![look(), FakeModel::text("done")]).await, FakeTool::ok().await);
    let prompt = json!({"before": "You work for run {{run}}.", "after": "{{steps_left}} steps are left."});
    let bundle = with(usual(&model, &tool), "/profiles/default/prompt", prompt);
    let bundle = with(bundle, "/profiles/default/output_schema", json!({"type": "string"}));
    let (server, caller) = TestServer::with_bundle(&bundle).await;
    let id = caller.open("default", "go").await;
    caller.until_ended(&id, 1).await;
    let told: Vec<String> = model.requests().iter().map(system).collect();
    assert_eq!(told.len(), 2);
    for (text, left) in told.iter().zip(["8 steps are left.", "7 steps are left."]) {
        assert!(text.starts_with("You work for run 1.") && text.contains(left), "{text}");
    }
    server.stop().await;
}

#[tokio::test]
async fn at_its_steps_a_run_gets_one_turn_to_finish_in() {
    for (last, ending) in [(FakeModel::text("what I know"), "done"), (look(), "max_steps_exceeded")] {
        let (model, tool) = (FakeModel::start(vec![look(), last]).await, FakeTool::ok().await);
        let bundle = usual(&model, &tool);
        let harness = json!({"max_steps": 1, "max_tool_calls": 8, "deadline_ms": 60_000, "at_limit": "wrap_up"});
        let bundle = with(bundle, "/profiles/default/harness", harness);
        let (server, caller) = TestServer::with_bundle(&bundle).await;
        let id = caller.open("default", "go").await;
        let session = caller.until_ended(&id, 1).await;
        assert_eq!(session["run"]["ending"], ending, "{session:#}");
        assert_eq!(session["run"]["steps"], 2, "the turn is a step");
        let requests = model.requests();
        assert!(requests[0]["tools"].is_array() && requests[1]["tools"].is_null(), "no tool is offered in it");
        assert!(system(&requests[1]).contains("This is your last turn"), "{}", system(&requests[1]));
        assert_eq!(caller.events_of(&id, "wrap_up_started").await.len(), 1);
        let ended = caller.events_of(&id, "run_ended").await;
        assert_eq!(ended[0]["wrapped_up"], true);
        let decided = caller.events_of(&id, "call_decided").await;
        if ending == "done" {
            assert_eq!(decided.len(), 1);
        } else {
            assert_eq!(
                (&decided[1]["decision"], &decided[1]["reason"]),
                (&json!("reject"), &json!("budget_exhausted"))
            );
        }
        assert_eq!(tool.journal().len(), 1, "nothing runs in it");
        caller.verified(&id).await;
        server.stop().await;
    }
}
