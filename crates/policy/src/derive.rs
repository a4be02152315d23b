//! Fields that a tool contract derives from an argument, so that policies look at what a value means and not at its
//! spelling. What is not here: rules on arguments (`args`), which use the same readers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::place::Place;

mod command;
mod form;
mod link;
mod path;

pub(crate) use command::Command;
pub(crate) use form::{Compiled, compile};
pub(crate) use link::{Link, parse_host, private_name};
pub(crate) use path::{NormPath, Root};

/// A derived field as a tool contract declares it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DerivedForm {
    /// Its name: `[a-z][a-z0-9_]{0,63}`, unique in the tool. Policies read `context.derived.<name>`.
    pub name: String,
    /// The argument, as JSON pointer.
    pub from: String,
    /// What the argument is.
    pub kind: DerivedKind,
    /// For `path`: where relative paths start, and what `inside` means; absolute.
    #[serde(default)]
    pub root: Option<String>,
    /// For `path`: the file system does not tell upper from lower case.
    #[serde(default)]
    pub fold_case: bool,
    /// What is done with a value that cannot be read as its kind.
    #[serde(default)]
    pub on_refused: OnRefused,
}

/// What an argument is, and so which fields it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DerivedKind {
    /// A command, as a list of words or one simple command in a text: `argv0`, `program`, `argv_len`, `words`.
    Argv,
    /// A path: `path_norm`, `inside`, `name`, `had_parent`.
    Path,
    /// An absolute URL: `scheme`, `host`, `port`, `userinfo_present`, `host_is_ip`.
    Url,
    /// A text: `bytes`.
    Bytes,
    /// A list or object: `count`.
    Count,
}

/// What is done with a value that cannot be read as its kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnRefused {
    /// The call is denied.
    #[default]
    Deny,
    /// A human is asked; policies see the field as absent.
    Ask,
}

/// The fields derived from one argument.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Derived(pub BTreeMap<&'static str, DerivedValue>);

/// One derived field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum DerivedValue {
    /// A flag.
    Flag(bool),
    /// A count or size.
    Number(i64),
    /// A text.
    Text(String),
    /// Texts in order; policies see them as a set.
    Texts(Vec<String>),
}

/// Why a value cannot be read as what it should be. Never quotes the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Another JSON kind.
    #[error("must be {0}")]
    Kind(&'static str),
    /// Nothing in it.
    #[error("is empty")]
    Empty,
    /// Too long.
    #[error("is longer than {0} bytes")]
    Long(usize),
    /// Too many parts.
    #[error("has more than {0} parts")]
    Parts(usize),
    /// A character that hides or splits.
    #[error("has a control or invisible character")]
    Hidden,
    /// A text that a shell would not take as one simple command.
    #[error("is not one simple command: {0}")]
    Shell(&'static str),
    /// A path that means different things to different systems.
    #[error("is no plain path: {0}")]
    Path(&'static str),
    /// A URL that readers understand differently.
    #[error("is no plain absolute URL: {0}")]
    Url(&'static str),
}

impl DerivedKind {
    /// The fields of this kind, in order of name.
    #[must_use]
    pub const fn fields(self) -> &'static [(&'static str, FieldKind)] {
        match self {
            Self::Argv => &[
                ("argv0", FieldKind::Text),
                ("argv_len", FieldKind::Number),
                ("program", FieldKind::Text),
                ("words", FieldKind::Texts),
            ],
            Self::Path => &[
                ("had_parent", FieldKind::Flag),
                ("inside", FieldKind::Flag),
                ("name", FieldKind::Text),
                ("path_norm", FieldKind::Text),
            ],
            Self::Url => &[
                ("host", FieldKind::Text),
                ("host_is_ip", FieldKind::Flag),
                ("port", FieldKind::Number),
                ("scheme", FieldKind::Text),
                ("userinfo_present", FieldKind::Flag),
            ],
            Self::Bytes => &[("bytes", FieldKind::Number)],
            Self::Count => &[("count", FieldKind::Number)],
        }
    }
}

/// The type of a derived field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldKind {
    /// True or false.
    Flag,
    /// A 64-bit integer.
    Number,
    /// A text.
    Text,
    /// Several texts.
    Texts,
}

/// Derives the fields of one value.
pub(crate) fn derive(kind: DerivedKind, root: Option<&Root>, value: &Value) -> Result<Derived, Refused> {
    let fields = match kind {
        DerivedKind::Argv => {
            let command = Command::of(value)?;
            vec![
                ("argv0", DerivedValue::Text(command.argv0().to_owned())),
                ("program", DerivedValue::Text(command.program())),
                ("argv_len", number(command.words().len())),
                ("words", DerivedValue::Texts(command.words().to_vec())),
            ]
        }
        DerivedKind::Path => {
            let root = root.ok_or(Refused::Path("no root is declared"))?;
            let path = root.normalise(text(value)?)?;
            vec![
                ("inside", DerivedValue::Flag(path.is_under(root.path()))),
                ("name", DerivedValue::Text(path.name().to_owned())),
                ("had_parent", DerivedValue::Flag(path.had_parent())),
                ("path_norm", DerivedValue::Text(path.text())),
            ]
        }
        DerivedKind::Url => {
            let link = Link::parse(text(value)?)?;
            vec![
                ("host_is_ip", DerivedValue::Flag(link.ip().is_some())),
                ("scheme", DerivedValue::Text(link.scheme().to_owned())),
                ("port", DerivedValue::Number(link.port().map_or(-1, i64::from))),
                ("userinfo_present", DerivedValue::Flag(link.userinfo())),
                ("host", DerivedValue::Text(link.host().to_owned())),
            ]
        }
        DerivedKind::Bytes => vec![("bytes", number(text(value)?.len()))],
        DerivedKind::Count => match value {
            Value::Array(items) => vec![("count", number(items.len()))],
            Value::Object(map) => vec![("count", number(map.len()))],
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                return Err(Refused::Kind("a list or an object"));
            }
        },
    };
    Ok(Derived(fields.into_iter().collect()))
}

fn number(count: usize) -> DerivedValue {
    DerivedValue::Number(i64::try_from(count).unwrap_or(i64::MAX))
}

/// The text of a value.
pub(crate) fn text(value: &Value) -> Result<&str, Refused> {
    value.as_str().ok_or(Refused::Kind("a text"))
}

/// Whether a pointer or something above or below it is secret.
fn is_secret(place: &Place, secret: &[String]) -> bool {
    let place = place.as_str();
    let covers = |outer: &str, inner: &str| {
        inner.strip_prefix(outer).is_some_and(|rest| outer.is_empty() || rest.is_empty() || rest.starts_with('/'))
    };
    secret.iter().any(|pointer| covers(pointer, place) || covers(place, pointer))
}
