//! Checks of one tool's contract.

use super::{BUILTINS, Check};
use crate::bundle::{Bundle, Tool};
use crate::id::{Sha256Digest, ToolId};
use crate::json::Json;
use crate::schema::Schema;
use crate::tool::{Executor, ToolDef, Venue};

impl Check {
    pub(super) fn tool(&mut self, bundle: &mut Bundle, id: ToolId, def: ToolDef) {
        let path = format!("/tools/{id}");
        if def.id.as_ref().is_some_and(|named| *named != id) {
            self.fault(
                format!("{path}/id"),
                "key_is_name",
                format!("differs from its key `{id}`; write the same or leave it out"),
            );
        }
        if id.as_str().starts_with("toolgate.") {
            self.fault(&path, "reserved", "ids that begin with `toolgate.` are Toolgate's own");
        }
        self.range(format!("{path}/description"), def.description.chars().count() as u64, 1, 4_096);
        self.range(format!("{path}/timeout_ms"), def.timeout_ms, 1, 900_000);
        self.range(format!("{path}/max_output_bytes"), def.max_output_bytes, 1, 8 * 1_024 * 1_024);
        self.executor(&path, &def);
        self.declared_fields(bundle, &path, &def);
        let parameters = match Schema::for_arguments(&def.parameters) {
            Ok(schema) => schema,
            Err(fault) => return self.fault(format!("{path}/parameters{}", fault.pointer), "schema", fault.detail),
        };
        let result = match def.result.as_ref().map(Schema::compile).transpose() {
            Ok(schema) => schema,
            Err(fault) => return self.fault(format!("{path}/result{}", fault.pointer), "schema", fault.detail),
        };
        let version =
            Sha256Digest::of(Json::from_value(&serde_json::to_value(&def).unwrap_or_default()).as_str().as_bytes());
        bundle.tools.insert(id.clone(), Tool { id, def, version, parameters, result });
    }

    fn executor(&mut self, path: &str, def: &ToolDef) {
        let at = format!("{path}/executor");
        match (def.venue, &def.executor) {
            (Venue::Client, Some(_)) => self.fault(at, "executor", "a client tool has no executor; the client runs it"),
            (Venue::Server, None) => {
                self.fault(at, "executor", "a server tool needs one: `{\"http\": {\"url\": …}}` or `{\"builtin\": …}`");
            }
            (Venue::Server, Some(Executor::Builtin(name))) if !BUILTINS.contains(&name.as_str()) => {
                self.fault(at, "executor", format!("no builtin `{name}`; there are {}", BUILTINS.join(", ")));
            }
            (Venue::Server, Some(Executor::Http(http))) => self.url(format!("{at}/http/url"), &http.url),
            (Venue::Server, Some(Executor::Builtin(_))) | (Venue::Client, None) => {}
        }
        if let Some(Executor::Http(http)) = &def.executor {
            self.secret(format!("{path}/executor/http/bearer_env"), http.bearer_env.as_deref());
        }
        if def.venue == Venue::Server && def.capability.is_some() {
            self.fault(format!("{path}/capability"), "capability", "only client tools need a capability");
        }
    }

    /// Fields that the contract names must exist, and none may carry identity (ruling 5).
    fn declared_fields(&mut self, bundle: &Bundle, path: &str, def: &ToolDef) {
        if let Some(field) = &def.idempotency_key {
            let declared = def.parameters.pointer(&format!("/properties/{}", escape(field)));
            if declared.and_then(|schema| schema.get("type")).and_then(|kind| kind.as_str()) != Some("string") {
                self.fault(
                    format!("{path}/idempotency_key"),
                    "field_exists",
                    format!("`{field}` is no string property of the parameters"),
                );
            }
        }
        for (idx, pointer) in def.redact.iter().enumerate() {
            let at = format!("{path}/redact/{idx}");
            let Some(first) = pointer.strip_prefix('/').and_then(|rest| rest.split('/').next()) else {
                self.fault(at, "pointer", "needs a JSON pointer such as `/password`");
                continue;
            };
            if !may_hold(&def.parameters, first) {
                self.fault(&at, "field_exists", format!("no property `{first}` is declared, so nothing would be cut"));
            }
            if def.idempotency_key.as_deref().map(escape).as_deref() == Some(first) {
                self.fault(at, "redact_key", "the idempotency key is kept to compare with, so it cannot be redacted");
            }
        }
        if let Some(found) = find_declared_identity(bundle, &def.parameters) {
            let detail = format!("declares the identity key `{found}`; identity comes from the credential alone");
            self.fault(format!("{path}/parameters"), "identity_key", detail);
        }
    }
}

/// Whether arguments that match may have this property; `token` is escaped as in a pointer.
pub(super) fn may_hold(parameters: &serde_json::Value, token: &str) -> bool {
    let open = parameters.get("additionalProperties").is_some_and(|rest| *rest != serde_json::Value::Bool(false));
    let elsewhere = ["$ref", "anyOf", "oneOf", "allOf", "if", "dependentSchemas", "patternProperties"];
    open || elsewhere.iter().any(|key| parameters.get(key).is_some())
        || parameters.pointer(&format!("/properties/{token}")).is_some()
}

/// An identity key among the property names of a schema, at any depth.
fn find_declared_identity(bundle: &Bundle, schema: &serde_json::Value) -> Option<String> {
    match schema {
        serde_json::Value::Object(map) => {
            let declared = map.get("properties").and_then(serde_json::Value::as_object);
            let names = declared.into_iter().flat_map(serde_json::Map::keys);
            names
                .filter(|name| bundle.is_identity_key(name))
                .map(ToOwned::to_owned)
                .next()
                .or_else(|| map.values().find_map(|child| find_declared_identity(bundle, child)))
        }
        serde_json::Value::Array(items) => items.iter().find_map(|child| find_declared_identity(bundle, child)),
        serde_json::Value::Null
        | serde_json::Value::Bool(_)
        | serde_json::Value::Number(_)
        | serde_json::Value::String(_) => None,
    }
}

fn escape(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}
