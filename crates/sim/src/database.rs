//! The store of a world: the real `MemoryStore`, asked statement by statement. What is not here: its faults (`wire`).

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::FutureExt;
use toolgate_core::event::{Event, OwnerChanged, Recorded};
use toolgate_core::fold;
use toolgate_core::id::{InputId, Sha256Digest, TenantId};
use toolgate_core::session::Session;
use toolgate_core::time::Timestamp;
use toolgate_store::chain::Position;
use toolgate_store::{
    Append, Appended, Cluster, Codec, Created, EventLog, Fate, Guard, InboxPut, InboxRow, KeyId, Ledger, MasterKey,
    MemoryStore, NewSession, NodeId, NodeIdentity, Reservation, Reserved, Row, Sealed, SessionKey, SessionRow,
    Settlement, StoreError, TakeOver, TakenOver, Wanted, WrappedKey,
};

use crate::Mutant;
use crate::said::Said;

/// Rows of one page; no session of a world is longer than some pages.
const PAGE: u32 = 512;

/// One statement of a node.
#[derive(Debug)]
pub(crate) enum Op {
    /// The session's row and the nodes.
    Look(SessionKey),
    /// Keys, then rows.
    Read(SessionKey),
    TakeOver(Arc<TakeOver>),
    Create(Arc<NewSession>, Vec<Event>),
    Append {
        append: Arc<Append>,
        /// What the rows say, for stores that are broken on purpose.
        events: Vec<Event>,
    },
    Put(SessionKey, InboxRow),
    /// Answers an input of the inbox that leaves no row.
    Reply {
        key: SessionKey,
        epoch: u64,
        id: InputId,
        said: Said,
        at: Timestamp,
    },
    Inbox(SessionKey),
    Reserve(Reservation),
    Settle(SessionKey, Vec<Settlement>, Timestamp),
    Renew(NodeIdentity, Timestamp),
    /// Sessions that somebody must load, and the nodes.
    Scan(Timestamp),
}

impl Op {
    pub(crate) const fn writes(&self) -> bool {
        !matches!(self, Self::Look(_) | Self::Read(_) | Self::Inbox(_) | Self::Scan(_))
    }

    /// Whether the same bytes are sent again while the outcome is unknown.
    pub(crate) const fn goes_again(&self) -> bool {
        self.writes() && !matches!(self, Self::Renew(..) | Self::Put(..) | Self::Reply { .. })
    }

    pub(crate) const fn word(&self) -> &'static str {
        match self {
            Self::Look(_) => "look",
            Self::Read(_) => "read",
            Self::TakeOver(_) => "take over",
            Self::Create(..) => "create",
            Self::Append { .. } => "append",
            Self::Put(..) => "put",
            Self::Reply { .. } => "reply",
            Self::Inbox(_) => "inbox",
            Self::Reserve(_) => "reserve",
            Self::Settle(..) => "settle",
            Self::Renew(..) => "renew",
            Self::Scan(_) => "scan",
        }
    }
}

/// What a statement answers.
#[derive(Debug)]
pub(crate) enum Answer {
    /// Nobody knows whether it was applied.
    Unavailable,
    /// The store refused it: a defect of the node, except where a take-over finds the session closed.
    Refused(StoreError),
    Looked(Option<Box<SessionRow>>, Vec<Lease>),
    Rows(Vec<WrappedKey>, Vec<Row>),
    TakenOver(TakenOver),
    Created(Created),
    Appended(Appended),
    Put(InboxPut),
    Replied,
    Inbox(Vec<InboxRow>),
    Reserved(Reserved),
    Settled,
    Renewed(bool),
    Scanned(Vec<SessionRow>, Vec<Lease>),
}

/// A node as the database has it. Kept here and not in the memory store, whose leases run by the clock of the machine.
#[derive(Debug, Clone)]
pub(crate) struct Lease {
    pub(crate) identity: NodeIdentity,
    /// It lapses then, in virtual time.
    pub(crate) until: Timestamp,
}

/// The store and what stands outside it.
#[derive(Debug)]
pub(crate) struct Database {
    memory: MemoryStore,
    pub(crate) master: MasterKey,
    mutant: Option<Mutant>,
    /// By name. To the memory store, which has seen none of them, no owner lives: only its epochs keep nodes out.
    leases: BTreeMap<NodeId, Lease>,
    /// The latest answer to each input of the inbox that left no row, even where the store has forgotten it since.
    pub(crate) settled: BTreeMap<InputId, Said>,
    /// What the rows of each session fold to, told from what was appended and not from the rows.
    states: BTreeMap<SessionKey, Session>,
}

/// The memory store never waits: its futures are done when they are first asked.
fn now<T>(future: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    future.now_or_never().unwrap_or(Err(StoreError::Invalid("the memory store waits")))
}

