//! Totals: counts of calls and exact sums of an argument over a run or session. What is not here: totals over several
//! sessions (a ledger outside keeps them).

use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};

use super::{in_scope, scaled};
use crate::exact;
use crate::facts::{EarlierCall, Facts};
use crate::fault::Faults;
use crate::finding::{Code, Finding, Layer};
use crate::place::Place;
use crate::rule::{Effect, Head, Mode, Registry, RuleId, Scope, Selector, at, place_of};

/// A cumulative limit. Calls that have, had or may have had an effect count, and so does the one under decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TotalRule {
    /// The calls it applies to and counts.
    pub on: Selector,
    /// At most so many calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_count: Option<u64>,
    /// At most this sum of an argument.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sum: Option<SumForm>,
    /// Only calls count in which this argument has the same value, for example the recipient.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per: Option<String>,
    /// Which earlier calls count.
    pub scope: Scope,
    /// What is done when the limit would be passed.
    #[serde(default = "Effect::deny")]
    pub effect: Effect,
    /// Whether it counts.
    #[serde(default)]
    pub mode: Mode,
    /// Why the rule is there, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// A limit on the sum of an argument.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SumForm {
    /// The argument: numbers that are not negative, with at most nine digits after the point.
    pub argument: String,
    /// The largest sum, this call included.
    pub max: Number,
}

/// A compiled cumulative limit.
#[derive(Debug, Clone)]
pub(crate) struct TotalCheck {
    head: Head,
    max_count: Option<u64>,
    sum: Option<Sum>,
    per: Option<Place>,
    scope: Scope,
}

#[derive(Debug, Clone)]
struct Sum {
    place: Place,
    /// In units of 10^-9.
    max: i128,
    shown: Number,
}

impl TotalCheck {
    pub(crate) const fn head(&self) -> &Head {
        &self.head
    }

    pub(crate) fn compile(id: &RuleId, rule: &TotalRule, registry: Registry<'_>, faults: &mut Faults) -> Option<Self> {
        let at = at("totals", id);
        let on = rule.on.compile(&format!("{at}/on"), registry, faults);
        if rule.max_count.is_none() && rule.sum.is_none() {
            faults.add(&at, "total", "limits nothing; give `max_count` or `sum`");
        }
        if rule.max_count == Some(0) {
            faults.add(format!("{at}/max_count"), "bound", "is at least 1; to allow none, use `lists`");
        }
        let sum = match &rule.sum {
            None => None,
            Some(form) => {
                let place = place_of(&form.argument, &format!("{at}/sum/argument"), &on, registry, faults);
                let max = scaled(&Value::Number(form.max.clone())).filter(|max| *max >= 0);
                if max.is_none() {
                    let detail = "is a number from 0, with at most nine digits after the point";
                    faults.add(format!("{at}/sum/max"), "bound", detail);
                }
                Some(Sum { place: place?, max: max?, shown: form.max.clone() })
            }
        };
        let per = match &rule.per {
            None => None,
            Some(text) => Some(place_of(text, &format!("{at}/per"), &on, registry, faults)?),
        };
        if per.as_ref().is_some_and(Place::has_each) {
            faults.add(format!("{at}/per"), "pointer", "compares one value; `*` stands for several");
        }
        let places = per.iter().chain(sum.iter().map(|sum| &sum.place)).map(|place| place.as_str().to_owned());
        let looked_at = std::iter::once(format!("earlier calls of the {}", rule.scope.code())).chain(places).collect();
        let note = rule.note.clone();
        let head = Head {
            id: id.as_str().into(),
            layer: Layer::Total,
            on,
            effect: rule.effect,
            mode: rule.mode,
            note,
            looked_at,
        };
        Some(Self { head, max_count: rule.max_count, sum, per, scope: rule.scope })
    }

    pub(crate) fn judge(&self, facts: &Facts<'_>) -> Option<Finding> {
        if !self.head.applies(facts.tool, facts.profile) {
            return None;
        }
        let group = match &self.per {
            None => None,
            Some(place) => match place.single(facts.args) {
                Some(value) => Some((place, value)),
                None => {
                    let detail = format!("`{}` is missing, and its rule counts by it", place.as_str());
                    return Some(self.head.deny(Code::ArgumentMissing, detail));
                }
            },
        };
        let counted = || {
            in_scope(facts, self.scope).filter(|call| {
                self.head.on.has(call.tool) && call.status.may_have_effect() && group.is_none_or(|g| is_in(g, call))
            })
        };
        if let Some(max) = self.max_count
            && u64::try_from(counted().count()).map_or(true, |count| count >= max)
        {
            let detail = format!("at most {max} such calls in a {}", self.scope.code());
            return Some(self.head.object(Code::CumulativeLimit, detail));
        }
        if let Some(sum) = &self.sum {
            let Some(this) = amount(&sum.place, facts.args) else {
                let detail = format!(
                    "`{}` must be a number from 0 with at most nine digits after the point",
                    sum.place.as_str()
                );
                return Some(self.head.deny(Code::ArgumentWrongKind, detail));
            };
            let total = counted().try_fold(this, |total, call| {
                // An earlier amount that cannot be read counts as all there is: it may have been anything.
                let amount = call.args.and_then(|args| amount(&sum.place, args)).unwrap_or(i128::MAX);
                total.checked_add(amount)
            });
            if total.is_none_or(|total| total > sum.max) {
                let detail = format!(
                    "the sum of `{}` over the {} may not pass {}",
                    sum.place.as_str(),
                    self.scope.code(),
                    sum.shown
                );
                return Some(self.head.object(Code::CumulativeLimit, detail));
            }
        }
        Some(self.head.pass())
    }
}

/// Whether an earlier call belongs to the group of this one; what cannot be compared may belong to it.
fn is_in((place, value): (&Place, &Value), call: &EarlierCall<'_>) -> bool {
    call.args.and_then(|args| place.single(args)).is_none_or(|earlier| exact::same(earlier, value))
}

/// The sum of all values of a place, in units of 10^-9; `None` if one is missing, no such number, or negative: a
/// negative amount would lower the sum.
fn amount(place: &Place, args: &Value) -> Option<i128> {
    let spots = place.find(args);
    if spots.wrong || spots.absent {
        return None;
    }
    spots.values.into_iter().try_fold(0_i128, |total, value| total.checked_add(scaled(value).filter(|one| *one >= 0)?))
}
