//! The bundle of one suite under one tier. What is not here: the rules in it (`rules`).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use toolgate_core::bundle::Bundle;
use toolgate_core::id::ProfileName;

use crate::error::DojoError;
use crate::rules;
use crate::suite::{Suite, UserTask};
use crate::tier::Tier;

/// The profile of the tiers that know nothing of tasks.
const GENERIC: &str = "generic";

/// Makes and loads the bundle: tools with classes by their names, one profile per task or one for all.
pub fn bundle(suite: &Suite, tier: Tier) -> Result<Bundle, DojoError> {
    Bundle::load(&document(suite, tier).to_string()).map_err(|faults| DojoError::Bundle {
        suite: suite.suite.clone(),
        tier: tier.name(),
        faults: faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
    })
}

/// The profile under which a task is played.
pub fn profile(task: &UserTask, tier: Tier) -> Result<ProfileName, DojoError> {
    let name = if tier.knows_the_task() { task.id.as_str() } else { GENERIC };
    Ok(ProfileName::new(name)?)
}

fn document(suite: &Suite, tier: Tier) -> Value {
    let mut tools = Map::new();
    for tool in &suite.tools {
        let class = if rules::reads(&tool.name) { "read" } else { "once" };
        let tags: Vec<&str> = if rules::is_egress(&tool.name) { vec!["egress"] } else { Vec::new() };
        let definition = json!({
            "description": tool.description, "parameters": tool.parameters, "venue": "server",
            "executor": {"builtin": "echo"}, "class": class, "tags": tags,
            "requires_approval": rules::needs_approval(suite, tool, tier),
        });
        tools.insert(tool.name.clone(), definition);
    }
    let mut profiles = BTreeMap::new();
    if tier.knows_the_task() {
        for task in &suite.user_tasks {
            let needed: BTreeSet<String> = task.calls.iter().map(|call| call.tool.clone()).collect();
            profiles.insert(task.id.clone(), needed);
        }
    } else {
        profiles.insert(GENERIC.to_owned(), suite.tools.iter().map(|tool| tool.name.clone()).collect());
    }
    let mut document = json!({
        "version": 1,
        "models": {"scripted": {"provider": "scripted", "script": [{"done": "unused: answers come from the data"}]}},
        "default_model": "scripted",
        "default_harness": {"max_steps": 60, "max_tool_calls": 60, "deadline_ms": 3_600_000,
            "max_consecutive_rejections": 60},
        "tools": tools, "profiles": profiles,
    });
    if let (Some(section), Some(map)) = (rules::policies(suite, tier), document.as_object_mut()) {
        map.insert("policies".to_owned(), section);
    }
    document
}
