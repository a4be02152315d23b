//! Conditions on plain values: equality, bounds, lengths, patterns. What is not here: values with a structure of their
//! own (`path`, `url`, `argv`).

use std::cmp::Ordering;

use regex::{Regex, RegexBuilder};
use serde_json::{Number, Value};
use unicode_normalization::UnicodeNormalization;

use super::Miss;
use crate::exact;

/// Bytes of text beyond which a pattern is not tried.
const MAX_TEXT: usize = 65_536;
/// Characters of a pattern.
const MAX_PATTERN: usize = 1_024;
/// Bytes of a compiled pattern, and of its cache while it runs.
const MAX_PROGRAM: usize = 256 * 1024;

/// Whether a value equals one of a list, none of a list.
pub(super) fn one_of(wanted: &[Value], value: &Value) -> Result<(), Miss> {
    same_kind(wanted, value)?;
    if wanted.iter().any(|one| exact::same(one, value)) {
        return Ok(());
    }
    Err(Miss::Fails(format!("must be {}", listed(wanted))))
}

pub(super) fn not_one_of(unwanted: &[Value], value: &Value) -> Result<(), Miss> {
    same_kind(unwanted, value)?;
    let folded = folded(value);
    if unwanted.iter().any(|one| exact::same(one, value) || self::folded(one) == folded) {
        return Err(Miss::Fails(format!("must not be {}", listed(unwanted))));
    }
    Ok(())
}

/// A rule that lists texts says nothing about a number, so a number is not judged by it but refused.
fn same_kind(listed: &[Value], value: &Value) -> Result<(), Miss> {
    if listed.iter().any(|one| exact::kind(one) == exact::kind(value)) {
        return Ok(());
    }
    let kinds: std::collections::BTreeSet<&str> = listed.iter().map(exact::kind).collect();
    let kinds: Vec<&str> = kinds.into_iter().collect();
    Err(Miss::Unreadable(format!("must be a {}", kinds.join(" or "))))
}

fn folded(value: &Value) -> Value {
    match value {
        Value::String(text) => {
            Value::String(text.nfkc().collect::<String>().to_lowercase().nfkc().collect::<String>().trim().to_owned())
        }
        other => other.clone(),
    }
}

fn listed(values: &[Value]) -> String {
    let shown: Vec<String> = values.iter().take(8).map(ToString::to_string).collect();
    let more = if values.len() > shown.len() { ", …" } else { "" };
    match shown.as_slice() {
        [one] if more.is_empty() => one.clone(),
        many => format!("one of {}{more}", many.join(", ")),
    }
}

/// Whether a number lies within bounds.
pub(super) fn within(min: Option<&Number>, max: Option<&Number>, value: &Value) -> Result<(), Miss> {
    let Value::Number(number) = value else { return Err(Miss::Unreadable("must be a number".to_owned())) };
    for (bound, wrong, word) in [(min, Ordering::Less, "at least"), (max, Ordering::Greater, "at most")] {
        if let Some(bound) = bound {
            match exact::compare(number, bound) {
                None => return Err(Miss::Unreadable("must be a number that can be compared".to_owned())),
                Some(order) if order == wrong => return Err(Miss::Fails(format!("must be {word} {bound}"))),
                Some(_) => {}
            }
        }
    }
    Ok(())
}

/// Whether a length lies within bounds.
pub(super) fn length(min: Option<u64>, max: Option<u64>, value: &Value) -> Result<(), Miss> {
    let (count, unit) = match value {
        Value::String(text) => (text.chars().count(), "characters"),
        Value::Array(items) => (items.len(), "elements"),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
            return Err(Miss::Unreadable("must be a text or a list".to_owned()));
        }
    };
    let count = u64::try_from(count).unwrap_or(u64::MAX);
    if let Some(min) = min.filter(|min| count < *min) {
        return Err(Miss::Fails(format!("must have at least {min} {unit}")));
    }
    if let Some(max) = max.filter(|max| count > *max) {
        return Err(Miss::Fails(format!("must have at most {max} {unit}")));
    }
    Ok(())
}

/// A pattern with its text.
#[derive(Debug, Clone)]
pub(super) struct Pattern {
    source: String,
    regex: Regex,
}

impl Pattern {
    /// Compiles a pattern; `whole` makes it match from the first to the last character.
    pub(super) fn new(source: &str, whole: bool) -> Result<Self, String> {
        if source.chars().count() > MAX_PATTERN {
            return Err(format!("a pattern has at most {MAX_PATTERN} characters"));
        }
        let build = |text: &str| {
            RegexBuilder::new(text).size_limit(MAX_PROGRAM).dfa_size_limit(MAX_PROGRAM).nest_limit(32).build()
        };
        // First as it is, so that a stray bracket cannot close the group that is put around it.
        let bare = build(source).map_err(|error| refusal(&error))?;
        let regex = if whole { build(&format!(r"\A(?:{source})\z")).map_err(|error| refusal(&error))? } else { bare };
        Ok(Self { source: source.to_owned(), regex })
    }

    fn text<'v>(&self, value: &'v Value) -> Result<&'v str, Miss> {
        let Value::String(text) = value else { return Err(Miss::Unreadable("must be a text".to_owned())) };
        if text.len() > MAX_TEXT {
            return Err(Miss::Unreadable(format!("must have at most {MAX_TEXT} bytes")));
        }
        Ok(text)
    }

    pub(super) fn matches_whole(&self, value: &Value) -> Result<(), Miss> {
        if self.regex.is_match(self.text(value)?) {
            return Ok(());
        }
        Err(Miss::Fails(format!("must match `{}` as a whole", self.source)))
    }

    pub(super) fn matches_nowhere(&self, value: &Value) -> Result<(), Miss> {
        if !self.regex.is_match(self.text(value)?) {
            return Ok(());
        }
        Err(Miss::Fails(format!("must not match `{}`", self.source)))
    }
}

fn refusal(error: &regex::Error) -> String {
    match error {
        regex::Error::CompiledTooBig(limit) => format!("compiles to more than {limit} bytes; use smaller repetitions"),
        other => {
            // The last line says what is wrong, those before it draw the place.
            let text = other.to_string();
            let last = text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
            format!("no pattern of linear time: {last}")
        }
    }
}
