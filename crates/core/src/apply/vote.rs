//! Votes: what a round becomes when it is added up, or when more ballots are asked for.

use super::{asking, budget};
use crate::event::{ConsensusDecided, ConsensusResult, VoteWidened};
use crate::session::{Round, Session};

pub(super) fn decided(session: &mut Session, e: &ConsensusDecided) {
    if !e.cancelled.is_empty() {
        budget::ballots_missed(session, u32::try_from(e.cancelled.len()).unwrap_or(u32::MAX));
    }
    let begins_with = session.run.as_ref().map_or(1, |run| run.limits.ballots);
    let Some(round) = asking(session) else { return };
    // A full round was counted with its last ballot.
    let ends_early = round.missing_count() > 0;
    match e.result {
        ConsensusResult::Agreed { ballot } | ConsensusResult::Escalated { ballot } => {
            round.ballots.retain(|number, _| *number == ballot);
            round.vote = Some(Box::new(e.clone()));
            let group = e.tally.group_of(ballot);
            round.agreed = group.map_or(1, |group| u32::try_from(group.len()).unwrap_or(u32::MAX));
        }
        ConsensusResult::Retry => *round = Round::new(round.step, round.round + 1, begins_with),
        ConsensusResult::Rejected => round.ballots.clear(),
    }
    if ends_early {
        session.rounds += 1;
    }
}

/// The round goes on: its ballots stay, and the missing ones are a question of their own, to be paid for anew.
pub(super) fn widened(session: &mut Session, e: &VoteWidened) {
    let Some(round) = asking(session) else { return };
    round.n = e.to.n;
    round.widened = Some(e.to);
    round.attempt += 1;
    round.charges.clear();
    round.granted = false;
    round.used = crate::session::Spent::default();
    if e.to.n > e.from.n {
        session.rounds = session.rounds.saturating_sub(1);
    }
}
