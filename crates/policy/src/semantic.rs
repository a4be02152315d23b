//! Plausibility checks, apart from schemas: named checks flag a call that is well formed and odd. They never deny; they
//! may have a human asked. What is not here: bounds that must hold (`args`).

use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};

use crate::exact::{self, Decimal};
use crate::facts::Facts;
use crate::fault::Faults;
use crate::finding::{Code, Finding, Layer, Outcome};
use crate::place::Place;
use crate::rule::{Effect, Head, Mode, Registry, RuleId, Selector, at, place_of};
use crate::shown::{Warning, is_hidden, shown};

/// A plausibility check. An argument that is not there, or of another kind, is no issue here.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckRule {
    /// The calls it applies to.
    pub on: Selector,
    /// The argument; absent only for `hidden_characters`, which then looks at every text in the arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub argument: Option<String>,
    /// What is checked.
    pub check: CheckKind,
    /// The bound: the largest plausible amount, or the most plausible characters. For `amount_implausible` and `text_long`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub above: Option<Number>,
    /// What a hit leads to.
    #[serde(default)]
    pub effect: CheckEffect,
    /// Whether it counts.
    #[serde(default)]
    pub mode: Mode,
    /// Why the check is there, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// What a check looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckKind {
    /// A number that is zero: `amount_zero_suspicious`.
    AmountZero,
    /// A number below zero: `amount_negative`.
    AmountNegative,
    /// A number above the bound: `amount_implausibly_large`.
    AmountImplausible,
    /// A text with more characters than the bound: `text_implausibly_long`.
    TextLong,
    /// A text with characters that people cannot see, or words that mix alphabets: `hidden_characters`.
    HiddenCharacters,
}

/// What a hit leads to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckEffect {
    /// It is recorded with its code; nothing is blocked.
    #[default]
    Flag,
    /// A human is asked.
    Ask,
}

/// A compiled check.
#[derive(Debug, Clone)]
pub(crate) struct SemanticCheck {
    head: Head,
    place: Option<Place>,
    rule: CheckRule,
}

/// What a check without a place looks at.
const WHOLE: &str = "arguments";

impl SemanticCheck {
    pub(crate) const fn head(&self) -> &Head {
        &self.head
    }

    /// Whether a hit has a human asked.
    pub(crate) fn asks(&self) -> bool {
        self.rule.effect == CheckEffect::Ask
    }

    pub(crate) fn compile(id: &RuleId, rule: &CheckRule, registry: Registry<'_>, faults: &mut Faults) -> Option<Self> {
        let at = at("checks", id);
        let on = rule.on.compile(&format!("{at}/on"), registry, faults);
        let place = match &rule.argument {
            Some(text) => Some(place_of(text, &format!("{at}/argument"), &on, registry, faults)?),
            None => {
                if rule.check != CheckKind::HiddenCharacters {
                    faults.add(format!("{at}/argument"), "argument", "names the argument that is checked");
                }
                None
            }
        };
        let bounded = matches!(rule.check, CheckKind::AmountImplausible | CheckKind::TextLong);
        if bounded != rule.above.is_some() {
            let detail = if bounded { "this check needs its bound, `above`" } else { "this check has no bound" };
            faults.add(format!("{at}/above"), "bound", detail);
        }
        if rule.check == CheckKind::TextLong && rule.above.as_ref().is_some_and(|bound| !bound.is_u64()) {
            faults.add(format!("{at}/above"), "bound", "is a whole number of characters");
        }
        let effect = Effect::Ask;
        let looked_at = [place.as_ref().map_or(WHOLE, Place::as_str).to_owned()].into();
        let note = rule.note.clone();
        let head = Head { id: id.as_str().into(), layer: Layer::Check, on, effect, mode: rule.mode, note, looked_at };
        Some(Self { head, place, rule: rule.clone() })
    }

    pub(crate) fn judge(&self, facts: &Facts<'_>) -> Option<Finding> {
        if !self.head.applies(facts.tool, facts.profile) {
            return None;
        }
        let hit = match &self.place {
            Some(place) => place.find(facts.args).values.into_iter().find_map(|value| self.hit(value)),
            None => any_hidden(facts.args, 0).then_some((Code::HiddenCharacters, HIDDEN)),
        };
        let Some((code, what)) = hit else { return Some(self.head.pass()) };
        let name = self.place.as_ref().map_or(WHOLE, Place::as_str);
        let outcome = match self.rule.effect {
            CheckEffect::Flag => Outcome::Pass,
            CheckEffect::Ask => Outcome::Ask,
        };
        Some(self.head.state(outcome, code, format!("`{name}` {what}")))
    }

    fn hit(&self, value: &Value) -> Option<(Code, &'static str)> {
        match (self.rule.check, value) {
            (CheckKind::AmountZero, Value::Number(number)) => Decimal::of(number)
                .is_some_and(|amount| amount.is_zero())
                .then_some((Code::AmountZeroSuspicious, "is zero")),
            (CheckKind::AmountNegative, Value::Number(number)) => Decimal::of(number)
                .is_some_and(|amount| amount.is_negative())
                .then_some((Code::AmountNegative, "is below zero")),
            (CheckKind::AmountImplausible, Value::Number(number)) => {
                let bound = self.rule.above.as_ref()?;
                (exact::compare(number, bound) == Some(std::cmp::Ordering::Greater))
                    .then_some((Code::AmountImplausiblyLarge, "is larger than is plausible"))
            }
            (CheckKind::TextLong, Value::String(text)) => {
                let bound = self.rule.above.as_ref().and_then(Number::as_u64)?;
                u64::try_from(text.chars().count())
                    .map_or(true, |count| count > bound)
                    .then_some((Code::TextImplausiblyLong, "is longer than is plausible"))
            }
            (CheckKind::HiddenCharacters, value) => any_hidden(value, 0).then_some((Code::HiddenCharacters, HIDDEN)),
            (
                CheckKind::AmountZero | CheckKind::AmountNegative | CheckKind::AmountImplausible | CheckKind::TextLong,
                _,
            ) => None,
        }
    }
}

const HIDDEN: &str = "has characters that cannot be seen, or words that mix alphabets";

/// Deeper than arguments may be.
const MAX_DEPTH: usize = 128;

fn any_hidden(value: &Value, depth: usize) -> bool {
    if depth > MAX_DEPTH {
        return true;
    }
    match value {
        Value::String(text) => misleads(text),
        Value::Array(items) => items.iter().any(|item| any_hidden(item, depth + 1)),
        Value::Object(map) => map.iter().any(|(key, item)| misleads(key) || any_hidden(item, depth + 1)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Line breaks and tabs are ordinary in texts.
fn misleads(text: &str) -> bool {
    if text.is_ascii() {
        return text.chars().any(|c| is_hidden(c) && !matches!(c, '\n' | '\r' | '\t'));
    }
    text.chars().any(|c| is_hidden(c) && !matches!(c, '\n' | '\r' | '\t'))
        || shown(text).warnings.contains(&Warning::MixedAlphabets)
}
