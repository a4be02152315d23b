//! Rates: so many calls in a sliding window of time. What is not here: a clock; times are facts.

use serde::{Deserialize, Serialize};

use super::in_scope;
use crate::facts::Facts;
use crate::fault::Faults;
use crate::finding::{Code, Finding, Layer};
use crate::rule::{Effect, Head, Mode, Registry, RuleId, Scope, Selector, at};

/// A limit on calls per time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateRule {
    /// The calls it applies to.
    pub on: Selector,
    /// Calls in the window, this one included; 1 to 1,000,000.
    pub max: u32,
    /// The window in milliseconds before the decision; 1 to 86,400,000.
    pub window_ms: u64,
    /// Count each tool apart instead of all selected tools together.
    #[serde(default)]
    pub per_tool: bool,
    /// Which earlier calls count.
    #[serde(default = "session")]
    pub scope: Scope,
    /// What is done when the limit is reached.
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

/// A compiled rate.
#[derive(Debug, Clone)]
pub(crate) struct RateCheck {
    head: Head,
    max: u32,
    window_ms: u64,
    per_tool: bool,
    scope: Scope,
}

impl RateCheck {
    pub(crate) const fn head(&self) -> &Head {
        &self.head
    }

    pub(crate) fn compile(id: &RuleId, rule: &RateRule, registry: Registry<'_>, faults: &mut Faults) -> Self {
        let at = at("rates", id);
        let on = rule.on.compile(&format!("{at}/on"), registry, faults);
        if !(1..=1_000_000).contains(&rule.max) {
            faults.add(format!("{at}/max"), "bound", "is 1 to 1,000,000; to allow none, use `lists`");
        }
        if !(1..=86_400_000).contains(&rule.window_ms) {
            faults.add(format!("{at}/window_ms"), "bound", "is 1 to 86,400,000 milliseconds (a day)");
        }
        let looked_at = ["time".to_owned(), format!("earlier calls of the {}", rule.scope.code())].into();
        let note = rule.note.clone();
        let head = Head {
            id: id.as_str().into(),
            layer: Layer::Rate,
            on,
            effect: rule.effect,
            mode: rule.mode,
            note,
            looked_at,
        };
        Self { head, max: rule.max, window_ms: rule.window_ms, per_tool: rule.per_tool, scope: rule.scope }
    }

    pub(crate) fn judge(&self, facts: &Facts<'_>) -> Option<Finding> {
        if !self.head.applies(facts.tool, facts.profile) {
            return None;
        }
        let window = self.window_ms.saturating_mul(1_000);
        let count = in_scope(facts, self.scope)
            .filter(|call| {
                let meant = if self.per_tool { call.tool == facts.tool } else { self.head.on.has(call.tool) };
                // A clock that went back puts a call into the future; it still counts.
                meant && call.status.may_have_effect() && facts.at_micros.saturating_sub(call.at_micros) < window
            })
            .count();
        if u32::try_from(count).map_or(true, |count| count >= self.max) {
            let detail = format!("at most {} such calls in {} ms; try later", self.max, self.window_ms);
            return Some(self.head.object(Code::RateLimited, detail));
        }
        Some(self.head.pass())
    }
}
