//! Checks of one model's settings. What is not here: whether profiles may use it (`profile`, `budget`).

use std::collections::BTreeMap;

use super::Check;
use crate::bundle::Bundle;
use crate::bundle::model::{ModelDef, Prices, Provider};
use crate::id::ModelName;

/// Bytes of all tools of one profile together, as models are shown them.
const MAX_OFFERED: usize = 1 << 20;
/// Bytes of a schema that make a token; more than tokenizers take of English, so that what surely fits is let pass.
const BYTES_PER_TOKEN: usize = 5;

impl Check {
    pub(super) fn model(&mut self, all: &BTreeMap<ModelName, ModelDef>, name: &ModelName, model: &ModelDef) {
        let path = format!("/models/{name}");
        self.range(format!("{path}/timeout_ms"), model.timeout_ms, 1, 600_000);
        self.range(format!("{path}/retries"), u64::from(model.retries), 0, 10);
        self.secret(format!("{path}/api_key_env"), model.api_key_env.as_deref());
        for (name, price) in figures(model.prices.unwrap_or_default()) {
            self.range(format!("{path}/prices/{name}"), price, 0, 1_000_000_000_000);
        }
        self.range(format!("{path}/max_concurrency"), u64::from(model.max_concurrency), 1, 10_000);
        self.range(format!("{path}/min_interval_ms"), model.min_interval_ms, 0, 60_000);
        if let Some(limit) = model.max_concurrency_per_tenant {
            self.range(format!("{path}/max_concurrency_per_tenant"), u64::from(limit), 1, 10_000);
        }
        for (name, limit) in [
            ("connect_timeout_ms", model.connect_timeout_ms),
            ("first_byte_timeout_ms", model.first_byte_timeout_ms),
            ("idle_timeout_ms", model.idle_timeout_ms),
        ] {
            if let Some(limit) = limit {
                self.range(format!("{path}/{name}"), limit, 1, 600_000);
            }
        }
        if let Some(breaker) = model.breaker {
            self.range(format!("{path}/breaker/failures"), u64::from(breaker.failures), 1, 1_000);
            self.range(format!("{path}/breaker/open_ms"), breaker.open_ms, 1, 600_000);
        }
        self.fallback(all, &path, model);
        match model.provider {
            Provider::Scripted => {
                if model.script.is_empty() {
                    self.fault(format!("{path}/script"), "script", "a scripted model needs at least one answer");
                }
            }
            Provider::Openai | Provider::OpenaiResponses | Provider::Anthropic => {
                let url = model.base_url.as_deref().unwrap_or_default();
                self.url(format!("{path}/base_url"), url);
                if model.model.as_deref().unwrap_or_default().is_empty() {
                    self.fault(format!("{path}/model"), "model_id", "needs the provider's model id");
                }
                if !model.script.is_empty() {
                    self.fault(format!("{path}/script"), "script", "only a scripted model has a script");
                }
            }
        }
        if model.provider == Provider::Anthropic && model.max_output_tokens.is_none() {
            let detail = "this provider takes no request without a bound of the answer; set it";
            self.fault(format!("{path}/max_output_tokens"), "bounded_answer", detail);
        }
    }

    /// Every tool of a profile is offered to its models, or the bundle is refused: nothing is left out in silence.
    pub(super) fn offered(&mut self, bundle: &Bundle) {
        for (name, profile) in &bundle.profiles {
            let tools = profile.tools.iter().filter_map(|id| bundle.tools.get(id));
            let bytes: usize = tools
                .map(|tool| {
                    tool.id.as_str().len() + tool.def.description.len() + tool.parameters.shown().as_str().len()
                })
                .sum();
            let path = format!("/profiles/{name}/tools");
            if bytes > MAX_OFFERED {
                let detail = format!("{bytes} bytes of names, descriptions and schemas; at most {MAX_OFFERED}");
                self.fault(&path, "tools_size", detail);
            }
            let voters = profile.consensus.iter().flat_map(|consensus| &consensus.models);
            for (name, model) in profile.model.iter().chain(voters).filter_map(|name| bundle.models.get_key_value(name))
            {
                let tokens = bytes / BYTES_PER_TOKEN;
                // A script is shown nothing.
                let reads = model.max_input_tokens.filter(|_| model.provider != Provider::Scripted);
                let Some(window) = reads.and_then(|window| usize::try_from(window).ok()) else { continue };
                if tokens > window {
                    let detail = format!(
                        "the tools take about {tokens} tokens, and the model `{name}` reads at most {window}; \
                        offer fewer"
                    );
                    self.fault(&path, "tools_fit", detail);
                }
            }
        }
    }

    /// What is asked instead must exist, end the chain, and cost no more than what was set aside for the first.
    fn fallback(&mut self, all: &BTreeMap<ModelName, ModelDef>, path: &str, model: &ModelDef) {
        let Some(name) = &model.fallback else { return };
        let at = format!("{path}/fallback");
        let Some(other) = all.get(name) else {
            return self.fault(at, "model_exists", "names no model of this bundle");
        };
        if other.fallback.is_some() {
            self.fault(&at, "one_fallback", "the model it names has a fallback itself; one is followed");
        }
        let first = figures(model.prices.unwrap_or_default());
        let dearer = figures(other.prices.unwrap_or_default()).iter().zip(&first).any(|(then, now)| then.1 > now.1);
        let more = |first: Option<u32>, then: Option<u32>| match (first, then) {
            (Some(first), Some(then)) => then > first,
            (Some(_), None) => other.provider != Provider::Scripted,
            (None, _) => false,
        };
        let longer = more(model.max_output_tokens, other.max_output_tokens)
            || more(model.max_input_tokens, other.max_input_tokens);
        if dearer || longer || (model.prices.is_some() && other.prices.is_none()) {
            let detail = "the model it names may cost more than what is set aside: its `prices` and bounds of \
                          tokens must be given where this model's are, and be no higher";
            self.fault(at, "fallback_price", detail);
        }
    }
}

const fn figures(prices: Prices) -> [(&'static str, u64); 3] {
    [
        ("input_microusd_per_million", prices.input_microusd_per_million),
        ("output_microusd_per_million", prices.output_microusd_per_million),
        ("call_microusd", prices.call_microusd),
    ]
}
