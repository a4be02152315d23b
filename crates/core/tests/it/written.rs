//! A bundle in which everything is said, and what must not be read for it: lists instead of named fields, objects instead
//! of words. What is not here: the reader itself (`toolgate_policy::written`), rules between fields (`bundles`).

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Map, Value, json};
use toolgate_core::bundle::{Bundle, BundleFault};

/// A bundle with every field of the format.
pub(crate) fn whole() -> Value {
    serde_json::from_str(include_str!("../bundles/whole.json")).unwrap()
}

/// Places that hold any JSON: what stands in them is for tools, schemas and examples.
const FREE: [&str; 9] =
    ["parameters", "result", "output_schema", "args", "done", "exact", "one_of", "not_one_of", "labels"];

/// Calls `with` for each value of the bundle's format, with its pointer.
fn walk(value: &Value, pointer: &str, with: &mut dyn FnMut(&str, &Value)) {
    with(pointer, value);
    match value {
        Value::Object(fields) => {
            for (key, child) in fields.iter().filter(|(key, _)| !FREE.contains(&key.as_str())) {
                walk(child, &format!("{pointer}/{}", key.replace('~', "~0").replace('/', "~1")), with);
            }
        }
        Value::Array(items) => {
            for (idx, child) in items.iter().enumerate() {
                walk(child, &format!("{pointer}/{idx}"), with);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Loads the bundle with something else at a place.
fn with(pointer: &str, other: Value) -> Result<Bundle, Vec<BundleFault>> {
    let mut bundle = whole();
    *bundle.pointer_mut(pointer).unwrap() = other;
    Bundle::load(&bundle.to_string())
}

fn refused_at(pointer: &str, other: Value) {
    let shown = other.to_string();
    let faults = with(pointer, other).err().unwrap_or_else(|| panic!("{shown} is read at {pointer}"));
    let there = |fault: &BundleFault| {
        fault.path.strip_prefix(pointer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    assert!(faults.iter().all(|fault| fault.rule == "shape" && there(fault)), "{shown} at {pointer}: {faults:?}");
}

#[test]
fn the_whole_bundle_loads() {
    Bundle::load(&whole().to_string()).unwrap_or_else(|faults| panic!("{faults:#?}"));
}

#[test]
fn no_object_is_read_from_the_list_of_its_values() {
    let mut seen = 0;
    walk(&whole(), "", &mut |pointer, value| {
        let Value::Object(fields) = value else { return };
        seen += 1;
        refused_at(pointer, fields.values().cloned().collect());
        // An empty list of tools is a profile in its short form.
        if pointer != "/profiles/long" {
            refused_at(pointer, json!([]));
        }
    });
    assert!(seen > 100, "{seen} objects");
}

#[test]
fn no_word_is_read_from_an_object() {
    let mut seen = 0;
    walk(&whole(), "", &mut |pointer, value| {
        let Value::String(word) = value else { return };
        seen += 1;
        refused_at(pointer, json!({ word: null }));
        refused_at(pointer, json!([word]));
    });
    assert!(seen > 150, "{seen} texts");
}

#[test]
fn one_of_several_forms_has_exactly_one_key() {
    for pointer in ["/tools/look/executor", "/models/scripted/script/0", "/models/scripted/script/3"] {
        let first: Map<String, Value> = whole().pointer(pointer).unwrap().as_object().unwrap().clone();
        refused_at(pointer, json!({}));
        let mut two = first.clone();
        two.insert("zz".to_owned(), Value::Null);
        refused_at(pointer, Value::Object(two));
    }
}

/// The names of the fields that users may write, as the forms declare them.
fn declared() -> BTreeSet<String> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned();
    let core = ["bundle.rs", "bundle/hook.rs", "bundle/model.rs", "profile.rs", "profile/approval.rs"];
    let more = ["profile/budget.rs", "profile/target.rs", "profile/termination.rs", "tool.rs"];
    let policy = ["form.rs", "args.rs", "args/argv.rs", "args/path.rs", "args/url.rs", "cedar.rs", "derive.rs"];
    let rules = ["history.rs", "history/evidence.rs", "history/rate.rs", "history/repeat.rs", "history/sequence.rs"];
    let rest = ["history/total.rs", "origin.rs", "rule.rs", "semantic.rs"];
    let core = core.iter().chain(&more).map(|name| crates.join("core/src").join(name));
    let policy = policy.iter().chain(&rules).chain(&rest).map(|name| crates.join("policy/src").join(name));
    let mut names = BTreeSet::new();
    for path in core.chain(policy) {
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let mut inside = false;
        let mut strict = false;
        for line in text.lines() {
            strict = (strict || line.contains("deny_unknown_fields")) && !line.is_empty();
            inside = (inside || (strict && line.starts_with("pub struct"))) && line != "}";
            if let Some((name, _)) =
                line.trim_start().strip_prefix("pub ").filter(|_| inside).and_then(|l| l.split_once(':'))
            {
                names.insert(name.to_owned());
            }
        }
    }
    // Written as `as`.
    names.remove("kind");
    names
}

#[test]
fn the_whole_bundle_says_everything() {
    let mut said = BTreeSet::new();
    walk(&whole(), "", &mut |_, value| said.extend(value.as_object().into_iter().flat_map(|map| map.keys().cloned())));
    let declared = declared();
    assert!(declared.len() > 120, "{declared:?}");
    let missing: Vec<&String> = declared.difference(&said).collect();
    assert!(missing.is_empty(), "{missing:?} stand in no place of tests/bundles/whole.json");
}
