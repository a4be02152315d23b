//! Streamed chat completions: the field cases of kind `chat_stream`, and every way in which servers cut, repeat and leave
//! out. How the bytes are split never matters.

use serde_json::{Value, json};
use toolgate_core::ask::Ask;
use toolgate_core::bundle::model::ModelDef;
use toolgate_core::proposal::{Ballot, BallotVerdict, MalformedReason, ProviderFailure};
use toolgate_proposers::{Reply, StreamDecoder, decode};

use crate::field_cases::{case, expected};
use crate::given::{ask, calls, catalogue, def, done, malformed, runnable};

/// The bytes of a stream of these events, with the mark of its end.
fn events(events: &[Value]) -> String {
    let mut text: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    text.push_str("data: [DONE]\n\n");
    text
}

fn pieces<'a>(pieces: impl Iterator<Item = &'a [u8]>, ask: &Ask, def: &ModelDef) -> Ballot {
    let mut decoder = StreamDecoder::new(def);
    for piece in pieces {
        if !decoder.push(piece) {
            break;
        }
    }
    decoder.finish(ask, def)
}

/// Decodes a stream whole and in pieces of every size up to 64, and at every place in two.
fn streamed(text: &str, ask: &Ask, def: &ModelDef) -> Ballot {
    let bytes = text.as_bytes();
    let whole = decode(Reply { status: 200, content_type: Some("text/event-stream"), body: bytes }, ask, def);
    for size in 1..=64 {
        assert_eq!(pieces(bytes.chunks(size), ask, def), whole, "{size}");
    }
    for at in 0..bytes.len() {
        let (one, other) = bytes.split_at(at);
        assert_eq!(pieces([one, other].into_iter(), ask, def), whole, "{at}");
    }
    whole
}

fn play(id: &str) -> Vec<Ballot> {
    let case = case(id);
    assert_eq!(case["kind"], "chat_stream");
    let (ask, def) = (ask(catalogue()), def(json!({"stream": true})));
    let streams = case["given"]["streams"].as_array().unwrap();
    streams.iter().map(|stream| streamed(&events(stream.as_array().unwrap()), &ask, &def)).collect()
}

fn one(deltas: &[Value]) -> Ballot {
    let mut all: Vec<Value> = deltas.iter().map(|delta| json!({"choices": [{"index": 0, "delta": delta}]})).collect();
    all.push(json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}));
    streamed(&events(&all), &ask(catalogue()), &def(json!({"stream": true})))
}

fn failure(ballot: &Ballot) -> (ProviderFailure, &str) {
    match &ballot.verdict {
        BallotVerdict::Failed { reason, detail } => (*reason, detail),
        other => panic!("no failure: {other:?}"),
    }
}

#[test]
fn a04_two_calls_on_one_index_stay_two() {
    let ballots = play("FC-A04");
    assert_eq!(runnable(&ballots[0]), expected(&case("FC-A04")["expect"]["executed"]));
}

#[test]
fn a05_two_entries_for_one_index_are_one_call() {
    let ballots = play("FC-A05");
    assert_eq!(runnable(&ballots[0]), expected(&case("FC-A05")["expect"]["executed"]));
    assert_eq!(calls(&ballots[0]).len(), 1);
}

#[test]
fn a22_the_framing_of_events_never_matters() {
    let case = case("FC-A22");
    let (ask, def) = (ask(catalogue()), def(json!({"stream": true})));
    let ballot = streamed(case["given"]["text"].as_str().unwrap(), &ask, &def);
    assert_eq!(done(&ballot), case["expect"]["final_output"]);
    assert_eq!((ballot.usage.input_tokens, ballot.usage.output_tokens), (Some(1), Some(2)));
}

#[test]
fn a24_names_come_again_or_in_pieces() {
    let ballots = play("FC-A24");
    let all: Vec<_> = ballots.iter().flat_map(runnable).collect();
    assert_eq!(all, expected(&case("FC-A24")["expect"]["executed"]));
    assert!(ballots.iter().all(|ballot| calls(ballot).len() == 1));
}

