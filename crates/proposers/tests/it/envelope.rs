//! The envelope parser, strict and lenient, on small texts.

use serde_json::{Value, json};
use toolgate_core::proposal::{MalformedReason, Proposal, ProposedArgs};
use toolgate_proposers::envelope::parse;

const CALL: &str = r#"{"type":"tool_call","calls":[{"id":"1","name":"search","args":{"query":"a"}}]}"#;
const DONE: &str = r#"{"type":"final_answer","output":"ok"}"#;

/// What a text reads as: a short form of the proposal with its notes, or the reason.
fn read(text: &str, lenient: bool) -> Result<(Value, Vec<String>), MalformedReason> {
    let parsed = parse(text, lenient).map_err(|refused| {
        assert!(refused.detail.chars().count() <= 400, "{}", refused.detail);
        assert!(refused.detail.contains("one envelope"), "{}", refused.detail);
        refused.reason
    })?;
    let short = match parsed.proposal {
        Proposal::Done { output } => json!({"done": output.value()}),
        Proposal::Calls(calls) => calls
            .iter()
            .map(|call| match &call.args {
                ProposedArgs::Readable(args) => json!([call.provider_id, call.tool, args.value()]),
                ProposedArgs::Malformed { reason, .. } => panic!("{reason:?}"),
            })
            .collect(),
    };
    Ok((short, parsed.normalised))
}

fn both(text: &str) -> Result<(Value, Vec<String>), MalformedReason> {
    let strict = read(text, false);
    assert_eq!(strict, read(text, true), "{text}");
    strict
}

