//! Compiling policy sets: strict validation against the tools, paths that exist. What is not here: reading texts (`read`),
//! the schema (`schema`), the slice of a tool (`slice`).

use std::collections::BTreeMap;
use std::sync::Arc;

use cedar_policy::ffi::DetailedError;
use cedar_policy::{
    Authorizer, Effect, PolicySet, Schema, ValidationMode, ValidationWarning, Validator, get_lang_version,
    get_sdk_version,
};
use sha2::{Digest, Sha256};

use super::context::{self, Counted};
use super::read::{self, Info, Parsed};
use super::schema::{self, Names};
use super::shape::{Fields, Kind, of_arguments};
use super::slice::{self, Slice, concerns};
use super::{CedarForm, MAX_PAIRS, MAX_SETS, MAX_SHADOW_SETS, MAX_TEXTS};
use crate::checklist::covers;
use crate::fault::{Faults, escape};
use crate::rule::{Mode, Registry, RuleId};

/// Every policy set of a section, validated and sliced.
#[derive(Debug, Clone)]
pub(crate) struct Cedar {
    /// The schema that requests are checked against: contexts with what the slices' policies read.
    pub(super) schema: Schema,
    pub(super) slices: BTreeMap<String, Slice>,
    pub(super) infos: BTreeMap<String, Info>,
    pub(super) counted: Counted,
    pub(super) names: Names,
    pub(super) authorizer: Authorizer,
    /// Some set is enforced, so that what no policy permits is denied.
    pub(super) enforced: bool,
    pub(super) policy_hash: Arc<str>,
    pub(super) schema_hash: Arc<str>,
    pub(super) engine: Arc<str>,
}

/// A set that was read.
pub(super) struct Set<'a> {
    pub(super) id: &'a RuleId,
    pub(super) form: &'a CedarForm,
    /// The place of its text.
    at: String,
    pub(super) parsed: Vec<Parsed>,
}

impl Cedar {
    /// Compiles the sets; `None` if there are none, or if a fault leaves nothing to judge with.
    pub(crate) fn compile(
        forms: &BTreeMap<RuleId, CedarForm>,
        registry: Registry<'_>,
        faults: &mut Faults,
    ) -> Option<Self> {
        if forms.is_empty() {
            return None;
        }
        let shadows = forms.values().filter(|form| form.mode == Mode::Shadow).count();
        if forms.len() > MAX_SETS || shadows > MAX_SHADOW_SETS {
            faults.add("/cedar", "bound", format!("at most {MAX_SETS} sets, {MAX_SHADOW_SETS} of them in shadow"));
            return None;
        }
        if forms.values().map(|form| form.text.len()).sum::<usize>() > MAX_TEXTS {
            faults.add("/cedar", "bound", format!("all sets together have more than {MAX_TEXTS} bytes"));
            return None;
        }
        let before = faults.count();
        let sets: Vec<Set<'_>> = forms
            .iter()
            .map(|(id, form)| {
                let at = format!("/cedar/{}/text", escape(id.as_str()));
                let parsed = read::parse(id, &form.text, &at, faults);
                Set { id, form, at, parsed }
            })
            .collect();
        if faults.count() > before {
            return None;
        }
        let names = Names::new()?;
        let pairs = sets
            .iter()
            .flat_map(|set| &set.parsed)
            .map(|one| registry.tools.values().filter(|tool| concerns(&one.policy, tool, &names)).count());
        if pairs.sum::<usize>() > MAX_PAIRS {
            let detail =
                format!("policies times the tools they can concern are more than {MAX_PAIRS}; name actions in scopes");
            faults.add("/cedar", "bound", detail);
            return None;
        }
        let counted = counted(&sets, registry);
        let inputs: BTreeMap<String, Fields> =
            registry.tools.values().map(|tool| (tool.id.clone(), of_arguments(&tool.parameters))).collect();
        let contexts: BTreeMap<String, Kind> = registry
            .tools
            .values()
            .filter_map(|tool| Some((tool.id.clone(), context::fields(tool, inputs.get(&tool.id)?, &counted))))
            .map(|(id, fields)| (id, Kind::Record(fields)))
            .collect();
        let text = schema::text(registry, &contexts);
        let validator = Validator::new(schema::parse(&text, faults)?);
        for set in &sets {
            validate(set, &validator, faults);
            for parsed in &set.parsed {
                paths_exist(set, parsed, registry, &names, &contexts, faults);
            }
        }
        if faults.count() > before {
            return None;
        }
        let shown: BTreeMap<String, Kind> = registry
            .tools
            .values()
            .filter_map(|tool| Some((tool.id.clone(), slice::shown(tool, contexts.get(&tool.id)?, &sets, &names))))
            .collect();
        let schema = schema::parse(&schema::text(registry, &shown), faults)?;
        let slices = registry
            .tools
            .values()
            .filter_map(|tool| {
                let Some(Kind::Record(shown)) = shown.get(&tool.id) else { return None };
                let input = inputs.get(&tool.id)?.clone();
                Some((tool.id.clone(), Slice::new(tool, input, shown.clone(), &sets, &names)?))
            })
            .collect();
        let infos =
            sets.iter().flat_map(|set| &set.parsed).map(|one| (one.info.id.clone(), one.info.clone())).collect();
        Some(Self {
            schema,
            slices,
            infos,
            counted,
            names,
            authorizer: Authorizer::new(),
            enforced: sets.iter().any(|set| set.form.mode == Mode::Enforce),
            policy_hash: policy_hash(&sets).into(),
            schema_hash: hex::encode(Sha256::digest(text.as_bytes())).into(),
            engine: format!("cedar-policy {} (language {})", get_sdk_version(), get_lang_version()).into(),
        })
    }
}

