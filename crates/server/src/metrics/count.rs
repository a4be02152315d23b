//! Counts what was appended. What is not here: the figures (`metrics`).

use std::collections::{BTreeMap, BTreeSet};

use toolgate_core::bundle::Bundle;
use toolgate_core::event::{CallDecided, CallEnded, ConsensusDecided, ConsensusResult, Event};
use toolgate_core::id::ToolId;
use toolgate_core::proposal::{Ballot, BallotVerdict, Proposal};
use toolgate_core::session::{Phase, Session};

use super::{Decided, Ended, Kind, Metrics, OTHER, RunEnd, Tool, Verdict};
use crate::wire::event::venue_word;

/// The label of votes on a final answer. No tool can be called so.
const ANSWER: &str = "(answer)";
/// The venue of a call of which nobody knows one.
const NO_VENUE: &str = "none";

impl Metrics {
    /// Counts the events that led from one state to another.
    pub(crate) fn appended(&self, before: &Session, events: &[Event], after: &Session, bundle: &Bundle) {
        let inner = &*self.inner;
        for event in events {
            inner.events.get_or_create(&Kind { kind: event.kind() }).inc();
            match event {
                Event::BallotReceived(e) => {
                    let verdict = verdict(&e.content.ballot.verdict);
                    inner.ballots.get_or_create(&Verdict { verdict }).inc();
                }
                Event::ConsensusDecided(e) => self.voted(e, &ballots(before, events, e), bundle),
                Event::CallDecided(e) => self.decided(e),
                Event::CallEnded(e) => self.ended(e, before, after),
                Event::RunEnded(e) => {
                    inner.runs.get_or_create(&RunEnd { ending: e.ending.code() }).inc();
                }
                _ => {}
            }
        }
    }

    fn decided(&self, e: &CallDecided) {
        let reason = e.reason.map(|reason| reason.code()).unwrap_or_default();
        self.inner.decisions.get_or_create(&Decided { decision: e.decision.code(), reason }).inc();
    }

    fn ended(&self, e: &CallEnded, before: &Session, after: &Session) {
        let call = before.call(&e.call).or_else(|| after.call(&e.call));
        let venue = call.and_then(|call| call.venue).map_or(NO_VENUE, venue_word);
        self.inner.calls.get_or_create(&Ended { venue, outcome: e.end.code() }).inc();
    }

    /// Counts a vote for every tool that somebody voted for, so that the share that agreed can be told for each.
    fn voted(&self, e: &ConsensusDecided, ballots: &BTreeMap<u32, &Ballot>, bundle: &Bundle) {
        let labels = |ballot: &Ballot| -> BTreeSet<String> {
            match &ballot.verdict {
                BallotVerdict::Proposal(Proposal::Calls(calls)) => {
                    calls.iter().map(|call| self.tool(&call.tool, bundle)).collect()
                }
                BallotVerdict::Proposal(Proposal::Done { .. }) => BTreeSet::from([ANSWER.to_owned()]),
                BallotVerdict::Malformed { .. } | BallotVerdict::Failed { .. } => BTreeSet::new(),
            }
        };
        let named: BTreeSet<String> = ballots.values().flat_map(|ballot| labels(ballot)).collect();
        for tool in named {
            self.inner.votes.get_or_create(&Tool { tool }).inc();
        }
        let ConsensusResult::Agreed { ballot } = e.result else { return };
        for tool in ballots.get(&ballot).map(|ballot| labels(ballot)).unwrap_or_default() {
            self.inner.agreed.get_or_create(&Tool { tool }).inc();
        }
    }

    fn tool(&self, name: &str, bundle: &Bundle) -> String {
        match ToolId::new(name).ok().and_then(|id| bundle.tool(&id)) {
            Some(_) => self.bounded(name),
            None => OTHER.to_owned(),
        }
    }
}

const fn verdict(verdict: &BallotVerdict) -> &'static str {
    match verdict {
        BallotVerdict::Proposal(Proposal::Calls(_)) => "calls",
        BallotVerdict::Proposal(Proposal::Done { .. }) => "done",
        BallotVerdict::Malformed { .. } => "malformed",
        BallotVerdict::Failed { .. } => "failed",
    }
}

/// The ballots of a round by number: those before the events, and those among them.
fn ballots<'a>(before: &'a Session, events: &'a [Event], e: &ConsensusDecided) -> BTreeMap<u32, &'a Ballot> {
    let earlier = match before.active_run().map(|run| &run.phase) {
        Some(Phase::Asking(round)) if (round.step, round.round) == (e.step, e.round) => Some(&round.ballots),
        Some(Phase::Asking(_) | Phase::Acting(_) | Phase::Ended(_)) | None => None,
    };
    let earlier = earlier.into_iter().flatten().map(|(number, ballot)| (*number, ballot));
    let fresh = events.iter().filter_map(|event| match event {
        Event::BallotReceived(received) => Some((received.seat.ballot, &received.content.ballot)),
        _ => None,
    });
    earlier.chain(fresh).collect()
}
