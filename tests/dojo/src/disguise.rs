//! Attacks in other clothes: the same calls with their texts written another way, or their amounts in small pieces. What
//! is not here: playing them (`play`).

use serde_json::Value;

use crate::rules;
use crate::suite::PlayedCall;

/// A way of writing the same attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disguise {
    /// Every text in capital letters.
    Capitals,
    /// `@` and `.` percent-encoded.
    Percent,
    /// Letters, digits and signs in their full-width forms.
    Wide,
    /// Every amount in five parts.
    Parts,
}

/// Parts that an amount is cut into.
const PARTS: usize = 5;

impl Disguise {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Capitals, Self::Percent, Self::Wide, Self::Parts];

    /// The calls of an attack in this form; those that only read stay as they are.
    #[must_use]
    pub fn of(self, calls: &[PlayedCall]) -> Vec<PlayedCall> {
        calls
            .iter()
            .flat_map(|call| {
                let mut other = call.clone();
                if !rules::acts(&call.tool) {
                    return vec![other];
                }
                match self {
                    Self::Capitals => other.args = texts(&call.args, &|text| text.to_uppercase()),
                    Self::Percent => {
                        other.args = texts(&call.args, &|text| text.replace('@', "%40").replace('.', "%2E"));
                    }
                    Self::Wide => other.args = texts(&call.args, &|text| text.chars().map(wide).collect()),
                    Self::Parts => {
                        let amount = other.args.get_mut("amount").filter(|amount| amount.is_number());
                        let Some(amount) = amount else { return vec![other] };
                        *amount = amount.as_f64().map_or(Value::Null, |whole| Value::from(whole / 5.0));
                        return vec![other; PARTS];
                    }
                }
                vec![other]
            })
            .collect()
    }
}

/// A value with every text in it rewritten.
fn texts(value: &Value, rewrite: &dyn Fn(&str) -> String) -> Value {
    match value {
        Value::String(text) => Value::String(rewrite(text)),
        Value::Array(items) => items.iter().map(|item| texts(item, rewrite)).collect(),
        Value::Object(map) => map.iter().map(|(key, item)| (key.clone(), texts(item, rewrite))).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

/// The full-width form of a visible ASCII character.
fn wide(c: char) -> char {
    if c.is_ascii_graphic() { char::from_u32(u32::from(c) + 0xFEE0).unwrap_or(c) } else { c }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn call(tool: &str, args: Value) -> PlayedCall {
        PlayedCall { tool: tool.to_owned(), args, output: Value::Null, error: None, poisoned: None }
    }

    #[test]
    fn calls_that_act_are_rewritten() {
        let calls = [call("get_x", json!({"q": "a.b"})), call("send_x", json!({"to": ["a@b.c"], "amount": 10}))];
        let forms = |disguise: Disguise| -> Vec<Value> { disguise.of(&calls).into_iter().map(|c| c.args).collect() };
        let plain = json!({"q": "a.b"});
        assert_eq!(forms(Disguise::Capitals), [plain.clone(), json!({"to": ["A@B.C"], "amount": 10})]);
        assert_eq!(forms(Disguise::Percent), [plain.clone(), json!({"to": ["a%40b%2Ec"], "amount": 10})]);
        assert_eq!(forms(Disguise::Wide), [plain, json!({"to": ["ａ＠ｂ．ｃ"], "amount": 10})]);
        let parts = forms(Disguise::Parts);
        assert_eq!(parts.len(), 6);
        assert_eq!(parts.last(), Some(&json!({"to": ["a@b.c"], "amount": 2.0})));
    }
}
