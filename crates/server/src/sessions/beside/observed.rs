//! What observers must be told of a batch: thin rows, written with the events they are about. What is not here: delivery
//! (`observers`).

use toolgate_core::bundle::Observed;
use toolgate_core::event::Event;
use toolgate_core::pipeline::Decision;
use toolgate_core::session::Phase;
use toolgate_store::OutboxRow;

use super::Batch;
use crate::observers::KIND;
use crate::wire::observation::Observation;

/// One row per observer and fact; `first_seq` is the place of the batch's first event.
pub(in crate::sessions) fn observed(batch: &Batch<'_>, first_seq: u64) -> Vec<OutboxRow> {
    let observers = batch.bundle.observers();
    if observers.is_empty() {
        return Vec::new();
    }
    let facts = facts(batch, first_seq);
    let told = |fact: &(Observed, Observation)| -> Vec<OutboxRow> {
        let asked = observers.iter().filter(|observer| observer.on.contains(&fact.0));
        asked
            .filter_map(|observer| row(batch, &fact.1.clone().to(observer.name.as_str(), batch.bundle.digest())))
            .collect()
    };
    facts.iter().flat_map(told).collect()
}

fn row(batch: &Batch<'_>, observation: &Observation) -> Option<OutboxRow> {
    Some(OutboxRow {
        id: observation.id(),
        kind: KIND.to_owned(),
        body: serde_json::to_vec(observation).ok()?,
        key: None,
        attempts: 0,
        due_at: batch.at,
    })
}

fn facts(batch: &Batch<'_>, first_seq: u64) -> Vec<(Observed, Observation)> {
    let session = batch.before.id;
    let mut facts = Vec::new();
    let mut last_seq = first_seq;
    for (seq, event) in (first_seq..).zip(batch.events) {
        last_seq = seq;
        let (run, step) = event.position();
        let thin = |kind: &str, what: &str| Observation::new(session, seq, batch.at, kind, run, step, what);
        match event {
            Event::CallEnded(e) => {
                facts.push((Observed::Call, thin("call_ended", e.end.code()).about(&e.call)));
            }
            Event::CallDecided(e) if e.decision == Decision::Reject => {
                facts.push((Observed::Call, thin("call_decided", "rejected").about(&e.call)));
            }
            Event::RunEnded(e) => facts.push((Observed::Run, thin("run_ended", e.ending.code()))),
            _ => {}
        }
    }
    let steps = |state: &toolgate_core::session::Session| state.run.as_ref().map_or((0, 0), |run| (run.no, run.steps));
    let (before, after) = (steps(batch.before), steps(batch.after));
    let ended = batch.after.run.as_ref().is_some_and(|run| matches!(run.phase, Phase::Ended(_)));
    if after.1 > 0 && after > before {
        let what = if ended { "run_ended" } else { "completed" };
        let step = Observation::new(session, last_seq, batch.at, "step_ended", Some(after.0), Some(after.1), what);
        facts.push((Observed::Step, step));
    }
    facts
}
