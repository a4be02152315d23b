//! A node: its lease, what it asks the database, requests that reach it, and its death. A twin of what
//! `toolgate-server` does in `sessions/registry` and `sessions/resume`, without a runtime. What is not here: one session
//! in its memory (`actor`).

use std::collections::BTreeMap;
use std::sync::Arc;

use toolgate_core::event::Event;
use toolgate_core::id::{InputId, Sha256Digest};
use toolgate_core::input::Stamped;
use toolgate_core::session::Session;
use toolgate_core::time::Timestamp;
use toolgate_core::{Decided, Reply, decide};
use toolgate_store::chain::Position;
use toolgate_store::{
    Append, Codec, Created, InboxPut, InboxRow, KeyId, NewSession, NodeId, NodeIdentity, Sealed, SessionKey, SessionRow,
};

use crate::actor::{Actor, Asker, Mail, Nudge, Owned, projection};
use crate::client::ToClient;
use crate::database::{Answer, Lease, Op};
use crate::errand::ToErrand;
use crate::faults::Fault;
use crate::said::Said;
use crate::world::{Happening, World};

/// The lease of a node.
pub(crate) const LEASE_MS: u64 = 10_000;
/// A node trusts its own lease for this long after it began to renew it.
const SURE_MS: u64 = 7_000;
const RETRY_FIRST_MS: u64 = 20;
const RETRY_MOST_MS: u64 = 1_000;
const SCAN_MS: u64 = 1_000;

/// What reaches a node.
#[derive(Debug)]
pub(crate) enum ToNode {
    /// The database answered; `crashes` tells whether it has died since.
    Answer {
        id: u64,
        answer: Answer,
        crashes: u64,
    },
    /// It is time to send the same bytes again.
    Resend {
        id: u64,
    },
    /// What was about to leave when the node stood still leaves now.
    Depart(Box<Happening>, u64),
    Scan,
    Renew,
    /// Mail for a session.
    Mail {
        key: SessionKey,
        mail: Mail,
    },
    /// Somebody starts a session.
    Open {
        errand: usize,
    },
    /// A client's connection has ended.
    Gone {
        key: SessionKey,
        connection: u64,
    },
    /// An input waits for a session of this node.
    Hint {
        key: SessionKey,
    },
    /// Something inside a session's actor.
    Actor {
        key: SessionKey,
        token: u64,
        what: Nudge,
    },
}

/// What a statement was sent for.
#[derive(Debug)]
pub(crate) enum Waiting {
    Renew { sent: Timestamp },
    Scan,
    Put { key: SessionKey, id: InputId, asker: Asker },
    Inbox { key: SessionKey, token: u64 },
    Open(Box<Opening>),
    Actor { key: SessionKey, token: u64 },
    Ledger { key: SessionKey, token: u64, run: u64 },
}

/// A session that is being created.
#[derive(Debug)]
pub(crate) struct Opening {
    errand: usize,
    key: SessionKey,
    codec: Codec,
    next: Position,
    events: Vec<Event>,
    at: Timestamp,
}

/// A statement whose answer has yet to come.
#[derive(Debug)]
struct Pending {
    waiting: Waiting,
    op: Arc<Op>,
    until: Timestamp,
    wait_ms: u64,
}

/// A node.
#[derive(Debug)]
pub(crate) struct Node {
    name: NodeId,
    /// Counts its starts; whatever was meant for an earlier one is lost.
    pub(crate) life: u64,
    /// Who it is while it lives.
    pub(crate) identity: Option<NodeIdentity>,
    pub(crate) paused_until: Timestamp,
    /// It starts no effects after this.
    pub(crate) sure_until: Timestamp,
    /// When the latest renewal that succeeded was sent.
    renewed_at: Timestamp,
    pub(crate) actors: BTreeMap<SessionKey, Actor>,
    pending: BTreeMap<u64, Pending>,
}

impl Node {
    pub(crate) fn new(number: usize) -> Option<Self> {
        Some(Self {
            name: NodeId::new(&format!("node-{number}")).ok()?,
            life: 0,
            identity: None,
            paused_until: Timestamp(0),
            sure_until: Timestamp(0),
            renewed_at: Timestamp(0),
            actors: BTreeMap::new(),
            pending: BTreeMap::new(),
        })
    }
}

