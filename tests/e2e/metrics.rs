//! The figures for operators, after sessions whose course is known: a vote, calls, failures, followers. What is not here: the
//! list of all figures, which a unit test compares with `docs/METRICS.md`.

use std::collections::BTreeMap;

use serde_json::json;
use toolgate_tests::world::{bundle, two_tools, with};
use toolgate_tests::{FakeModel, FakeTool, TestServer, Wild, WildModel};

use super::channel::Socket;

/// The figures by name and labels.
async fn figures(server: &TestServer) -> BTreeMap<String, f64> {
    let text = server.metrics().await;
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let figures: BTreeMap<String, f64> = lines
        .map(|line| {
            let (name, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}"));
            (name.to_owned(), value.parse().unwrap_or_else(|_| panic!("{line}")))
        })
        .collect();
    assert!(figures.keys().all(|name| name.starts_with("toolgate_")), "{figures:?}");
    figures
}

fn check(figures: &BTreeMap<String, f64>, expected: &[(&str, f64)]) {
    for (name, value) in expected {
        assert_eq!(figures.get(*name), Some(value), "{name} in {figures:#?}");
    }
}

#[tokio::test]
async fn a_vote_its_calls_and_their_cost_are_counted() {
    let look = |args: &str| FakeModel::calls(&[("look", args)]);
    let made_up = FakeModel::calls(&[("made_up_by_a_model", "{}")]);
    let done = || with(FakeModel::text("done"), "/usage", json!({"prompt_tokens": 70, "completion_tokens": 3}));
    let models = [
        FakeModel::start(vec![look(r#"{"text":"a"}"#), look(r#"{"text":"b"}"#), done()]).await,
        FakeModel::start(vec![look(r#"{"text":"a"}"#), made_up, done()]).await,
        FakeModel::start(vec![look(r#"{"text":"c"}"#), done(), done()]).await,
    ];
    let tool = FakeTool::ok().await;
    let mut bundle = bundle(&models[0].entry(), &two_tools(&tool));
    for (name, model) in ["m", "n", "o"].iter().zip(&models) {
        bundle["models"][name] = model.entry();
    }
    let consensus = json!({"n": 3, "k": 2, "models": ["m", "n", "o"], "decide": "all"});
    let profile = json!({"tools": ["look", "act"], "consensus": consensus});
    let (server, caller) = TestServer::with_bundle(&with(bundle, "/profiles/default", profile)).await;
    let before = figures(&server).await;
    assert_eq!(before.get("toolgate_appends_total"), Some(&0.0));
    // Agreement on `look`; none between `look`, a tool that is not there, and an answer; agreement on the answer.
    let id = caller.open("default", "go").await;
    let session = caller.until_ended(&id, 1).await;
    assert_eq!(session["run"]["ending"], "done");
    let _follower = Socket::hello(&server, "f", json!([{"id": id, "last_seq": 0}])).await;
    let figures = figures(&server).await;
    check(
        &figures,
        &[
            ("toolgate_consensus_votes_total{tool=\"look\"}", 2.0),
            ("toolgate_consensus_agreed_total{tool=\"look\"}", 1.0),
            ("toolgate_consensus_votes_total{tool=\"(answer)\"}", 2.0),
            ("toolgate_consensus_agreed_total{tool=\"(answer)\"}", 1.0),
            ("toolgate_consensus_votes_total{tool=\"(other)\"}", 1.0),
            ("toolgate_ballots_total{verdict=\"calls\"}", 5.0),
            ("toolgate_ballots_total{verdict=\"done\"}", 4.0),
            ("toolgate_calls_decided_total{decision=\"allow\",reason=\"\"}", 1.0),
            ("toolgate_calls_ended_total{venue=\"server\",outcome=\"ok\"}", 1.0),
            ("toolgate_runs_ended_total{ending=\"done\"}", 1.0),
            ("toolgate_model_answers_total{provider=\"openai\",result=\"calls\"}", 5.0),
            ("toolgate_model_answers_total{provider=\"openai\",result=\"done\"}", 4.0),
            ("toolgate_model_answer_seconds_count{provider=\"openai\"}", 9.0),
            ("toolgate_events_appended_total{kind=\"consensus_decided\"}", 3.0),
            ("toolgate_events_appended_total{kind=\"session_opened\"}", 1.0),
            ("toolgate_sessions_in_memory{state=\"running\"}", 0.0),
            ("toolgate_sessions_in_memory{state=\"parked\"}", 1.0),
            ("toolgate_followers{way=\"websocket\"}", 1.0),
            ("toolgate_followers{way=\"stream\"}", 0.0),
        ],
    );
    let events: f64 =
        figures.iter().filter(|(name, _)| name.starts_with("toolgate_events_appended_total")).map(|(_, n)| n).sum();
    // The follower became the executor: that is an event, too, and may be on its way.
    let stored = caller.session(&id).await["head_seq"].as_f64().unwrap();
    assert!(events == stored || events + 1.0 == stored, "{events} of {stored}");
    let usage = caller.events_of(&id, "ballot_received").await;
    let tokens: u64 = usage.iter().filter_map(|ballot| ballot["usage"]["output_tokens"].as_u64()).sum();
    let counted: f64 = ["m", "n", "o"]
        .iter()
        .filter_map(|model| {
            figures.get(&format!("toolgate_model_tokens_total{{model=\"{model}\",direction=\"output\"}}"))
        })
        .sum();
    assert!(tokens > 0 && (counted - tokens as f64).abs() < 0.5, "{counted} of {tokens}");
    assert!(figures["toolgate_append_batches_total"] <= figures["toolgate_appends_total"]);
    let text = server.metrics().await;
    for secret in [id.as_str(), "made_up_by_a_model", "default"] {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
    server.stop().await;
}

#[tokio::test]
async fn failures_of_models_and_open_breakers_are_seen() {
    let busy = Wild::with_headers("503 Service Unavailable", &[("retry-after", "0")], b"{}");
    let model = WildModel::start(vec![busy]).await;
    let entry = with(model.entry(), "/breaker", json!({"failures": 2, "open_ms": 600_000}));
    let entry = with(with(entry, "/retries", json!(1)), "/timeout_ms", json!(20_000));
    let tool = FakeTool::ok().await;
    let (server, caller) = TestServer::with_bundle(&bundle(&entry, &two_tools(&tool))).await;
    let id = caller.open("default", "go").await;
    assert_eq!(caller.until_ended(&id, 1).await["run"]["ending"], "provider_failed");
    check(
        &figures(&server).await,
        &[
            ("toolgate_model_answers_total{provider=\"openai\",result=\"server_error\"}", 1.0),
            ("toolgate_attempts_discarded_total{provider=\"openai\"}", 1.0),
            ("toolgate_model_breakers{state=\"open\"}", 1.0),
            ("toolgate_ballots_total{verdict=\"failed\"}", 1.0),
            ("toolgate_runs_ended_total{ending=\"provider_failed\"}", 1.0),
        ],
    );
    server.stop().await;
}

#[tokio::test]
async fn what_is_refused_is_counted_by_its_reason() {
    let calls = |name: &str, args: &str| FakeModel::calls(&[(name, args)]);
    let answers =
        vec![calls("nowhere", "{}"), calls("look", r#"{"text":1}"#), calls("act", "{}"), FakeModel::text("done")];
    let model = FakeModel::start(answers).await;
    let tool = FakeTool::ok().await;
    let bundle = with(bundle(&model.entry(), &two_tools(&tool)), "/tools/act/requires_approval", json!(true));
    let (server, caller) = TestServer::with_bundle(&bundle).await;
    let id = caller.open("default", "go").await;
    let session = caller.until(&id, "an approval", |s| s["status"] == "waiting_approval").await;
    let approval = &session["waiting"]["approvals"][0];
    let path = format!("/v1/approvals/{}/decision", approval["id"].as_str().unwrap());
    caller.post(&path, &json!({"decision": "deny", "digest": approval["digest"]})).await.expect(200);
    caller.until_ended(&id, 1).await;
    check(
        &figures(&server).await,
        &[
            ("toolgate_calls_decided_total{decision=\"reject\",reason=\"unknown_tool\"}", 1.0),
            ("toolgate_calls_decided_total{decision=\"reject\",reason=\"schema_invalid\"}", 1.0),
            ("toolgate_calls_decided_total{decision=\"escalate\",reason=\"needs_human_approval\"}", 1.0),
            ("toolgate_calls_ended_total{venue=\"server\",outcome=\"denied\"}", 1.0),
        ],
    );
    server.stop().await;
}

#[tokio::test]
async fn only_the_operators_listener_has_them() {
    let (server, _) = TestServer::with_bundle(&bundle(
        &json!({"provider": "scripted", "script": [{"done": 1}]}),
        &json!({
            "wait": {"description": "Waits.", "venue": "client", "parameters": {"properties": {}}}
        }),
    ))
    .await;
    let on_api = reqwest::get(format!("{}/metrics", server.url())).await.unwrap();
    assert_eq!(on_api.status(), 404);
    let addr = server.node().metrics_addr.unwrap();
    for path in ["/", "/v1/sessions", "/readyz"] {
        assert_eq!(reqwest::get(format!("http://{addr}{path}")).await.unwrap().status(), 404, "{path}");
    }
    server.stop().await;
    assert!(reqwest::get(format!("http://{addr}/metrics")).await.is_err(), "the listener stops with the server");
}
