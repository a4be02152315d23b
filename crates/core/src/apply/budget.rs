//! What was spent, what is set aside, and what the tenant's ledger has yet to learn.

use std::collections::BTreeMap;

use crate::event::{
    Amount, BudgetReserved, CallEnded, Charge, EndCause, LedgerAnswer, Purpose, ReservationAnswered, Settlement,
};
use crate::session::{Awaited, Call, CallState, Phase, Round, Session, Spent};

/// The counter of the tenant's model calls.
pub(crate) const MODEL_CALLS: &str = "budget.model_calls";
/// The counter of the tenant's tool calls.
pub(crate) const TOOL_CALLS: &str = "budget.tool_calls";
/// The counter of the tenant's tokens.
pub(crate) const TOKENS: &str = "budget.tokens";
/// The counter of the tenant's money.
pub(crate) const COST: &str = "budget.cost_microusd";

pub(super) fn budget_reserved(session: &mut Session, e: &BudgetReserved) {
    if let Some(round) = round_mut(session) {
        round.reserved = e.ballots.iter().map(|one| (one.ballot, one.most)).collect();
        round.charges.clone_from(&e.charges);
        round.granted = false;
        round.used = Spent::default();
    }
}

pub(super) fn reservation_answered(session: &mut Session, e: &ReservationAnswered) {
    settled(session, &e.settled);
    let granted = e.answer == LedgerAnswer::Granted;
    match &e.purpose {
        Purpose::Round { .. } => {
            if let Some(round) = round_mut(session) {
                round.granted = granted;
                if !granted {
                    round.charges.clear();
                    round.reserved.clear();
                }
            }
        }
        Purpose::Call { call } => {
            if let Some(call) = super::call::call_mut(session, call).filter(|_| granted) {
                call.state = CallState::Queued;
            }
        }
    }
}

pub(super) fn settled(session: &mut Session, keys: &[String]) {
    session.unsettled.retain(|settlement| !keys.contains(&settlement.key));
}

/// Whether models are being asked for the round's ballots.
pub(crate) fn is_asked(round: &Round) -> bool {
    round.paused.is_none() && (round.charges.is_empty() || round.granted)
}

/// A ballot or a summary came: what it cost is spent; with the last one the ledger can be told.
pub(super) fn paid(session: &mut Session, ballot: u32, charged: Amount) {
    session.spent.model_calls += 1;
    spend(session, charged);
    let Some((run_no, round)) = run_and_round(session) else { return };
    round.reserved.remove(&ballot);
    round.used.model_calls += 1;
    round.used.amount = round.used.amount.plus(charged);
    let over = round.reserved.is_empty() && !round.charges.is_empty();
    let settlement = over.then(|| settlement(run_no, round));
    session.unsettled.extend(settlement);
}

/// So many ballots were asked for and are given up: they count as model calls, and what was set aside as spent.
pub(super) fn ballots_missed(session: &mut Session, missing: u32) {
    let Some(run) = session.run.as_mut() else { return };
    run.model_calls = run.model_calls.saturating_add(missing);
    let reserved = matches!(&run.phase, Phase::Asking(round) if !round.reserved.is_empty());
    ballots_lost(session);
    // Where no bound counts what a round costs nothing was set aside.
    if !reserved {
        session.spent.model_calls += u64::from(missing);
    }
}

/// Answers that will never come count as spent: a new owner asks again, or the run is over.
pub(super) fn ballots_lost(session: &mut Session) {
    let Some((run_no, round)) = run_and_round(session) else { return };
    let asked = is_asked(round);
    let lost = std::mem::take(&mut round.reserved);
    let had_charges = !round.charges.is_empty();
    let mut amount = Amount::default();
    if asked {
        for one in lost.values() {
            amount = amount.plus(*one);
        }
        round.used.model_calls += lost.len() as u64;
        round.used.amount = round.used.amount.plus(amount);
    }
    // The ledger may have granted what was never asked; then nothing of it was used.
    let settlement = (had_charges && !lost.is_empty()).then(|| settlement(run_no, round));
    round.charges.clear();
    round.granted = false;
    round.used = Spent::default();
    if asked {
        session.spent.model_calls += lost.len() as u64;
        spend(session, amount);
    }
    session.unsettled.extend(settlement);
}

fn spend(session: &mut Session, amount: Amount) {
    session.spent.amount = session.spent.amount.plus(amount);
    if let Some(run) = session.run.as_mut() {
        run.spent = run.spent.plus(amount);
    }
}

fn settlement(run: u32, round: &Round) -> Settlement {
    let purpose = Purpose::Round { run, step: round.step, round: round.round, attempt: round.attempt };
    let used = round.charges.iter().map(|charge| (charge.counter.clone(), of_counter(&charge.counter, &round.used)));
    Settlement { key: purpose.key(), used: used.collect() }
}

fn of_counter(counter: &str, used: &Spent) -> u64 {
    match counter {
        MODEL_CALLS => used.model_calls,
        TOKENS => used.amount.tokens,
        COST => used.amount.cost_microusd,
        _ => 0,
    }
}

/// What the ledger must learn of a call that is over: it was sent and counts, or nothing of it does.
pub(super) fn call_settlement(call: &Call, e: &CallEnded) -> Option<Settlement> {
    let never_asked = matches!(call.state, CallState::Waiting(Awaited::Admission(_) | Awaited::Approval(_)))
        || e.cause == EndCause::Ledger;
    if call.charges.is_empty() || never_asked {
        return None;
    }
    let used: BTreeMap<String, u64> = if e.attempt > 0 {
        call.charges.iter().map(|Charge { counter, amount, .. }| (counter.clone(), *amount)).collect()
    } else {
        BTreeMap::new()
    };
    Some(Settlement { key: Purpose::Call { call: call.id.clone() }.key(), used })
}

fn run_and_round(session: &mut Session) -> Option<(u32, &mut Round)> {
    let run = session.run.as_mut()?;
    match &mut run.phase {
        Phase::Asking(round) => Some((run.no, round)),
        Phase::Acting(_) | Phase::Ended(_) => None,
    }
}

fn round_mut(session: &mut Session) -> Option<&mut Round> {
    run_and_round(session).map(|(_, round)| round)
}
