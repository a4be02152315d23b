//! Values as Cedar expressions, built one by one. Cedar's own JSON reader is never used on what a model wrote: it would
//! read entities and extension calls inside it. What is not here: which types there are (`shape`).

use cedar_policy::RestrictedExpression;
use serde_json::Value;

use super::shape::{Fields, Kind};
use crate::exact::{self, Decimal};
use crate::fault::escape;

/// Why a value cannot be put before the policies. Never quotes it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{pointer}` {what}")]
pub(super) struct Unfit {
    pub(super) pointer: String,
    pub(super) what: &'static str,
}

/// Pointers of `unseen` that are listed by name.
const MAX_UNSEEN: usize = 64;

/// Converts the arguments; what no field shows is added to `unseen`.
pub(super) fn record(fields: &Fields, value: &Value, unseen: &mut Vec<String>) -> Result<RestrictedExpression, Unfit> {
    object(fields, value, &mut String::new(), unseen)
}

fn convert(
    kind: &Kind,
    value: &Value,
    at: &mut String,
    unseen: &mut Vec<String>,
) -> Result<RestrictedExpression, Unfit> {
    let unfit = |at: &String, what| Err(Unfit { pointer: at.clone(), what });
    match (kind, value) {
        (Kind::Text, Value::String(text)) => Ok(RestrictedExpression::new_string(text.clone())),
        (Kind::Flag, Value::Bool(flag)) => Ok(RestrictedExpression::new_bool(*flag)),
        (Kind::Long, Value::Number(number)) => match exact::integer(number).map(i64::try_from) {
            Some(Ok(int)) => Ok(RestrictedExpression::new_long(int)),
            Some(Err(_)) => unfit(at, "is an integer beyond 64 signed bits"),
            None => unfit(at, "is no integer"),
        },
        (Kind::Decimal, Value::Number(number)) => match decimal(number) {
            Some(text) => Ok(RestrictedExpression::new_decimal(text)),
            None => unfit(at, "has more than four digits after the point, or is too large"),
        },
        (Kind::Set(element), Value::Array(items)) => {
            let length = at.len();
            let mut found = Vec::with_capacity(items.len());
            for (idx, item) in items.iter().enumerate() {
                at.push_str(&format!("/{idx}"));
                found.push(convert(element, item, at, unseen)?);
                at.truncate(length);
            }
            Ok(RestrictedExpression::new_set(found))
        }
        (Kind::Record(fields), value) => object(fields, value, at, unseen),
        (Kind::Text, _) => unfit(at, "is no text"),
        (Kind::Flag, _) => unfit(at, "is neither true nor false"),
        (Kind::Long | Kind::Decimal, _) => unfit(at, "is no number"),
        (Kind::Set(_), _) => unfit(at, "is no list"),
    }
}

fn object(
    fields: &Fields,
    value: &Value,
    at: &mut String,
    unseen: &mut Vec<String>,
) -> Result<RestrictedExpression, Unfit> {
    let Value::Object(map) = value else {
        return Err(Unfit { pointer: at.clone(), what: "is no object" });
    };
    let length = at.len();
    let mut found = Vec::with_capacity(map.len());
    for (name, value) in map {
        at.push('/');
        at.push_str(&escape(name));
        match fields.get(name) {
            // Null is absent; where the field is required, the check of the request refuses that.
            Some(_) if value.is_null() => {}
            Some(field) => found.push((name.clone(), convert(&field.kind, value, at, unseen)?)),
            None if unseen.len() < MAX_UNSEEN => unseen.push(at.clone()),
            None => {}
        }
        at.truncate(length);
    }
    RestrictedExpression::new_record(found).map_err(|_| Unfit { pointer: at.clone(), what: "names a field twice" })
}

/// A number as the text of a Cedar decimal: four digits after the point at most, and 64 bits in units of 10^-4.
fn decimal(number: &serde_json::Number) -> Option<String> {
    let decimal = Decimal::of(number).filter(|decimal| decimal.places() <= 4)?;
    let text = decimal.to_fixed();
    let (whole, fraction) = text.split_once('.')?;
    if whole.len() > 16 {
        return None;
    }
    let units: i128 = format!("{whole}{fraction:0<4}").parse().ok()?;
    i64::try_from(units).ok().map(|_| text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cedar::shape::of_arguments;
    use serde_json::json;

    fn fields() -> Fields {
        of_arguments(&json!({"type": "object", "properties": {
            "s": {"type": "string"}, "n": {"type": "integer"}, "f": {"type": "number"},
            "l": {"type": "array", "items": {"type": "integer"}}, "o": {"type": "object", "properties": {"s": {"type": "string"}}}}}))
    }

    #[test]
    fn values_that_do_not_fit_are_refused_by_place() {
        for (value, pointer) in [
            (json!({"s": {"__entity": {"type": "Agent", "id": "root"}}}), "/s"),
            (json!({"s": {"__extn": {"fn": "decimal", "arg": "1.0"}}}), "/s"),
            (json!({"n": u64::MAX}), "/n"),
            (json!({"n": 1.5}), "/n"),
            (json!({"n": "1"}), "/n"),
            (json!({"f": 0.00001}), "/f"),
            (json!({"f": 1e15}), "/f"),
            (json!({"l": [1, null]}), "/l/1"),
            (json!({"l": [1, "2"]}), "/l/1"),
            (json!({"o": []}), "/o"),
            (json!({"o": {"s": 1}}), "/o/s"),
            (json!([]), ""),
        ] {
            let found = record(&fields(), &value, &mut Vec::new()).map_err(|unfit| unfit.pointer);
            assert_eq!(found.err().as_deref(), Some(pointer), "{value}");
        }
    }

    #[test]
    fn what_no_field_shows_is_named() {
        let mut unseen = Vec::new();
        let value = json!({"s": null, "n": 2.0, "f": 922_337_203_685_477.0_f64, "x/y": 1, "o": {"s": "a", "z": []}});
        assert!(record(&fields(), &value, &mut unseen).is_ok());
        unseen.sort();
        assert_eq!(unseen, ["/o/z", "/x~1y"]);
    }
}
