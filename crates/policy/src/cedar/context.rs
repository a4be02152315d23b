//! What a policy may read of a call: the fields of `context`, as types and as values. What is not here: the arguments'
//! own shape (`shape`) and values (`convert`).

use std::collections::{BTreeMap, BTreeSet};

use cedar_policy::RestrictedExpression;

use super::convert::{self, Unfit};
use super::shape::{Field, Fields, Kind};
use crate::derive::{Derived, DerivedValue, FieldKind};
use crate::facts::{CallStatus, Facts, ToolFacts, Venue};

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

/// The values of a call's context.
pub(super) fn values(
    tool: &ToolFacts,
    input: &Fields,
    counted: &Counted,
    facts: &Facts<'_>,
    derived: &BTreeMap<String, Derived>,
) -> Result<Vec<(String, RestrictedExpression)>, Unfit> {
    let mut unseen = Vec::new();
    let arguments = convert::record(input, facts.args, &mut unseen)?;
    unseen.sort();
    let derived = derived.iter().map(|(name, fields)| {
        let fields = fields.0.iter().map(|(name, value)| ((*name).to_owned(), expression(value)));
        (name.clone(), record(fields))
    });
    let class = [("class", tool.class.code()), ("venue", tool.venue.code()), ("risk", tool.risk.code())];
    let described = class
        .into_iter()
        .map(|(name, word)| (name.to_owned(), text(word)))
        .chain(std::iter::once(("tags".to_owned(), texts(&tool.tags))));
    Ok(vec![
        ("input".to_owned(), arguments),
        ("unseen".to_owned(), texts(&unseen)),
        ("derived".to_owned(), record(derived)),
        ("tool".to_owned(), record(described)),
        ("session".to_owned(), session(facts)),
        ("evidence".to_owned(), record(evidence(counted, facts))),
        ("counts".to_owned(), record(counts(counted, facts))),
    ])
}

fn session(facts: &Facts<'_>) -> RestrictedExpression {
    let session = facts.session;
    let longs = [
        ("run", i64::from(session.run)),
        ("step", i64::from(session.step)),
        ("tool_calls", saturated(session.tool_calls)),
        ("spent", saturated(session.spent_micros)),
        ("ballots", i64::from(session.ballots)),
        ("agreed", i64::from(session.agreed)),
    ];
    let longs = longs.into_iter().chain(session.limit_micros.map(|limit| ("limit", saturated(limit))));
    let words = std::iter::once(("profile", facts.profile)).chain(session.label.map(|label| ("label", label)));
    record(
        longs
            .map(|(name, value)| (name.to_owned(), RestrictedExpression::new_long(value)))
            .chain(words.map(|(name, word)| (name.to_owned(), text(word)))),
    )
}

fn evidence(counted: &Counted, facts: &Facts<'_>) -> Vec<(String, RestrictedExpression)> {
    let run = facts.session.run;
    let successes = |tools: &BTreeSet<String>| {
        facts.earlier.iter().filter(|c| c.run == run && c.status == CallStatus::Ok && tools.contains(c.tool)).count()
    };
    counted.evidence.iter().map(|(tag, tools)| (tag.clone(), long(successes(tools)))).collect()
}

fn counts(counted: &Counted, facts: &Facts<'_>) -> Vec<(String, RestrictedExpression)> {
    let calls = |tool: &String| facts.earlier.iter().filter(|c| c.status.may_have_effect() && c.tool == tool).count();
    counted.counts.iter().map(|tool| (tool.clone(), long(calls(tool)))).collect()
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
fn record(fields: impl IntoIterator<Item = (String, RestrictedExpression)>) -> RestrictedExpression {
    let fields: BTreeMap<String, RestrictedExpression> = fields.into_iter().collect();
    RestrictedExpression::new_record(fields).unwrap_or_else(|_| RestrictedExpression::new_set([]))
}
