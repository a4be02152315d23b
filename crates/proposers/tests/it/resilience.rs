//! Streams over the network, retries, fallback and the breaker, against the fake provider of the testing kit.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use toolgate_core::ask::{Ask, CallView, Entry};
use toolgate_core::json::Json;
use toolgate_core::proposal::{
    Ballot, BallotVerdict, MalformedReason, Proposal, ProposedArgs, ProposedCall, ProviderFailure,
};
use toolgate_proposers::envelope::{Parsed, Refused, ToolProtocol};
use toolgate_proposers::testing::{
    FakeAnswer, FakeProvider, FakeProviderBuilder, Script, completion_of_calls, completion_of_text, envelope_of_answer,
    envelope_of_calls, stream_of,
};
use toolgate_proposers::{Delta, DeltaSink, Proposers, Seat};

use crate::given::{ask, catalogue, def, done, follow_up, malformed, runnable};

const SEAT: Seat = Seat { step: 1, ballot: 0, attempt: 0 };

/// Keeps what it is given.
#[derive(Debug, Default)]
struct Kept(Mutex<Vec<Delta>>);

impl DeltaSink for Kept {
    fn delta(&self, delta: Delta) {
        self.0.lock().unwrap().push(delta);
    }
}

impl Kept {
    /// The texts since the last void.
    fn text(&self) -> String {
        let all = self.0.lock().unwrap();
        let since = all.iter().rposition(|delta| *delta == Delta::Discarded).map_or(0, |at| at + 1);
        all[since..].iter().map(|delta| if let Delta::Text(text) = delta { text.as_str() } else { "" }).collect()
    }

    fn voids(&self) -> usize {
        self.0.lock().unwrap().iter().filter(|delta| **delta == Delta::Discarded).count()
    }
}

async fn start(builder: FakeProviderBuilder) -> FakeProvider {
    builder.start().await.unwrap()
}

fn answers(all: impl IntoIterator<Item = FakeAnswer>) -> FakeProviderBuilder {
    all.into_iter().fold(FakeProvider::build(), FakeProviderBuilder::answer)
}

async fn propose(provider: &FakeProvider, settings: Value, sink: Option<&Kept>) -> Ballot {
    let mut fields = json!({"base_url": provider.base_url(), "timeout_ms": 5_000, "retries": 0});
    fields.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
    let proposer = Proposers::new().unwrap().proposer(&def(fields));
    let sink = sink.map(|sink| -> &dyn DeltaSink { sink });
    let ask = ask(catalogue());
    let work = proposer.propose_watched(&ask, SEAT, sink);
    tokio::time::timeout(Duration::from_secs(20), work).await.unwrap()
}

fn failure(ballot: &Ballot) -> (ProviderFailure, &str) {
    match &ballot.verdict {
        BallotVerdict::Failed { reason, detail } => (*reason, detail),
        other => panic!("no failure: {other:?}"),
    }
}

#[tokio::test]
async fn a_stream_shows_its_pieces_and_is_judged_whole() {
    let words = completion_of_text("It is late \u{1f600}.");
    let calls = completion_of_calls(&[("search", json!({"query": "a"})), ("get_time", json!({}))]);
    let provider = start(answers([FakeAnswer::stream(&words).pieces_of(1), FakeAnswer::stream(&calls)])).await;
    let kept = Kept::default();
    let ballot = propose(&provider, json!({"stream": true}), Some(&kept)).await;
    assert_eq!((done(&ballot), kept.text()), (json!("It is late \u{1f600}."), "It is late \u{1f600}.".to_owned()));
    assert_eq!(ballot.usage.output_tokens, Some(1));
    let kept = Kept::default();
    let ballot = propose(&provider, json!({"stream": true}), Some(&kept)).await;
    assert_eq!(runnable(&ballot).len(), 2);
    let seen = kept.0.lock().unwrap().clone();
    assert!(seen.contains(&Delta::Call { at: 1, name: "get_time".to_owned() }), "{seen:?}");
    let request = &provider.requests()[0];
    assert_eq!((&request["stream"], &request["stream_options"]["include_usage"]), (&json!(true), &json!(true)));
    assert_eq!(provider.faults(), Vec::<String>::new());
}

