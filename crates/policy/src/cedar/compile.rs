//! Compiling policy sets: the schema from the tools, strict validation, paths that exist, one slice per tool. What is not
//! here: reading texts (`read`), judging (`judge`).

use std::collections::{BTreeMap, BTreeSet};

use cedar_policy::ffi::DetailedError;
use cedar_policy::{
    ActionConstraint, Authorizer, Entity, EntityId, EntityTypeName, EntityUid, Policy, PolicySet, Schema,
    ValidationMode, ValidationWarning, Validator, get_lang_version, get_sdk_version,
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::context::{self, Counted};
use super::read::{self, Info, Parsed};
use super::shape::{Field, Fields, Kind, of_arguments, record_schema};
use super::{CedarForm, MAX_SETS, MAX_SHADOW_SETS};
use crate::facts::ToolFacts;
use crate::fault::{Faults, escape};
use crate::rule::{Mode, Registry, RuleId};

/// Every policy set of a section, validated and sliced.
#[derive(Debug, Clone)]
pub(crate) struct Cedar {
    pub(super) schema: Schema,
    pub(super) slices: BTreeMap<String, Slice>,
    pub(super) infos: BTreeMap<String, Info>,
    pub(super) counted: Counted,
    pub(super) names: Names,
    pub(super) authorizer: Authorizer,
    /// Some set is enforced, so that what no policy permits is denied.
    pub(super) enforced: bool,
    pub(super) policy_hash: String,
    pub(super) schema_hash: String,
    pub(super) engine: String,
}

/// The policies that can concern one tool.
#[derive(Debug, Clone)]
pub(super) struct Slice {
    pub(super) tool: ToolFacts,
    pub(super) input: Fields,
    pub(super) action: EntityUid,
    pub(super) entities: Vec<Entity>,
    pub(super) enforced: PolicySet,
    /// Each shadow set with all enforced policies, and the ids of its own.
    pub(super) shadow: Vec<(String, PolicySet)>,
}

/// The entity types.
#[derive(Debug, Clone)]
pub(super) struct Names {
    action: EntityTypeName,
    pub(super) agent: EntityTypeName,
    pub(super) role: EntityTypeName,
    pub(super) session: EntityTypeName,
}

impl Names {
    fn new() -> Option<Self> {
        Some(Self {
            action: "Action".parse().ok()?,
            agent: "Agent".parse().ok()?,
            role: "Role".parse().ok()?,
            session: "Session".parse().ok()?,
        })
    }

    fn action(&self, id: &str) -> EntityUid {
        uid(&self.action, id)
    }
}

pub(super) fn uid(kind: &EntityTypeName, id: &str) -> EntityUid {
    EntityUid::from_type_name_and_id(kind.clone(), EntityId::new(id))
}

/// A set that was read.
struct Set<'a> {
    id: &'a RuleId,
    form: &'a CedarForm,
    at: String,
    parsed: Vec<Parsed>,
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
        let counted = counted(&sets, registry);
        let names = Names::new()?;
        let inputs: BTreeMap<String, Fields> =
            registry.tools.values().map(|tool| (tool.id.clone(), of_arguments(&tool.parameters))).collect();
        let contexts: BTreeMap<String, Kind> = registry
            .tools
            .values()
            .filter_map(|tool| Some((tool.id.clone(), context::fields(tool, inputs.get(&tool.id)?, &counted))))
            .map(|(id, fields)| (id, Kind::Record(fields)))
            .collect();
        let text = schema_text(registry, &contexts);
        let schema = match Schema::from_json_str(&text) {
            Ok(schema) => schema,
            Err(error) => {
                read::report("", "/cedar", "schema", &DetailedError::from(&error), faults);
                return None;
            }
        };
        let validator = Validator::new(schema.clone());
        for set in &sets {
            validate(set, &validator, faults);
            for parsed in &set.parsed {
                paths_exist(set, parsed, registry, &names, &contexts, faults);
            }
        }
        if faults.count() > before {
            return None;
        }
        let slices = registry
            .tools
            .values()
            .filter_map(|tool| Some((tool.id.clone(), slice(tool, inputs.get(&tool.id)?.clone(), &sets, &names)?)))
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
            policy_hash: policy_hash(&sets),
            schema_hash: hex::encode(Sha256::digest(text.as_bytes())),
            engine: format!("cedar-policy {} (language {})", get_sdk_version(), get_lang_version()),
        })
    }
}

