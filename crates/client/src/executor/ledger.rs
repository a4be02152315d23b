//! What one executor knows of each call it was offered: whether it runs, what was reported, whether that is settled. Pure.
//! What is not here: running and sending (`engine`).

use std::collections::{BTreeMap, VecDeque};

use crate::frame::ApprovedToolCall;

/// Settled calls that are remembered, so that a late repetition of their offer runs nothing.
const REMEMBERED: usize = 4_096;
/// Unsettled calls at once; further offers are left for later, when they are offered again.
const OPEN: usize = 256;

/// A call and an attempt.
pub(crate) type Key = (String, u32);

/// What to do about an offer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is new: run it.
    Run,
    /// It has run: send this report again.
    Report(String),
    /// It runs, or is settled, or there is no room: do nothing.
    Leave,
}

#[derive(Debug)]
enum State {
    Running(Box<ApprovedToolCall>),
    /// `again` is set when the server could not take it and it is to be sent once more.
    Reported {
        offer: Box<ApprovedToolCall>,
        frame: String,
        again: bool,
    },
    Settled,
}

/// The calls of one executor.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    calls: BTreeMap<Key, State>,
    settled: VecDeque<Key>,
}

impl Ledger {
    /// Takes an offer.
    pub(super) fn offered(&mut self, offer: &ApprovedToolCall) -> Verdict {
        let key = (offer.call_id.clone(), offer.attempt);
        match self.calls.get(&key) {
            Some(State::Reported { frame, .. }) => Verdict::Report(frame.clone()),
            Some(State::Running(_) | State::Settled) => Verdict::Leave,
            None if self.calls.len().saturating_sub(self.settled.len()) >= OPEN => Verdict::Leave,
            None => {
                self.calls.insert(key, State::Running(Box::new(offer.clone())));
                Verdict::Run
            }
        }
    }

    /// The offer of a call that is not settled.
    pub(super) fn open(&self, key: &Key) -> Option<&ApprovedToolCall> {
        match self.calls.get(key)? {
            State::Running(offer) | State::Reported { offer, .. } => Some(offer),
            State::Settled => None,
        }
    }

    /// Keeps a report until the call is settled; `false` when it was settled meanwhile.
    pub(super) fn reported(&mut self, key: &Key, frame: String) -> bool {
        let Some(state) = self.calls.get_mut(key) else { return false };
        let offer = match std::mem::replace(state, State::Settled) {
            State::Running(offer) | State::Reported { offer, .. } => offer,
            State::Settled => return false,
        };
        *state = State::Reported { offer, frame, again: false };
        true
    }

    /// The open attempt of a call that has the newest number.
    pub(super) fn newest(&self, call: &str) -> Option<Key> {
        let attempts = (call.to_owned(), 0)..=(call.to_owned(), u32::MAX);
        let open = self.calls.range(attempts).rev().find(|(_, state)| !matches!(state, State::Settled));
        open.map(|(key, _)| key.clone())
    }

    /// Forgets the reports of a call; gives the attempts that were not settled.
    pub(super) fn settle(&mut self, call: &str) -> Vec<Key> {
        let attempts = (call.to_owned(), 0)..=(call.to_owned(), u32::MAX);
        let mut ended = Vec::new();
        for (key, state) in self.calls.range_mut(attempts) {
            if !matches!(state, State::Settled) {
                *state = State::Settled;
                ended.push(key.clone());
            }
        }
        self.settled.extend(ended.iter().cloned());
        while self.settled.len() > REMEMBERED {
            if let Some(oldest) = self.settled.pop_front() {
                self.calls.remove(&oldest);
            }
        }
        ended
    }

    /// The server could not take the report now.
    pub(super) fn postpone(&mut self, key: &Key) {
        if let Some(State::Reported { again, .. }) = self.calls.get_mut(key) {
            *again = true;
        }
    }

    /// The reports that were postponed, each once.
    pub(super) fn due(&mut self) -> Vec<String> {
        let mut due = Vec::new();
        for state in self.calls.values_mut() {
            if let State::Reported { frame, again, .. } = state
                && std::mem::take(again)
            {
                due.push(frame.clone());
            }
        }
        due
    }

    /// The reports that the server has not settled.
    pub(super) fn reports(&self) -> impl Iterator<Item = &str> {
        self.calls.values().filter_map(|state| match state {
            State::Reported { frame, .. } => Some(frame.as_str()),
            State::Running(_) | State::Settled => None,
        })
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    fn offer(call: &str, attempt: u32) -> ApprovedToolCall {
        serde_json::from_value(serde_json::json!({
            "session_id": "s", "call_id": call, "attempt": attempt, "fence": 1, "tool": "t", "args": {}, "args_hash": "h",
            "expires_in_ms": 1000,
        }))
        .unwrap()
    }

    fn key(call: &str, attempt: u32) -> Key {
        (call.to_owned(), attempt)
    }

    #[test]
    fn a_call_runs_once_however_often_it_is_offered() {
        let mut ledger = Ledger::default();
        assert_eq!(ledger.offered(&offer("a", 1)), Verdict::Run);
        assert_eq!(ledger.offered(&offer("a", 1)), Verdict::Leave);
        assert!(ledger.reported(&key("a", 1), "report".to_owned()));
        assert_eq!(ledger.offered(&offer("a", 1)), Verdict::Report("report".to_owned()));
        assert_eq!(ledger.reports().collect::<Vec<_>>(), ["report"]);
        assert_eq!(ledger.due(), Vec::<String>::new());
        ledger.postpone(&key("a", 1));
        assert_eq!(ledger.due(), ["report"]);
        assert_eq!(ledger.due(), Vec::<String>::new());
        assert_eq!(ledger.offered(&offer("a", 2)), Verdict::Run);
        assert_eq!(ledger.newest("a"), Some(key("a", 2)));
        assert_eq!(ledger.settle("a"), [key("a", 1), key("a", 2)]);
        assert_eq!(ledger.settle("a"), Vec::<Key>::new());
        assert_eq!(ledger.offered(&offer("a", 2)), Verdict::Leave);
        assert!(!ledger.reported(&key("a", 2), "late".to_owned()));
        assert_eq!(
            (ledger.reports().count(), ledger.newest("a"), ledger.open(&key("a", 2)).is_none()),
            (0, None, true)
        );
    }

    #[test]
    fn what_is_remembered_has_a_bound() {
        let mut ledger = Ledger::default();
        for n in 0..OPEN {
            assert_eq!(ledger.offered(&offer(&format!("open-{n}"), 1)), Verdict::Run);
        }
        assert_eq!(ledger.offered(&offer("one more", 1)), Verdict::Leave);
        ledger.settle("open-0");
        assert_eq!(ledger.offered(&offer("one more", 1)), Verdict::Run);
        for n in 0..REMEMBERED + 10 {
            let call = format!("then-{n}");
            ledger.settle("one more");
            ledger.offered(&offer(&call, 1));
            ledger.settle(&call);
        }
        assert!(ledger.calls.len() <= REMEMBERED + OPEN);
    }
}
