//! The other two formats: Anthropic's messages and OpenAI's Responses, whole and streamed, there and back.

use std::sync::Arc;

use serde_json::{Value, json};
use toolgate_core::ask::{Ask, CallView, Entry};
use toolgate_core::bundle::model::ModelDef;
use toolgate_core::proposal::{Ballot, BallotVerdict, MalformedReason, ProviderFailure};
use toolgate_proposers::{Reply, StreamDecoder, decode};

use crate::given::{ask, calls, catalogue, def, done, follow_up, malformed, request, runnable};

fn anthropic(fields: Value) -> ModelDef {
    let mut all = json!({"provider": "anthropic", "max_output_tokens": 100});
    all.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    def(all)
}

fn responses(fields: Value) -> ModelDef {
    let mut all = json!({"provider": "openai_responses"});
    all.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    def(all)
}

fn whole(body: &str, def: &ModelDef) -> Ballot {
    let reply = Reply { status: 200, content_type: Some("application/json"), body: body.as_bytes() };
    decode(reply, &ask(catalogue()), def)
}

/// Decodes a stream of typed events whole and at sizes of all kinds.
fn stream(events: &[Value], def: &ModelDef) -> Ballot {
    let text: String = events
        .iter()
        .map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default()))
        .collect();
    let ask = ask(catalogue());
    let reply = Reply { status: 200, content_type: Some("text/event-stream"), body: text.as_bytes() };
    let ballot = decode(reply, &ask, def);
    for size in [1, 2, 3, 7, 64, 4096] {
        let mut decoder = StreamDecoder::new(def);
        let _ = text.as_bytes().chunks(size).all(|piece| decoder.push(piece));
        assert_eq!(decoder.finish(&ask, def), ballot, "{size}");
    }
    ballot
}

fn failure(ballot: &Ballot) -> ProviderFailure {
    match &ballot.verdict {
        BallotVerdict::Failed { reason, .. } => *reason,
        other => panic!("no failure: {other:?}"),
    }
}

const MESSAGE: &str = r#"{"id":"msg_1","type":"message","role":"assistant","model":"claude-x","content":[
    {"type":"thinking","thinking":"hm","signature":"sig=="},
    {"type":"text","text":"Let me look. "},
    {"type":"tool_use","id":"toolu_1","name":"transfer","input":{"to": "x", "amount_cents": 9007199254740993}},
    {"type":"tool_use","id":"toolu_2","name":"get_time","input":{}}],
    "stop_reason":"tool_use","usage":{"input_tokens":10,"cache_read_input_tokens":5,"output_tokens":7}}"#;

#[test]
fn a_message_keeps_the_text_of_its_arguments_and_its_thoughts() {
    let def = anthropic(json!({}));
    let ballot = whole(MESSAGE, &def);
    assert_eq!(calls(&ballot)[0].raw_args, "{\"to\": \"x\", \"amount_cents\": 9007199254740993}");
    assert_eq!(runnable(&ballot)[1], ("get_time".to_owned(), json!({})));
    assert_eq!((ballot.usage.input_tokens, ballot.usage.output_tokens), (Some(15), Some(7)));
    assert_eq!((ballot.text.as_str(), ballot.model.as_deref()), ("Let me look. ", Some("claude-x")));
    assert!(ballot.normalised.is_empty(), "{:?}", ballot.normalised);
    let mut ask = ask(catalogue());
    follow_up(&mut ask, &ballot, |tool| format!("output of {tool}"));
    ask.transcript.push(std::sync::Arc::new(Entry::User { text: "And now?".to_owned() }));
    let body = request(&ask, &def);
    assert_eq!(body["system"], "You work for the tests.");
    let messages = body["messages"].as_array().unwrap();
    let roles: Vec<&str> = messages.iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "assistant", "user"]);
    let kinds = |at: usize| -> Vec<&str> {
        messages[at]["content"].as_array().unwrap().iter().map(|block| block["type"].as_str().unwrap()).collect()
    };
    assert_eq!(kinds(1), ["thinking", "text", "tool_use", "tool_use"]);
    assert_eq!(kinds(2), ["tool_result", "tool_result", "text"]);
    let sent = &messages[1]["content"];
    assert_eq!(sent[0], json!({"type": "thinking", "thinking": "hm", "signature": "sig=="}));
    assert_eq!(sent[2]["input"], json!({"to": "x", "amount_cents": 9_007_199_254_740_993_i64}));
    assert_eq!(sent[2]["id"], messages[2]["content"][0]["tool_use_id"]);
    assert!(body["tools"][0]["input_schema"].is_object());
    // Thoughts belong to the provider and model they came from.
    for other in [anthropic(json!({"model": "m-2"})), anthropic(json!({"reasoning": "drop"}))] {
        assert_eq!(request(&ask, &other)["messages"][1]["content"][0]["type"], "text");
    }
}

