//! Puts the events of a streamed message together, block by block. What is not here: bytes and events (`stream`, `sse`).

use std::collections::BTreeMap;

use serde_json::{Value, json};
use toolgate_core::proposal::{BallotVerdict, MalformedReason, Usage};

use super::message::Gathered;
use super::{finish_of, usage};
use crate::answer::{Answer, Finish};
use crate::delta::Delta;
use crate::failure::error_in_body;
use crate::judge::MAX_CALLS;
use crate::quote::malformed;
use crate::stream::Flow;
use crate::wire::name_in;

/// Most blocks of one message.
const MAX_BLOCKS: usize = 4 * MAX_CALLS;

/// A block so far.
#[derive(Debug)]
struct Block {
    start: Value,
    text: String,
    signature: String,
    input: String,
    is_closed: bool,
    /// Which call of the message it is, where it is one.
    call: usize,
}

/// The message so far.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    blocks: BTreeMap<u64, Block>,
    calls: usize,
    stop: Option<String>,
    usage: Usage,
    model: Option<String>,
}

impl Parts {
    /// Takes the next event.
    pub(crate) fn event(&mut self, name: &str, event: &Value, deltas: &mut Vec<Delta>) -> Result<Flow, BallotVerdict> {
        if let Some(verdict) = error_in_body(event) {
            return Err(verdict);
        }
        match event.get("type").and_then(Value::as_str).unwrap_or(name) {
            "message_start" => {
                let message = event.get("message").unwrap_or(&Value::Null);
                self.model = name_in(message, "model");
                self.spent(usage(message));
            }
            "content_block_start" => self.begin(event, deltas)?,
            "content_block_delta" => self.grow(event, deltas),
            "content_block_stop" => {
                if let Some(block) = self.block(event) {
                    block.is_closed = true;
                }
            }
            "message_delta" => {
                let reason = event.get("delta").and_then(|delta| delta.get("stop_reason")).and_then(Value::as_str);
                self.stop = reason.map(str::to_owned).or_else(|| self.stop.take());
                self.spent(usage(event));
            }
            "message_stop" => return Ok(Flow::Ended),
            _ => {}
        }
        Ok(Flow::More)
    }

    /// Figures come in several events, and some gateways give the input only in the last.
    fn spent(&mut self, usage: Usage) {
        self.usage.input_tokens =
            usage.input_tokens.filter(|n| *n > 0).or(self.usage.input_tokens).or(usage.input_tokens);
        self.usage.output_tokens = usage.output_tokens.or(self.usage.output_tokens);
    }

    fn block(&mut self, event: &Value) -> Option<&mut Block> {
        let index = event.get("index").and_then(Value::as_u64).unwrap_or_default();
        self.blocks.get_mut(&index)
    }

    fn begin(&mut self, event: &Value, deltas: &mut Vec<Delta>) -> Result<(), BallotVerdict> {
        let index = event.get("index").and_then(Value::as_u64).unwrap_or_default();
        if self.blocks.len() >= MAX_BLOCKS || self.blocks.contains_key(&index) {
            let said = "the parts of the answer are too many, or two of them have one number";
            return Err(malformed(MalformedReason::TooLarge, said));
        }
        let start = event.get("content_block").cloned().unwrap_or(Value::Null);
        let call = self.calls;
        if start.get("type") == Some(&json!("tool_use")) {
            self.calls += 1;
            deltas.push(Delta::Call { at: call, name: name_in(&start, "name").unwrap_or_default() });
        }
        let text = |key: &str| start.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (said, signature) = (format!("{}{}", text("text"), text("thinking")), text("signature"));
        self.blocks.insert(index, Block { start, text: said, signature, input: String::new(), is_closed: false, call });
        Ok(())
    }

    fn grow(&mut self, event: &Value, deltas: &mut Vec<Delta>) {
        let Some(block) = self.block(event) else { return };
        let delta = event.get("delta").unwrap_or(&Value::Null);
        let text = |key: &str| delta.get(key).and_then(Value::as_str).unwrap_or_default();
        block.signature.push_str(text("signature"));
        for (key, piece) in
            [("text", text("text")), ("thinking", text("thinking")), ("partial_json", text("partial_json"))]
        {
            if piece.is_empty() {
                continue;
            }
            let piece = piece.to_owned();
            match key {
                "text" => {
                    block.text.push_str(&piece);
                    deltas.push(Delta::Text(piece));
                }
                "thinking" => {
                    block.text.push_str(&piece);
                    deltas.push(Delta::Reasoning(piece));
                }
                _ => {
                    block.input.push_str(&piece);
                    deltas.push(Delta::Arguments { at: block.call, text: piece });
                }
            }
        }
    }

    /// The answer, and whether it has its end: a stop reason, with all its blocks closed.
    pub(crate) fn finish(self) -> (Answer, bool) {
        let is_complete = self.stop.is_some() && self.blocks.values().all(|block| block.is_closed);
        let mut notes = Vec::new();
        let finish = if is_complete { finish_of(self.stop.as_deref(), &mut notes) } else { Finish::Aborted };
        let mut gathered = Gathered::default();
        for block in self.blocks.into_values() {
            let (whole, input) = block.whole();
            gathered.take(&whole, input);
        }
        let mut answer = gathered.finish(finish, notes);
        answer.usage = self.usage;
        answer.model = self.model;
        (answer, is_complete)
    }
}

impl Block {
    /// The block as a whole message would have it, and the text of its arguments.
    fn whole(self) -> (Value, Option<Value>) {
        let mut whole = self.start;
        let kind = whole.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
        // Without a piece of text the arguments are those that the block began with, `{}`.
        let input = if self.input.is_empty() { whole.get("input").cloned() } else { Some(json!(self.input)) };
        if let Some(map) = whole.as_object_mut() {
            match kind.as_str() {
                "text" => _ = map.insert("text".to_owned(), json!(self.text)),
                "thinking" => {
                    map.insert("thinking".to_owned(), json!(self.text));
                    map.insert("signature".to_owned(), json!(self.signature));
                }
                _ => {}
            }
        }
        let input = input.map(|input| if input.is_object() { json!(input.to_string()) } else { input });
        (whole, input)
    }
}
