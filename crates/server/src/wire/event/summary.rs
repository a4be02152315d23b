//! Fills the wire's forms of summaries. What is not here: the forms (`fact::summary`).

use toolgate_core::event::{self, SummaryFault};

use super::fact::{SummaryAsked, SummaryContent, SummaryReceived};

pub(super) fn asked(e: &event::SummaryAsked) -> SummaryAsked {
    SummaryAsked {
        round: e.seat.round,
        attempt: e.seat.attempt,
        model: e.model.to_string(),
        entries: e.entries,
        answers: e.answers,
    }
}

pub(super) fn received(e: &event::SummaryReceived) -> SummaryReceived {
    SummaryReceived {
        round: e.seat.round,
        attempt: e.seat.attempt,
        fault: e.fault.map(SummaryFault::code),
        usage: (&e.usage).into(),
        model: e.model.clone(),
        cost_microusd: e.cost_microusd,
        charged: (&e.charged).into(),
        content: SummaryContent { text: e.content.text.clone(), detail: e.content.detail.clone() },
    }
}
