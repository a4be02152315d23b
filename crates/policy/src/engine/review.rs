//! Rules that cannot do what they seem to: for tools that nobody has, behind a broader rule, against each other, waiting
//! for what never comes, or left in shadow. What is not here: faults, which refuse the policy when it is compiled.

use std::collections::{BTreeMap, BTreeSet};

use regex::Regex;

use super::Policy;
use crate::fault::{Fault, Faults, escape};
use crate::finding::Layer;
use crate::form::PolicyForm;
use crate::rule::{Head, Mode};

/// What rules are reviewed against.
#[derive(Debug, Clone, Copy)]
pub struct Reach<'a> {
    /// Profiles with their tools.
    pub profiles: &'a BTreeMap<String, BTreeSet<String>>,
    /// Labels that classification may give.
    pub labels: &'a BTreeSet<String>,
}

/// A call that can come up: profile and tool.
type Pair<'a> = (&'a str, &'a str);

impl Policy {
    /// Reviews the rules. `form` is what the policy was compiled from. Pointers start at the bundle.
    #[must_use]
    pub fn review(&self, form: &PolicyForm, reach: Reach<'_>) -> Vec<Fault> {
        let mut found = Faults::default();
        modes(form, &mut found);
        self.unreachable(reach, &mut found);
        self.shadowed(reach, &mut found);
        self.sequences_that_wait_for_nothing(reach, &mut found);
        self.denied_tools(reach, &mut found);
        self.against_each_other(reach, &mut found);
        names_in_texts(form, reach, &mut found);
        found.into_sorted()
    }

    /// Whether something enforced may refuse a call of this tool for what it asks, or have a human asked, in every profile
    /// that has the tool.
    #[must_use]
    pub fn restrains(&self, tool: &str, profiles: &BTreeMap<String, BTreeSet<String>>) -> bool {
        if self.cedar.as_ref().is_some_and(|cedar| cedar.restrains(tool)) {
            return true;
        }
        let checks = self.checks.iter().filter(|check| check.asks()).map(|check| check.head());
        let heads: Vec<&Head> = self.heads().chain(checks).filter(|head| head.mode == Mode::Enforce).collect();
        let mut having = profiles.iter().filter(|(_, tools)| tools.contains(tool));
        having.all(|(profile, _)| heads.iter().any(|head| head.on.matches(tool, profile)))
    }

    /// Every rule that may object, plausibility checks and policy files apart.
    fn heads(&self) -> impl Iterator<Item = &Head> {
        let lists = self.lists.iter();
        let arguments = self.arguments.iter().map(|rule| rule.head());
        let sequences = self.sequences.iter().map(|rule| rule.head());
        let rates = self.rates.iter().map(|rule| rule.head());
        let totals = self.totals.iter().map(|rule| rule.head());
        let origins = self.origins.iter().map(|rule| rule.head());
        lists.chain(arguments).chain(sequences).chain(rates).chain(totals).chain(origins)
    }

    fn all_heads(&self) -> impl Iterator<Item = &Head> {
        self.heads().chain(self.checks.iter().map(|check| check.head())).filter(|head| head.mode != Mode::Off)
    }

    fn unreachable(&self, reach: Reach<'_>, found: &mut Faults) {
        for head in self.all_heads().filter(|head| pairs(head, reach).is_empty()) {
            let detail = format!(
                "`{}` applies to tools that none of its profiles has; give the tools or take the rule out",
                head.id
            );
            found.add(pointer(head), "unreachable_rule", detail);
        }
    }

    /// Lists that deny this call.
    fn deniers(&self, (profile, tool): Pair<'_>) -> Vec<&Head> {
        let lists = self.lists.iter().filter(|list| list.mode == Mode::Enforce);
        lists.filter(|list| list.on.matches(tool, profile)).collect()
    }

