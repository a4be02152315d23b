//! Judging argument rules. What is not here: compiling them (`compile`), the conditions one by one.

use serde_json::Value;

use super::compile::ArgumentCheck;
use super::{Miss, argv, value};
use crate::checklist::covers;
use crate::facts::Facts;
use crate::finding::{Code, Finding, Outcome};
use crate::rule::Absent;

impl ArgumentCheck {
    /// Whether the rule is enforced and looks at this place of this tool's arguments, in every profile.
    pub(crate) fn guards(&self, tool: &str, place: &str) -> bool {
        self.head.guards(tool) && covers(self.place.as_str(), place)
    }

    /// What the rule finds; `None` if it does not apply.
    pub(crate) fn judge(&self, facts: &Facts<'_>) -> Option<Finding> {
        if !self.head.applies(facts.tool, facts.profile) {
            return None;
        }
        let spots = self.place.find(facts.args);
        if spots.wrong {
            let detail = format!("`{}` cannot be reached in these arguments", self.place.as_str());
            return Some(self.head.deny(Code::ArgumentWrongKind, detail));
        }
        if spots.absent && self.rule.absent == Absent::Deny {
            let detail = format!("`{}` is missing, and its rule needs it", self.place.as_str());
            return Some(self.head.deny(Code::ArgumentMissing, detail));
        }
        let resolved = facts.resolved_paths.and_then(|all| all.get(self.place.as_str())).map(String::as_str);
        let mut worst: Option<Finding> = None;
        for value in spots.values {
            let Err(miss) = self.value(value, resolved) else { continue };
            let found = match miss {
                Miss::Unreadable(what) => {
                    let detail = format!("`{}` {what}", self.place.as_str());
                    self.head.deny(Code::ArgumentWrongKind, detail)
                }
                Miss::Fails(what) => {
                    let detail = format!("`{}` {what}", self.place.as_str());
                    self.head.object(Code::ArgumentRule, detail)
                }
            };
            if found.outcome == Outcome::Deny {
                return Some(found);
            }
            worst.get_or_insert(found);
        }
        Some(worst.unwrap_or_else(|| self.head.pass()))
    }

    /// Every condition on one value. One that cannot be looked at wins over one that fails.
    fn value(&self, value: &Value, resolved: Option<&str>) -> Result<(), Miss> {
        let rule = &self.rule;
        let mut first: Option<Miss> = None;
        let mut ask = |answer: Result<(), Miss>| match answer {
            Ok(()) => Ok(()),
            Err(Miss::Unreadable(what)) => Err(Miss::Unreadable(what)),
            Err(fails) => {
                first.get_or_insert(fails);
                Ok(())
            }
        };
        if let Some(exact) = &rule.exact {
            ask(value::one_of(std::slice::from_ref(exact), value))?;
        }
        if let Some(list) = &rule.one_of {
            ask(value::one_of(list, value))?;
        }
        if let Some(list) = &rule.not_one_of {
            ask(value::not_one_of(list, value))?;
        }
        if rule.min.is_some() || rule.max.is_some() {
            ask(value::within(rule.min.as_ref(), rule.max.as_ref(), value))?;
        }
        if rule.min_len.is_some() || rule.max_len.is_some() {
            ask(value::length(rule.min_len, rule.max_len, value))?;
        }
        if let Some(pattern) = &self.regex {
            ask(pattern.matches_whole(value))?;
        }
        if let Some(pattern) = &self.not_regex {
            ask(pattern.matches_nowhere(value))?;
        }
        if let Some(paths) = &self.path {
            ask(paths.check(value, resolved))?;
        }
        if let Some(urls) = &self.url {
            ask(urls.check(value))?;
        }
        if let Some(form) = &rule.argv {
            ask(argv::check(form, value))?;
        }
        first.map_or(Ok(()), Err)
    }
}
