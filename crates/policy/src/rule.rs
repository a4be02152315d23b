//! What all rules share: an id, the calls they apply to, what they do and whether that counts.
//! What is not here: what they ask.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::facts::{Class, Risk, ToolFacts, Venue};
use crate::fault::{Faults, escape};
use crate::finding::{Code, Finding, Layer, Outcome};
use crate::place::{Declared, Place};

/// The id of a rule: `[a-z0-9_.-]{1,64}`, unique in a policy.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleId(String);

/// A text that is no rule id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a rule id has 1 to 64 of the characters a-z, 0-9, `_`, `.`, `-`")]
pub struct InvalidRuleId;

impl RuleId {
    /// Checks the text. Fails unless it has 1 to 64 of the characters `a-z`, `0-9`, `_`, `.`, `-`.
    pub fn new(text: impl Into<String>) -> Result<Self, InvalidRuleId> {
        let text = text.into();
        let fits = (1..=64).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'.' | b'-'));
        if fits { Ok(Self(text)) } else { Err(InvalidRuleId) }
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RuleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for RuleId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for RuleId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

/// What a rule does when it does not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// The call is denied.
    Deny,
    /// A human is asked.
    Ask,
}

impl Effect {
    pub(crate) const fn outcome(self) -> Outcome {
        match self {
            Self::Deny => Outcome::Deny,
            Self::Ask => Outcome::Ask,
        }
    }

    pub(crate) const fn deny() -> Self {
        Self::Deny
    }

    pub(crate) const fn ask() -> Self {
        Self::Ask
    }
}

/// Whether a rule counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// It counts.
    #[default]
    Enforce,
    /// It is evaluated and recorded, and decides nothing.
    Shadow,
    /// It is checked when loaded, and not evaluated.
    Off,
}

/// What is done with an argument that is not there. A `null` or a value of another kind is there, and denied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Absent {
    /// The call is denied.
    #[default]
    Deny,
    /// The rule has nothing to object: for arguments that may be left out.
    Pass,
}

/// Which earlier calls a rule counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Those of the run.
    Run,
    /// Those of the session.
    Session,
}

impl Scope {
    /// The word used in policies.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Session => "session",
        }
    }
}

/// The calls a rule applies to: those that fit every key given; within a key, any of its values.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Selector {
    /// Every tool. Written out, so that an empty selector is no accident.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all: bool,
    /// Tools by id.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub tools: BTreeSet<String>,
    /// Tools with one of these tags.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub tags: BTreeSet<String>,
    /// Tools of these venues.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub venues: BTreeSet<Venue>,
    /// Tools of these classes.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub classes: BTreeSet<Class>,
    /// Tools of these risks.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub risks: BTreeSet<Risk>,
    /// Sessions of these profiles; absent means all.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub profiles: BTreeSet<String>,
}

/// The registry that a policy is compiled against.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Registry<'a> {
    pub(crate) tools: &'a BTreeMap<String, ToolFacts>,
    /// Profiles with their tools.
    pub(crate) profiles: &'a BTreeMap<String, BTreeSet<String>>,
}

/// A selector with its tools named.
#[derive(Debug, Clone)]
pub(crate) struct Selected {
    pub(crate) tools: BTreeSet<String>,
    profiles: BTreeSet<String>,
}

impl Selected {
    pub(crate) fn matches(&self, tool: &str, profile: &str) -> bool {
        self.tools.contains(tool) && (self.profiles.is_empty() || self.profiles.contains(profile))
    }

    /// Whether an earlier call of this tool is meant; the profile of a session does not change.
    pub(crate) fn has(&self, tool: &str) -> bool {
        self.tools.contains(tool)
    }
}

