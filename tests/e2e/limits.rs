//! Runs that must come to an end, and names that must not collide: FC-C07 (its counting), FC-E09, FC-E11. What is not
//! here: FC-C06 (`field_cases`), budgets.

use reqwest::Method;
use serde_json::{Value, json};
use toolgate_tests::world::{bundle, field_case, server_tool, with};
use toolgate_tests::{Caller, FakeModel, FakeTool, TestServer};

#[tokio::test]
async fn c07_calls_that_fail_count_as_steps() {
    let case = field_case("FC-C07");
    let (given, expect) = (&case["given"], &case["expect"]);
    let model = FakeModel::start_with(given["responses_of_subagent"].as_array().unwrap().clone(), true).await;
    let tool = FakeTool::ok().await;
    let search = with(
        server_tool(&tool, "search", "read"),
        "/parameters",
        json!({"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}),
    );
    let (server, caller) = TestServer::with_bundle(&bundle(&model.entry(), &json!({"search": search}))).await;
    let limits = json!({"max_steps": given["subagent"]["max_steps"]});
    let body = json!({"profile": "default", "prompt": "search", "limits": limits});
    let id = caller.post("/v1/sessions", &body).await.expect(201).json()["id"].as_str().unwrap().to_owned();
    let session = caller.until_ended(&id, 1).await;
    assert_eq!(session["run"]["ending"], "max_steps_exceeded", "a typed failure");
    assert_eq!(session["run"]["output"], Value::Null, "and no empty success");
    assert_eq!(Some(model.requests().len() as u64), expect["subagent_model_calls"].as_u64());
    let decided = caller.events_of(&id, "call_decided").await;
    assert!(decided.iter().all(|event| event["reason"] == "schema_invalid"), "{decided:#?}");
    assert!(tool.journal().is_empty());
    caller.verified(&id).await;
    server.stop().await;
}

#[tokio::test]
async fn e11_a_call_that_is_denied_again_and_again_ends_the_run() {
    let case = field_case("FC-E11");
    let (given, expect) = (&case["given"], &case["expect"]);
    let model = FakeModel::start_with(given["responses"].as_array().unwrap().clone(), true).await;
    let tool = FakeTool::ok().await;
    let command = with(
        server_tool(&tool, "run_command", "once"),
        "/parameters",
        json!({"properties": {"command": {"type": "string"}}}),
    );
    let tools = json!({"run_command": command, "look": server_tool(&tool, "look", "read")});
    let mut setting = bundle(&model.entry(), &tools);
    setting["default_harness"]["max_steps"] = given["max_steps"].clone();
    setting["profiles"]["default"]["tools"] = json!(["look"]);
    setting["policies"] = json!({"repeats": {}});
    let (server, caller) = TestServer::with_bundle(&setting).await;
    let id = caller.open("default", "show the log").await;
    let session = caller.until_ended(&id, 1).await;
    assert_eq!(session["run"]["ending"], "repeated_call");
    assert!(tool.journal().is_empty());
    let requests = model.requests();
    assert!(Some(requests.len() as u64) <= expect["model_calls_at_most"].as_u64(), "{}", requests.len());
    let told = requests.last().unwrap()["messages"].to_string().to_lowercase();
    assert!(told.contains("not allowed in this profile") && told.contains("available: `look`"), "{told}");
    for never in expect["feedback_must_not_mention"].as_array().unwrap() {
        assert!(!told.contains(never.as_str().unwrap()), "{told}");
    }
    caller.verified(&id).await;
    server.stop().await;
}

/// Puts a bundle as this very text.
async fn put(caller: &Caller, text: String) -> toolgate_tests::caller::Answer {
    let request = caller.request(Method::PUT, "/v1/bundle").header("content-type", "application/json");
    Caller::send(request.body(text)).await
}

/// A bundle text with these tools in this order.
fn text(tools: &[&str]) -> String {
    let tool = |name: &&str| {
        format!(
            r#""{name}":{{"description":"{name}","venue":"server","executor":{{"builtin":"echo"}},"parameters":{{}}}}"#
        )
    };
    let tools: Vec<String> = tools.iter().map(tool).collect();
    let rest = json!({
        "version": 1, "default_model": "m", "models": {"m": {"provider": "scripted", "script": [{"done": 1}]}},
        "default_harness": {"max_steps": 1, "max_tool_calls": 1, "deadline_ms": 60_000},
        "profiles": {"default": {"tools": ["search"]}}
    })
    .to_string();
    format!(r#"{{"tools":{{{}}},{}"#, tools.join(","), &rest[1..])
}

#[tokio::test]
async fn e09_names_that_collide_are_refused_and_order_means_nothing() {
    let case = field_case("FC-E09");
    let sources = case["given"]["sources"].as_array().unwrap();
    let mut names: Vec<&str> = sources[..2]
        .iter()
        .flat_map(|source| source["tools"].as_array().unwrap())
        .map(|name| name.as_str().unwrap())
        .collect();
    let server = TestServer::start(toolgate_tests::Backend::Sqlite).await;
    for round in ["one", "other"] {
        let refused = put(&server.tenant(round).await, text(&names)).await;
        assert!(refused.status.is_client_error(), "{}", refused.text);
        assert!(refused.text.contains("search"), "it names what collides: {}", refused.text);
        names.reverse();
    }
    // Without the collision: what differs by a byte is another tool, and both orders are one bundle.
    let mut apart = vec!["search", "read-file", "read_file"];
    let mut digests = Vec::new();
    for round in ["three", "four"] {
        let caller = server.tenant(round).await;
        let answer = put(&caller, text(&apart)).await;
        assert!(answer.status.is_success(), "{}", answer.text);
        digests.push(answer.headers["etag"].clone());
        apart.reverse();
    }
    assert_eq!(digests[0], digests[1]);
    server.stop().await;
}