#[tokio::test]
async fn a_broken_stream_is_asked_again_and_never_mixed() {
    let first = completion_of_text("Let me see");
    let text = stream_of(&first);
    let half = text.find("finish_reason").unwrap();
    for broken in [
        FakeAnswer::stream(&first).cut_at(half),
        FakeAnswer::raw(200, "text/event-stream", text[..half].to_owned()),
        FakeAnswer::raw(
            200,
            "text/event-stream",
            format!(
                "{}data: {{\"error\":{{\"code\":\"429\",\"message\":\"slow\"}}}}\n\n",
                &text[..text.find("\n\n").unwrap() + 2]
            ),
        ),
    ] {
        let provider = start(answers([broken, FakeAnswer::stream(&completion_of_text("All done"))])).await;
        let kept = Kept::default();
        let ballot = propose(&provider, json!({"stream": true, "retries": 1}), Some(&kept)).await;
        assert_eq!((done(&ballot), kept.text(), kept.voids()), (json!("All done"), "All done".to_owned(), 1));
        assert!(ballot.normalised[0].starts_with("attempt_discarded:"), "{:?}", ballot.normalised);
        assert_eq!(ballot.text, "All done");
    }
}

#[tokio::test]
async fn a_connection_that_stays_open_after_the_end_costs_no_time() {
    let provider = start(answers([FakeAnswer::stream(&completion_of_text("fine")).then_hangs()])).await;
    assert_eq!(done(&propose(&provider, json!({"stream": true}), None).await), json!("fine"));
}

#[tokio::test]
async fn a_stream_that_stops_in_the_middle_ends_with_the_time() {
    let text = stream_of(&completion_of_text("fine"));
    let half = FakeAnswer::raw(200, "text/event-stream", text[..text.len() / 3].to_owned()).then_hangs();
    let provider = start(answers([half])).await;
    let ballot = propose(&provider, json!({"stream": true, "timeout_ms": 400, "retries": 3}), None).await;
    assert_eq!(failure(&ballot).0, ProviderFailure::TimedOut);
}

#[tokio::test]
async fn the_first_byte_has_a_time_of_its_own_and_is_waited_for_again() {
    let slow = FakeAnswer::json(&completion_of_text("late")).after(Duration::from_secs(30));
    let provider = start(answers([slow, FakeAnswer::json(&completion_of_text("fine"))])).await;
    let ballot = propose(&provider, json!({"first_byte_timeout_ms": 200, "retries": 1}), None).await;
    assert_eq!(done(&ballot), json!("fine"));
    assert_eq!(ballot.normalised, ["attempt_discarded:timed_out"]);
}

#[tokio::test]
async fn an_answer_that_falls_silent_is_given_up_and_asked_for_again() {
    let text = stream_of(&completion_of_text("fine"));
    let half = FakeAnswer::raw(200, "text/event-stream", text[..text.len() / 3].to_owned()).then_hangs();
    let provider = start(answers([half, FakeAnswer::stream(&completion_of_text("whole"))])).await;
    let settings = json!({"stream": true, "timeout_ms": 20_000, "idle_timeout_ms": 200, "retries": 1});
    let ballot = propose(&provider, settings, None).await;
    assert_eq!(
        (done(&ballot), &ballot.normalised[..]),
        (json!("whole"), &["attempt_discarded:timed_out".to_owned()][..])
    );
    // The end is there: that nothing follows is no loss.
    let complete = FakeAnswer::stream(&completion_of_text("fine")).then_hangs();
    let provider = start(answers([complete])).await;
    assert_eq!(done(&propose(&provider, json!({"stream": true, "idle_timeout_ms": 200}), None).await), json!("fine"));
}

