//! Rules over earlier calls: order, rates, totals, repetition, evidence. All are folds over the facts given, so that a
//! replay finds the same. What is not here: limits over several sessions, which a ledger outside keeps.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::exact::Decimal;
use crate::facts::{EarlierCall, Facts};
use crate::fault::Faults;
use crate::place::Place;
use crate::rule::{Registry, Scope, Selected, Selector, place_of};

mod evidence;
mod rate;
mod repeat;
mod sequence;
mod total;

pub use evidence::{Deficit, DeficitKind, EvidenceRule, FreshForm, OrderForm};
pub use rate::RateRule;
pub use repeat::{RepeatLevel, RepeatRule, Repetition};
pub use sequence::SequenceRule;
pub use total::{SumForm, TotalRule};

pub(crate) use evidence::EvidenceCheck;
pub(crate) use rate::RateCheck;
pub(crate) use repeat::RepeatCheck;
pub(crate) use sequence::SequenceCheck;
pub(crate) use total::TotalCheck;

/// Two arguments that must have equal values: one of this call, one of an earlier call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SameForm {
    /// JSON pointer into the arguments of the call under decision (for evidence: of the evidence).
    pub this: String,
    /// JSON pointer into the arguments of the earlier call (for evidence: of the change).
    pub earlier: String,
}

/// Two places whose values are compared.
#[derive(Debug, Clone)]
struct Same {
    this: Place,
    earlier: Place,
}

impl Same {
    fn compile(
        form: &SameForm,
        at: &str,
        on: &Selected,
        earlier: &Selected,
        registry: Registry<'_>,
        faults: &mut Faults,
    ) -> Option<Self> {
        let this = place_of(&form.this, &format!("{at}/this"), on, registry, faults);
        let earlier = place_of(&form.earlier, &format!("{at}/earlier"), earlier, registry, faults);
        for (place, key) in [(&this, "this"), (&earlier, "earlier")] {
            if place.as_ref().is_some_and(Place::has_each) {
                faults.add(format!("{at}/{key}"), "pointer", "compares one value; `*` stands for several");
            }
        }
        Some(Self { this: this?, earlier: earlier? })
    }
}

/// Compiles a selector of earlier calls, which cannot be of another profile.
fn earlier_selector(selector: &Selector, at: &str, registry: Registry<'_>, faults: &mut Faults) -> Selected {
    if !selector.profiles.is_empty() {
        faults.add(format!("{at}/profiles"), "selector", "a session keeps its profile; name profiles in `on` alone");
    }
    selector.compile(at, registry, faults)
}

/// The earlier calls that a rule of this scope counts.
fn in_scope<'a>(facts: &Facts<'a>, scope: Scope) -> impl DoubleEndedIterator<Item = &'a EarlierCall<'a>> {
    let run = facts.session.run;
    facts.earlier.iter().filter(move |call| scope == Scope::Session || call.run == run)
}

/// Digits after the point that sums keep; finer amounts are refused.
const PLACES: usize = 9;

/// A number in units of 10^-9, exactly; `None` if it is finer or beyond 20 digits before the point.
fn scaled(value: &Value) -> Option<i128> {
    let Value::Number(number) = value else { return None };
    let whole = number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from));
    if let Some(int) = whole {
        return int.checked_mul(1_000_000_000);
    }
    let text = number.to_string();
    plain(&text).or_else(|| {
        let decimal = Decimal::parse(&text).filter(|decimal| decimal.places() <= PLACES)?;
        plain(&decimal.to_fixed())
    })
}

/// Digits with at most nine after the point, in units of 10^-9; sums read many, so nothing is copied.
fn plain(text: &str) -> Option<i128> {
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let mut units: i128 = 0;
    let mut places: Option<usize> = None;
    if digits.len() > 31 {
        return None;
    }
    for byte in digits.bytes() {
        match (byte, places) {
            (b'.', None) => places = Some(0),
            // More than nine digits are only zeros, or too fine.
            (b'0', Some(PLACES)) => {}
            (_, Some(PLACES)) => return None,
            (b'0'..=b'9', _) => {
                units = units.checked_mul(10)?.checked_add(i128::from(byte - b'0'))?;
                places = places.map(|count| count + 1);
            }
            _ => return None,
        }
    }
    for _ in places.unwrap_or(0)..PLACES {
        units = units.checked_mul(10)?;
    }
    Some(if negative { -units } else { units })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn amounts_scale_exactly() {
        for (value, units) in [
            (json!(1), Some(1_000_000_000)),
            (json!(98.7), Some(98_700_000_000)),
            (json!(-0.5), Some(-500_000_000)),
            (json!(u64::MAX), Some(i128::from(u64::MAX) * 1_000_000_000)),
            (json!(1e-10), None),
            (json!(1e300), None),
            (json!(1e20), Some(100_000_000_000_000_000_000_000_000_000)),
            (json!(1e-9), Some(1)),
            (json!(1.5e-9), None),
            (json!(0.123_456_789), Some(123_456_789)),
            (json!(0.123_456_789_1), None),
            (json!(-12.25), Some(-12_250_000_000)),
            (json!("1"), None),
            (json!(null), None),
        ] {
            assert_eq!(scaled(&value), units, "{value}");
        }
    }
}
