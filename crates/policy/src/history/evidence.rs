//! Evidence before a run may be done: minimums, alternatives, order, freshness. Only recorded successes count: nothing
//! that is under way, unclear, denied, a dry run or a replay. What is not here: evidence in the text of a model.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Same, SameForm, earlier_selector};
use crate::exact;
use crate::facts::{CallStatus, EarlierCall, ToolFacts, Venue};
use crate::fault::Faults;
use crate::rule::{Mode, Registry, RuleId, Scope, Selected, Selector, at};

/// What must be in the log before a run of some profiles is done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EvidenceRule {
    /// The profiles it applies to; absent means all.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub profiles: BTreeSet<String>,
    /// Successes per tag.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub min: BTreeMap<String, u32>,
    /// Sets of tags; of each set, at least one success of any tag.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub any_of: Vec<BTreeSet<String>>,
    /// Pairs in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub order: Vec<OrderForm>,
    /// Evidence that a later change makes stale.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fresh: Vec<FreshForm>,
    /// Only calls that the server ran count as evidence.
    #[serde(default = "yes")]
    pub server_only: bool,
    /// Which calls count.
    #[serde(default = "run")]
    pub scope: Scope,
    /// Whether it counts.
    #[serde(default)]
    pub mode: Mode,
}

const fn yes() -> bool {
    true
}
const fn run() -> Scope {
    Scope::Run
}

/// The last success of `after`, if there is one, comes later than a success of `before`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OrderForm {
    /// The tag that comes first.
    pub before: String,
    /// The tag that comes later.
    pub after: String,
}

/// After the last change that happened or may have happened, the evidence succeeded, and has not failed since.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FreshForm {
    /// The tag of the evidence.
    pub evidence: String,
    /// The calls that make it stale.
    pub covers: Selector,
    /// The evidence covers only changes with the same value: `this` of the evidence, `earlier` of the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub same: Option<SameForm>,
}

/// What kind of evidence is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DeficitKind {
    /// Too few successes of a tag.
    Min,
    /// No success of any of several tags.
    AnyOf,
    /// In the wrong order.
    Order,
    /// Older than what it covers, or failed since.
    Stale,
}

/// Evidence that is missing, in a form that the model can act on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Deficit {
    /// The rule that needs it.
    pub rule_id: String,
    /// What kind is missing.
    pub kind: DeficitKind,
    /// The tags, one of which would help.
    pub tags: Vec<String>,
    /// The tools that carry one of the tags and count, by id.
    pub tools: Vec<String>,
    /// Successes that count.
    pub have: u32,
    /// Successes needed.
    pub need: u32,
    /// The rule is recorded, not enforced.
    pub shadow: bool,
    /// A sentence.
    pub detail: String,
}

/// A compiled evidence rule.
#[derive(Debug, Clone)]
pub(crate) struct EvidenceCheck {
    id: String,
    rule: EvidenceRule,
    /// Per tag, the tools whose successes count.
    tools: BTreeMap<String, BTreeSet<String>>,
    fresh: Vec<Fresh>,
}

#[derive(Debug, Clone)]
struct Fresh {
    evidence: String,
    covers: Selected,
    same: Option<Same>,
}

impl EvidenceCheck {
    pub(crate) fn compile(id: &RuleId, rule: &EvidenceRule, registry: Registry<'_>, faults: &mut Faults) -> Self {
        let at = at("evidence", id);
        for name in rule.profiles.iter().filter(|name| !registry.profiles.contains_key(*name)) {
            faults.add(format!("{at}/profiles"), "profile_exists", format!("there is no profile `{name}`"));
        }
        if rule.min.is_empty() && rule.any_of.is_empty() && rule.order.is_empty() && rule.fresh.is_empty() {
            faults.add(&at, "evidence", "needs nothing; give `min`, `any_of`, `order` or `fresh`");
        }
        let before = faults.count();
        let mut tools = BTreeMap::new();
        for (tag, place) in named_tags(rule) {
            let carriers: BTreeSet<String> = registry
                .tools
                .values()
                .filter(|tool| tool.tags.contains(tag) && counts(rule, tool))
                .map(|tool| tool.id.clone())
                .collect();
            if carriers.is_empty() {
                let venue = if rule.server_only { " that the server runs" } else { "" };
                faults.add(format!("{at}{place}"), "tag_exists", format!("no tool{venue} has the tag `{tag}`"));
            }
            tools.insert(tag.clone(), carriers);
        }
        if let Some((tag, _)) = rule.min.iter().find(|(_, need)| **need == 0) {
            faults.add(format!("{at}/min"), "bound", format!("`{tag}` needs at least 1, or leave it out"));
        }
        if faults.count() == before {
            reachable(rule, &tools, &at, registry, faults);
        }
        let mut fresh = Vec::new();
        for (idx, form) in rule.fresh.iter().enumerate() {
            let here = format!("{at}/fresh/{idx}");
            let covers = earlier_selector(&form.covers, &format!("{here}/covers"), registry, faults);
            let evidence = Selector { tags: BTreeSet::from([form.evidence.clone()]), ..Selector::default() };
            let carriers = evidence.compile(&format!("{here}/evidence"), registry, faults);
            let same = form
                .same
                .as_ref()
                .and_then(|same| Same::compile(same, &format!("{here}/same"), &carriers, &covers, registry, faults));
            if form.same.is_none() || same.is_some() {
                fresh.push(Fresh { evidence: form.evidence.clone(), covers, same });
            }
        }
        Self { id: id.to_string(), rule: rule.clone(), tools, fresh }
    }

