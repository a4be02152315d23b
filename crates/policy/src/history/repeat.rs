//! Loop detection on canonical calls: the same call again and again, or a few calls in turn. Unknown and rejected calls
//! count like any other. What is not here: how a call's key is made; equal keys mean equal calls.

use serde::{Deserialize, Serialize};

use crate::fault::Faults;
use crate::rule::{Mode, Registry, Selected, Selector};

/// When a repeated call is warned about, refused, and ends the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RepeatRule {
    /// From this occurrence on the model is warned; 2 to 1,000.
    #[serde(default = "two")]
    pub warn: u32,
    /// From this occurrence on the call is refused; at least `warn`.
    #[serde(default = "three")]
    pub refuse: u32,
    /// At this occurrence the run ends; above `refuse`.
    #[serde(default = "five")]
    pub end: u32,
    /// How many different calls may take turns and still count as a loop: 1 finds A-A-A, 2 also A-B-A-B; 1 to 8.
    #[serde(default = "two")]
    pub cycle: u32,
    /// Calls that may repeat, for example to poll. Unknown tools are never exempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exempt: Option<Selector>,
    /// Whether it counts.
    #[serde(default)]
    pub mode: Mode,
}

const fn two() -> u32 {
    2
}
const fn three() -> u32 {
    3
}
const fn five() -> u32 {
    5
}

/// What a repetition leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RepeatLevel {
    /// The model is told.
    Warn,
    /// The call is refused.
    Refuse,
    /// The run ends.
    End,
}

/// A repetition that was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Repetition {
    /// What it leads to.
    pub level: RepeatLevel,
    /// Which occurrence of the call this is.
    pub count: u32,
    /// How many calls take turns; 1 means the same call in a row.
    pub cycle: u32,
    /// The rule is recorded, not enforced.
    pub shadow: bool,
    /// For the model: what is wrong and what leads on.
    pub detail: String,
}

/// A compiled repeat rule.
#[derive(Debug, Clone)]
pub(crate) struct RepeatCheck {
    rule: RepeatRule,
    exempt: Option<Selected>,
}

/// Calls further back than this are not looked at.
const MAX_BACK: usize = 10_000;

impl RepeatCheck {
    pub(crate) fn compile(rule: &RepeatRule, registry: Registry<'_>, faults: &mut Faults) -> Self {
        if !(2..=1_000).contains(&rule.warn) {
            faults.add("/repeats/warn", "bound", "is 2 to 1,000: the first occurrence is no repetition");
        }
        if rule.refuse < rule.warn {
            faults.add("/repeats/refuse", "bound", "is at least `warn`");
        }
        if rule.end <= rule.refuse || rule.end > 1_000 {
            faults.add("/repeats/end", "bound", "is above `refuse` and at most 1,000");
        }
        if !(1..=8).contains(&rule.cycle) {
            faults.add("/repeats/cycle", "bound", "is 1 to 8");
        }
        let exempt = rule.exempt.as_ref().map(|selector| selector.compile("/repeats/exempt", registry, faults));
        Self { rule: rule.clone(), exempt }
    }

    /// Looks at the calls of a run, oldest first; `keys` ends before the call under decision.
    pub(crate) fn judge<K: PartialEq>(&self, keys: &[K], key: &K, tool: &str, profile: &str) -> Option<Repetition> {
        let exempt = self.exempt.as_ref().is_some_and(|exempt| exempt.matches(tool, profile));
        if self.rule.mode == Mode::Off || exempt {
            return None;
        }
        let skipped = keys.len().saturating_sub(MAX_BACK);
        let keys: Vec<&K> = keys.iter().skip(skipped).chain(std::iter::once(key)).collect();
        let (count, cycle) =
            (1..=self.rule.cycle).map(|cycle| (occurrences(&keys, cycle), cycle)).max_by_key(|(count, cycle)| {
                // The shortest cycle explains best.
                (*count, u32::MAX - *cycle)
            })?;
        let level = match count {
            n if n >= self.rule.end => RepeatLevel::End,
            n if n >= self.rule.refuse => RepeatLevel::Refuse,
            n if n >= self.rule.warn => RepeatLevel::Warn,
            _ => return None,
        };
        let what = if cycle == 1 {
            format!("the same call for the {count}. time in a row")
        } else {
            format!("{cycle} calls in turn, this one for the {count}. time")
        };
        let detail = format!("{what}; the answer will not change: use what came back, try something else, or finish");
        Some(Repetition { level, count, cycle, shadow: self.rule.mode == Mode::Shadow, detail })
    }
}

/// How often the last key occurs in the part at the end in which the same calls take turns.
fn occurrences<K: PartialEq>(keys: &[&K], cycle: u32) -> u32 {
    let period = usize::try_from(cycle).unwrap_or(usize::MAX);
    let turns =
        keys.iter().rev().zip(keys.iter().rev().skip(period)).take_while(|(later, earlier)| later == earlier).count();
    // One whole turn must have come back, or it is no cycle.
    if turns < period {
        return 1;
    }
    u32::try_from(turns / period).unwrap_or(u32::MAX).saturating_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(rule: RepeatRule, keys: &str) -> Option<(RepeatLevel, u32, u32)> {
        let mut keys: Vec<char> = keys.chars().collect();
        let last = keys.pop()?;
        let check = RepeatCheck { rule, exempt: None };
        check.judge(&keys, &last, "t", "p").map(|r| (r.level, r.count, r.cycle))
    }

    fn rule() -> RepeatRule {
        RepeatRule { warn: 3, refuse: 4, end: 6, cycle: 3, exempt: None, mode: Mode::Enforce }
    }

    #[test]
    fn loops_are_warned_refused_and_ended() {
        for (keys, answer) in [
            ("A", None),
            ("AA", None),
            ("AAA", Some((RepeatLevel::Warn, 3, 1))),
            ("AAAA", Some((RepeatLevel::Refuse, 4, 1))),
            ("AAAAAA", Some((RepeatLevel::End, 6, 1))),
            ("AAABA", None),
            ("ABAB", None),
            ("ABABA", None),
            ("ABABAB", Some((RepeatLevel::Warn, 3, 2))),
            ("XABABAB", Some((RepeatLevel::Warn, 3, 2))),
            ("ABABABA", Some((RepeatLevel::Warn, 3, 2))),
            ("ABABABAB", Some((RepeatLevel::Refuse, 4, 2))),
            ("ABCABCABC", Some((RepeatLevel::Warn, 3, 3))),
            ("ABCDABCDABCD", None),
            ("AABAAB", None),
        ] {
            assert_eq!(found(rule(), keys), answer, "{keys}");
        }
    }

    #[test]
    fn a_rule_that_is_off_finds_nothing() {
        let off = RepeatRule { mode: Mode::Off, ..rule() };
        assert_eq!(found(off, "AAAAAAAA"), None);
    }
}
