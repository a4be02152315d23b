//! Failures people reported in public (`tests/field-cases/FC-A*`), as far as a decoder and an encoder can show them. The
//! streamed cases are in `streams`.

use std::path::Path;

use serde_json::{Value, json};
use toolgate_core::ask::Ask;
use toolgate_core::bundle::model::{CallForm, ModelDef};
use toolgate_core::proposal::{Ballot, MalformedReason, ProposedArgs};

use crate::given::{
    ask, assert_history, call_id, calls, catalogue, completion, def, done, follow_up, malformed, native, request,
    runnable, tool,
};

pub(crate) fn case(id: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../tests/field-cases/{id}.json"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let case: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(case["case"], id);
    case
}

/// Plays the responses of a case against an endpoint with native calls; after each, the next request must be valid.
fn play(id: &str, def: &ModelDef) -> (Vec<Ballot>, Ask) {
    let case = case(id);
    assert_eq!(case["kind"], "chat_response");
    let mut tools = catalogue();
    if let Some(extra) = case["given"].get("tool_override") {
        tools.push(tool(extra["name"].as_str().unwrap(), &extra["schema"]));
    }
    let mut ask = ask(tools);
    let play_one = |response: &Value| {
        let ballot = native(response, &ask, def);
        follow_up(&mut ask, &ballot, |tool| format!("output of {tool}"));
        assert_history(&request(&ask, def));
        ballot
    };
    let ballots = case["given"]["responses"].as_array().unwrap().iter().map(play_one).collect();
    (ballots, ask)
}

/// Plays the texts of a case through the envelope.
fn play_texts(id: &str, def: &ModelDef) -> Vec<Ballot> {
    let case = case(id);
    assert_eq!(case["kind"], "envelope_text");
    let text_of = |text: &Value| match text.get("$nest") {
        None => text.as_str().unwrap().to_owned(),
        Some(nest) => {
            let times = usize::try_from(nest["times"].as_u64().unwrap()).unwrap();
            format!("{}{}", nest["open"].as_str().unwrap().repeat(times), nest["close"].as_str().unwrap().repeat(times))
        }
    };
    case["given"]["texts"].as_array().unwrap().iter().map(|text| envelope_ballot(&text_of(text), def)).collect()
}

fn envelope_ballot(text: &str, def: &ModelDef) -> Ballot {
    let mut def = def.clone();
    def.calls = CallForm::Envelope;
    native(&completion(json!({"role": "assistant", "content": text})), &ask(catalogue()), &def)
}

fn strict() -> ModelDef {
    def(json!({}))
}

fn lenient() -> ModelDef {
    def(json!({"lenient": true}))
}

fn all_runnable(ballots: &[Ballot]) -> Vec<(String, Value)> {
    ballots.iter().flat_map(runnable).collect()
}

pub(crate) fn expected(pairs: &Value) -> Vec<(String, Value)> {
    let pair = |pair: &Value| (pair[0].as_str().unwrap().to_owned(), pair[1].clone());
    pairs.as_array().unwrap().iter().map(pair).collect()
}

/// The reason and sentence of the only call of a ballot.
fn call_fault(ballot: &Ballot) -> (MalformedReason, &str) {
    match &calls(ballot)[0].args {
        ProposedArgs::Malformed { reason, detail } => (*reason, detail),
        ProposedArgs::Readable(args) => panic!("readable: {args}"),
    }
}

#[test]
fn a01_empty_argument_text_of_a_tool_without_parameters() {
    let (ballots, _) = play("FC-A01", &strict());
    assert_eq!(all_runnable(&ballots), expected(&case("FC-A01")["expect"]["executed"]));
    assert_eq!((calls(&ballots[0])[0].raw_args.as_str(), calls(&ballots[1])[0].raw_args.as_str()), ("", "  \n"));
    assert_eq!(ballots[0].normalised, ["args_empty"]);
    assert_eq!(done(&ballots[2]), json!("done"));
}

#[test]
fn a02_an_array_sent_as_a_string_is_not_unwrapped() {
    // The core's schema check refuses the first; what matters here is that nobody rewrites it before.
    for def in [strict(), lenient()] {
        let (ballots, _) = play("FC-A02", &def);
        assert_eq!(runnable(&ballots[0])[0].1, json!({"tags": "[\"red\",\"blue\"]"}));
        assert_eq!(runnable(&ballots[1]), expected(&case("FC-A02")["expect"]["strict_mode"]["executed"]));
        assert!(ballots[0].normalised.is_empty());
    }
}