#[test]
fn a_streamed_message_is_the_same_as_a_whole_one() {
    let events = [
        json!({"type": "message_start", "message": {"id": "msg_1", "model": "claude-x", "usage": {"input_tokens": 10, "cache_read_input_tokens": 5, "output_tokens": 1}}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": "", "signature": ""}}),
        json!({"type": "ping"}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "sig=="}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "Let me "}}),
        json!({"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "look. "}}),
        json!({"type": "content_block_stop", "index": 1}),
        json!({"type": "content_block_start", "index": 2, "content_block": {"type": "tool_use", "id": "toolu_1", "name": "transfer", "input": {}}}),
        json!({"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": "{\"to\": \"x\", \"amount_cents\": 90071"}}),
        json!({"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": "99254740993}"}}),
        json!({"type": "content_block_stop", "index": 2}),
        json!({"type": "content_block_start", "index": 3, "content_block": {"type": "tool_use", "id": "toolu_2", "name": "get_time", "input": {}}}),
        json!({"type": "content_block_stop", "index": 3}),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 7}}),
        json!({"type": "message_stop"}),
    ];
    let def = anthropic(json!({"stream": true}));
    assert_eq!(stream(&events, &def), whole(MESSAGE, &def));
    // Without its end it is nothing, wherever it stops.
    for at in 0..events.len() - 1 {
        let ballot = stream(&events[..at], &def);
        assert_eq!(failure(&ballot), ProviderFailure::Transport, "{at}");
    }
    let overloaded = json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}});
    let mut broken = events[..12].to_vec();
    broken.push(overloaded);
    assert_eq!(failure(&stream(&broken, &def)), ProviderFailure::ServerError);
    let mut cut = events.to_vec();
    cut[16]["delta"]["stop_reason"] = json!("max_tokens");
    assert_eq!(malformed(&stream(&cut, &def)).0, MalformedReason::Truncated);
    let mut refused = events.to_vec();
    refused[16]["delta"]["stop_reason"] = json!("refusal");
    assert_eq!(malformed(&stream(&refused, &def)).0, MalformedReason::ContentFiltered);
}

#[test]
fn errors_of_the_messages_interface_have_their_reasons() {
    let def = anthropic(json!({}));
    for (status, kind, reason) in [
        (200, "rate_limit_error", ProviderFailure::RateLimited),
        (200, "authentication_error", ProviderFailure::Unauthorized),
        (200, "invalid_request_error", ProviderFailure::RequestRefused),
        (200, "not_found_error", ProviderFailure::RequestRefused),
        (529, "overloaded_error", ProviderFailure::ServerError),
        (404, "not_found_error", ProviderFailure::RequestRefused),
    ] {
        let body = json!({"type": "error", "error": {"type": kind, "message": "no"}}).to_string();
        let reply = Reply { status, content_type: Some("application/json"), body: body.as_bytes() };
        assert_eq!(failure(&decode(reply, &ask(catalogue()), &def)), reason, "{status} {kind}");
    }
}

fn response() -> Value {
    json!({"id": "resp_1", "object": "response", "status": "completed", "model": "gpt-x", "output": [
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "abc"},
        {"type": "reasoning", "id": "rs_2", "summary": []},
        {"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": "Looking.", "annotations": []}]},
        {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "transfer", "status": "completed",
         "arguments": "{\"to\": \"x\", \"amount_cents\": 9007199254740993}"},
    ], "usage": {"input_tokens": 10, "output_tokens": 7}})
}

