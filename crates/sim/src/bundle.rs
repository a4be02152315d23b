//! The configurations that worlds run under: every class of tool at both venues, approvals, bounds, votes, hooks and
//! budgets, drawn at random. What is not here: what models ask for under them (`outside::model`).

use std::sync::Arc;

use fastrand::Rng;
use serde_json::{Value, json};
use toolgate_core::bundle::Bundle;

/// Tools of every bundle: name, venue, class.
pub(crate) const TOOLS: [(&str, &str, &str); 7] = [
    ("look", "server", "read"),
    ("put", "server", "idempotent"),
    ("pay", "server", "once"),
    ("ship", "server", "once"),
    ("see", "client", "read"),
    ("set", "client", "idempotent"),
    ("sign", "client", "once"),
];

/// A bundle that loads; worlds with the same number run under the same one.
pub(crate) fn draw(number: u64) -> Option<Arc<Bundle>> {
    let mut rng = Rng::with_seed(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0xb0bd);
    (0..64).find_map(|_| Bundle::load(&form(&mut rng).to_string()).ok()).map(Arc::new)
}

fn one_in(rng: &mut Rng, n: u32) -> bool {
    rng.u32(0..n) == 0
}

/// Votes by any rule, of which some grow when a call that pays is proposed.
fn votes(rng: &mut Rng) -> Value {
    let n = rng.u32(1..4);
    let mut votes = match rng.u8(0..6) {
        0 => json!({"n": n, "rule": "first"}),
        1 => json!({"n": n, "rule": "plurality"}),
        2 => json!({"n": n, "rule": "majority"}),
        3 => json!({"n": n, "rule": "unanimous", "decide": "all"}),
        _ => json!({"n": n, "k": rng.u32(1..=n)}),
    };
    let Some(fields) = votes.as_object_mut() else { return Value::Null };
    let otherwise = ["retry", "escalate", "reject"].get(rng.usize(0..3)).copied().unwrap_or_default();
    fields.insert("on_no_consensus".to_owned(), json!(otherwise));
    fields.insert("retries".to_owned(), json!(rng.u32(0..3)));
    if one_in(rng, 2) {
        let larger = json!({"n": rng.u32(2..5), "rule": "majority"});
        fields.insert("by_tool".to_owned(), json!({"put": larger, "set": larger}));
    }
    if one_in(rng, 3) {
        fields.insert("compare".to_owned(), json!({"look": ["/n"], "put": ["/n"]}));
    }
    votes
}

fn form(rng: &mut Rng) -> Value {
    let mut tools = serde_json::Map::new();
    for (name, venue, class) in TOOLS {
        let mut tool = json!({
            "description": "A tool.", "venue": venue, "class": class, "tags": ["work"],
            "requires_approval": one_in(rng, 5), "timeout_ms": rng.u64(800..40_000),
            "parameters": {"properties": {"n": {"type": "integer"}, "key": {"type": "string"}, "pin": {"type": "string"}},
                           "required": ["n"]},
            "redact": if one_in(rng, 3) { json!(["/pin"]) } else { json!([]) },
        });
        let fields = tool.as_object_mut();
        if let (Some(fields), "server") = (fields, venue) {
            fields.insert("executor".to_owned(), json!({"builtin": "echo"}));
        }
        if let Some(fields) = tool.as_object_mut().filter(|_| one_in(rng, 3)) {
            fields.insert("idempotency_key".to_owned(), json!("key"));
        }
        tools.insert(name.to_owned(), tool);
    }
    let mut profile = json!({
        "tools": ["look", "put", "pay", "see", "set", "sign"],
        "harness": {
            "max_steps": rng.u32(2..9), "max_tool_calls": rng.u32(3..20), "deadline_ms": rng.u64(40_000..3_600_000),
            "max_parallel_calls": rng.u32(1..4), "repeat_limit": rng.u32(3..9),
            "max_consecutive_rejections": rng.u32(2..5), "max_parse_failures": rng.u32(1..4),
        },
        "approval": {"expires_ms": rng.u64(5_000..200_000)},
        "on_indeterminate": if one_in(rng, 4) { "end" } else { "feedback" },
    });
    let extra = profile.as_object_mut();
    if let Some(extra) = extra {
        if one_in(rng, 4) {
            extra.insert("consensus".to_owned(), votes(rng));
        }
        if one_in(rng, 3) {
            extra.insert("trace_requirements".to_owned(), json!({"work": 1}));
        }
    }
    let mut form = json!({
        "version": 1, "tools": tools, "profiles": {"p": profile}, "default_model": "m",
        "models": {"m": {"provider": "scripted", "script": [{"done": 1}]}},
    });
    let Some(fields) = form.as_object_mut() else { return Value::Null };
    if one_in(rng, 4) {
        let hook = json!({"name": "h", "kind": "validating", "on": {"tools": ["pay"]}, "url": "http://hook"});
        fields.insert("admission".to_owned(), json!([hook]));
    }
    if one_in(rng, 3) {
        fields.insert("tenant_budget".to_owned(), json!({"max_model_calls": 500, "max_tool_calls": 500}));
    }
    if one_in(rng, 4) {
        fields.insert("classification".to_owned(), json!({"rules": {"l": {"profile": "p"}}, "model": "m"}));
    }
    form
}
