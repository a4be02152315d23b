//! What must hold in every state, and what must be reached in some, so that the promises are about something.

use stateright::Property;

use crate::row::{Call, Fact, Row, chained};
use crate::state::{State, World};

/// No acknowledged event is lost or overwritten (P1).
pub const NOTHING_LOST: &str = "no acknowledged event is lost or overwritten";
/// Numbers without gaps, each row after the one before (P2, I1, I2).
pub const GAP_FREE: &str = "numbers have no gaps, and each row follows the one before";
/// Epochs never fall, and begin with the owner's row (I3).
pub const EPOCHS: &str = "epochs never fall, and each begins with its owner";
/// No append of a deposed owner is applied (P4).
pub const ONE_OWNER: &str = "at most one owner can append";
/// One decision, one dispatch per attempt, one terminal record (I5, I6, P12).
pub const RECORDED_ONCE: &str = "each decision, dispatch and end is recorded once";
/// The `once` call takes effect at most once (P13, X3).
pub const ONCE: &str = "a `once` call takes effect at most once";
/// A tool that honours `not_after` never acts after the call was closed as unknown (the exception of P13).
pub const NOT_LATE: &str = "a tool that honours `not_after` never acts after the call was closed as unknown";
/// An effect has a durable dispatch before it (P6, I4, X1).
pub const DURABLE_ALLOW: &str = "an effect has a durable dispatch before it";
/// An acknowledged input is applied once, or still waits (P8, I16, X2).
pub const INPUT_ONCE: &str = "an acknowledged input is applied exactly once, or still waits";

/// Every promise.
pub const PROMISES: [&str; 9] =
    [NOTHING_LOST, GAP_FREE, EPOCHS, ONE_OWNER, RECORDED_ONCE, ONCE, NOT_LATE, DURABLE_ALLOW, INPUT_ONCE];

/// What must be reached.
pub const REACHED: [&str; 6] = [
    "a lost reply is settled by `already`",
    "a deposed owner is told so",
    "a `once` call ends unknown although it took effect",
    "the tool refuses a late request",
    "everything ends: both calls over, the input applied",
    "an input is applied by another owner than the first",
];

/// The exception of P13, reached where the tool does not look at `not_after`.
pub const LATE_EFFECT: &str = "a late effect at a tool that ignores `not_after`";

type Holds = fn(&World, &State) -> bool;

pub(crate) fn all(world: &World) -> Vec<Property<World>> {
    let always: [(&'static str, Holds); 9] = [
        (NOTHING_LOST, |_, state| !state.seen.lost),
        (GAP_FREE, |_, state| gap_free(&state.database.log)),
        (EPOCHS, |_, state| epochs(&state.database.log)),
        (ONE_OWNER, |_, state| !state.seen.deposed),
        (RECORDED_ONCE, |_, state| recorded_once(&state.database.log)),
        (ONCE, |_, state| state.seen.once <= 1),
        (NOT_LATE, |world, state| !world.rules.tool_honours_not_after || !state.seen.late),
        (DURABLE_ALLOW, |_, state| !state.seen.unfounded),
        (INPUT_ONCE, |_, state| input_once(state)),
    ];
    let [settled, fenced, unknown, refused, whole, elsewhere] = REACHED;
    let reached: [(&'static str, Holds); 6] = [
        (settled, |_, state| state.seen.settled),
        (fenced, |_, state| state.seen.fenced),
        (unknown, |_, state| has(state, Fact::Unknown(Call::Once)) && state.seen.once == 1),
        (refused, |_, state| state.seen.refused),
        (whole, |world, state| {
            let over = |call| has(state, Fact::Outcome(call));
            over(Call::Once) && (over(Call::Read) || !world.bounds.read) && applied(state) == 1
        }),
        (elsewhere, |_, state| state.database.log.iter().any(|row| row.fact == Fact::Input(0) && row.epoch > 1)),
    ];
    let mut found: Vec<Property<World>> =
        always.into_iter().map(|(name, holds)| Property::always(name, holds)).collect();
    if world.rules.tool_honours_not_after {
        found.extend(reached.into_iter().map(|(name, holds)| Property::sometimes(name, holds)));
    } else {
        found.push(Property::sometimes(LATE_EFFECT, |_, state: &State| state.seen.late));
    }
    found
}

fn has(state: &State, fact: Fact) -> bool {
    state.database.log.iter().any(|row| row.fact == fact)
}

fn gap_free(log: &[Row]) -> bool {
    let mut before: Option<&Row> = None;
    log.iter().all(|row| {
        let follows = row.seq == before.map_or(1, |row| row.seq + 1) && row.prev == chained(before);
        before = Some(row);
        follows
    })
}

fn epochs(log: &[Row]) -> bool {
    log.windows(2).all(|pair| {
        let [before, row] = pair else { return true };
        row.epoch == before.epoch || row.epoch > before.epoch && matches!(row.fact, Fact::Owner(_))
    })
}

fn recorded_once(log: &[Row]) -> bool {
    let same = |a: Fact, b: Fact| match (a, b) {
        (Fact::Outcome(a) | Fact::Unknown(a), Fact::Outcome(b) | Fact::Unknown(b)) => a == b,
        (Fact::Dispatch(..), _) => a == b,
        _ => false,
    };
    (1..).zip(log).all(|(next, row)| !log.iter().skip(next).any(|other| same(row.fact, other.fact)))
}

fn applied(state: &State) -> usize {
    state.database.log.iter().filter(|row| row.fact == Fact::Input(0)).count()
}

fn input_once(state: &State) -> bool {
    // What a living node holds in its hand is not lost yet.
    let in_hand =
        state.nodes.iter().flatten().any(|owned| {
            owned.taken == Some(0) || owned.pending.as_ref().is_some_and(|append| append.consumes == Some(0))
        });
    let waits = state.database.inbox & 1 != 0 || in_hand;
    let acked = state.seen.taken & 1 != 0;
    applied(state) <= 1 && (!acked || waits || applied(state) == 1)
}
