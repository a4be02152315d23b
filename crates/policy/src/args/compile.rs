//! Compiling argument rules: at least one condition, conditions that can hold, places that exist. What is not here:
//! judging (`judge`).

use std::cmp::Ordering;

use serde_json::Value;

use super::value::PatternBudget;
use super::{ArgumentRule, argv, path, url, value};
use crate::exact;
use crate::fault::Faults;
use crate::finding::Layer;
use crate::place::{Declared, Place};
use crate::rule::{Head, MAX_NOTE, Registry, RuleId, at, place_of};

/// A compiled rule on an argument.
#[derive(Debug, Clone)]
pub(crate) struct ArgumentCheck {
    pub(super) head: Head,
    pub(super) place: Place,
    pub(super) rule: ArgumentRule,
    pub(super) regex: Option<value::Pattern>,
    pub(super) not_regex: Option<value::Pattern>,
    pub(super) path: Option<path::Paths>,
    pub(super) url: Option<url::Urls>,
}

/// Elements of a list in a rule.
const MAX_LIST: usize = 1_000;

impl ArgumentCheck {
    /// Compiles a rule; `None` if a fault leaves nothing to judge with.
    pub(crate) fn compile(
        id: &RuleId,
        rule: &ArgumentRule,
        registry: Registry<'_>,
        budget: &mut PatternBudget,
        faults: &mut Faults,
    ) -> Option<Self> {
        let at = at("arguments", id);
        let on = rule.on.compile(&format!("{at}/on"), registry, faults);
        let place = place_of(&rule.argument, &format!("{at}/argument"), &on, registry, faults);
        conditions(rule, &at, faults);
        bounds(rule, &at, faults);
        lists(rule, &at, faults);
        if let Some(place) = &place {
            kinds(rule, place, &on.tools, registry, &at, faults);
        }
        let mut pattern = |text: Option<&String>, key: &str, whole: bool| {
            text.and_then(|text| {
                value::Pattern::new(text, whole, budget)
                    .map_err(|detail| faults.add(format!("{at}/{key}"), "pattern", detail))
                    .ok()
            })
        };
        let regex = pattern(rule.regex.as_ref(), "regex", true);
        let not_regex = pattern(rule.not_regex.as_ref(), "not_regex", false);
        let path = rule.path.as_ref().and_then(|form| path::compile(form, &format!("{at}/path"), faults));
        let url = rule.url.as_ref().and_then(|form| url::compile(form, &format!("{at}/url"), faults));
        if let Some(form) = &rule.argv {
            argv::compile(form, &format!("{at}/argv"), faults);
        }
        let (note, looked_at) = (rule.note.clone(), [rule.argument.clone()].into());
        let head = Head {
            id: id.as_str().into(),
            layer: Layer::Argument,
            on,
            effect: rule.effect,
            mode: rule.mode,
            note,
            looked_at,
        };
        Some(Self { head, place: place?, rule: rule.clone(), regex, not_regex, path, url })
    }
}

fn conditions(rule: &ArgumentRule, at: &str, faults: &mut Faults) {
    let any = [
        rule.exact.is_some(),
        rule.one_of.is_some(),
        rule.not_one_of.is_some(),
        rule.min.is_some() || rule.max.is_some(),
        rule.min_len.is_some() || rule.max_len.is_some(),
        rule.regex.is_some() || rule.not_regex.is_some(),
        rule.path.is_some(),
        rule.url.is_some(),
        rule.argv.is_some(),
    ];
    if !any.contains(&true) {
        faults.add(at, "condition", "asks nothing of the argument; give it a condition such as `one_of` or `max`");
    }
    if rule.note.chars().count() > MAX_NOTE {
        faults.add(format!("{at}/note"), "bound", format!("a note has at most {MAX_NOTE} characters"));
    }
}

fn bounds(rule: &ArgumentRule, at: &str, faults: &mut Faults) {
    if let (Some(min), Some(max)) = (&rule.min, &rule.max)
        && exact::compare(min, max) != Some(Ordering::Less)
        && exact::compare(min, max) != Some(Ordering::Equal)
    {
        faults.add(format!("{at}/max"), "contradiction", format!("is below `min` ({min}), so nothing would pass"));
    }
    if let (Some(min), Some(max)) = (rule.min_len, rule.max_len)
        && min > max
    {
        faults.add(format!("{at}/max_len"), "contradiction", "is below `min_len`, so nothing would pass");
    }
}

fn lists(rule: &ArgumentRule, at: &str, faults: &mut Faults) {
    for (key, list) in [("one_of", &rule.one_of), ("not_one_of", &rule.not_one_of)] {
        let Some(list) = list else { continue };
        if list.is_empty() {
            faults.add(format!("{at}/{key}"), "condition", "is an empty list");
        }
        if list.len() > MAX_LIST {
            faults.add(format!("{at}/{key}"), "bound", format!("has more than {MAX_LIST} values"));
        }
    }
    if let (Some(allowed), Some(denied)) = (&rule.one_of, &rule.not_one_of)
        && !allowed.is_empty()
        && allowed.iter().all(|one| denied.iter().any(|other| exact::same(one, other)))
    {
        faults.add(format!("{at}/not_one_of"), "contradiction", "denies every value of `one_of`");
    }
}

/// A condition that no value of the declared kind can meet would deny every call.
fn kinds(
    rule: &ArgumentRule,
    place: &Place,
    tools: &std::collections::BTreeSet<String>,
    registry: Registry<'_>,
    at: &str,
    faults: &mut Faults,
) {
    let mut asked: Vec<(&str, &[&str])> = Vec::new();
    if rule.min.is_some() || rule.max.is_some() {
        asked.push(("a number", &["integer", "number"]));
    }
    if rule.min_len.is_some() || rule.max_len.is_some() {
        asked.push(("a text or list", &["string", "array"]));
    }
    if rule.regex.is_some() || rule.not_regex.is_some() || rule.path.is_some() || rule.url.is_some() {
        asked.push(("a text", &["string"]));
    }
    if rule.argv.is_some() {
        asked.push(("a command", &["string", "array"]));
    }
    for tool in tools.iter().filter_map(|id| registry.tools.get(id)) {
        let Declared::Yes(schema) = place.declared(&tool.parameters) else { continue };
        let Some(kind) = schema.get("type").and_then(Value::as_str) else { continue };
        for (what, kinds) in &asked {
            if !kinds.contains(&kind) {
                let detail = format!("asks for {what}, and `{}` declares {kind} there", tool.id);
                faults.add(format!("{at}/argument"), "kind_fits", detail);
            }
        }
    }
}
