//! What a round of ballots may cost is set aside before a model is asked; a run that reaches a bound ends, or pauses until
//! a human raises it. What is not here: counting (`apply::budget`), and the tenant's ledger, whose answer is an input.

use serde_json::json;

use super::{Close, Draft, Reply};
use crate::apply::budget::{COST, MODEL_CALLS, TOKENS};
use crate::ask::Ask;
use crate::bundle::ModelDef;
use crate::bundle::model::Provider;
use crate::event::{
    Amount, ApprovalOpened, BallotBudget, Bound, BudgetReserved, BudgetSettled, Charge, EndCause, Event, LedgerAnswer,
    MOST, Purpose, RaiseContent, ReservationAnswered, RunPaused, WrapUpStarted,
};
use crate::id::{ApprovalId, CallId, ToolId};
use crate::input::ReservationAnswer;
use crate::json::Json;
use crate::output::NotExecuted;
use crate::outstanding::model_for;
use crate::profile::AtLimit;
use crate::proposal::Usage;
use crate::reason::{Ending, Refusal, RefusalCode, RejectReason};
use crate::session::{Awaited, CallState, Phase, Round};
use crate::tool::Venue;
use crate::transcript;

/// What approvers see as the tool when a run asks for more. No bundle can have a tool of this name.
pub const RAISE_TOOL: &str = "toolgate.raise_limit";
/// Why approvers are asked about a run that stands at a bound.
pub const BUDGET_REASON: RejectReason = RejectReason::BudgetExhausted;
/// Bytes that an adapter adds to what it is given at most, set aside as tokens.
const FRAME_TOKENS: u64 = 4_096;

/// A bound that does not leave room.
struct Over {
    bound: Bound,
    used: u64,
    limit: u64,
    need: u64,
}

