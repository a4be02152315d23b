//! Checks of budgets: what counts tokens or money needs models whose calls have a largest size and a price.

use super::Check;
use crate::bundle::Bundle;
use crate::bundle::model::{ModelDef, Provider};
use crate::id::ModelName;
use crate::profile::Profile;

const MAX_TENANT_LIMITS: usize = 16;
/// Shortest and longest window of the ledger, in milliseconds.
const WINDOW_MS: (u64, u64) = (60_000, 2_678_400_000);

impl Check {
    /// The tenant's budget and limits.
    pub(super) fn tenant(&mut self, bundle: &Bundle) {
        let budget = &bundle.tenant_budget;
        self.window("/tenant_budget", budget.window_ms);
        for (name, profile) in &bundle.profiles {
            let path = format!("/profiles/{name}");
            let (tokens, cost) = (budget.max_tokens.is_some(), budget.max_cost_microusd.is_some());
            self.countable(bundle, &path, profile, tokens, cost);
        }
        self.limit("/tenant_limits", bundle.tenant_limits.len(), MAX_TENANT_LIMITS);
        for (name, rule) in &bundle.tenant_limits {
            let path = format!("/tenant_limits/{name}");
            self.window(&path, rule.window_ms);
            self.target(bundle, &format!("{path}/on"), &rule.on);
            if rule.max_count.is_none() && rule.max_sum.is_none() {
                self.fault(&path, "bounds", "bounds nothing; name `max_count`, or `argument` and `max_sum`");
            }
            if rule.argument.is_some() != rule.max_sum.is_some() {
                self.fault(&path, "bounds", "`argument` and `max_sum` go together");
            }
            if let Some(pointer) = rule.argument.as_ref() {
                self.summed(bundle, &path, rule.on.clone(), pointer);
            }
            for profile in rule.profiles.iter().filter(|name| !bundle.profiles.contains_key(*name)) {
                let detail = format!("`{profile}` is no profile of this bundle");
                self.fault(format!("{path}/profiles"), "profile_exists", detail);
            }
        }
    }

    /// An argument that is added up must be declared as a whole number by every tool that the rule is about.
    fn summed(&mut self, bundle: &Bundle, path: &str, on: crate::profile::Target, pointer: &str) {
        for tool in bundle.tools.values().filter(|tool| on.fits(&tool.id, &tool.def)) {
            let schema = tool.parameters.shown().value();
            let place: String = pointer.split('/').skip(1).map(|token| format!("/properties/{token}")).collect();
            let kind = schema.pointer(&format!("{place}/type")).and_then(|kind| kind.as_str().map(ToOwned::to_owned));
            if !pointer.starts_with('/') || kind.as_deref() != Some("integer") {
                let detail = format!("`{pointer}` is no argument of type `integer` of the tool `{}`", tool.id);
                self.fault(format!("{path}/argument"), "argument_exists", detail);
            }
        }
    }

    fn window(&mut self, path: &str, window_ms: Option<u64>) {
        if let Some(window_ms) = window_ms {
            self.range(format!("{path}/window_ms"), window_ms, WINDOW_MS.0, WINDOW_MS.1);
        }
    }

    /// The budgets of a profile's runs and sessions.
    pub(super) fn budgets(&mut self, bundle: &Bundle, path: &str, profile: &Profile) {
        let harness = profile.harness.as_ref();
        let run = harness.map_or((None, None), |harness| (harness.max_tokens, harness.max_cost_microusd));
        let session = &profile.session_budget;
        for (name, bound) in [
            ("harness/max_tokens", run.0),
            ("session_budget/max_tokens", session.max_tokens),
            ("session_budget/max_model_calls", session.max_model_calls),
        ] {
            if bound == Some(0) {
                self.fault(format!("{path}/{name}"), "can_start", "0 lets no model be asked; leave it out or raise it");
            }
        }
        let tokens = run.0.is_some() || session.max_tokens.is_some();
        let cost = run.1.is_some() || session.max_cost_microusd.is_some();
        self.countable(bundle, path, profile, tokens, cost);
    }

    fn countable(&mut self, bundle: &Bundle, path: &str, profile: &Profile, tokens: bool, cost: bool) {
        let voters = profile.consensus.iter().flat_map(|consensus| &consensus.models);
        let summarizer = profile.summarize.iter().map(|summarize| &summarize.model);
        let named = profile.model.iter().chain(voters).chain(summarizer);
        for (name, model) in named.filter_map(|name| bundle.models.get(name).map(|model| (name, model))) {
            self.countable_model(path, name, model, tokens, cost);
        }
    }

    fn countable_model(&mut self, path: &str, name: &ModelName, model: &ModelDef, tokens: bool, cost: bool) {
        if cost && model.prices.is_none() {
            let detail = format!("money is bounded, but the model `{name}` has no `prices`");
            self.fault(format!("{path}/model"), "priced", detail);
        }
        let priced_by_token = model.prices.is_some_and(|prices| prices.output_microusd_per_million > 0);
        let needs_size = (tokens && model.provider != Provider::Scripted) || (cost && priced_by_token);
        if needs_size && model.max_output_tokens.is_none() {
            let detail = format!(
                "tokens or money are bounded, but an answer of the model `{name}` may have any length; \
                set its `max_output_tokens`"
            );
            self.fault(format!("{path}/model"), "bounded_answer", detail);
        }
    }
}
