//! A scripted model, built step by step. It goes through the decoders as a real one does, fails when its answers run out,
//! and finds its place from the log, so that a restart does not confuse it. What is not here: the model (`scripted`).

use serde_json::{Value, json};
use toolgate_core::bundle::model::ModelDef;
use toolgate_core::proposal::ProviderFailure;

/// Answers in order.
#[derive(Debug, Clone, Default)]
pub struct Script {
    answers: Vec<Value>,
    repeat_last: bool,
}

impl Script {
    /// No answers yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks for these calls. Arguments given as a string are the text a provider would send, so that they can be broken.
    #[must_use]
    pub fn calls(mut self, calls: &[(&str, Value)]) -> Self {
        let calls: Vec<Value> = calls.iter().map(|(tool, args)| json!({"tool": tool, "args": args})).collect();
        self.answers.push(json!({ "calls": calls }));
        self
    }

    /// Says done with this output.
    #[must_use]
    pub fn done(mut self, output: &Value) -> Self {
        self.answers.push(json!({ "done": output }));
        self
    }

    /// Answers this raw text, which is read as an envelope.
    #[must_use]
    pub fn text(mut self, text: &str) -> Self {
        self.answers.push(json!({ "text": text }));
        self
    }

    /// Fails as a provider does.
    #[must_use]
    pub fn fail(mut self, reason: ProviderFailure) -> Self {
        self.answers.push(json!({ "fail": reason }));
        self
    }

    /// Repeats the last answer for ever instead of failing when the answers run out.
    #[must_use]
    pub const fn repeat_last(mut self) -> Self {
        self.repeat_last = true;
        self
    }

    /// The entry for a bundle's `models`.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({"provider": "scripted", "script": self.answers, "repeat_last": self.repeat_last})
    }

    /// The definition; fails only where an answer cannot be written in a bundle.
    pub fn model(&self) -> Result<ModelDef, serde_json::Error> {
        serde_json::from_value(self.to_json())
    }
}