impl Draft<'_> {
    /// Sets aside what the missing ballots of the round may cost. Does nothing where no bound asks for it.
    pub(super) fn reserve_round(&mut self) {
        let Some((run_no, step)) = self.step() else { return };
        let Some(run) = self.session.active_run() else { return };
        let Phase::Asking(round) = &run.phase else { return };
        let summing = round.asked_to_sum_up().is_some();
        if round.paused.is_some() || !round.reserved.is_empty() || summing || !self.is_budgeted() {
            return;
        }
        let (ballots, total) = self.round_most(round);
        let (round, attempt) = (round.round, round.attempt);
        if let Some(over) = self.over(total, ballots.len() as u64) {
            return self.at_bound(&over);
        }
        let charges = self.round_charges(total, ballots.len() as u64);
        self.push(Event::BudgetReserved(BudgetReserved { run: run_no, step, round, attempt, ballots, charges }));
    }

    /// The most that each missing ballot of a round, and all of them, may cost.
    pub(super) fn round_most(&self, round: &Round) -> (Vec<BallotBudget>, Amount) {
        let varies = self.profile().and_then(|p| p.consensus.as_ref()).is_some_and(|c| !c.variety.is_empty());
        let same = if varies { None } else { Some(self.input_tokens(1)) };
        let most = |ballot| self.most(self.model(ballot), same.unwrap_or_else(|| self.input_tokens(ballot)));
        let ballots: Vec<BallotBudget> =
            round.missing().map(|ballot| BallotBudget { ballot, most: most(ballot) }).collect();
        let total = ballots.iter().fold(Amount::default(), |sum, one| sum.plus(one.most));
        (ballots, total)
    }

    /// Whether any bound counts what a round costs.
    pub(super) fn is_budgeted(&self) -> bool {
        let limits = self.session.active_run().map(|run| (run.limits.max_tokens, run.limits.max_cost_microusd));
        let session = self.profile().map(|profile| &profile.session_budget);
        let tenant = self.bundle.tenant_budget();
        limits.is_some_and(|(tokens, cost)| tokens.is_some() || cost.is_some())
            || session
                .is_some_and(|b| b.max_model_calls.is_some() || b.max_tokens.is_some() || b.max_cost_microusd.is_some())
            || tenant.max_model_calls.is_some()
            || tenant.max_tokens.is_some()
            || tenant.max_cost_microusd.is_some()
    }

    /// Whether every bound leaves room for so much more.
    pub(super) fn leaves_room(&self, more: Amount, calls: u64) -> bool {
        !self.is_budgeted() || self.over(more, calls).is_none()
    }

    /// The first bound that does not leave room for so much more.
    fn over(&self, more: Amount, calls: u64) -> Option<Over> {
        let run = self.session.active_run()?;
        let own = self.profile()?.session_budget.clone();
        let (limits, all) = (&run.limits, &self.session.spent);
        let raised = |bound, limit: Option<u64>| self.session.raised.get(&bound).copied().or(limit);
        let bounds = [
            (Bound::MaxTokens, limits.max_tokens, run.spent.tokens, more.tokens),
            (Bound::MaxCostMicrousd, limits.max_cost_microusd, run.spent.cost_microusd, more.cost_microusd),
            (
                Bound::SessionMaxModelCalls,
                raised(Bound::SessionMaxModelCalls, own.max_model_calls),
                all.model_calls,
                calls,
            ),
            (Bound::SessionMaxTokens, raised(Bound::SessionMaxTokens, own.max_tokens), all.amount.tokens, more.tokens),
            (
                Bound::SessionMaxCostMicrousd,
                raised(Bound::SessionMaxCostMicrousd, own.max_cost_microusd),
                all.amount.cost_microusd,
                more.cost_microusd,
            ),
        ];
        bounds.into_iter().find_map(|(bound, limit, used, need)| {
            let limit = limit?;
            (used.saturating_add(need) > limit).then_some(Over { bound, used, limit, need })
        })
    }

    /// Steps or model calls are used up.
    pub(super) fn at_count(&mut self, bound: Bound, used: u32, limit: u32, need: u32) {
        let over = Over { bound, used: u64::from(used), limit: u64::from(limit), need: u64::from(need) };
        self.at_bound(&over);
    }

    /// Ends the run at a bound, or pauses it or gives it a turn to finish in where the profile says so.
    fn at_bound(&mut self, over: &Over) {
        let at_limit = self.profile().and_then(|profile| profile.harness.as_ref()).map(|harness| harness.at_limit);
        if at_limit == Some(AtLimit::WrapUp) && over.bound == Bound::MaxSteps && self.may_wrap_up() {
            let Some((run, step)) = self.step() else { return };
            self.push(Event::WrapUpStarted(WrapUpStarted { run, step }));
            return self.check_counts();
        }
        if let Some(paused) = self.pause(over).filter(|_| at_limit == Some(AtLimit::PauseAndAsk)) {
            return self.push(Event::RunPaused(Box::new(paused)));
        }
        let ending = match over.bound {
            Bound::MaxSteps => Ending::MaxStepsExceeded,
            Bound::MaxModelCalls => Ending::MaxModelCallsExceeded,
            Bound::MaxTokens
            | Bound::MaxCostMicrousd
            | Bound::SessionMaxModelCalls
            | Bound::SessionMaxTokens
            | Bound::SessionMaxCostMicrousd => Ending::BudgetExhausted,
        };
        let Over { bound, used, limit, need } = over;
        let unfinished = self.session.active_run().is_some_and(|run| run.wrapping_up);
        let detail = if ending == Ending::BudgetExhausted {
            Some(format!("{used} of `{}` = {limit} are used, and the next round may need {need}", bound.code()))
        } else {
            unfinished.then(|| "the turn to finish in gave no final answer".to_owned())
        };
        self.end_run(ending, None, detail);
    }

    /// Whether the run has not had its last turn, and there is room for what that may cost.
    fn may_wrap_up(&self) -> bool {
        let Some(run) = self.session.active_run().filter(|run| !run.wrapping_up) else { return false };
        let Phase::Asking(round) = &run.phase else { return false };
        let missing = round.missing_count();
        run.model_calls.saturating_add(missing) <= run.limits.max_model_calls
            && self.leaves_room(self.round_most(round).1, u64::from(missing))
    }

    fn pause(&self, over: &Over) -> Option<RunPaused> {
        let (run, step) = self.step()?;
        let approval_rules = &self.profile()?.approval;
        let index = u32::MAX - self.session.active_run()?.pauses;
        let to = over.limit.saturating_mul(2).max(over.used.saturating_add(over.need)).min(over.bound.most());
        if to <= over.limit {
            return None;
        }
        let args = Json::from_value(&json!({"bound": over.bound.code(), "from": over.limit, "to": to}));
        let tool = ToolId::new(RAISE_TOOL).ok()?;
        let digest = super::approval_digest(self.session.id, self.bundle.digest(), &tool, Venue::Server, &args);
        Some(RunPaused {
            run,
            step,
            call: CallId::at(self.session.id, run, step, index),
            bound: over.bound,
            used: over.used,
            limit: over.limit,
            approval: ApprovalOpened {
                id: ApprovalId::at(self.session.id, run, step, index),
                requested_at: self.at,
                expires_at: self.at.plus_ms(approval_rules.expires_ms),
                digest,
                remind_ms: approval_rules.remind_ms,
                approvers: approval_rules.approvers,
                approved_by: std::collections::BTreeSet::new(),
            },
            content: RaiseContent { args },
        })
    }

    pub(super) fn model(&self, ballot: u32) -> Option<&ModelDef> {
        model_for(&self.session, self.bundle, ballot).and_then(|name| self.bundle.model(&name))
    }

    /// The most tokens that the question for a ballot can have: no tokenizer makes more tokens than there are bytes.
    fn input_tokens(&self, ballot: u32) -> u64 {
        tokens_of(&transcript::ask(&self.session, self.bundle, ballot))
    }

    pub(super) fn most(&self, model: Option<&ModelDef>, input: u64) -> Amount {
        let Some(model) = model else { return Amount::default() };
        if model.provider == Provider::Scripted && model.prices.is_none() {
            return Amount::default();
        }
        let input = model.max_input_tokens.map_or(input, |most| input.min(u64::from(most)));
        let output = model.max_output_tokens.map_or(0, u64::from);
        Amount { tokens: input.saturating_add(output), cost_microusd: price(model, input, output) }.capped()
    }

    pub(super) fn round_charges(&self, total: Amount, calls: u64) -> Vec<Charge> {
        let budget = self.bundle.tenant_budget();
        let charges = [
            (MODEL_CALLS, budget.max_model_calls, calls),
            (TOKENS, budget.max_tokens, total.tokens),
            (COST, budget.max_cost_microusd, total.cost_microusd),
        ];
        let charge = |(counter, limit, amount): (&str, Option<u64>, u64)| {
            let amount = amount.min(MOST);
            Some(Charge { counter: counter.to_owned(), window_ms: budget.window_ms, amount, limit: limit? })
        };
        charges.into_iter().filter_map(charge).collect()
    }

    /// What a ballot cost, if the provider said what it spent; and what counts against the budgets.
    pub(super) fn charged(&self, ballot: u32, usage: Usage) -> (Option<u64>, Amount) {
        self.charged_by(self.model(ballot), ballot, usage)
    }

    /// As [`Self::charged`], by the prices of this model.
    pub(super) fn charged_by(&self, model: Option<&ModelDef>, ballot: u32, usage: Usage) -> (Option<u64>, Amount) {
        if let (Some(input), Some(output)) = (usage.input_tokens, usage.output_tokens) {
            let cost = model.map_or(0, |model| price(model, input, output));
            let known = model.and_then(|model| model.prices).map(|_| cost);
            return (known, Amount { tokens: input.saturating_add(output), cost_microusd: cost }.capped());
        }
        let Some(Phase::Asking(round)) = self.session.active_run().map(|run| &run.phase) else {
            return (None, Amount::default());
        };
        (None, round.reserved.get(&ballot).copied().unwrap_or_default())
    }
}

