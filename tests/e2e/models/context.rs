//! A conversation that outgrows what its model reads: the request fits, and the log says what was not in it.

use serde_json::{Value, json};
use toolgate_tests::world::{bundle, two_tools, with};
use toolgate_tests::{FakeModel, FakeTool, TestServer};

/// Bytes of a result.
const BODY: usize = 4_000;

async fn wordy_tool() -> FakeTool {
    FakeTool::start(|_| (200, format!("\"{}\"", "w".repeat(BODY - 2)).into_bytes())).await
}

/// So many looks, then an answer.
async fn looks(count: usize) -> FakeModel {
    let look = |n: usize| FakeModel::calls(&[("look", &format!(r#"{{"text":"{n}"}}"#))]);
    FakeModel::start((0..count).map(look).chain([FakeModel::text("done")]).collect()).await
}

/// The last request of a model, as text.
fn last(model: &FakeModel) -> String {
    model.requests().last().map(ToString::to_string).unwrap_or_default()
}

#[tokio::test]
async fn a_request_fits_and_the_log_says_what_was_left_out() {
    let (model, tool) = (looks(5).await, wordy_tool().await);
    // Room for three results of some 1,340 tokens each.
    let entry = with(model.entry(), "/max_input_tokens", json!(4_600));
    let (server, caller) = TestServer::with_bundle(&bundle(&entry, &two_tools(&tool))).await;
    let id = caller.open("default", "the task").await;
    let session = caller.until_ended(&id, 1).await;
    assert_eq!(session["run"]["ending"], "done", "{session:#}");
    let requests = model.requests();
    assert_eq!(requests.len(), 6);
    for request in &requests {
        let text = request.to_string();
        // Four bytes a token, as tokenizers have it; whole, the last one would have more.
        assert!(text.len() < 4_600 * 4 && text.contains("the task"), "a request of {} bytes", text.len());
    }
    let cuts: Vec<Value> =
        caller.events_of(&id, "ballot_received").await.into_iter().map(|ballot| ballot["cut"].clone()).collect();
    let cut = |results: usize| json!({"results": results, "answers": 0, "bytes": results * BODY});
    assert_eq!(cuts, [Value::Null, Value::Null, Value::Null, Value::Null, cut(1), cut(2)]);
    assert_eq!(last(&model).matches(&"w".repeat(BODY - 2)).count(), 3, "the newest are whole");
    assert_eq!(last(&model).matches("bytes are left out").count(), 2);
    caller.verified(&id).await;
    server.stop().await;
}

/// A bundle whose model reads little, and where another one sums up.
fn summing(model: &FakeModel, small: &FakeModel, tool: &FakeTool) -> Value {
    let entry = with(model.entry(), "/max_input_tokens", json!(1_500));
    let bundle = bundle(&entry, &two_tools(tool));
    let prices = json!({"input_microusd_per_million": 1_000_000, "output_microusd_per_million": 1_000_000});
    let bundle = with(bundle, "/models/small", with(with(small.entry(), "/prices", prices), "/retries", json!(0)));
    with(bundle, "/profiles/default/summarize", json!({"model": "small", "max_bytes": 300}))
}

/// Looks with long words around them, so that the answers themselves fill the window, then an answer.
async fn talker(count: usize) -> FakeModel {
    let look = |n: usize| {
        let text = format!("look {n}: {}", "t".repeat(900));
        FakeModel::calls(&[("look", &json!({"text": text}).to_string())])
    };
    FakeModel::start((0..count).map(look).chain([FakeModel::text("done")]).collect()).await
}

#[tokio::test]
async fn earlier_steps_are_summed_up_and_the_summary_is_recorded_and_paid_for() {
    let (model, tool) = (talker(4).await, FakeTool::ok().await);
    let small = {
        let usage = json!({"prompt_tokens": 900, "completion_tokens": 20});
        FakeModel::start_with(vec![with(FakeModel::text("Looked at 0 and 1."), "/usage", usage)], true).await
    };
    let (server, caller) = TestServer::with_bundle(&summing(&model, &small, &tool)).await;
    let id = caller.open("default", "the task").await;
    let session = caller.until_ended(&id, 1).await;
    assert_eq!(session["run"]["ending"], "done", "{session:#}");
    let asked = caller.events_of(&id, "summary_asked").await;
    let received = caller.events_of(&id, "summary_received").await;
    assert!(!received.is_empty() && asked.len() == received.len(), "{asked:#?} {received:#?}");
    assert_eq!((&received[0]["fault"], &received[0]["content"]["text"]), (&Value::Null, &json!("Looked at 0 and 1.")));
    assert_eq!(received[0]["cost_microusd"], 920);
    let summaries = received.len();
    let summed = json!({"input_tokens": 900 * summaries, "output_tokens": 20 * summaries,
        "cost_microusd": 920 * summaries, "unreported": 5});
    assert_eq!(session["run"]["usage"], summed, "the other model says nothing of what it used");
    let question = small.requests()[0].to_string();
    assert!(question.contains("look 0") && question.contains("the task"), "the model sees what it sums up");
    let request = last(&model);
    assert!(request.contains("Looked at 0 and 1.") && request.contains("the task"), "{request}");
    assert!(!request.contains("look 0:") && request.contains("look 3:"), "the newest steps are whole: {request}");
    assert!(model.requests().iter().all(|request| request.to_string().len() < 1_500 * 3 + 1_000));
    let calls = session["run"]["model_calls"].as_u64().unwrap();
    assert_eq!(calls, 5 + u64::try_from(summaries).unwrap(), "a summary is a model call");
    caller.verified(&id).await;
    server.stop().await;
}

#[tokio::test]
async fn a_failed_summary_is_recorded_and_earlier_steps_are_left_out() {
    let (model, tool) = (talker(4).await, FakeTool::ok().await);
    // It has no answer at all, and says so as a server does.
    let small = FakeModel::start_with(vec![json!({"error": {"message": "no"}})], true).await;
    let (server, caller) = TestServer::with_bundle(&summing(&model, &small, &tool)).await;
    let id = caller.open("default", "the task").await;
    let session = caller.until_ended(&id, 1).await;
    assert_eq!(session["run"]["ending"], "done", "a summary that fails costs no run: {session:#}");
    let received = caller.events_of(&id, "summary_received").await;
    assert!(!received.is_empty() && received.iter().all(|one| one["fault"] == "failed"), "{received:#?}");
    let ballots = caller.events_of(&id, "ballot_received").await;
    assert!(ballots.last().unwrap()["cut"]["answers"].as_u64().is_some_and(|left| left > 0), "{ballots:#?}");
    let request = last(&model);
    assert!(request.contains("earlier steps are left out") && request.contains("the task"), "{request}");
    caller.verified(&id).await;
    server.stop().await;
}
