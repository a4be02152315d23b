//! What can be told of an event without its content: its name, whether it records an input, which unique place it takes.

use super::{EndCause, Event, Purpose};
use crate::id::CallId;
use crate::pipeline::Decision;

/// Which unique places in a call's life an event takes; the store holds each at most once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Marks {
    /// The call.
    pub call: Option<CallId>,
    /// It is the call's decision: `allow`, `reject` or `escalate`.
    pub decision: Option<Decision>,
    /// It is the dispatch of this attempt.
    pub dispatch: Option<u32>,
    /// It is the call's terminal record.
    pub terminal: bool,
}

impl Event {
    /// The name of the kind, as in the log.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::SessionOpened(_) => "session_opened",
            Self::OwnerChanged(_) => "owner_changed",
            Self::ClassificationReceived(_) => "classification_received",
            Self::ProfileChosen(_) => "profile_chosen",
            Self::MessageReceived(_) => "message_received",
            Self::RunStarted(_) => "run_started",
            Self::BallotReceived(_) => "ballot_received",
            Self::SummaryAsked(_) => "summary_asked",
            Self::SummaryReceived(_) => "summary_received",
            Self::VoteWidened(_) => "vote_widened",
            Self::ConsensusDecided(_) => "consensus_decided",
            Self::CallDecided(_) => "call_decided",
            Self::CallDispatched(_) => "call_dispatched",
            Self::CallAcknowledged(_) => "call_acknowledged",
            Self::CallEnded(_) => "call_ended",
            Self::AdmissionAnswered(_) => "admission_answered",
            Self::ApprovalDecided(_) => "approval_decided",
            Self::ApprovalReminded(_) => "approval_reminded",
            Self::BudgetReserved(_) => "budget_reserved",
            Self::ReservationAnswered(_) => "reservation_answered",
            Self::BudgetSettled(_) => "budget_settled",
            Self::RunPaused(_) => "run_paused",
            Self::WrapUpStarted(_) => "wrap_up_started",
            Self::StepEnded(_) => "step_ended",
            Self::RunEnded(_) => "run_ended",
            Self::ClientAttached(_) => "client_attached",
            Self::CancelRequested(_) => "cancel_requested",
            Self::CloseRequested(_) => "close_requested",
            Self::SessionClosed(_) => "session_closed",
            Self::Ticked(_) => "ticked",
            Self::Recovered(_) => "recovered",
            Self::OutcomeRefused(_) => "outcome_refused",
        }
    }

    /// Whether the event records an input; each batch begins with one, and `verify` decides it again.
    #[must_use]
    pub fn is_input(&self) -> bool {
        match self {
            Self::SessionOpened(_)
            | Self::ClassificationReceived(_)
            | Self::MessageReceived(_)
            | Self::BallotReceived(_)
            | Self::SummaryReceived(_)
            | Self::CallAcknowledged(_)
            | Self::AdmissionAnswered(_)
            | Self::ApprovalDecided(_)
            | Self::ReservationAnswered(_)
            | Self::BudgetSettled(_)
            | Self::ClientAttached(_)
            | Self::CancelRequested(_)
            | Self::CloseRequested(_)
            | Self::Ticked(_)
            | Self::Recovered(_)
            | Self::OutcomeRefused(_) => true,
            Self::CallEnded(ended) => matches!(ended.cause, EndCause::Reported(_)),
            Self::OwnerChanged(_)
            | Self::ProfileChosen(_)
            | Self::RunStarted(_)
            | Self::SummaryAsked(_)
            | Self::VoteWidened(_)
            | Self::ConsensusDecided(_)
            | Self::CallDecided(_)
            | Self::CallDispatched(_)
            | Self::ApprovalReminded(_)
            | Self::BudgetReserved(_)
            | Self::RunPaused(_)
            | Self::WrapUpStarted(_)
            | Self::StepEnded(_)
            | Self::RunEnded(_)
            | Self::SessionClosed(_) => false,
        }
    }

    /// The unique places it takes.
    #[must_use]
    pub fn marks(&self) -> Marks {
        match self {
            Self::CallDecided(decided) => Marks {
                call: Some(decided.call.clone()),
                decision: Some(decided.decision),
                dispatch: decided.dispatch.as_ref().map(|d| d.attempt),
                terminal: decided.decision == Decision::Reject,
            },
            Self::CallDispatched(dispatched) => Marks {
                call: Some(dispatched.call.clone()),
                dispatch: Some(dispatched.dispatch.attempt),
                ..Marks::default()
            },
            Self::CallEnded(ended) => Marks { call: Some(ended.call.clone()), terminal: true, ..Marks::default() },
            Self::CallAcknowledged(ack) => Marks { call: Some(ack.call.clone()), ..Marks::default() },
            Self::ApprovalDecided(decided) => Marks { call: Some(decided.call.clone()), ..Marks::default() },
            Self::ApprovalReminded(reminded) => Marks { call: Some(reminded.call.clone()), ..Marks::default() },
            Self::AdmissionAnswered(answer) => Marks { call: Some(answer.call.clone()), ..Marks::default() },
            Self::RunPaused(paused) => Marks { call: Some(paused.call.clone()), ..Marks::default() },
            Self::ReservationAnswered(answer) => match &answer.purpose {
                Purpose::Call { call } => Marks { call: Some(call.clone()), ..Marks::default() },
                Purpose::Round { .. } => Marks::default(),
            },
            Self::OutcomeRefused(refused) => Marks { call: Some(refused.call.clone()), ..Marks::default() },
            Self::SessionOpened(_)
            | Self::OwnerChanged(_)
            | Self::ClassificationReceived(_)
            | Self::ProfileChosen(_)
            | Self::MessageReceived(_)
            | Self::RunStarted(_)
            | Self::BallotReceived(_)
            | Self::SummaryAsked(_)
            | Self::SummaryReceived(_)
            | Self::VoteWidened(_)
            | Self::ConsensusDecided(_)
            | Self::BudgetReserved(_)
            | Self::BudgetSettled(_)
            | Self::WrapUpStarted(_)
            | Self::StepEnded(_)
            | Self::RunEnded(_)
            | Self::ClientAttached(_)
            | Self::CancelRequested(_)
            | Self::CloseRequested(_)
            | Self::SessionClosed(_)
            | Self::Ticked(_)
            | Self::Recovered(_) => Marks::default(),
        }
    }

    /// The run and step it belongs to, where it has them.
    #[must_use]
    pub const fn position(&self) -> (Option<u32>, Option<u32>) {
        match self {
            Self::RunStarted(e) => (Some(e.run), None),
            Self::BallotReceived(e) => (Some(e.seat.run), Some(e.seat.step)),
            Self::SummaryAsked(e) => (Some(e.seat.run), Some(e.seat.step)),
            Self::SummaryReceived(e) => (Some(e.seat.run), Some(e.seat.step)),
            Self::VoteWidened(e) => (Some(e.run), Some(e.step)),
            Self::ConsensusDecided(e) => (Some(e.run), Some(e.step)),
            Self::CallDecided(e) => (Some(e.run), Some(e.step)),
            Self::CallDispatched(e) => (Some(e.run), Some(e.step)),
            Self::CallEnded(e) => (Some(e.run), Some(e.step)),
            Self::AdmissionAnswered(e) => (Some(e.run), Some(e.step)),
            Self::ApprovalReminded(e) => (Some(e.run), Some(e.step)),
            Self::BudgetReserved(e) => (Some(e.run), Some(e.step)),
            Self::RunPaused(e) => (Some(e.run), Some(e.step)),
            Self::ReservationAnswered(e) => match &e.purpose {
                Purpose::Round { run, step, .. } => (Some(*run), Some(*step)),
                Purpose::Call { .. } => (None, None),
            },
            Self::WrapUpStarted(e) => (Some(e.run), Some(e.step)),
            Self::StepEnded(e) => (Some(e.run), Some(e.step)),
            Self::RunEnded(e) => (Some(e.run), None),
            Self::Ticked(e) | Self::Recovered(e) => (Some(e.run), None),
            Self::OutcomeRefused(e) => (Some(e.run), None),
            Self::SessionOpened(_)
            | Self::OwnerChanged(_)
            | Self::ClassificationReceived(_)
            | Self::ProfileChosen(_)
            | Self::MessageReceived(_)
            | Self::CallAcknowledged(_)
            | Self::ApprovalDecided(_)
            | Self::BudgetSettled(_)
            | Self::ClientAttached(_)
            | Self::CancelRequested(_)
            | Self::CloseRequested(_)
            | Self::SessionClosed(_) => (None, None),
        }
    }
}