/// The most tokens that a question can have.
pub(super) fn tokens_of(ask: &Ask) -> u64 {
    serde_json::to_vec(ask).map_or(u64::MAX, |bytes| bytes.len() as u64).saturating_add(FRAME_TOKENS)
}

/// What so many tokens cost, each part rounded up.
fn price(model: &ModelDef, input: u64, output: u64) -> u64 {
    let Some(prices) = &model.prices else { return 0 };
    let part = |tokens: u64, per_million: u64| {
        let micro = (u128::from(tokens) * u128::from(per_million)).div_ceil(1_000_000);
        u64::try_from(micro).unwrap_or(u64::MAX)
    };
    part(input, prices.input_microusd_per_million)
        .saturating_add(part(output, prices.output_microusd_per_million))
        .saturating_add(prices.call_microusd)
}

/// The tenant's ledger has answered.
pub(super) fn reservation(draft: &mut Draft<'_>, answer: &ReservationAnswer) -> Result<Reply, Refusal> {
    if !waits_for(draft, &answer.purpose) {
        return Err(Refusal::new(RefusalCode::StaleReservation, "nothing waits for this reservation"));
    }
    draft.push(Event::ReservationAnswered(ReservationAnswered {
        purpose: answer.purpose.clone(),
        answer: answer.answer.clone(),
        settled: answer.settled.clone(),
    }));
    if draft.ended_by_deadline() {
        return Ok(Reply::Accepted);
    }
    let LedgerAnswer::Refused { counter, used, limit } = &answer.answer else {
        draft.advance();
        return Ok(Reply::Accepted);
    };
    let detail = format!("the tenant's `{counter}` stands at {used} of {limit}");
    match &answer.purpose {
        Purpose::Round { .. } => draft.end_run(Ending::BudgetExhausted, None, Some(detail)),
        Purpose::Call { call } => draft.refuse_by_ledger(call, counter, &detail),
    }
    Ok(Reply::Accepted)
}

