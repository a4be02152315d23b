//! Votes (I19): what acts was proposed by a ballot of its round; where there is a vote, it has won by the rule of the
//! bundle, over every ballot that was asked for, and as large as its tools ask for. What is not here: what ballots cost.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{Broken, Holds, Invariant, Pass};
use crate::consensus::{Electorate, Rule};
use crate::event::{BallotReceived, CallDecided, ConsensusDecided, ConsensusResult, Limits, VoteWidened, WidenedBy};
use crate::id::ToolId;
use crate::json::Json;
use crate::pipeline::Decision;
use crate::profile::{Consensus, DecideWhen, OnNoConsensus, Votes};
use crate::proposal::{BallotVerdict, Proposal, ProposedArgs, ProposedCall};

/// The first rules whose votes may be decided early, trim texts and grow.
const EARLY: u32 = 3;

/// The ballots of the round that is under way, or was last.
#[derive(Default)]
pub(super) struct Poll<'a> {
    step: u32,
    round: u32,
    n: u32,
    larger: Option<Electorate>,
    ballots: BTreeMap<u32, &'a BallotReceived>,
    /// It is not added up yet.
    open: bool,
    /// A ballot has come since the last larger vote began.
    asked: bool,
    stands: Option<Stands>,
}

/// What a vote came to.
#[derive(Clone, Copy)]
struct Stands {
    ballot: u32,
    /// A human must approve it.
    by_human: bool,
}

impl Poll<'_> {
    /// Ballots that are still to come; a round that is closed has a successor of which none has come.
    pub(super) fn missing(&self, limits: &Limits) -> u32 {
        if self.open { self.n.saturating_sub(count(self.ballots.len())) } else { limits.ballots }
    }

    pub(super) const fn is_closed(&self) -> bool {
        !self.open
    }

    pub(super) fn close(&mut self) {
        self.open = false;
    }
}