    /// What is missing at the end of a run of this profile.
    pub(crate) fn deficits(&self, profile: &str, run: u32, calls: &[EarlierCall<'_>]) -> Vec<Deficit> {
        let applies = self.rule.profiles.is_empty() || self.rule.profiles.contains(profile);
        if !applies || self.rule.mode == Mode::Off {
            return Vec::new();
        }
        let calls: Vec<&EarlierCall<'_>> =
            calls.iter().filter(|call| self.rule.scope == Scope::Session || call.run == run).collect();
        let mut found = Vec::new();
        for (tag, need) in &self.rule.min {
            let have = self.successes(tag, &calls).count();
            let have = u32::try_from(have).unwrap_or(u32::MAX);
            if have < *need {
                let detail = format!("`{tag}`: {have} of {need} successful calls");
                found.push(self.deficit(DeficitKind::Min, vec![tag.clone()], have, *need, detail));
            }
        }
        for tags in &self.rule.any_of {
            if !tags.iter().any(|tag| self.successes(tag, &calls).next().is_some()) {
                let tags: Vec<String> = tags.iter().cloned().collect();
                let detail = format!("one successful call of any of `{}`", tags.join("`, `"));
                found.push(self.deficit(DeficitKind::AnyOf, tags, 0, 1, detail));
            }
        }
        for pair in &self.rule.order {
            let Some((last, _)) = self.successes(&pair.after, &calls).last() else { continue };
            if self.successes(&pair.before, &calls).next().is_none_or(|(first, _)| first > last) {
                let detail = format!("a successful `{}` before the last `{}`", pair.before, pair.after);
                found.push(self.deficit(
                    DeficitKind::Order,
                    vec![pair.before.clone(), pair.after.clone()],
                    0,
                    1,
                    detail,
                ));
            }
        }
        found.extend(self.fresh.iter().filter_map(|fresh| self.stale(fresh, &calls)));
        found
    }

    /// Successes of a tag that count, with their position.
    fn successes<'c>(
        &'c self,
        tag: &str,
        calls: &'c [&'c EarlierCall<'c>],
    ) -> impl Iterator<Item = (usize, &'c EarlierCall<'c>)> {
        let tools = self.tools.get(tag);
        calls
            .iter()
            .enumerate()
            .filter(move |(_, call)| call.status == CallStatus::Ok && tools.is_some_and(|t| t.contains(call.tool)))
            .map(|(idx, call)| (idx, *call))
    }

