//! Origin rules: the value of an argument must occur in the user's own words or in the result of a trusted tool.
//! What is not here: finding a value in a text (`origin::find`). Text that a tool brought never becomes the user's words.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::checklist::covers;
use crate::facts::{CallStatus, Facts};
use crate::fault::Faults;
use crate::finding::{Code, Finding, Layer, Outcome};
use crate::place::Place;
use crate::rule::{Absent, Effect, Head, MAX_NOTE, Mode, Registry, RuleId, Selector, at, place_of};

mod find;
mod token;

use find::Needle;

/// A rule on where an argument's value comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OriginRule {
    /// The calls it applies to.
    pub on: Selector,
    /// The argument: a JSON pointer in which `*` stands for each element of a list; each must have an origin.
    pub argument: String,
    /// What the value is, and so how it is found in a text.
    #[serde(rename = "as", default)]
    pub kind: OriginKind,
    /// Where the value may come from.
    pub from: Sources,
    /// What is done when the argument is not there.
    #[serde(default)]
    pub absent: Absent,
    /// What is done when the value has no origin. A value that cannot be looked for is always denied.
    #[serde(default = "Effect::ask")]
    pub effect: Effect,
    /// Whether it counts.
    #[serde(default)]
    pub mode: Mode,
    /// Why the rule is there, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// How a value is found in a text. In every kind, the value must stand there whole: never as a part of a longer word,
/// address or number, and never pieced together from several places or messages. Nothing is decoded (`%40` is no `@`),
/// and letters that merely look alike are different.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OriginKind {
    /// Any text: compared after NFKC, lower case and one space for any white space. The characters around it may not be
    /// letters, digits or `_`, nor one of `-.@/+%:'&=#` that joins it to a letter or digit.
    #[default]
    Text,
    /// An e-mail address: folded like `text`, compared with whole addresses (runs of letters, digits and `._%+-@`).
    Email,
    /// A URL, or a bare `host/path`: compared by the URL standard's own form with whole URLs of the text. Host and scheme
    /// without case, all else letter for letter; the scheme only where both have one.
    Url,
    /// The host of a URL or a bare host: compared with the hosts of URLs and bare hosts in the text, where an address
    /// counts only if it is spelled in full (`2.0.0.5`, not `2.5`).
    Host,
    /// A number, or a text that is one: compared by value (`98.70` is `98.7`, `1,000` is `1000`) with whole numbers of
    /// the text; digits of dates, versions, words and numbers grouped by spaces or apostrophes are none.
    Number,
    /// An identifier: letter for letter, case included, compared with whole words (up to white space, quotes, brackets
    /// and any of `,;|=`, without `.:!?` at the ends). An integer is looked for by its digits.
    Id,
}

/// Where a value may come from; at least one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sources {
    /// The user's own words.
    #[serde(default)]
    pub user: bool,
    /// Results of trusted tools: successful calls of the session.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub results: Vec<TrustedResult>,
}

/// The result of a tool that may be trusted for this argument.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrustedResult {
    /// The tool.
    pub tool: String,
    /// Where in its result, read as JSON, the value must stand by itself: a JSON pointer with `*` for list elements.
    /// Absent means anywhere in the result's text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
}

/// A compiled origin rule.
#[derive(Debug, Clone)]
pub(crate) struct OriginCheck {
    head: Head,
    place: Place,
    kind: OriginKind,
    user: bool,
    results: Vec<(String, Option<Place>)>,
    absent: Absent,
}

/// Bytes of one text in which a value is looked for; a longer one is not searched.
const MAX_TEXT: usize = 512 * 1024;
/// Bytes of all results that are searched for one call, the newest first.
const MAX_RESULTS: usize = 4 * 1024 * 1024;
/// Values that one call may have under one rule.
const MAX_NEEDLES: usize = 256;

impl OriginCheck {
    pub(crate) const fn head(&self) -> &Head {
        &self.head
    }

