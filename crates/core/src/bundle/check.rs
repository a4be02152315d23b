//! Checks and compiles a bundle: every fault is found, with its place and how to mend it. What is not here: the shape
//! of the document (serde), tools and profiles (one file each), the examples (`examples`).

use std::collections::{BTreeMap, BTreeSet};

use super::{Bundle, BundleFault, BundleForm, ClassRule, IDENTITY_KEYS, examples, fold_key};
use crate::id::ModelName;
use crate::json::Json;
use crate::profile::{Harness, Profile, ProfileForm};
use crate::tool::SECRET_PREFIX;

mod budget;
mod hook;
mod model;
mod policy;
mod profile;
mod tool;
mod url;
mod vote;

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
    if form.identity_keys.iter().any(|key| fold_key(key).is_empty()) {
        check.fault("/identity_keys", "identity_key", "a key needs a character besides `_` and `-`");
    }
    let keys: BTreeSet<String> =
        IDENTITY_KEYS.into_iter().map(fold_key).chain(form.identity_keys.iter().map(|key| fold_key(key))).collect();
    for (name, model) in &form.models {
        check.model(&form.models, name, model);
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
        policy: None,
        identity_keys: keys,
        admission: form.admission,
        observers: form.observers,
        tenant_budget: form.tenant_budget,
        tenant_limits: form.tenant_limits,
    };
    // Mutating hooks come first; within a kind the order of the bundle stays.
    bundle.admission.sort_by_key(|hook| hook.kind);
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
    check.offered(&bundle);
    check.classification(&bundle);
    check.hooks(&bundle);
    check.tenant(&bundle);
    if let Some(policies) = form.policies.filter(|_| check.faults.is_empty()) {
        match policy::compile(&policies, &bundle) {
            Ok(policy) => bundle.policy = Some(policy),
            Err(faults) => check.faults.extend(faults),
        }
    }
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

    fn secret(&mut self, path: String, name: Option<&str>) {
        if name.is_some_and(|name| !name.starts_with(SECRET_PREFIX)) {
            let detail = format!("a bundle may name only variables that begin with {SECRET_PREFIX}");
            self.fault(path, "secret_name", detail);
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
                self.evidence(bundle, &format!("{path}/trace_requirements"), &rule.trace_requirements, profile);
            }
        }
    }
}