    fn stale(&self, fresh: &Fresh, calls: &[&EarlierCall<'_>]) -> Option<Deficit> {
        let tools = self.tools.get(&fresh.evidence)?;
        // The last change of each value that the evidence covers; without `same` there is one.
        let mut changes: Vec<(usize, Option<&Value>)> = Vec::new();
        for (idx, call) in calls.iter().enumerate() {
            if !fresh.covers.has(call.tool) || !may_have_changed(call.status) {
                continue;
            }
            let value = fresh.same.as_ref().and_then(|same| call.args.and_then(|args| same.earlier.single(args)));
            changes.retain(|(_, other)| !equal(*other, value));
            changes.push((idx, value));
        }
        let covered = |change: &(usize, Option<&Value>)| {
            let (at, value) = *change;
            let last = calls.iter().enumerate().rev().find(|(idx, call)| {
                let same = fresh
                    .same
                    .as_ref()
                    .is_none_or(|same| equal(call.args.and_then(|args| same.this.single(args)), value));
                *idx > at && tools.contains(call.tool) && says_something(call.status) && same
            });
            last.is_some_and(|(_, call)| call.status == CallStatus::Ok)
        };
        if changes.iter().all(covered) {
            return None;
        }
        let what = if fresh.same.is_some() { " for each changed value" } else { "" };
        let detail =
            format!("a successful `{}` after the last change it covers, with no failure since{what}", fresh.evidence);
        Some(self.deficit(DeficitKind::Stale, vec![fresh.evidence.clone()], 0, 1, detail))
    }

    fn deficit(&self, kind: DeficitKind, tags: Vec<String>, have: u32, need: u32, detail: String) -> Deficit {
        let tools: BTreeSet<&String> = tags.iter().filter_map(|tag| self.tools.get(tag)).flatten().collect();
        let tools = tools.into_iter().cloned().collect();
        Deficit {
            rule_id: self.id.clone(),
            kind,
            tags,
            tools,
            have,
            need,
            shadow: self.rule.mode == Mode::Shadow,
            detail,
        }
    }
}

/// Values that are both there and equal, or both not there.
fn equal(a: Option<&Value>, b: Option<&Value>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => exact::same(a, b),
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    }
}

/// Whether a change happened, or may have: then the evidence before it is stale.
const fn may_have_changed(status: CallStatus) -> bool {
    match status {
        CallStatus::Ok | CallStatus::Running | CallStatus::TimedOut | CallStatus::Indeterminate => true,
        CallStatus::Waiting
        | CallStatus::Failed
        | CallStatus::DeniedByClient
        | CallStatus::NotExecuted
        | CallStatus::DryRun
        | CallStatus::Replayed => false,
    }
}

/// Whether an attempt at the evidence says something about it: a success, or a failure since.
const fn says_something(status: CallStatus) -> bool {
    match status {
        CallStatus::Ok | CallStatus::Failed | CallStatus::TimedOut | CallStatus::Indeterminate => true,
        CallStatus::Waiting
        | CallStatus::Running
        | CallStatus::DeniedByClient
        | CallStatus::NotExecuted
        | CallStatus::DryRun
        | CallStatus::Replayed => false,
    }
}

fn counts(rule: &EvidenceRule, tool: &ToolFacts) -> bool {
    !rule.server_only || tool.venue == Venue::Server
}

/// Every tag that a rule names, with its place.
fn named_tags(rule: &EvidenceRule) -> Vec<(&String, String)> {
    let mut found: Vec<(&String, String)> = rule.min.keys().map(|tag| (tag, "/min".to_owned())).collect();
    for (idx, tags) in rule.any_of.iter().enumerate() {
        found.extend(tags.iter().map(|tag| (tag, format!("/any_of/{idx}"))));
    }
    for (idx, pair) in rule.order.iter().enumerate() {
        found.push((&pair.before, format!("/order/{idx}/before")));
        found.push((&pair.after, format!("/order/{idx}/after")));
    }
    found.extend(rule.fresh.iter().enumerate().map(|(idx, form)| (&form.evidence, format!("/fresh/{idx}/evidence"))));
    found
}

/// Refuses evidence that a profile's own tools cannot bring.
fn reachable(
    rule: &EvidenceRule,
    tools: &BTreeMap<String, BTreeSet<String>>,
    at: &str,
    registry: Registry<'_>,
    faults: &mut Faults,
) {
    let meant = |name: &String| rule.profiles.is_empty() || rule.profiles.contains(name);
    for (profile, allowed) in registry.profiles.iter().filter(|(name, _)| meant(name)) {
        let can =
            |tag: &String| tools.get(tag).is_some_and(|carriers| carriers.iter().any(|tool| allowed.contains(tool)));
        for tag in rule.min.keys().filter(|tag| !can(tag)) {
            let detail = format!("no tool of the profile `{profile}` can bring `{tag}`; name `profiles` that can");
            faults.add(format!("{at}/min"), "evidence_reachable", detail);
        }
        for (idx, tags) in rule.any_of.iter().enumerate() {
            if !tags.iter().any(can) {
                let detail = format!("no tool of the profile `{profile}` can bring one of these tags");
                faults.add(format!("{at}/any_of/{idx}"), "evidence_reachable", detail);
            }
        }
    }
}
