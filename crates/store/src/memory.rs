//! The store in memory, with the same contract, for tests and the demo. Nothing survives the process.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use toolgate_core::id::{ApprovalId, CallId, InputId, Sha256Digest, TenantId};

use crate::append::{Append, Sealed};
use crate::error::{Guard, StoreError};
use crate::fence::{Fence, Standing, judge};
use crate::keys::{MasterKey, WrappedKey};
use crate::name::{KeyId, NodeId};
use crate::record::{
    ApiKeyRow, ApprovalRow, Blob, BundleRow, IdempotencyKey, IdempotencyRow, InboxRow, OutboxRow, SecurityRow,
};
use crate::row::{AFTER_CLOSE, Row, SESSION_CLOSED};
use crate::session::{SessionKey, SessionRow};
use crate::snapshot::Snapshot;
use toolgate_core::time::Timestamp;

mod cluster;
mod ledger;
mod log;
mod registry;
mod snapshots;

/// A store that lives as long as the value.
#[derive(Debug, Default)]
pub struct MemoryStore {
    state: Mutex<State>,
}

impl MemoryStore {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Works on the state. Nothing here panics half-way, so a poisoned lock still guards a whole state.
    fn with<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        work(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[derive(Debug, Default)]
struct State {
    sessions: BTreeMap<SessionKey, Session>,
    /// A claim has no answer yet.
    idempotency: BTreeMap<IdempotencyKey, Stored>,
    bundles: BTreeMap<(TenantId, Sha256Digest), BundleRow>,
    current: BTreeMap<TenantId, Sha256Digest>,
    api_keys: BTreeMap<String, ApiKeyRow>,
    security: BTreeMap<(TenantId, String), SecurityRow>,
    nodes: BTreeMap<NodeId, cluster::Node>,
    hand_overs: BTreeMap<SessionKey, cluster::Asked>,
    ledger: ledger::Accounts,
    /// The proof of the master key.
    master: Option<[u8; 32]>,
}

#[derive(Debug, Clone)]
struct Stored {
    fingerprint: Sha256Digest,
    expires_at: Timestamp,
    answer: Option<IdempotencyRow>,
}

/// An input that waits, or that left no record and has its answer.
#[derive(Debug)]
struct Waiting {
    row: InboxRow,
    answer: Option<(Sealed, Timestamp)>,
}

#[derive(Debug)]
struct Session {
    row: SessionRow,
    rows: Vec<Row>,
    keys: BTreeMap<KeyId, Vec<u8>>,
    blobs: BTreeMap<Sha256Digest, Blob>,
    approvals: BTreeMap<ApprovalId, ApprovalRow>,
    inbox: BTreeMap<InputId, Waiting>,
    outbox: BTreeMap<String, OutboxRow>,
    snapshot: Option<Snapshot>,
}

/// Why an append was not applied, besides the fence.
enum Refusal {
    Duplicate(InputId, u64),
    Idempotency,
    Failed(StoreError),
}

impl Session {
    const fn new(row: SessionRow) -> Self {
        Self {
            row,
            rows: Vec::new(),
            keys: BTreeMap::new(),
            blobs: BTreeMap::new(),
            approvals: BTreeMap::new(),
            inbox: BTreeMap::new(),
            outbox: BTreeMap::new(),
            snapshot: None,
        }
    }

    const fn standing(&self) -> Standing {
        Standing {
            epoch: self.row.epoch,
            head_seq: self.row.head_seq,
            head_hash: self.row.head_hash,
            closed: self.row.closed,
        }
    }

    fn at(&self, seq: u64) -> Option<&Row> {
        self.rows.get(usize::try_from(seq.checked_sub(1)?).ok()?)
    }

    /// Whether the very bytes of these rows stand in their places.
    fn stands(&self, rows: &[Row]) -> bool {
        !rows.is_empty()
            && rows.iter().all(|row| {
                self.at(row.seq).is_some_and(|there| {
                    there.epoch == row.epoch
                        && there.hash == row.hash
                        && there.header == row.header
                        && there.payload == row.payload
                })
            })
    }

    fn recorded(&self, input: &InputId) -> Option<u64> {
        self.rows.iter().find(|row| row.input_id.as_ref() == Some(input)).map(|row| row.seq)
    }

    /// The rules over the records of one call, which SQL databases keep by index and trigger.
    fn check_rows(&self, rows: &[Row]) -> Result<(), Refusal> {
        let mut earlier: Vec<&Row> = self.rows.iter().collect();
        for row in rows {
            if let Some(input) = &row.input_id {
                if let Some(seq) = self.recorded(input) {
                    return Err(Refusal::Duplicate(input.clone(), seq));
                }
                if earlier.iter().any(|other| other.input_id.as_ref() == Some(input)) {
                    return Err(Refusal::Failed(StoreError::Invalid("two rows of one append record the same input")));
                }
            }
            if let Some(call) = &row.call {
                call_rules(&earlier, row, call).map_err(|guard| Refusal::Failed(StoreError::Guard(guard)))?;
            }
            earlier.push(row);
        }
        Ok(())
    }
}

fn call_rules(earlier: &[&Row], row: &Row, call: &CallId) -> Result<(), Guard> {
    let any = |what: fn(&Row) -> bool| earlier.iter().any(|other| other.call.as_ref() == Some(call) && what(other));
    let marks = row.marks;
    let decided = any(|other| other.marks.decision);
    if marks.decision && decided {
        return Err(Guard::SecondDecision);
    }
    if marks.allow && !marks.decision && any(|other| other.marks.allow && !other.marks.decision) {
        return Err(Guard::SecondAllow);
    }
    let same_attempt =
        |other: &&Row| other.call.as_ref() == Some(call) && other.marks.dispatch_attempt == marks.dispatch_attempt;
    if marks.dispatch_attempt.is_some() && earlier.iter().any(same_attempt) {
        return Err(Guard::SecondDispatch);
    }
    let ended = any(|other| other.marks.terminal);
    if marks.terminal && ended {
        return Err(Guard::SecondTerminal);
    }
    if marks.dispatch_attempt.is_some() && !marks.allow && !any(|other| other.marks.allow) {
        return Err(Guard::DispatchWithoutAllow);
    }
    if marks.dispatch_attempt.is_some() && ended {
        return Err(Guard::DispatchAfterTerminal);
    }
    if marks.terminal && !marks.decision && !decided {
        return Err(Guard::TerminalWithoutDecision);
    }
    if marks.allow && !marks.decision && !any(|other| other.marks.decision && !other.marks.allow) {
        return Err(Guard::AllowWithoutDecision);
    }
    Ok(())
}

/// What the fence says to an append before anything is changed.
enum Gate {
    Open,
    Already { head: u64 },
    Stale { head: u64 },
    Fenced { epoch: u64 },
}

impl State {
    /// Whether the master key is the one that the content keys were wrapped by, as far as that can be told.
    fn prove(&self, master: &MasterKey) -> Result<(), StoreError> {
        let keyed = self.sessions.iter().find_map(|(place, session)| Some((place, session.keys.iter().next()?)));
        if let Some((place, (id, wrapped))) = keyed {
            let wrapped = WrappedKey { id: id.clone(), wrapped: wrapped.clone() };
            let opened = master.unwrap(&place.tenant, place.session, &wrapped);
            return opened.map(drop).map_err(|_| StoreError::OtherMasterKey);
        }
        let is_empty = self.sessions.is_empty()
            && self.api_keys.is_empty()
            && self.bundles.is_empty()
            && self.idempotency.is_empty()
            && self.security.is_empty()
            && self.ledger.is_empty();
        if is_empty { Ok(()) } else { Err(StoreError::UnprovenMasterKey) }
    }

    fn gate(&self, append: &Append) -> Result<Gate, StoreError> {
        let key = SessionKey { tenant: append.tenant.clone(), session: append.session };
        let session = self.sessions.get(&key).ok_or(StoreError::NoSuchSession)?;
        let head = session.row.head_seq;
        match judge(&session.standing(), append) {
            Fence::Open => Ok(Gate::Open),
            Fence::Fenced => Ok(Gate::Fenced { epoch: session.row.epoch }),
            Fence::Closed => Err(StoreError::Guard(Guard::SessionClosed)),
            Fence::Moved if session.stands(&append.rows) => Ok(Gate::Already { head }),
            Fence::Moved => Ok(Gate::Stale { head }),
        }
    }

    /// Applies an append that passed the gate: all checks first, then all changes.
    fn apply(&mut self, append: &Append) -> Result<u64, Refusal> {
        let key = SessionKey { tenant: append.tenant.clone(), session: append.session };
        let session = self.sessions.get_mut(&key).ok_or(Refusal::Failed(StoreError::NoSuchSession))?;
        session.check_rows(&append.rows)?;
        let late = |row: &Row| AFTER_CLOSE.contains(&row.kind.as_str());
        if session.row.closed && !append.rows.iter().all(late) {
            return Err(Refusal::Failed(StoreError::Guard(Guard::SessionClosed)));
        }
        if append.new_keys.iter().any(|new| session.keys.contains_key(&new.id)) {
            return Err(Refusal::Failed(StoreError::Invalid("a key of this append exists already")));
        }
        if let Some(answer) = &append.idempotency {
            let stored = self.idempotency.get(&answer.key);
            if stored.is_some_and(|stored| stored.answer.is_some() || stored.fingerprint != answer.fingerprint) {
                return Err(Refusal::Idempotency);
            }
            let stored =
                Stored { fingerprint: answer.fingerprint, expires_at: answer.expires_at, answer: Some(answer.clone()) };
            self.idempotency.insert(answer.key.clone(), stored);
        }
        if let Some(last) = append.rows.last() {
            session.row.head_seq = last.seq;
            session.row.head_hash = last.hash;
        }
        session.row.closed |= append.rows.iter().any(|row| row.kind == SESSION_CLOSED);
        session.row.projection = append.projection.clone();
        session.rows.extend(append.rows.iter().cloned());
        session.inbox.retain(|id, _| !append.consumed_inbox.contains(id));
        session.keys.extend(append.new_keys.iter().map(|key| (key.id.clone(), key.wrapped.clone())));
        session.keys.retain(|id, _| !append.destroyed_keys.contains(id));
        for blob in &append.blobs {
            session.blobs.entry(blob.digest).or_insert_with(|| blob.clone());
        }
        session.approvals.extend(append.approvals.iter().map(|row| (row.id.clone(), row.clone())));
        for row in &append.outbox {
            session.outbox.entry(row.id.clone()).or_insert_with(|| row.clone());
        }
        let head = session.row.head_seq;
        for row in &append.security {
            self.security.entry((append.tenant.clone(), row.id.clone())).or_insert_with(|| row.clone());
        }
        Ok(head)
    }
}
