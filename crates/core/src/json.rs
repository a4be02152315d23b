//! JSON as evidence: a strict reader and one canonical text per value. What is not here: schema checks (`schema`).

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::id::Sha256Digest;

mod canonical;
mod strict;

pub use strict::{JsonFault, JsonFaultKind};

/// A JSON value in canonical form: RFC 8785, with 64-bit integers written digit for digit.
///
/// Consensus, approval binding, idempotency, loop detection and dispatch use these very bytes or their hash.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Json(String);

impl Json {
    /// Reads a JSON text strictly (see [`JsonFaultKind`] for what is refused) and makes it canonical.
    pub fn parse(text: &str) -> Result<Self, JsonFault> {
        strict::parse(text).map(|value| Self::from_value(&value))
    }

    /// The canonical form of a value that is already in memory.
    #[must_use]
    pub fn from_value(value: &Value) -> Self {
        Self(canonical::write(value))
    }

    /// The value `{}`.
    #[must_use]
    pub fn empty_object() -> Self {
        Self("{}".to_owned())
    }

    /// A JSON string.
    #[must_use]
    pub fn string(text: &str) -> Self {
        Self::from_value(&Value::String(text.to_owned()))
    }

    /// The canonical text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The value, read again from the canonical text.
    #[must_use]
    pub fn value(&self) -> Value {
        serde_json::from_str(&self.0).unwrap_or(Value::Null)
    }

    /// SHA-256 of the canonical bytes.
    #[must_use]
    pub fn hash(&self) -> Sha256Digest {
        Sha256Digest::of(self.0.as_bytes())
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Stored as a string that holds the canonical text, so that no reader in between can change a digit.
impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}
