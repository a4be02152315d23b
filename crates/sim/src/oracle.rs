//! What must hold at the end of every world, told from the logs, the journals of tools and clients, and the answers that
//! people have heard. What is not here: checks along the way (`tool`, `world`).

use std::collections::{BTreeMap, BTreeSet};

use toolgate_core::event::{Dispatch, Event, Recorded};
use toolgate_core::id::{CallId, InputId, Sha256Digest};
use toolgate_core::pipeline::Decision;
use toolgate_core::tool::{ToolClass, Venue};
use toolgate_core::verify;
use toolgate_store::chain::{Head, check as check_chain};
use toolgate_store::{Fate, SessionKey};

use crate::database::print;
use crate::said::Said;
use crate::world::World;

/// Checks everything.
pub(crate) fn check(world: &mut World) -> Result<(), String> {
    for s in 0..world.subjects.len() {
        let Some(key) = world.key_of(s) else { return Err("a session was never opened".to_owned()) };
        let log = read(world, &key)?;
        check_log(&log).map_err(|why| format!("{}: {why}", key.session))?;
        let verified =
            verify(key.session, &log, &world.bundle).map_err(|why| format!("{}: verify: {why}", key.session))?;
        if Some(&verified.session) != world.database.state(&key) {
            return Err(format!("{}: the log does not fold to what was appended", key.session));
        }
        inputs(world, &key, &log).map_err(|why| format!("{}: {why}", key.session))?;
        effects(world, &key, &log).map_err(|why| format!("{}: {why}", key.session))?;
        count(world, &log);
    }
    acknowledged(world)
}

fn read(world: &World, key: &SessionKey) -> Result<Vec<Recorded>, String> {
    let rows = world.database.rows(key, 0).map_err(|error| error.to_string())?;
    let row = world.database.session(key).ok().flatten().ok_or("the session is gone")?;
    let head = Head { seq: row.head_seq, hash: row.head_hash };
    check_chain(&key.tenant, key.session, &rows, &head).map_err(|broken| broken.to_string())?;
    let codec = world.database.codec(key).ok_or("the keys do not open")?;
    rows.iter().map(|row| codec.decode(row).map_err(|error| error.to_string())).collect()
}

#[derive(Default)]
struct Life {
    decided: Option<Decision>,
    approved: bool,
    class: Option<ToolClass>,
    args_hash: Option<Sha256Digest>,
    sent: u32,
    ended: bool,
}

impl Life {
    fn send(&mut self, call: &CallId, dispatch: &Dispatch) -> Result<(), String> {
        let may = self.decided == Some(Decision::Allow) || (self.decided == Some(Decision::Escalate) && self.approved);
        self.sent += 1;
        if !may || self.ended {
            return Err(format!("{call} is dispatched without leave or after its end"));
        }
        if dispatch.attempt != self.sent || (self.sent > 1 && self.class == Some(ToolClass::Once)) {
            return Err(format!("{call}: attempt {} is the {}th dispatch", dispatch.attempt, self.sent));
        }
        Ok(())
    }
}

/// The log by itself.
fn check_log(log: &[Recorded]) -> Result<(), String> {
    let mut lives: BTreeMap<&CallId, Life> = BTreeMap::new();
    let (mut epoch, mut closed) = (0, false);
    for (place, recorded) in (1_u64..).zip(log) {
        if recorded.seq != place {
            return Err(format!("row {} stands at {place}", recorded.seq));
        }
        let begins = matches!(recorded.event, Event::OwnerChanged(_));
        if recorded.epoch < epoch || (recorded.epoch > epoch && epoch > 0 && !begins) {
            return Err(format!("epoch {} follows {epoch} at {place}", recorded.epoch));
        }
        epoch = recorded.epoch;
        let late = matches!(recorded.event, Event::OutcomeRefused(_) | Event::BudgetSettled(_));
        if closed && !late {
            return Err(format!("`{}` stands after the session was closed", recorded.event.kind()));
        }
        match &recorded.event {
            Event::CallDecided(e) => {
                let life = lives.entry(&e.call).or_default();
                if life.decided.replace(e.decision).is_some() {
                    return Err(format!("{} is decided twice", e.call));
                }
                (life.class, life.args_hash, life.ended) =
                    (e.class, e.content.args_hash, e.decision == Decision::Reject);
                if let Some(dispatch) = &e.dispatch {
                    life.send(&e.call, dispatch)?;
                }
            }
            Event::ApprovalDecided(e) => {
                if let Some(life) = lives.get_mut(&e.call) {
                    life.approved |= e.missing == 0;
                }
            }
            Event::CallDispatched(e) => {
                lives.entry(&e.call).or_default().send(&e.call, &e.dispatch)?;
            }
            Event::CallEnded(e) => {
                let life = lives.entry(&e.call).or_default();
                if life.decided.is_none() || std::mem::replace(&mut life.ended, true) {
                    return Err(format!("{} ends twice, or without a decision", e.call));
                }
            }
            Event::SessionClosed(_) => closed = true,
            _ => {}
        }
    }
    Ok(())
}

