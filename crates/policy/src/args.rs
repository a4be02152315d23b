//! Rules on one argument: values, bounds, patterns, paths, URLs, commands. All conditions of a rule must hold for every
//! value of its place. What is not here: rules over earlier calls (`history`), where a value comes from (`origin`).

use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};

use crate::rule::{Absent, Effect, Mode, Selector};

mod argv;
mod compile;
mod contradict;
mod judge;
mod lint;
mod path;
mod url;
mod value;

pub use self::url::UrlForm;
pub use argv::{ArgvForm, ExecutableForm};
pub(crate) use compile::ArgumentCheck;
pub(crate) use lint::lint;
pub use path::PathForm;
pub(crate) use value::PatternBudget;

/// A rule on an argument.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArgumentRule {
    /// The calls it applies to.
    pub on: Selector,
    /// The argument: a JSON pointer in which `*` stands for each element of a list.
    pub argument: String,
    /// It equals this value; numbers by value, so `1` equals `1.0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exact: Option<Value>,
    /// It equals one of these values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub one_of: Option<Vec<Value>>,
    /// It equals none of these values; texts are compared without case, compatibility forms and outer spaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_one_of: Option<Vec<Value>>,
    /// It is a number, at least this; compared exactly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<Number>,
    /// It is a number, at most this; compared exactly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<Number>,
    /// It is a text of at least so many characters, or a list of at least so many elements.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_len: Option<u64>,
    /// It is a text of at most so many characters, or a list of at most so many elements.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_len: Option<u64>,
    /// It is a text that this pattern matches from its first to its last character; at most 65,536 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub regex: Option<String>,
    /// It is a text that this pattern matches nowhere; at most 65,536 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_regex: Option<String>,
    /// It is a path within bounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathForm>,
    /// It is an absolute URL within bounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<UrlForm>,
    /// It is a command within bounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub argv: Option<ArgvForm>,
    /// What is done when the argument is not there.
    #[serde(default)]
    pub absent: Absent,
    /// What is done when a condition does not hold. Another kind than the rule asks for is always denied.
    #[serde(default = "Effect::deny")]
    pub effect: Effect,
    /// Whether it counts.
    #[serde(default)]
    pub mode: Mode,
    /// Why the rule is there, for people; at most 400 characters.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// Why a value does not pass a condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Miss {
    /// It cannot be looked at: always denied.
    Unreadable(String),
    /// It does not hold: the rule's effect.
    Fails(String),
}