fn count(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

impl<'a> Pass<'a> {
    fn consensus(&self) -> Option<&'a Consensus> {
        self.profile.and_then(|profile| profile.consensus.as_ref())
    }

    fn early_rules(&self) -> bool {
        self.opened.is_some_and(|opened| opened.rules_version >= EARLY)
    }

    /// Ballots of the largest round that the profile allows.
    pub(super) fn widest(&self) -> u32 {
        let Some(c) = self.consensus() else { return 1 };
        let larger = c.by_tool.values().chain(c.by_risk.values()).filter(|_| self.early_rules());
        larger.map(|votes| votes.n).chain([c.n]).max().unwrap_or(1)
    }

    /// A ballot takes its own place in the round that is under way.
    pub(super) fn seated(&mut self, e: &'a BallotReceived) -> Holds {
        let (place, begins_with) = ((e.seat.step, e.seat.round), self.run.limits.ballots);
        if self.run.poll.open {
            let poll = &self.run.poll;
            self.must(place == (poll.step, poll.round), Invariant::I19, "a ballot of another round than is under way")?;
        } else {
            let (step, round) = place;
            self.run.poll = Poll { step, round, n: begins_with, open: true, ..Poll::default() };
        }
        let poll = &mut self.run.poll;
        let seated = (1..=poll.n).contains(&e.seat.ballot) && e.of == poll.n;
        let new = seated && poll.ballots.insert(e.seat.ballot, e).is_none();
        poll.asked = true;
        self.must(new, Invariant::I11, "one ballot too many")
    }

    /// The vote that is held in the round.
    fn held(&self) -> Result<(&'a Consensus, Electorate), Broken> {
        let none = Broken { invariant: Invariant::I19, seq: self.seq, what: "a vote in a profile without votes" };
        let consensus = self.consensus().ok_or(none)?;
        let poll = &self.run.poll;
        Ok((consensus, poll.larger.unwrap_or_else(|| sized(consensus.rule, consensus.n, consensus.k))))
    }

    fn under_way(&self, run: u32, step: u32, round: u32) -> Holds {
        self.during(run)?;
        let poll = &self.run.poll;
        let here = poll.open && (poll.step, poll.round) == (step, round);
        self.must(here && !self.run.paused, Invariant::I19, "a vote in a round that is not under way")
    }

    pub(super) fn widened(&mut self, e: &VoteWidened) -> Holds {
        self.under_way(e.run, e.step, e.round)?;
        let (consensus, held) = self.held()?;
        let poll = &self.run.poll;
        self.must(self.early_rules(), Invariant::I19, "a larger vote by rules that know none")?;
        let full = count(poll.ballots.len()) == poll.n;
        self.must(full && e.from == held, Invariant::I19, "a larger vote before the round's own is complete")?;
        let named = poll.ballots.values().any(|ballot| calls(ballot).any(|call| call.tool == e.tool.as_str()));
        self.must(named, Invariant::I19, "a larger vote over a tool that no ballot names")?;
        let asked = self.votes_over(consensus, &e.tool);
        let fits = asked.is_some_and(|(votes, why)| {
            let wide = sized(votes.rule, votes.n.max(held.n), votes.k);
            let to = Electorate { k: wide.k.max(held.k), ..wide };
            why == e.why && e.to == to && (to.n, to.k) != (held.n, held.k)
        });
        self.must(fits, Invariant::I19, "a larger vote that the profile does not ask for")?;
        let poll = &mut self.run.poll;
        (poll.n, poll.larger, poll.asked) = (e.to.n, Some(e.to), false);
        self.asked_anew()
    }

    fn votes_over(&self, consensus: &'a Consensus, tool: &ToolId) -> Option<(&'a Votes, WidenedBy)> {
        let risk = self.bundle.tool(tool).map(|tool| tool.def.risk)?;
        let of_risk = consensus.by_risk.get(&risk).map(|votes| (votes, WidenedBy::Risk));
        consensus.by_tool.get(tool).map(|votes| (votes, WidenedBy::Tool)).or(of_risk)
    }

    pub(super) fn tallied(&mut self, e: &ConsensusDecided) -> Holds {
        self.under_way(e.run, e.step, e.round)?;
        let (consensus, held) = self.held()?;
        let early = self.early_rules();
        let said = if early { (e.n, e.rule, e.k) } else { (held.n, held.rule, e.k) };
        self.must(said == (held.n, held.rule, held.k), Invariant::I19, "another vote is counted than is held")?;
        let poll = &self.run.poll;
        let missing: Vec<u32> = (1..=held.n).filter(|ballot| !poll.ballots.contains_key(ballot)).collect();
        let given_up: &[u32] = if poll.asked { &missing } else { &[] };
        self.must(e.cancelled == given_up, Invariant::I19, "other ballots are given up than are missing")?;
        let when = missing.is_empty() || early && consensus.decide == DecideWhen::Early;
        self.must(when, Invariant::I19, "a vote is decided before all ballots are there")?;
        self.must(self.grouped(consensus, e), Invariant::I19, "the ballots are not grouped as they agree")?;
        let stands = self.result(consensus, held, e, &missing);
        let none = Broken { invariant: Invariant::I19, seq: self.seq, what: "the result is not that of the tally" };
        self.run.poll.stands = stands.ok_or(none)?;
        self.run.poll.open = false;
        if !e.cancelled.is_empty() {
            self.give_up(count(e.cancelled.len()));
        }
        let within = self.run.model_calls <= self.run.limits.max_model_calls;
        self.must(within, Invariant::I11, "more model calls than the bound")
    }

    /// Whether the tally holds each ballot once, in its order, and groups those that agree, as far as they can be read.
    fn grouped(&self, consensus: &Consensus, e: &ConsensusDecided) -> bool {
        let (ballots, tally) = (&self.run.poll.ballots, &e.tally);
        let named: Vec<u32> = tally.groups.iter().flatten().chain(&tally.unreadable).copied().collect();
        let each_once = named.len() == ballots.len()
            && named.iter().collect::<BTreeSet<_>>() == ballots.keys().collect::<BTreeSet<_>>();
        let order: Vec<_> = tally.groups.iter().map(|group| (usize::MAX - group.len(), group.first())).collect();
        let ordered = order.is_sorted()
            && tally.groups.iter().chain([&tally.unreadable]).all(|group| group.is_sorted())
            && tally.groups.iter().all(|group| !group.is_empty());
        if ballots.values().any(|ballot| !ballot.content.redacted.is_empty()) {
            return each_once && ordered;
        }
        let trims = self.early_rules();
        let place = |number: &u32| tally.groups.iter().position(|group| group.contains(number));
        each_once
            && ordered
            && ballots.iter().all(|(number, ballot)| {
                let counts = counts(ballot, consensus, trims);
                let same = ballots
                    .iter()
                    .filter(|(_, other)| self::counts(other, consensus, trims) == counts)
                    .all(|(other, _)| place(other) == place(number));
                place(number).is_some() == counts.is_some() && (counts.is_none() || same)
            })
            && tally.groups.len() == {
                let mut all: Vec<_> = ballots.values().filter_map(|b| self::counts(b, consensus, trims)).collect();
                all.sort_by_cached_key(|counts| format!("{counts:?}"));
                all.dedup();
                all.len()
            }
    }

    /// What stands, if the result follows from the groups; none if it does not.
    fn result(
        &self,
        consensus: &Consensus,
        held: Electorate,
        e: &ConsensusDecided,
        missing: &[u32],
    ) -> Option<Option<Stands>> {
        let ballots = &self.run.poll.ballots;
        let sizes: Vec<u32> = e.tally.groups.iter().map(|group| count(group.len())).collect();
        let (most, out) = (sizes.first().copied().unwrap_or(0), count(missing.len()));
        let rival = sizes.get(1).copied().unwrap_or(0);
        let first = e.tally.groups.first().and_then(|group| group.first()).copied();
        let by_first = held.rule == Rule::First;
        let alone = by_first && sizes == [1];
        // Whatever the missing ballots say: they all join the strongest rival, or they all join the leader.
        let won = if by_first { alone } else { most >= held.k && most > rival + out };
        let lost = if by_first {
            out == 0 && sizes.is_empty()
        } else if out == 0 {
            !won
        } else {
            most + out < held.k
        };
        let sure = u64::from(consensus.escalate_below_percent.unwrap_or(0)) * u64::from(held.n);
        let confident = u64::from(most) * 100 >= sure;
        let in_part = first.and_then(|first| ballots.get(&first)).is_some_and(|ballot| {
            calls(ballot).any(|call| consensus.compare.keys().any(|tool| tool.as_str() == call.tool))
        });
        let answered = ballots.values().any(|ballot| ballot.verdict != "failed");
        let escalates = consensus.on_no_consensus == OnNoConsensus::Escalate;
        let again = consensus.on_no_consensus == OnNoConsensus::Retry && e.round <= consensus.retries;
        let unsure = won && !confident && out == 0;
        let acts = first.is_some_and(|first| is_calls(ballots.get(&first)));
        let asks_human = acts && (unsure || lost && escalates);
        let nothing = (unsure || lost && (out == 0 || !escalates)) && !asks_human;
        let follows = match e.result {
            ConsensusResult::Agreed { ballot } => {
                let same_whoever_comes = !in_part || by_first || missing.iter().all(|number| *number > ballot);
                won && confident && first == Some(ballot) && same_whoever_comes
            }
            ConsensusResult::Escalated { ballot } => out == 0 && asks_human && first == Some(ballot),
            ConsensusResult::Retry => nothing && again,
            ConsensusResult::Rejected => nothing && !again,
        };
        let stands = match e.result {
            ConsensusResult::Agreed { ballot } => Some(Stands { ballot, by_human: false }),
            ConsensusResult::Escalated { ballot } => Some(Stands { ballot, by_human: true }),
            ConsensusResult::Retry | ConsensusResult::Rejected => None,
        };
        (follows && answered).then_some(stands)
    }

    /// A call of a model stands in the ballot that won, and its tool has had the vote that it asks for.
    pub(super) fn voted(&mut self, e: &CallDecided) -> Holds {
        if e.edited_from.is_some() {
            return Ok(());
        }
        let poll = &self.run.poll;
        self.must(poll.step == e.step, Invariant::I19, "a call that no ballot of its step proposed")?;
        let single = poll.n == 1 && poll.larger.is_none();
        let stands = if single { Some(Stands { ballot: 1, by_human: false }) } else { poll.stands };
        let none = Broken { invariant: Invariant::I19, seq: self.seq, what: "a call is decided on that won no vote" };
        let stands = stands.ok_or(none)?;
        let place = usize::try_from(e.index).unwrap_or(usize::MAX);
        let proposed = poll.ballots.get(&stands.ballot).and_then(|ballot| calls(ballot).nth(place));
        let same = proposed.is_some_and(|call| call.tool == e.content.tool && same_args(call, e));
        self.must(same, Invariant::I19, "a call is decided on that the ballot does not propose")?;
        let allowed = e.decision == Decision::Allow;
        self.must(!stands.by_human || !allowed, Invariant::I19, "a call without agreement is allowed without a human")?;
        self.run.poll.open = false;
        let (Some(consensus), Some(tool)) = (self.consensus().filter(|_| self.early_rules()), &e.tool) else {
            return Ok(());
        };
        let asked = self.votes_over(consensus, tool).filter(|_| e.decision != Decision::Reject);
        let (_, held) = self.held()?;
        let enough = asked.is_none_or(|(votes, _)| {
            let wide = sized(votes.rule, votes.n.max(held.n), votes.k);
            held.n >= votes.n && held.k >= wide.k
        });
        self.must(enough, Invariant::I19, "a call without the larger vote that its tool asks for")
    }
}

