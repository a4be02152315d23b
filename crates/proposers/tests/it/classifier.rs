//! The classifier: one label of a closed list, or a typed failure.

use serde_json::json;
use toolgate_core::proposal::ProviderFailure;
use toolgate_proposers::Proposers;
use toolgate_proposers::Reply;
use toolgate_proposers::classifier::{Classified, ClassifyAsk, ClassifyFailure, decode, read_answer};

use crate::given::{completion, def};

fn ask() -> ClassifyAsk {
    ClassifyAsk {
        text: "delete everything".to_owned(),
        labels: vec![
            ("safe".parse().unwrap(), "harmless".to_owned()),
            ("risky".parse().unwrap(), "may harm".to_owned()),
        ],
        prompt: None,
        attempt: 0,
    }
}

fn label(name: &str, confidence_milli: u16) -> Classified {
    Classified { label: name.parse().unwrap(), confidence_milli, reasoning: None }
}

#[test]
fn sound_answers_are_read() {
    for (text, classified) in [
        (r#"{"label":"risky","confidence":0.91}"#, label("risky", 910)),
        (r#"{"label":" safe "}"#, label("safe", 1000)),
        ("<think>risky?</think>```json\n{\"label\":\"safe\",\"confidence\":0}\n```", label("safe", 0)),
        (r#"{"label":"safe","confidence":0.29,"other":[1]}"#, label("safe", 290)),
        (r#"{"label":"safe","confidence":0.9999}"#, label("safe", 999)),
    ] {
        assert_eq!(read_answer(text, &ask()), Ok(classified), "{text}");
    }
    let with_reason = read_answer(r#"{"label":"risky","confidence":1,"reasoning":"it deletes"}"#, &ask()).unwrap();
    assert_eq!(with_reason.reasoning.as_deref(), Some("it deletes"));
}

#[test]
fn everything_else_is_a_typed_failure() {
    use ClassifyFailure as F;
    let failure = |text: &str| read_answer(text, &ask()).unwrap_err();
    assert_eq!(failure(" \n"), F::Empty);
    assert_eq!(failure("<think>safe</think>"), F::Empty);
    assert!(matches!(failure("safe"), F::InvalidJson(_)));
    assert!(matches!(failure(r#"{"label":"safe","label":"risky"}"#), F::InvalidJson(_)));
    assert!(matches!(failure("[]"), F::NotAnObject { .. }));
    assert!(matches!(failure("null"), F::NotAnObject { .. }));
    assert_eq!(failure("{}"), F::NoLabel);
    assert_eq!(failure(r#"{"label":["safe"]}"#), F::NoLabel);
    assert_eq!(failure(r#"{"label":"Safe"}"#), F::UnknownLabel("Safe".to_owned()));
    assert_eq!(failure(r#"{"label":"full_access"}"#), F::UnknownLabel("full_access".to_owned()));
    assert!(matches!(failure(r#"{"label":"safe","confidence":"high"}"#), F::ConfidenceNotANumber(_)));
    assert!(matches!(failure(r#"{"label":"safe","confidence":null}"#), F::ConfidenceNotANumber(_)));
    assert!(matches!(failure(r#"{"label":"safe","confidence":7.0}"#), F::ConfidenceOutOfRange(_)));
    assert!(matches!(failure(r#"{"label":"safe","confidence":-0.1}"#), F::ConfidenceOutOfRange(_)));
}

#[test]
fn replies_that_are_no_whole_answer_are_failures() {
    let of = |status, body: serde_json::Value| {
        let body = body.to_string();
        decode(Reply { status, content_type: Some("application/json"), body: body.as_bytes() }, &def(json!({})), &ask())
    };
    assert_eq!(of(200, completion(json!({"content": "{\"label\":\"safe\"}"}))), Ok(label("safe", 1000)));
    let cut = json!({"choices": [{"finish_reason": "length", "message": {"content": "{\"label\":\"safe\"}"}}]});
    assert!(matches!(of(200, cut), Err(ClassifyFailure::Incomplete(_))));
    let call = completion(json!({"content": "{\"label\":\"safe\"}", "tool_calls": [{"function": {"name": "x"}}]}));
    assert!(matches!(of(200, call), Err(ClassifyFailure::Incomplete(_))));
    assert_eq!(of(200, completion(json!({"content": null}))), Err(ClassifyFailure::Empty));
    assert!(matches!(of(503, json!({})), Err(ClassifyFailure::Provider { reason: ProviderFailure::ServerError, .. })));
}

#[tokio::test]
async fn a_scripted_classifier_answers_by_attempt() {
    let def = json!({"provider": "scripted", "script": [{"text": "no idea"}, {"done": {"label": "risky", "confidence": 0.5}}]});
    let classifier = Proposers::new().unwrap().classifier(&serde_json::from_value(def).unwrap());
    assert!(matches!(classifier.classify(&ask()).await, Err(ClassifyFailure::InvalidJson(_))));
    assert_eq!(classifier.classify(&ClassifyAsk { attempt: 1, ..ask() }).await, Ok(label("risky", 500)));
    assert!(matches!(
        classifier.classify(&ClassifyAsk { attempt: 2, ..ask() }).await,
        Err(ClassifyFailure::Provider { reason: ProviderFailure::ScriptExhausted, .. })
    ));
}
