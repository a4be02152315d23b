//! This client's frames against the published schema and the published examples.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests fail loudly")]

use serde_json::json;

use super::*;

fn published(path: &str) -> String {
    std::fs::read_to_string(format!("{}/../../{path}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

#[test]
fn what_this_client_sends_fits_the_schema() {
    let mut schema: Value = serde_json::from_str(&published("schemas/channel.schema.json")).unwrap();
    let root = schema.as_object_mut().unwrap();
    root.retain(|key, _| key == "$defs" || key == "$schema");
    root.insert("$ref".to_owned(), json!("#/$defs/ClientFrame"));
    let validator = jsonschema::validator_for(&schema).unwrap();
    let (session, call) = (format!("ses_{}", "a".repeat(32)), format!("call_{}", "b".repeat(32)));
    let hash = format!("sha256:{}", "c".repeat(64));
    let full = SessionRequest {
        id: Some("job".to_owned()),
        label: Some("l".to_owned()),
        capabilities: std::iter::once("terminal".to_owned()).collect(),
        limits: std::iter::once(("max_steps".to_owned(), 3)).collect(),
        output_schema: Some(json!({"type": "object"})),
        metadata: std::iter::once(("k".to_owned(), "v".to_owned())).collect(),
        ..SessionRequest::new("p", "go")
    };
    let outcome = |result, output, detail| Outgoing::ToolOutcome {
        session_id: &session,
        call_id: &call,
        attempt: 1,
        fence: 7,
        args_hash: &hash,
        status: "indeterminate",
        result,
        output,
        detail,
    };
    let value = json!({"n": 18_446_744_073_709_551_615_u64});
    let frames = [
        Outgoing::Hello {
            protocol: 1,
            client_id: "c",
            capabilities: vec!["terminal"],
            observe: false,
            sessions: vec![Cursor { id: &session, last_seq: 3 }],
        },
        Outgoing::Request { frame_id: "f", request: &SessionRequest::new("p", "go") },
        Outgoing::Request { frame_id: "f", request: &full },
        Outgoing::CallAck { session_id: &session, call_id: &call, attempt: 1 },
        Outgoing::CallProgress { session_id: &session, call_id: &call, attempt: 1, note: "half" },
        outcome(Some(&value), None, None),
        outcome(None, Some(Text { media_type: "text/plain", text: "t" }), Some("d")),
    ];
    for frame in frames {
        let text = frame.text();
        let value: Value = serde_json::from_str(&text).unwrap();
        if let Some(error) = validator.iter_errors(&value).next() {
            panic!("{text}: {error}");
        }
    }
    assert!(!validator.is_valid(&json!({"type": "Hello"})), "the schema takes everything");
}

#[test]
fn every_published_example_of_the_server_can_be_read() {
    let page = published("docs/CHANNEL.md");
    let mut kinds = std::collections::HashSet::new();
    for text in page.lines().filter_map(|line| line.strip_prefix("← ")) {
        let frame = Incoming::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        kinds.insert(std::mem::discriminant(&frame));
        if let Incoming::Offer(offer) = frame {
            assert_eq!(offer.args.get(), r#"{"argv":["npm","test"]}"#);
        }
    }
    assert_eq!(kinds.len(), 8, "seven kinds and the one that is passed over");
    assert!(matches!(Incoming::parse(r#"{"type":"Tomorrow","x":1}"#), Ok(Incoming::Other)));
    assert!(Incoming::parse("[]").is_err());
}
