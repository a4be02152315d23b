//! The points of crash tests that depend on what was just recorded. The others are single lines where they belong;
//! `toolgate_store::crash` says what a point is.

pub use toolgate_store::crash::{Armed, arm, point};

use toolgate_store::Row;

/// These rows are durable, and nothing has followed from them yet: neither state nor effect nor answer.
#[cfg(feature = "failpoints")]
pub(crate) fn recorded(rows: &[Row]) {
    let has = |kind: &str| rows.iter().any(|row| row.kind == kind);
    // A vote of a round that is not complete: proposed, and nothing decided.
    let decided = ["consensus_decided", "call_decided", "step_ended", "run_ended"].into_iter().any(has);
    if has("ballot_received") && !decided {
        point("K4");
    }
    if rows.iter().any(|row| waits_for_its_turn(row, rows)) {
        point("K5");
    }
    if has("call_ended") {
        point("K11");
    }
    if has("run_ended") {
        point("K14");
    }
}

/// Nothing: this program has no such points.
#[cfg(not(feature = "failpoints"))]
#[inline]
pub(crate) const fn recorded(_: &[Row]) {}

/// Whether a call was allowed or approved, and is neither dispatched nor over by the same append.
#[cfg(feature = "failpoints")]
fn waits_for_its_turn(row: &Row, rows: &[Row]) -> bool {
    let moves_on =
        |other: &Row| other.call == row.call && (other.marks.dispatch_attempt.is_some() || other.marks.terminal);
    row.marks.allow && !rows.iter().any(moves_on)
}