impl World {
    pub(crate) fn node_receives(&mut self, n: usize, life: u64, what: ToNode) {
        let Some(node) = self.nodes.get(n) else { return };
        if node.life != life || node.identity.is_none() {
            return;
        }
        if node.paused_until > self.now {
            let until = node.paused_until;
            return self.at(until, Happening::Node { node: n, life, what });
        }
        match what {
            ToNode::Answer { id, answer, crashes } => {
                let answer = if crashes == self.crashes { answer } else { Answer::Unavailable };
                self.answered(n, id, answer);
            }
            ToNode::Resend { id } => {
                let op =
                    self.nodes.get(n).and_then(|node| node.pending.get(&id)).map(|pending| Arc::clone(&pending.op));
                if let Some(op) = op {
                    self.post(n, id, op, true);
                }
            }
            ToNode::Depart(happening, latency) => self.depart(n, latency, *happening),
            ToNode::Scan => {
                self.ask(n, Waiting::Scan, Op::Scan(self.now));
                let wait = self.rng.u64(SCAN_MS / 2..SCAN_MS);
                self.at_ms(wait, Happening::Node { node: n, life, what: ToNode::Scan });
            }
            ToNode::Renew => {
                self.renew(n);
                self.at_ms(LEASE_MS / 3, Happening::Node { node: n, life, what: ToNode::Renew });
            }
            ToNode::Mail { key, mail } => self.mail(n, &key, Some(mail)),
            ToNode::Open { errand } => self.open(n, errand),
            ToNode::Gone { key, connection } => self.gone(n, &key, connection),
            ToNode::Hint { key } => self.look_into_inbox(n, &key),
            ToNode::Actor { key, token, what } => self.nudge(n, &key, token, what),
        }
    }

    /// Sends a statement and remembers what for.
    pub(crate) fn ask(&mut self, n: usize, waiting: Waiting, op: Op) {
        let id = self.name();
        let op = Arc::new(op);
        // A question to the ledger is asked until it is answered; all else has its patience.
        let patience = if matches!(waiting, Waiting::Ledger { .. }) { u64::MAX / 4_000 } else { self.patience_ms };
        let until = self.now.plus_ms(patience);
        let pending = Pending { waiting, op: Arc::clone(&op), until, wait_ms: RETRY_FIRST_MS };
        if let Some(node) = self.nodes.get_mut(n) {
            node.pending.insert(id, pending);
        }
        self.post(n, id, op, false);
    }

    fn answered(&mut self, n: usize, id: u64, answer: Answer) {
        let Some(node) = self.nodes.get_mut(n) else { return };
        let Some(mut pending) = node.pending.remove(&id) else { return };
        if matches!(answer, Answer::Unavailable)
            && pending.op.goes_again()
            && self.now.plus_ms(pending.wait_ms) < pending.until
        {
            let (life, wait) = (node.life, pending.wait_ms);
            pending.wait_ms = (wait * 2).min(RETRY_MOST_MS);
            node.pending.insert(id, pending);
            self.figures.count("nodes", "same bytes sent again");
            return self.at_ms(wait, Happening::Node { node: n, life, what: ToNode::Resend { id } });
        }
        match (pending.waiting, answer) {
            (Waiting::Renew { sent }, Answer::Renewed(true)) => self.renewed(n, sent),
            (Waiting::Scan, Answer::Scanned(rows, nodes)) => self.scanned(n, rows, &nodes),
            (Waiting::Put { key, id, asker }, answer) => self.put(n, &key, id, asker, &answer),
            (Waiting::Inbox { key, token }, Answer::Inbox(rows)) => self.inbox_rows(n, &key, token, rows),
            (Waiting::Open(opening), answer) => self.opened(n, *opening, &answer),
            (Waiting::Actor { key, token }, answer) => self.actor_answered(n, &key, token, answer),
            (Waiting::Ledger { key, token, run }, answer) => self.ledger_answered(n, &key, token, run, &answer),
            (Waiting::Renew { .. } | Waiting::Scan | Waiting::Inbox { .. }, _) => {}
        }
    }

    /// A dead node starts: a new incarnation that remembers nothing.
    pub(crate) fn restart(&mut self, n: usize) {
        if self.now < self.away_until {
            let wait = self.rng.u64(100..1_000);
            return self.at_ms(wait, Happening::Restart { node: n });
        }
        let now = self.now;
        let Some(node) = self.nodes.get_mut(n) else { return };
        let identity = self.database.start(&node.name, now.plus_ms(LEASE_MS));
        node.life += 1;
        node.identity = Some(identity);
        node.paused_until = now;
        node.sure_until = now.plus_ms(SURE_MS);
        node.renewed_at = now;
        let life = node.life;
        self.note("node start", n as u64, life);
        for (wait, what) in [(0, ToNode::Scan), (LEASE_MS / 3, ToNode::Renew)] {
            self.at_ms(wait, Happening::Node { node: n, life, what });
        }
    }