/// The tags and tools that policies count, so that contexts carry no others. Names that do not exist are found later.
fn counted(sets: &[Set<'_>], registry: Registry<'_>) -> Counted {
    let mut counted = Counted::default();
    let reads = sets.iter().flat_map(|set| &set.parsed).flat_map(|parsed| &parsed.info.reads);
    for path in reads {
        match path.as_slice() {
            [first, name, ..] if first == "counts" && registry.tools.contains_key(name) => {
                counted.counts.insert(name.clone());
            }
            [first, tag, ..] if first == "evidence" => {
                let carriers = context::carriers(tag, registry.tools.values());
                if !carriers.is_empty() {
                    counted.evidence.insert(tag.clone(), carriers);
                }
            }
            _ => {}
        }
    }
    counted
}

fn validate(set: &Set<'_>, validator: &Validator, faults: &mut Faults) {
    let policies = match PolicySet::from_policies(set.parsed.iter().map(|one| one.policy.clone())) {
        Ok(policies) => policies,
        Err(error) => {
            faults.add(&set.at, "policies", error.to_string());
            return;
        }
    };
    let result = validator.validate(&policies, ValidationMode::Strict);
    for error in result.validation_errors() {
        read::report(&set.form.text, &set.at, "policy_invalid", &DetailedError::from(error), faults);
    }
    for warning in result.validation_warnings() {
        // A policy that can never apply was meant to: it reads what no tool has, or names what does not exist.
        let hard = matches!(
            warning,
            ValidationWarning::ImpossiblePolicy(_)
                | ValidationWarning::InvalidActionApplication(_)
                | ValidationWarning::BidiCharsInString(_)
                | ValidationWarning::BidiCharsInIdentifier(_)
        );
        if hard {
            read::report(&set.form.text, &set.at, "policy_unreachable", &DetailedError::from(warning), faults);
        }
    }
}

/// A path below `context` that no tool of the policy's scope has would never be there. `has` hides that from the
/// validator where another condition stands beside it.
fn paths_exist(
    set: &Set<'_>,
    parsed: &Parsed,
    registry: Registry<'_>,
    names: &Names,
    contexts: &BTreeMap<String, Kind>,
    faults: &mut Faults,
) {
    let concerned: Vec<&Kind> = registry
        .tools
        .values()
        .filter(|tool| concerns(&parsed.policy, tool, names))
        .filter_map(|tool| contexts.get(&tool.id))
        .collect();
    for path in &parsed.info.reads {
        if !concerned.is_empty() && !concerned.iter().any(|context| context.at(path).is_some()) {
            let detail = format!(
                "policy `{}` reads `context.{}`, which no tool in its scope has",
                parsed.info.id,
                path.join(".")
            );
            faults.add(&set.at, "argument_exists", detail);
        }
    }
}

fn policy_hash(sets: &[Set<'_>]) -> String {
    let mut hash = Sha256::new();
    for set in sets.iter().filter(|set| set.form.mode == Mode::Enforce) {
        for part in [set.id.as_str(), &set.form.text] {
            hash.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
            hash.update(part.as_bytes());
        }
    }
    hex::encode(hash.finalize())
}

impl Cedar {
    /// Whether an enforced policy that can concern a tool reads an argument, itself or a field derived from it.
    pub(crate) fn guards(&self, tool: &str, place: &str, derived_from: &BTreeMap<String, String>) -> bool {
        let Some(slice) = self.slices.get(tool) else { return false };
        slice.enforced.policies().filter_map(|policy| self.infos.get(&policy.id().to_string())).any(|info| {
            info.reads.iter().any(|path| match path.split_first() {
                Some((first, rest)) if first == "input" && !rest.is_empty() => {
                    let read: String = rest.iter().map(|name| format!("/{}", escape(name))).collect();
                    covers(&read, place)
                }
                Some((first, rest)) if first == "derived" => {
                    rest.first().and_then(|name| derived_from.get(name)).is_some_and(|from| covers(from, place))
                }
                _ => false,
            })
        })
    }

    /// Tools that no enforced policy can ever permit.
    pub(crate) fn never_permitted(&self) -> Vec<&str> {
        let permits = |slice: &Slice| slice.enforced.policies().any(|policy| policy.effect() == Effect::Permit);
        let closed = self.slices.iter().filter(|(_, slice)| self.enforced && !permits(slice));
        closed.map(|(tool, _)| tool.as_str()).collect()
    }

    pub(crate) fn versions(&self) -> (&str, &str, &str) {
        (&self.policy_hash, &self.schema_hash, &self.engine)
    }
}
