//! The checker: holds logs against what outsiders were told and what tools were asked. Pure: it reads evidence and nothing
//! else. What is not here: making the evidence, printing what was found (`report`).

use std::collections::BTreeMap;

use serde_json::Value;

use crate::evidence::{Ack, Fact, SessionLog, Told, digest};
use crate::journal::{Asked, Class};

mod call;

use call::Call;

/// What must hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Property {
    /// What was acknowledged or shown is in the log as it was.
    Acknowledged,
    /// What was acknowledged is in it once.
    Once,
    /// The same request again gets the same answer.
    SameAnswer,
    /// Numbers without gaps up to the head, in database and API.
    NoGap,
    /// Epochs never fall.
    NoReversal,
    /// Each row carries the hash of the row before, the head that of the last.
    Linked,
    /// Chain, decisions and invariants I1 to I18, as `toolgate verify` tells them.
    Verified,
    /// API and database tell the same.
    SameLog,
    /// What a tool was asked had been allowed and dispatched, with these arguments.
    Decided,
    /// A `once` call reached its tool at most once.
    OnceOnly,
    /// Every attempt reached its tool at most once.
    AttemptOnce,
    /// What the log calls an outcome was given by the tool.
    Genuine,
    /// Every session, input and fault came to its end.
    Ended,
}

impl Property {
    /// All of them, in the order of the table.
    pub const ALL: [Self; 13] = [
        Self::Acknowledged,
        Self::Once,
        Self::SameAnswer,
        Self::NoGap,
        Self::NoReversal,
        Self::Linked,
        Self::Verified,
        Self::SameLog,
        Self::Decided,
        Self::OnceOnly,
        Self::AttemptOnce,
        Self::Genuine,
        Self::Ended,
    ];

    /// What is counted against it.
    #[must_use]
    pub const fn fault(self) -> &'static str {
        match self {
            Self::Acknowledged => "acknowledged facts and shown events lost or changed",
            Self::Once => "acknowledged facts recorded twice",
            Self::SameAnswer => "answered requests with another answer the second time",
            Self::NoGap => "gaps",
            Self::NoReversal => "epoch reversals",
            Self::Linked => "broken links",
            Self::Verified => "logs that `toolgate verify` refuses (I1 to I18 included)",
            Self::SameLog => "events that API and database tell differently",
            Self::Decided => "effects without a durable decision and dispatch",
            Self::OnceOnly => "`once` calls sent twice",
            Self::AttemptOnce => "attempts sent twice",
            Self::Genuine => "outcomes that no tool gave",
            Self::Ended => "sessions or faults that did not end as they must",
        }
    }
}

/// What was found of one property.
#[derive(Debug, Clone, Default)]
pub struct Finding {
    /// Things looked at.
    pub looked: u64,
    /// Things that were wrong.
    pub wrong: u64,
    /// The first of them, in words.
    pub examples: Vec<String>,
}

/// Examples that are kept.
const EXAMPLES: usize = 5;

/// What was found.
#[derive(Debug, Clone, Default)]
pub struct Findings {
    of: BTreeMap<Property, Finding>,
    /// How calls ended, by class and status.
    pub ends: BTreeMap<(String, String), u64>,
    /// Rows of logs, by kind.
    pub kinds: BTreeMap<String, u64>,
    /// Attempts after the first.
    pub later_attempts: u64,
}

impl Findings {
    /// What was found of a property.
    #[must_use]
    pub fn of(&self, property: Property) -> Finding {
        self.of.get(&property).cloned().unwrap_or_default()
    }

    /// Whether everything holds.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.of.values().all(|finding| finding.wrong == 0)
    }

    fn look(&mut self, property: Property, holds: bool, what: impl FnOnce() -> String) {
        let finding = self.of.entry(property).or_default();
        finding.looked += 1;
        if !holds {
            finding.wrong += 1;
            if finding.examples.len() < EXAMPLES {
                finding.examples.push(what());
            }
        }
    }
}

/// Checks session by session, so that the logs need not all be in memory.
#[derive(Debug)]
pub struct Checker<'a> {
    told: &'a Told,
    acks: BTreeMap<&'a str, Vec<&'a Ack>>,
    asked: BTreeMap<&'a str, Vec<&'a Asked>>,
    /// How often each prompt begins a session.
    prompts: BTreeMap<String, u64>,
    found: Findings,
}

