//! Exact comparison of JSON values: numbers as they are written, never rounded on the way. What is not here: reading
//! numbers out of prose (`origin`).

use std::cmp::Ordering;

use serde_json::{Number, Value};

/// A decimal number, digit for digit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Decimal {
    negative: bool,
    /// Digits before the point, without leading zeros.
    whole: String,
    /// Digits after the point, without trailing zeros.
    fraction: String,
}

/// Exponents beyond this are no number that a double or a person writes.
const MAX_EXPONENT: i32 = 400;

impl Decimal {
    /// Reads `-12.50`, `1e-7`, `+3`; nothing else, no separators.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (negative, rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let (mantissa, exponent) = match rest.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
            None => (rest, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits = |text: &str| text.len() <= 1_000 && text.bytes().all(|b| b.is_ascii_digit());
        if (whole.is_empty() && fraction.is_empty()) || !digits(whole) || !digits(fraction) {
            return None;
        }
        if exponent.abs() > MAX_EXPONENT {
            return None;
        }
        let shifted;
        let (whole, fraction) = if exponent == 0 {
            (whole, fraction)
        } else {
            shifted = shift(whole, fraction, exponent);
            (shifted.0.as_str(), shifted.1.as_str())
        };
        let whole = whole.trim_start_matches('0').to_owned();
        let fraction = fraction.trim_end_matches('0').to_owned();
        let negative = negative && !(whole.is_empty() && fraction.is_empty());
        Some(Self { negative, whole, fraction })
    }

    /// The number as JSON wrote it (a double in its shortest form).
    pub(crate) fn of(number: &Number) -> Option<Self> {
        Self::parse(&number.to_string())
    }

    /// Digits after the point that are not zero at the end.
    pub(crate) fn places(&self) -> usize {
        self.fraction.len()
    }

    pub(crate) const fn is_negative(&self) -> bool {
        self.negative
    }

    pub(crate) fn is_zero(&self) -> bool {
        self.whole.is_empty() && self.fraction.is_empty()
    }

    /// The plain text, with at least one digit on each side of the point.
    pub(crate) fn to_fixed(&self) -> String {
        let or_zero = |text: &str| if text.is_empty() { "0".to_owned() } else { text.to_owned() };
        let sign = if self.negative { "-" } else { "" };
        format!("{sign}{}.{}", or_zero(&self.whole), or_zero(&self.fraction))
    }
}

fn shift(whole: &str, fraction: &str, exponent: i32) -> (String, String) {
    let by = exponent.unsigned_abs() as usize;
    if exponent >= 0 {
        let moved: String = fraction.chars().chain(std::iter::repeat('0')).take(by).collect();
        (format!("{whole}{moved}"), fraction.chars().skip(by).collect())
    } else {
        let padded: String = std::iter::repeat_n('0', by.saturating_sub(whole.len())).chain(whole.chars()).collect();
        let keep = padded.len().saturating_sub(by);
        let moved: String = padded.chars().skip(keep).collect();
        (padded.chars().take(keep).collect(), format!("{moved}{fraction}"))
    }
}

impl Ord for Decimal {
    fn cmp(&self, other: &Self) -> Ordering {
        let size =
            |a: &Self, b: &Self| (a.whole.len(), &a.whole, &a.fraction).cmp(&(b.whole.len(), &b.whole, &b.fraction));
        match (self.negative, other.negative) {
            (false, false) => size(self, other),
            (true, true) => size(other, self),
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
        }
    }
}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Compares two numbers exactly; `None` only for numbers that JSON cannot hold.
pub(crate) fn compare(a: &Number, b: &Number) -> Option<Ordering> {
    match (integer(a), integer(b)) {
        (Some(a), Some(b)) => Some(a.cmp(&b)),
        _ => Some(Decimal::of(a)?.cmp(&Decimal::of(b)?)),
    }
}

/// The number as an integer, if it is written as one or is a whole double of at most 2^53 (`2.0`).
pub(crate) fn integer(number: &Number) -> Option<i128> {
    if let Some(int) = number.as_i64() {
        return Some(i128::from(int));
    }
    if let Some(int) = number.as_u64() {
        return Some(i128::from(int));
    }
    let decimal = Decimal::of(number)?;
    if decimal.places() > 0 || decimal.whole.len() > 19 {
        return None;
    }
    let size: i128 = if decimal.whole.is_empty() { 0 } else { decimal.whole.parse().ok()? };
    Some(if decimal.negative { -size } else { size })
}

/// Whether two values are equal: numbers by value, objects without regard to order.
pub(crate) fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => compare(a, b) == Some(Ordering::Equal),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
        }
        (a, b) => a == b,
    }
}

/// The kind of a value in the words of JSON Schema.
pub(crate) const fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use proptest::prelude::any;
    use proptest::proptest;
    use serde_json::json;

    use super::*;

    fn order(a: &Value, b: &Value) -> Ordering {
        compare(a.as_number().unwrap(), b.as_number().unwrap()).unwrap()
    }

    #[test]
    fn neighbours_beyond_doubles_are_told_apart() {
        assert_eq!(order(&json!(9_007_199_254_740_993_i64), &json!(9_007_199_254_740_992_i64)), Ordering::Greater);
        assert_eq!(order(&json!(u64::MAX), &json!(i64::MIN)), Ordering::Greater);
        assert_eq!(order(&json!(u64::MAX), &json!(1.8e19)), Ordering::Greater);
        assert_eq!(order(&json!(1.8e19), &json!(u64::MAX)), Ordering::Less);
        assert_eq!(order(&json!(0.1), &json!(0.1)), Ordering::Equal);
        assert_eq!(order(&json!(1.0), &json!(1)), Ordering::Equal);
        assert_eq!(order(&json!(-0.0), &json!(0)), Ordering::Equal);
        assert_eq!(order(&json!(-1.5), &json!(-1)), Ordering::Less);
        assert_eq!(order(&json!(1e-7), &json!(0.000_000_2)), Ordering::Less);
        assert_eq!(order(&json!(1e300), &json!(u64::MAX)), Ordering::Greater);
    }

    #[test]
    fn decimals_are_read_or_refused() {
        for (text, fixed) in [
            ("-12.50", "-12.5"),
            ("1e-7", "0.0000001"),
            ("+3", "3.0"),
            ("1.25e1", "12.5"),
            ("-0", "0.0"),
            (".5", "0.5"),
        ] {
            assert_eq!(Decimal::parse(text).unwrap().to_fixed(), fixed);
        }
        for text in ["", "-", ".", "1,000", "0x10", "1e", "1e999", "NaN", "1 ", "--1", "١"] {
            assert_eq!(Decimal::parse(text), None, "{text}");
        }
    }

    #[test]
    fn equal_values_are_equal_whatever_their_spelling() {
        assert!(same(&json!({"a": 1, "b": [1.0]}), &json!({"b": [1], "a": 1.0})));
        assert!(!same(&json!({"a": null}), &json!({})));
        assert!(!same(&json!("1"), &json!(1)));
        assert!(!same(&json!(true), &json!(1)));
    }

    proptest! {
        #[test]
        fn integers_compare_as_integers(a in any::<i64>(), b in any::<u64>()) {
            assert_eq!(order(&json!(a), &json!(b)), i128::from(a).cmp(&i128::from(b)));
        }

        #[test]
        fn doubles_compare_as_doubles(a in any::<f64>(), b in any::<f64>()) {
            if let (Some(x), Some(y)) = (Number::from_f64(a), Number::from_f64(b)) {
                assert_eq!(compare(&x, &y), a.partial_cmp(&b));
            }
        }
    }
}
