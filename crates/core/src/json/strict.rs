//! Reads JSON without forgiving anything: every ambiguity that two readers could settle differently is refused by
//! name. What is not here: the faults serde_json cannot name (`lexical`), and writing (`canonical`).

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::lexical;

/// Objects and arrays inside each other, at most.
pub(super) const MAX_DEPTH: usize = 64;
/// Characters of the offending text that a fault quotes, at most.
const MAX_QUOTE: usize = 60;

/// What is wrong with a JSON text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JsonFaultKind {
    /// Not JSON at all (includes `NaN`, `Infinity`, comments, trailing commas, text after the value).
    Syntax,
    /// The same key twice in one object, however its characters are escaped.
    DuplicateKey,
    /// Nested deeper than 64.
    TooDeep,
    /// A whole number outside 64 bits whose digits a double would change, or a number that is not finite.
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
    /// Column, from 1, counted in bytes of UTF-8.
    pub column: usize,
}

pub(super) fn parse(text: &str) -> Result<Value, JsonFault> {
    let named = Cell::new(None);
    let mut reader = serde_json::Deserializer::from_str(text);
    let read =
        Strict { depth: 0, named: &named }.deserialize(&mut reader).and_then(|value| reader.end().map(|()| value));
    // A fault of the characters themselves wins only where it stands before the place serde_json stopped at.
    let lexical = lexical::first_fault(text);
    match (read, lexical) {
        (Ok(value), None) => Ok(value),
        (Ok(_), Some(fault)) => Err(fault),
        (Err(error), Some(fault)) if (fault.line, fault.column) <= (error.line(), error.column()) => Err(fault),
        (Err(error), _) => Err(fault_of(text, &error, named.get())),
    }
}

fn fault_of(text: &str, error: &serde_json::Error, named: Option<JsonFaultKind>) -> JsonFault {
    let (line, column) = (error.line().max(1), error.column().max(1));
    let shown = error.to_string();
    let reason = shown.strip_suffix(&format!(" at line {} column {}", error.line(), error.column())).unwrap_or(&shown);
    let detail = match named {
        Some(_) => reason.to_owned(),
        None if error.is_eof() => format!("not valid JSON: the text ends inside the value ({reason})"),
        None => format!("not valid JSON: {reason}, near `{}`{}", near(text, line, column), hint(text, line, column)),
    };
    JsonFault { kind: named.unwrap_or(JsonFaultKind::Syntax), detail, line, column }
}

/// The text around a place, on one line.
fn near(text: &str, line: usize, column: usize) -> String {
    let offset = lexical::offset_of(text, line, column);
    let start = text.char_indices().map(|(at, _)| at).take_while(|at| *at <= offset.saturating_sub(20)).last();
    let tail = text.get(start.unwrap_or_default()..).unwrap_or_default();
    tail.chars().take(MAX_QUOTE).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// What would be right, for the slips models make most.
fn hint(text: &str, line: usize, column: usize) -> &'static str {
    let offset = lexical::offset_of(text, line, column);
    let before = text.get(..offset).unwrap_or_default();
    let here = text.get(offset..).unwrap_or_default();
    let last = before.trim_end().chars().next_back();
    match here.chars().next() {
        _ if ["NaN", "Infinity", "-Infinity"].iter().any(|word| here.starts_with(word)) => {
            "; NaN and Infinity are no JSON numbers"
        }
        Some('I') if last == Some('-') => "; NaN and Infinity are no JSON numbers",
        Some('}' | ']') if last == Some(',') => "; remove the comma before the closing bracket",
        Some('/') => "; comments are not allowed",
        Some(c) if c == '\'' || c.is_alphabetic() => "; keys and strings need double quotes",
        Some(c) if c.is_control() => "; write control characters inside strings as escapes such as \\n or \\t",
        _ => "",
    }
}

/// Builds a `Value`, refusing what `serde_json::Value` would let pass.
struct Strict<'a> {
    depth: usize,
    named: &'a Cell<Option<JsonFaultKind>>,
}

