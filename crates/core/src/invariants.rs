//! The invariants of a log, told from the log and its bundle alone: a second look at what `decide` and `apply` promise.
//! Nothing here calls them, nor the state they keep, so that a fault in them is not repeated here.
//!
//! | | What holds | |
//! |---|---|---|
//! | I1 | numbers without gaps from 1; the log begins with its one `session_opened` | here |
//! | I2 | each row carries the hash of the row before it | the store's `chain::Checker` |
//! | I3 | epochs never fall; each further one begins with `owner_changed` of a named node | here |
//! | I4 | what is dispatched was allowed before, by every hook as well, with the same arguments | here |
//! | I5 | one decision per call; attempts count 1, 2, 3…, more than one only for `read` and `idempotent` | here |
//! | I6 | one terminal record per call, after its dispatch where it has an outcome; late reports only after it | here |
//! | I7 | after `session_closed` only refused reports, owners and settlements; nothing of a run outside it | here |
//! | I8 | the tool stands in the profile of the pinned bundle, with the contract recorded | here |
//! | I9 | a call is sent to, and reported from, the venue of its tool | here |
//! | I10 | `done` only with the evidence that the profile asks for | here |
//! | I11 | steps, calls, time, tokens and money within their bounds; unknown costs count in full | here |
//! | I12 | a call that needs approval has a valid one before it is sent | here |
//! | I13 | what was denied is not sent | here |
//! | I14 | a `once` call whose fate is unknown is not sent again | here |
//! | I15 | rows belong to the session's tenant | the store's `chain::Checker`: the hash covers the tenant |
//! | I16 | each input is recorded once | here |
//! | I17 | everything was written by rules and an engine that this program knows | here, and the store's codec for kinds |
//! | I18 | the head row names the last event | the store's `chain::Checker` |
//! | I19 | what acts was proposed, and has won its vote by the rule of the bundle over the whole electorate | here |
//!
//! What a log cannot tell: whether policies that read the arguments of earlier calls were right (`verify` asks them
//! again), whether evidence rules of such policies were met at `done` (likewise), the arguments behind a destroyed seal, and
//! what a tenant's ledger counts over other sessions.

use std::collections::{BTreeMap, BTreeSet};

use crate::bundle::Bundle;
use crate::event::{Event, MessageReceived, Recorded, SessionOpened};
use crate::id::{ActorId, CallId, Capability, ClientInstance, SessionId};
use crate::profile::Profile;
use crate::time::Timestamp;

mod approval;
mod call;
mod name;
mod order;
mod run;
mod summary;
mod vote;

pub use name::Invariant;

use approval::Given;
use call::Life;
use order::Order;
use run::{Book, Sum};

/// A log whose invariants hold, and how much of it there was to look at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Checked {
    /// Events looked at.
    pub events: u64,
    /// Calls decided.
    pub calls: u64,
    /// Times that a call was sent.
    pub dispatches: u64,
}

/// The first place at which an invariant does not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{invariant} does not hold at sequence {seq}: {what}")]
pub struct Broken {
    /// Which one.
    pub invariant: Invariant,
    /// The event at which it shows.
    pub seq: u64,
    /// What is wrong there.
    pub what: &'static str,
}

/// Checks a whole log.
pub fn check(id: SessionId, log: &[Recorded], bundle: &Bundle) -> Result<Checked, Broken> {
    let mut pass = Pass::new(id, bundle);
    for recorded in log {
        pass.event(recorded)?;
    }
    Ok(pass.checked)
}

type Holds = Result<(), Broken>;