#[tokio::test]
async fn a_connection_that_is_not_made_in_its_time_is_given_up() {
    // A queue of one that is full: the kernel lets further callers wait.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut waiting = Vec::new();
    while let Ok(Ok(connection)) =
        tokio::time::timeout(Duration::from_millis(300), tokio::net::TcpStream::connect(address)).await
    {
        waiting.push(connection);
    }
    let fields = json!({"base_url": format!("http://{address}/v1"), "connect_timeout_ms": 200, "timeout_ms": 60_000, "retries": 0});
    let proposer = Proposers::new().unwrap().proposer(&def(fields));
    let began = std::time::Instant::now();
    let ballot = proposer.propose(&ask(catalogue()), SEAT).await;
    assert_eq!(failure(&ballot).0, ProviderFailure::Transport, "{ballot:?}");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

#[tokio::test]
async fn bad_streams_have_their_reasons_in_bounded_memory() {
    let piece = "a".repeat(16 << 10);
    let endless =
        format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{piece}\"}}}}]}}\n\n").repeat(1_100);
    for (answer, reason) in [
        (FakeAnswer::raw(200, "text/event-stream", endless), ProviderFailure::TooLarge),
        (FakeAnswer::raw(200, "text/event-stream", "x".repeat(5 << 20)), ProviderFailure::TooLarge),
        (
            FakeAnswer::raw(200, "text/event-stream", vec![b'd', b'a', b't', b'a', b':', 0xff, 0xfe, b'\n', b'\n']),
            ProviderFailure::NotACompletion,
        ),
        (FakeAnswer::raw(200, "text/event-stream", "data: <html>\n\n"), ProviderFailure::NotACompletion),
        (FakeAnswer::raw(200, "text/event-stream", ": nothing\n\n"), ProviderFailure::Transport),
        // Compressed although nobody asked for it: it is not unpacked.
        (
            FakeAnswer::raw(200, "application/json", vec![0x1f, 0x8b, 8, 0]).header("content-encoding", "gzip"),
            ProviderFailure::NotACompletion,
        ),
    ] {
        let provider = start(answers([answer])).await;
        assert_eq!(failure(&propose(&provider, json!({"stream": true}), None).await).0, reason);
    }
}

#[tokio::test]
async fn a_fallback_is_asked_where_the_first_gives_no_answer() {
    let busy = start(answers([FakeAnswer::error(503, "busy", "later")]).repeat_last()).await;
    let other = start(answers([FakeAnswer::json(&completion_of_text("from the other"))]).repeat_last()).await;
    let first = def(json!({"base_url": busy.base_url(), "retries": 0}));
    let second = def(json!({"base_url": other.base_url(), "model": "m-2", "retries": 0}));
    let proposer = Proposers::new().unwrap().proposer_for("t", &first, Some(&second));
    let ballot = proposer.propose(&ask(catalogue()), SEAT).await;
    assert_eq!(done(&ballot), json!("from the other"));
    assert_eq!(ballot.normalised, ["fallback_after:server_error"]);
    // A question that was refused would be refused there, too.
    let refusing = start(answers([FakeAnswer::error(400, "invalid_request_error", "no")])).await;
    let first = def(json!({"base_url": refusing.base_url()}));
    let ballot =
        Proposers::new().unwrap().proposer_for("t", &first, Some(&second)).propose(&ask(catalogue()), SEAT).await;
    assert_eq!(failure(&ballot).0, ProviderFailure::RequestRefused);
    assert_eq!(other.requests().len(), 1);
}

