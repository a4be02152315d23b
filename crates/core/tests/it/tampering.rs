//! Logs that somebody changed: one event removed, doubled, swapped or edited, with the numbers put in order afterwards.
//! The hash chain notices all of it; here it is asked what `verify` notices without the chain.
//!
//! What it cannot notice, and why:
//! - facts from outside edited into other facts from which the very same decisions follow (a prompt's words, an output):
//!   `verify` takes inputs as given, it has no second source;
//! - an input that decides nothing and changes nothing that is decided later, removed or moved: an acknowledgement, an
//!   attached client that was sent nothing, a refused report, an `owner_changed`;
//! - a refused report or a take-over told twice: each may well have happened twice;
//! - a cut tail: the beginning of a log is a log (signed checkpoints tell its length);
//! - who and when, where nothing follows from it: `by`, `trace`, epochs, times between deadlines.

use serde_json::Value;
use toolgate_core::event::{Event, Recorded};
use toolgate_core::verify;

use crate::random::Random;
use crate::world::World;

/// How the tampered logs fared.
#[derive(Default)]
pub(crate) struct Tampered {
    pub(crate) tried: u64,
    pub(crate) noticed: u64,
    pub(crate) unnoticeable: u64,
}

/// Changes the log in a few places, one at a time.
pub(crate) fn tamper(random: &mut Random, world: &World, figures: &mut Tampered) {
    let place = random.below(world.log.len());
    let event = &world.log[place].event;
    let last = place + 1 == world.log.len();
    // Without new numbers every removal but the last and every doubling is a gap.
    let mut cut = world.log.clone();
    cut.remove(place);
    assert!(last || verify(world.session.id, &cut, &world.bundle).is_err());
    judge(world, renumbered(cut), last || alone(&world.log, place), "removed", event, figures);

    let mut doubled = world.log.clone();
    doubled.insert(place, world.log[place].clone());
    assert!(verify(world.session.id, &doubled, &world.bundle).is_err());
    let repeatable = matches!(event, Event::OutcomeRefused(_) | Event::OwnerChanged(_) | Event::Recovered(_));
    let harmless = repeatable && alone(&world.log, place);
    judge(world, renumbered(doubled), harmless, "doubled", event, figures);

    if !last {
        let mut swapped = world.log.clone();
        swapped.swap(place, place + 1);
        let next = &world.log[place + 1].event;
        let commute = alone(&world.log, place) && alone(&world.log, place + 1);
        judge(world, renumbered(swapped), commute || event == next, "swapped", event, figures);
    }
    misdate(world, place, figures);
    if let Some(edited) = edit(random, event) {
        let mut log = world.log.clone();
        log[place].event = edited;
        let fact = event.is_input() || matches!(event, Event::OwnerChanged(_));
        judge(world, log, fact, "edited", event, figures);
    }
}

/// Moves a record to another time or epoch: an epoch needs its `owner_changed`, a decision has the time of its input.
fn misdate(world: &World, place: usize, figures: &mut Tampered) {
    let event = &world.log[place].event;
    let mut log = world.log.clone();
    log[place].epoch += 1;
    let alone = world.log.len() == 1 || matches!(event, Event::OwnerChanged(_)) && place + 1 == world.log.len();
    judge(world, log, alone, "moved to another epoch", event, figures);
    let mut log = world.log.clone();
    log[place].at = log[place].at.plus_ms(1);
    let outside = event.is_input() || matches!(event, Event::OwnerChanged(_));
    judge(world, log, outside, "moved in time", event, figures);
}

/// Whether the event stands for itself: from outside, and nothing was decided at once because of it.
fn alone(log: &[Recorded], place: usize) -> bool {
    let outside = |recorded: &Recorded| recorded.event.is_input() || matches!(recorded.event, Event::OwnerChanged(_));
    log.get(place).is_some_and(outside) && log.get(place + 1).is_none_or(outside)
}

fn judge(world: &World, log: Vec<Recorded>, may_pass: bool, how: &str, event: &Event, figures: &mut Tampered) {
    if log == world.log {
        return;
    }
    figures.tried += 1;
    match verify(world.session.id, &log, &world.bundle) {
        Err(divergence) => {
            figures.noticed += 1;
            assert!(divergence.seq() <= log.len() as u64 + 1);
        }
        Ok(_) if may_pass => figures.unnoticeable += 1,
        Ok(_) => panic!("{how} `{}` is not noticed: {event:?}", event.kind()),
    }
}

fn renumbered(mut log: Vec<Recorded>) -> Vec<Recorded> {
    for (recorded, seq) in log.iter_mut().zip(1..) {
        recorded.seq = seq;
    }
    log
}

/// The event with one of its fields changed; none when the change made no other event.
fn edit(random: &mut Random, event: &Event) -> Option<Event> {
    let mut value = serde_json::to_value(event).unwrap();
    let mut leaves = Vec::new();
    collect(&value, String::new(), &mut leaves);
    leaves.retain(|path| path != "/kind" && !path.starts_with("/sealed"));
    if leaves.is_empty() {
        return None;
    }
    let leaf = value.pointer_mut(random.pick(&leaves).as_str()).unwrap();
    *leaf = match &*leaf {
        Value::Number(number) => (number.as_i64().unwrap_or(0) + 1).into(),
        Value::Bool(flag) => (!flag).into(),
        Value::String(text) => altered(text).into(),
        Value::Null => "now".into(),
        Value::Array(_) | Value::Object(_) => return None,
    };
    serde_json::from_value(value).ok().filter(|edited| edited != event)
}

/// Another text of the same form.
fn altered(text: &str) -> String {
    let others =
        [("allow", "reject"), ("reject", "allow"), ("escalate", "allow"), ("server", "client"), ("once", "read")];
    if let Some((_, other)) = others.iter().find(|(known, _)| *known == text) {
        return (*other).to_owned();
    }
    match text.char_indices().last() {
        Some((at, '0')) => format!("{}1", &text[..at]),
        Some((at, _)) => format!("{}0", &text[..at]),
        None => "0".to_owned(),
    }
}

fn collect(value: &Value, path: String, leaves: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (key, child) in map {
                collect(child, format!("{path}/{}", key.replace('~', "~0").replace('/', "~1")), leaves);
            }
        }
        Value::Array(items) => {
            for (place, child) in items.iter().enumerate() {
                collect(child, format!("{path}/{place}"), leaves);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => leaves.push(path),
    }
}