fn notes(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[test]
fn one_envelope_bare_or_fenced_is_read_in_both_modes() {
    let search = json!([["1", "search", {"query": "a"}]]);
    assert_eq!(both(CALL), Ok((search.clone(), vec![])));
    assert_eq!(both(&format!("\n {DONE} \n")), Ok((json!({"done": "ok"}), vec![])));
    for text in [format!("```json\n{CALL}\n```"), format!("```\n{CALL}```"), format!("```{CALL}```")] {
        assert_eq!(both(&text), Ok((search.clone(), notes(&["fenced"]))), "{text}");
    }
    let markdown = r#"{"type":"tool_call","calls":[{"id":"1","name":"write_file","args":{"content":"```rust\nfn main() {}\n```\n{\"type\":\"final_answer\"}"}}]}"#;
    let written = json!([["1", "write_file", {"content": "```rust\nfn main() {}\n```\n{\"type\":\"final_answer\"}"}]]);
    assert_eq!(both(markdown), Ok((written.clone(), vec![])));
    assert_eq!(both(&format!("```json\n{markdown}\n```")), Ok((written, notes(&["fenced", "fence_inside_argument"]))));
    assert_eq!(
        both(r#"{"type":"final_answer","output":{"a":[1,null]}}"#),
        Ok((json!({"done": {"a": [1, null]}}), vec![]))
    );
    assert_eq!(both(r#"{"type":"final_answer","output":null}"#), Ok((json!({"done": null}), vec![])));
}

#[test]
fn listed_deviations_are_read_and_recorded() {
    let of = |call: &str| both(&format!(r#"{{"type":"tool_call","calls":[{call}]}}"#));
    assert_eq!(of(r#"{"name":"t"}"#), Ok((json!([[null, "t", {}]]), notes(&["args_missing", "id_missing"]))));
    assert_eq!(of(r#"{"id":"","name":"t","args":{}}"#), Ok((json!([[null, "t", {}]]), notes(&["id_missing"]))));
    assert_eq!(of(r#"{"id":7,"name":"t","args":{}}"#), Ok((json!([["7", "t", {}]]), notes(&["id_number"]))));
    assert_eq!(
        of(r#"{"id":"1","name":"t","arguments":{"a":1}}"#),
        Ok((json!([["1", "t", {"a": 1}]]), notes(&["arguments_key"])))
    );
    assert_eq!(
        of(r#"{"id":"1","name":"t","arguments":"{\"a\":1}"}"#),
        Ok((json!([["1", "t", {"a": 1}]]), notes(&["arguments_key", "args_string"])))
    );
    assert_eq!(
        of(r#"{"id":"1","name":"t","args":{},"why":"x"}"#),
        Ok((json!([["1", "t", {}]]), notes(&["extra_keys"])))
    );
    assert_eq!(
        both(&format!("<think>{DONE}</think>{CALL}")),
        Ok((json!([["1", "search", {"query": "a"}]]), notes(&["think_removed"])))
    );
}

#[test]
fn what_neither_mode_reads() {
    use MalformedReason as R;
    for (text, reason) in [
        ("", R::Empty),
        (" <think>only thoughts, never closed", R::Empty),
        ("I refuse.", R::NoEnvelope),
        (r#"{"type":"Tool_Call","calls":[]}"#, R::InvalidEnvelope),
        (r#"{"type":"tool_call","calls":[]}"#, R::InvalidEnvelope),
        (r#"{"type":"tool_call","calls":{}}"#, R::InvalidEnvelope),
        (r#"{"type":"tool_call"}"#, R::InvalidEnvelope),
        (r#"{"type":"tool_call","calls":[1]}"#, R::InvalidEnvelope),
        (r#"{"type":"tool_call","calls":[{"id":"1","args":{}}]}"#, R::InvalidEnvelope),
        (r#"{"type":"tool_call","calls":[{"id":"1","name":"","args":{}}]}"#, R::InvalidEnvelope),
        (r#"{"type":"tool_call","calls":[{"id":"1","name":"t","args":null}]}"#, R::NotAnObject),
        (r#"{"type":"tool_call","calls":[{"id":"1","name":"t","args":"{}"}]}"#, R::NotAnObject),
        (r#"{"type":"tool_call","calls":[{"id":"1","name":"t","arguments":[1]}]}"#, R::NotAnObject),
        (r#"{"type":"tool_call","calls":[{"name":"ok","args":{}},{"name":7}]}"#, R::InvalidEnvelope),
        (r#"[{"type":"final_answer","output":"x"}]"#, R::InvalidEnvelope),
        (r#"{"output":"x"}"#, R::InvalidEnvelope),
        (r#"{"type":"final_answer","output":"x",}"#, R::Syntax),
        (r#"{'type':'final_answer','output':'x'}"#, R::Syntax),
        (r#"{"type":"tool_call","calls":[{"id":"1","name":"t","args":{city:"Paris"}}]}"#, R::Syntax),
        (r#"{"type":"tool_call","calls":[{"id":"1","name":"t","args":{"a":1}}}"#, R::Syntax),
        (r#"{"type":"final_answer","output":NaN}"#, R::Syntax),
        (r#"{"type":"final_answer","output":1e999}"#, R::NumberOutOfRange),
        (r#"{"type":"final_answer","output":1,"output":2}"#, R::DuplicateKey),
        (r#"{"type":"final_answer","output":"\ud800"}"#, R::LoneSurrogate),
    ] {
        assert_eq!(both(text), Err(reason), "{text}");
    }
    let many = format!(r#"{{"type":"tool_call","calls":[{}]}}"#, vec![r#"{"name":"t"}"#; 129].join(","));
    assert_eq!(both(&many), Err(R::TooLarge));
    assert_eq!(both(&"x".repeat(3_000_000)), Err(R::TooLarge));
}

#[test]
fn fenced_envelopes_in_prose_are_read_only_in_lenient_mode() {
    let prose = format!("Sure:\n```json\n{CALL}\n```\nas you wish");
    assert_eq!(read(&prose, false), Err(MalformedReason::AmbiguousEnvelope));
    assert_eq!(read(&prose, true).unwrap().1, ["fenced", "text_around_envelope"]);
    let two = format!("```json\n{CALL}\n```\n```json\n{DONE}\n```");
    assert_eq!(read(&two, false), Err(MalformedReason::AmbiguousEnvelope));
    let (last, notes) = read(&two, true).unwrap();
    assert_eq!(last, json!({"done": "ok"}));
    assert_eq!(notes, ["fenced", "last_of_several_envelopes"]);
    // The last that can be read wins, not the last.
    let broken_last = format!("```json\n{CALL}\n```\n```json\n{{\"type\":}}\n```");
    assert!(read(&broken_last, true).unwrap().0.is_array());
}

#[test]
fn strict_mode_names_the_trouble() {
    use MalformedReason as R;
    for (text, reason, words) in [
        (format!("{CALL}\n{DONE}"), R::AmbiguousEnvelope, "more than one envelope"),
        (format!("{CALL} and {{more}}"), R::AmbiguousEnvelope, "text around"),
        (format!("```json\n{CALL}"), R::Syntax, "not closed"),
        (format!("```json5\n{CALL}\n```"), R::NoEnvelope, "no JSON object"),
        (r#"{"type":"final_answer","calls":[],"output":"x"}"#.to_owned(), R::AmbiguousEnvelope, "both"),
        (r#"{"type":"final_answer"}"#.to_owned(), R::InvalidEnvelope, "without `output`"),
        (
            r#"{"type":"tool_call","calls":[{"name":"t","args":{},"arguments":{"a":1}}]}"#.to_owned(),
            R::AmbiguousEnvelope,
            "both",
        ),
        (
            r#"{"type":"tool_call","calls":[{"name":"t","parameters":{"a":1}}]}"#.to_owned(),
            R::InvalidEnvelope,
            "where `args` belongs",
        ),
        (
            r#"{"type":"tool_call","calls":[{"id":"1","name":"t","args":{}},{"id":"1","name":"u","args":{}}]}"#
                .to_owned(),
            R::DuplicateCallId,
            "duplicate call id",
        ),
    ] {
        let refused = parse(&text, false).unwrap_err();
        assert_eq!(refused.reason, reason, "{text}: {}", refused.detail);
        assert!(refused.detail.contains(words), "{}", refused.detail);
    }
}

#[test]
fn lenient_mode_reads_what_toolloop_reads() {
    let of = |call: &str| read(&format!(r#"{{"type":"tool_call","calls":[{call}]}}"#), true).unwrap();
    assert_eq!(read(r#"{"type":"final_answer"}"#, true), Ok((json!({"done": ""}), notes(&["output_missing"]))));
    assert_eq!(of(r#"{"name":"t","parameters":{"a":1}}"#).0, json!([[null, "t", {}]]));
    let twice = of(r#"{"id":"1","name":"t","args":{}},{"id":"1","name":"t","args":{}}"#);
    assert_eq!(twice, (json!([["1", "t", {}], ["1", "t", {}]]), notes(&["duplicate_id"])));
    // And refuses what it refuses: bare objects with prose or with each other, an open fence, a tag with digits.
    for text in
        [format!("x {CALL}"), format!("{CALL}\n{DONE}"), format!("```json\n{CALL}"), format!("```json5\n{CALL}\n```")]
    {
        assert!(read(&text, true).is_err(), "{text}");
    }
}

#[test]
fn one_id_twice_with_one_content_is_one_call_in_strict_mode() {
    let text =
        r#"{"type":"tool_call","calls":[{"id":"1","name":"t","args":{"a":1}},{"id":"1","name":"t","args":{"a":1.0}}]}"#;
    assert_eq!(read(text, false), Ok((json!([["1", "t", {"a": 1}]]), notes(&["duplicate_call_dropped"]))));
}
