//! Several answers to one question: when they are added up, what follows, and which proposals need more of them. What is
//! not here: who agrees with whom and who wins (`consensus`), and doing what the winner says (`ballot`).

use std::collections::BTreeMap;

use super::Draft;
use super::ballot::{act, asking, end_step};
use crate::consensus::{Comparison, Electorate, Outputs, Rule, Standing, Tally, VoteRule, tally};
use crate::event::{ConsensusDecided, ConsensusResult, EARLY_VOTES, Event, VoteWidened, WidenedBy};
use crate::id::ToolId;
use crate::profile::{Consensus, DecideWhen, OnNoConsensus};
use crate::proposal::{Ballot, BallotVerdict, Proposal};
use crate::reason::{Ending, RejectReason};
use crate::session::Round;

/// Adds up the ballots of the round so far, and does what follows as soon as it is certain.
pub(super) fn count(draft: &mut Draft<'_>) {
    let mut asked = true;
    loop {
        let Some(round) = asking(draft) else { return };
        let Some(vote) = Vote::of(draft, round) else { return act(draft, None) };
        let outcome = vote.outcome();
        let stands = match outcome {
            Outcome::Open if asked => return,
            // A larger vote has just begun, and is not settled by the ballots that are there.
            Outcome::Open => return draft.check_counts(),
            Outcome::Failed(detail) => return draft.end_run(Ending::ProviderFailed, None, detail),
            Outcome::Alone => vote.round.ballots.keys().next().copied(),
            Outcome::Decided(ConsensusResult::Agreed { ballot } | ConsensusResult::Escalated { ballot }) => {
                Some(ballot)
            }
            Outcome::Decided(ConsensusResult::Retry | ConsensusResult::Rejected) => None,
        };
        match (stands.and_then(|ballot| vote.larger(draft, ballot)), outcome) {
            // The rest of the round votes in the larger vote as well, so it is waited for rather than cancelled.
            (Some(_), _) if vote.round.missing_count() > 0 => return,
            (Some(larger), _) => {
                draft.push(Event::VoteWidened(larger));
                asked = false;
            }
            (None, Outcome::Decided(result)) => return vote.settle(draft, result, asked),
            (None, Outcome::Alone | Outcome::Open | Outcome::Failed(_)) => return act(draft, None),
        }
    }
}

/// What the ballots so far come to.
enum Outcome {
    /// Missing ballots may change it.
    Open,
    /// No model gave an answer.
    Failed(Option<String>),
    /// There is one ballot, and it stands.
    Alone,
    /// It is certain.
    Decided(ConsensusResult),
}

/// A round and the vote that is held in it.
struct Vote<'a> {
    consensus: &'a Consensus,
    electorate: Electorate,
    round: Round,
    tally: Tally,
    rules: u32,
}

impl<'a> Vote<'a> {
    fn of(draft: &Draft<'a>, round: Round) -> Option<Self> {
        let consensus = draft.profile()?.consensus.as_ref()?;
        let rules = draft.rules();
        let electorate = round.widened.unwrap_or_else(|| consensus.electorate());
        let outputs = if rules >= EARLY_VOTES { Outputs::Trimmed } else { Outputs::Exact };
        let comparison = Comparison { only: &consensus.compare, outputs };
        let tally = tally(round.ballots.iter().map(|(number, ballot)| (*number, &ballot.verdict)), &comparison);
        Some(Self { consensus, electorate, round, tally, rules })
    }

    fn outcome(&self) -> Outcome {
        let missing = self.round.missing_count();
        if self.electorate.n == 1 && self.round.widened.is_none() {
            return if missing == 0 { Outcome::Alone } else { Outcome::Open };
        }
        let early = self.rules >= EARLY_VOTES && self.consensus.decide == DecideWhen::Early;
        if missing > 0 && !early {
            return Outcome::Open;
        }
        // Whether the provider failed or the models disagree is known once one of them has answered.
        if self.round.ballots.values().all(|ballot| matches!(ballot.verdict, BallotVerdict::Failed { .. })) {
            let detail = self.round.ballots.values().next().and_then(failure_detail);
            return if missing == 0 { Outcome::Failed(detail) } else { Outcome::Open };
        }
        let all = missing == 0;
        match self.standing() {
            Standing::Open => Outcome::Open,
            Standing::Won(ballot) if !all && !self.is_representative(ballot) => Outcome::Open,
            Standing::Won(ballot) if self.is_confident() => Outcome::Decided(ConsensusResult::Agreed { ballot }),
            // A human is shown the whole tally.
            Standing::Won(_) if !all => Outcome::Open,
            Standing::Won(ballot) if self.asks_for_calls(ballot) => {
                Outcome::Decided(ConsensusResult::Escalated { ballot })
            }
            Standing::Won(_) => Outcome::Decided(self.without_agreement(None)),
            Standing::Lost if !all && self.consensus.on_no_consensus == OnNoConsensus::Escalate => Outcome::Open,
            Standing::Lost => {
                let strongest = self.tally.strongest().filter(|ballot| self.asks_for_calls(*ballot));
                Outcome::Decided(self.without_agreement(strongest))
            }
        }
    }

    /// By the rule `first`, whoever was first stands, also where others have come since: a larger vote waits for them.
    fn standing(&self) -> Standing {
        let readable = |ballot: &&u32| self.tally.group_of(**ballot).is_some();
        match self.round.arrived.iter().find(readable).filter(|_| self.electorate.rule == Rule::First) {
            Some(first) => Standing::Won(*first),
            None => self.electorate.standing(&self.tally),
        }
    }

