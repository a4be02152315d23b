//! Anthropic's messages interface. What is not here: what an answer amounts to (`judge`), sending (`exchange`).

use serde_json::Value;
use toolgate_core::proposal::Usage;

use crate::answer::{Finish, add_note};
use crate::quote::clip;

pub(crate) mod message;
pub(crate) mod request;
pub(crate) mod stream;

/// The version of the interface that is spoken.
pub(crate) const VERSION: &str = "2023-06-01";
/// Where blocks of thought are kept that must go back.
pub(crate) const BLOCKS: &str = "blocks";

fn finish_of(reason: Option<&str>, notes: &mut Vec<String>) -> Finish {
    let Some(reason) = reason else {
        add_note(notes, "finish_reason_missing");
        return Finish::Whole;
    };
    match reason {
        "end_turn" | "stop_sequence" => Finish::Whole,
        "tool_use" => Finish::CallsAnnounced,
        "max_tokens" | "model_context_window_exceeded" => Finish::Cut,
        "refusal" => Finish::Filtered,
        // The provider paused work of its own, which is never asked for.
        "pause_turn" => Finish::Aborted,
        other => {
            notes.push(format!("finish_reason_unknown:{}", clip(other, 40)));
            Finish::Whole
        }
    }
}

/// What the provider says it spent; tokens that came from its cache count as read.
fn usage(body: &Value) -> Usage {
    let count = |key: &str| body.get("usage").and_then(|usage| usage.get(key)).and_then(Value::as_u64);
    let cached = ["cache_creation_input_tokens", "cache_read_input_tokens"].iter().filter_map(|key| count(key));
    let cached = cached.fold(0_u64, u64::saturating_add);
    Usage {
        input_tokens: count("input_tokens").map(|tokens| tokens.saturating_add(cached)),
        output_tokens: count("output_tokens"),
    }
}

fn is_thought(block: &Value) -> bool {
    matches!(block.get("type").and_then(Value::as_str), Some("thinking" | "redacted_thinking"))
}
