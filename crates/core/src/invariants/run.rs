//! Runs and what they may use: evidence for `done` (I10); steps, calls, time, tokens and money (I11); one run at a time
//! (I7). What is not here: the tenant's ledger, which counts over other sessions as well.

use std::collections::{BTreeMap, BTreeSet};

use super::approval::Question;
use super::vote::Poll;
use super::{Holds, Invariant, Pass, summary};
use crate::event::{
    Amount, ApprovalDecided, ApprovalVerb, BallotReceived, Bound, BudgetReserved, CallDecided, CallEnd, Dispatch,
    LedgerAnswer, Limits, MOST, ProfileChosen, Purpose, ReservationAnswered, RunEnded, RunPaused, RunStarted,
    WrapUpStarted,
};
use crate::id::Tag;
use crate::input::Seat;
use crate::output::{NotExecuted, OutcomeStatus};
use crate::pipeline::Decision;
use crate::profile::{AtLimit, Harness, Profile};
use crate::proposal::Usage;
use crate::reason::Ending;
use crate::time::Timestamp;

/// Refused reports that a run may record.
const REFUSALS: u32 = 32;

/// A run that waits for a human to raise a bound.
pub(super) struct Pause<'a> {
    pub(super) question: Question<'a>,
    bound: Bound,
}

/// What was used of the session.
#[derive(Default)]
pub(super) struct Sum {
    model_calls: u64,
    tool_calls: u64,
    spent: Amount,
    raised: BTreeMap<Bound, u64>,
}

/// What was used of the run.
#[derive(Default)]
pub(super) struct Book<'a> {
    pub(super) no: u32,
    active: bool,
    pub(super) limits: Limits,
    deadline_at: Option<Timestamp>,
    /// Steps that ended or have calls.
    steps: BTreeSet<u32>,
    /// Calls of the last step that has any, by its number.
    calls: (u32, u32),
    pub(super) model_calls: u32,
    tool_calls: u32,
    refusals: u32,
    pub(super) in_flight: u32,
    evidence: BTreeMap<&'a Tag, u32>,
    spent: Amount,
    pub(super) poll: Poll<'a>,
    reserved: Option<Reserved<'a>>,
    pub(super) paused: bool,
    pub(super) summary: summary::Asked,
    wrapping_up: bool,
}

/// What is set aside for a round.
struct Reserved<'a> {
    asked: &'a BudgetReserved,
    left: BTreeMap<u32, Amount>,
    granted: bool,
}

impl Book<'_> {
    pub(super) const fn is_active(&self) -> bool {
        self.active
    }

    /// Steps that it may take, with the one to finish in.
    fn most_steps(&self) -> u32 {
        self.limits.max_steps + u32::from(self.wrapping_up)
    }

    pub(super) fn is_reserved(&self) -> bool {
        self.reserved.as_ref().is_some_and(|reserved| !reserved.left.is_empty())
    }
}

impl<'a> Pass<'a> {
    pub(super) fn profile_chosen(&mut self, e: &'a ProfileChosen) -> Holds {
        self.must(self.profile.is_none(), Invariant::I8, "the profile is chosen twice")?;
        let ceiling = self.opened.and_then(|opened| opened.ceiling.as_ref());
        let may = ceiling.is_none_or(|ceiling| ceiling.contains(&e.profile));
        self.must(may, Invariant::I8, "the credential may not use the profile")?;
        let none = super::Broken { invariant: Invariant::I8, seq: self.seq, what: "the bundle has no such profile" };
        let profile = self.bundle.profile(&e.profile).ok_or(none)?;
        let fits = self.evidence_asked(e, profile);
        self.must(fits, Invariant::I10, "the evidence asked for is not what the bundle asks for")?;
        self.required = e.trace_requirements.iter().map(|(tag, need)| (tag.as_str(), *need)).collect();
        self.profile = Some(profile);
        Ok(())
    }

    /// The profile's evidence, or with that of the label's rule over it.
    fn evidence_asked(&self, e: &ProfileChosen, profile: &Profile) -> bool {
        let rules = self.bundle.classification();
        let rule = match &e.label {
            Some(label) => rules.and_then(|rules| rules.rules.get(label)),
            None => rules.and_then(|rules| rules.default.as_ref()),
        };
        let ruled = rule.filter(|rule| rule.profile == e.profile).is_some_and(|rule| {
            let mut both = profile.trace_requirements.clone();
            both.extend(rule.trace_requirements.clone());
            both == e.trace_requirements
        });
        ruled || e.label.is_none() && e.trace_requirements == profile.trace_requirements
    }

