//! Three models vote on each step; two must agree. Every ballot and the tally are in the log.

use serde_json::{Value, json};
use toolgate_tests::world::{bundle, two_tools, with};
use toolgate_tests::{Caller, FakeModel, FakeTool, TestServer, Wild, WildModel};

fn look(args: &str) -> Value {
    FakeModel::calls(&[("look", args)])
}

struct Vote {
    server: TestServer,
    caller: Caller,
    tool: FakeTool,
    models: [FakeModel; 3],
}

impl Vote {
    /// One list of answers per model.
    async fn start(answers: [Vec<Value>; 3], more: Value) -> Self {
        let [a, b, c] = answers;
        let models = [FakeModel::start(a).await, FakeModel::start(b).await, FakeModel::start(c).await];
        let tool = FakeTool::ok().await;
        let mut bundle = bundle(&models[0].entry(), &two_tools(&tool));
        for (name, model) in ["m", "n", "o"].iter().zip(&models) {
            bundle["models"][name] = model.entry();
        }
        let mut consensus = json!({"n": 3, "k": 2, "models": ["m", "n", "o"], "decide": "all"});
        consensus.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let profile = json!({"tools": ["look", "act"], "consensus": consensus});
        let (server, caller) = TestServer::with_bundle(&with(bundle, "/profiles/default", profile)).await;
        Self { server, caller, tool, models }
    }

    async fn run(&self) -> (String, Value) {
        let id = self.caller.open("default", "go").await;
        let session = self.caller.until_ended(&id, 1).await;
        self.caller.verified(&id).await;
        (id, session)
    }

    async fn tallies(&self, id: &str) -> Vec<Value> {
        self.caller.events_of(id, "consensus_decided").await
    }
}

