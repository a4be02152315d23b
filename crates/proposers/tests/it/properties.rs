//! What holds for any text and any transcript: decoders never panic and always end, encoders always give a history that
//! providers take.

use proptest::prelude::{Just, Strategy, any, prop_oneof};
use proptest::{collection, option, proptest};
use toolgate_core::ask::{Ask, CallView, Entry};
use toolgate_core::bundle::model::{CallForm, ModelDef};
use toolgate_proposers::envelope::parse;
use toolgate_proposers::{Reply, decode};

use crate::given::{ask, assert_history, call_id, catalogue, def, request};

/// Texts made of the pieces that parsers stumble over.
fn texts() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("```json\n"),
        Just("```"),
        Just("{"),
        Just("}"),
        Just("["),
        Just("]"),
        Just("\""),
        Just("\\"),
        Just(":"),
        Just(","),
        Just("<think>"),
        Just("</think>"),
        Just("<tool_call>"),
        Just("\\ud800"),
        Just("1e999"),
        Just("null"),
        Just(" prose "),
        Just("\u{1f600}"),
        Just("\"type\":\"tool_call\""),
        Just("\"calls\":"),
        Just("\"name\":\"search\""),
        Just("\"args\":{}"),
        Just("\"arguments\":\"{}\""),
        Just(r#"{"type":"final_answer","output":"ok"}"#),
        Just(r#"{"type":"tool_call","calls":[{"id":"1","name":"search","args":{"query":"```"}}]}"#),
    ];
    collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

/// Transcripts with calls that have no result, several, or results that have no call.
fn transcripts() -> impl Strategy<Value = Vec<Entry>> {
    let text = prop_oneof![Just(String::new()), Just(" ".to_owned()), texts(), any::<String>()];
    let call = (0_u32..3, 0_u32..3);
    let view = |step: u32| {
        move |(index, tool, args): (u32, String, String)| CallView { call: call_id(step, index), tool, args }
    };
    let calls = (0_u32..1000, collection::vec((any::<String>(), texts()), 0..4)).prop_map(move |(step, calls)| {
        let views = calls.into_iter().zip(0..).map(|((tool, args), index)| view(step)((index, tool, args)));
        views.collect::<Vec<_>>()
    });
    let entry = prop_oneof![
        text.clone().prop_map(|text| Entry::User { text }),
        (text.clone(), calls).prop_map(|(text, calls)| Entry::Model { text, calls, opaque: None }),
        (call, any::<String>(), option::of(texts()), text.clone()).prop_map(|((step, index), tool, reason, body)| {
            Entry::Result { call: call_id(step, index), tool, status: "ok".to_owned(), reason, body }
        }),
        (texts(), text.clone()).prop_map(|(code, text)| Entry::Feedback { code, text }),
        text.prop_map(|text| Entry::Summary { steps: 3, text }),
    ];
    collection::vec(entry, 0..12).prop_map(distinct)
}

/// A call id names one call, so a model entry that repeats one is not a transcript.
fn distinct(entries: Vec<Entry>) -> Vec<Entry> {
    let mut seen = std::collections::HashSet::new();
    let is_new = |entry: &Entry| match entry {
        Entry::Model { calls, .. } => calls.iter().all(|view| seen.insert(view.call.clone())),
        Entry::User { .. } | Entry::Result { .. } | Entry::Feedback { .. } | Entry::Summary { .. } => true,
    };
    entries.into_iter().filter(is_new).collect()
}

fn models() -> [ModelDef; 3] {
    use serde_json::json;
    [
        def(json!({})),
        def(json!({"wire_ids": "nine", "history_args": "object"})),
        def(json!({"call_content": "omit", "lenient": true})),
    ]
}

/// The same model in every form of calls.
fn in_all_forms(def: ModelDef) -> [ModelDef; 3] {
    [CallForm::Native, CallForm::Envelope, CallForm::Auto].map(|calls| ModelDef { calls, ..def.clone() })
}

proptest! {
    #[test]
    fn the_envelope_parser_ends_in_a_proposal_or_a_short_reason(text in texts()) {
        let (strict, lenient) = (parse(&text, false), parse(&text, true));
        for refused in [&strict, &lenient].into_iter().filter_map(|read| read.as_ref().err()) {
            assert!(refused.detail.chars().count() <= 400);
        }
        // What strict mode reads, lenient mode reads too.
        assert!(strict.is_err() || lenient.is_ok(), "{text}");
    }

    #[test]
    fn any_bytes_decode_to_a_ballot(bytes in collection::vec(any::<u8>(), 0..200), text in texts(), status in 100_u16..600) {
        let quoted = serde_json::json!({"choices": [{"finish_reason": "stop", "message": {"content": text}}]}).to_string();
        let ask = ask(catalogue());
        for def in models().into_iter().flat_map(in_all_forms) {
            for body in [bytes.as_slice(), text.as_bytes(), quoted.as_bytes()] {
                for content_type in [None, Some("text/event-stream")] {
                    let reply = Reply { status, content_type, body };
                    assert_eq!(decode(reply, &ask, &def), decode(reply, &ask, &def));
                }
            }
        }
    }

    #[test]
    fn any_transcript_encodes_to_a_valid_history(transcript in transcripts()) {
        let ask = Ask { transcript: transcript.into_iter().map(std::sync::Arc::new).collect(), ..ask(catalogue()) };
        for def in models() {
            assert_history(&request(&ask, &def));
            let body = request(&ask, &ModelDef { calls: CallForm::Envelope, ..def });
            assert_history(&body);
            let roles: Vec<_> = body["messages"].as_array().unwrap().iter().map(|message| message["role"].clone()).collect();
            assert!(roles.windows(2).all(|pair| pair[0] != pair[1]), "{roles:?}");
        }
    }
}
