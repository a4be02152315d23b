//! Rules on the order of calls: after A no B, B only after a successful A. What is not here: evidence before a run may
//! end (`evidence`).

use serde::{Deserialize, Serialize};

use super::{Same, SameForm, earlier_selector, in_scope};
use crate::exact;
use crate::facts::{CallStatus, Facts};
use crate::fault::Faults;
use crate::finding::{Code, Finding, Layer};
use crate::rule::{Effect, Head, Mode, Registry, RuleId, Scope, Selected, Selector, at};

/// A rule on the order of calls. Exactly one of `after` and `only_after` is given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SequenceRule {
    /// The calls it applies to.
    pub on: Selector,
    /// After one of these that has, had or may have had an effect, the rule objects. Earlier calls of the same step
    /// count as soon as they are allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Selector>,
    /// Unless one of these succeeded, the rule objects. Calls of the same step have not succeeded yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only_after: Option<Selector>,
    /// Only earlier calls count whose argument has the same value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub same: Option<SameForm>,
    /// Which earlier calls count.
    #[serde(default = "session")]
    pub scope: Scope,
    /// What is done when the rule objects.
    #[serde(default = "Effect::deny")]
    pub effect: Effect,
    /// Whether it counts.
    #[serde(default)]
    pub mode: Mode,
    /// Why the rule is there, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

const fn session() -> Scope {
    Scope::Session
}

/// A compiled rule on the order of calls.
#[derive(Debug, Clone)]
pub(crate) struct SequenceCheck {
    head: Head,
    earlier: Selected,
    /// The earlier calls are needed, not forbidden.
    needed: bool,
    same: Option<Same>,
    scope: Scope,
}

impl SequenceCheck {
    pub(crate) const fn head(&self) -> &Head {
        &self.head
    }

    /// The calls of which one must have succeeded first, where the rule waits for such.
    pub(crate) fn needs(&self) -> Option<&Selected> {
        self.needed.then_some(&self.earlier)
    }

    pub(crate) fn compile(
        id: &RuleId,
        rule: &SequenceRule,
        registry: Registry<'_>,
        faults: &mut Faults,
    ) -> Option<Self> {
        let at = at("sequences", id);
        let on = rule.on.compile(&format!("{at}/on"), registry, faults);
        let (selector, key, needed) = match (&rule.after, &rule.only_after) {
            (Some(after), None) => (after, "after", false),
            (None, Some(only_after)) => (only_after, "only_after", true),
            (None, None) | (Some(_), Some(_)) => {
                faults.add(&at, "sequence", "give exactly one of `after` and `only_after`");
                return None;
            }
        };
        let earlier = earlier_selector(selector, &format!("{at}/{key}"), registry, faults);
        if needed && rule.same.is_none() && !earlier.tools.is_empty() && earlier.tools == on.tools {
            let detail = "the calls it applies to are those it waits for, so none could ever be the first";
            faults.add(format!("{at}/only_after"), "unreachable", detail);
        }
        let same = match &rule.same {
            None => None,
            Some(form) => Some(Same::compile(form, &format!("{at}/same"), &on, &earlier, registry, faults)?),
        };
        let this = same.as_ref().map(|same| same.this.as_str().to_owned());
        let looked_at = std::iter::once(format!("earlier calls of the {}", rule.scope.code())).chain(this).collect();
        let note = rule.note.clone();
        let head = Head {
            id: id.as_str().into(),
            layer: Layer::Sequence,
            on,
            effect: rule.effect,
            mode: rule.mode,
            note,
            looked_at,
        };
        Some(Self { head, earlier, needed, same, scope: rule.scope })
    }

    pub(crate) fn judge(&self, facts: &Facts<'_>) -> Option<Finding> {
        if !self.head.applies(facts.tool, facts.profile) {
            return None;
        }
        let this = match &self.same {
            None => None,
            Some(same) => {
                let Some(value) = same.this.single(facts.args) else {
                    let detail = format!("`{}` is missing, and its rule compares it", same.this.as_str());
                    return Some(self.head.deny(Code::ArgumentMissing, detail));
                };
                Some((value, &same.earlier))
            }
        };
        let found = in_scope(facts, self.scope).any(|call| {
            let counts = if self.needed { call.status == CallStatus::Ok } else { call.status.may_have_effect() };
            counts
                && self.earlier.has(call.tool)
                && this.is_none_or(|(value, place)| match call.args.and_then(|args| place.single(args)) {
                    Some(earlier) => exact::same(earlier, value),
                    // What cannot be compared may have been the same.
                    None => !self.needed,
                })
        });
        if found == self.needed {
            return Some(self.head.pass());
        }
        let names: Vec<&str> = self.earlier.tools.iter().take(8).map(String::as_str).collect();
        let same = if self.same.is_some() { " with the same value" } else { "" };
        let detail = if self.needed {
            format!("needs a successful call of {} before it{same}", names.join(" or "))
        } else {
            format!("not after a call of {}{same}", names.join(" or "))
        };
        Some(self.head.object(Code::SequenceRule, detail))
    }
}