    pub(crate) fn compile(id: &RuleId, rule: &OriginRule, registry: Registry<'_>, faults: &mut Faults) -> Option<Self> {
        let at = at("origins", id);
        let on = rule.on.compile(&format!("{at}/on"), registry, faults);
        let place = place_of(&rule.argument, &format!("{at}/argument"), &on, registry, faults);
        if !rule.from.user && rule.from.results.is_empty() {
            faults.add(format!("{at}/from"), "sources", "names no source; write `\"user\": true` or name `results`");
        }
        if rule.note.chars().count() > MAX_NOTE {
            faults.add(format!("{at}/note"), "bound", format!("a note has at most {MAX_NOTE} characters"));
        }
        let mut results = Vec::new();
        for (idx, source) in rule.from.results.iter().enumerate() {
            let here = format!("{at}/from/results/{idx}");
            if !registry.tools.contains_key(&source.tool) {
                faults.add(format!("{here}/tool"), "tool_exists", format!("there is no tool `{}`", source.tool));
            }
            match source.at.as_deref().map(Place::parse).transpose() {
                Ok(place) => results.push((source.tool.clone(), place)),
                Err(detail) => faults.add(format!("{here}/at"), "pointer", detail),
            }
        }
        let user = rule.from.user.then(|| "user words".to_owned());
        let sources = user.into_iter().chain(results.iter().map(|(tool, _)| format!("results of {tool}")));
        let looked_at = std::iter::once(rule.argument.clone()).chain(sources).collect();
        let note = rule.note.clone();
        let head = Head {
            id: id.as_str().into(),
            layer: Layer::Origin,
            on,
            effect: rule.effect,
            mode: rule.mode,
            note,
            looked_at,
        };
        Some(Self { head, place: place?, kind: rule.kind, user: rule.from.user, results, absent: rule.absent })
    }

    /// Whether the rule is enforced and looks at this place of this tool's arguments, in every profile.
    pub(crate) fn guards(&self, tool: &str, place: &str) -> bool {
        self.head.guards(tool) && covers(self.place.as_str(), place)
    }

    pub(crate) fn judge(&self, facts: &Facts<'_>) -> Option<Finding> {
        if !self.head.applies(facts.tool, facts.profile) {
            return None;
        }
        let spots = self.place.find(facts.args);
        if spots.wrong || spots.values.len() > MAX_NEEDLES {
            let detail =
                format!("`{}` cannot be reached in these arguments, or has too many values", self.place.as_str());
            return Some(self.head.deny(Code::ArgumentWrongKind, detail));
        }
        if spots.absent && self.absent == Absent::Deny {
            let detail = format!("`{}` is missing, and its rule needs it", self.place.as_str());
            return Some(self.head.deny(Code::ArgumentMissing, detail));
        }
        let mut worst: Option<Finding> = None;
        for value in spots.values {
            let found = match Needle::new(self.kind, value) {
                Err(what) => {
                    let detail = format!("`{}` must be {what}", self.place.as_str());
                    self.head.deny(Code::ArgumentWrongKind, detail)
                }
                Ok(needle) if needle.as_ref().is_some_and(|needle| self.has_origin(needle, facts)) => continue,
                Ok(_) => {
                    let detail = format!("`{}` occurs whole in none of: {}", self.place.as_str(), self.sources());
                    self.head.object(Code::OriginUnknown, detail)
                }
            };
            if found.outcome == Outcome::Deny {
                return Some(found);
            }
            worst.get_or_insert(found);
        }
        Some(worst.unwrap_or_else(|| self.head.pass()))
    }

    fn sources(&self) -> String {
        let user = self.user.then(|| "the user's own words".to_owned());
        let results = self.results.iter().map(|(tool, _)| format!("results of `{tool}`"));
        user.into_iter().chain(results).collect::<Vec<_>>().join(", ")
    }

    fn has_origin(&self, needle: &Needle, facts: &Facts<'_>) -> bool {
        let said = |text: &&str| text.len() <= MAX_TEXT && needle.is_in(text);
        if self.user && facts.user_words.iter().any(said) {
            return true;
        }
        let mut left = MAX_RESULTS;
        for call in facts.earlier.iter().rev().filter(|call| call.status == CallStatus::Ok) {
            let Some(result) = call.result else { continue };
            for (_, place) in self.results.iter().filter(|(tool, _)| tool == call.tool) {
                if result.len() > MAX_TEXT || result.len() > left {
                    continue;
                }
                left -= result.len();
                let found = match place {
                    None => needle.is_in(result),
                    Some(place) => serde_json::from_str::<Value>(result)
                        .is_ok_and(|value| place.find(&value).values.into_iter().any(|value| needle.equals(value))),
                };
                if found {
                    return true;
                }
            }
        }
        false
    }
}
