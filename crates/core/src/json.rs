//! JSON as evidence: a strict reader and one canonical text per value. What is not here: schema checks (`schema`).

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::id::Sha256Digest;

mod canonical;
mod lexical;
mod strict;

pub use strict::{JsonFault, JsonFaultKind};
pub use toolgate_policy::written::{Misfit, read as read_typed};

/// Reads a JSON text strictly into a value, without making it canonical; see [`JsonFaultKind`] for what is refused.
pub fn read_strict(text: &str) -> Result<Value, JsonFault> {
    strict::parse(text)
}

/// A JSON value in canonical form: RFC 8785, with 64-bit integers written digit for digit.
///
/// Two texts that differ only in spacing, key order, escapes or the spelling of a number (`1`, `1.0`, `10e-1`) give one
/// value here. A `default` of a schema is not filled in and a `null` is not dropped: what was written is what is judged.
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
        let text = String::deserialize(deserializer)?;
        // What this type wrote it must read again, also the few doubles (2^64 to 1e21) that no outsider may send.
        let value: Result<Value, _> = serde_json::from_str(&text);
        if value.is_ok_and(|value| canonical::write(&value) == text) {
            return Ok(Self(text));
        }
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use proptest::prelude::{Just, Strategy, any, prop_oneof};
    use proptest::{collection, proptest};
    use serde_json::{Map, Number};

    use super::*;

    /// Any value the reader accepts, up to four levels deep.
    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<i16>().prop_map(|n| Value::from(f64::from(n))),
            any::<f64>()
                .prop_filter("readable", |f| f.is_finite()
                    && (canonical::is_whole_64(*f) || f.abs() >= 1e21 || f.fract() != 0.0))
                .prop_map(|f| Number::from_f64(f).map_or(Value::Null, Value::Number)),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 64, 8, |inner| {
            prop_oneof![
                collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                collection::vec((any::<String>(), inner), 0..6).prop_map(|pairs| Value::Object(Map::from_iter(pairs))),
            ]
        })
    }

    /// The same value with its objects written in reverse order, with spaces and escaped keys.
    fn other_spelling(value: &Value) -> String {
        match value {
            Value::Array(items) => {
                format!("[ {} ]", items.iter().map(other_spelling).collect::<Vec<_>>().join(" ,\n"))
            }
            Value::Object(map) => {
                let pairs = map.iter().rev().map(|(key, value)| {
                    let key: String = key.encode_utf16().map(|unit| format!("\\u{unit:04X}")).collect();
                    format!("\"{key}\" : {}", other_spelling(value))
                });
                format!("{{\t{}\t}}", pairs.collect::<Vec<_>>().join(",\r\n"))
            }
            Value::Number(number) if number.is_i64() && number.as_i64().is_some_and(|n| n.abs() < 1 << 50) => {
                format!("{number}.000E+0")
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
        }
    }

    proptest! {
        #[test]
        fn canonical_text_is_stable(value in value()) {
            let once = Json::from_value(&value);
            let again = Json::parse(once.as_str()).unwrap();
            assert_eq!(once, again);
            assert_eq!(Json::from_value(&again.value()), again);
            let stored = serde_json::to_string(&once).unwrap();
            assert_eq!(serde_json::from_str::<Json>(&stored).unwrap(), once);
        }

        #[test]
        fn equal_values_have_equal_text(value in value()) {
            let spelled = other_spelling(&value);
            assert_eq!(Json::parse(&spelled).unwrap(), Json::from_value(&value), "{spelled}");
        }

        #[test]
        fn different_integers_have_different_text(a in any::<i64>(), b in any::<u64>()) {
            assert_eq!(i128::from(a) == i128::from(b), Json::from_value(&a.into()) == Json::from_value(&b.into()));
        }

        #[test]
        fn no_text_makes_the_reader_panic(text in any::<String>(), cut in 0_usize..200) {
            let _ = Json::parse(&text);
            let deep = "{\"k\":[\"\\ud83d\\ude00\",1e5,-0.5]}".repeat(8);
            let _ = Json::parse(deep.get(..cut).unwrap_or_default());
        }
    }

    #[test]
    fn spellings_of_one_number_are_one_value() {
        let one = Json::parse("1").unwrap();
        for text in ["1.0", "1e0", "10e-1", " 1 ", "100E-2"] {
            assert_eq!(Json::parse(text).unwrap(), one, "{text}");
        }
        assert_eq!(Json::parse("1e3").unwrap().as_str(), "1000");
        assert_eq!(Json::parse("-0").unwrap().as_str(), "0");
        assert_eq!(Json::parse("-0.0").unwrap().as_str(), "0");
        assert_ne!(Json::parse("9007199254740993").unwrap(), Json::parse("9007199254740992").unwrap());
        assert_ne!(Json::parse("true").unwrap(), one);
        assert_ne!(Json::parse("{\"a\":null}").unwrap(), Json::parse("{}").unwrap());
    }

    #[test]
    fn stored_text_must_be_json() {
        assert!(serde_json::from_str::<Json>("\"{\"").is_err());
        assert!(serde_json::from_str::<Json>("\"{\\\"a\\\":1,\\\"a\\\":1}\"").is_err());
        assert_eq!(serde_json::from_str::<Json>("\"1e20\"").ok(), None);
        let large = Json::from_value(&serde_json::json!(1e20));
        assert_eq!(serde_json::from_str::<Json>(&serde_json::to_string(&large).unwrap()).unwrap(), large);
    }
}