#[test]
fn c05_half_a_call_never_survives_its_stream() {
    let ballots = play("FC-C05");
    assert_eq!(failure(&ballots[0]).0, ProviderFailure::RateLimited);
    assert!(runnable(&ballots[0]).is_empty() && ballots[0].text.is_empty());
    assert_eq!(done(&ballots[1]), case("FC-C05")["expect"]["final_output"]);
}

#[test]
fn a_stream_without_its_end_is_no_answer() {
    let (ask, def) = (ask(catalogue()), def(json!({})));
    let call = json!({"index": 0, "id": "a", "function": {"name": "get_time", "arguments": "{}"}});
    let text = format!(
        "data: {}\n\n",
        json!({"choices": [{"index": 0, "delta": {"tool_calls": [call]}}], "usage": {"prompt_tokens": 7}})
    );
    let ballot = streamed(&text, &ask, &def);
    assert_eq!(failure(&ballot).0, ProviderFailure::Transport);
    assert_eq!(ballot.usage.input_tokens, Some(7));
    assert_eq!(failure(&streamed("data: [DONE]\n\n", &ask, &def)).0, ProviderFailure::Transport);
    assert_eq!(failure(&streamed("", &ask, &def)).0, ProviderFailure::Transport);
    // The end is there, only its blank line is not.
    let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]});
    assert_eq!(runnable(&streamed(&format!("{text}data: {end}"), &ask, &def)).len(), 1);
}

#[test]
fn a_cut_or_filtered_stream_runs_nothing() {
    let (ask, def) = (ask(catalogue()), def(json!({})));
    let call = json!({"index": 0, "id": "a", "function": {"name": "get_time", "arguments": "{}"}});
    for (reason, expected) in
        [("length", MalformedReason::Truncated), ("content_filter", MalformedReason::ContentFiltered)]
    {
        let all = [
            json!({"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]}),
            json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}),
        ];
        assert_eq!(malformed(&streamed(&events(&all), &ask, &def)).0, expected);
    }
}

#[test]
fn calls_are_told_apart_whatever_is_missing() {
    let call = |index: Value, id: Value, name: Value, arguments: Value| json!({"tool_calls": [{"index": index, "id": id, "function": {"name": name, "arguments": arguments}}]});
    let none = Value::Null;
    let two = [("search", "{\"query\":\"a\"}"), ("get_time", "{}")];
    let expected: Vec<(String, Value)> =
        two.iter().map(|(name, args)| ((*name).to_owned(), serde_json::from_str(args).unwrap())).collect();
    for (what, deltas) in [
        (
            "two whole calls in one delta without index",
            vec![json!({"tool_calls": [
                {"id": "a", "function": {"name": "search", "arguments": "{\"query\":\"a\"}"}},
                {"id": "b", "function": {"name": "get_time", "arguments": "{}"}},
            ]})],
        ),
        (
            "neither id nor index",
            vec![
                call(none.clone(), none.clone(), json!("search"), json!("{\"query\":")),
                call(none.clone(), none.clone(), none.clone(), json!("\"a\"}")),
                call(none.clone(), none.clone(), json!("get_time"), json!("{}")),
            ],
        ),
        (
            "empty strings for what is absent",
            vec![
                call(json!(0), json!("a"), json!("search"), json!("")),
                call(json!(0), json!(""), json!(""), json!("{\"query\":\"a\"}")),
                call(json!(1), json!("b"), json!("get_time"), json!("")),
                call(json!(1), json!(""), json!(""), json!("{}")),
            ],
        ),
        (
            "pieces of two calls in turn",
            vec![
                call(json!(0), json!("a"), json!("search"), json!("")),
                call(json!(1), json!("b"), json!("get_time"), json!("{")),
                call(json!(0), none.clone(), none.clone(), json!("{\"query\":\"a\"}")),
                call(json!(1), none.clone(), none.clone(), json!("}")),
            ],
        ),
        (
            "the first index is 1",
            vec![
                call(json!(1), json!("a"), json!("search"), json!("{\"query\":\"a\"}")),
                call(json!(2), json!("b"), json!("get_time"), json!("{}")),
            ],
        ),
        (
            "a new id for each piece",
            vec![
                call(json!(0), json!("a1"), json!("search"), json!("{\"query\":")),
                call(json!(0), json!("a2"), none.clone(), json!("\"a\"}")),
                call(json!(1), json!("b1"), json!("get_time"), json!("{}")),
            ],
        ),
        (
            "one id for both",
            vec![
                call(json!(0), json!("same"), json!("search"), json!("{\"query\":\"a\"}")),
                call(json!(1), json!("same"), json!("get_time"), json!("{}")),
            ],
        ),
        (
            "the id comes late",
            vec![
                call(json!(0), none.clone(), json!("search"), json!("{\"query\":")),
                call(json!(0), json!("a"), none.clone(), json!("\"a\"}")),
                call(json!(1), json!("b"), json!("get_time"), json!("{}")),
            ],
        ),
        (
            "arguments as an object",
            vec![
                call(json!(0), json!("a"), json!("search"), json!({"query": "a"})),
                call(json!(1), json!("b"), json!("get_time"), json!({})),
            ],
        ),
        (
            "the whole message in the place of its pieces",
            vec![json!({"content": null, "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "search", "arguments": "{\"query\":\"a\"}"}},
                {"id": "b", "type": "function", "function": {"name": "get_time", "arguments": "{}"}},
            ]})],
        ),
    ] {
        assert_eq!(runnable(&one(&deltas)), expected, "{what}");
    }
    // Arguments that nobody began.
    let stray = [call(json!(0), none.clone(), none, json!("{}"))];
    assert_eq!(malformed(&one(&stray)).0, MalformedReason::InvalidEnvelope);
}