#[test]
fn a_response_goes_there_and_back() {
    let def = responses(json!({"reasoning": "encrypted", "parallel_calls": false, "max_output_tokens": 50}));
    let ballot = whole(&response().to_string(), &def);
    assert_eq!(calls(&ballot)[0].raw_args, "{\"to\": \"x\", \"amount_cents\": 9007199254740993}");
    assert_eq!(calls(&ballot)[0].provider_id.as_deref(), Some("call_1"));
    assert_eq!((ballot.text.as_str(), ballot.usage.output_tokens), ("Looking.", Some(7)));
    let mut ask = ask(catalogue());
    follow_up(&mut ask, &ballot, |_| "done".to_owned());
    let body = request(&ask, &def);
    let kinds: Vec<&str> = body["input"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["type"].as_str().or_else(|| item["role"].as_str()).unwrap())
        .collect();
    assert_eq!(kinds, ["user", "reasoning", "assistant", "function_call", "function_call_output"]);
    assert_eq!(body["input"][1]["encrypted_content"], "abc");
    assert_eq!(body["input"][3]["call_id"], body["input"][4]["call_id"]);
    assert_eq!(body["input"][4]["output"], "status: ok\n\ndone");
    assert_eq!((&body["store"], &body["parallel_tool_calls"]), (&json!(false), &json!(false)));
    assert_eq!(body["include"], json!(["reasoning.encrypted_content"]));
    assert_eq!((&body["instructions"], &body["max_output_tokens"]), (&json!("You work for the tests."), &json!(50)));
    assert_eq!(body["tools"][1]["name"], "search");
}

#[test]
fn a_streamed_response_is_the_same_as_a_whole_one() {
    let def = responses(json!({"stream": true}));
    let whole = whole(&response().to_string(), &def);
    let begun =
        json!({"type": "response.created", "response": {"id": "resp_1", "status": "in_progress", "output": []}});
    let mut events = vec![begun];
    for (at, item) in response()["output"].as_array().unwrap().iter().enumerate() {
        events.push(json!({"type": "response.output_item.added", "output_index": at, "item": {"type": item["type"], "name": item["name"]}}));
        if item["type"] == "function_call" {
            events.push(
                json!({"type": "response.function_call_arguments.delta", "output_index": at, "delta": "{\"to\""}),
            );
        }
        events.push(json!({"type": "response.output_item.done", "output_index": at, "item": item}));
    }
    assert_eq!(failure(&stream(&events, &def)), ProviderFailure::Transport);
    let mut complete = events.clone();
    complete.push(json!({"type": "response.completed", "response": response()}));
    assert_eq!(stream(&complete, &def), whole);
    // The end may leave out what came before it.
    let mut short = response();
    short["output"] = json!([]);
    events.push(json!({"type": "response.completed", "response": short}));
    assert_eq!(stream(&events, &def), whole);
    let cut = json!({"type": "response.incomplete", "response": {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}, "output": response()["output"]}});
    assert_eq!(malformed(&stream(&[cut], &def)).0, MalformedReason::Truncated);
    let failed = json!({"type": "response.failed", "response": {"status": "failed", "error": {"code": "rate_limit_exceeded", "message": "slow"}, "output": []}});
    assert_eq!(failure(&stream(&[failed], &def)), ProviderFailure::RateLimited);
    let error = json!({"type": "error", "code": "server_error", "message": "oops"});
    assert_eq!(failure(&stream(&[error], &def)), ProviderFailure::ServerError);
}

#[test]
fn the_envelope_goes_over_every_format() {
    let text = "{\"type\":\"tool_call\",\"calls\":[{\"id\":\"1\",\"name\":\"get_time\",\"args\":{}}]}";
    let def = anthropic(json!({"calls": "envelope"}));
    let body = json!({"type": "message", "content": [{"type": "text", "text": text}], "stop_reason": "end_turn"});
    assert_eq!(runnable(&whole(&body.to_string(), &def)).len(), 1);
    let sent = request(&ask(catalogue()), &def);
    assert!(sent["system"].as_str().unwrap().contains("# How to reply") && sent.get("tools").is_none());
    assert_eq!(sent["messages"][0]["role"], "user");
    let def = responses(json!({"calls": "envelope"}));
    let body = json!({"status": "completed", "output": [{"type": "message", "content": [{"type": "output_text", "text": text}]}]});
    assert_eq!(runnable(&whole(&body.to_string(), &def)).len(), 1);
    let sent = request(&ask(catalogue()), &def);
    assert!(sent["instructions"].as_str().unwrap().contains("# How to reply") && sent.get("tools").is_none());
}