impl<'a> Checker<'a> {
    /// A checker for what was told.
    #[must_use]
    pub fn new(told: &'a Told) -> Self {
        let mut acks: BTreeMap<&str, Vec<&Ack>> = BTreeMap::new();
        for ack in &told.acks {
            acks.entry(&ack.session).or_default().push(ack);
        }
        let mut asked: BTreeMap<&str, Vec<&Asked>> = BTreeMap::new();
        for one in &told.journal {
            asked.entry(&one.call).or_default().push(one);
        }
        Self { told, acks, asked, prompts: BTreeMap::new(), found: Findings::default() }
    }

    /// Checks one session.
    pub fn session(&mut self, log: &SessionLog) {
        self.chain(log);
        self.both(log);
        self.shown(log);
        for ack in self.acks.remove(log.id.as_str()).unwrap_or_default() {
            self.acknowledged(log, ack);
        }
        if let Some(prompt) = text(log, "session_opened", "prompt").next() {
            *self.prompts.entry(prompt.to_owned()).or_default() += 1;
        }
        let verified = log.verified.as_ref();
        self.found.look(Property::Verified, verified.is_ok(), || {
            format!("{}: {}", log.id, verified.err().map_or("", String::as_str))
        });
        self.found.look(Property::Ended, !log.active, || format!("{}: still at work", log.id));
        for row in &log.rows {
            *self.found.kinds.entry(row.kind.clone()).or_default() += 1;
        }
        for call in call::of(log) {
            let asked = self.asked.remove(call.id.as_str()).unwrap_or_default();
            self.call(&log.id, &call, &asked);
        }
    }

    /// What is left when all sessions were seen.
    #[must_use]
    pub fn finish(mut self) -> Findings {
        for (session, acks) in std::mem::take(&mut self.acks) {
            for ack in acks {
                self.found.look(Property::Acknowledged, false, || format!("{session} is not there: {:?}", ack.fact));
            }
        }
        for (prompt, times) in std::mem::take(&mut self.prompts) {
            self.found.look(Property::Once, times == 1, || format!("{times} sessions begin with `{prompt}`"));
        }
        for (call, asked) in std::mem::take(&mut self.asked) {
            for one in asked {
                self.found.look(Property::Decided, false, || format!("no log has the call {call}: {one:?}"));
            }
        }
        for contradiction in &self.told.contradictions {
            self.found.look(Property::Acknowledged, false, || contradiction.clone());
        }
        for complaint in &self.told.complaints {
            self.found.look(Property::Ended, false, || complaint.clone());
        }
        for other in &self.told.other_answers {
            self.found.look(Property::SameAnswer, false, || other.clone());
        }
        let same = self.told.repeated.saturating_sub(self.told.other_answers.len() as u64);
        self.found.of.entry(Property::SameAnswer).or_default().looked += same;
        self.found
    }

    /// Numbers, epochs and links of the rows, told apart from the store's own checker.
    fn chain(&mut self, log: &SessionLog) {
        let (mut seq, mut epoch, mut hash) = (0, 0, [0; 32]);
        for row in &log.rows {
            let at = || format!("{}: row {} after {seq}", log.id, row.seq);
            self.found.look(Property::NoGap, row.seq == seq + 1, at);
            self.found.look(Property::NoReversal, row.epoch >= epoch, || {
                format!("{}: row {} has epoch {} after {epoch}", log.id, row.seq, row.epoch)
            });
            self.found.look(Property::Linked, row.prev_hash == hash, || format!("{}: row {}", log.id, row.seq));
            (seq, epoch, hash) = (row.seq, row.epoch, row.hash);
        }
        self.found.look(Property::NoGap, log.head.0 == seq, || {
            format!("{}: the head is {}, the last row {seq}", log.id, log.head.0)
        });
        self.found.look(Property::Linked, log.head.1 == hash, || format!("{}: the head has another hash", log.id));
    }

