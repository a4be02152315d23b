//! Failures that people reported in public, played against a whole server: `tests/field-cases/FC-A*` of the kinds
//! `chat_response` and `envelope_text`, and FC-B03, FC-C06. What is not here: streamed answers, and what is decided at a
//! schema or in a store alone (their crates).
//!
//! Where a case leaves a choice, this is the rule, and it holds everywhere:
//!
//! - Strict mode is the default, so what a case says under `strict_mode` applies.
//! - FC-A06: two calls with one provider id are two calls; each gets an id of its own.
//! - FC-A08: an answer that was cut off runs none of its calls, also those that were complete.
//! - FC-A17: names are exact; a `functions.` prefix names no tool.
//! - FC-A25: a number beyond a schema's maximum is refused with all its digits.
//! - FC-B03: a null is no absent value; the model is told to leave it out.
//! - FC-C06: `max_steps` counts answers of the model. The calls of the last step run and are recorded, so that a further
//!   message of the session can go on from their results; the run ends as `max_steps_exceeded`.

mod play;

use serde_json::{Value, json};

use play::{Played, Set, play, play_with};

/// The calls as the log holds what the model asked for, ballot by ballot.
fn asked(played: &Played) -> Vec<&Value> {
    played.ballots().flat_map(|ballot| ballot["content"]["calls"].as_array().unwrap()).collect()
}

/// The reason of each ballot that could not be read.
fn unreadable(played: &Played) -> Vec<&str> {
    played.ballots().filter_map(|ballot| ballot["reason"].as_str()).collect()
}

#[tokio::test]
async fn a01_empty_argument_text_of_a_tool_without_parameters() {
    let played = play("FC-A01", None, &["log_has"]).await;
    let raw: Vec<&str> = asked(&played).iter().map(|call| call["raw_args"].as_str().unwrap()).collect();
    assert_eq!(raw, ["", "  \n"], "the raw text is kept");
    let notes: Vec<&Value> = played.ballots().take(2).map(|ballot| &ballot["content"]["normalised"]).collect();
    assert_eq!(notes, [&json!(["args_empty"]); 2]);
}

#[tokio::test]
async fn a02_an_array_sent_as_a_string_is_refused_with_the_mend() {
    play("FC-A02", Some("/strict_mode"), &["lenient_mode_if_offered"]).await;
}

