//! The Cedar schema: entity types, one action per tool in its groups, and the contexts. What is not here: the types inside
//! the contexts (`shape`, `context`).

use std::collections::BTreeMap;

use cedar_policy::ffi::DetailedError;
use cedar_policy::{EntityId, EntityTypeName, EntityUid, Schema};
use serde_json::{Value, json};

use super::read;
use super::shape::{Field, Kind, record_schema};
use crate::facts::ToolFacts;
use crate::fault::Faults;
use crate::rule::Registry;

/// The entity types.
#[derive(Debug, Clone)]
pub(super) struct Names {
    action: EntityTypeName,
    pub(super) agent: EntityTypeName,
    pub(super) role: EntityTypeName,
    pub(super) session: EntityTypeName,
}

impl Names {
    pub(super) fn new() -> Option<Self> {
        Some(Self {
            action: "Action".parse().ok()?,
            agent: "Agent".parse().ok()?,
            role: "Role".parse().ok()?,
            session: "Session".parse().ok()?,
        })
    }

    pub(super) fn action(&self, id: &str) -> EntityUid {
        uid(&self.action, id)
    }
}

pub(super) fn uid(kind: &EntityTypeName, id: &str) -> EntityUid {
    EntityUid::from_type_name_and_id(kind.clone(), EntityId::new(id))
}

/// The groups of a tool's action.
pub(super) fn groups(tool: &ToolFacts) -> Vec<String> {
    let own = [
        format!("class:{}", tool.class.code()),
        format!("venue:{}", tool.venue.code()),
        format!("risk:{}", tool.risk.code()),
    ];
    own.into_iter().chain(tool.tags.iter().map(|tag| format!("tag:{tag}"))).collect()
}

/// The schema as text. The order of keys is the same whatever the JSON library is built with, so that its hash is too.
pub(super) fn text(registry: Registry<'_>, contexts: &BTreeMap<String, Kind>) -> String {
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

/// Reads a schema that was made here; a fault is one of names that Cedar keeps for itself.
pub(super) fn parse(text: &str, faults: &mut Faults) -> Option<Schema> {
    Schema::from_json_str(text)
        .map_err(|error| read::report("", "/cedar", "schema", &DetailedError::from(&error), faults))
        .ok()
}
