//! Checks and compiles a bundle: every fault is found, with its place and how to mend it. What is not here: the shape
//! of the document (serde), the examples (`examples`).

use std::collections::{BTreeMap, BTreeSet};

use super::model::{ModelDef, Provider};
use super::{Bundle, BundleFault, BundleForm, ClassRule, IDENTITY_KEYS, Tool, examples, fold_key};
use crate::id::{ModelName, ProfileName, Sha256Digest, Tag, ToolId};
use crate::json::Json;
use crate::profile::{Harness, OnReject, Profile, ProfileForm};
use crate::reason::RejectReason;
use crate::schema::Schema;
use crate::tool::{Executor, ToolDef, Venue};

/// Names a server knows how to run.
pub const BUILTINS: [&str; 5] = ["echo", "add", "lookup", "word_count", "fail"];

const MAX_TOOLS: usize = 512;
const MAX_PROFILES: usize = 512;

pub(super) fn compile(form: BundleForm, source: Json) -> Result<Bundle, Vec<BundleFault>> {
    let mut check = Check { faults: Vec::new() };
    if form.version != 1 {
        check.fault("/version", "version", "only version 1 exists; write `\"version\": 1`");
    }
    check.limit("/tools", form.tools.len(), MAX_TOOLS);
    check.limit("/profiles", form.profiles.len(), MAX_PROFILES);
    let keys: BTreeSet<String> =
        IDENTITY_KEYS.into_iter().map(fold_key).chain(form.identity_keys.iter().map(|key| fold_key(key))).collect();
    for (name, model) in &form.models {
        check.model(name, model);
    }
    if form.default_model.as_ref().is_some_and(|name| !form.models.contains_key(name)) {
        check.fault("/default_model", "model_exists", "names no model of this bundle");
    }
    let mut bundle = Bundle {
        digest: source.hash(),
        source,
        tools: BTreeMap::new(),
        profiles: BTreeMap::new(),
        output_schemas: BTreeMap::new(),
        models: form.models,
        classification: form.classification,
        identity_keys: keys,
    };
    for (id, def) in form.tools {
        check.tool(&mut bundle, id, def);
    }
    for (name, form_of_profile) in form.profiles {
        let path = format!("/profiles/{name}");
        let Some(profile) = complete(form_of_profile, form.default_harness.as_ref(), form.default_model.as_ref())
        else {
            check.fault(
                &path,
                "bounds",
                "has no `harness`, and the bundle has no `default_harness`; a run must be bounded",
            );
            continue;
        };
        check.profile(&mut bundle, &path, &name, &profile);
        bundle.profiles.insert(name, profile);
    }
    if let Some(harness) = &form.default_harness {
        check.harness("/default_harness", harness);
    }
    if bundle.profiles.is_empty() && check.faults.is_empty() {
        check.fault("/profiles", "profile_exists", "a bundle needs at least one profile");
    }
    check.classification(&bundle);
    if check.faults.is_empty() {
        check.faults.extend(examples::check(&bundle));
    }
    if check.faults.is_empty() { Ok(bundle) } else { Err(check.faults) }
}

/// The full form of a profile with the tenant's defaults filled in; none when it would have no bounds.
fn complete(form: ProfileForm, harness: Option<&Harness>, model: Option<&ModelName>) -> Option<Profile> {
    let mut profile = match form {
        ProfileForm::Full(profile) => *profile,
        ProfileForm::Short(tools) => Profile::of_tools(tools),
    };
    profile.harness = profile.harness.or_else(|| harness.cloned());
    profile.model = profile.model.or_else(|| model.cloned());
    profile.harness.is_some().then_some(profile)
}

struct Check {
    faults: Vec<BundleFault>,
}

impl Check {
    fn fault(&mut self, path: impl Into<String>, rule: &'static str, detail: impl Into<String>) {
        self.faults.push(BundleFault::new(path, rule, detail));
    }

    fn limit(&mut self, path: &str, found: usize, limit: usize) {
        if found > limit {
            self.fault(path, "count", format!("{found} entries; at most {limit}"));
        }
    }

    fn range(&mut self, path: String, value: u64, least: u64, most: u64) {
        if !(least..=most).contains(&value) {
            self.fault(path, "range", format!("{value} is out of range; {least} to {most}"));
        }
    }