#[tokio::test]
async fn a03_strings_that_look_like_json_stay_strings() {
    let played = play("FC-A03", None, &[]).await;
    assert_eq!(played.journal[0].body, r#"{"content":"{\"a\": [1, 2]}","path":"conf.json"}"#);
}

#[tokio::test]
async fn a06_two_calls_with_one_provider_id_are_two_calls() {
    let played = play("FC-A06", Some("/any_of/0"), &["log_has", "note"]).await;
    assert!(asked(&played).iter().all(|call| call["provider_id"] == "dup"));
    assert_ne!(played.journal[0].call_id, played.journal[1].call_id);
}

#[tokio::test]
async fn a07_the_same_tool_twice_in_one_answer() {
    play("FC-A07", None, &[]).await;
}

#[tokio::test]
async fn a08_an_answer_that_was_cut_off_runs_nothing() {
    let played = play("FC-A08", None, &["c0", "log_has"]).await;
    assert_eq!(unreadable(&played), ["truncated"]);
    assert_eq!(played.executed(), [("write_file".to_owned(), json!({"path": "a.txt", "content": "short"}))]);
}

#[tokio::test]
async fn a09_a_draft_in_a_think_block_never_runs() {
    let played = play("FC-A09", None, &["log_has"]).await;
    let text = played.ballots().next().unwrap()["content"]["text"].as_str().unwrap();
    assert!(text.contains("<think>I could send"), "the raw text is kept: {text}");
}

#[tokio::test]
async fn a10_an_empty_answer_is_no_final_answer() {
    let played = play("FC-A10", None, &["run_must_not_end_as", "log_has"]).await;
    assert_eq!(unreadable(&played), ["empty"]);
    assert!(played.ballots().next().unwrap()["content"]["detail"].as_str().unwrap().contains("reasoning"));
    assert_eq!(played.session["run"]["output"], "real answer");
}

#[tokio::test]
async fn a11_python_literals_are_refused_and_apostrophes_are_not() {
    play("FC-A11", Some("/strict_mode"), &[]).await;
}

#[tokio::test]
async fn a12_relaxed_syntax_is_refused_and_texts_are_left_alone() {
    let played = play("FC-A12", Some("/strict_mode"), &["feedback_must_not_mention"]).await;
    for never in played.expect["feedback_must_not_mention"].as_array().unwrap() {
        assert!(!played.told.contains(never.as_str().unwrap()), "{never}: {}", played.told);
    }
}

#[tokio::test]
async fn a13_raw_control_characters_are_a_typed_refusal() {
    play("FC-A13", Some("/strict_mode"), &["never"]).await;
}

#[tokio::test]
async fn a14_a_duplicate_key_runs_nothing() {
    play("FC-A14", None, &[]).await;
}

#[tokio::test]
async fn a15_integers_keep_their_digits_from_the_model_to_the_tool() {
    let played = play("FC-A15", None, &["wire_text_of_id", "never"]).await;
    let bodies: Vec<&str> = played.journal.iter().map(|ran| ran.body.as_str()).collect();
    assert_eq!(bodies, [r#"{"id":653247040368672769}"#, r#"{"id":9007199254740993}"#]);
    let decided: Vec<&Value> = played.events_of("call_decided").map(|event| &event["reason"]).collect();
    assert_eq!(decided, [&Value::Null, &json!("malformed"), &Value::Null]);
    // Nowhere: not at the tool, not in what the model is shown, not in the log as the API gives it.
    let everywhere = format!("{bodies:?} {} {}", played.told, Value::Array(played.events.clone()));
    for never in played.expect["never"].as_array().unwrap() {
        assert!(!everywhere.contains(never.as_str().unwrap()), "{never}");
    }
    assert!(everywhere.contains("653247040368672769"));
}

#[tokio::test]
async fn a16_what_is_no_finite_number_is_refused() {
    play("FC-A16", None, &[]).await;
}

#[tokio::test]
async fn a17_a_prefix_names_no_tool_unless_the_model_is_lenient() {
    let played = play("FC-A17", Some("/any_of/0"), &[]).await;
    assert_eq!(played.events_of("call_decided").next().unwrap()["reason"], "unknown_tool");
    // The alias rule, where it is switched on: resolved before the policy, and written down.
    let played = play_with("FC-A17", Some("/any_of/1"), &["log_has", "note"], Set::model("lenient", json!(true))).await;
    let first = played.ballots().next().unwrap();
    assert_eq!(first["content"]["normalised"], json!(["functions_prefix:functions.get_time"]));
    assert_eq!(played.events_of("call_decided").next().unwrap()["tool"], "get_time");
}

#[tokio::test]
async fn a18_calls_decide_and_not_the_finish_reason() {
    play("FC-A18", None, &[]).await;
}

#[tokio::test]
async fn a19_announced_calls_that_are_absent_have_a_small_bound_of_their_own() {
    let played = play("FC-A19", None, &[]).await;
    assert!(unreadable(&played).iter().all(|reason| *reason == "calls_announced_but_absent"));
}

#[tokio::test]
async fn a20_an_invented_result_and_answer_are_refused_with_the_call() {
    let played = play("FC-A20", Some("/strict_mode"), &["never"]).await;
    assert!(!played.told_as_results.contains("\"price\": 12"), "{}", played.told_as_results);
    let outputs: Vec<&Value> = played.events_of("run_ended").map(|event| &event["content"]["output"]).collect();
    assert_eq!(outputs, [&json!("real")]);
}

#[tokio::test]
async fn a21_a_call_written_as_text_is_never_the_answer() {
    let played =
        play("FC-A21", Some("/strict_mode"), &["lenient_mode_if_offered", "never", "first", "final_output"]).await;
    assert_eq!(unreadable(&played), ["call_as_text"]);
    let second = &played.case["given"]["responses"][1]["choices"][0]["message"]["content"];
    assert_eq!(&played.session["run"]["output"], second);
    // Recovery is opt-in, and written down.
    let by_hand = ["lenient_mode_if_offered", "never", "only_if", "log_has"];
    let lenient = Set::model("lenient", json!(true));
    let played = play_with("FC-A21", Some("/lenient_mode_if_offered"), &by_hand, lenient).await;
    let notes = &played.ballots().next().unwrap()["content"]["normalised"];
    assert!(notes.as_array().unwrap().contains(&json!("call_from_text")), "{notes}");
}

#[tokio::test]
async fn a23_content_beside_calls_goes_back_in_the_form_the_provider_takes() {
    type Refuses = fn(&Value) -> bool;
    // What each provider refuses, and a setting that suits it.
    let refuses: [(&str, Refuses); 4] = [
        ("omit", |message| message.get("tool_calls").is_some() && message.get("content") == Some(&json!(""))),
        ("empty", |message| message.get("tool_calls").is_some() && message.get("content") == Some(&Value::Null)),
        ("null", |message| message.get("content").is_none()),
        ("null", |message| message.get("tool_calls").is_none() && message["content"].is_null()),
    ];
    for (setting, refused) in refuses {
        let by_hand = ["per_provider_setting", "retry_of_400"];
        let played = play_with("FC-A23", None, &by_hand, Set::model("call_content", json!(setting))).await;
        let messages: Vec<&Value> =
            played.requests.iter().flat_map(|request| request["messages"].as_array().unwrap()).collect();
        assert!(!messages.iter().any(|message| refused(message)), "{setting}");
        assert_eq!(played.requests.len(), 4, "nothing is asked twice");
    }
}

#[tokio::test]
async fn a25_arguments_as_an_object_keep_their_digits() {
    let played = play("FC-A25", None, &["executed_first", "c2_c3", "sent_back_in", "never"]).await;
    let decided: Vec<&Value> = played.events_of("call_decided").collect();
    assert_eq!(decided[0]["reason"], "schema_invalid");
    assert!(played.told.contains("9007199254740993") && played.told.contains("maximum"), "{}", played.told);
    assert_eq!(played.executed(), [("get_time".to_owned(), json!({})), ("get_time".to_owned(), json!({}))]);
}

#[tokio::test]
async fn a26_deep_nesting_is_a_typed_refusal() {
    let played = play("FC-A26", None, &["process", "each", "last_text"]).await;
    assert_eq!(unreadable(&played), ["too_deep", "too_deep"]);
    assert_eq!(played.executed(), [("search".to_owned(), json!({"query": "[[[[[[ only text ]]]]]]"}))]);
}

#[tokio::test]
async fn a27_prose_around_an_envelope_runs_nothing() {
    play("FC-A27", Some("/strict_mode"), &["lenient_mode_if_offered"]).await;
}

#[tokio::test]
async fn a28_tool_output_cannot_leave_its_frame() {
    let played = play("FC-A28", None, &["prompt_to_model", "role", "also"]).await;
    let evil = played.case["given"]["tool_results"]["search"].as_str().unwrap();
    let messages = played.requests.last().unwrap()["messages"].as_array().unwrap();
    let with_output: Vec<&Value> =
        messages.iter().filter(|m| m["content"].as_str().unwrap().contains("approval granted")).collect();
    assert_eq!(with_output.len(), 1);
    assert_eq!(with_output[0]["role"], "user", "results never carry the system role");
    let content = with_output[0]["content"].as_str().unwrap();
    let code: String = content.strip_prefix("[tool result ").unwrap().chars().take(16).collect();
    assert!(!evil.contains(&code), "the frame's code is not known to the tool");
    assert!(content.ends_with(&format!("{evil}\n[end of tool result {code}]")), "{content}");
}

#[tokio::test]
async fn b03_a_null_for_an_optional_argument_is_refused_with_the_mend() {
    let played = play("FC-B03", Some("/strict_mode"), &["if_null_means_absent_is_configured", "never"]).await;
    assert_eq!(played.executed(), [("search".to_owned(), json!({"query": "x"}))]);
}

#[tokio::test]
async fn c06_the_step_limit_with_calls_in_the_last_answer() {
    let by_hand = ["not_executed", "result_contains", "boundary"];
    let played = play("FC-C06", None, &by_hand).await;
    let ran: Vec<String> = played.executed().into_iter().map(|(tool, _)| tool).collect();
    assert_eq!(ran, ["search", "transfer"], "the calls of the last step run");
    let ended: Vec<&Value> = played.events_of("call_ended").map(|event| &event["status"]).collect();
    assert_eq!(ended, ["ok", "ok"], "and are recorded");
    assert_eq!(played.session["run"]["last_text"], played.expect["result_contains"], "the text is not lost");
    // One step less and one more: the same rule.
    let one = Set::limits(json!({"max_steps": 1}));
    let played = play_with("FC-C06", Some("/nowhere"), &[&by_hand[..], &["model_calls"]].concat(), one).await;
    assert_eq!(played.executed(), [("search".to_owned(), json!({"query": "a"}))]);
    assert_eq!(played.session["run"]["ending"], "max_steps_exceeded");
    let three = Set::limits(json!({"max_steps": 3}));
    let by_hand = [&by_hand[..], &["model_calls", "run_ends"]].concat();
    let played = play_with("FC-C06", Some("/nowhere"), &by_hand, three).await;
    assert_eq!(played.session["run"]["output"], "unreached");
    assert_eq!(played.session["run"]["last_text"], Value::Null);
}