impl Strict<'_> {
    fn deeper<E: serde::de::Error>(&self) -> Result<Self, E> {
        if self.depth >= MAX_DEPTH {
            self.named.set(Some(JsonFaultKind::TooDeep));
            return Err(E::custom(format!("nested deeper than {MAX_DEPTH}")));
        }
        Ok(Self { depth: self.depth + 1, named: self.named })
    }
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| {
            self.named.set(Some(JsonFaultKind::NumberOutOfRange));
            E::custom("number is not finite")
        })
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element_seed(self.deeper()?)? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let inner = self.deeper::<A::Error>()?;
        let mut map = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            if map.contains_key(&key) {
                self.named.set(Some(JsonFaultKind::DuplicateKey));
                let quoted: String = key.chars().take(MAX_QUOTE).collect();
                return Err(A::Error::custom(format!("duplicate key `{quoted}`")));
            }
            let value = access.next_value_seed(Strict { depth: inner.depth, named: inner.named })?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    fn kind(text: &str) -> JsonFaultKind {
        parse(text).unwrap_err().kind
    }

    #[test]
    fn duplicate_keys_are_refused_at_any_depth_and_however_escaped() {
        for text in [r#"{"a":1,"a":2}"#, r#"[{"b":{"a":1,"\u0061":1}}]"#, r#"{"command":"ls","comm\u0061nd":"rm"}"#] {
            assert_eq!(kind(text), JsonFaultKind::DuplicateKey, "{text}");
        }
        assert!(parse(r#"{"a":{"a":1},"b":{"a":1}}"#).is_ok());
        assert!(parse(r#"{"a":1,"a":2}"#).unwrap_err().detail.contains("duplicate key `a`"));
    }

    #[test]
    fn depth_64_is_read_and_65_refused() {
        let nest = |open: &str, close: &str, n: usize| format!("{}1{}", open.repeat(n), close.repeat(n));
        for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
            assert!(parse(&nest(open, close, 64)).is_ok());
            assert_eq!(kind(&nest(open, close, 65)), JsonFaultKind::TooDeep);
            assert_eq!(kind(&nest(open, close, 200_000)), JsonFaultKind::TooDeep);
            assert_eq!(kind(&open.repeat(200_000)), JsonFaultKind::TooDeep);
        }
        let brackets_in_text = format!("\"{}\"", "[".repeat(1000));
        assert!(parse(&brackets_in_text).is_ok());
    }

    #[test]
    fn numbers_that_lose_digits_or_are_not_finite_are_refused() {
        let refused = [
            "18446744073709551616",
            "-9223372036854775809",
            "123456789012345678901234567890",
            "100000000000000000000",
            "1e20",
            "-1.5e19",
            "1e999",
            "-1e999",
            "[0, 1e400]",
        ];
        for text in refused {
            assert_eq!(kind(text), JsonFaultKind::NumberOutOfRange, "{text}");
        }
        for text in ["18446744073709551615", "-9223372036854775808", "1e21", "6.022e23", "1e-400", "-0", "1.5e300"] {
            assert!(parse(text).is_ok(), "{text}");
        }
        for text in ["NaN", "-Infinity", "Infinity", "{\"x\":NaN}", "01", "+1", ".5", "1.", "0x10"] {
            assert_eq!(kind(text), JsonFaultKind::Syntax, "{text}");
        }
        assert!(parse("{\"x\":-Infinity}").unwrap_err().detail.contains("no JSON numbers"));
    }

    #[test]
    fn lone_surrogates_are_refused_by_name() {
        for text in [
            r#""\ud800""#,
            r#""\udc00""#,
            r#""\ud800x""#,
            r#""\ud800\u0041""#,
            r#"{"\uDfff":1}"#,
            r#""\ud800\ud800\udc00""#,
        ] {
            assert_eq!(kind(text), JsonFaultKind::LoneSurrogate, "{text}");
        }
        assert!(parse(r#""\ud83d\ude00 \\ud800""#).is_ok());
    }

    #[test]
    fn syntax_faults_name_the_place_and_the_remedy() {
        let fault = parse("{\n  \"a\": 1,\n}").unwrap_err();
        assert_eq!((fault.kind, fault.line), (JsonFaultKind::Syntax, 3));
        assert!(fault.detail.contains("remove the comma"), "{}", fault.detail);
        for (text, word) in [
            ("{'query': 'x', 'limit': None}", "double quotes"),
            ("{query: \"x\"}", "double quotes"),
            ("{\"q\":\"x\" /* why */}", "comments"),
            ("{\"c\":\"\tif x {\n\t}\"}", "control character"),
            ("{} {}", "trailing characters"),
            ("{\"a\":\"b", "ends inside"),
            ("", "ends inside"),
            ("\u{feff}{}", "not valid JSON"),
        ] {
            let fault = parse(text).unwrap_err();
            assert_eq!(fault.kind, JsonFaultKind::Syntax, "{text}");
            assert!(fault.detail.contains(word), "{text}: {}", fault.detail);
            assert!(!fault.detail.contains("truncated"), "{}", fault.detail);
        }
    }

    #[test]
    fn the_first_fault_wins() {
        assert_eq!(kind(r#"{'a': 1e999}"#), JsonFaultKind::Syntax);
        assert_eq!(kind(r#"{"a": 1e999, 'b'}"#), JsonFaultKind::NumberOutOfRange);
        assert_eq!(kind(r#"{"a":1,"a":2,"b":"\ud800"}"#), JsonFaultKind::DuplicateKey);
    }
}
