//! Whether two rules on one argument leave any value at all. What is not here: a rule against itself (`compile`).

use std::cmp::Ordering;

use serde_json::{Number, Value};

use super::ArgumentCheck;
use crate::exact;
use crate::rule::{Effect, Head, Mode};

impl ArgumentCheck {
    pub(crate) const fn head(&self) -> &Head {
        &self.head
    }

    pub(crate) fn place_text(&self) -> &str {
        self.place.as_str()
    }

    /// Whether a call that does not meet the rule is denied.
    pub(crate) fn must_hold(&self) -> bool {
        self.head.mode == Mode::Enforce && self.head.effect == Effect::Deny
    }

    /// Whether no value of the same place can meet both rules, as far as bounds and lists of values tell.
    pub(crate) fn excludes(&self, other: &Self) -> bool {
        self.place == other.place && (self.leaves_nothing(other) || other.leaves_nothing(self))
    }

    fn leaves_nothing(&self, other: &Self) -> bool {
        let (mine, theirs) = (&self.rule, &other.rule);
        let above = |min: &Option<Number>, max: &Option<Number>| match (min, max) {
            (Some(min), Some(max)) => exact::compare(min, max) == Some(Ordering::Greater),
            (None, _) | (_, None) => false,
        };
        let longer = mine.min_len.zip(theirs.max_len).is_some_and(|(min, max)| min > max);
        above(&mine.min, &theirs.max)
            || longer
            || self.allowed().is_some_and(|all| !all.is_empty() && other.refuses(&all))
    }

    /// The only values that pass, where the rule lists them.
    fn allowed(&self) -> Option<Vec<&Value>> {
        let exact = self.rule.exact.as_ref().map(|one| vec![one]);
        exact.or_else(|| self.rule.one_of.as_ref().map(|list| list.iter().collect()))
    }

    /// Whether each of these values is refused for its value or its size.
    fn refuses(&self, values: &[&Value]) -> bool {
        let rule = &self.rule;
        let is_in = |list: &[&Value], one: &Value| list.iter().any(|other| exact::same(one, other));
        let allowed = self.allowed();
        let denied: Vec<&Value> = rule.not_one_of.iter().flatten().collect();
        values.iter().all(|one| {
            let beyond = |bound: &Option<Number>, wrong: Ordering| match (one, bound) {
                (Value::Number(n), Some(bound)) => exact::compare(n, bound) == Some(wrong),
                _ => false,
            };
            allowed.as_ref().is_some_and(|allowed| !is_in(allowed, one))
                || is_in(&denied, one)
                || beyond(&rule.min, Ordering::Less)
                || beyond(&rule.max, Ordering::Greater)
        })
    }
}