impl Database {
    pub(crate) fn new(mutant: Option<Mutant>) -> Self {
        let master = MasterKey::from_bytes([7; 32]);
        let memory = MemoryStore::new();
        Self { memory, master, mutant, leases: BTreeMap::new(), settled: BTreeMap::new(), states: BTreeMap::new() }
    }

    /// Applies a statement. `again` says that the same value was sent before.
    pub(crate) fn apply(&mut self, op: &Op, again: bool) -> Answer {
        self.ask(op, again).unwrap_or_else(Answer::Refused)
    }

    fn ask(&mut self, op: &Op, again: bool) -> Result<Answer, StoreError> {
        Ok(match op {
            Op::Look(key) => Answer::Looked(self.session(key)?.map(Box::new), self.leases()),
            Op::Read(key) => {
                let keys = now(self.memory.session_keys(&key.tenant, key.session))?;
                Answer::Rows(keys, self.rows(key, 0)?)
            }
            Op::TakeOver(take_over) => {
                let answer = now(self.memory.take_over(Arc::clone(take_over)))?;
                if let TakenOver::Ok { .. } = answer {
                    let key = SessionKey { tenant: take_over.tenant.clone(), session: take_over.session };
                    let (node, incarnation) = (take_over.owner.node.as_str().to_owned(), take_over.owner.incarnation);
                    let event = Event::OwnerChanged(OwnerChanged { node, incarnation });
                    self.grow(&key, std::slice::from_ref(&take_over.row), &[event]);
                }
                Answer::TakenOver(answer)
            }
            Op::Create(new, events) => {
                let answer = now(self.memory.create_session(Arc::clone(new)))?;
                if let Created::Ok { .. } = answer {
                    let key = SessionKey { tenant: new.append.tenant.clone(), session: new.append.session };
                    self.grow(&key, &new.append.rows, events);
                }
                Answer::Created(answer)
            }
            Op::Append { append, events } => {
                let answer = now(self.memory.append(Arc::clone(append)))?;
                let key = SessionKey { tenant: append.tenant.clone(), session: append.session };
                if let Appended::Ok { .. } = answer {
                    self.grow(&key, &append.rows, events);
                }
                Answer::Appended(self.broken(append, events, answer, again)?)
            }
            Op::Put(key, row) => Answer::Put(now(self.memory.inbox_put(&key.tenant, key.session, row.clone()))?),
            Op::Reply { key, epoch, id, said, at } => {
                let sealed = Sealed { key: KeyId::session(), bytes: said.word().as_bytes().to_vec() };
                if now(self.memory.inbox_answer(key, *epoch, id, &sealed, *at))? {
                    self.settled.insert(id.clone(), *said);
                }
                Answer::Replied
            }
            Op::Inbox(key) => Answer::Inbox(now(self.memory.inbox_list(&key.tenant, key.session, PAGE))?),
            Op::Reserve(reservation) => Answer::Reserved(now(self.memory.reserve(reservation))?),
            Op::Settle(key, settle, at) => {
                now(self.memory.settle(&key.tenant, key.session, settle, *at))?;
                Answer::Settled
            }
            Op::Renew(identity, until) => {
                let lease = self.leases.get_mut(&identity.node).filter(|lease| lease.identity == *identity);
                Answer::Renewed(lease.is_some_and(|lease| {
                    // A renewal that comes late must not shorten what a later one has granted.
                    lease.until = lease.until.max(*until);
                    true
                }))
            }
            Op::Scan(at) => {
                let mut found = BTreeMap::new();
                for wanted in [Wanted::Active, Wanted::Due(*at), Wanted::Inbox] {
                    for row in now(self.memory.open_sessions(&wanted, None, PAGE))?.items {
                        found.insert(row.session, row);
                    }
                }
                Answer::Scanned(found.into_values().collect(), self.leases())
            }
        })
    }