    fn shadowed(&self, reach: Reach<'_>, found: &mut Faults) {
        for head in self.all_heads().filter(|head| head.mode == Mode::Enforce) {
            let own = pairs(head, reach);
            let broader = self.lists.iter().find(|list| {
                let covers = || own.iter().all(|(profile, tool)| list.on.matches(tool, profile));
                // Of two lists that say the same, the later one is too much.
                let before = || head.layer != Layer::List || pairs(list, reach).len() > own.len() || list.id < head.id;
                list.mode == Mode::Enforce && list.id != head.id && covers() && before()
            });
            if let Some(list) = broader.filter(|_| !own.is_empty()) {
                let detail = format!(
                    "`{}` never decides: the list `{}` denies all its calls; keep one of them",
                    head.id, list.id
                );
                found.add(pointer(head), "shadowed_rule", detail);
            }
        }
    }

    fn denied_tools(&self, reach: Reach<'_>, found: &mut Faults) {
        let tools: BTreeSet<&String> = reach.profiles.values().flatten().collect();
        for tool in tools {
            let mut having = reach.profiles.iter().filter(|(_, tools)| tools.contains(tool));
            if having.all(|(profile, _)| !self.deniers((profile.as_str(), tool.as_str())).is_empty()) {
                let detail =
                    format!("nobody may use `{tool}`: lists deny it in every profile that has it; take it out");
                found.add(format!("/tools/{}", escape(tool)), "denied_tool", detail);
            }
        }
    }

    /// `only_after` where what must come first cannot come, or is denied.
    fn sequences_that_wait_for_nothing(&self, reach: Reach<'_>, found: &mut Faults) {
        for rule in self.sequences.iter().filter(|rule| rule.head().mode != Mode::Off) {
            let Some(needed) = rule.needs() else { continue };
            let profiles: BTreeSet<&str> = pairs(rule.head(), reach).iter().map(|(profile, _)| *profile).collect();
            for profile in profiles {
                let tools = reach.profiles.get(profile).into_iter().flatten();
                let mut first = tools.filter(|tool| needed.has(tool));
                if !first.any(|tool| self.deniers((profile, tool.as_str())).is_empty()) {
                    let detail = format!(
                        "the profile `{profile}` may call none of what `{}` waits for, so its calls never pass; give it such a tool",
                        rule.head().id
                    );
                    found.add(format!("{}/only_after", pointer(rule.head())), "unsatisfiable_rule", detail);
                }
            }
        }
    }

    /// Rules of which one asks for what the other refuses.
    fn against_each_other(&self, reach: Reach<'_>, found: &mut Faults) {
        let denying: Vec<_> = self.arguments.iter().filter(|rule| rule.must_hold()).collect();
        for (place, rule) in denying.iter().enumerate() {
            for other in denying.iter().take(place) {
                let shared = pairs(rule.head(), reach).iter().any(|pair| pairs(other.head(), reach).contains(pair));
                if shared && rule.excludes(other) {
                    let detail = format!(
                        "no value can pass both `{}` and `{}` at `{}`; mend one of them",
                        other.head().id,
                        rule.head().id,
                        rule.place_text()
                    );
                    found.add(pointer(rule.head()), "contradictory_rules", detail);
                }
            }
        }
        let Some(cedar) = &self.cedar else { return };
        for (policy, tool) in cedar.permits_by_name() {
            let set = policy.split('/').next().unwrap_or_default();
            let at = format!("/policies/cedar/{}/text", escape(set));
            let having: Vec<&String> =
                reach.profiles.iter().filter(|(_, tools)| tools.contains(tool)).map(|(name, _)| name).collect();
            let denied = having.iter().map(|profile| self.deniers((profile.as_str(), tool))).collect::<Vec<_>>();
            if let Some(list) =
                denied.iter().find_map(|lists| lists.first()).filter(|_| denied.iter().all(|l| !l.is_empty()))
            {
                let detail =
                    format!("`{policy}` permits `{tool}`, and the list `{}` denies it; keep one of them", list.id);
                found.add(&at, "allow_and_deny", detail);
            }
            if let Some(forbid) = cedar.forbids_always(tool) {
                let detail = format!("`{policy}` permits `{tool}`, and `{forbid}` forbids it always; keep one of them");
                found.add(&at, "allow_and_deny", detail);
            }
        }
    }
}

