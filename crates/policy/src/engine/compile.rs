//! Compiling a policy section: all parts, all faults. What is not here: the parts (their modules).

use std::collections::{BTreeMap, BTreeSet};

use super::{Policy, examples};
use crate::args::{self, ArgumentCheck, PatternBudget};
use crate::cedar::Cedar;
use crate::derive;
use crate::facts::ToolFacts;
use crate::fault::{Fault, Faults};
use crate::finding::Layer;
use crate::form::{LintMode, ListRule, PolicyForm};
use crate::history::{EvidenceCheck, RateCheck, RepeatCheck, SequenceCheck, TotalCheck};
use crate::origin::OriginCheck;
use crate::rule::{Effect, Head, Registry, RuleId, at};
use crate::semantic::SemanticCheck;

/// Rules of one section, policy files apart.
const MAX_RULES: usize = 1_000;

pub(super) fn compile(
    form: &PolicyForm,
    tools: &[ToolFacts],
    profiles: &BTreeMap<String, BTreeSet<String>>,
) -> Result<Policy, Vec<Fault>> {
    let mut faults = Faults::default();
    let tools: BTreeMap<String, ToolFacts> = tools.iter().map(|tool| (tool.id.clone(), tool.clone())).collect();
    let registry = Registry { tools: &tools, profiles };
    whole(form, &mut faults);
    let derived = tools.values().map(|tool| (tool.id.clone(), derive::compile(tool, &mut faults))).collect();
    let lists = form.lists.iter().map(|(id, rule)| list(id, rule, registry, &mut faults)).collect();
    let mut patterns = PatternBudget::default();
    let arguments = form
        .arguments
        .iter()
        .filter_map(|(id, r)| ArgumentCheck::compile(id, r, registry, &mut patterns, &mut faults))
        .collect();
    let sequences =
        form.sequences.iter().filter_map(|(id, r)| SequenceCheck::compile(id, r, registry, &mut faults)).collect();
    let rates = form.rates.iter().map(|(id, rule)| RateCheck::compile(id, rule, registry, &mut faults)).collect();
    let totals = form.totals.iter().filter_map(|(id, r)| TotalCheck::compile(id, r, registry, &mut faults)).collect();
    let origins =
        form.origins.iter().filter_map(|(id, r)| OriginCheck::compile(id, r, registry, &mut faults)).collect();
    let checks =
        form.checks.iter().filter_map(|(id, r)| SemanticCheck::compile(id, r, registry, &mut faults)).collect();
    let repeats = form.repeats.as_ref().map(|rule| RepeatCheck::compile(rule, registry, &mut faults));
    let evidence =
        form.evidence.iter().map(|(id, rule)| EvidenceCheck::compile(id, rule, registry, &mut faults)).collect();
    let cedar = Cedar::compile(&form.cedar, registry, &mut faults);
    let lint: Vec<Fault> = form.arguments.iter().flat_map(|(id, rule)| args::lint(id, rule)).collect();
    if form.lint == LintMode::Strict {
        for trap in &lint {
            faults.add(trap.pointer.clone(), trap.rule, trap.detail.clone());
        }
    }
    if !faults.is_empty() {
        return Err(faults.into_sorted());
    }
    let policy = Policy {
        tools,
        derived,
        lists,
        arguments,
        sequences,
        rates,
        totals,
        origins,
        checks,
        cedar,
        repeats,
        evidence,
        lint,
    };
    examples::check(&policy, &form.examples, profiles, &mut faults);
    if faults.is_empty() { Ok(policy) } else { Err(faults.into_sorted()) }
}

/// What concerns the section as a whole: something in it, ids used once, its size.
fn whole(form: &PolicyForm, faults: &mut Faults) {
    let mut seen: BTreeMap<&RuleId, &str> = BTreeMap::new();
    let sections: [(&str, Vec<&RuleId>); 9] = [
        ("lists", form.lists.keys().collect()),
        ("arguments", form.arguments.keys().collect()),
        ("sequences", form.sequences.keys().collect()),
        ("rates", form.rates.keys().collect()),
        ("totals", form.totals.keys().collect()),
        ("origins", form.origins.keys().collect()),
        ("checks", form.checks.keys().collect()),
        ("cedar", form.cedar.keys().collect()),
        ("evidence", form.evidence.keys().collect()),
    ];
    let mut count = 0;
    for (section, ids) in sections {
        count += ids.len();
        for id in ids {
            if let Some(other) = seen.insert(id, section) {
                faults.add(at(section, id), "id_unique", format!("`{id}` is a rule of `{other}` too; ids are unique"));
            }
        }
    }
    if count == 0 && form.repeats.is_none() {
        faults.add("", "policy", "has no rule; leave the section out, so that nobody takes it for one that guards");
    }
    if count > MAX_RULES {
        faults.add("", "bound", format!("has more than {MAX_RULES} rules"));
    }
}

fn list(id: &RuleId, rule: &ListRule, registry: Registry<'_>, faults: &mut Faults) -> Head {
    let on = rule.on.compile(&format!("{}/on", at("lists", id)), registry, faults);
    let (note, looked_at) = (rule.note.clone(), ["tool".to_owned()].into());
    Head { id: id.as_str().into(), layer: Layer::List, on, effect: Effect::Deny, mode: rule.mode, note, looked_at }
}
