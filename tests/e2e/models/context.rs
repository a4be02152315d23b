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
