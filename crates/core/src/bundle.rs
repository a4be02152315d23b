//! The versioned configuration of a tenant: parsed strictly, checked whole, compiled, named by its digest.
//! What is not here: storing bundles, YAML (the command line turns it into JSON first).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use toolgate_policy::{Policy, PolicyForm, RuleId};

use crate::id::{Label, ModelName, ProfileName, Sha256Digest, Tag, ToolId};
use crate::json::{Json, read_typed};
use crate::profile::{Harness, Profile, ProfileForm, TenantBudget, TenantLimit};
use crate::schema::Schema;
use crate::tool::ToolDef;

mod check;
pub mod dialect;
mod examples;
pub mod hook;
pub mod model;

pub use check::BUILTINS;
pub use hook::{HookDef, HookKind, Observed, ObserverDef};
pub use model::ModelDef;

pub mod lint;
pub mod trial;

/// A bundle as written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BundleForm {
    /// Format of this document; 1.
    pub version: u32,
    /// Tools by id.
    #[serde(default)]
    pub tools: BTreeMap<ToolId, ToolDef>,
    /// Profiles by name.
    pub profiles: BTreeMap<ProfileName, ProfileForm>,
    /// Models by name.
    pub models: BTreeMap<ModelName, ModelDef>,
    /// Bounds for profiles that name none.
    #[serde(default)]
    pub default_harness: Option<Harness>,
    /// Model for profiles that name none.
    #[serde(default)]
    pub default_model: Option<ModelName>,
    /// Labels and what they lead to.
    #[serde(default)]
    pub classification: Option<Classification>,
    /// Rules over arguments, earlier calls and origins, and policy files; absent means none.
    #[serde(default)]
    pub policies: Option<PolicyForm>,
    /// Argument names that are identity besides the built-in ones (ruling 5).
    #[serde(default)]
    pub identity_keys: BTreeSet<String>,
    /// Endpoints that allow, deny or rewrite calls, at most 32.
    #[serde(default)]
    pub admission: Vec<HookDef>,
    /// Endpoints that are told of what is over, at most 32.
    #[serde(default)]
    pub observers: Vec<ObserverDef>,
    /// Bounds over all sessions of the tenant.
    #[serde(default)]
    pub tenant_budget: TenantBudget,
    /// Bounds over the tenant's calls of some tools, by name, at most 16.
    #[serde(default)]
    pub tenant_limits: BTreeMap<RuleId, TenantLimit>,
}

/// Labels, the rules they lead to, and who finds the label.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Classification {
    /// The model that labels a request that names neither profile nor label; absent means the caller must name one.
    #[serde(default)]
    pub model: Option<ModelName>,
    /// Further instruction for that model.
    #[serde(default)]
    pub prompt: Option<String>,
    /// What each label leads to.
    pub rules: BTreeMap<Label, ClassRule>,
    /// What an unknown label or a failed classification leads to; absent means refusal.
    #[serde(default)]
    pub default: Option<ClassRule>,
}

/// What a label leads to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClassRule {
    /// The profile.
    pub profile: ProfileName,
    /// Evidence that overrides the profile's, tag by tag.
    #[serde(default)]
    pub trace_requirements: BTreeMap<Tag, u32>,
}

/// One fault of a bundle, with its place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {detail} ({rule})")]
pub struct BundleFault {
    /// JSON pointer into the bundle.
    pub path: String,
    /// The rule's short name, for example `tool_exists`.
    pub rule: &'static str,
    /// What is wrong and how to mend it.
    pub detail: String,
}

impl BundleFault {
    fn new(path: impl Into<String>, rule: &'static str, detail: impl Into<String>) -> Self {
        Self { path: path.into(), rule, detail: detail.into() }
    }
}

/// A tool ready to be judged against.
#[derive(Debug, Clone)]
pub struct Tool {
    /// Its id.
    pub id: ToolId,
    /// Its contract.
    pub def: ToolDef,
    /// Hash of the contract.
    pub version: Sha256Digest,
    /// Compiled schema of the arguments.
    pub parameters: Schema,
    /// Compiled schema of a successful result.
    pub result: Option<Schema>,
}

/// A compiled bundle. Immutable; a session pins it by digest.
#[derive(Debug, Clone)]
pub struct Bundle {
    digest: Sha256Digest,
    source: Json,
    tools: BTreeMap<ToolId, Tool>,
    profiles: BTreeMap<ProfileName, Profile>,
    output_schemas: BTreeMap<ProfileName, Schema>,
    models: BTreeMap<ModelName, ModelDef>,
    classification: Option<Classification>,
    policy: Option<Policy>,
    identity_keys: BTreeSet<String>,
    /// Mutating ones first.
    admission: Vec<HookDef>,
    observers: Vec<ObserverDef>,
    tenant_budget: TenantBudget,
    tenant_limits: BTreeMap<RuleId, TenantLimit>,
}

