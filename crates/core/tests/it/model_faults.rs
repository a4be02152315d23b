//! Faults of a model's settings: times, places, the breaker, the fallback. What is not here: keys, addresses and prices
//! (`faults`, `bundles`).

use serde_json::{Value, json};

use crate::faults::{Case, refused};

/// A profile with more than all its tools may take together.
fn large() -> Value {
    let schema = json!({"properties": {"p": {"type": "string", "description": "x".repeat(30_000)}}});
    let tool = json!({"description": "x", "venue": "client", "parameters": schema});
    let names: Vec<String> = (0..40).map(|n| format!("x{n}")).collect();
    let tools: serde_json::Map<String, Value> = names.iter().map(|name| (name.clone(), tool.clone())).collect();
    json!({"tools": tools, "profiles": {"large": names}})
}

pub(crate) fn cases() -> Vec<Case> {
    let real = |patch: Value| json!({"models": {"real": patch}});
    let prices = json!({"input_microusd_per_million": 1, "output_microusd_per_million": 2, "call_microusd": 4});
    let scripted = |patch: Value| json!({"models": {"scripted": patch}});
    let other = json!({"provider": "openai", "base_url": "https://m.example.com/v1", "model": "m"});
    vec![
        (real(json!({"min_interval_ms": 60_001})), "/models/real/min_interval_ms", "range"),
        (real(json!({"max_concurrency_per_tenant": 0})), "/models/real/max_concurrency_per_tenant", "range"),
        (real(json!({"first_byte_timeout_ms": 0})), "/models/real/first_byte_timeout_ms", "range"),
        (real(json!({"connect_timeout_ms": 0})), "/models/real/connect_timeout_ms", "range"),
        (real(json!({"idle_timeout_ms": 600_001})), "/models/real/idle_timeout_ms", "range"),
        (real(json!({"breaker": {"failures": 0}})), "/models/real/breaker/failures", "range"),
        (real(json!({"breaker": {"open_ms": 600_001}})), "/models/real/breaker/open_ms", "range"),
        (real(json!({"fallback": "none"})), "/models/real/fallback", "model_exists"),
        (scripted(json!({"fallback": "real"})), "/models/real/fallback", "one_fallback"),
        (real(json!({"fallback": "real"})), "/models/real/fallback", "one_fallback"),
        (scripted(json!({"prices": prices})), "/models/real/fallback", "fallback_price"),
        (scripted(json!({"prices": null})), "/models/real/fallback", "fallback_price"),
        (scripted(json!({"max_output_tokens": 101})), "/models/real/fallback", "fallback_price"),
        (
            json!({"models": {"real": {"fallback": "other", "prices": null}, "other": other}}),
            "/models/real/fallback",
            "fallback_price",
        ),
        (real(json!({"max_input_tokens": 1})), "/profiles/long/tools", "tools_fit"),
        (large(), "/profiles/large/tools", "tools_size"),
        (
            real(json!({"provider": "anthropic", "max_output_tokens": null})),
            "/models/real/max_output_tokens",
            "bounded_answer",
        ),
    ]
}

#[test]
fn settings_of_models_are_checked() {
    refused(&cases());
}
