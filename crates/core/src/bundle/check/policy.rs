//! Hands the policy section to the engine, with the bundle's tools and profiles as it knows them. What is not here: the
//! rules themselves (`toolgate-policy`).

use std::collections::{BTreeMap, BTreeSet};

use toolgate_policy::{Class, Policy, PolicyForm, Risk as PolicyRisk, ToolFacts, Venue as PolicyVenue};

use crate::bundle::{Bundle, BundleFault, Tool};
use crate::tool::{Risk, ToolClass, Venue};

/// Compiles the policies against the bundle; every fault stands below `/policies`.
pub(super) fn compile(form: &PolicyForm, bundle: &Bundle) -> Result<Policy, Vec<BundleFault>> {
    Policy::compile(form, &bundle.tool_facts(), &bundle.profile_tools()).map_err(|faults| {
        let place = |fault: toolgate_policy::Fault| {
            BundleFault::new(format!("/policies{}", fault.pointer), fault.rule, fault.detail)
        };
        faults.into_iter().map(place).collect()
    })
}

impl Bundle {
    /// The profiles with their tools, as the engine takes them.
    pub(in crate::bundle) fn profile_tools(&self) -> BTreeMap<String, BTreeSet<String>> {
        let tools = |profile: &crate::profile::Profile| profile.tools.iter().map(ToString::to_string).collect();
        self.profiles().map(|(name, profile)| (name.to_string(), tools(profile))).collect()
    }

    /// The tools, as the engine takes them.
    pub(in crate::bundle) fn tool_facts(&self) -> Vec<ToolFacts> {
        self.tools().map(facts).collect()
    }
}

fn facts(tool: &Tool) -> ToolFacts {
    ToolFacts {
        id: tool.id.to_string(),
        venue: match tool.def.venue {
            Venue::Server => PolicyVenue::Server,
            Venue::Client => PolicyVenue::Client,
        },
        class: match tool.def.class {
            ToolClass::Read => Class::Read,
            ToolClass::Idempotent => Class::Idempotent,
            ToolClass::Once => Class::Once,
        },
        risk: match tool.def.risk {
            Risk::Low => PolicyRisk::Low,
            Risk::Medium => PolicyRisk::Medium,
            Risk::High => PolicyRisk::High,
        },
        tags: tool.def.tags.iter().map(ToString::to_string).collect(),
        parameters: tool.parameters.shown().value(),
        derived: tool.def.derived.clone(),
        secret: tool.def.redact.clone(),
    }
}