/// Every input that was promised stands in the log once, or was answered durably without leaving a row.
fn inputs(world: &World, key: &SessionKey, log: &[Recorded]) -> Result<(), String> {
    let mut found: BTreeMap<&InputId, u64> = BTreeMap::new();
    for recorded in log {
        if let Some(id) = &recorded.input_id
            && let Some(first) = found.insert(id, recorded.seq)
        {
            return Err(format!("input {} stands at {first} and at {}", id.as_str(), recorded.seq));
        }
    }
    for (of, id) in world.promised.iter().filter(|(of, _)| of == key) {
        let settled = world.database.settled.get(id);
        // Whoever asks again after a refusal may find that it fits by then.
        let asked_once = world.errands.iter().any(|errand| errand.id == *id && errand.tries == 1);
        if asked_once && let (Some(Said::Refused(code)), Some(seq)) = (settled, found.get(id)) {
            return Err(format!("input {} was refused as {code:?} and stands at {seq}", id.as_str()));
        }
        let fate = world.database.fate(of, id);
        if !found.contains_key(id) && !matches!(fate, Some(Fate::Answered(_))) {
            return Err(format!("input {} of {} was acknowledged and is {fate:?}", id.as_str(), of.session));
        }
    }
    Ok(())
}

/// What tools and clients did follows from the log.
fn effects(world: &World, key: &SessionKey, log: &[Recorded]) -> Result<(), String> {
    let mut sent: BTreeMap<(u64, &CallId), (u32, Venue)> = BTreeMap::new();
    let mut hashes: BTreeMap<&CallId, Option<Sha256Digest>> = BTreeMap::new();
    let mut venues: BTreeMap<&CallId, Venue> = BTreeMap::new();
    for recorded in log {
        let (call, dispatch) = match &recorded.event {
            Event::CallDecided(e) => {
                hashes.insert(&e.call, e.content.args_hash);
                venues.extend(e.venue.map(|venue| (&e.call, venue)));
                (&e.call, e.dispatch.as_ref())
            }
            Event::CallDispatched(e) => (&e.call, Some(&e.dispatch)),
            _ => continue,
        };
        if let (Some(dispatch), Some(venue)) = (dispatch, venues.get(call)) {
            sent.insert((recorded.seq, call), (dispatch.attempt, *venue));
        }
    }
    let mut once: BTreeSet<&CallId> = BTreeSet::new();
    for effect in world.effects.iter().filter(|effect| effect.key == *key) {
        if sent.get(&(effect.fence, &effect.call)) != Some(&(effect.attempt, effect.venue)) {
            return Err(format!("{} ran under fence {}, which is no dispatch of it", effect.call, effect.fence));
        }
        if hashes.get(&effect.call) != Some(&Some(effect.args_hash)) {
            return Err(format!("{} ran with other arguments than were decided", effect.call));
        }
        if effect.class == ToolClass::Once && !once.insert(&effect.call) {
            return Err(format!("{} is `once` and ran twice, last at {}", effect.call, effect.at.as_micros()));
        }
    }
    Ok(())
}

/// What was acknowledged to anybody stands there, byte by byte.
fn acknowledged(world: &mut World) -> Result<(), String> {
    for ack in &world.acks {
        let row = world.database.row(&ack.key, ack.seq);
        if row.as_ref().map(print) != Some(ack.print) {
            return Err(format!("{}: row {} was acknowledged and has changed", ack.key.session, ack.seq));
        }
        let recorded = row.and_then(|row| row.input_id);
        if ack.id.is_some() && recorded != ack.id {
            return Err(format!(
                "{}: row {} does not record the input it was acknowledged for",
                ack.key.session, ack.seq
            ));
        }
    }
    let acks = world.acks.len() as u64;
    world.figures.add("answers", "acknowledged rows compared", acks);
    Ok(())
}

fn count(world: &mut World, log: &[Recorded]) {
    world.figures.add("world", "events", log.len() as u64);
    world.figures.count("world", "sessions");
    for recorded in log {
        match &recorded.event {
            Event::RunEnded(e) => world.figures.count("endings", e.ending.code()),
            Event::CallDecided(e) => world.figures.count("calls", e.decision.code()),
            Event::CallEnded(e) => world.figures.count("calls", e.end.code()),
            Event::Recovered(_) => world.figures.count("nodes", "recovered"),
            Event::OutcomeRefused(_) => world.figures.count("calls", "report refused"),
            Event::CallDispatched(e) if e.dispatch.attempt > 1 => world.figures.count("calls", "sent again"),
            _ => {}
        }
    }
}