#[tokio::test]
async fn a_provider_that_keeps_failing_is_left_alone() {
    let busy = start(answers([FakeAnswer::error(503, "busy", "later")]).repeat_last()).await;
    let factory = Proposers::new().unwrap();
    let def = |model: &str| {
        def(
            json!({"base_url": busy.base_url(), "model": model, "retries": 0, "breaker": {"failures": 2, "open_ms": 60_000}}),
        )
    };
    let (one, two) = (factory.proposer(&def("m-1")), factory.proposer(&def("m-2")));
    for proposer in [&one, &two] {
        assert_eq!(failure(&proposer.propose(&ask(catalogue()), SEAT).await).0, ProviderFailure::ServerError);
    }
    let ballot = one.propose(&ask(catalogue()), SEAT).await;
    assert!(failure(&ballot).1.contains("is not asked for another"), "{ballot:?}");
    assert_eq!(busy.requests().len(), 2);
}

#[tokio::test]
async fn what_is_known_of_a_provider_outlives_the_question() {
    let busy = start(answers([FakeAnswer::error(503, "busy", "later")]).repeat_last()).await;
    let factory = Proposers::new().unwrap();
    let def = def(json!({"base_url": busy.base_url(), "retries": 0, "breaker": {"failures": 2, "open_ms": 60_000}}));
    // Nobody holds the model between two questions.
    for _ in 0..3 {
        failure(&factory.proposer(&def).propose(&ask(catalogue()), SEAT).await);
    }
    assert_eq!((busy.requests().len(), factory.breakers().open, factory.breakers().closed), (2, 1, 0));
}

#[tokio::test]
async fn auto_goes_over_to_the_envelope_where_tools_are_refused() {
    let refusal = FakeAnswer::error(400, "invalid_request_error", "m-1 does not support tools");
    let call = completion_of_text(&envelope_of_calls(&[("get_time", json!({}))]));
    let end = completion_of_text(&envelope_of_answer(&json!("late")));
    let provider = start(answers([refusal, FakeAnswer::json(&call), FakeAnswer::json(&end)])).await;
    let proposer = Proposers::new().unwrap().proposer(&def(json!({"base_url": provider.base_url(), "calls": "auto"})));
    let mut ask = ask(catalogue());
    let ballot = proposer.propose(&ask, SEAT).await;
    assert_eq!(runnable(&ballot), [("get_time".to_owned(), json!({}))]);
    assert_eq!(ballot.normalised, ["tools_refused_by_endpoint"]);
    follow_up(&mut ask, &ballot, |_| "22:00".to_owned());
    assert_eq!(done(&proposer.propose(&ask, SEAT).await), json!("late"));
    let requests = provider.requests();
    assert_eq!(requests.len(), 3);
    assert!(
        requests[0].get("tools").is_some() && requests[1].get("tools").is_none() && requests[2].get("tools").is_none()
    );
    assert_eq!(provider.faults(), Vec::<String>::new());
}

#[tokio::test]
async fn the_key_is_nowhere_in_a_stream_that_echoes_it() {
    #[derive(Debug)]
    struct Key;
    impl toolgate_proposers::SecretSource for Key {
        fn secret(&self, _name: &str) -> Option<secrecy::SecretString> {
            Some("sk-very-secret-0123456789".into())
        }
    }
    let text = "you sent sk-very-secret-0123456789";
    let error = format!("data: {}\n\n", json!({"error": {"code": "invalid_api_key", "message": text}}));
    let provider = start(answers([
        FakeAnswer::stream(&completion_of_text(text)).pieces_of(4096),
        FakeAnswer::raw(200, "text/event-stream", error),
    ]))
    .await;
    let fields = json!({"base_url": provider.base_url(), "stream": true, "api_key_env": "K", "auth": "api_key"});
    let proposer = Proposers::with_secrets(Arc::new(Key)).unwrap().proposer(&def(fields));
    for _ in 0..2 {
        let kept = Kept::default();
        let ballot = proposer.propose_watched(&ask(catalogue()), SEAT, Some(&kept)).await;
        let shown = format!("{ballot:?} {:?} {proposer:?}", kept.0.lock().unwrap());
        assert!(!shown.contains("sk-very") && shown.contains("[secret]"), "{shown}");
    }
}