impl Bundle {
    /// Reads, checks and compiles a bundle. Returns every fault found, at least one.
    pub fn load(text: &str) -> Result<Self, Vec<BundleFault>> {
        let source = Json::parse(text).map_err(|fault| vec![BundleFault::new("", "json", fault.to_string())])?;
        let form: BundleForm = read_typed(&source.value())
            .map_err(|misfit| vec![BundleFault::new(misfit.pointer, "shape", misfit.detail)])?;
        check::compile(form, source)
    }

    /// Hash of the canonical source.
    #[must_use]
    pub const fn digest(&self) -> Sha256Digest {
        self.digest
    }

    /// The canonical source.
    #[must_use]
    pub const fn source(&self) -> &Json {
        &self.source
    }

    /// A tool by its exact name.
    #[must_use]
    pub fn tool(&self, id: &ToolId) -> Option<&Tool> {
        self.tools.get(id)
    }

    /// Every tool.
    pub fn tools(&self) -> impl Iterator<Item = &Tool> {
        self.tools.values()
    }

    /// A profile by name.
    #[must_use]
    pub fn profile(&self, name: &ProfileName) -> Option<&Profile> {
        self.profiles.get(name)
    }

    /// Every profile.
    pub fn profiles(&self) -> impl Iterator<Item = (&ProfileName, &Profile)> {
        self.profiles.iter()
    }

    /// The compiled output schema of a profile.
    #[must_use]
    pub fn output_schema(&self, name: &ProfileName) -> Option<&Schema> {
        self.output_schemas.get(name)
    }

    /// A model by name.
    #[must_use]
    pub fn model(&self, name: &ModelName) -> Option<&ModelDef> {
        self.models.get(name)
    }

    /// Every model.
    pub fn models(&self) -> impl Iterator<Item = (&ModelName, &ModelDef)> {
        self.models.iter()
    }

    /// The classification, if there is one.
    #[must_use]
    pub const fn classification(&self) -> Option<&Classification> {
        self.classification.as_ref()
    }

    /// The compiled policies, if there are any.
    #[must_use]
    pub const fn policy(&self) -> Option<&Policy> {
        self.policy.as_ref()
    }

    /// The hooks that are asked about a call of this tool, in their order.
    pub fn hooks_on<'a>(&'a self, tool: &'a Tool) -> impl Iterator<Item = &'a HookDef> {
        self.admission.iter().filter(|hook| hook.on.fits(&tool.id, &tool.def))
    }

    /// A hook by name.
    #[must_use]
    pub fn hook(&self, name: &RuleId) -> Option<&HookDef> {
        self.admission.iter().find(|hook| hook.name == *name)
    }

    /// The observers.
    #[must_use]
    pub fn observers(&self) -> &[ObserverDef] {
        &self.observers
    }

    /// Bounds over all sessions of the tenant.
    #[must_use]
    pub const fn tenant_budget(&self) -> &TenantBudget {
        &self.tenant_budget
    }

    /// Bounds over the tenant's calls, by name.
    #[must_use]
    pub const fn tenant_limits(&self) -> &BTreeMap<RuleId, TenantLimit> {
        &self.tenant_limits
    }

    /// Whether an argument name is an identity key (ruling 5): compared without case, `_` and `-`.
    #[must_use]
    pub fn is_identity_key(&self, name: &str) -> bool {
        self.identity_keys.contains(&fold_key(name))
    }
}

/// The built-in identity keys (ruling 5).
const IDENTITY_KEYS: [&str; 9] =
    ["tenant", "tenant_id", "actor", "actor_id", "principal", "principal_id", "approved", "approved_by", "approval_id"];

/// An argument name without case, `_` and `-`.
fn fold_key(name: &str) -> String {
    // Asked for every key of every call: nearly all are ASCII, and room is made once.
    if name.is_ascii() {
        let mut folded = name.to_ascii_lowercase();
        folded.retain(|c| !matches!(c, '_' | '-'));
        return folded;
    }
    let mut folded = String::with_capacity(name.len());
    folded.extend(name.chars().filter(|c| !matches!(c, '_' | '-')).flat_map(char::to_lowercase));
    folded
}

/// Finds an identity key in a value, at any depth, and gives its pointer.
#[must_use]
pub fn find_identity_key(bundle: &Bundle, value: &Value) -> Option<String> {
    match value {
        Value::Object(map) => map.iter().find_map(|(key, child)| {
            // The pointer is written only once a key is found: nearly no call has one.
            let below = if bundle.is_identity_key(key) { String::new() } else { find_identity_key(bundle, child)? };
            Some(format!("/{}{below}", key.replace('~', "~0").replace('/', "~1")))
        }),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .find_map(|(idx, child)| find_identity_key(bundle, child).map(|below| format!("/{idx}{below}"))),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}
