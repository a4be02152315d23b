//! The engine: a policy compiled against its tools, and calls judged in one fixed order. What is not here: the rules
//! themselves, and the layers of the pipeline around this one (names, schemas, identity, budgets, approvals).

use std::collections::{BTreeMap, BTreeSet};

use crate::args::ArgumentCheck;
use crate::cedar::Cedar;
use crate::checklist;
use crate::derive;
use crate::facts::{EarlierCall, ToolFacts};
use crate::fault::{Fault, Faults, escape};
use crate::form::PolicyForm;
use crate::history::{Deficit, EvidenceCheck, RateCheck, RepeatCheck, Repetition, SequenceCheck, TotalCheck};
use crate::origin::OriginCheck;
use crate::rule::Head;
use crate::semantic::SemanticCheck;

mod compile;
mod examples;
mod judge;
mod review;

pub use review::Reach;

/// A policy, compiled. Immutable; the same policy and facts give the same judgement, always.
#[derive(Debug, Clone)]
pub struct Policy {
    tools: BTreeMap<String, ToolFacts>,
    derived: BTreeMap<String, Vec<derive::Compiled>>,
    lists: Vec<Head>,
    arguments: Vec<ArgumentCheck>,
    sequences: Vec<SequenceCheck>,
    rates: Vec<RateCheck>,
    totals: Vec<TotalCheck>,
    origins: Vec<OriginCheck>,
    checks: Vec<SemanticCheck>,
    cedar: Option<Cedar>,
    repeats: Option<RepeatCheck>,
    evidence: Vec<EvidenceCheck>,
    lint: Vec<Fault>,
}

impl Policy {
    /// Checks a policy section against the tools and profiles (with their tools) of its bundle, compiles it, and judges
    /// its examples. Returns every fault found, at least one; pointers start at the section.
    pub fn compile(
        form: &PolicyForm,
        tools: &[ToolFacts],
        profiles: &BTreeMap<String, BTreeSet<String>>,
    ) -> Result<Self, Vec<Fault>> {
        compile::compile(form, tools, profiles)
    }

    /// Rules that are valid and known traps; empty with `"lint": "strict"`, which refuses them.
    #[must_use]
    pub fn lint(&self) -> &[Fault] {
        &self.lint
    }

    /// What a careful owner asks before granting: free-form arguments of the server's tools that no enforced rule or policy
    /// looks at, and tools that no policy can ever permit. Pointers start at the bundle (`/tools/<id>/…`).
    #[must_use]
    pub fn checklist(&self) -> Vec<Fault> {
        let mut found = Faults::default();
        checklist::unguarded(self.tools.values(), |tool, place| self.guards(tool, place), &mut found);
        for tool in self.cedar.as_ref().map(Cedar::never_permitted).unwrap_or_default() {
            let detail = format!("no policy can ever permit `{tool}`; permit it or take it out");
            found.add(format!("/tools/{}", escape(tool)), "never_permitted", detail);
        }
        found.into_sorted()
    }

    fn guards(&self, tool: &str, place: &str) -> bool {
        let derived = self.derived.get(tool).into_iter().flatten();
        let from: BTreeMap<String, String> =
            derived.map(|field| (field.name.clone(), field.from.as_str().to_owned())).collect();
        self.arguments.iter().any(|rule| rule.guards(tool, place))
            || self.origins.iter().any(|rule| rule.guards(tool, place))
            || self.cedar.as_ref().is_some_and(|cedar| cedar.guards(tool, place, &from))
    }

    /// What is missing before a run of this profile may be done. `calls` are those of the session, oldest first.
    #[must_use]
    pub fn deficits(&self, profile: &str, run: u32, calls: &[EarlierCall<'_>]) -> Vec<Deficit> {
        self.evidence.iter().flat_map(|rule| rule.deficits(profile, run, calls)).collect()
    }

    /// Whether there is a rule on repetitions; without one nobody needs to gather the keys.
    #[must_use]
    pub const fn counts_repetitions(&self) -> bool {
        self.repeats.is_some()
    }

    /// Whether a call repeats earlier ones. `keys` are the canonical calls of the run, oldest first, rejected and unknown
    /// ones included, without the call under decision, whose key is `key`; equal keys mean equal calls.
    #[must_use]
    pub fn repetition<K: PartialEq>(&self, keys: &[K], key: &K, tool: &str, profile: &str) -> Option<Repetition> {
        self.repeats.as_ref().and_then(|rule| rule.judge(keys, key, tool, profile))
    }

    /// Version and hashes of the policy files, if there are any: (policy hash, schema hash, engine).
    #[must_use]
    pub fn cedar_versions(&self) -> Option<(&str, &str, &str)> {
        self.cedar.as_ref().map(Cedar::versions)
    }
}