/// A chat completion with this text and these calls.
fn auto(content: &str, sent: Value, calls_form: &str) -> Ballot {
    let mut tools = catalogue();
    tools.push(crate::given::tool("files.list", &json!({"type": "object"})));
    let ask: Ask = ask(tools);
    let body = json!({"choices": [{"index": 0, "finish_reason": "stop", "message": {"content": content, "tool_calls": sent}}]});
    crate::given::native(&body, &ask, &def(json!({"calls": calls_form})))
}

#[test]
fn auto_understands_either_form_and_never_runs_both() {
    let envelope = |name: &str| {
        format!("{{\"type\":\"tool_call\",\"calls\":[{{\"id\":\"1\",\"name\":\"{name}\",\"args\":{{}}}}]}}")
    };
    let native = json!([{"id": "a", "function": {"name": "get_time", "arguments": "{}"}}]);
    let one = vec![("get_time".to_owned(), json!({}))];
    assert_eq!(runnable(&auto("", native.clone(), "auto")), one);
    let read = auto(&envelope("get_time"), json!([]), "auto");
    assert_eq!((runnable(&read), read.normalised), (one.clone(), vec!["envelope_understood".to_owned()]));
    // Under its wire name, too.
    assert_eq!(runnable(&auto(&envelope("files_list"), json!([]), "auto"))[0].0, "files.list");
    assert_eq!(done(&auto("{\"type\":\"final_answer\",\"output\":\"x\"}", json!([]), "auto")), json!("x"));
    assert_eq!(done(&auto("It is late.", json!([]), "auto")), json!("It is late."));
    assert_eq!(done(&auto("{\"a\":1}", json!([]), "auto")), json!("{\"a\":1}"));
    // Both at once: the very same call is one call, anything else is none.
    let both = auto(&envelope("get_time"), native.clone(), "auto");
    assert_eq!((runnable(&both), both.normalised), (one.clone(), vec!["envelope_repeats_calls".to_owned()]));
    let differ = auto(&envelope("search"), native.clone(), "auto");
    assert_eq!(malformed(&differ).0, MalformedReason::AmbiguousEnvelope);
    let contradicts = auto("{\"type\":\"final_answer\",\"output\":\"x\"}", native.clone(), "auto");
    assert_eq!(malformed(&contradicts).0, MalformedReason::AmbiguousEnvelope);
    // A failed try at an envelope is no answer in words.
    let prose = format!("I refuse to do this: {}", envelope("get_time"));
    assert_eq!(malformed(&auto(&prose, json!([]), "auto")).0, MalformedReason::AmbiguousEnvelope);
    assert_eq!(
        malformed(&auto("{\"type\": \"tool_call\", \"calls\": []}", json!([]), "auto")).0,
        MalformedReason::InvalidEnvelope
    );
    // Where one form is asked for, the other is not taken, and beside an envelope not dropped without a word.
    assert_eq!(malformed(&auto("", native.clone(), "envelope")).0, MalformedReason::NoEnvelope);
    assert_eq!(malformed(&auto("I look.", native.clone(), "envelope")).0, MalformedReason::NoEnvelope);
    assert_eq!(malformed(&auto(&envelope("search"), native, "envelope")).0, MalformedReason::AmbiguousEnvelope);
}

#[test]
fn a_history_with_calls_declares_their_tools_where_none_is_offered_any_more() {
    let mut ask = ask(Vec::new());
    let view = CallView { call: crate::given::call_id(1, 0), tool: "files.read".to_owned(), args: "{}".to_owned() };
    ask.transcript.push(Arc::new(Entry::Model { text: String::new(), calls: vec![view], opaque: None }));
    let def = anthropic(json!({}));
    let sent = request(&ask, &def);
    let name = sent["messages"][1]["content"][0]["name"].as_str().unwrap();
    assert_eq!(sent["tools"], json!([{"name": name, "input_schema": {"type": "object"}}]));
    assert_eq!(sent["tool_choice"], json!({"type": "none"}), "and none may be called");
    ask.transcript.truncate(1);
    assert_eq!(request(&ask, &def)["tools"], Value::Null);
}