    pub(super) fn run_started(&mut self, e: &RunStarted) -> Holds {
        self.must(!self.run.active, Invariant::I7, "a run starts while another one goes on")?;
        self.must(e.run == self.run.no + 1, Invariant::I7, "runs count from 1 without gaps")?;
        let harness = self.profile.and_then(|profile| profile.harness.as_ref());
        let within = harness.is_some_and(|harness| self.within(&e.limits, harness));
        self.must(within, Invariant::I11, "the run's bounds are wider than the profile's or those asked for")?;
        let in_time = e.deadline_at == self.at.plus_ms(e.limits.deadline_ms);
        self.must(in_time, Invariant::I11, "the run's deadline is not that of its bounds")?;
        let deadline_at = Some(e.deadline_at);
        self.run = Book { no: e.run, active: true, limits: e.limits.clone(), deadline_at, ..Book::default() };
        Ok(())
    }

    fn within(&self, limits: &Limits, harness: &Harness) -> bool {
        let consensus = self.profile.and_then(|profile| profile.consensus.as_ref());
        let (ballots, rounds) = consensus.map_or((1, 1), |c| (c.n, c.retries + 1));
        let asked = self.opened.map(|opened| opened.limits).unwrap_or_default();
        let summary = u32::from(self.profile.is_some_and(|profile| profile.summarize.is_some()));
        let steps = harness.max_steps.saturating_add(u32::from(harness.at_limit == AtLimit::WrapUp));
        let all = steps.saturating_mul(self.widest() + summary).saturating_mul(rounds);
        limits.max_steps <= harness.max_steps.min(asked.max_steps.unwrap_or(u32::MAX))
            && limits.max_tool_calls <= harness.max_tool_calls.min(asked.max_tool_calls.unwrap_or(u32::MAX))
            && limits.deadline_ms <= harness.deadline_ms.min(asked.deadline_ms.unwrap_or(u64::MAX))
            && limits.max_model_calls
                <= harness.max_model_calls.unwrap_or(all).min(asked.max_model_calls.unwrap_or(u32::MAX))
            && limits.ballots == ballots
            && limits.max_parallel_calls == harness.max_parallel_calls
            && limits.max_output_schema_failures == harness.max_output_schema_failures
            && limits.repeat_limit == harness.repeat_limit
            && limits.max_tokens == harness.max_tokens
            && limits.max_cost_microusd == harness.max_cost_microusd
    }

    pub(super) fn reserved(&mut self, e: &'a BudgetReserved) -> Holds {
        self.during(e.run)?;
        self.must(!self.run.paused, Invariant::I11, "money is set aside while the run stands at a bound")?;
        let more = e.ballots.iter().fold(Amount::default(), |sum, one| sum.plus(one.most));
        let (run, all, limits) = (self.run.spent.plus(more), self.all.spent.plus(more), &self.run.limits);
        let calls = self.all.model_calls + e.ballots.len() as u64;
        let own = self.profile.map(|profile| profile.session_budget.clone()).unwrap_or_default();
        let raised = |bound, limit: Option<u64>| self.all.raised.get(&bound).copied().or(limit);
        let bounds = [
            (limits.max_tokens, run.tokens),
            (limits.max_cost_microusd, run.cost_microusd),
            (raised(Bound::SessionMaxModelCalls, own.max_model_calls), calls),
            (raised(Bound::SessionMaxTokens, own.max_tokens), all.tokens),
            (raised(Bound::SessionMaxCostMicrousd, own.max_cost_microusd), all.cost_microusd),
        ];
        let within = bounds.into_iter().all(|(limit, used)| limit.is_none_or(|limit| used <= limit));
        self.must(within, Invariant::I11, "spent and reserved pass the bound")?;
        let left: BTreeMap<u32, Amount> = e.ballots.iter().map(|one| (one.ballot, one.most)).collect();
        self.run.reserved = Some(Reserved { asked: e, left, granted: e.charges.is_empty() });
        Ok(())
    }

