//! The scripted model: which answer is next, and that it goes through the real decoders.

use serde_json::json;
use toolgate_core::ask::Ask;
use toolgate_core::bundle::model::ModelDef;
use toolgate_core::proposal::{BallotVerdict, MalformedReason, ProposedArgs, ProviderFailure};
use toolgate_proposers::scripted::answer;
use toolgate_proposers::{Proposers, Seat};

use crate::given::{ask, calls, catalogue, done, malformed, runnable};

fn model(fields: serde_json::Value) -> ModelDef {
    let mut all = json!({"provider": "scripted"});
    all.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    serde_json::from_value(all).unwrap()
}

fn at(index: u32) -> Ask {
    Ask { answers_so_far: index, ..ask(catalogue()) }
}

#[tokio::test]
async fn the_next_answer_follows_from_the_ask_and_not_from_memory() {
    let def = model(
        json!({"script": [{"calls": [{"tool": "search", "args": {"query": "a"}}, {"tool": "get_time"}]}, {"done": {"n": 1}}]}),
    );
    let proposers = Proposers::new().unwrap();
    let proposer = proposers.proposer(&def);
    let seat = Seat { step: 1, ballot: 0, attempt: 0 };
    let first = proposer.propose(&at(0), seat).await;
    assert_eq!(runnable(&first), [("search".to_owned(), json!({"query": "a"})), ("get_time".to_owned(), json!({}))]);
    // Asked again, as after a restart, in any order, by another ballot: the same answers.
    assert_eq!(done(&proposer.propose(&at(1), seat).await), json!({"n": 1}));
    assert_eq!(proposer.propose(&at(0), Seat { step: 9, ballot: 2, attempt: 1 }).await, first);
    let exhausted = proposer.propose(&at(2), seat).await;
    assert!(matches!(exhausted.verdict, BallotVerdict::Failed { reason: ProviderFailure::ScriptExhausted, .. }));
}

#[test]
fn the_last_answer_can_repeat_for_ever() {
    let def = model(json!({"repeat_last": true, "script": [{"done": "a"}, {"done": "b"}]}));
    let outputs: Vec<_> = [0, 1, 2, u32::MAX].iter().map(|index| done(&answer(&at(*index), &def))).collect();
    assert_eq!(outputs, [json!("a"), json!("b"), json!("b"), json!("b")]);
    let empty = answer(&at(0), &model(json!({"repeat_last": true})));
    assert!(matches!(empty.verdict, BallotVerdict::Failed { reason: ProviderFailure::ScriptExhausted, .. }));
}

#[test]
fn texts_and_broken_arguments_are_decoded_as_from_a_real_model() {
    let def = model(json!({"script": [
        {"text": "I will not say."},
        {"text": "```json\n{\"type\":\"final_answer\",\"output\":7}\n```"},
        {"calls": [{"tool": "search", "args": "{\"query\":\"a\",\"query\":\"b\"}"}, {"tool": "search", "args": ["a"]}]},
        {"fail": "timed_out"},
    ]}));
    assert_eq!(malformed(&answer(&at(0), &def)).0, MalformedReason::NoEnvelope);
    assert_eq!(done(&answer(&at(1), &def)), json!(7));
    let broken = answer(&at(2), &def);
    let reasons: Vec<_> = calls(&broken)
        .iter()
        .map(|call| match &call.args {
            ProposedArgs::Malformed { reason, .. } => *reason,
            ProposedArgs::Readable(args) => panic!("readable: {args}"),
        })
        .collect();
    assert_eq!(reasons, [MalformedReason::DuplicateKey, MalformedReason::NotAnObject]);
    let failed = answer(&at(3), &def);
    assert!(matches!(failed.verdict, BallotVerdict::Failed { reason: ProviderFailure::TimedOut, .. }));
}
