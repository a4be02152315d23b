//! What tools send back: any bytes, any size, late, or not as promised. Capped, recorded, readable, the same from both
//! databases. What is not here: the addresses that tools may have (the server's own tests).

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use toolgate_tests::world::{bundle, server_tool, with};
use toolgate_tests::{Backend, Caller, FakeModel, FakeTool, TestServer};

/// A response with this media type.
fn typed(media_type: &'static str, body: impl Into<Vec<u8>>) -> Response {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    (StatusCode::OK, headers, body.into()).into_response()
}

/// A session that has called `look` once, and everything around it.
struct Looked {
    server: TestServer,
    caller: Caller,
    id: String,
    session: Value,
    /// The call's terminal record.
    ended: Value,
    model: FakeModel,
    tool: FakeTool,
}

impl Looked {
    async fn at(
        backend: Backend,
        change: impl Fn(Value) -> Value,
        answer: impl Fn() -> Response + Send + Sync + 'static,
    ) -> Self {
        let answers = vec![FakeModel::calls(&[("look", r#"{"text":"a"}"#)]), FakeModel::text("done")];
        let (model, tool) = (FakeModel::start(answers).await, FakeTool::responding(move |_| answer()).await);
        let server = TestServer::start(backend).await;
        let caller = server.caller();
        let look = change(server_tool(&tool, "look", "read"));
        caller.put_bundle(&bundle(&model.entry(), &json!({ "look": look }))).await;
        let id = caller.open("default", "look").await;
        let session = caller.until_ended(&id, 1).await;
        let ended = caller.events_of(&id, "call_ended").await.remove(0);
        caller.verified(&id).await;
        Self { server, caller, id, session, ended, model, tool }
    }

    async fn of(answer: impl Fn() -> Response + Send + Sync + 'static) -> Self {
        Self::at(Backend::Sqlite, |tool| tool, answer).await
    }

    fn output(&self) -> &Value {
        &self.ended["content"]["output"]
    }

    /// What the model was told of the call.
    fn told(&self) -> String {
        let requests = self.model.requests();
        let messages = requests[1]["messages"].as_array().unwrap();
        messages.iter().find(|message| message["role"] == "tool").unwrap()["content"].as_str().unwrap().to_owned()
    }

    /// The output as a later reader gets it: after a restart, through the list of calls.
    async fn again(&mut self) -> Value {
        self.server.restart().await;
        self.caller = self.server.caller();
        let calls = self.caller.get(&format!("/v1/sessions/{}/calls", self.id)).await.expect(200).json();
        self.caller.verified(&self.id).await;
        calls["items"][0]["output"].clone()
    }
}

async fn any_bytes(backend: Backend) {
    let utf8 = "NUL \0 and \u{1} and \u{7f}, \u{2028}, \u{feff}, 😀, \"quotes\" \\ and \r\n";
    let cases: [(&'static str, Vec<u8>); 5] = [
        ("text/plain", utf8.as_bytes().to_vec()),
        ("text/plain; charset=utf-8", b"half \xe2\x82 of a sign, \xff\xfe, \xed\xa0\x80".to_vec()),
        ("application/octet-stream", (0..=255).collect()),
        ("application/json", br#"{"b":1,"a":12345678901234567890,"a":"twice"}"#.to_vec()),
        ("text/plain", Vec::new()),
    ];
    for (media_type, bytes) in cases {
        let sent = bytes.clone();
        let mut looked = Looked::at(backend, |tool| tool, move || typed(media_type, sent.clone())).await;
        assert_eq!(looked.session["run"]["ending"], "done");
        let output = looked.output().clone();
        assert_eq!((&looked.ended["status"], &output["media_type"]), (&json!("ok"), &json!(media_type)));
        let kept = match (output["text"].as_str(), output["base64"].as_str()) {
            (Some(text), None) => text.as_bytes().to_vec(),
            (None, Some(text)) => STANDARD.decode(text).unwrap(),
            both => panic!("{both:?}"),
        };
        assert_eq!(kept, bytes, "byte for byte");
        assert_eq!(looked.ended["output_bytes"].as_u64(), Some(bytes.len() as u64));
        assert_eq!(looked.again().await, output, "the same after a round trip through the database");
        looked.server.stop().await;
    }
}

#[tokio::test]
async fn any_bytes_are_kept_as_they_came_on_sqlite() {
    any_bytes(Backend::Sqlite).await;
}

#[tokio::test]
async fn any_bytes_are_kept_as_they_came_on_postgres() {
    any_bytes(Backend::Postgres).await;
}

#[tokio::test]
async fn the_model_is_shown_bytes_that_are_no_text_as_what_they_are() {
    let looked = Looked::of(|| typed("image/png", vec![0x89, b'P', b'N', b'G', 0xff])).await;
    let told = looked.told();
    assert!(told.contains(&STANDARD.encode([0x89, b'P', b'N', b'G', 0xff])) && told.contains("[base64]"), "{told}");
    looked.server.stop().await;
}

async fn ten_megabytes(backend: Backend) {
    const SENT: usize = 10 << 20;
    const CAP: usize = 2 << 20;
    // A different byte at each place of a page, so that a shifted or repeated piece shows; NUL and no UTF-8 among them.
    let body: Vec<u8> = (0..SENT).map(|at| u8::try_from((at + at / 251) % 251).unwrap()).collect();
    let sent = body.clone();
    let capped = |tool| with(tool, "/max_output_bytes", json!(CAP));
    let mut looked = Looked::at(backend, capped, move || typed("application/octet-stream", sent.clone())).await;
    assert_eq!(looked.session["run"]["ending"], "done");
    let output = looked.output().clone();
    assert_eq!((&looked.ended["status"], &output["truncated_from"]), (&json!("ok"), &json!(SENT)));
    assert_eq!(output["blob"]["size"], CAP);
    assert!(output.get("text").is_none() && output.get("base64").is_none());
    let path = format!("/v1/sessions/{}/blobs/{}", looked.id, output["blob"]["digest"].as_str().unwrap());
    let blob = looked.caller.get(&path).await.expect(200);
    assert_eq!(blob.headers["content-disposition"], "attachment");
    assert!(blob.bytes == body[..CAP], "the first {CAP} bytes, byte for byte");
    assert!(looked.told().len() < 100_000, "the model is shown a beginning only: {} bytes", looked.told().len());
    assert_eq!(looked.again().await, output);
    assert!(looked.caller.get(&path).await.expect(200).bytes == body[..CAP]);
    // A blob belongs to its session.
    let other = looked.caller.open("default", "another").await;
    let digest = output["blob"]["digest"].as_str().unwrap();
    looked.caller.get(&format!("/v1/sessions/{other}/blobs/{digest}")).await.expect(404);
    looked.caller.get(&path.replace("sha256:", "sha256:0").replace(digest, &digest[..71])).await.expect(404);
    looked.server.stop().await;
}

#[tokio::test]
async fn ten_megabytes_are_capped_and_readable_on_sqlite() {
    ten_megabytes(Backend::Sqlite).await;
}

#[tokio::test]
async fn ten_megabytes_are_capped_and_readable_on_postgres() {
    ten_megabytes(Backend::Postgres).await;
}

#[tokio::test]
async fn the_border_between_inline_and_apart_loses_nothing() {
    for size in [64 * 1024, 64 * 1024 + 1] {
        let looked = Looked::of(move || typed("text/plain", vec![b'x'; size])).await;
        let output = looked.output();
        if size == 64 * 1024 {
            assert_eq!(output["text"].as_str().unwrap().len(), size);
        } else {
            assert_eq!(output["blob"]["size"], size);
        }
        assert!(output.get("truncated_from").is_none());
        looked.server.stop().await;
    }
}

#[tokio::test]
async fn a_cap_of_one_byte_keeps_one_byte() {
    let capped = |tool| with(tool, "/max_output_bytes", json!(1));
    let looked = Looked::at(Backend::Sqlite, capped, || typed("text/plain", "€uro")).await;
    assert_eq!(looked.output()["base64"], STANDARD.encode([0xe2]));
    assert_eq!(looked.output()["truncated_from"], 6);
    looked.server.stop().await;
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let target = FakeTool::ok().await;
    let url = format!("{}/elsewhere", target.url);
    let looked = Looked::of(move || {
        let location = HeaderValue::from_str(&url).unwrap();
        (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, location)]).into_response()
    })
    .await;
    assert_eq!(looked.ended["status"], "failed");
    assert!(looked.ended["content"]["outcome_detail"].as_str().unwrap().contains("307"));
    assert!(target.journal().is_empty());
    looked.server.stop().await;
}

#[tokio::test]
async fn a_failing_tool_is_an_outcome_with_its_words() {
    let looked = Looked::of(|| (StatusCode::CONFLICT, "the row is locked").into_response()).await;
    assert_eq!((&looked.ended["status"], &looked.output()["text"]), (&json!("failed"), &json!("the row is locked")));
    assert!(looked.told().contains("failed") && looked.told().contains("the row is locked"), "{}", looked.told());
    assert_eq!(looked.session["run"]["ending"], "done", "the model may go on");
    assert_eq!(looked.tool.journal().len(), 1, "a failure is not repeated");
    looked.server.stop().await;
}

#[tokio::test]
async fn a_tool_that_does_not_answer_has_timed_out() {
    let answers = vec![FakeModel::calls(&[("look", "{}")]), FakeModel::text("done")];
    let (model, tool) = (FakeModel::start(answers).await, FakeTool::ok().await);
    tool.hold();
    let look = with(server_tool(&tool, "look", "once"), "/timeout_ms", json!(300));
    let mut bundle = bundle(&model.entry(), &json!({ "look": look }));
    bundle["profiles"]["default"] = json!({"tools": ["look"], "on_indeterminate": "feedback"});
    let (server, caller) = TestServer::with_bundle(&bundle).await;
    let id = caller.open("default", "go").await;
    let session = caller.until_ended(&id, 1).await;
    assert_eq!(session["run"]["ending"], "done");
    let ended = caller.events_of(&id, "call_ended").await;
    assert_eq!((ended.len(), &ended[0]["status"], &ended[0]["dispatched"]), (1, &json!("timed_out"), &json!(true)));
    assert_eq!(tool.journal().len(), 1, "it may have happened, so it is not sent again");
    let told = model.requests()[1]["messages"].to_string();
    assert!(told.contains("timed_out") && told.contains("may have happened"), "{told}");
    // What the tool says afterwards fills no slot.
    tool.release();
    assert_eq!(caller.events_of(&id, "call_ended").await.len(), 1);
    caller.verified(&id).await;
    server.stop().await;
}

#[tokio::test]
async fn a_tool_that_breaks_off_is_in_doubt_and_stops_the_run() {
    let answers = vec![FakeModel::calls(&[("act", "{}")]), FakeModel::text("done")];
    let model = FakeModel::start(answers).await;
    let wild = toolgate_tests::WildModel::start(vec![toolgate_tests::Wild::Bytes(Vec::new())]).await;
    let tool = FakeTool::ok().await;
    let act = with(server_tool(&tool, "act", "once"), "/executor", json!({"http": {"url": wild.entry()["base_url"]}}));
    let (server, caller) = TestServer::with_bundle(&bundle(&model.entry(), &json!({ "act": act }))).await;
    let id = caller.open("default", "go").await;
    let session = caller.until_ended(&id, 1).await;
    assert_eq!(session["run"]["ending"], "indeterminate_outcome");
    assert_eq!(caller.events_of(&id, "call_ended").await[0]["status"], "indeterminate");
    assert_eq!(wild.heads().len(), 1, "a `once` call is never sent again");
    caller.verified(&id).await;
    server.stop().await;
}

#[tokio::test]
async fn a_result_that_breaks_the_contract_is_a_failure() {
    let promised = |tool| {
        let schema = json!({"type": "object", "properties": {"total": {"type": "integer"}}, "required": ["total"]});
        with(tool, "/result", schema)
    };
    for (body, status) in [
        (r#"{"total":3}"#, "ok"),
        (r#"{"total":"3"}"#, "failed"),
        ("three", "failed"),
        ("", "failed"),
        ("[]", "failed"),
    ] {
        let looked = Looked::at(Backend::Sqlite, promised, move || typed("application/json", body)).await;
        assert_eq!(looked.ended["status"], status, "{body}");
        if status == "failed" {
            assert!(looked.told().contains("reported as ok, but the result"), "{}", looked.told());
            assert_eq!(looked.output()["text"], body, "what came is kept");
        }
        looked.server.stop().await;
    }
}

#[tokio::test]
async fn a_failed_result_counts_for_no_evidence() {
    let answers = vec![
        FakeModel::calls(&[("look", "{}")]),
        FakeModel::text("early"),
        FakeModel::calls(&[("look", "{}")]),
        FakeModel::text("done"),
    ];
    let model = FakeModel::start(answers).await;
    let tries = std::sync::atomic::AtomicUsize::new(0);
    let tool = FakeTool::start(move |_| match tries.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
        0 => (500, b"not yet".to_vec()),
        _ => (200, b"found".to_vec()),
    })
    .await;
    let look = with(server_tool(&tool, "look", "read"), "/tags", json!(["seen"]));
    let profile = json!({"tools": ["look"], "trace_requirements": {"seen": 1}});
    let bundle = with(bundle(&model.entry(), &json!({ "look": look })), "/profiles/default", profile);
    let (server, caller) = TestServer::with_bundle(&bundle).await;
    let id = caller.open("default", "go").await;
    let session = caller.until_ended(&id, 1).await;
    assert_eq!((&session["run"]["output"], &session["run"]["steps"]), (&json!("done"), &json!(4)));
    assert_eq!(caller.events_of(&id, "step_ended").await[0]["reason"], "trace_requirements_not_met");
    server.stop().await;
}
