//! Logs to append in tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use toolgate_core::id::{ActorId, CallId, InputId, SessionId, Sha256Digest, TenantId};
use toolgate_core::time::Timestamp;
use toolgate_store::chain::Position;
use toolgate_store::{
    Append, Appended, Created, Header, KeyId, Marks, NewSession, NodeId, NodeIdentity, PayloadMeta, Projection, Row,
    Sealed, Store, StoreError, TakeOver, Write, Wrote,
};
use uuid::Uuid;

static COUNT: AtomicU64 = AtomicU64::new(1);

/// A number no other call in this process gets.
pub(crate) fn number() -> u64 {
    COUNT.fetch_add(1, Ordering::Relaxed)
}

pub(crate) fn session_id() -> SessionId {
    SessionId::from_uuid(Uuid::from_u64_pair(0x0192_0000_0000_7000, number()))
}

pub(crate) fn tenant(name: &str) -> TenantId {
    TenantId::new(name).unwrap()
}

pub(crate) fn actor(name: &str) -> ActorId {
    ActorId::new(name).unwrap()
}

pub(crate) fn input(name: &str) -> InputId {
    InputId::new(name).unwrap()
}

pub(crate) fn node(name: &str, incarnation: u64) -> NodeIdentity {
    NodeIdentity { node: NodeId::new(name).unwrap(), incarnation }
}

pub(crate) fn digest(text: &str) -> Sha256Digest {
    Sha256Digest::of(text.as_bytes())
}

pub(crate) fn sealed(text: &str) -> Sealed {
    Sealed { key: KeyId::session(), bytes: text.as_bytes().to_vec() }
}

pub(crate) fn projection(status: &str) -> Projection {
    Projection {
        status: status.to_owned(),
        active: true,
        profile: None,
        ending: None,
        pending_approvals: 0,
        updated_at: Timestamp(1_000),
        next_wake_at: None,
        title: None,
    }
}

pub(crate) const DECIDED: Marks = Marks { decision: true, ..Marks::NONE };
pub(crate) const ALLOWED: Marks = Marks { decision: true, allow: true, ..Marks::NONE };
pub(crate) const DISPATCHED: Marks = Marks { decision: true, allow: true, dispatch_attempt: Some(1), terminal: false };
pub(crate) const TERMINAL: Marks = Marks { terminal: true, ..Marks::NONE };

pub(crate) fn dispatch(attempt: u32) -> Marks {
    Marks { dispatch_attempt: Some(attempt), ..Marks::NONE }
}

pub(crate) fn later_allow() -> Marks {
    Marks { allow: true, ..Marks::NONE }
}

/// The writer's side of one session's log.
#[derive(Debug, Clone)]
pub(crate) struct Log {
    pub(crate) tenant: TenantId,
    pub(crate) session: SessionId,
    pub(crate) epoch: u64,
    pub(crate) rows: Vec<Row>,
}

impl Log {
    pub(crate) fn new(tenant_name: &str) -> Self {
        Self { tenant: tenant(tenant_name), session: session_id(), epoch: 1, rows: Vec::new() }
    }

    pub(crate) fn call(&self, index: u32) -> CallId {
        CallId::at(self.session, 1, 1, index)
    }

    pub(crate) fn head(&self) -> u64 {
        self.rows.len() as u64
    }

    /// A row for the next place, without adding it.
    pub(crate) fn row(&self, mut header: Header, payload: &[u8]) -> Row {
        let mut at = self.rows.last().map_or(Position::FIRST, Position::after);
        at.epoch = self.epoch;
        header.payload = (!payload.is_empty()).then(|| PayloadMeta::of(payload, vec!["session".to_owned()]));
        let time = Timestamp(1_000_000 + i64::try_from(at.seq).unwrap());
        header.into_row(&self.tenant, self.session, &at, time, payload.to_vec()).unwrap()
    }