    /// A moment between two micro-steps of a node: it may die or stand still here. Answers whether it died.
    pub(crate) fn gap(&mut self, n: usize) -> bool {
        if self.strikes(Fault::Kill) {
            self.kill(n);
            return true;
        }
        if self.strikes(Fault::Pause) {
            let most = if self.rng.bool() { 2_000 } else { 45_000 };
            let until = self.now.plus_ms(self.rng.u64(50..most));
            if let Some(node) = self.nodes.get_mut(n) {
                node.paused_until = until;
            }
            self.note("pause", n as u64, 0);
        }
        false
    }

    fn kill(&mut self, n: usize) {
        let Some(node) = self.nodes.get_mut(n) else { return };
        node.identity = None;
        node.actors.clear();
        node.pending.clear();
        node.paused_until = self.now;
        let life = node.life;
        self.note("kill", n as u64, life);
        let lost: Vec<(usize, u64)> = self
            .clients
            .iter()
            .enumerate()
            .filter_map(|(place, client)| Some((place, client.connection_to(n, life)?)))
            .collect();
        for (client, connection) in lost {
            self.at_ms(20, Happening::Client { client, what: ToClient::Lost { connection } });
        }
        let wait = if self.rng.bool() { self.rng.u64(50..3_000) } else { self.rng.u64(3_000..30_000) };
        self.at_ms(wait, Happening::Restart { node: n });
    }

    fn renew(&mut self, n: usize) {
        let Some(identity) = self.nodes.get(n).and_then(|node| node.identity.clone()) else { return };
        let sent = self.now;
        self.ask(n, Waiting::Renew { sent }, Op::Renew(identity, sent.plus_ms(LEASE_MS)));
    }

    fn renewed(&mut self, n: usize, sent: Timestamp) {
        let Some(node) = self.nodes.get_mut(n) else { return };
        let was_unsure = node.sure_until <= self.now;
        let had_lapsed = self.now > node.renewed_at.plus_ms(LEASE_MS);
        node.renewed_at = node.renewed_at.max(sent);
        node.sure_until = node.sure_until.max(sent.plus_ms(SURE_MS));
        if had_lapsed {
            // Others may have taken over in between: the lease is held again, what was held under the old one is not.
            for key in node.actors.keys().cloned().collect::<Vec<_>>() {
                self.forget(n, &key);
            }
        } else if was_unsure {
            // Effects that were held back may start.
            for key in node.actors.keys().cloned().collect::<Vec<_>>() {
                self.poke(n, &key);
            }
        }
    }

    /// Takes into memory what somebody must see to, and looks into the inboxes of what is there.
    fn scanned(&mut self, n: usize, rows: Vec<SessionRow>, nodes: &[Lease]) {
        for row in rows {
            let key = SessionKey { tenant: row.tenant.clone(), session: row.session };
            if self.nodes.get(n).is_some_and(|node| node.actors.contains_key(&key)) {
                self.look_into_inbox(n, &key);
            } else if !self.owned_by_other(n, row.owner.as_ref(), nodes) {
                self.mail(n, &key, None);
            }
        }
    }

    /// Whether the owner is another node that lives, as far as its lease tells.
    pub(crate) fn owned_by_other(&mut self, n: usize, owner: Option<&NodeIdentity>, nodes: &[Lease]) -> bool {
        let Some(me) = self.nodes.get(n).map(|node| node.name.clone()) else { return true };
        let Some(owner) = owner.filter(|owner| owner.node != me) else { return false };
        let lives = nodes.iter().any(|lease| lease.identity == *owner && lease.until > self.now);
        if lives && self.strikes(Fault::EarlyTakeOver) {
            self.taken_early = true;
            return false;
        }
        lives
    }

    /// Gives mail to a session, loading it if need be; without mail it is only woken.
    fn mail(&mut self, n: usize, key: &SessionKey, mail: Option<Mail>) {
        let token = self.name();
        let Some(node) = self.nodes.get_mut(n) else { return };
        let fresh = !node.actors.contains_key(key);
        let actor = node.actors.entry(key.clone()).or_insert_with(|| Actor::new(token));
        actor.mail.extend(mail);
        if fresh {
            self.load(n, key, token);
        } else {
            self.poke(n, key);
        }
    }

    fn look_into_inbox(&mut self, n: usize, key: &SessionKey) {
        let open = self.nodes.get(n).and_then(|node| node.actors.get(key)).and_then(Actor::open_token);
        if let Some(token) = open {
            self.ask(n, Waiting::Inbox { key: key.clone(), token }, Op::Inbox(key.clone()));
        }
    }

