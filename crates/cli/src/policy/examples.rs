//! The examples of a bundle, which are judged when it is loaded. What is not here: case files (`case`).

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value};
use toolgate_core::bundle::{Bundle, BundleFault};
use toolgate_core::json::read_strict;

use super::Outcome;
use crate::bundle_file::{self, BundleFileError};

/// The rules by which loading reports an example that gets another decision.
const FAILED: [&str; 2] = ["example", "example_fails"];

/// The bundle, and how each of its examples came out. A bundle whose examples alone are wrong is loaded without them, so
/// that case files can be run.
pub(super) fn judged(file: &Path) -> Result<(Bundle, Vec<Outcome>), BundleFileError> {
    let name = file.display().to_string();
    let json = bundle_file::to_json(&name, &bundle_file::text_of(file)?)?;
    let Ok(mut source) = read_strict(&json) else {
        // Its own reader says what is wrong.
        return bundle_file::parse(&name, &json).map(|bundle| (bundle, Vec::new()));
    };
    let examples = listed(&source);
    let mut failed: BTreeMap<String, String> = BTreeMap::new();
    loop {
        match bundle_file::parse(&name, &source.to_string()) {
            Ok(bundle) => return Ok((bundle, outcomes(&name, examples, &failed))),
            Err(BundleFileError::Refused { faults, .. }) if !faults.is_empty() && faults.iter().all(is_example) => {
                // Those of the policies are judged first; each round takes examples away, so there are at most three.
                let of_policies = faults.iter().any(|fault| fault.path.starts_with("/policies/"));
                failed.extend(faults.into_iter().map(|fault| (place(&fault.path), fault.detail)));
                take_away(&mut source, of_policies);
            }
            Err(error) => return Err(error),
        }
    }
}

fn is_example(fault: &BundleFault) -> bool {
    FAILED.contains(&fault.rule) && fault.path.contains("/examples/")
}

/// The pointer of the example that a fault's pointer is in.
fn place(path: &str) -> String {
    path.strip_suffix("/expect").unwrap_or(path).to_owned()
}

fn take_away(source: &mut Value, of_policies: bool) {
    if of_policies {
        source.get_mut("policies").and_then(Value::as_object_mut).and_then(|policies| policies.remove("examples"));
        return;
    }
    let profiles = source.get_mut("profiles").and_then(Value::as_object_mut);
    for profile in profiles.into_iter().flat_map(Map::values_mut).filter_map(Value::as_object_mut) {
        profile.remove("examples");
    }
}

/// Every example: its pointer, and what it says.
fn listed(source: &Value) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut add = |at: String, tool: Option<&Value>, expect: Option<&Value>| {
        let word = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or("?").to_owned();
        let (tool, expect) = (word(tool), word(expect));
        found.push((at, format!("{tool} expects {expect}")));
    };
    let profiles = source.get("profiles").and_then(Value::as_object);
    for (name, profile) in profiles.into_iter().flatten() {
        let examples = profile.get("examples").and_then(Value::as_array);
        for (idx, example) in examples.into_iter().flatten().enumerate() {
            let at = format!("/profiles/{name}/examples/{idx}");
            add(at, example.pointer("/propose/tool"), example.get("expect"));
        }
    }
    let examples = source.pointer("/policies/examples").and_then(Value::as_array);
    for (idx, example) in examples.into_iter().flatten().enumerate() {
        add(format!("/policies/examples/{idx}"), example.get("tool"), example.get("expect"));
    }
    found
}

fn outcomes(name: &str, examples: Vec<(String, String)>, failed: &BTreeMap<String, String>) -> Vec<Outcome> {
    let outcome = |(at, says): (String, String)| Outcome {
        suite: name.to_owned(),
        failure: failed.get(&at).cloned(),
        name: format!("{at}: {says}"),
    };
    examples.into_iter().map(outcome).collect()
}
