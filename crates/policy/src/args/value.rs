//! Conditions on plain values: equality, bounds, lengths, patterns. What is not here: values with a structure of their
//! own (`path`, `url`, `argv`).

use std::cmp::Ordering;

use regex::{Regex, RegexBuilder};
use serde_json::{Number, Value};
use unicode_normalization::UnicodeNormalization;

use super::Miss;
use crate::exact;

/// Bytes of text beyond which no pattern is tried.
const MAX_TEXT: usize = 65_536;
/// Bytes of a compiled pattern times bytes of the text it is tried on: what one trial may cost at worst. A large pattern is
/// tried on short texts only.
const MAX_WORK: usize = 128 * 1024 * 1024;
/// Characters of a pattern.
const MAX_PATTERN: usize = 1_024;
/// Bytes of a compiled pattern.
const MAX_PROGRAM: usize = 256 * 1024;
/// Sizes of compiled patterns are told apart down to this one.
const MIN_PROGRAM: usize = 1_024;
/// Bytes of the cache of a pattern while it runs, for each byte of it; at least and at most the numbers below.
const CACHE: usize = 8;
const MIN_CACHE: usize = 32 * 1024;
const MAX_CACHE: usize = 256 * 1024;
/// Bytes of all compiled patterns of a policy section.
const MAX_PROGRAMS: usize = 1024 * 1024;

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

/// What is left for the patterns of a policy section: they are compiled at every load, kept in memory, and tried on what a
/// model wrote, so that all of them together must stay small.
#[derive(Debug)]
pub(crate) struct PatternBudget {
    left: usize,
}

impl Default for PatternBudget {
    fn default() -> Self {
        Self { left: MAX_PROGRAMS }
    }
}

impl PatternBudget {
    fn take(&mut self, size: usize) -> Result<(), String> {
        match self.left.checked_sub(size) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => {
                self.left = 0;
                Err(spent())
            }
        }
    }
}

fn spent() -> String {
    format!("all patterns together compile to more than {MAX_PROGRAMS} bytes; use fewer or smaller ones")
}

/// A pattern with its text.
#[derive(Debug, Clone)]
pub(super) struct Pattern {
    source: String,
    regex: Regex,
    /// Bytes of text that it may be tried on.
    max_text: usize,
}

impl Pattern {
    /// Compiles a pattern; `whole` makes it match from the first to the last character.
    pub(super) fn new(source: &str, whole: bool, budget: &mut PatternBudget) -> Result<Self, String> {
        if source.chars().count() > MAX_PATTERN {
            return Err(format!("a pattern has at most {MAX_PATTERN} characters"));
        }
        // Nothing more is compiled once the budget is gone: refusing must be cheap too.
        if budget.left == 0 {
            return Err(spent());
        }
        // First as it is, so that a stray bracket cannot close the group that is put around it.
        let bare = smallest(source)?;
        let (regex, size) = if whole { smallest(&format!(r"\A(?:{source})\z"))? } else { bare };
        budget.take(size)?;
        Ok(Self { source: source.to_owned(), regex, max_text: MAX_TEXT.min(MAX_WORK / size) })
    }

    fn text<'v>(&self, value: &'v Value) -> Result<&'v str, Miss> {
        let Value::String(text) = value else { return Err(Miss::Unreadable("must be a text".to_owned())) };
        if text.len() > self.max_text {
            return Err(Miss::Unreadable(format!("must have at most {} bytes for its pattern", self.max_text)));
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

/// The pattern within the smallest size that holds it, and that size.
fn smallest(source: &str) -> Result<(Regex, usize), String> {
    let mut size = MIN_PROGRAM;
    loop {
        let cache = (size * CACHE).clamp(MIN_CACHE, MAX_CACHE);
        match RegexBuilder::new(source).size_limit(size).dfa_size_limit(cache).nest_limit(32).build() {
            Ok(regex) => return Ok((regex, size)),
            Err(regex::Error::CompiledTooBig(_)) if size < MAX_PROGRAM => size *= 2,
            Err(error) => return Err(refusal(&error)),
        }
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