    /// Another node owns the session: its mail goes where the owner finds it.
    pub(crate) fn forward(&mut self, n: usize, key: &SessionKey, mail: Mail) {
        let Mail::Submit { id, input, asker } = mail else {
            if let Mail::Attach { client, connection, .. } = mail {
                self.depart(n, 2, Happening::Client { client, what: ToClient::Refused { connection } });
            }
            return;
        };
        let made = format!("node-{}-{}", n, self.name());
        let Some(id) = id.or_else(|| InputId::new(made).ok()) else { return };
        let place = self.inputs.len();
        self.inputs.push(*input);
        let fingerprint = Sha256Digest::of(id.as_str().as_bytes());
        let body = Sealed { key: KeyId::session(), bytes: place.to_be_bytes().to_vec() };
        let row = InboxRow { id: id.clone(), received_at: self.now, body, fingerprint };
        self.figures.count("inputs", "put into the inbox");
        self.ask(n, Waiting::Put { key: key.clone(), id, asker }, Op::Put(key.clone(), row));
    }

    fn put(&mut self, n: usize, key: &SessionKey, id: InputId, asker: Asker, answer: &Answer) {
        let said = match answer {
            Answer::Put(InboxPut::Ok | InboxPut::Waiting { .. }) => Said::Waits,
            Answer::Put(InboxPut::Recorded { seq }) => Said::Already { seq: *seq },
            _ => Said::Unknown,
        };
        self.tell(n, key, Some(&id), asker, said);
        if said == Said::Waits && !self.strikes(Fault::HintLost) {
            for node in 0..self.nodes.len() {
                let Some(life) = self.nodes.get(node).map(|node| node.life) else { continue };
                self.depart(n, 3, Happening::Node { node, life, what: ToNode::Hint { key: key.clone() } });
            }
        }
    }

    /// Starts a session: decided here, created with its first rows.
    fn open(&mut self, n: usize, errand: usize) {
        let Some((alias, input)) = self.errands.get(errand).map(|e| (e.alias.clone(), e.input.clone())) else { return };
        let session = toolgate_core::id::SessionId::from_uuid(uuid::Uuid::from_u128(self.rng.u128(..)));
        let key = SessionKey { tenant: self.tenant.clone(), session };
        let before = Session::new(session);
        let stamped = Stamped { at: self.now, id: None, input };
        let Decided { events, reply } = decide(&before, &self.bundle, &stamped);
        if let Reply::Refused(refusal) = reply {
            return self.fail(format!("a session was refused: {refusal:?}"));
        }
        let Some(owner) = self.nodes.get(n).and_then(|node| node.identity.clone()) else { return };
        let Ok((mut codec, first)) = Codec::create(key.tenant.clone(), session, self.database.master.clone()) else {
            return;
        };
        let Ok(encoded) = codec.encode(&events, None, self.now, Position::FIRST) else { return };
        let mut after = before;
        for event in &events {
            toolgate_core::apply(&mut after, event);
        }
        let append = Append {
            tenant: key.tenant.clone(),
            session,
            epoch: 1,
            expected_head: 0,
            rows: encoded.rows,
            consumed_inbox: Vec::new(),
            idempotency: None,
            outbox: Vec::new(),
            projection: projection(&after, self.now),
            approvals: Vec::new(),
            blobs: Vec::new(),
            new_keys: std::iter::once(first).chain(encoded.new_keys).collect(),
            destroyed_keys: encoded.destroyed_keys,
            security: Vec::new(),
        };
        let fingerprint = Sha256Digest::of(alias.as_bytes());
        let bundle = self.bundle.digest();
        let new = NewSession {
            alias: Some(alias),
            body_fingerprint: fingerprint,
            bundle,
            created_at: self.now,
            owner,
            append,
        };
        if self.gap(n) {
            return;
        }
        let op = Op::Create(Arc::new(new), events.clone());
        let opening = Opening { errand, key, codec, next: encoded.next, events, at: stamped.at };
        self.ask(n, Waiting::Open(Box::new(opening)), op);
    }

    fn opened(&mut self, n: usize, opening: Opening, answer: &Answer) {
        let Opening { errand, key, codec, next, events, at } = opening;
        if self.gap(n) {
            return;
        }
        let said = match answer {
            Answer::Created(Created::Ok { .. } | Created::Already { .. }) => {
                let token = self.name();
                let owned = Owned::created(key.session, codec, next, events, at);
                if let Some(node) = self.nodes.get_mut(n)
                    && !node.actors.contains_key(&key)
                {
                    node.actors.insert(key.clone(), Actor::adopted(token, owned));
                }
                self.poke(n, &key);
                Said::Taken { seq: 1 }
            }
            Answer::Created(Created::AliasExists { .. }) => Said::Already { seq: 1 },
            _ => Said::Unknown,
        };
        let what = ToErrand::Answered { key, said, id: None };
        self.depart(n, 2, Happening::Errand { errand, what });
    }
}