/// A protocol of one's own: `!TOOL ARGUMENTS`, anything else is the answer.
#[derive(Debug)]
struct Bang;

impl ToolProtocol for Bang {
    fn instructions(&self, ask: &Ask) -> String {
        format!(
            "Write !TOOL ARGUMENTS. Tools: {}",
            ask.tools.iter().map(|tool| tool.id.as_str()).collect::<Vec<_>>().join(" ")
        )
    }

    fn parse(&self, text: &str, _lenient: bool) -> Result<Parsed, Refused> {
        let Some(call) = text.strip_prefix('!') else {
            return Ok(Parsed { proposal: Proposal::Done { output: Json::string(text) }, normalised: Vec::new() });
        };
        let (tool, args) = call.split_once(' ').unwrap_or((call, "{}"));
        let read = Json::parse(args)
            .map_err(|fault| Refused { reason: MalformedReason::Syntax, detail: fault.to_string() })?;
        let call = ProposedCall {
            tool: tool.to_owned(),
            provider_id: None,
            args: ProposedArgs::Readable(read),
            raw_args: args.to_owned(),
        };
        Ok(Parsed { proposal: Proposal::Calls(vec![call]), normalised: Vec::new() })
    }

    fn calls(&self, calls: &[(&str, &str)]) -> String {
        calls.iter().map(|(tool, args)| format!("!{tool} {args}")).collect()
    }

    fn remedy(&self) -> &str {
        "Write !TOOL ARGUMENTS."
    }
}

#[tokio::test]
async fn another_text_protocol_can_be_plugged_in() {
    let texts = ["!get_time {}", "!get_time {", "late"].map(|text| FakeAnswer::json(&completion_of_text(text)));
    let provider = start(answers(texts)).await;
    let def = def(json!({"base_url": provider.base_url(), "calls": "envelope"}));
    let proposer = Proposers::new().unwrap().with_protocol(Arc::new(Bang)).proposer(&def);
    let mut ask = ask(catalogue());
    let ballot = proposer.propose(&ask, SEAT).await;
    assert_eq!(runnable(&ballot), [("get_time".to_owned(), json!({}))]);
    follow_up(&mut ask, &ballot, |_| "22:00".to_owned());
    assert_eq!(malformed(&proposer.propose(&ask, SEAT).await).0, MalformedReason::Syntax);
    assert_eq!(done(&proposer.propose(&ask, SEAT).await), json!("late"));
    let system = provider.requests()[0]["messages"][0]["content"].as_str().unwrap().to_owned();
    assert!(system.contains("Write !TOOL ARGUMENTS.") && !system.contains("tool_call"), "{system}");
}

#[tokio::test]
async fn the_kit_fails_loudly() {
    let provider = start(answers([FakeAnswer::json(&completion_of_text("one"))])).await;
    assert_eq!(done(&propose(&provider, json!({}), None).await), json!("one"));
    let (reason, detail) = (failure(&propose(&provider, json!({"retries": 3}), None).await).0, provider.faults());
    assert_eq!((reason, detail.len()), (ProviderFailure::RequestRefused, 1));
    assert!(detail[0].contains("no answer is left"));
    let script = Script::new()
        .calls(&[("get_time", json!({}))])
        .text("no envelope")
        .fail(ProviderFailure::TimedOut)
        .done(&json!(1));
    let proposer = Proposers::new().unwrap().proposer(&script.model().unwrap());
    let mut ask = ask(catalogue());
    let mut ballots = Vec::new();
    for n in 0..5 {
        ask.answers_so_far = n;
        ballots.push(proposer.propose(&ask, SEAT).await);
    }
    assert_eq!(runnable(&ballots[0]).len(), 1);
    assert_eq!(malformed(&ballots[1]).0, MalformedReason::NoEnvelope);
    assert_eq!(failure(&ballots[2]).0, ProviderFailure::TimedOut);
    assert_eq!(done(&ballots[3]), json!(1));
    assert_eq!(failure(&ballots[4]).0, ProviderFailure::ScriptExhausted);
    let last = Proposers::new().unwrap().proposer(&script.repeat_last().model().unwrap());
    assert_eq!(done(&last.propose(&ask, SEAT).await), json!(1));
}