    /// What stores do that leave a comparison out.
    fn broken(
        &mut self,
        append: &Append,
        events: &[Event],
        answer: Appended,
        again: bool,
    ) -> Result<Appended, StoreError> {
        let accepts = match (&answer, self.mutant) {
            (Appended::Fenced { .. }, Some(Mutant::NoEpochCheck)) => true,
            (Appended::Stale { .. }, Some(Mutant::NoHeadCheck)) => true,
            (Appended::Already { .. } | Appended::Stale { .. }, Some(Mutant::FreshHead)) => again,
            _ => false,
        };
        if !accepts {
            return Ok(answer);
        }
        let key = SessionKey { tenant: append.tenant.clone(), session: append.session };
        let Some(row) = self.session(&key)? else { return Ok(answer) };
        let at = append.rows.first().map_or(Timestamp(0), |row| row.recorded_at);
        let input = append.rows.first().and_then(|row| row.input_id.clone());
        let keys = now(self.memory.session_keys(&key.tenant, key.session))?;
        let Ok(mut codec) = Codec::open(key.tenant, key.session, self.master.clone(), &keys) else { return Ok(answer) };
        let next = Position { seq: row.head_seq + 1, epoch: row.epoch, prev_hash: row.head_hash };
        let Ok(encoded) = codec.encode(events, input.as_ref(), at, next) else { return Ok(answer) };
        let forced = Append {
            epoch: row.epoch,
            expected_head: row.head_seq,
            rows: encoded.rows,
            new_keys: encoded.new_keys,
            destroyed_keys: encoded.destroyed_keys,
            ..append.clone()
        };
        // Guards of the database that remain refuse some of it; then the answer is the honest one.
        let forced = Arc::new(forced);
        let Ok(answer) = now(self.memory.append(Arc::clone(&forced))) else { return Ok(answer) };
        self.grow(&SessionKey { tenant: append.tenant.clone(), session: append.session }, &forced.rows, events);
        Ok(answer)
    }

    fn grow(&mut self, key: &SessionKey, rows: &[Row], events: &[Event]) {
        let state = self.states.entry(key.clone()).or_insert_with(|| Session::new(key.session));
        for (row, event) in rows.iter().zip(events) {
            let (seq, epoch, at, input_id) = (row.seq, row.epoch, row.recorded_at, row.input_id.clone());
            fold(state, &Recorded { seq, epoch, at, input_id, event: event.clone() });
        }
    }

    /// The state of a session, as its log has it at this moment.
    pub(crate) fn state(&self, key: &SessionKey) -> Option<&Session> {
        self.states.get(key)
    }

    pub(crate) fn session(&self, key: &SessionKey) -> Result<Option<SessionRow>, StoreError> {
        now(self.memory.session(&key.tenant, key.session))
    }

    pub(crate) fn by_alias(&self, tenant: &TenantId, alias: &str) -> Option<SessionRow> {
        now(self.memory.session_by_alias(tenant, alias)).ok().flatten()
    }

    /// All rows after a place.
    pub(crate) fn rows(&self, key: &SessionKey, after: u64) -> Result<Vec<Row>, StoreError> {
        let mut all: Vec<Row> = Vec::new();
        loop {
            let from = all.last().map_or(after, |row| row.seq);
            let page = now(self.memory.read(&key.tenant, key.session, from, PAGE))?;
            if page.is_empty() {
                return Ok(all);
            }
            all.extend(page);
        }
    }

    pub(crate) fn row(&self, key: &SessionKey, seq: u64) -> Option<Row> {
        let before = seq.checked_sub(1)?;
        now(self.memory.read(&key.tenant, key.session, before, 1)).ok()?.into_iter().next()
    }

    pub(crate) fn codec(&self, key: &SessionKey) -> Option<Codec> {
        let keys = now(self.memory.session_keys(&key.tenant, key.session)).ok()?;
        Codec::open(key.tenant.clone(), key.session, self.master.clone(), &keys).ok()
    }

    pub(crate) fn inbox(&self, key: &SessionKey) -> Vec<InboxRow> {
        now(self.memory.inbox_list(&key.tenant, key.session, PAGE)).unwrap_or_default()
    }

    /// What became of an input that was put into the inbox.
    pub(crate) fn fate(&self, key: &SessionKey, id: &InputId) -> Option<Fate> {
        now(self.memory.inbox_fate(&key.tenant, key.session, id)).ok()
    }

    fn leases(&self) -> Vec<Lease> {
        self.leases.values().cloned().collect()
    }

    /// Registers a start of a node: the next incarnation of its name.
    pub(crate) fn start(&mut self, node: &NodeId, until: Timestamp) -> NodeIdentity {
        let before = self.leases.get(node).map_or(0, |lease| lease.identity.incarnation);
        let identity = NodeIdentity { node: node.clone(), incarnation: before + 1 };
        self.leases.insert(node.clone(), Lease { identity: identity.clone(), until });
        identity
    }
}

/// Digest of everything an acknowledged row consists of.
pub(crate) fn print(row: &Row) -> Sha256Digest {
    let mut bytes = row.header.clone();
    bytes.extend(&row.payload);
    bytes.extend(row.hash);
    bytes.extend(row.prev_hash);
    bytes.extend(row.seq.to_be_bytes());
    bytes.extend(row.epoch.to_be_bytes());
    Sha256Digest::of(&bytes)
}

/// A take-over that finds the session closed lost a race; every other refusal is a defect of the node.
pub(crate) const fn is_race(op: &Op, error: &StoreError) -> bool {
    matches!((op, error), (Op::TakeOver(_), StoreError::Guard(Guard::SessionClosed)))
}
