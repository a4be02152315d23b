//! The order of events: numbers (I1), epochs (I3), what may follow an end (I7), inputs (I16), known rules (I17).

use std::collections::BTreeSet;

use super::{Holds, Invariant, Pass};
use crate::event::{Event, RULES_VERSION, Recorded, SCHEMA_ENGINE, SessionClosed};
use crate::id::InputId;

/// What must be remembered for it.
#[derive(Default)]
pub(super) struct Order<'a> {
    epoch: u64,
    closed: bool,
    inputs: BTreeSet<&'a InputId>,
}

impl<'a> Pass<'a> {
    /// Whether an event may stand where it stands.
    pub(super) fn placed(&mut self, recorded: &'a Recorded) -> Holds {
        let expected = self.seq + 1;
        self.seq = expected;
        self.must(recorded.seq == expected, Invariant::I1, "another number stands here")?;
        let opens = matches!(recorded.event, Event::SessionOpened(_));
        self.must(opens == (expected == 1), Invariant::I1, "`session_opened` begins the log and stands nowhere else")?;
        self.at = recorded.at;
        self.epoch(recorded)?;
        self.after_close(&recorded.event)?;
        self.input(recorded)?;
        self.known(&recorded.event)
    }

    fn epoch(&mut self, recorded: &Recorded) -> Holds {
        let (before, now) = (self.order.epoch, recorded.epoch);
        self.must(now >= before && now > 0, Invariant::I3, "the epoch falls")?;
        if let Event::OwnerChanged(e) = &recorded.event {
            self.must(now > before, Invariant::I3, "`owner_changed` begins no new epoch")?;
            self.must(!e.node.is_empty(), Invariant::I3, "`owner_changed` names no node")?;
        } else {
            self.must(now == before || self.seq == 1, Invariant::I3, "an epoch begins without `owner_changed`")?;
        }
        self.order.epoch = now;
        Ok(())
    }

    fn after_close(&self, event: &Event) -> Holds {
        let late = matches!(event, Event::OutcomeRefused(_) | Event::OwnerChanged(_) | Event::BudgetSettled(_));
        self.must(!self.order.closed || late, Invariant::I7, "it stands after `session_closed`")
    }

    pub(super) fn closed(&mut self, e: &SessionClosed) -> Holds {
        self.must(!self.run.is_active(), Invariant::I7, "the session is closed during a run")?;
        self.must(e.runs == self.run.no, Invariant::I7, "the session is closed with another number of runs")?;
        self.order.closed = true;
        Ok(())
    }

    fn input(&mut self, recorded: &'a Recorded) -> Holds {
        let Some(id) = &recorded.input_id else { return Ok(()) };
        self.must(recorded.event.is_input(), Invariant::I16, "a decision carries the id of an input")?;
        let first = self.order.inputs.insert(id);
        self.must(first, Invariant::I16, "an input is recorded twice")
    }

    fn known(&self, event: &Event) -> Holds {
        let (rules, engine) = if let Event::SessionOpened(e) = event {
            (e.rules_version, true)
        } else if let Event::RunStarted(e) = event {
            (e.rules_version, e.schema_engine == SCHEMA_ENGINE)
        } else {
            return Ok(());
        };
        let known = (1..=RULES_VERSION).contains(&rules);
        self.must(known, Invariant::I17, "it was decided by rules that this program does not have")?;
        self.must(engine, Invariant::I17, "it was decided by a schema engine that this program does not have")
    }
}