/// The groups of a tool's action.
fn groups(tool: &ToolFacts) -> Vec<String> {
    let own = [
        format!("class:{}", tool.class.code()),
        format!("venue:{}", tool.venue.code()),
        format!("risk:{}", tool.risk.code()),
    ];
    own.into_iter().chain(tool.tags.iter().map(|tag| format!("tag:{tag}"))).collect()
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

/// The schema as text. The order of keys is the same whatever the JSON library is built with, so that its hash is too.
fn schema_text(registry: Registry<'_>, contexts: &BTreeMap<String, Kind>) -> String {
    let mut actions: BTreeMap<String, Value> = BTreeMap::new();
    for tool in registry.tools.values() {
        let groups = groups(tool);
        for group in &groups {
            actions.insert(group.clone(), json!({"appliesTo": {"principalTypes": [], "resourceTypes": []}}));
        }
        let members: Vec<Value> = groups.iter().map(|id| json!({"id": id})).collect();
        let context = contexts.get(&tool.id).map(Kind::to_schema);
        let applies = json!({"principalTypes": ["Agent"], "resourceTypes": ["Session"], "context": context});
        actions.insert(tool.id.clone(), json!({"memberOf": members, "appliesTo": applies}));
    }
    let agent = BTreeMap::from([
        ("tenant".to_owned(), Field::required(Kind::Text)),
        ("id".to_owned(), Field::required(Kind::Text)),
        ("roles".to_owned(), Field::required(Kind::Set(Box::new(Kind::Text)))),
    ]);
    let entities = json!({
        "Role": {}, "Session": {}, "Agent": {"memberOfTypes": ["Role"], "shape": record_schema(&agent)},
    });
    sorted(&json!({"": {"entityTypes": entities, "actions": actions}}))
}

/// JSON text with sorted keys.
fn sorted(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let ordered: BTreeMap<&String, &Value> = map.iter().collect();
            let fields: Vec<String> = ordered
                .into_iter()
                .map(|(name, value)| format!("{}:{}", Value::String(name.clone()), sorted(value)))
                .collect();
            format!("{{{}}}", fields.join(","))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(sorted).collect::<Vec<_>>().join(",")),
        other => other.to_string(),
    }
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

/// Whether a policy's scope can hold for calls of a tool.
fn concerns(policy: &Policy, tool: &ToolFacts, names: &Names) -> bool {
    let own = || {
        let groups: BTreeSet<String> = groups(tool).into_iter().collect();
        groups.into_iter().chain(std::iter::once(tool.id.clone())).map(|id| names.action(&id))
    };
    match policy.action_constraint() {
        ActionConstraint::Any => true,
        ActionConstraint::Eq(action) => action == names.action(&tool.id),
        ActionConstraint::In(actions) => own().any(|action| actions.contains(&action)),
    }
}

fn slice(tool: &ToolFacts, input: Fields, sets: &[Set<'_>], names: &Names) -> Option<Slice> {
    let action = names.action(&tool.id);
    let groups: Vec<EntityUid> = groups(tool).iter().map(|group| names.action(group)).collect();
    let entities = groups
        .iter()
        .map(|group| Entity::new_no_attrs(group.clone(), std::iter::empty().collect()))
        .chain(std::iter::once(Entity::new_no_attrs(action.clone(), groups.iter().cloned().collect())))
        .collect();
    let of = |set: &Set<'_>| -> Vec<Policy> {
        set.parsed.iter().map(|one| &one.policy).filter(|policy| concerns(policy, tool, names)).cloned().collect()
    };
    let enforced: Vec<Policy> = sets.iter().filter(|set| set.form.mode == Mode::Enforce).flat_map(of).collect();
    let mut shadow = Vec::new();
    for set in sets.iter().filter(|set| set.form.mode == Mode::Shadow) {
        let both = enforced.iter().cloned().chain(of(set));
        shadow.push((set.id.to_string(), PolicySet::from_policies(both).ok()?));
    }
    Some(Slice {
        tool: tool.clone(),
        input,
        action,
        entities,
        enforced: PolicySet::from_policies(enforced).ok()?,
        shadow,
    })
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
    pub(crate) fn versions(&self) -> (&str, &str, &str) {
        (&self.policy_hash, &self.schema_hash, &self.engine)
    }
}
