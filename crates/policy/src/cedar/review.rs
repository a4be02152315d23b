//! What policy sets do for one tool, as far as their scopes tell. What is not here: judging calls (`judge`).

use cedar_policy::{ActionConstraint, Effect, Policy, PrincipalConstraint, ResourceConstraint};

use super::compile::Cedar;

impl Cedar {
    /// Whether a call of this tool may be refused for what it asks, or a human be asked: a `forbid`, a permit that
    /// escalates, or permits that all have conditions.
    pub(crate) fn restrains(&self, tool: &str) -> bool {
        let Some(slice) = self.slices.get(tool).filter(|_| self.enforced) else { return false };
        let escalates = |policy: &Policy| self.infos.get(&policy.id().to_string()).is_some_and(|info| info.escalates);
        let open = |policy: &Policy| {
            policy.effect() == Effect::Permit && !policy.has_non_scope_constraint() && !escalates(policy)
        };
        let mut policies = slice.enforced.policies();
        policies.any(|policy| policy.effect() == Effect::Forbid || escalates(policy))
            || !slice.enforced.policies().any(open)
    }

    /// Enforced permits that name a tool itself, as policy and tool.
    pub(crate) fn permits_by_name(&self) -> Vec<(String, &str)> {
        let mut found = Vec::new();
        for (tool, slice) in &self.slices {
            let names = |policy: &&Policy| match policy.action_constraint() {
                ActionConstraint::Any => false,
                ActionConstraint::Eq(action) => action == slice.action,
                ActionConstraint::In(actions) => actions.contains(&slice.action),
            };
            let permits = slice.enforced.policies().filter(|policy| policy.effect() == Effect::Permit).filter(names);
            found.extend(permits.map(|policy| (policy.id().to_string(), tool.as_str())));
        }
        found.sort();
        found
    }

    /// An enforced policy that forbids every call of this tool, whoever makes it.
    pub(crate) fn forbids_always(&self, tool: &str) -> Option<String> {
        let always = |policy: &&Policy| {
            policy.effect() == Effect::Forbid
                && !policy.has_non_scope_constraint()
                && policy.principal_constraint() == PrincipalConstraint::Any
                && policy.resource_constraint() == ResourceConstraint::Any
        };
        let slice = self.slices.get(tool)?;
        slice.enforced.policies().find(always).map(|policy| policy.id().to_string())
    }
}