/// The calls that a rule applies to and that can come up.
fn pairs<'a>(head: &Head, reach: Reach<'a>) -> BTreeSet<Pair<'a>> {
    let all =
        reach.profiles.iter().flat_map(|(name, tools)| tools.iter().map(move |tool| (name.as_str(), tool.as_str())));
    all.filter(|(profile, tool)| head.on.matches(tool, profile)).collect()
}

fn pointer(head: &Head) -> String {
    let section = match head.layer {
        Layer::List => "lists",
        Layer::Argument | Layer::Derived => "arguments",
        Layer::Sequence => "sequences",
        Layer::Rate => "rates",
        Layer::Total => "totals",
        Layer::Origin => "origins",
        Layer::Check => "checks",
        Layer::Cedar => "cedar",
    };
    format!("/policies/{section}/{}", escape(&head.id))
}

/// Rules that do not count.
fn modes(form: &PolicyForm, found: &mut Faults) {
    let mut add = |section: &str, id: &str, mode: Mode| {
        let at =
            if id.is_empty() { format!("/policies/{section}") } else { format!("/policies/{section}/{}", escape(id)) };
        let name = if id.is_empty() { section } else { id };
        match mode {
            Mode::Enforce => {}
            Mode::Shadow => {
                found.add(
                    at,
                    "rule_in_shadow",
                    format!("`{name}` is recorded and not enforced; enforce it or take it out"),
                );
            }
            Mode::Off => found.add(at, "rule_off", format!("`{name}` is switched off; enforce it or take it out")),
        }
    };
    form.lists.iter().for_each(|(id, rule)| add("lists", id.as_str(), rule.mode));
    form.arguments.iter().for_each(|(id, rule)| add("arguments", id.as_str(), rule.mode));
    form.sequences.iter().for_each(|(id, rule)| add("sequences", id.as_str(), rule.mode));
    form.rates.iter().for_each(|(id, rule)| add("rates", id.as_str(), rule.mode));
    form.totals.iter().for_each(|(id, rule)| add("totals", id.as_str(), rule.mode));
    form.origins.iter().for_each(|(id, rule)| add("origins", id.as_str(), rule.mode));
    form.checks.iter().for_each(|(id, rule)| add("checks", id.as_str(), rule.mode));
    form.cedar.iter().for_each(|(id, rule)| add("cedar", id.as_str(), rule.mode));
    form.evidence.iter().for_each(|(id, rule)| add("evidence", id.as_str(), rule.mode));
    form.repeats.iter().for_each(|rule| add("repeats", "", rule.mode));
}

/// Labels and profiles that policy files compare with and that no session can have.
fn names_in_texts(form: &PolicyForm, reach: Reach<'_>, found: &mut Faults) {
    let profiles: BTreeSet<String> = reach.profiles.keys().cloned().collect();
    for (id, set) in &form.cedar {
        let at = format!("/policies/cedar/{}/text", escape(id.as_str()));
        for (field, known, rule) in
            [("label", reach.labels, "label_unknown"), ("profile", &profiles, "profile_unknown")]
        {
            // The pattern is ours and compiles; were it not to, nothing would be found.
            let Ok(compared) = Regex::new(&format!(r#"session\s*\.\s*{field}\s*[=!]=\s*"([^"\\]*)""#)) else {
                continue;
            };
            for name in compared.captures_iter(&set.text).filter_map(|found| found.get(1)) {
                if !known.contains(name.as_str()) {
                    let detail = format!(
                        "compares the {field} with `{}`, which no session can have; mend the name",
                        name.as_str()
                    );
                    found.add(&at, rule, detail);
                }
            }
        }
    }
}
