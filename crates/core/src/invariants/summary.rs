//! Summaries: one is asked for by the profile, of its model, before any ballot of its round, and what it costs counts (I11).

use super::{Holds, Invariant, Pass};
use crate::event::{SummaryAsked, SummaryReceived};
use crate::input::Seat;

/// The summary that is asked for, or the last one.
#[derive(Default)]
pub(super) struct Asked {
    seat: Option<Seat>,
    open: bool,
}

impl Asked {
    pub(super) const fn is_open(&self) -> bool {
        self.open
    }

    /// It is lost, and may be asked for again.
    pub(super) const fn lose(&mut self) {
        (self.seat, self.open) = (None, false);
    }
}

impl Pass<'_> {
    pub(super) fn summary_asked(&mut self, e: &SummaryAsked) -> Holds {
        self.during(e.seat.run)?;
        let wanted = self.profile.and_then(|profile| profile.summarize.as_ref());
        let of_profile = wanted.is_some_and(|wanted| wanted.model == e.model) && e.seat.ballot == 0;
        self.must(of_profile, Invariant::I11, "a summary that the profile does not ask for")?;
        let first = self.run.poll.is_closed() && !self.run.paused && !self.run.is_reserved();
        self.must(first, Invariant::I11, "a summary is asked for while a round is under way")?;
        let again = self.run.summary.seat.is_some_and(|seat| (seat.step, seat.round) == (e.seat.step, e.seat.round));
        self.must(!again && e.answers > 0, Invariant::I11, "a summary too many, or of nothing")?;
        self.run.summary = Asked { seat: Some(e.seat), open: true };
        Ok(())
    }

    pub(super) fn summary_received(&mut self, e: &SummaryReceived) -> Holds {
        self.during(e.seat.run)?;
        let asked = self.run.summary.open && self.run.summary.seat == Some(e.seat);
        self.must(asked, Invariant::I11, "a summary that was not asked for")?;
        self.paid(e.seat, e.usage, e.cost_microusd, e.charged)?;
        self.run.summary.open = false;
        self.asked_anew()
    }
}