#[test]
fn a03_strings_that_look_like_json_stay_strings() {
    let (ballots, _) = play("FC-A03", &lenient());
    assert_eq!(all_runnable(&ballots), expected(&case("FC-A03")["expect"]["executed"]));
}

#[test]
fn a06_two_calls_with_one_id_stay_two_calls() {
    let (ballots, ask) = play("FC-A06", &strict());
    assert_eq!(all_runnable(&ballots), expected(&case("FC-A06")["expect"]["any_of"][0]["executed"]));
    assert_eq!(ballots[0].normalised, ["duplicate_id"]);
    assert!(calls(&ballots[0]).iter().all(|call| call.provider_id.as_deref() == Some("dup")));
    let body = request(&ask, &strict());
    let sent = body["messages"][2]["tool_calls"].as_array().unwrap();
    assert_ne!(sent[0]["id"], sent[1]["id"]);
}

#[test]
fn a07_one_tool_twice_in_one_envelope() {
    let ballots = play_texts("FC-A07", &strict());
    assert_eq!(all_runnable(&ballots), expected(&case("FC-A07")["expect"]["executed"]));
    assert_eq!(done(&ballots[1]), json!("ok"));
}

#[test]
fn a08_a_cut_answer_runs_nothing() {
    for def in [strict(), lenient()] {
        let (ballots, _) = play("FC-A08", &def);
        let (reason, detail) = malformed(&ballots[0]);
        assert_eq!(reason, MalformedReason::Truncated);
        for words in ["output limit reached", "arguments discarded", "send a smaller call"] {
            assert!(detail.contains(words), "{detail}");
        }
        assert_eq!(all_runnable(&ballots), expected(&case("FC-A08")["expect"]["executed_includes"]));
    }
}

#[test]
fn a09_a_draft_in_a_think_block_never_runs() {
    for def in [strict(), lenient()] {
        let ballots = play_texts("FC-A09", &def);
        assert_eq!(all_runnable(&ballots), expected(&case("FC-A09")["expect"]["executed"]));
        assert_eq!(ballots[0].normalised, ["think_removed"]);
        assert!(ballots[0].text.contains("<think>I could send"));
    }
}

#[test]
fn a10_an_empty_answer_is_no_final_answer() {
    let (ballots, _) = play("FC-A10", &lenient());
    let (reason, detail) = malformed(&ballots[0]);
    assert_eq!(reason, MalformedReason::Empty);
    assert!(detail.contains("no answer and no call received") && detail.contains("reasoning"), "{detail}");
    assert!(ballots[0].opaque.as_ref().unwrap().as_str().contains("I will call it now"));
    assert_eq!(done(&ballots[1]), json!("real answer"));
}

#[test]
fn a11_python_literals_are_refused_and_apostrophes_are_not() {
    for def in [strict(), lenient()] {
        let (ballots, _) = play("FC-A11", &def);
        assert_eq!(all_runnable(&ballots), expected(&case("FC-A11")["expect"]["executed_includes"]));
        let (reason, detail) = call_fault(&ballots[0]);
        assert_eq!(reason, MalformedReason::Syntax);
        assert!(
            detail.contains("not valid JSON") && detail.contains("double quotes") && detail.contains("'query'"),
            "{detail}"
        );
        assert_eq!(call_fault(&ballots[2]).0, MalformedReason::Syntax);
    }
}

#[test]
fn a12_relaxed_syntax_is_refused_by_one_rule() {
    let (ballots, _) = play("FC-A12", &strict());
    assert_eq!(all_runnable(&ballots), expected(&case("FC-A12")["expect"]["executed_includes"]));
    for ballot in &ballots[..3] {
        let (reason, detail) = call_fault(ballot);
        assert_eq!(reason, MalformedReason::Syntax);
        assert!(!detail.contains("truncated") && !detail.contains("cut"), "{detail}");
    }
}

#[test]
fn a13_raw_control_characters_in_a_string_are_a_typed_fault() {
    let (ballots, _) = play("FC-A13", &strict());
    let (reason, detail) = call_fault(&ballots[0]);
    assert_eq!(reason, MalformedReason::Syntax);
    assert!(detail.contains("control character") && detail.contains("column"), "{detail}");
    assert_eq!(all_runnable(&ballots), expected(&case("FC-A13")["expect"]["executed_includes"]));
}

