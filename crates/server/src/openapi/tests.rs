//! The document against its checked-in text, and against what every operation must have.

use std::collections::BTreeSet;

use super::*;

#[test]
fn the_checked_in_document_is_the_one_the_code_makes() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../openapi.yaml");
    let made = yaml().unwrap();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(path, &made).unwrap();
    }
    let checked_in = std::fs::read_to_string(path).unwrap_or_default();
    assert!(made == checked_in, "openapi.yaml differs from the code; run this test once with UPDATE_GOLDEN=1");
}

#[test]
fn every_operation_has_a_name_a_summary_and_its_errors() {
    let mut document = document();
    let mut ids = BTreeSet::new();
    let mut count = 0;
    for (path, item) in &mut document.paths.paths {
        for (method, operation) in operations(item) {
            count += 1;
            let id = operation.operation_id.clone().unwrap_or_default();
            assert!(id.contains('_'), "{method} {path}: `{id}` is no verb_resource");
            assert!(ids.insert(id), "{method} {path}: the operation id stands twice");
            assert!(
                operation.summary.as_ref().is_some_and(|summary| !summary.is_empty()),
                "{method} {path}: no summary"
            );
            assert!(operation.tags.as_ref().is_some_and(|tags| tags.len() == 1), "{method} {path}: one tag");
            let statuses: Vec<&String> = operation.responses.responses.keys().collect();
            assert!(statuses.iter().any(|status| status.starts_with('2')), "{method} {path}: no success");
            assert!(statuses.iter().any(|status| status.starts_with('4')), "{method} {path}: no 4xx");
            for response in operation.responses.responses.iter().filter(|(status, _)| status.as_str() >= "400") {
                assert!(matches!(response.1, RefOr::Ref(_)), "{method} {path}: {} is no shared problem", response.0);
            }
        }
    }
    assert_eq!(count, 24, "a route was added or lost; openapi.yaml and docs/API.md change with it");
}

#[test]
fn every_code_is_a_named_example_of_its_status() {
    let responses = problem_responses();
    for code in ErrorCode::all() {
        let of_status = responses.iter().find(|(status, _, _)| *status == code.status());
        let Some((_, _, RefOr::T(response))) = of_status else {
            panic!("{code:?}: {} is not documented", code.status())
        };
        let content = serde_json::to_value(response).unwrap();
        let pointer = format!("/content/application~1problem+json/examples/{}", code.code());
        assert!(content.pointer(&pointer).is_some(), "{code:?}");
    }
}

#[test]
fn every_reference_leads_somewhere() {
    let text = serde_json::to_value(document()).unwrap();
    let mut open = vec![&text];
    while let Some(value) = open.pop() {
        match value {
            serde_json::Value::Object(map) => {
                if let Some(serde_json::Value::String(reference)) = map.get("$ref") {
                    let pointer = reference.strip_prefix('#').unwrap();
                    assert!(text.pointer(pointer).is_some(), "{reference} leads nowhere");
                }
                open.extend(map.values());
            }
            serde_json::Value::Array(items) => open.extend(items),
            _ => {}
        }
    }
}