/// What the pass remembers of the events so far.
struct Pass<'a> {
    id: SessionId,
    bundle: &'a Bundle,
    seq: u64,
    at: Timestamp,
    order: Order<'a>,
    opened: Option<&'a SessionOpened>,
    profile: Option<&'a Profile>,
    /// Evidence that `done` needs, as the log names it.
    required: BTreeMap<&'a str, u32>,
    speakers: BTreeSet<&'a ActorId>,
    executor: Option<&'a ClientInstance>,
    capabilities: BTreeSet<&'a Capability>,
    lives: BTreeMap<&'a CallId, Life<'a>>,
    /// Calls without a terminal record.
    open: BTreeSet<&'a CallId>,
    pauses: BTreeMap<&'a CallId, run::Pause<'a>>,
    grants: Vec<Given<'a>>,
    run: Book<'a>,
    all: Sum,
    checked: Checked,
}

impl<'a> Pass<'a> {
    fn new(id: SessionId, bundle: &'a Bundle) -> Self {
        Self {
            id,
            bundle,
            seq: 0,
            at: Timestamp(0),
            order: Order::default(),
            opened: None,
            profile: None,
            required: BTreeMap::new(),
            speakers: BTreeSet::new(),
            executor: None,
            capabilities: BTreeSet::new(),
            lives: BTreeMap::new(),
            open: BTreeSet::new(),
            pauses: BTreeMap::new(),
            grants: Vec::new(),
            run: Book::default(),
            all: Sum::default(),
            checked: Checked::default(),
        }
    }

    fn must(&self, holds: bool, invariant: Invariant, what: &'static str) -> Holds {
        if holds { Ok(()) } else { Err(Broken { invariant, seq: self.seq, what }) }
    }

    fn event(&mut self, recorded: &'a Recorded) -> Holds {
        self.placed(recorded)?;
        self.checked.events += 1;
        match &recorded.event {
            Event::SessionOpened(e) => self.session_opened(e),
            Event::OwnerChanged(_)
            | Event::ClassificationReceived(_)
            | Event::BudgetSettled(_)
            | Event::CancelRequested(_)
            | Event::CloseRequested(_)
            | Event::Ticked(_)
            | Event::ApprovalReminded(_) => Ok(()),
            Event::SummaryAsked(e) => self.summary_asked(e),
            Event::SummaryReceived(e) => self.summary_received(e),
            Event::VoteWidened(e) => self.widened(e),
            Event::ConsensusDecided(e) => self.tallied(e),
            Event::ProfileChosen(e) => self.profile_chosen(e),
            Event::MessageReceived(e) => self.message(e),
            Event::RunStarted(e) => self.run_started(e),
            Event::BudgetReserved(e) => self.reserved(e),
            Event::ReservationAnswered(e) => self.ledger_answered(e),
            Event::BallotReceived(e) => self.ballot(e),
            Event::Recovered(_) => {
                self.recovered();
                Ok(())
            }
            Event::CallDecided(e) => self.decided(e),
            Event::CallDispatched(e) => self.dispatched(&e.call, &e.dispatch),
            Event::CallAcknowledged(e) => self.acknowledged(e),
            Event::CallEnded(e) => self.ended(e),
            Event::AdmissionAnswered(e) => self.admission(e),
            Event::ApprovalDecided(e) => self.approval(e),
            Event::RunPaused(e) => self.paused(e),
            Event::WrapUpStarted(e) => self.wraps_up(e),
            Event::StepEnded(e) => self.step(e.step),
            Event::RunEnded(e) => self.run_ended(e),
            Event::ClientAttached(e) => {
                self.executor = Some(&e.instance);
                self.capabilities = e.capabilities.iter().collect();
                Ok(())
            }
            Event::SessionClosed(e) => self.closed(e),
            Event::OutcomeRefused(e) => self.report_refused(e),
        }
    }

    fn session_opened(&mut self, e: &'a SessionOpened) -> Holds {
        self.must(e.bundle == self.bundle.digest(), Invariant::I8, "the session pinned another bundle")?;
        self.speakers.insert(&e.by);
        self.capabilities = e.capabilities.iter().collect();
        self.opened = Some(e);
        Ok(())
    }

    fn message(&mut self, e: &'a MessageReceived) -> Holds {
        self.must(!self.run.is_active(), Invariant::I7, "a message during a run")?;
        self.speakers.insert(&e.by);
        Ok(())
    }
}