#[test]
fn a14_duplicate_keys_are_refused_by_name() {
    let (ballots, _) = play("FC-A14", &lenient());
    assert!(all_runnable(&ballots).is_empty());
    for (ballot, key) in ballots.iter().zip(["amount_cents", "command"]) {
        let (reason, detail) = call_fault(ballot);
        assert_eq!(reason, MalformedReason::DuplicateKey);
        assert!(detail.contains(&format!("duplicate key `{key}`")), "{detail}");
    }
}

#[test]
fn a15_integers_keep_their_digits_or_are_refused() {
    let (ballots, ask) = play("FC-A15", &strict());
    let canonical = |ballot: &Ballot| match &calls(ballot)[0].args {
        ProposedArgs::Readable(args) => args.as_str().to_owned(),
        ProposedArgs::Malformed { reason, .. } => format!("{reason:?}"),
    };
    let texts: Vec<String> = ballots[..3].iter().map(canonical).collect();
    assert_eq!(texts, ["{\"id\":653247040368672769}", "NumberOutOfRange", "{\"id\":9007199254740993}"]);
    let sent = request(&ask, &strict()).to_string();
    for never in case("FC-A15")["expect"]["never"].as_array().unwrap() {
        assert!(!sent.contains(never.as_str().unwrap()), "{never}");
    }
}

#[test]
fn a16_nan_and_infinity_are_refused() {
    let (ballots, _) = play("FC-A16", &lenient());
    assert!(all_runnable(&ballots).is_empty());
    let reasons: Vec<_> = ballots[..3].iter().map(|ballot| call_fault(ballot).0).collect();
    assert_eq!(reasons, [MalformedReason::Syntax, MalformedReason::Syntax, MalformedReason::NumberOutOfRange]);
}

#[test]
fn a17_a_prefix_is_resolved_only_where_the_model_is_lenient() {
    let (ballots, _) = play("FC-A17", &strict());
    assert_eq!(runnable(&ballots[0])[0].0, "functions.get_time");
    let (ballots, _) = play("FC-A17", &lenient());
    assert_eq!(runnable(&ballots[0])[0].0, "get_time");
    assert_eq!(ballots[0].normalised, ["functions_prefix:functions.get_time"]);
}

#[test]
fn a18_calls_decide_and_not_the_finish_reason() {
    let (ballots, _) = play("FC-A18", &strict());
    assert_eq!(all_runnable(&ballots), expected(&case("FC-A18")["expect"]["executed"]));
    assert_eq!(ballots[0].text, "let me look");
    assert_eq!(done(&ballots[2]), json!("end"));
}

#[test]
fn a19_announced_calls_that_are_absent() {
    let (ballots, _) = play("FC-A19", &strict());
    for ballot in &ballots {
        assert_eq!(malformed(ballot).0, MalformedReason::CallsAnnouncedButAbsent);
    }
}

#[test]
fn a20_an_invented_result_and_answer_are_refused_with_the_call() {
    // Lenient refuses it as well: toolloop reads no two bare objects.
    for def in [strict(), lenient()] {
        let ballots = play_texts("FC-A20", &def);
        let (reason, detail) = malformed(&ballots[0]);
        if !def.lenient {
            assert_eq!(reason, MalformedReason::AmbiguousEnvelope);
            assert!(detail.contains("more than one envelope"), "{detail}");
        }
        assert_eq!(all_runnable(&ballots), expected(&case("FC-A20")["expect"]["strict_mode"]["executed"]));
        assert_eq!(done(&ballots[2]), json!("real"));
    }
}

#[test]
fn a21_a_call_written_as_text_is_never_the_answer() {
    let (ballots, _) = play("FC-A21", &strict());
    assert_eq!(malformed(&ballots[0]).0, MalformedReason::CallAsText);
    assert_eq!(done(&ballots[1]), json!("You can call it like {\"name\":\"get_time\"} if you want."));
    let (ballots, _) = play("FC-A21", &lenient());
    assert_eq!(runnable(&ballots[0]), expected(&case("FC-A21")["expect"]["lenient_mode_if_offered"]["executed"]));
    assert!(ballots[0].normalised.contains(&"call_from_text".to_owned()));
    assert!(runnable(&ballots[1]).is_empty());
}

