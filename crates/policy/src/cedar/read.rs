//! Reading policy texts: bounds before the parser sees them, ids, annotations, and what each policy reads. What is not
//! here: validating against the tools (`compile`).

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;
use std::sync::Arc;

use cedar_policy::ffi::DetailedError;
use cedar_policy::{Effect, Policy, PolicyId, PolicySet};
use serde_json::Value;

use super::extent;
use super::{MAX_POLICIES, MAX_TEXT};
use crate::fault::Faults;
use crate::rule::RuleId;

/// A policy with what the engine must know of it.
#[derive(Debug, Clone)]
pub(super) struct Parsed {
    pub(super) policy: Policy,
    pub(super) info: Info,
}

/// What the engine must know of a policy.
#[derive(Debug, Clone)]
pub(super) struct Info {
    /// `<set>/<policy>`.
    pub(super) id: String,
    /// A permit that wants a human.
    pub(super) escalates: bool,
    /// Paths below `context` that it reads; the empty one is all of it.
    pub(super) reads: BTreeSet<Vec<String>>,
    /// The same as names, for findings.
    pub(super) looked_at: Arc<[String]>,
}

/// Parses a set. Faults point at `at`, the text's place, with line and column in words.
pub(super) fn parse(set: &RuleId, text: &str, at: &str, faults: &mut Faults) -> Vec<Parsed> {
    if text.len() > MAX_TEXT {
        faults.add(at, "bound", format!("has more than {MAX_TEXT} bytes; split the set"));
        return Vec::new();
    }
    if let Err((offset, what)) = extent::bounded(text) {
        faults.add(at, "bound", format!("{}: {what}", place(text, offset)));
        return Vec::new();
    }
    let parsed = match PolicySet::from_str(text) {
        Ok(parsed) => parsed,
        Err(errors) => {
            for error in errors.iter() {
                report(text, at, "policy_syntax", &DetailedError::from(error), faults);
            }
            return Vec::new();
        }
    };
    if parsed.num_of_templates() > 0 {
        faults.add(at, "template", "policies with `?principal` or `?resource` are templates; write the value");
    }
    if parsed.is_empty() {
        faults.add(at, "policies", "has no policy; with nothing permitted every call would be denied");
    }
    if parsed.num_of_policies() > MAX_POLICIES {
        faults.add(at, "bound", format!("has more than {MAX_POLICIES} policies; split the set"));
        return Vec::new();
    }
    // The parser numbers them `policy0`, `policy1`, …, in the order of the text.
    let numbered: BTreeMap<usize, &Policy> = parsed
        .policies()
        .filter_map(|policy| Some((policy.id().to_string().strip_prefix("policy")?.parse().ok()?, policy)))
        .collect();
    let mut names = BTreeSet::new();
    numbered.into_iter().filter_map(|(number, policy)| one(set, number, policy, at, &mut names, faults)).collect()
}

fn one(
    set: &RuleId,
    number: usize,
    policy: &Policy,
    at: &str,
    names: &mut BTreeSet<String>,
    faults: &mut Faults,
) -> Option<Parsed> {
    let position = number + 1;
    let name = match policy.annotation("id").map(RuleId::new) {
        None => format!("p{position}"),
        Some(Ok(name)) => name.to_string(),
        Some(Err(error)) => {
            faults.add(at, "policy_id", format!("policy {position}: {error}"));
            return None;
        }
    };
    if !names.insert(name.clone()) {
        faults.add(at, "policy_id", format!("policy {position}: the id `{name}` is used twice"));
    }
    let forbids = policy.effect() == Effect::Forbid;
    let mut escalates = false;
    for (key, value) in policy.annotations() {
        match key {
            "id" | "doc" => {}
            "effect" if value == "escalate" && !forbids => escalates = true,
            "effect" if forbids => {
                let detail = format!("policy `{name}`: a forbid forbids; `@effect` belongs on a permit");
                faults.add(at, "annotation", detail);
            }
            "effect" => {
                faults.add(at, "annotation", format!("policy `{name}`: the only effect is `@effect(\"escalate\")`"));
            }
            other => {
                let detail = format!("policy `{name}`: `@{other}` is unknown; there are `@id`, `@effect` and `@doc`");
                faults.add(at, "annotation", detail);
            }
        }
    }
    let mut reads = BTreeSet::new();
    match policy.to_json() {
        Ok(json) => paths(&json, &mut reads, 0),
        Err(_) => faults.add(at, "policy_syntax", format!("policy `{name}` cannot be read")),
    }
    let looked_at = looked_at(&reads);
    let id = format!("{set}/{name}");
    Some(Parsed { policy: policy.new_id(PolicyId::new(&id)), info: Info { id, escalates, reads, looked_at } })
}

/// The paths as names.
fn looked_at(reads: &BTreeSet<Vec<String>>) -> Arc<[String]> {
    reads
        .iter()
        .map(|path| format!("context{}", path.iter().map(|name| format!(".{name}")).collect::<String>()))
        .collect()
}

/// Collects the paths below `context` that an expression in Cedar's JSON form reads or asks for with `has`; the empty path
/// is the context as a whole.
fn paths(node: &Value, found: &mut BTreeSet<Vec<String>>, depth: usize) {
    match node {
        // Deeper than the bounds on the text allow: whatever stands there may read everything.
        _ if depth > 1_000 => {
            found.insert(Vec::new());
        }
        Value::Object(map) => {
            if map.get("Var").is_some_and(|name| name == "context") {
                found.insert(Vec::new());
                return;
            }
            for (key, child) in map {
                match path_of(child).filter(|_| key == "." || key == "has") {
                    Some(path) => {
                        found.insert(path);
                    }
                    None => paths(child, found, depth + 1),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|child| paths(child, found, depth + 1)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The path of an access `{left, attr}` that starts at `context`.
fn path_of(access: &Value) -> Option<Vec<String>> {
    let mut path = Vec::new();
    let mut access = access;
    loop {
        path.push(access.get("attr")?.as_str()?.to_owned());
        let left = access.get("left")?;
        if left.get("Var").is_some_and(|name| name == "context") {
            path.reverse();
            return Some(path);
        }
        access = left.get(".")?;
    }
}

/// Reports an error of the parser or validator, and those inside it.
pub(super) fn report(text: &str, at: &str, rule: &'static str, error: &DetailedError, faults: &mut Faults) {
    let start = error.source_locations.first().map(|label| label.loc.start);
    let place = start.map_or_else(String::new, |offset| format!("{}: ", place(text, offset)));
    let help = error.help.as_ref().map_or_else(String::new, |help| format!(" ({help})"));
    faults.add(at, rule, format!("{place}{}{help}", error.message));
    for inner in &error.related {
        report(text, at, rule, inner, faults);
    }
}

/// Line and column of a byte, from 1.
pub(super) fn place(text: &str, offset: usize) -> String {
    let mut end = offset.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let before = text.get(..end).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    format!("line {line}, column {column}")
}
