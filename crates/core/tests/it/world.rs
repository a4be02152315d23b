//! A session with its log, driven the way the server drives it: decide_and_apply, place, append, apply. What is not here: where inputs
//! come from (`script`, `properties`).

use std::collections::BTreeSet;

use toolgate_core::bundle::Bundle;
use toolgate_core::event::{Event, OwnerChanged, Recorded};
use toolgate_core::explain::explain;
use toolgate_core::id::{CallId, InputId, SessionId};
use toolgate_core::input::{Input, Stamped};
use toolgate_core::session::{CallState, Session};
use toolgate_core::time::Timestamp;
use toolgate_core::{Decided, Verified, decide_and_apply, fold, invariants, outstanding, place, verify};

/// When every test session starts.
pub(crate) const START: Timestamp = Timestamp(1_750_000_000_000_000);

/// A session, its bundle, its log.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) bundle: Bundle,
    pub(crate) session: Session,
    pub(crate) log: Vec<Recorded>,
    pub(crate) now: Timestamp,
    pub(crate) epoch: u64,
}

impl World {
    pub(crate) fn new(bundle: Bundle, key: u128) -> Self {
        let id = SessionId::from_uuid(uuid::Uuid::from_u128(key));
        Self { bundle, session: Session::new(id), log: Vec::new(), now: START, epoch: 1 }
    }

    /// Decides an input and, when something follows, appends and folds it.
    pub(crate) fn send(&mut self, id: Option<InputId>, input: Input) -> Decided {
        let stamped = Stamped { at: self.now, id: id.clone(), input };
        let (decided, mut drafted) = decide_and_apply(&self.session, &self.bundle, &stamped);
        if !decided.events.is_empty() {
            place(&mut drafted, self.session.head + 1, self.epoch, id.as_ref());
        }
        for (place, event) in decided.events.iter().enumerate() {
            assert_eq!(event.is_input(), place == 0, "a batch is one input and what follows from it: {event:?}");
            self.append(id.clone().filter(|_| place == 0), event.clone());
        }
        assert_eq!(drafted, self.session, "the state that comes with a decision is the one that its events fold to");
        decided
    }

    /// What the store writes when another node takes the session over.
    pub(crate) fn take_over(&mut self) {
        self.epoch += 1;
        let node = format!("node-{}", self.epoch);
        self.append(None, Event::OwnerChanged(OwnerChanged { node, incarnation: 1 }));
    }

    fn append(&mut self, input_id: Option<InputId>, event: Event) {
        let seq = self.log.len() as u64 + 1;
        let recorded = Recorded { seq, epoch: self.epoch, at: self.now, input_id, event };
        fold(&mut self.session, &recorded);
        assert_eq!(self.session.head, seq);
        self.log.push(recorded);
    }

    /// The promises that hold at every moment of every session.
    pub(crate) fn check(&self) -> Verified {
        let verified = verify(self.session.id, &self.log, &self.bundle).unwrap_or_else(|d| panic!("{d}"));
        assert!(verified.redacted.is_empty(), "nothing is destroyed yet: {:?}", verified.redacted);
        assert_eq!(verified.session, self.session, "verify and the live path end in the same state");
        self.check_invariants(&self.log);
        let folded = folded(self.session.id, &self.log);
        assert_eq!(folded, self.session, "the log folds to the live state");
        assert_eq!(outstanding(&folded, &self.bundle), outstanding(&self.session, &self.bundle));
        verified
    }

    /// The log after the keys of the seals of ended calls were destroyed.
    pub(crate) fn with_seals_destroyed(&self) -> Vec<Recorded> {
        let open: BTreeSet<&CallId> = self
            .session
            .calls()
            .iter()
            .filter(|call| !matches!(call.state, CallState::Ended(_)))
            .map(|call| &call.id)
            .collect();
        let ended: BTreeSet<CallId> = self
            .log
            .iter()
            .filter_map(|recorded| recorded.event.marks().call)
            .filter(|call| !open.contains(call))
            .collect();
        let mut log = self.log.clone();
        for recorded in &mut log {
            let sealed = match &mut recorded.event {
                Event::BallotReceived(e) => &mut e.sealed,
                Event::CallDecided(e) => &mut e.sealed,
                Event::ApprovalDecided(e) => &mut e.sealed,
                Event::AdmissionAnswered(e) => &mut e.sealed,
                _ => continue,
            };
            sealed.retain(|call, _| !ended.contains(call));
        }
        log
    }

    /// Every call that was decided is explained, by lines of one form, and the same once seals are destroyed.
    pub(crate) fn check_explained(&self) {
        let redacted = self.with_seals_destroyed();
        for recorded in &self.log {
            let Event::CallDecided(decided) = &recorded.event else { continue };
            let found = explain(&self.log, &decided.call).unwrap();
            assert_eq!(explain(&redacted, &decided.call).as_ref(), Some(&found));
            assert_eq!((found.decided.seq, found.decided.decision), (recorded.seq, decided.decision));
            let text = found.text(|at| at.as_micros().to_string());
            let formed = |line: &str| {
                line.split_once(": ").is_some_and(|(name, said)| {
                    !said.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b == b' ')
                })
            };
            assert!(text.ends_with('\n') && text.lines().all(formed), "{text}");
        }
        let nowhere = CallId::at(self.session.id, 99, 99, 99);
        assert_eq!(explain(&self.log, &nowhere), None);
    }

    /// After seals are destroyed the log still verifies, says where it was redacted, and folds to the same state.
    pub(crate) fn check_redacted(&self) -> Verified {
        let log = self.with_seals_destroyed();
        let verified = verify(self.session.id, &log, &self.bundle).unwrap_or_else(|d| panic!("redacted: {d}"));
        assert_eq!(folded(self.session.id, &log), self.session, "the redacted log folds to the same state");
        assert_eq!(verified.session, self.session);
        assert_eq!(verified.redacted.is_empty(), log == self.log, "destroyed seals are named");
        self.check_invariants(&log);
        verified
    }

    /// What every log promises, looked at without the code that wrote it.
    fn check_invariants(&self, log: &[Recorded]) {
        let checked = invariants::check(self.session.id, log, &self.bundle);
        let checked = checked
            .unwrap_or_else(|broken| panic!("{broken}: {:#?}", log.iter().find(|recorded| recorded.seq == broken.seq)));
        assert_eq!(checked.events, log.len() as u64);
    }
}

/// The state that a log folds to.
pub(crate) fn folded(id: SessionId, log: &[Recorded]) -> Session {
    let mut session = Session::new(id);
    for recorded in log {
        fold(&mut session, recorded);
    }
    session
}
