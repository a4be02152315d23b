//! Reads a whole message. Arguments keep the very text they came in. What is not here: streams (`stream`), what the answer
//! amounts to (`judge`).

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use toolgate_core::proposal::BallotVerdict;

use super::{BLOCKS, finish_of, is_thought, usage};
use crate::answer::{Answer, RawCall};
use crate::failure::error_in_body;
use crate::wire::{name_in, not_a_completion};

/// The text of arguments as they stand in the body.
#[derive(Deserialize)]
struct Written<'a> {
    #[serde(borrow)]
    content: Vec<Block<'a>>,
}

#[derive(Deserialize)]
struct Block<'a> {
    #[serde(borrow, default)]
    input: Option<&'a RawValue>,
}

/// Takes a body apart, or gives the verdict on one that holds no message. `text` is the body's text.
pub(crate) fn read(body: &Value, text: &str) -> Result<Answer, BallotVerdict> {
    if let Some(verdict) = error_in_body(body) {
        return Err(verdict);
    }
    let blocks = body
        .get("content")
        .and_then(Value::as_array)
        .ok_or_else(|| not_a_completion("no `content` list in the body"))?;
    let written = serde_json::from_str::<Written<'_>>(text).map(|written| written.content).unwrap_or_default();
    let mut notes = Vec::new();
    let finish = finish_of(body.get("stop_reason").and_then(Value::as_str), &mut notes);
    let raw = |at: usize| written.get(at).and_then(|block| block.input).map(|input| json!(input.get()));
    let mut gathered = Gathered::default();
    for (at, block) in blocks.iter().enumerate() {
        gathered.take(block, raw(at).or_else(|| block.get("input").cloned()));
    }
    let mut answer = gathered.finish(finish, notes);
    answer.usage = usage(body);
    answer.model = name_in(body, "model");
    Ok(answer)
}

/// Blocks, sorted.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    text: String,
    calls: Vec<Option<RawCall>>,
    thoughts: Vec<Value>,
}

impl Gathered {
    /// Takes a complete block; `input` is the text of its arguments, or the arguments.
    pub(super) fn take(&mut self, block: &Value, input: Option<Value>) {
        match block.get("type").and_then(Value::as_str) {
            Some("text") => self.text.push_str(block.get("text").and_then(Value::as_str).unwrap_or_default()),
            Some("tool_use") => {
                self.calls.push(Some(RawCall {
                    id: name_in(block, "id"),
                    name: name_in(block, "name"),
                    args: input,
                    extra: None,
                }));
            }
            _ if is_thought(block) => self.thoughts.push(block.clone()),
            // Blocks of the provider's own tools ask for nothing here.
            _ => {}
        }
    }

    pub(super) fn finish(self, finish: crate::answer::Finish, notes: Vec<String>) -> Answer {
        let mut fields = Map::new();
        if !self.thoughts.is_empty() {
            fields.insert(BLOCKS.to_owned(), Value::Array(self.thoughts));
        }
        Answer {
            finish,
            text: self.text,
            calls: self.calls,
            fields,
            notes,
            usage: toolgate_core::proposal::Usage::default(),
            model: None,
            fingerprint: None,
        }
    }
}
