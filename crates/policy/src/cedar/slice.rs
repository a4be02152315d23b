//! The slice of a tool: the policies that can concern its calls, and what they read. What is not here: validating them
//! (`compile`).

use std::collections::BTreeSet;

use cedar_policy::{ActionConstraint, Entity, EntityUid, Policy, PolicySet};

use super::compile::Set;
use super::read::Parsed;
use super::schema::{Names, groups};
use super::shape::{Fields, Kind, pruned};
use crate::facts::ToolFacts;
use crate::rule::Mode;

/// The policies that can concern one tool.
#[derive(Debug, Clone)]
pub(super) struct Slice {
    pub(super) tool: ToolFacts,
    /// The types of all arguments.
    pub(super) input: Fields,
    /// The fields of the context that a policy of the slice reads.
    pub(super) shown: Fields,
    pub(super) action: EntityUid,
    pub(super) entities: Vec<Entity>,
    pub(super) enforced: PolicySet,
    /// Each shadow set, by id, together with all enforced policies.
    pub(super) shadow: Vec<(String, PolicySet)>,
}

impl Slice {
    pub(super) fn new(tool: &ToolFacts, input: Fields, shown: Fields, sets: &[Set<'_>], names: &Names) -> Option<Self> {
        let action = names.action(&tool.id);
        // Groups that no policy of the slice names cannot matter to it.
        let named: BTreeSet<EntityUid> = sets
            .iter()
            .flat_map(|set| concerning(set, tool, names))
            .flat_map(|one| one.policy.entity_literals())
            .collect();
        let groups: Vec<EntityUid> =
            groups(tool).iter().map(|group| names.action(group)).filter(|group| named.contains(group)).collect();
        let entities = groups
            .iter()
            .map(|group| Entity::new_no_attrs(group.clone(), std::iter::empty().collect()))
            .chain(std::iter::once(Entity::new_no_attrs(action.clone(), groups.iter().cloned().collect())))
            .collect();
        let of = |set: &Set<'_>| -> Vec<Policy> {
            concerning(set, tool, names).into_iter().map(|one| one.policy.clone()).collect()
        };
        let enforced: Vec<Policy> = sets.iter().filter(|set| set.form.mode == Mode::Enforce).flat_map(of).collect();
        let mut shadow = Vec::new();
        for set in sets.iter().filter(|set| set.form.mode == Mode::Shadow) {
            let both = enforced.iter().cloned().chain(of(set));
            shadow.push((set.id.to_string(), PolicySet::from_policies(both).ok()?));
        }
        let enforced = PolicySet::from_policies(enforced).ok()?;
        Some(Self { tool: tool.clone(), input, shown, action, entities, enforced, shadow })
    }
}

/// The policies of a set that can concern a tool.
fn concerning<'a>(set: &'a Set<'_>, tool: &ToolFacts, names: &Names) -> Vec<&'a Parsed> {
    set.parsed.iter().filter(|one| concerns(&one.policy, tool, names)).collect()
}

/// The context of a tool as far as a policy that can concern it reads it.
pub(super) fn shown(tool: &ToolFacts, context: &Kind, sets: &[Set<'_>], names: &Names) -> Kind {
    let Kind::Record(fields) = context else { return context.clone() };
    let sets = sets.iter().filter(|set| set.form.mode != Mode::Off);
    let policies: Vec<&Parsed> = sets.flat_map(|set| concerning(set, tool, names)).collect();
    let paths: Vec<&[String]> = policies.iter().flat_map(|one| &one.info.reads).map(Vec::as_slice).collect();
    Kind::Record(pruned(fields, &paths))
}

/// Whether a policy's scope can hold for calls of a tool.
pub(super) fn concerns(policy: &Policy, tool: &ToolFacts, names: &Names) -> bool {
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