    pub(super) fn ledger_answered(&mut self, e: &ReservationAnswered) -> Holds {
        let granted = e.answer == LedgerAnswer::Granted;
        match &e.purpose {
            Purpose::Call { call } => {
                let waits = self.life(call, Invariant::I11)?;
                let waits = waits.uncharged && !waits.is_over() && !waits.refused;
                self.must(waits, Invariant::I11, "the ledger answers about a call that does not wait for it")?;
                if let Some(life) = self.lives.get_mut(call) {
                    life.uncharged = !granted;
                    life.refused = !granted;
                }
            }
            Purpose::Round { run, step, round, attempt } => {
                let seat = (*run, *step, *round, *attempt);
                let waits = self.run.reserved.as_ref().is_some_and(|reserved| {
                    let asked = reserved.asked;
                    (asked.run, asked.step, asked.round, asked.attempt) == seat && !reserved.granted
                });
                self.must(waits, Invariant::I11, "the ledger answers about a round that does not wait for it")?;
                if let Some(reserved) = self.run.reserved.as_mut().filter(|_| granted) {
                    reserved.granted = true;
                } else {
                    self.run.reserved = None;
                }
            }
        }
        Ok(())
    }

    pub(super) fn ballot(&mut self, e: &'a BallotReceived) -> Holds {
        self.during(e.seat.run)?;
        self.must(!self.run.summary.is_open(), Invariant::I11, "a model answers while a summary is awaited")?;
        self.must(e.seat.step <= self.run.most_steps(), Invariant::I11, "one step too many")?;
        self.seated(e)?;
        self.paid(e.seat, e.usage, e.cost_microusd, e.charged)
    }

    /// An answer counts as a model call, and for what it cost or may have cost.
    pub(super) fn paid(&mut self, seat: Seat, usage: Usage, cost: Option<u64>, charged: Amount) -> Holds {
        let room = self.run.model_calls < self.run.limits.max_model_calls;
        self.must(room, Invariant::I11, "one model call too many")?;
        let set_aside = self.set_aside(seat);
        self.must(
            set_aside.is_some() || !self.is_budgeted(),
            Invariant::I11,
            "a model was asked with nothing set aside",
        )?;
        let counts = match (usage.input_tokens, usage.output_tokens) {
            (Some(input), Some(output)) => {
                Amount { tokens: input.saturating_add(output).min(MOST), cost_microusd: cost.unwrap_or(0).min(MOST) }
            }
            _ => set_aside.unwrap_or_default(),
        };
        self.must(charged == counts, Invariant::I11, "it counts for less than it cost or may have cost")?;
        if let Some(reserved) = &mut self.run.reserved {
            reserved.left.remove(&seat.ballot);
        }
        self.run.model_calls += 1;
        self.all.model_calls += 1;
        self.spend(charged);
        Ok(())
    }

    /// What was set aside, and granted, for this very ballot.
    fn set_aside(&self, seat: Seat) -> Option<Amount> {
        let reserved = self.run.reserved.as_ref().filter(|reserved| reserved.granted)?;
        let asked = reserved.asked;
        let same =
            (asked.run, asked.step, asked.round, asked.attempt) == (seat.run, seat.step, seat.round, seat.attempt);
        reserved.left.get(&seat.ballot).copied().filter(|_| same)
    }

    fn is_budgeted(&self) -> bool {
        let (limits, tenant) = (&self.run.limits, self.bundle.tenant_budget());
        let own = self.profile.map(|profile| &profile.session_budget);
        let of_session = own.map_or([None; 3], |own| [own.max_model_calls, own.max_tokens, own.max_cost_microusd]);
        let of_tenant = [tenant.max_model_calls, tenant.max_tokens, tenant.max_cost_microusd];
        let of_run = [limits.max_tokens, limits.max_cost_microusd];
        of_run.iter().chain(&of_session).chain(&of_tenant).any(Option::is_some)
    }

    fn spend(&mut self, amount: Amount) {
        self.run.spent = self.run.spent.plus(amount);
        self.all.spent = self.all.spent.plus(amount);
    }

    /// Answers that never come count in full. Gives how many those of a reservation were.
    fn lose(&mut self) -> u32 {
        let lost = self.run.reserved.take_if(|reserved| reserved.granted).map(|reserved| reserved.left);
        let lost = lost.unwrap_or_default();
        let amount = lost.values().fold(Amount::default(), |sum, one| sum.plus(*one));
        self.spend(amount);
        let count = u32::try_from(lost.len()).unwrap_or(u32::MAX);
        self.all.model_calls += u64::from(count);
        count
    }

    /// A new owner asks again what the one before had asked.
    pub(super) fn recovered(&mut self) {
        let waits = self.run.reserved.as_ref().is_some_and(|reserved| !reserved.granted);
        if !self.run.active || self.run.paused || waits || !self.open.is_empty() {
            return;
        }
        let missing = if self.run.summary.is_open() { 1 } else { self.run.poll.missing(&self.run.limits) };
        if self.run.summary.is_open() {
            self.run.summary.lose();
        }
        self.give_up(missing);
    }