    /// The API tells the rows of the database, one by one.
    fn both(&mut self, log: &SessionLog) {
        for (place, event) in (1_u64..).zip(&log.events) {
            let seq = event.get("seq").and_then(Value::as_u64);
            self.found.look(Property::NoGap, seq == Some(place), || format!("{}: {seq:?} at {place}", log.id));
        }
        let same = log.rows.len() == log.events.len();
        self.found.look(Property::SameLog, same, || {
            format!("{}: {} rows, {} events", log.id, log.rows.len(), log.events.len())
        });
        for (row, event) in log.rows.iter().zip(&log.events) {
            let word = |field: &str| event.get(field).and_then(Value::as_str);
            let same = word("type") == Some(row.kind.as_str()) && word("call_id") == row.call.as_deref();
            self.found.look(Property::SameLog, same, || format!("{}: row {}: {row:?}, {event}", log.id, row.seq));
        }
    }

    /// What was seen is still there.
    fn shown(&mut self, log: &SessionLog) {
        let now: BTreeMap<u64, &Value> =
            log.events.iter().filter_map(|event| Some((event.get("seq")?.as_u64()?, event))).collect();
        for (seq, seen) in self.told.seen.get(&log.id).into_iter().flatten() {
            let same = now.get(seq).is_some_and(|event| digest(event) == *seen);
            self.found.look(Property::Acknowledged, same, || {
                format!("{}: event {seq} was shown and is another one now: {:?}", log.id, now.get(seq))
            });
        }
        for (seq, hash) in self.told.heads.get(&log.id).into_iter().flatten() {
            let same = log.rows.iter().any(|row| row.seq == *seq && row.hash == *hash);
            self.found.look(Property::Acknowledged, same, || {
                format!("{}: row {seq} was the head of the chain with another hash", log.id)
            });
        }
    }

    fn acknowledged(&mut self, log: &SessionLog, ack: &Ack) {
        let of = |kind: &'static str| log.events.iter().filter(move |event| is(event, "type", kind));
        let times = match &ack.fact {
            Fact::Started(prompt) => text(log, "session_opened", "prompt").filter(|text| text == prompt).count(),
            Fact::Said(said) => text(log, "message_received", "text").filter(|text| text == said).count(),
            Fact::Decided { approval, decision } => {
                let all = of("approval_decided").filter(|event| is(event, "approval_id", approval));
                all.filter(|event| is(event, "decision", decision)).count()
            }
            Fact::Cancelled => of("cancel_requested").count(),
            Fact::Closed => of("session_closed").count(),
        };
        self.found.look(Property::Acknowledged, times >= 1, || format!("{}: {:?} is not in the log", log.id, ack.fact));
        self.found.look(Property::Once, times <= 1, || format!("{}: {:?} {times} times", log.id, ack.fact));
    }

    /// What a tool was asked of one call.
    fn call(&mut self, session: &str, call: &Call, asked: &[&Asked]) {
        let mut attempts: BTreeMap<u64, u64> = BTreeMap::new();
        for one in asked {
            let why = call.forbids(one);
            self.found.look(Property::Decided, why.is_none(), || {
                format!("{session}: {}: {one:?}; {call:?}", why.unwrap_or_default())
            });
            *attempts.entry(one.attempt).or_default() += 1;
        }
        for (attempt, times) in attempts {
            self.found.look(Property::AttemptOnce, times == 1, || {
                format!("{session}: attempt {attempt} of {} reached its tool {times} times", call.id)
            });
        }
        if call.class == Class::Once.word() {
            let times = asked.len().max(call.dispatches.len());
            self.found
                .look(Property::OnceOnly, times <= 1, || format!("{session}: {} was sent {times} times", call.id));
        }
        if call.status.as_deref() == Some("ok") {
            let given = call.receipt.is_some_and(|receipt| asked.iter().any(|one| one.receipt == receipt));
            self.found.look(Property::Genuine, given, || format!("{session}: {call:?}; asked {asked:?}"));
        }
        self.found.later_attempts += (call.dispatches.len() as u64).saturating_sub(1);
        if let Some(status) = &call.status {
            *self.found.ends.entry((call.class.clone(), status.clone())).or_default() += 1;
        }
    }
}

fn is(event: &Value, field: &str, word: &str) -> bool {
    event.get(field).and_then(Value::as_str) == Some(word)
}

/// Texts of the content of all events of a kind.
fn text<'l>(log: &'l SessionLog, kind: &'static str, field: &'static str) -> impl Iterator<Item = &'l str> {
    let of = log.events.iter().filter(move |event| is(event, "type", kind));
    of.filter_map(move |event| event.get("content")?.get(field)?.as_str())
}