impl Selector {
    /// Finds the tools; a name, tag or profile that does not exist, or a selector that fits nothing, is a fault.
    pub(crate) fn compile(&self, at: &str, registry: Registry<'_>, faults: &mut Faults) -> Selected {
        let narrows = !self.tools.is_empty()
            || !self.tags.is_empty()
            || !self.venues.is_empty()
            || !self.classes.is_empty()
            || !self.risks.is_empty();
        if self.all == narrows {
            let detail = if narrows {
                "`all` beside other keys says two things; leave one out"
            } else {
                "names no tools; name `tools`, `tags`, `venues`, `classes` or `risks`, or write `\"all\": true`"
            };
            faults.add(at, "selector", detail);
        }
        for name in self.tools.iter().filter(|name| !registry.tools.contains_key(*name)) {
            faults.add(format!("{at}/tools"), "tool_exists", format!("there is no tool `{name}`"));
        }
        for tag in &self.tags {
            if !registry.tools.values().any(|tool| tool.tags.contains(tag)) {
                faults.add(format!("{at}/tags"), "tag_exists", format!("no tool has the tag `{tag}`"));
            }
        }
        for name in self.profiles.iter().filter(|name| !registry.profiles.contains_key(*name)) {
            faults.add(format!("{at}/profiles"), "profile_exists", format!("there is no profile `{name}`"));
        }
        let before = faults.count();
        let tools: BTreeSet<String> =
            registry.tools.values().filter(|tool| self.fits(tool)).map(|tool| tool.id.clone()).collect();
        if tools.is_empty() && (self.all || narrows) && faults.count() == before {
            faults.add(at, "selects_something", "no tool fits all of these keys, so the rule would never apply");
        }
        for name in &self.profiles {
            let reached = registry.profiles.get(name).is_none_or(|has| has.iter().any(|tool| tools.contains(tool)));
            if !reached && !tools.is_empty() {
                let detail = format!("the profile `{name}` has none of the selected tools");
                faults.add(format!("{at}/profiles"), "selects_something", detail);
            }
        }
        Selected { tools, profiles: self.profiles.clone() }
    }

    fn fits(&self, tool: &ToolFacts) -> bool {
        (self.tools.is_empty() || self.tools.contains(&tool.id))
            && (self.tags.is_empty() || self.tags.iter().any(|tag| tool.tags.contains(tag)))
            && (self.venues.is_empty() || self.venues.contains(&tool.venue))
            && (self.classes.is_empty() || self.classes.contains(&tool.class))
            && (self.risks.is_empty() || self.risks.contains(&tool.risk))
    }
}

/// The part of a compiled rule that all kinds share.
#[derive(Debug, Clone)]
pub(crate) struct Head {
    pub(crate) id: Arc<str>,
    pub(crate) layer: Layer,
    pub(crate) on: Selected,
    pub(crate) effect: Effect,
    pub(crate) mode: Mode,
    pub(crate) note: String,
    /// The inputs it looks at, by name: the same for every call, so that findings only point at them.
    pub(crate) looked_at: Arc<[String]>,
}

impl Head {
    pub(crate) fn applies(&self, tool: &str, profile: &str) -> bool {
        self.mode != Mode::Off && self.on.matches(tool, profile)
    }

    /// Whether the rule is enforced for all calls of a tool.
    pub(crate) fn guards(&self, tool: &str) -> bool {
        self.mode == Mode::Enforce && self.on.profiles.is_empty() && self.on.has(tool)
    }

    pub(crate) fn finding(&self, outcome: Outcome) -> Finding {
        Finding {
            rule_id: Arc::clone(&self.id),
            layer: self.layer,
            outcome,
            code: None,
            shadow: self.mode == Mode::Shadow,
            detail: None,
            looked_at: Arc::clone(&self.looked_at),
        }
    }

    /// The rule holds.
    pub(crate) fn pass(&self) -> Finding {
        self.finding(Outcome::Pass)
    }

    /// The rule does not hold: its effect, and why.
    pub(crate) fn object(&self, code: Code, detail: impl Into<String>) -> Finding {
        self.state(self.effect.outcome(), code, detail)
    }

    /// The rule cannot look at what it must look at: deny, whatever its effect.
    pub(crate) fn deny(&self, code: Code, detail: impl Into<String>) -> Finding {
        self.state(Outcome::Deny, code, detail)
    }

    /// A finding with a remark.
    pub(crate) fn state(&self, outcome: Outcome, code: Code, detail: impl Into<String>) -> Finding {
        let mut detail = detail.into();
        if !self.note.is_empty() {
            detail = format!("{detail} ({})", self.note);
        }
        Finding { code: Some(code), detail: Some(detail), ..self.finding(outcome) }
    }
}

/// Reads a place and sees to it that every selected tool can have a value there.
pub(crate) fn place_of(
    text: &str,
    at: &str,
    on: &Selected,
    registry: Registry<'_>,
    faults: &mut Faults,
) -> Option<Place> {
    let place = match Place::parse(text) {
        Ok(place) => place,
        Err(detail) => {
            faults.add(at, "pointer", detail);
            return None;
        }
    };
    for tool in on.tools.iter().filter_map(|id| registry.tools.get(id)) {
        if place.declared(&tool.parameters) == Declared::No {
            let detail = format!("the tool `{}` has no argument `{text}`; select only tools that have it", tool.id);
            faults.add(at, "argument_exists", detail);
        }
    }
    Some(place)
}

/// The pointer of a rule.
pub(crate) fn at(section: &str, id: &RuleId) -> String {
    format!("/{section}/{}", escape(id.as_str()))
}

/// The longest note.
pub(crate) const MAX_NOTE: usize = 400;