    /// So many ballots were asked for and never come: they count.
    pub(super) fn give_up(&mut self, missing: u32) {
        self.run.model_calls += missing;
        if self.lose() == 0 {
            self.all.model_calls += u64::from(missing);
        }
    }

    /// What was set aside for a round is used up, and more of it is asked for.
    pub(super) fn asked_anew(&mut self) -> Holds {
        let open = self.run.reserved.take().is_some_and(|reserved| !reserved.left.is_empty());
        self.must(!open, Invariant::I11, "more ballots are asked for while others are under way")
    }

    pub(super) fn paused(&mut self, e: &'a RunPaused) -> Holds {
        self.during(e.run)?;
        let new = !self.pauses.contains_key(&e.call) && !self.lives.contains_key(&e.call);
        self.must(new, Invariant::I5, "a pause has the name of another one, or of a call")?;
        let asks = self.at_limit() == AtLimit::PauseAndAsk;
        self.must(asks, Invariant::I11, "the run pauses at a bound at which it must end")?;
        self.run.paused = true;
        self.pauses.insert(&e.call, Pause { question: Question::new(&e.approval), bound: e.bound });
        Ok(())
    }

    /// The answer fits its question; now what it raises.
    pub(super) fn pause_answered(&mut self, e: &'a ApprovalDecided) -> Holds {
        let Some(pause) = self.pauses.get_mut(&e.call) else { return Ok(()) };
        let gives = e.decision == ApprovalVerb::Edit || e.decision == ApprovalVerb::Approve && e.missing == 0;
        let bound = pause.bound;
        if e.decision == ApprovalVerb::Approve {
            pause.question.take(e);
        }
        pause.question.settled |= gives;
        self.must(gives || e.raises.is_empty(), Invariant::I11, "a bound is raised without enough approvals")?;
        let first = e.raises.first().map(|raise| raise.bound);
        self.must(first.is_none_or(|first| first == bound), Invariant::I11, "another bound is raised than was asked")?;
        for raise in &e.raises {
            self.must(
                raise.to <= raise.bound.most(),
                Invariant::I11,
                "a bound is raised beyond what bundles may name",
            )?;
            let small = u32::try_from(raise.to).unwrap_or(u32::MAX);
            match raise.bound {
                Bound::MaxSteps => self.run.limits.max_steps = small,
                Bound::MaxModelCalls => self.run.limits.max_model_calls = small,
                Bound::MaxTokens => self.run.limits.max_tokens = Some(raise.to),
                Bound::MaxCostMicrousd => self.run.limits.max_cost_microusd = Some(raise.to),
                Bound::SessionMaxModelCalls | Bound::SessionMaxTokens | Bound::SessionMaxCostMicrousd => {
                    self.all.raised.insert(raise.bound, raise.to);
                }
            }
        }
        self.run.paused &= e.raises.is_empty();
        Ok(())
    }

    /// The steps are used up, and the profile gives a turn to finish in.
    pub(super) fn wraps_up(&mut self, e: &WrapUpStarted) -> Holds {
        self.during(e.run)?;
        let due = self.at_limit() == AtLimit::WrapUp && !self.run.wrapping_up && !self.run.paused;
        let used = u32::try_from(self.run.steps.len()).unwrap_or(u32::MAX) == self.run.limits.max_steps;
        let next = e.step == self.run.limits.max_steps + 1;
        self.must(due && used && next, Invariant::I11, "a turn to finish in that is not due")?;
        self.run.wrapping_up = true;
        Ok(())
    }

    fn at_limit(&self) -> AtLimit {
        let harness = self.profile.and_then(|profile| profile.harness.as_ref());
        harness.map_or(AtLimit::End, |harness| harness.at_limit)
    }

    pub(super) fn during(&self, run: u32) -> Holds {
        self.must(self.run.active && self.run.no == run, Invariant::I7, "it belongs to no run that is under way")
    }

