//! Fills the wire's forms of votes. What is not here: the forms (`fact::vote`).

use toolgate_core::consensus::Electorate;
use toolgate_core::event::{self, ConsensusResult};

use super::fact::{ConsensusDecided, ElectorateView, VoteWidened};

pub(super) fn widened(e: &event::VoteWidened) -> VoteWidened {
    VoteWidened {
        round: e.round,
        from: ElectorateView::from(&e.from),
        to: ElectorateView::from(&e.to),
        tool: e.tool.to_string(),
        why: e.why.code(),
    }
}

impl From<&Electorate> for ElectorateView {
    fn from(vote: &Electorate) -> Self {
        Self { n: vote.n, rule: vote.rule.code(), k: vote.k }
    }
}

pub(super) fn consensus(e: &event::ConsensusDecided) -> ConsensusDecided {
    let (result, ballot) = match e.result {
        ConsensusResult::Agreed { ballot } => ("agreed", Some(ballot)),
        ConsensusResult::Escalated { ballot } => ("escalated", Some(ballot)),
        ConsensusResult::Retry => ("retry", None),
        ConsensusResult::Rejected => ("rejected", None),
    };
    ConsensusDecided {
        round: e.round,
        n: e.electorate(),
        rule: e.rule.code(),
        k: e.k,
        groups: e.tally.groups.clone(),
        unreadable: e.tally.unreadable.clone(),
        cancelled: e.cancelled.clone(),
        result,
        ballot,
    }
}