#[tokio::test]
async fn two_of_three_agree_whatever_the_spelling() {
    let vote = Vote::start(
        [
            vec![look(r#"{"text":"a"}"#), FakeModel::text("done")],
            vec![look(r#"{"text":"b"}"#), FakeModel::text("done")],
            vec![look("{ \"text\" : \"\\u0061\" }"), FakeModel::text("or not")],
        ],
        json!({}),
    )
    .await;
    let (id, session) = vote.run().await;
    assert_eq!((&session["run"]["ending"], &session["run"]["output"]), (&json!("done"), &json!("done")));
    assert_eq!(vote.tool.journal().iter().map(|ran| ran.body.as_str()).collect::<Vec<_>>(), [r#"{"text":"a"}"#]);
    let tallies = vote.tallies(&id).await;
    assert_eq!(tallies.len(), 2);
    assert_eq!((&tallies[0]["groups"], &tallies[0]["k"]), (&json!([[1, 3], [2]]), &json!(2)));
    assert_eq!((&tallies[0]["result"], &tallies[0]["ballot"]), (&json!("agreed"), &json!(1)));
    assert_eq!(tallies[1]["groups"], json!([[1, 2], [3]]));
    let ballots = vote.caller.events_of(&id, "ballot_received").await;
    assert_eq!(ballots.len(), 6, "every ballot is in the log");
    for step in [1, 2] {
        let mut seats: Vec<u64> =
            ballots.iter().filter(|b| b["step"] == step).map(|b| b["ballot"].as_u64().unwrap()).collect();
        seats.sort_unstable();
        assert_eq!(seats, [1, 2, 3]);
    }
    assert_eq!(session["run"]["model_calls"], 6);
    for model in &vote.models {
        assert_eq!(model.requests().len(), 2, "the losers see the same history as the winner");
    }
    vote.server.stop().await;
}

#[tokio::test]
async fn without_agreement_nothing_runs_and_the_step_is_rejected() {
    let answers = |text: &str| vec![look(&json!({"text": text}).to_string()), FakeModel::text("done")];
    let vote = Vote::start([answers("a"), answers("b"), answers("c")], json!({})).await;
    let (id, session) = vote.run().await;
    assert_eq!((&session["run"]["ending"], &session["run"]["steps"]), (&json!("done"), &json!(2)));
    assert!(vote.tool.journal().is_empty());
    let tallies = vote.tallies(&id).await;
    assert_eq!((&tallies[0]["result"], &tallies[0]["ballot"]), (&json!("rejected"), &Value::Null));
    assert_eq!(tallies[0]["groups"], json!([[1], [2], [3]]));
    assert_eq!(vote.caller.events_of(&id, "step_ended").await[0]["reason"], "no_consensus");
    assert!(vote.models[1].requests()[1]["messages"].to_string().contains("had to agree"));
    vote.server.stop().await;
}

#[tokio::test]
async fn a_retry_is_another_round_of_the_same_step() {
    let answers = |first: &str| {
        vec![look(&json!({"text": first}).to_string()), look(r#"{"text":"same"}"#), FakeModel::text("done")]
    };
    let more = json!({"on_no_consensus": "retry", "retries": 1});
    let vote = Vote::start([answers("a"), answers("b"), answers("c")], more).await;
    let (id, session) = vote.run().await;
    assert_eq!((&session["run"]["ending"], &session["run"]["steps"]), (&json!("done"), &json!(2)));
    assert_eq!(session["run"]["model_calls"], 9);
    let tallies = vote.tallies(&id).await;
    let seen: Vec<(&Value, &Value)> = tallies.iter().map(|tally| (&tally["round"], &tally["result"])).collect();
    assert_eq!(seen[..2], [(&json!(1), &json!("retry")), (&json!(2), &json!("agreed"))]);
    assert_eq!(vote.tool.journal().len(), 1);
    vote.server.stop().await;
}

#[tokio::test]
async fn retries_are_bounded() {
    let answers = |text: &str| {
        let stubborn = look(&json!({"text": text}).to_string());
        vec![stubborn.clone(), stubborn.clone(), stubborn, FakeModel::text("done")]
    };
    let more = json!({"on_no_consensus": "retry", "retries": 2});
    let vote = Vote::start([answers("a"), answers("b"), answers("c")], more).await;
    let (id, session) = vote.run().await;
    assert_eq!(session["run"]["ending"], "done");
    let tallies = vote.tallies(&id).await;
    let results: Vec<&str> = tallies.iter().map(|tally| tally["result"].as_str().unwrap()).collect();
    assert_eq!(results, ["retry", "retry", "rejected", "agreed"]);
    assert!(vote.tool.journal().is_empty());
    vote.server.stop().await;
}

#[tokio::test]
async fn without_agreement_a_human_may_be_asked() {
    let answers = |text: &str| vec![look(&json!({"text": text}).to_string()), FakeModel::text("done")];
    let vote = Vote::start([answers("a"), answers("b"), answers("c")], json!({"on_no_consensus": "escalate"})).await;
    let id = vote.caller.open("default", "go").await;
    let session = vote.caller.until(&id, "an approval", |s| s["status"] == "waiting_approval").await;
    assert!(vote.tool.journal().is_empty());
    let approval = &session["waiting"]["approvals"][0];
    let shown =
        vote.caller.get(&format!("/v1/approvals/{}", approval["id"].as_str().unwrap())).await.expect(200).json();
    assert_eq!((&shown["vote"]["groups"], &shown["vote"]["result"]), (&json!([[1], [2], [3]]), &json!("escalated")));
    let path = format!("/v1/approvals/{}/decision", approval["id"].as_str().unwrap());
    let approver = vote.caller.with_scopes("grace", &["approvals:write"]).await;
    approver.post(&path, &json!({"decision": "approve", "digest": approval["digest"]})).await.expect(200);
    assert_eq!(vote.caller.until_ended(&id, 1).await["run"]["ending"], "done");
    assert_eq!(vote.tool.journal().len(), 1);
    assert_eq!(vote.tallies(&id).await[0]["result"], "escalated");
    vote.caller.verified(&id).await;
    vote.server.stop().await;
}

/// Three models of which some fail.
async fn with_failing(failing: usize) -> (Value, Vec<Value>, FakeTool) {
    let good = || async { FakeModel::start_with(vec![look(r#"{"text":"a"}"#), FakeModel::text("done")], true).await };
    let wild = WildModel::start(vec![Wild::Bytes(Vec::new())]).await;
    let tool = FakeTool::ok().await;
    let mut bundle = bundle(&wild.entry(), &two_tools(&tool));
    for (place, name) in ["m", "n", "o"].iter().enumerate() {
        bundle["models"][name] = if place < failing { wild.entry() } else { good().await.entry() };
    }
    let consensus = json!({"n": 3, "k": 2, "models": ["m", "n", "o"], "decide": "all"});
    let profile = json!({"tools": ["look"], "consensus": consensus});
    let (server, caller) = TestServer::with_bundle(&with(bundle, "/profiles/default", profile)).await;
    let body = json!({"profile": "default", "prompt": "go", "limits": {"max_steps": 2}});
    let id = caller.post("/v1/sessions", &body).await.expect(201).json()["id"].as_str().unwrap().to_owned();
    let session = caller.until_ended(&id, 1).await;
    let tallies = caller.events_of(&id, "consensus_decided").await;
    caller.verified(&id).await;
    server.stop().await;
    (session, tallies, tool)
}

#[tokio::test]
async fn a_model_that_fails_is_a_voice_against() {
    let (session, tallies, tool) = with_failing(1).await;
    assert_eq!(session["run"]["ending"], "done");
    assert_eq!((&tallies[0]["groups"], &tallies[0]["unreadable"]), (&json!([[2, 3]]), &json!([1])));
    assert_eq!(tool.journal().len(), 1);
    // One of three is no two of three, however many failed.
    let (session, tallies, tool) = with_failing(2).await;
    assert_eq!(session["run"]["ending"], "max_steps_exceeded");
    assert_eq!((&tallies[0]["result"], &tallies[0]["unreadable"]), (&json!("rejected"), &json!([1, 2])));
    assert!(tool.journal().is_empty());
}

#[tokio::test]
async fn when_all_models_fail_the_run_says_so() {
    let (session, tallies, tool) = with_failing(3).await;
    assert_eq!(session["run"]["ending"], "provider_failed");
    assert!(tallies.is_empty() && tool.journal().is_empty());
}

/// Two models agree while the third never answers: nothing waits for it.
#[tokio::test]
async fn a_settled_vote_waits_for_nobody() {
    let good = || async { FakeModel::start(vec![look(r#"{"text":"a"}"#), FakeModel::text("done")]).await };
    let silent = WildModel::start(vec![Wild::Hang(Vec::new())]).await;
    let tool = FakeTool::ok().await;
    let mut bundle = bundle(&silent.entry(), &two_tools(&tool));
    bundle["models"]["m"] = good().await.entry();
    bundle["models"]["n"] = silent.entry();
    bundle["models"]["o"] = good().await.entry();
    let consensus = json!({"n": 3, "rule": "majority", "models": ["m", "n", "o"]});
    let profile = json!({"tools": ["look"], "consensus": consensus});
    let (server, caller) = TestServer::with_bundle(&with(bundle, "/profiles/default", profile)).await;
    let id = caller.open("default", "go").await;
    let session = caller.until_ended(&id, 1).await;
    assert_eq!((&session["run"]["ending"], &session["run"]["model_calls"]), (&json!("done"), &json!(6)));
    for tally in caller.events_of(&id, "consensus_decided").await {
        assert_eq!((&tally["n"], &tally["rule"], &tally["k"]), (&json!(3), &json!("majority"), &json!(2)));
        assert_eq!((&tally["groups"], &tally["cancelled"]), (&json!([[1, 3]]), &json!([2])));
    }
    assert_eq!(tool.journal().len(), 1);
    caller.verified(&id).await;
    server.stop().await;
}

/// One model proposes; what acts needs all of three, which are asked before anything is decided.
#[tokio::test]
async fn a_risky_tool_is_voted_on_by_more() {
    let act = |text: &str| FakeModel::calls(&[("act", &json!({"text": text}).to_string())]);
    let more = json!({"n": 1, "k": 1, "by_tool": {"act": {"n": 3, "rule": "unanimous"}}, "decide": "early"});
    let answers =
        [vec![look(r#"{"text":"a"}"#), act("pay"), FakeModel::text("done")], vec![act("pay")], vec![act("pay")]];
    let vote = Vote::start(answers, more).await;
    let (id, session) = vote.run().await;
    assert_eq!((&session["run"]["ending"], &session["run"]["model_calls"]), (&json!("done"), &json!(5)));
    let widened = vote.caller.events_of(&id, "vote_widened").await;
    assert_eq!(widened.len(), 1);
    assert_eq!(
        (&widened[0]["step"], &widened[0]["tool"], &widened[0]["why"]),
        (&json!(2), &json!("act"), &json!("tool"))
    );
    assert_eq!(widened[0]["to"], json!({"n": 3, "rule": "unanimous", "k": 3}));
    let tallies = vote.tallies(&id).await;
    assert_eq!((tallies.len(), &tallies[0]["groups"]), (1, &json!([[1, 2, 3]])));
    assert_eq!(vote.tool.journal().len(), 2);
    vote.server.stop().await;
}