/// The ballots that a rule needs of n.
fn sized(rule: Rule, n: u32, k: Option<u32>) -> Electorate {
    let k = match rule {
        Rule::First | Rule::Plurality => 1,
        Rule::KOfN => k.unwrap_or(n),
        Rule::Majority => (1..=n).find(|k| 2 * k > n).unwrap_or(n),
        Rule::Supermajority => (1..=n).find(|k| 3 * k >= 2 * n).unwrap_or(n),
        Rule::Unanimous => n,
    };
    Electorate { n, rule, k }
}

fn calls(ballot: &BallotReceived) -> impl Iterator<Item = &ProposedCall> {
    let calls = match &ballot.content.ballot.verdict {
        BallotVerdict::Proposal(Proposal::Calls(calls)) => calls.as_slice(),
        BallotVerdict::Proposal(Proposal::Done { .. }) => &[],
        BallotVerdict::Malformed { .. } | BallotVerdict::Failed { .. } => &[],
    };
    calls.iter()
}

fn is_calls(ballot: Option<&&BallotReceived>) -> bool {
    ballot.is_some_and(|ballot| ballot.verdict == "calls")
}

fn same_args(call: &ProposedCall, e: &CallDecided) -> bool {
    match (&call.args, &e.content.args) {
        (ProposedArgs::Readable(proposed), Some(decided)) => e.content.redacted || proposed == decided,
        (ProposedArgs::Readable(_) | ProposedArgs::Malformed { .. }, _) => true,
    }
}