    fn without_agreement(&self, strongest: Option<u32>) -> ConsensusResult {
        match (self.consensus.on_no_consensus, strongest) {
            (OnNoConsensus::Retry, _) if self.round.round <= self.consensus.retries => ConsensusResult::Retry,
            (OnNoConsensus::Escalate, Some(ballot)) => ConsensusResult::Escalated { ballot },
            (OnNoConsensus::Retry | OnNoConsensus::Escalate | OnNoConsensus::Reject, _) => ConsensusResult::Rejected,
        }
    }

    /// Whether no missing ballot can stand for the winning group in place of this one. It matters where members of a group
    /// may differ: what runs must not depend on who was faster.
    fn is_representative(&self, ballot: u32) -> bool {
        let in_part = self.calls_of(ballot).any(|tool| self.consensus.compare.contains_key(&tool));
        !in_part || self.electorate.rule == Rule::First || self.round.missing().all(|missing| missing > ballot)
    }

    /// Whether enough of the electorate agree with the winner to go on without a human. Missing ballots can only add to it.
    fn is_confident(&self) -> bool {
        let share = u64::from(self.tally.largest()).saturating_mul(100);
        let needed = u64::from(self.consensus.escalate_below_percent.unwrap_or(0));
        share >= needed.saturating_mul(u64::from(self.electorate.n))
    }

    fn asks_for_calls(&self, ballot: u32) -> bool {
        let verdict = self.round.ballots.get(&ballot).map(|ballot| &ballot.verdict);
        matches!(verdict, Some(BallotVerdict::Proposal(Proposal::Calls(_))))
    }

    /// The tools that a ballot names, in its order.
    fn calls_of(&self, ballot: u32) -> impl Iterator<Item = ToolId> + '_ {
        let calls = match self.round.ballots.get(&ballot).map(|ballot| &ballot.verdict) {
            Some(BallotVerdict::Proposal(Proposal::Calls(calls))) => calls.as_slice(),
            Some(BallotVerdict::Proposal(Proposal::Done { .. })) => &[],
            Some(BallotVerdict::Malformed { .. } | BallotVerdict::Failed { .. }) | None => &[],
        };
        calls.iter().filter_map(|call| ToolId::new(call.tool.as_str()).ok())
    }

    /// The first larger vote that a tool of this ballot asks for.
    fn larger(&self, draft: &Draft<'_>, ballot: u32) -> Option<VoteWidened> {
        if self.rules < EARLY_VOTES {
            return None;
        }
        let tools = &draft.profile()?.tools;
        let (run, step) = draft.step()?;
        self.calls_of(ballot).filter(|tool| tools.contains(tool)).find_map(|tool| {
            let of_tool = self.consensus.by_tool.get(&tool).map(|votes| (votes, WidenedBy::Tool));
            let of_risk = || {
                let votes = self.consensus.by_risk.get(&draft.bundle.tool(&tool)?.def.risk)?;
                Some((votes, WidenedBy::Risk))
            };
            let (votes, why) = of_tool.or_else(of_risk)?;
            let (round, from) = (self.round.round, self.electorate);
            let to = from.widened(votes.rule, votes.n, votes.k)?;
            Some(VoteWidened { run, step, round, from, to, tool, why })
        })
    }

    /// Records what the vote came to, and does what follows. Ballots that were asked for and are missing are given up.
    fn settle(self, draft: &mut Draft<'_>, result: ConsensusResult, asked: bool) {
        let Some((run, step)) = draft.step() else { return };
        let text = self.text(result);
        let cancelled = self.round.missing().filter(|_| asked).collect();
        let Electorate { n, rule, k } = self.electorate;
        let n = if self.rules >= EARLY_VOTES { n } else { 0 };
        let (round, tally) = (self.round.round, self.tally);
        draft.push(Event::ConsensusDecided(ConsensusDecided {
            run,
            step,
            round,
            n,
            rule,
            k,
            tally,
            cancelled,
            result,
        }));
        match result {
            ConsensusResult::Agreed { .. } => act(draft, None),
            ConsensusResult::Escalated { .. } => act(draft, Some(RejectReason::NoConsensus)),
            ConsensusResult::Retry => draft.check_bounds(),
            ConsensusResult::Rejected => end_step(draft, RejectReason::NoConsensus, BTreeMap::new(), text),
        }
    }

    /// What the model is told of a rejection.
    fn text(&self, result: ConsensusResult) -> String {
        let Electorate { n, k, .. } = self.electorate;
        let largest = self.tally.largest();
        let came = self.tally.counted();
        let of = if came < n { format!(" of {came} that were waited for") } else { String::new() };
        let won = result == ConsensusResult::Rejected && self.electorate.winner(&self.tally).is_some();
        let share = self.consensus.escalate_below_percent.filter(|_| won);
        let below = share.map(|share| format!(", which is less than {share} %")).unwrap_or_default();
        format!("{n} answers were asked for and {k} had to agree; the most that agreed were {largest}{of}{below}")
    }
}

fn failure_detail(ballot: &Ballot) -> Option<String> {
    match &ballot.verdict {
        BallotVerdict::Failed { detail, .. } => Some(detail.clone()),
        BallotVerdict::Proposal(_) | BallotVerdict::Malformed { .. } => None,
    }
}