    /// A call is decided: where it stands, and whether there is room for it.
    pub(super) fn counted(&mut self, e: &CallDecided) -> Holds {
        self.during(e.run)?;
        self.must(e.step <= self.run.most_steps(), Invariant::I11, "one step too many")?;
        let (step, count) = self.run.calls;
        let before = if step == e.step { count } else { 0 };
        self.must(e.index == before, Invariant::I5, "calls of a step count from 0 without gaps")?;
        self.voted(e)?;
        self.run.calls = (e.step, before + 1);
        self.run.steps.insert(e.step);
        if e.decision == Decision::Reject {
            return Ok(());
        }
        self.must(!self.run.wrapping_up, Invariant::I11, "a call is let pass in the turn to finish in")?;
        let of_session = self.profile.and_then(|profile| profile.session_budget.max_tool_calls);
        let room = self.run.tool_calls < self.run.limits.max_tool_calls
            && of_session.is_none_or(|limit| self.all.tool_calls < limit);
        let by_human = e.decision == Decision::Escalate || e.edited_by.is_some();
        let beyond = self.at_limit() == AtLimit::PauseAndAsk && by_human;
        self.must(room || beyond, Invariant::I11, "one tool call too many")?;
        self.run.tool_calls += 1;
        self.all.tool_calls += 1;
        Ok(())
    }

    /// A call may be sent now: its run goes on, and not too many are under way.
    pub(super) fn room_for(&self, dispatch: &Dispatch) -> Holds {
        self.must(self.run.active, Invariant::I7, "a call is sent outside a run")?;
        let in_time = self.run.deadline_at.is_some_and(|deadline| self.at < deadline);
        self.must(in_time, Invariant::I11, "a call is sent after the run's deadline")?;
        let slot = dispatch.attempt > 1 || self.run.in_flight < self.run.limits.max_parallel_calls;
        self.must(slot, Invariant::I11, "too many calls are under way at once")
    }

    /// What an ended call counts for. Only a success is evidence; what was never executed counts for nothing.
    pub(super) fn weighed(&mut self, e: &'a CallDecided, end: CallEnd) {
        match end {
            CallEnd::Outcome(OutcomeStatus::Ok) => {
                for tag in &e.tags {
                    *self.run.evidence.entry(tag).or_insert(0) += 1;
                }
            }
            CallEnd::Outcome(_) | CallEnd::NotExecuted(NotExecuted::DryRun) => {}
            CallEnd::NotExecuted(_) => {
                self.run.tool_calls = self.run.tool_calls.saturating_sub(1);
                self.all.tool_calls = self.all.tool_calls.saturating_sub(1);
            }
        }
    }

    pub(super) fn step(&mut self, step: u32) -> Holds {
        self.must(self.run.active, Invariant::I7, "a step ends outside a run")?;
        self.must(step <= self.run.most_steps(), Invariant::I11, "one step too many")?;
        self.run.poll.close();
        let new = self.run.steps.insert(step);
        self.must(new, Invariant::I11, "a step ends twice")
    }

    pub(super) fn refusals(&mut self) -> Holds {
        self.run.refusals += 1;
        self.must(self.run.refusals <= REFUSALS, Invariant::I11, "too many refused reports are recorded")
    }

    pub(super) fn run_ended(&mut self, e: &RunEnded) -> Holds {
        self.must(self.open.is_empty(), Invariant::I6, "the run ends, and a call has no terminal record")?;
        // A session whose profile was never found ends its first run before that began.
        let never_began = self.run.no == 0 && e.run == 1;
        self.must(self.run.active || never_began, Invariant::I7, "a run ends twice")?;
        self.must(never_began || e.run == self.run.no, Invariant::I7, "another run ends than is under way")?;
        let done = e.ending == Ending::Done;
        let unmet = |(tag, need): (&&str, &u32)| {
            self.run.evidence.iter().find(|(have, _)| have.as_str() == *tag).map_or(0, |(_, n)| *n) < *need
        };
        self.must(!done || !self.required.iter().any(unmet), Invariant::I10, "`done`, and evidence is missing")?;
        self.must(!done || !never_began, Invariant::I10, "`done` without a run")?;
        if self.run.paused {
            self.run.reserved = None;
        }
        let lost = self.lose();
        let limits = &self.run.limits;
        let steps = u32::try_from(self.run.steps.len()).unwrap_or(u32::MAX) + u32::from(done);
        self.must(e.steps == steps, Invariant::I11, "the steps are miscounted")?;
        self.must(e.steps <= self.run.most_steps(), Invariant::I11, "more steps than the bound")?;
        self.must(e.tool_calls == self.run.tool_calls, Invariant::I11, "the tool calls are miscounted")?;
        self.must(e.model_calls == self.run.model_calls + lost, Invariant::I11, "the model calls are miscounted")?;
        self.must(e.model_calls <= limits.max_model_calls, Invariant::I11, "more model calls than the bound")?;
        self.must(e.wrapped_up == self.run.wrapping_up, Invariant::I11, "the ending says otherwise of the last turn")?;
        (self.run.no, self.run.active) = (e.run, false);
        Ok(())
    }
}