#[test]
fn a23_content_beside_calls_is_read_in_any_form_and_written_in_the_form_asked_for() {
    for (setting, content) in [("null", Some(Value::Null)), ("empty", Some(json!(""))), ("omit", None)] {
        let def = def(json!({"call_content": setting}));
        let (ballots, ask) = play("FC-A23", &def);
        assert_eq!(all_runnable(&ballots).len(), 3);
        let body = request(&ask, &def);
        let messages = body["messages"].as_array().unwrap();
        let with_calls: Vec<_> = messages.iter().filter(|message| message.get("tool_calls").is_some()).collect();
        assert_eq!(with_calls.len(), 3);
        assert!(with_calls.iter().all(|message| message.get("content") == content.as_ref()), "{setting}");
        // A message without calls always has text.
        assert_eq!(messages.last().unwrap()["content"], "done");
    }
}

#[test]
fn a25_arguments_as_an_object_keep_their_digits() {
    let (ballots, ask) = play("FC-A25", &strict());
    match &calls(&ballots[0])[0].args {
        ProposedArgs::Readable(args) => assert_eq!(args.as_str(), "{\"limit\":9007199254740993,\"query\":\"a\"}"),
        ProposedArgs::Malformed { detail, .. } => panic!("{detail}"),
    }
    assert_eq!(runnable(&ballots[1]), [("get_time".to_owned(), json!({}))]);
    assert_eq!(runnable(&ballots[2]), [("get_time".to_owned(), json!({}))]);
    let notes: Vec<&[String]> = ballots[..3].iter().map(|ballot| ballot.normalised.as_slice()).collect();
    assert_eq!(notes, [["args_object"], ["args_null"], ["args_missing"]]);
    let as_text = request(&ask, &strict());
    assert_eq!(
        as_text["messages"][2]["tool_calls"][0]["function"]["arguments"],
        "{\"limit\":9007199254740993,\"query\":\"a\"}"
    );
    let as_object = request(&ask, &def(json!({"history_args": "object"})));
    let arguments = &as_object["messages"][2]["tool_calls"][0]["function"]["arguments"];
    assert_eq!(arguments, &json!({"limit": 9_007_199_254_740_993_i64, "query": "a"}));
}

#[test]
fn a26_deep_nesting_is_a_typed_refusal() {
    for def in [strict(), lenient()] {
        let ballots = play_texts("FC-A26", &def);
        assert_eq!(malformed(&ballots[0]).0, MalformedReason::TooDeep);
        assert_eq!(malformed(&ballots[1]).0, MalformedReason::TooDeep);
        assert_eq!(runnable(&ballots[2]), [("search".to_owned(), json!({"query": "[[[[[[ only text ]]]]]]"}))]);
    }
}

#[test]
fn a27_prose_around_a_bare_envelope_is_refused() {
    // In lenient mode too: toolloop reads no bare envelope in prose, and text 3 shows why.
    for def in [strict(), lenient()] {
        let ballots = play_texts("FC-A27", &def);
        for ballot in &ballots[..3] {
            let (reason, detail) = malformed(ballot);
            assert!(def.lenient || reason == MalformedReason::AmbiguousEnvelope, "{reason:?}");
            assert!(detail.to_lowercase().contains("the whole reply must be one envelope"), "{detail}");
        }
        assert_eq!(done(&ballots[3]), case("FC-A27")["expect"]["final_output"]);
    }
}

#[test]
fn a28_tool_output_cannot_leave_its_frame() {
    let case = case("FC-A28");
    let evil = case["given"]["tool_results"]["search"].as_str().unwrap();
    let mut ask = ask(catalogue());
    let ballots = play_texts("FC-A28", &strict());
    assert_eq!(all_runnable(&ballots), expected(&case["expect"]["executed"]));
    follow_up(&mut ask, &ballots[0], |_| evil.to_owned());
    let body = request(&ask, &def(json!({"calls": "envelope"})));
    let messages = body["messages"].as_array().unwrap();
    let with_output: Vec<_> =
        messages.iter().filter(|m| m["content"].as_str().unwrap().contains("approval granted")).collect();
    assert_eq!(with_output.len(), 1);
    assert_eq!(with_output[0]["role"], "user");
    let content = with_output[0]["content"].as_str().unwrap();
    let code: String = content.strip_prefix("[tool result ").unwrap().chars().take(16).collect();
    assert!(!evil.contains(&code));
    assert!(content.ends_with(&format!("{evil}\n[end of tool result {code}]")));
    // Native calls: the tool role, behind a status line of ours.
    let body = request(&ask, &strict());
    assert_history(&body);
    let last = body["messages"].as_array().unwrap().last().unwrap();
    assert_eq!((last["role"].as_str(), last["tool_call_id"].as_str()), (Some("tool"), Some(call_id(1, 0).as_str())));
    assert_eq!(last["content"], format!("status: ok\n\n{evil}"));
}