    fn model(&mut self, name: &ModelName, model: &ModelDef) {
        let path = format!("/models/{name}");
        self.range(format!("{path}/timeout_ms"), model.timeout_ms, 1, 600_000);
        self.range(format!("{path}/retries"), u64::from(model.retries), 0, 10);
        self.range(format!("{path}/max_concurrency"), u64::from(model.max_concurrency), 1, 10_000);
        match model.provider {
            Provider::Scripted => {
                if model.script.is_empty() {
                    self.fault(format!("{path}/script"), "script", "a scripted model needs at least one answer");
                }
            }
            Provider::Openai => {
                let url = model.base_url.as_deref().unwrap_or_default();
                if !url.starts_with("http://") && !url.starts_with("https://") {
                    self.fault(format!("{path}/base_url"), "url", "needs an absolute http or https URL");
                }
                if model.model.as_deref().unwrap_or_default().is_empty() {
                    self.fault(format!("{path}/model"), "model_id", "needs the provider's model id");
                }
                if !model.script.is_empty() {
                    self.fault(format!("{path}/script"), "script", "only a scripted model has a script");
                }
            }
        }
    }

    fn tool(&mut self, bundle: &mut Bundle, id: ToolId, def: ToolDef) {
        let path = format!("/tools/{id}");
        if def.id.as_ref().is_some_and(|named| *named != id) {
            self.fault(
                format!("{path}/id"),
                "key_is_name",
                format!("differs from its key `{id}`; write the same or leave it out"),
            );
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
                self.fault(at, "executor", "a server tool needs one: `{\"http\": {\"url\": …}}` or `{\"builtin\": …}`")
            }
            (Venue::Server, Some(Executor::Builtin(name))) if !BUILTINS.contains(&name.as_str()) => {
                self.fault(at, "executor", format!("no builtin `{name}`; there are {}", BUILTINS.join(", ")));
            }
            (Venue::Server, Some(Executor::Http(http)))
                if !http.url.starts_with("http://") && !http.url.starts_with("https://") =>
            {
                self.fault(format!("{at}/http/url"), "url", "needs an absolute http or https URL");
            }
            (Venue::Server, Some(Executor::Builtin(_) | Executor::Http(_))) | (Venue::Client, None) => {}
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
            if !pointer.starts_with('/') {
                self.fault(format!("{path}/redact/{idx}"), "pointer", "needs a JSON pointer such as `/password`");
            }
        }
        if let Some(found) = find_declared_identity(bundle, &def.parameters) {
            let detail = format!("declares the identity key `{found}`; identity comes from the credential alone");
            self.fault(format!("{path}/parameters"), "identity_key", detail);
        }
    }

    fn profile(&mut self, bundle: &mut Bundle, path: &str, name: &ProfileName, profile: &Profile) {
        if profile.name.as_ref().is_some_and(|named| named != name) {
            self.fault(
                format!("{path}/name"),
                "key_is_name",
                format!("differs from its key `{name}`; write the same or leave it out"),
            );
        }
        let mut seen = BTreeSet::new();
        for (idx, id) in profile.tools.iter().enumerate() {
            if !bundle.tools.contains_key(id)
                && !self.faults.iter().any(|fault| fault.path.starts_with(&format!("/tools/{id}/")))
            {
                self.fault(format!("{path}/tools/{idx}"), "tool_exists", format!("`{id}` is no tool of this bundle"));
            }
            if !seen.insert(id) {
                self.fault(format!("{path}/tools/{idx}"), "duplicate", format!("`{id}` stands twice"));
            }
        }
        match &profile.model {
            None => self.fault(
                format!("{path}/model"),
                "model_exists",
                "names no model, and the bundle has no `default_model`",
            ),
            Some(model) if !bundle.models.contains_key(model) => {
                self.fault(format!("{path}/model"), "model_exists", format!("`{model}` is no model of this bundle"));
            }
            Some(_) => {}
        }
        if let Some(harness) = &profile.harness {
            self.harness(&format!("{path}/harness"), harness);
        }
        self.range(format!("{path}/approval/expires_ms"), profile.approval.expires_ms, 1_000, 2_592_000_000);
        if profile.on_reject.get(&RejectReason::CrossTenantDenied) == Some(&OnReject::Feedback) {
            self.fault(
                format!("{path}/on_reject/cross_tenant_denied"),
                "always_ends",
                "a forged identity always ends the run; remove the entry",
            );
        }
        self.consensus(bundle, path, profile);
        self.evidence(bundle, &format!("{path}/trace_requirements"), &profile.trace_requirements, profile);
        if let Some(schema) = &profile.output_schema {
            match Schema::compile(schema) {
                Ok(schema) => {
                    bundle.output_schemas.insert(name.clone(), schema);
                }
                Err(fault) => self.fault(format!("{path}/output_schema{}", fault.pointer), "schema", fault.detail),
            }
        }
    }

    fn harness(&mut self, path: &str, harness: &Harness) {
        self.range(format!("{path}/max_steps"), u64::from(harness.max_steps), 1, 200);
        self.range(format!("{path}/max_tool_calls"), u64::from(harness.max_tool_calls), 0, 10_000);
        self.range(format!("{path}/deadline_ms"), harness.deadline_ms, 1, 2_592_000_000);
        if let Some(calls) = harness.max_model_calls {
            self.range(format!("{path}/max_model_calls"), u64::from(calls), 1, 10_000);
        }
        self.range(format!("{path}/max_parallel_calls"), u64::from(harness.max_parallel_calls), 1, 16);
        self.range(format!("{path}/max_consecutive_rejections"), u64::from(harness.max_consecutive_rejections), 1, 200);
        self.range(format!("{path}/max_parse_failures"), u64::from(harness.max_parse_failures), 1, 200);
        self.range(format!("{path}/repeat_limit"), u64::from(harness.repeat_limit), 1, 10_000);
    }

    fn consensus(&mut self, bundle: &Bundle, path: &str, profile: &Profile) {
        let Some(consensus) = &profile.consensus else { return };
        self.range(format!("{path}/consensus/n"), u64::from(consensus.n), 1, 9);
        self.range(format!("{path}/consensus/k"), u64::from(consensus.k), 1, u64::from(consensus.n));
        self.range(format!("{path}/consensus/retries"), u64::from(consensus.retries), 0, 10);
        for (idx, model) in consensus.models.iter().enumerate() {
            if !bundle.models.contains_key(model) {
                self.fault(
                    format!("{path}/consensus/models/{idx}"),
                    "model_exists",
                    format!("`{model}` is no model of this bundle"),
                );
            }
        }
        let calls = profile.harness.as_ref().and_then(|harness| harness.max_model_calls);
        if calls.is_some_and(|calls| calls < consensus.n) {
            self.fault(format!("{path}/harness/max_model_calls"), "can_start", "is smaller than one round of ballots");
        }
    }

    /// A quota that no allowed tool can meet would refuse `done` for ever.
    fn evidence(&mut self, bundle: &Bundle, path: &str, required: &BTreeMap<Tag, u32>, profile: &Profile) {
        let calls = profile.harness.as_ref().map_or(0, |harness| harness.max_tool_calls);
        for (tag, need) in required.iter().filter(|(_, need)| **need > 0) {
            let carried =
                profile.tools.iter().filter_map(|id| bundle.tools.get(id)).any(|tool| tool.def.tags.contains(tag));
            if !carried {
                self.fault(
                    format!("{path}/{tag}"),
                    "reachable",
                    "no tool of the profile carries this tag, so `done` could never be accepted",
                );
            } else if *need > calls {
                self.fault(
                    format!("{path}/{tag}"),
                    "reachable",
                    format!("needs {need} calls, but the profile allows {calls}"),
                );
            }
        }
    }

    fn classification(&mut self, bundle: &Bundle) {
        let Some(classification) = &bundle.classification else { return };
        if classification.model.as_ref().is_some_and(|model| !bundle.models.contains_key(model)) {
            self.fault("/classification/model", "model_exists", "names no model of this bundle");
        }
        if classification.rules.is_empty() {
            self.fault("/classification/rules", "rule_exists", "labels need at least one rule");
        }
        for (label, rule) in &classification.rules {
            self.rule(bundle, &format!("/classification/rules/{label}"), rule);
        }
        if let Some(rule) = &classification.default {
            self.rule(bundle, "/classification/default", rule);
        }
    }

    fn rule(&mut self, bundle: &Bundle, path: &str, rule: &ClassRule) {
        match bundle.profiles.get(&rule.profile) {
            None => self.fault(
                format!("{path}/profile"),
                "profile_exists",
                format!("`{}` is no profile of this bundle", rule.profile),
            ),
            Some(profile) => {
                self.evidence(bundle, &format!("{path}/trace_requirements"), &rule.trace_requirements, profile)
            }
        }
    }
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
