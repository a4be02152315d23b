//! Summaries: earlier steps are summed up, and the summary takes their place in the conversation. The log keeps them.

use std::sync::Arc;

use super::{asking, budget};
use crate::ask::Entry;
use crate::event::{SummaryAsked, SummaryReceived};
use crate::session::{Session, Spent, Summing};

pub(super) fn asked(session: &mut Session, e: &SummaryAsked) {
    if let Some(round) = asking(session) {
        round.summing = Summing::Asked { model: e.model.clone(), entries: e.entries };
    }
}

/// The models of the round are a question of their own, to be paid for anew.
pub(super) fn received(session: &mut Session, e: &SummaryReceived) {
    budget::paid(session, e.seat.ballot, e.charged);
    session.summaries += 1;
    if let Some(run) = session.run.as_mut() {
        run.model_calls += 1;
        run.usage.add(e.usage, e.cost_microusd);
    }
    let Some(round) = asking(session) else { return };
    round.attempt += 1;
    round.charges.clear();
    round.granted = false;
    round.used = Spent::default();
    let summing = std::mem::replace(&mut round.summing, Summing::Over);
    if let (Summing::Asked { entries, .. }, None, Some(text)) = (summing, e.fault, &e.content.text) {
        put_in_place(&mut session.transcript, usize::try_from(entries).unwrap_or(usize::MAX), text);
    }
}

/// What users said stays, and stands before the summary.
fn put_in_place(transcript: &mut Vec<Arc<Entry>>, entries: usize, text: &str) {
    let new = transcript.split_off(entries.min(transcript.len()));
    let steps = transcript.iter().map(|entry| steps(entry)).sum();
    transcript.retain(|entry| matches!(**entry, Entry::User { .. }));
    transcript.push(Arc::new(Entry::Summary { steps, text: text.to_owned() }));
    transcript.extend(new);
}

/// Answers of models that an entry is, or stands for.
pub(crate) fn steps(entry: &Entry) -> u32 {
    match entry {
        Entry::Model { .. } => 1,
        Entry::Summary { steps, .. } => *steps,
        Entry::User { .. } | Entry::Result { .. } | Entry::Feedback { .. } => 0,
    }
}