#[test]
fn the_fake_provider_sees_what_a_strict_one_refuses() {
    use toolgate_proposers::testing::history::faults;
    let call = |id: &str, arguments: Value| json!({"id": id, "type": "function", "function": {"name": "f", "arguments": arguments}});
    let assistant = |calls: Value| json!({"role": "assistant", "content": null, "tool_calls": calls});
    let result = |id: &str| json!({"role": "tool", "tool_call_id": id, "content": "x"});
    for (messages, words) in [
        (json!([assistant(json!([call("a", json!("{}"))]))]), "has no result"),
        (json!([result("a")]), "not waited for"),
        (json!([assistant(json!([call("a", json!({}))])), result("a")]), "no object written as a string"),
        (
            json!([
                assistant(json!([call("a", json!("{}"))])),
                result("a"),
                assistant(json!([call("a", json!("{}"))])),
                result("a")
            ]),
            "used before",
        ),
        (json!([{"role": "assistant", "content": ""}]), "neither content nor calls"),
        (json!([{"role": "user", "content": "x"}, {"role": "system", "content": "y"}]), "second system"),
    ] {
        let found = faults(&json!({ "messages": messages }));
        assert!(found.iter().any(|fault| fault.contains(words)), "{words}: {found:?}");
    }
    let odd = json!({"type": "function", "function": {"name": "a.b", "parameters": {"anyOf": []}}});
    assert_eq!(faults(&json!({"messages": [], "tools": [odd.clone(), odd]})).len(), 7);
}

/// A conversation of three steps whose results have 4,000 bytes each.
fn long() -> Ask {
    let mut ask = ask(catalogue());
    for step in 1..=3 {
        let (call, tool) = (crate::given::call_id(step, 0), "get_time".to_owned());
        let view = CallView { call: call.clone(), tool: tool.clone(), args: "{}".to_owned() };
        let body = "word ".repeat(800);
        ask.transcript.push(Arc::new(Entry::Model { text: String::new(), calls: vec![view], opaque: None }));
        ask.transcript.push(Arc::new(Entry::Result { call, tool, status: "ok".to_owned(), reason: None, body }));
    }
    ask
}

#[tokio::test]
async fn a_fallback_is_shown_what_fits_its_own_window() {
    let (first, second) = (
        start(answers([FakeAnswer::error(503, "down", "down")])).await,
        start(answers([FakeAnswer::json(&completion_of_text("ok"))])).await,
    );
    let of = |provider: &FakeProvider, tokens: u32| {
        def(json!({"base_url": provider.base_url(), "retries": 0, "max_input_tokens": tokens}))
    };
    let (def, other) = (of(&first, 20_000), of(&second, 3_500));
    let proposer = Proposers::new().unwrap().proposer_for("acme", &def, Some(&other));
    let ballot = proposer.propose(&long(), SEAT).await;
    assert_eq!(done(&ballot), json!("ok"));
    let cut = ballot.cut.unwrap();
    assert_eq!((cut.results, cut.answers, cut.bytes), (1, 0, 4_000));
    let contents = |provider: &FakeProvider| provider.requests()[0]["messages"].to_string();
    assert!(!contents(&first).contains("are left out"), "the first reads all of it");
    assert_eq!(contents(&second).matches("4000 bytes are left out").count(), 1);
    assert_eq!((first.faults(), second.faults()), (Vec::<String>::new(), Vec::<String>::new()));
}