/// What of a ballot is compared; none if it is no vote.
fn counts(ballot: &BallotReceived, consensus: &Consensus, trims: bool) -> Option<Value> {
    match &ballot.content.ballot.verdict {
        BallotVerdict::Malformed { .. } | BallotVerdict::Failed { .. } => None,
        BallotVerdict::Proposal(Proposal::Done { output }) => {
            let value = output.value();
            let text = value.as_str().filter(|_| trims).map(str::trim);
            match text {
                Some("") => None,
                Some(text) => Some(serde_json::json!({"text": text})),
                None => Some(serde_json::json!({"output": output.as_str()})),
            }
        }
        BallotVerdict::Proposal(Proposal::Calls(calls)) => {
            let one = |call: &ProposedCall| {
                let ProposedArgs::Readable(args) = &call.args else { return None };
                let only = consensus.compare.iter().find(|(tool, _)| tool.as_str() == call.tool);
                let compared: Vec<Option<String>> = match only {
                    None => vec![Some(args.as_str().to_owned())],
                    Some((_, pointers)) => {
                        let args = args.value();
                        let at = |pointer: &String| Some(Json::from_value(args.pointer(pointer)?).as_str().to_owned());
                        pointers.iter().map(at).collect()
                    }
                };
                Some(serde_json::json!([call.tool, compared]))
            };
            calls.iter().map(one).collect::<Option<Vec<_>>>().map(Value::Array)
        }
    }
}
