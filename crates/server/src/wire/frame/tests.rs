//! Reading, the checked-in schema, and the examples of `docs/CHANNEL.md` against it.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests fail loudly")]

use toolgate_core::json::Json;

use super::*;

fn root() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn the_checked_in_schema_is_current() {
    let path = root().join("schemas/channel.schema.json");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, schema()).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(stored == schema(), "run the tests with UPDATE_GOLDEN=1 and look at the difference");
}

/// The validator of the frames of one side.
fn validator(side: &str) -> jsonschema::Validator {
    let mut schema: Value = serde_json::from_str(&schema()).unwrap();
    let root = schema.as_object_mut().unwrap();
    root.retain(|key, _| key == "$defs" || key == "$schema");
    root.insert("$ref".to_owned(), Value::from(format!("#/$defs/{side}")));
    jsonschema::validator_for(&schema).unwrap()
}

/// Examples of the page: one frame a line in `json` blocks, `→` from the client, `←` from the server.
fn examples() -> Vec<(bool, String)> {
    let page = std::fs::read_to_string(root().join("docs/CHANNEL.md")).unwrap();
    let mut examples = Vec::new();
    for line in page.lines() {
        if let Some(frame) = line.strip_prefix("→ ") {
            examples.push((true, frame.to_owned()));
        } else if let Some(frame) = line.strip_prefix("← ") {
            examples.push((false, frame.to_owned()));
        }
    }
    examples
}

#[test]
fn every_example_of_the_page_fits_the_schema() {
    let (client, server) = (validator("ClientFrame"), validator("ServerFrame"));
    let mut seen = std::collections::BTreeSet::new();
    for (from_client, text) in examples() {
        let value: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let validator = if from_client { &client } else { &server };
        if let Some(error) = validator.iter_errors(&value).next() {
            panic!("{text}: {error}");
        }
        if from_client {
            ClientFrame::parse(&text).unwrap_or_else(|fault| panic!("{text}: {fault}"));
        }
        seen.insert((from_client, value.get("type").and_then(Value::as_str).unwrap().to_owned()));
    }
    let client = ["Hello", "Request", "ToolOutcome", "CallAck", "CallProgress", "Message", "Approval", "Cancel"];
    let server = [
        "Welcome",
        "ApprovedToolCall",
        "CallSettled",
        "CallProgress",
        "StreamEvent",
        "FinalOutput",
        "Closing",
        "Error",
    ];
    for (side, names) in [(true, client), (false, server)] {
        for name in names {
            assert!(seen.contains(&(side, name.to_owned())), "the page shows no {name}");
        }
    }
}