    /// Adds a row and gives the append that carries it alone.
    pub(crate) fn push(&mut self, header: Header, payload: &[u8]) -> Append {
        let row = self.row(header, payload);
        self.rows.push(row.clone());
        self.carry(vec![row])
    }

    /// Adds a plain row.
    pub(crate) fn plain(&mut self, payload: &[u8]) -> Append {
        self.push(Header::new("noted"), payload)
    }

    /// Adds a row about a call.
    pub(crate) fn about(&mut self, index: u32, marks: Marks) -> Append {
        self.push(self.marked(index, marks), b"about a call")
    }

    pub(crate) fn marked(&self, index: u32, marks: Marks) -> Header {
        let mut header = Header::new("call_noted");
        header.run = Some(1);
        header.step = Some(1);
        header.call = Some(self.call(index));
        header.marks = marks;
        header
    }

    /// Adds a row that records an input.
    pub(crate) fn recording(&mut self, id: &str) -> Append {
        let mut header = Header::new("input_noted");
        header.input_id = Some(input(id));
        self.push(header, b"input")
    }

    /// Takes the last row back, because it was refused.
    pub(crate) fn pop(&mut self) {
        self.rows.pop();
    }

    /// The append of these rows, which end the log as it is now.
    pub(crate) fn carry(&self, rows: Vec<Row>) -> Append {
        Append {
            tenant: self.tenant.clone(),
            session: self.session,
            epoch: self.epoch,
            expected_head: self.head() - rows.len() as u64,
            rows,
            consumed_inbox: Vec::new(),
            idempotency: None,
            outbox: Vec::new(),
            projection: projection("running"),
            approvals: Vec::new(),
            blobs: Vec::new(),
            new_keys: Vec::new(),
            destroyed_keys: Vec::new(),
            security: Vec::new(),
        }
    }

    /// Adds the first row and gives the creation that carries it.
    pub(crate) fn creation(&mut self) -> NewSession {
        let append = self.push(Header::new("session_started"), b"first");
        NewSession {
            alias: None,
            body_fingerprint: digest("body"),
            bundle: digest("bundle"),
            created_at: Timestamp(1_000_000),
            owner: node("node-1", 1),
            append,
        }
    }

    /// Creates the session in a store.
    pub(crate) async fn started(store: &Arc<dyn Store>, tenant: &str) -> Self {
        let mut log = Self::new(tenant);
        let created = store.create_session(Arc::new(log.creation())).await.unwrap();
        assert_eq!(created, Created::Ok { head: 1 });
        log
    }

    /// The take-over by a node, and the log as it is when it succeeds.
    pub(crate) fn take_over(&self, owner: &NodeIdentity) -> (TakeOver, Self) {
        let mut after = self.clone();
        after.epoch += 1;
        let mut header = Header::new("owner_changed");
        header.event.insert("node".to_owned(), owner.node.as_str().into());
        let row = after.row(header, b"");
        after.rows.push(row.clone());
        let take_over = TakeOver { tenant: self.tenant.clone(), session: self.session, owner: owner.clone(), row };
        (take_over, after)
    }
}

/// Several appends as one batch.
pub(crate) async fn append_many(
    store: &Arc<dyn Store>,
    appends: Vec<Arc<Append>>,
) -> Vec<Result<Appended, StoreError>> {
    let answers = store.write_many(appends.into_iter().map(Write::Append).collect()).await;
    let appended = |answer| match answer {
        Wrote::Append(appended) => appended,
        Wrote::Create(_) => panic!("an append is answered as a creation"),
    };
    answers.into_iter().map(|answer| answer.map(appended)).collect()
}

/// All rows of a session, page by page.
pub(crate) async fn all_rows(store: &Arc<dyn Store>, tenant: &TenantId, session: SessionId) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    loop {
        let after = rows.last().map_or(0, |row| row.seq);
        let page = store.read(tenant, session, after, 100).await.unwrap();
        if page.is_empty() {
            return rows;
        }
        rows.extend(page);
    }
}
