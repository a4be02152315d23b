//! Golden files in `testdata/encode` and `testdata/decode`: each holds what goes in and what must come out.
//! `UPDATE_GOLDEN=1` rewrites the latter; read the difference before committing it.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use toolgate_core::ask::Ask;
use toolgate_core::bundle::model::{CallForm, ModelDef};
use toolgate_proposers::classifier::{self, ClassifyAsk};
use toolgate_proposers::{Reply, decode, encode};

use crate::given::{assert_history, def};

fn files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(folder);
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() > 4, "golden files are missing from {}", folder.display());
    files
}

fn check(path: &Path, mut golden: Value, got: Value) {
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        golden["expect"] = got;
        let text = serde_json::to_string_pretty(&golden).unwrap();
        std::fs::write(path, format!("{text}\n")).unwrap();
    } else {
        assert_eq!(got, golden["expect"], "{}", path.display());
    }
}

fn read(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap())
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn ask_of(golden: &Value) -> Ask {
    let mut ask =
        json!({"instructions": [], "transcript": [], "tools": [], "output_schema": null, "answers_so_far": 0});
    let given = golden.get("ask").and_then(Value::as_object).cloned().unwrap_or_default();
    ask.as_object_mut().unwrap().extend(given);
    // Schemas are stored as canonical text; the files show them as JSON.
    for tool in ask["tools"].as_array_mut().unwrap() {
        tool["parameters"] = json!(tool["parameters"].to_string());
    }
    if !ask["output_schema"].is_null() {
        ask["output_schema"] = json!(ask["output_schema"].to_string());
    }
    serde_json::from_value(ask).unwrap()
}

/// The definition with the form that the file names.
fn of_form(mut def: ModelDef, form: &Value) -> ModelDef {
    match form.as_str().unwrap() {
        "native" | "classifier" => {}
        "envelope" => def.calls = CallForm::Envelope,
        other => panic!("unknown form {other}"),
    }
    def
}

#[test]
fn requests_are_encoded_as_recorded() {
    for path in files("encode") {
        let golden = read(&path);
        let def = of_form(def(golden["def"].clone()), &golden["encoder"]);
        let encoded = || match golden["encoder"].as_str().unwrap() {
            "native" | "envelope" => encode(&ask_of(&golden), &def, &[3; 32]),
            "classifier" => {
                let labels = golden["labels"].as_object().unwrap().iter();
                let ask = ClassifyAsk {
                    text: golden["text"].as_str().unwrap().to_owned(),
                    labels: labels
                        .map(|(label, text)| (label.parse().unwrap(), text.as_str().unwrap().to_owned()))
                        .collect(),
                    prompt: golden["prompt"].as_str().map(str::to_owned),
                    attempt: 0,
                };
                classifier::encode(&ask, &def)
            }
            other => panic!("unknown encoder {other}"),
        };
        let body = encoded();
        assert_eq!(body, encoded(), "encoding is not pure");
        assert_history(&body);
        check(&path, golden, body);
    }
}

#[test]
fn replies_are_decoded_as_recorded() {
    for path in files("decode") {
        let golden = read(&path);
        let def = def(golden.get("def").cloned().unwrap_or(json!({})));
        let body = match &golden["body"] {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let reply = Reply {
            status: golden.get("status").and_then(Value::as_u64).unwrap_or(200).try_into().unwrap(),
            content_type: golden.get("content_type").map_or(Some("application/json"), Value::as_str),
            body: body.as_bytes(),
        };
        let ballot = decode(reply, &ask_of(&golden), &of_form(def, &golden["decoder"]));
        check(&path, golden, serde_json::to_value(&ballot).unwrap());
    }
}
