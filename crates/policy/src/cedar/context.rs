//! What a policy may read of a call: the fields of `context`, as types and as values. What is not here: the arguments'
//! own shape (`shape`) and values (`convert`).

use std::collections::{BTreeMap, BTreeSet};

use cedar_policy::RestrictedExpression;

use super::convert::{self, Unfit};
use super::shape::{Field, Fields, Kind};
use super::slice::Slice;
use crate::derive::{Derived, DerivedValue, FieldKind};
use crate::facts::{CallStatus, EarlierCall, Facts, ToolFacts, Venue};

/// What the contexts of all tools share.
#[derive(Debug, Clone, Default)]
pub(super) struct Counted {
    /// Per tag that a policy reads, the server tools that carry it.
    pub(super) evidence: BTreeMap<String, BTreeSet<String>>,
    /// The tools whose calls a policy counts.
    pub(super) counts: BTreeSet<String>,
}

/// The types of a tool's context.
pub(super) fn fields(tool: &ToolFacts, input: &Fields, counted: &Counted) -> Fields {
    let longs = |names: Vec<&String>| -> Fields {
        names.into_iter().map(|name| (name.clone(), Field::required(Kind::Long))).collect()
    };
    let derived = tool.derived.iter().map(|form| {
        let fields =
            form.kind.fields().iter().map(|(name, kind)| ((*name).to_owned(), Field::required(type_of(*kind))));
        (form.name.clone(), Field::optional(Kind::Record(fields.collect())))
    });
    let text = || Field::required(Kind::Text);
    let long = || Field::required(Kind::Long);
    let texts = || Field::required(Kind::Set(Box::new(Kind::Text)));
    let record = |fields: Vec<(&str, Field)>| {
        Field::required(Kind::Record(fields.into_iter().map(|(name, field)| (name.to_owned(), field)).collect()))
    };
    BTreeMap::from([
        ("input".to_owned(), Field::required(Kind::Record(input.clone()))),
        ("unseen".to_owned(), texts()),
        ("derived".to_owned(), Field::required(Kind::Record(derived.collect()))),
        ("tool".to_owned(), record(vec![("class", text()), ("venue", text()), ("risk", text()), ("tags", texts())])),
        (
            "session".to_owned(),
            record(vec![
                ("profile", text()),
                ("label", Field::optional(Kind::Text)),
                ("run", long()),
                ("step", long()),
                ("tool_calls", long()),
                ("spent", long()),
                ("limit", Field::optional(Kind::Long)),
                ("ballots", long()),
                ("agreed", long()),
            ]),
        ),
        ("evidence".to_owned(), Field::required(Kind::Record(longs(counted.evidence.keys().collect())))),
        ("counts".to_owned(), Field::required(Kind::Record(longs(counted.counts.iter().collect())))),
    ])
}

fn type_of(kind: FieldKind) -> Kind {
    match kind {
        FieldKind::Flag => Kind::Flag,
        FieldKind::Number => Kind::Long,
        FieldKind::Text => Kind::Text,
        FieldKind::Texts => Kind::Set(Box::new(Kind::Text)),
    }
}

/// The values of a call's context, as far as `shown` has them. All arguments are checked, shown or not.
pub(super) fn values(
    slice: &Slice,
    counted: &Counted,
    facts: &Facts<'_>,
    derived: &BTreeMap<String, Derived>,
) -> Result<Vec<(String, RestrictedExpression)>, Unfit> {
    let mut unseen = Vec::new();
    convert::check(&slice.input, facts.args, &mut unseen)?;
    let mut found = Vec::with_capacity(slice.shown.len());
    for (name, field) in &slice.shown {
        // `unseen` is the one field that is no record.
        let Kind::Record(inner) = &field.kind else {
            unseen.sort();
            found.push((name.clone(), texts(&unseen)));
            continue;
        };
        let value = match name.as_str() {
            "input" => convert::build(inner, facts.args)?,
            "derived" => {
                record(inner.iter().filter_map(|(name, field)| Some((name, fields_of(field, derived.get(name)?)))))
            }
            "tool" => picked(inner, |name| described(&slice.tool, name)),
            "session" => picked(inner, |name| session(facts, name)),
            "evidence" => picked(inner, |tag| counted.evidence.get(tag).map(|tools| long(successes(facts, tools)))),
            "counts" => picked(inner, |tool| Some(long(calls(facts, tool)))),
            _ => picked(inner, |_| None),
        };
        found.push((name.clone(), value));
    }
    Ok(found)
}

