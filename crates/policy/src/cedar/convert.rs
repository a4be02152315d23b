//! Arguments as Cedar expressions: all of them checked against their types, those that a policy reads built one by one.
//! Cedar's own JSON reader is never used on what a model wrote: it would read entities and extension calls inside it.
//! What is not here: which types there are (`shape`).

use cedar_policy::RestrictedExpression;
use serde_json::{Number, Value};

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

impl Unfit {
    /// A fault at this very value.
    const fn here(what: &'static str) -> Self {
        Self { pointer: String::new(), what }
    }

    /// The same fault, seen from one level above.
    fn below(self, token: &str) -> Self {
        Self { pointer: format!("/{}{}", escape(token), self.pointer), what: self.what }
    }
}

/// Pointers of `unseen` that are listed by name.
const MAX_UNSEEN: usize = 64;

/// Checks the arguments against the types of all fields; pointers of what no field shows are added to `unseen`.
pub(super) fn check(fields: &Fields, value: &Value, unseen: &mut Vec<String>) -> Result<(), Unfit> {
    check_object(fields, value, &mut Vec::new(), unseen)
}

fn check_kind<'v>(kind: &Kind, value: &'v Value, at: &mut Vec<&'v str>, unseen: &mut Vec<String>) -> Result<(), Unfit> {
    match (kind, value) {
        (Kind::Text, Value::String(_)) | (Kind::Flag, Value::Bool(_)) => Ok(()),
        (Kind::Long, Value::Number(number)) => long(number).map(|_| ()),
        (Kind::Decimal, Value::Number(number)) => decimal(number).map(|_| ()),
        (Kind::Set(element), Value::Array(items)) => items.iter().zip(0_u32..).try_for_each(|(item, idx)| {
            at.push("*");
            let answer = check_kind(element, item, at, unseen).map_err(|unfit| unfit.below(&idx.to_string()));
            at.pop();
            answer
        }),
        (Kind::Record(fields), value) => check_object(fields, value, at, unseen),
        (Kind::Text, _) => Err(Unfit::here("is no text")),
        (Kind::Flag, _) => Err(Unfit::here("is neither true nor false")),
        (Kind::Long | Kind::Decimal, _) => Err(Unfit::here("is no number")),
        (Kind::Set(_), _) => Err(Unfit::here("is no list")),
    }
}

fn check_object<'v>(
    fields: &Fields,
    value: &'v Value,
    at: &mut Vec<&'v str>,
    unseen: &mut Vec<String>,
) -> Result<(), Unfit> {
    let Value::Object(map) = value else { return Err(Unfit::here("is no object")) };
    for (name, value) in map {
        match fields.get(name) {
            // Null is absent.
            Some(_) if value.is_null() => {}
            Some(field) => {
                at.push(name);
                let answer = check_kind(&field.kind, value, at, unseen).map_err(|unfit| unfit.below(name));
                at.pop();
                answer?;
            }
            None => {
                let steps = at.iter().copied().chain(std::iter::once(name.as_str()));
                let pointer: String = steps.map(|step| format!("/{}", escape(step))).collect();
                if unseen.len() < MAX_UNSEEN && !unseen.contains(&pointer) {
                    unseen.push(pointer);
                }
            }
        }
    }
    let absent = |name: &str| map.get(name).is_none_or(Value::is_null);
    match fields.iter().find(|(name, field)| field.required && absent(name)) {
        Some((name, _)) => Err(Unfit::here("is missing or null").below(name)),
        None => Ok(()),
    }
}

/// Builds the fields given; others are left out, and what is null is absent.
pub(super) fn build(fields: &Fields, value: &Value) -> Result<RestrictedExpression, Unfit> {
    let Value::Object(map) = value else { return Err(Unfit::here("is no object")) };
    let mut found = Vec::with_capacity(fields.len());
    for (name, field) in fields {
        if let Some(value) = map.get(name).filter(|value| !value.is_null()) {
            found.push((name.clone(), build_kind(&field.kind, value).map_err(|unfit| unfit.below(name))?));
        }
    }
    RestrictedExpression::new_record(found).map_err(|_| Unfit::here("names a field twice"))
}

fn build_kind(kind: &Kind, value: &Value) -> Result<RestrictedExpression, Unfit> {
    match (kind, value) {
        (Kind::Text, Value::String(text)) => Ok(RestrictedExpression::new_string(text.clone())),
        (Kind::Flag, Value::Bool(flag)) => Ok(RestrictedExpression::new_bool(*flag)),
        (Kind::Long, Value::Number(number)) => long(number).map(RestrictedExpression::new_long),
        (Kind::Decimal, Value::Number(number)) => decimal(number).map(RestrictedExpression::new_decimal),
        (Kind::Set(element), Value::Array(items)) => {
            let items: Result<Vec<_>, Unfit> = items.iter().map(|item| build_kind(element, item)).collect();
            items.map(RestrictedExpression::new_set)
        }
        (Kind::Record(fields), value) => build(fields, value),
        (Kind::Text | Kind::Flag | Kind::Long | Kind::Decimal | Kind::Set(_), _) => {
            Err(Unfit::here("is of another kind"))
        }
    }
}

fn long(number: &Number) -> Result<i64, Unfit> {
    match exact::integer(number).map(i64::try_from) {
        Some(Ok(int)) => Ok(int),
        Some(Err(_)) => Err(Unfit::here("is an integer beyond 64 signed bits")),
        None => Err(Unfit::here("is no integer")),
    }
}

/// A number as the text of a Cedar decimal: four digits after the point at most, and 64 bits in units of 10^-4. More
/// digits are refused, not cut: a policy would compare another number than the tool receives.
fn decimal(number: &Number) -> Result<String, Unfit> {
    let unfit = Unfit::here("has more than four digits after the point, or is too large");
    let Some(decimal) = Decimal::of(number).filter(|decimal| decimal.places() <= 4) else { return Err(unfit) };
    let text = decimal.to_fixed();
    let units = text
        .split_once('.')
        .filter(|(whole, _)| whole.len() <= 16)
        .and_then(|(whole, fraction)| format!("{whole}{fraction:0<4}").parse::<i128>().ok());
    match units.map(i64::try_from) {
        Some(Ok(_)) => Ok(text),
        Some(Err(_)) | None => Err(unfit),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cedar::shape::of_arguments;

    fn fields() -> Fields {
        of_arguments(&json!({"type": "object", "required": ["o"], "properties": {
            "s": {"type": "string"}, "n": {"type": "integer"}, "f": {"type": "number"},
            "l": {"type": "array", "items": {"type": "integer"}},
            "o": {"type": "object", "required": ["s"], "properties": {"s": {"type": "string"}}}}}))
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
            (json!({"o": {}}), "/o/s"),
            (json!({"o": null}), "/o"),
            (json!({}), "/o"),
            (json!([]), ""),
        ] {
            let found = check(&fields(), &value, &mut Vec::new()).map_err(|unfit| unfit.pointer);
            assert_eq!(found.err().as_deref(), Some(pointer), "{value}");
        }
    }

    #[test]
    fn what_no_field_shows_is_named_and_not_built() {
        let mut unseen = Vec::new();
        let value = json!({"s": null, "n": 2.0, "f": 922_337_203_685_477.0_f64, "x/y": 1, "o": {"s": "a", "z": []}});
        assert_eq!(check(&fields(), &value, &mut unseen), Ok(()));
        unseen.sort();
        assert_eq!(unseen, ["/o/z", "/x~1y"]);
        assert!(build(&fields(), &value).is_ok());
    }
}
