//! Checks of admission hooks and observers: names, addresses, and that each is about some tool.

use std::collections::BTreeSet;

use super::Check;
use crate::bundle::Bundle;
use crate::profile::Target;

const MAX_HOOKS: usize = 32;

impl Check {
    pub(super) fn hooks(&mut self, bundle: &Bundle) {
        self.limit("/admission", bundle.admission.len(), MAX_HOOKS);
        self.limit("/observers", bundle.observers.len(), MAX_HOOKS);
        let mut names = BTreeSet::new();
        for hook in &bundle.admission {
            // Hooks are sorted by kind, so that their places are named by what they are called.
            let path = format!("/admission/{}", hook.name);
            if !names.insert(&hook.name) {
                self.fault(&path, "duplicate", "two hooks have this name");
            }
            self.endpoint(&path, &hook.url, hook.bearer_env.as_deref());
            self.range(format!("{path}/timeout_ms"), hook.timeout_ms, 1, 30_000);
            self.target(bundle, &format!("{path}/on"), &hook.on);
        }
        let mut names = BTreeSet::new();
        for observer in &bundle.observers {
            let path = format!("/observers/{}", observer.name);
            if !names.insert(&observer.name) {
                self.fault(&path, "duplicate", "two observers have this name");
            }
            self.endpoint(&path, &observer.url, observer.bearer_env.as_deref());
            if observer.on.is_empty() {
                self.fault(format!("{path}/on"), "observes", "is told of nothing; name `call`, `step` or `run`");
            }
        }
    }

    fn endpoint(&mut self, path: &str, url: &str, bearer_env: Option<&str>) {
        self.url(format!("{path}/url"), url);
        self.secret(format!("{path}/bearer_env"), bearer_env);
    }

    /// A target names all tools or some, and what it names exists.
    pub(super) fn target(&mut self, bundle: &Bundle, path: &str, target: &Target) {
        if target.all == target.narrows() {
            let detail = if target.all {
                "`all` beside other keys says two things; leave one out"
            } else {
                "names no tools; name `tools`, `classes` or `risks`, or write `\"all\": true`"
            };
            self.fault(path, "target", detail);
        }
        for id in target.tools.iter().filter(|id| !bundle.tools.contains_key(*id)) {
            self.fault(format!("{path}/tools"), "tool_exists", format!("`{id}` is no tool of this bundle"));
        }
        if !bundle.tools.is_empty() && !bundle.tools.values().any(|tool| target.fits(&tool.id, &tool.def)) {
            self.fault(path, "target", "fits no tool of this bundle");
        }
    }
}