/// The fields of a record that have a value.
fn picked(fields: &Fields, value: impl Fn(&str) -> Option<RestrictedExpression>) -> RestrictedExpression {
    record(fields.keys().filter_map(|name| Some((name, value(name)?))))
}

fn described(tool: &ToolFacts, name: &str) -> Option<RestrictedExpression> {
    match name {
        "class" => Some(text(tool.class.code())),
        "venue" => Some(text(tool.venue.code())),
        "risk" => Some(text(tool.risk.code())),
        "tags" => Some(texts(&tool.tags)),
        _ => None,
    }
}

fn session(facts: &Facts<'_>, name: &str) -> Option<RestrictedExpression> {
    let session = facts.session;
    let number = |value: u64| Some(RestrictedExpression::new_long(saturated(value)));
    match name {
        "profile" => Some(text(facts.profile)),
        "label" => session.label.map(text),
        "run" => number(u64::from(session.run)),
        "step" => number(u64::from(session.step)),
        "tool_calls" => number(session.tool_calls),
        "spent" => number(session.spent_micros),
        "limit" => session.limit_micros.and_then(number),
        "ballots" => number(u64::from(session.ballots)),
        "agreed" => number(u64::from(session.agreed)),
        _ => None,
    }
}

fn successes(facts: &Facts<'_>, tools: &BTreeSet<String>) -> usize {
    let run = facts.session.run;
    let counts =
        |call: &&EarlierCall<'_>| call.run == run && call.status == CallStatus::Ok && tools.contains(call.tool);
    facts.earlier.iter().filter(counts).count()
}

fn calls(facts: &Facts<'_>, tool: &str) -> usize {
    facts.earlier.iter().filter(|call| call.status.may_have_effect() && call.tool == tool).count()
}

/// The shown fields of a derived value.
fn fields_of(shown: &Field, derived: &Derived) -> RestrictedExpression {
    match &shown.kind {
        Kind::Record(fields) => picked(fields, |name| derived.0.get(name).map(expression)),
        _ => picked(&Fields::new(), |_| None),
    }
}

/// The tools whose successes count as evidence of a tag.
pub(super) fn carriers<'a>(tag: &str, tools: impl Iterator<Item = &'a ToolFacts>) -> BTreeSet<String> {
    tools.filter(|tool| tool.venue == Venue::Server && tool.tags.contains(tag)).map(|tool| tool.id.clone()).collect()
}

fn expression(value: &DerivedValue) -> RestrictedExpression {
    match value {
        DerivedValue::Flag(flag) => RestrictedExpression::new_bool(*flag),
        DerivedValue::Number(number) => RestrictedExpression::new_long(*number),
        DerivedValue::Text(word) => text(word),
        DerivedValue::Texts(words) => texts(words),
    }
}

fn text(word: &str) -> RestrictedExpression {
    RestrictedExpression::new_string(word.to_owned())
}

fn texts<'a>(words: impl IntoIterator<Item = &'a String>) -> RestrictedExpression {
    RestrictedExpression::new_set(words.into_iter().map(|word| text(word)))
}

fn long(count: usize) -> RestrictedExpression {
    RestrictedExpression::new_long(i64::try_from(count).unwrap_or(i64::MAX))
}

fn saturated(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// A record of names that are known to differ.
fn record<'a>(fields: impl IntoIterator<Item = (&'a String, RestrictedExpression)>) -> RestrictedExpression {
    let fields = fields.into_iter().map(|(name, value)| (name.clone(), value));
    RestrictedExpression::new_record(fields).unwrap_or_else(|_| RestrictedExpression::new_set([]))
}
