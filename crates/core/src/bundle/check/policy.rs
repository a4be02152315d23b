//! Hands the policy section to the engine, with the bundle's tools and profiles as it knows them. What is not here: the
//! rules themselves (`toolgate-policy`).

use std::collections::{BTreeMap, BTreeSet};

use toolgate_policy::{Class, Policy, PolicyForm, Risk as PolicyRisk, ToolFacts, Venue as PolicyVenue};

use crate::bundle::{Bundle, BundleFault, Tool};
use crate::tool::{Risk, ToolClass, Venue};

/// Compiles the policies against the bundle; every fault stands below `/policies`.
pub(super) fn compile(form: &PolicyForm, bundle: &Bundle) -> Result<Policy, Vec<BundleFault>> {
    let tools: Vec<ToolFacts> = bundle.tools().map(facts).collect();
    let profiles: BTreeMap<String, BTreeSet<String>> = bundle
        .profiles()
        .map(|(name, profile)| (name.to_string(), profile.tools.iter().map(ToString::to_string).collect()))
        .collect();
    Policy::compile(form, &tools, &profiles).map_err(|faults| {
        let place = |fault: toolgate_policy::Fault| {
            BundleFault::new(format!("/policies{}", fault.pointer), fault.rule, fault.detail)
        };
        faults.into_iter().map(place).collect()
    })
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