#[test]
fn numbers_in_pieces_keep_their_digits() {
    let part = |text: &str| json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "transfer", "arguments": text}}]});
    let ballot = one(&[part("{\"to\":\"x\",\"amount_cents\":90071992"), part("54740993}")]);
    assert_eq!(calls(&ballot)[0].raw_args, "{\"to\":\"x\",\"amount_cents\":9007199254740993}");
    assert_eq!(runnable(&ballot)[0].1, json!({"to": "x", "amount_cents": 9_007_199_254_740_993_i64}));
}

#[test]
fn reasoning_comes_in_pieces_and_goes_back_whole() {
    let ballot = one(&[
        json!({"reasoning_content": "I "}),
        json!({"reasoning_content": "think"}),
        json!({"reasoning_details": [{"type": "reasoning.text", "index": 0, "text": "a"}]}),
        json!({"reasoning_details": [{"type": "reasoning.text", "index": 0, "text": "b", "signature": "s"}]}),
        json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "get_time", "arguments": "{}"}}]}),
    ]);
    let kept = ballot.opaque.unwrap().value();
    assert_eq!(kept["fields"]["reasoning_content"], "I think");
    let details = json!([{"type": "reasoning.text", "index": 0, "text": "ab", "signature": "s"}]);
    assert_eq!(kept["fields"]["reasoning_details"], details);
}

#[test]
fn what_is_no_stream_is_typed() {
    let (ask, def) = (ask(catalogue()), def(json!({})));
    for (text, reason, words) in [
        (
            "data: {\"error\":{\"message\":\"no\",\"code\":\"rate_limit_exceeded\"}}\n\n",
            ProviderFailure::RateLimited,
            "no",
        ),
        ("event: error\ndata: {\"message\":\"broken\"}\n\n", ProviderFailure::ServerError, "broken"),
        ("data: <html>\n\ndata: more\n\n", ProviderFailure::NotACompletion, "no JSON"),
    ] {
        let ballot = streamed(text, &ask, &def);
        let (got, detail) = failure(&ballot);
        assert!(got == reason && detail.contains(words), "{got:?} {detail}");
    }
    let not_text = Reply { status: 200, content_type: Some("text/event-stream"), body: b"data: \xff\xfe\n\n" };
    assert_eq!(failure(&decode(not_text, &ask, &def)).0, ProviderFailure::NotACompletion);
    let big = format!("data: {}\n\n", "x".repeat(3 << 20));
    let big = Reply { status: 200, content_type: Some("text/event-stream"), body: big.as_bytes() };
    assert_eq!(failure(&decode(big, &ask, &def)).0, ProviderFailure::TooLarge);
}