#[test]
fn reader_and_schema_refuse_the_same() {
    let validator = validator("ClientFrame");
    let session = format!("ses_{}", "0".repeat(32));
    let call = format!("call_{}", "a".repeat(32));
    for text in [
        r#"{"type":"Nonsense"}"#.to_owned(),
        r#"{"type":"Hello","protocol":1}"#.to_owned(),
        r#"{"type":"Hello","protocol":1,"client_id":""}"#.to_owned(),
        r#"{"type":"Hello","protocol":"1","client_id":"a"}"#.to_owned(),
        r#"{"type":"Hello","protocol":1,"client_id":"a","extra":1}"#.to_owned(),
        format!(r#"{{"type":"Hello","protocol":1,"client_id":"a","sessions":[{{"id":"{session}","last_seq":-1}}]}}"#),
        format!(
            r#"{{"type":"Hello","protocol":1,"client_id":"a","sessions":[{{"id":"{session}","last_seq":"abc"}}]}}"#
        ),
        r#"{"type":"Hello","protocol":1,"client_id":"a","sessions":[{"id":"ses_1","last_seq":1}]}"#.to_owned(),
        format!(r#"{{"type":"CallAck","session_id":"{session}","call_id":"{call}"}}"#),
        format!(r#"{{"type":"CallAck","session_id":"{session}","call_id":"{call}x","attempt":1}}"#),
        format!(r#"{{"type":"Message","session_id":"{session}","text":"x","frame_id":""}}"#),
        format!(r#"{{"type":"Cancel","session_id":"{session}","by":"somebody else"}}"#),
        r#"{"type":"Request","prompt":"x","tenant":"other"}"#.to_owned(),
        r#"{"type":"Request"}"#.to_owned(),
        r#"{"type":"CallSettled","session_id":"x"}"#.to_owned(),
    ] {
        let value: Value = serde_json::from_str(&text).unwrap();
        assert!(!validator.is_valid(&value), "the schema takes {text}");
        assert!(ClientFrame::parse(&text).is_err(), "the reader takes {text}");
    }
}

/// The objects and texts of a frame below its fields' free JSON, with their pointers.
fn places(value: &Value, pointer: &str, found: &mut Vec<(String, Value)>) {
    let Value::Object(fields) = value else {
        if let Value::Array(items) = value {
            for (idx, item) in items.iter().enumerate() {
                places(item, &format!("{pointer}/{idx}"), found);
            }
        }
        return;
    };
    for (key, child) in fields.iter().filter(|(key, _)| !["result", "type"].contains(&key.as_str())) {
        let at = format!("{pointer}/{key}");
        if child.is_object() || child.is_string() {
            found.push((at.clone(), child.clone()));
        }
        places(child, &at, found);
    }
}

#[test]
fn lists_are_no_objects_and_objects_no_words() {
    let mut seen = 0;
    for (_, text) in examples().into_iter().filter(|(from_client, _)| *from_client) {
        let frame: Value = serde_json::from_str(&text).unwrap();
        let mut found = Vec::new();
        places(&frame, "", &mut found);
        for (pointer, old) in found {
            let other = match old {
                Value::Object(fields) => fields.into_iter().map(|(_, value)| value).collect(),
                old => serde_json::json!({ old.as_str().unwrap(): null }),
            };
            let mut changed = frame.clone();
            *changed.pointer_mut(&pointer).unwrap() = other;
            match ClientFrame::parse(&changed.to_string()) {
                Err(FrameFault::Field { path, .. }) => assert_eq!(path, pointer, "{changed}"),
                taken => panic!("{changed}: {taken:?}"),
            }
            seen += 1;
        }
    }
    assert!(seen > 50, "{seen} places");
}

#[test]
fn what_no_schema_can_see_is_refused_too() {
    assert!(matches!(ClientFrame::parse("{"), Err(FrameFault::Json(_))));
    assert!(matches!(ClientFrame::parse(r#"{"type":"Hello","type":"Hello"}"#), Err(FrameFault::Json(_))));
    assert_eq!(ClientFrame::parse("[]"), Err(FrameFault::NoType));
    assert_eq!(ClientFrame::parse(r#"{"type":1}"#), Err(FrameFault::NoType));
    assert_eq!(ClientFrame::parse(r#"{"type":"hello"}"#), Err(FrameFault::UnknownType("hello".to_owned())));
    let fault = ClientFrame::parse(r#"{"type":"Hello","protocol":1,"client_id":"a","sessions":[{"id":7}]}"#);
    assert!(matches!(fault, Err(FrameFault::Field { frame: "Hello", path, .. }) if path == "/sessions/0/id"));
}

#[test]
fn one_request_has_one_fingerprint_on_both_ways() {
    let fingerprint = |text: &str| match ClientFrame::parse(text) {
        Ok(ClientFrame::Request(request)) => request.fingerprint,
        other => panic!("{other:?}"),
    };
    let body = Json::parse(r#"{"prompt":"x","id":"a","metadata":{"k":"v"}}"#).unwrap().hash();
    assert_eq!(fingerprint(r#"{"type":"Request","frame_id":"f1","id":"a","metadata":{"k":"v"},"prompt":"x"}"#), body);
    assert_ne!(fingerprint(r#"{"type":"Request","frame_id":"f1","id":"a","prompt":"x"}"#), body);
}

#[test]
fn keys_are_never_printed() {
    let frame =
        ClientFrame::parse(r#"{"type":"Hello","protocol":1,"client_id":"a","token":"tg_live_secret"}"#).unwrap();
    assert!(!format!("{frame:?}").contains("secret"));
}