fn waits_for(draft: &Draft<'_>, purpose: &Purpose) -> bool {
    let Some(run) = draft.session.active_run() else { return false };
    match (purpose, &run.phase) {
        (Purpose::Round { run: no, step, round, attempt }, Phase::Asking(open)) => {
            (*no, *step, *round, *attempt) == (run.no, open.step, open.round, open.attempt)
                && !open.charges.is_empty()
                && !open.granted
                && open.paused.is_none()
        }
        (Purpose::Call { call }, Phase::Acting(_)) => {
            draft.session.call(call).is_some_and(|call| matches!(call.state, CallState::Waiting(Awaited::Reservation)))
        }
        (Purpose::Round { .. } | Purpose::Call { .. }, Phase::Asking(_) | Phase::Acting(_) | Phase::Ended(_)) => false,
    }
}

/// The ledger has taken settlements that no reservation carried.
pub(super) fn settled(draft: &mut Draft<'_>, keys: &[String]) -> Result<Reply, Refusal> {
    let known: Vec<String> =
        draft.session.unsettled.iter().map(|s| s.key.clone()).filter(|key| keys.contains(key)).collect();
    if known.is_empty() {
        return Ok(Reply::Unchanged);
    }
    draft.push(Event::BudgetSettled(BudgetSettled { settled: known }));
    Ok(Reply::Accepted)
}

impl Draft<'_> {
    fn refuse_by_ledger(&mut self, call: &CallId, counter: &str, detail: &str) {
        let reason = if counter.starts_with("limit.count.") {
            RejectReason::RateLimited
        } else if counter.starts_with("limit.sum.") {
            RejectReason::CumulativeLimit
        } else {
            RejectReason::BudgetExhausted
        };
        let detail = format!("{}: {detail}", reason.code());
        self.end_call(call, Close::refused(NotExecuted::Rejected, EndCause::Ledger, reason, &detail));
        self.go_on_after(reason, detail);
    }
}
