//! Puts the events of a streamed response together. Items count when they are done; the last event repeats the whole
//! response, and where it does not, the items that came are the response. What is not here: bytes and events (`stream`).

use std::collections::BTreeMap;

use serde_json::{Value, json};
use toolgate_core::proposal::{BallotVerdict, MalformedReason, ProviderFailure};

use super::response::{answer, failure};
use crate::answer::Answer;
use crate::delta::Delta;
use crate::failure::error_in_body;
use crate::judge::MAX_CALLS;
use crate::quote::{clip, failed, malformed};
use crate::stream::Flow;
use crate::wire::name_in;

/// Most items of one response.
const MAX_ITEMS: u64 = 4 * MAX_CALLS as u64;

/// The response so far.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    items: BTreeMap<u64, Value>,
    /// Which call an item is, for those who watch.
    calls: BTreeMap<u64, usize>,
    /// The response as it began or ended.
    response: Value,
    has_end: bool,
}

impl Parts {
    /// Takes the next event.
    pub(crate) fn event(&mut self, name: &str, event: &Value, deltas: &mut Vec<Delta>) -> Result<Flow, BallotVerdict> {
        let kind = event.get("type").and_then(Value::as_str).unwrap_or(name);
        if let Some(verdict) = error_in_body(event) {
            return Err(verdict);
        }
        let index = event.get("output_index").and_then(Value::as_u64).unwrap_or_default();
        let text = |key: &str| event.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        match kind {
            "error" => {
                let said = name_in(event, "message").unwrap_or_else(|| clip(&event.to_string(), 200));
                let code = name_in(event, "code").unwrap_or_default();
                let error = json!({"error": {"code": code, "message": said}});
                return Err(error_in_body(&error)
                    .unwrap_or_else(|| failed(ProviderFailure::ServerError, "an error in the stream")));
            }
            "response.created" | "response.in_progress" => self.begin(event),
            "response.completed" | "response.incomplete" | "response.failed" => {
                self.begin(event);
                self.has_end = true;
                return match failure(&self.response) {
                    Some(verdict) => Err(verdict),
                    None => Ok(Flow::Ended),
                };
            }
            "response.output_item.added" => {
                let item = event.get("item").unwrap_or(&Value::Null);
                if item.get("type") == Some(&json!("function_call")) {
                    let at = self.calls.len();
                    self.calls.insert(index.min(MAX_ITEMS), at);
                    deltas.push(Delta::Call { at, name: name_in(item, "name").unwrap_or_default() });
                }
            }
            "response.output_item.done" => {
                if index >= MAX_ITEMS {
                    let said = format!("more than {MAX_ITEMS} items in one response");
                    return Err(malformed(MalformedReason::TooLarge, &said));
                }
                self.items.insert(index, event.get("item").cloned().unwrap_or(Value::Null));
            }
            "response.output_text.delta" => deltas.push(Delta::Text(text("delta"))),
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                deltas.push(Delta::Reasoning(text("delta")));
            }
            "response.function_call_arguments.delta" => {
                if let Some(at) = self.calls.get(&index) {
                    deltas.push(Delta::Arguments { at: *at, text: text("delta") });
                }
            }
            _ => {}
        }
        Ok(Flow::More)
    }

    fn begin(&mut self, event: &Value) {
        if let Some(response) = event.get("response").filter(|response| response.is_object()) {
            self.response = response.clone();
        }
    }

    /// The answer, and whether it has its end.
    pub(crate) fn finish(self) -> (Answer, bool) {
        let repeated = self.response.get("output").and_then(Value::as_array).filter(|items| !items.is_empty());
        let gathered: Vec<Value>;
        let items = match repeated {
            Some(items) => items,
            None => {
                gathered = self.items.into_values().collect();
                &gathered
            }
        };
        (answer(&self.response, items), self.has_end)
    }
}
