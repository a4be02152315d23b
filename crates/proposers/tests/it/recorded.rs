//! Recorded answers of two small real models (60 and 49), with the verdicts of toolloop 1.1.0 on those that use the text
//! envelope. Every answer decodes to a proposal or a typed reason; lenient mode agrees with toolloop, except for the
//! lines listed here.

use std::path::Path;

use serde_json::Value;
use toolgate_core::ask::ToolView;
use toolgate_core::proposal::{Ballot, BallotVerdict, MalformedReason, Proposal, ProposedArgs};
use toolgate_proposers::Reply;

use crate::given::{ask, def, malformed, runnable, tool};

/// Lines where ours says something else than toolloop, each with the reason. None so far: where the two differ by design
/// (duplicate keys, `NaN`, think blocks, fences inside arguments) these models never went.
const EXCEPTIONS: [(&str, u64, &str); 0] = [];

struct Line {
    file: &'static str,
    n: u64,
    mode: String,
    verdict: String,
    response: Value,
    tools: Vec<ToolView>,
}

fn lines() -> Vec<Line> {
    let mut all = Vec::new();
    for file in ["smollm2", "qwen25coder05b"] {
        let read = |kind: &str| {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("testdata/{file}_{kind}.jsonl"));
            let text = std::fs::read_to_string(path).unwrap();
            text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()).collect::<Vec<_>>()
        };
        for (answer, verdict) in read("responses").into_iter().zip(read("verdicts")) {
            assert_eq!(answer["n"], verdict["n"]);
            let tools = answer["request"].get("tools").and_then(Value::as_array).cloned().unwrap_or_default();
            all.push(Line {
                file,
                n: answer["n"].as_u64().unwrap(),
                mode: answer["mode"].as_str().unwrap().to_owned(),
                verdict: verdict["verdict"].as_str().unwrap().to_owned(),
                response: answer["response"].clone(),
                tools: tools
                    .iter()
                    .map(|offered| {
                        tool(offered["function"]["name"].as_str().unwrap(), &offered["function"]["parameters"])
                    })
                    .collect(),
            });
        }
    }
    assert_eq!(all.len(), 109);
    all
}

fn decode(line: &Line, lenient: bool) -> Ballot {
    let form = if line.mode.starts_with("envelope") { "envelope" } else { "native" };
    let def = def(serde_json::json!({"lenient": lenient, "calls": form}));
    let (content_type, body) = match &line.response {
        Value::String(stream) => ("text/event-stream", stream.clone()),
        other => ("application/json", other.to_string()),
    };
    let reply = Reply { status: 200, content_type: Some(content_type), body: body.as_bytes() };
    toolgate_proposers::decode(reply, &ask(line.tools.clone()), &def)
}

#[test]
fn every_answer_is_a_proposal_or_has_a_typed_reason() {
    for line in lines() {
        for lenient in [false, true] {
            let ballot = decode(&line, lenient);
            match &ballot.verdict {
                BallotVerdict::Proposal(Proposal::Calls(calls)) => assert!(!calls.is_empty()),
                BallotVerdict::Proposal(Proposal::Done { .. }) | BallotVerdict::Malformed { .. } => {}
                failed @ BallotVerdict::Failed { .. } => panic!("{} {}: {failed:?}", line.file, line.n),
            }
            if line.verdict.ends_with("(cut: length)") {
                assert_eq!(malformed(&ballot).0, MalformedReason::Truncated, "{} {}", line.file, line.n);
            }
        }
    }
}

#[test]
fn native_answers_decode_as_they_were_judged() {
    let mut judged = 0;
    for line in lines().iter().filter(|line| line.mode.starts_with("native") && !line.mode.ends_with("stream")) {
        let ballot = decode(line, false);
        let place = format!("{} {}: {:?}", line.file, line.n, ballot.verdict);
        match line.verdict.as_str() {
            "tool_calls valid" => assert!(!runnable(&ballot).is_empty(), "{place}"),
            "text only" => assert!(matches!(ballot.verdict, BallotVerdict::Proposal(Proposal::Done { .. })), "{place}"),
            "text that contains a call" => assert_eq!(malformed(&ballot).0, MalformedReason::CallAsText, "{place}"),
            cut => assert!(cut.ends_with("(cut: length)"), "{place}"),
        }
        judged += 1;
    }
    assert_eq!(judged, 40);
}

/// toolloop's verdict, in our words.
fn agrees(verdict: &str, ballot: &Ballot) -> bool {
    match &ballot.verdict {
        BallotVerdict::Proposal(Proposal::Calls(calls)) => {
            verdict.starts_with("tool_call ") && calls.iter().all(|call| matches!(call.args, ProposedArgs::Readable(_)))
        }
        BallotVerdict::Proposal(Proposal::Done { .. }) => verdict == "final_answer",
        BallotVerdict::Malformed { .. } => verdict.starts_with("unparsable"),
        BallotVerdict::Failed { .. } => false,
    }
}

#[test]
fn lenient_mode_agrees_with_toolloop() {
    let mut judged = 0;
    let mut differing = Vec::new();
    for line in lines().iter().filter(|line| line.mode.starts_with("envelope") && !line.mode.ends_with("stream")) {
        judged += 1;
        let ballot = decode(line, true);
        if !agrees(&line.verdict, &ballot) {
            differing.push((line.file, line.n));
        }
        // Strict never reads what lenient refuses.
        if matches!(ballot.verdict, BallotVerdict::Malformed { .. }) {
            malformed(&decode(line, false));
        }
    }
    assert!(judged > 50, "{judged}");
    let listed: Vec<_> = EXCEPTIONS.iter().map(|(file, n, _)| (*file, *n)).collect();
    assert_eq!(differing, listed);
}
