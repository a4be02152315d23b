//! Fills the wire's forms of events about hooks, approvals and budgets. What is not here: the other kinds (`make`).

use toolgate_core::event::{self, AdmissionOpened, Amount, BallotBudget, Charge, GrantGiven, LedgerAnswer, Raise};
use toolgate_core::profile::ControlMode;

use super::fact::{
    AdmissionAnswered, AdmissionContent, AdmissionOpenedView, AmountView, ApprovalReminded, BallotBudgetView,
    BudgetReserved, ChargeView, GrantView, RaiseContent, RaiseView, ReservationAnswered, RunPaused,
};
use crate::wire::{RawJson, time_text};

pub(super) fn admission(e: &event::AdmissionAnswered) -> AdmissionAnswered {
    AdmissionAnswered {
        hook: e.hook.to_string(),
        attempt: e.attempt,
        verdict: e.verdict.code(),
        next_by: e.next_by.map(time_text),
        approval: e.approval.as_ref().map(Into::into),
        content: AdmissionContent {
            reason: e.content.reason.clone(),
            args: e.content.args.as_ref().map(RawJson::from),
            redacted: e.content.redacted,
        },
    }
}

pub(super) fn reminded(e: &event::ApprovalReminded) -> ApprovalReminded {
    ApprovalReminded { approval_id: e.approval.to_string(), reminder: e.reminder, expires_at: time_text(e.expires_at) }
}

pub(super) fn reserved(e: &event::BudgetReserved) -> BudgetReserved {
    BudgetReserved {
        round: e.round,
        attempt: e.attempt,
        ballots: e.ballots.iter().map(BallotBudgetView::from).collect(),
        charges: e.charges.iter().map(ChargeView::from).collect(),
    }
}

pub(super) fn answered(e: &event::ReservationAnswered) -> ReservationAnswered {
    let (answer, refused) = match &e.answer {
        LedgerAnswer::Granted => ("granted", None),
        LedgerAnswer::Refused { counter, used, limit } => ("refused", Some((counter, used, limit))),
    };
    ReservationAnswered {
        reservation: e.purpose.key(),
        answer,
        counter: refused.map(|(counter, _, _)| counter.clone()),
        used: refused.map(|(_, used, _)| *used),
        limit: refused.map(|(_, _, limit)| *limit),
        settled: e.settled.clone(),
    }
}

pub(super) fn paused(e: &event::RunPaused) -> RunPaused {
    RunPaused {
        bound: e.bound.code(),
        used: e.used,
        limit: e.limit,
        approval: (&e.approval).into(),
        content: RaiseContent { args: (&e.content.args).into() },
    }
}

/// The word for a control mode.
pub(crate) const fn control_word(mode: ControlMode) -> &'static str {
    match mode {
        ControlMode::None => "none",
        ControlMode::Risky => "risky",
        ControlMode::All => "all",
    }
}

impl From<&AdmissionOpened> for AdmissionOpenedView {
    fn from(opened: &AdmissionOpened) -> Self {
        Self { hooks: opened.hooks.iter().map(ToString::to_string).collect(), answer_by: time_text(opened.answer_by) }
    }
}

impl From<&Charge> for ChargeView {
    fn from(charge: &Charge) -> Self {
        Self {
            counter: charge.counter.clone(),
            window_ms: charge.window_ms,
            amount: charge.amount,
            limit: charge.limit,
        }
    }
}

impl From<&Amount> for AmountView {
    fn from(amount: &Amount) -> Self {
        Self { tokens: amount.tokens, cost_microusd: amount.cost_microusd }
    }
}

impl From<&BallotBudget> for BallotBudgetView {
    fn from(budget: &BallotBudget) -> Self {
        Self { ballot: budget.ballot, most: (&budget.most).into() }
    }
}

impl From<&GrantGiven> for GrantView {
    fn from(grant: &GrantGiven) -> Self {
        Self { open: grant.open.clone(), expires_at: time_text(grant.expires_at) }
    }
}

impl From<&Raise> for RaiseView {
    fn from(raise: &Raise) -> Self {
        Self { bound: raise.bound.code(), to: raise.to }
    }
}
