//! What several nodes over one database tell each other through it: leases, who owns what, inputs that arrived elsewhere,
//! requests to hand a session over, hints. What is not here: the log, by whose epochs alone a deposed node is kept out.

use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;
use toolgate_core::id::{InputId, SessionId, TenantId};
use toolgate_core::time::Timestamp;

use crate::append::Sealed;
use crate::error::StoreError;
use crate::name::{NodeId, NodeIdentity};
use crate::record::{InboxRow, NodeRow};
use crate::session::SessionKey;

/// How long a session that was asked for is kept for the node that asked.
pub(crate) const KEPT_FOR_ASKER: Duration = Duration::from_secs(5);

/// A start of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeStart {
    /// The persistent name.
    pub node: NodeId,
    /// How long the lease holds, by the clock of the database.
    pub ttl: Duration,
    /// The newest form of events and messages that this build reads and writes.
    pub protocol: u32,
    /// The build, for people; at most 128 bytes.
    pub version: String,
}

/// A lease that was renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Renewed {
    /// Somebody wants the node to give its sessions away.
    pub draining: bool,
}

/// What became of an input that was put into an inbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// It waits.
    Waiting,
    /// It is in the log.
    Recorded {
        /// The row that records it.
        seq: u64,
    },
    /// It left no record; this is the owner's answer.
    Answered(Sealed),
    /// Nothing is known of it.
    Unknown,
}

/// A node that wants a session, since a client of it is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandOver {
    /// The session.
    pub key: SessionKey,
    /// The node that asks.
    pub to: NodeId,
}

/// Where a request to hand a session over stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandOverState {
    /// The owner has not answered.
    Waiting,
    /// The owner keeps the session.
    Refused,
    /// The request is gone: it was taken back, replaced by another node's, or the session has changed hands.
    Gone,
}

/// Wakes a node early. Losing one costs nothing but time: everything is also looked for at intervals.
#[async_trait]
pub trait Hints: Send + Debug {
    /// Waits for the next hint. An error means that hints may have been missed; the next call tries again.
    async fn next(&mut self) -> Result<(), StoreError>;
}

/// What nodes share.
#[async_trait]
pub trait Cluster: Send + Sync + Debug {
    /// Registers a start of a node: the next incarnation of its persistent name, with a lease from now.
    async fn node_start(&self, start: &NodeStart) -> Result<NodeIdentity, StoreError>;

    /// Renews a node's lease from now, by the clock of the database; `None` when a later incarnation has started.
    ///
    /// Does not wait behind other work of this store.
    async fn node_renew(&self, identity: &NodeIdentity, ttl: Duration) -> Result<Option<Renewed>, StoreError>;

    /// Ends a node's lease now: whatever it still owns is free.
    async fn node_leave(&self, identity: &NodeIdentity) -> Result<(), StoreError>;

    /// Asks a node to give its sessions away, or no longer to; `false` when there is no such node. Its next start forgets it.
    async fn node_drain(&self, node: &NodeId, draining: bool) -> Result<bool, StoreError>;

    /// All nodes ever seen, by name. Does not wait behind other work of this store.
    async fn nodes(&self, limit: u32) -> Result<Vec<NodeRow>, StoreError>;

    /// How many sessions each node owns; counts all of them, for people.
    async fn sessions_owned(&self) -> Result<Vec<(NodeIdentity, u64)>, StoreError>;

    /// Sessions of this node behind `after`, with their epochs, in the order of their keys. Reads past the sessions of others.
    async fn owned_by(
        &self,
        me: &NodeIdentity,
        after: Option<&SessionKey>,
        limit: u32,
    ) -> Result<Vec<(SessionKey, u64)>, StoreError>;

    /// Sessions with work under way that this node owns, in whichever incarnation, behind `after` in the order of their keys.
    async fn active_of(
        &self,
        me: &NodeId,
        after: Option<&SessionKey>,
        limit: u32,
    ) -> Result<Vec<SessionKey>, StoreError>;

    /// Sessions with work under way, with a timer due at or before `now` or with inputs waiting, whose owner is nobody, an
    /// older incarnation, or a node whose lease has lapsed; at most about three times `limit`, in no order. Those that
    /// another node has asked for just now are left to it.
    async fn orphans(&self, me: &NodeId, now: Timestamp, limit: u32) -> Result<Vec<SessionKey>, StoreError>;

    /// Sessions of this node with a timer due at or before `now`.
    async fn due_of(&self, me: &NodeIdentity, now: Timestamp, limit: u32) -> Result<Vec<SessionKey>, StoreError>;

    /// Gives sessions away, each if its epoch is still the one named; how many went.
    async fn release_many(&self, sessions: &[(SessionKey, u64)]) -> Result<u64, StoreError>;

    /// Inputs that wait for sessions of this node, oldest first.
    async fn inbox_of(&self, me: &NodeIdentity, limit: u32) -> Result<Vec<(SessionKey, InboxRow)>, StoreError>;

    /// Answers an input that leaves no record. `false` when it does not wait, or the session has another epoch.
    async fn inbox_answer(
        &self,
        key: &SessionKey,
        epoch: u64,
        input: &InputId,
        answer: &Sealed,
        at: Timestamp,
    ) -> Result<bool, StoreError>;

    /// What became of an input.
    async fn inbox_fate(&self, tenant: &TenantId, session: SessionId, input: &InputId) -> Result<Fate, StoreError>;

    /// Forgets answers given before this time, at most `limit`; how many went.
    async fn inbox_sweep(&self, before: Timestamp, limit: u32) -> Result<u64, StoreError>;

    /// The heads of these sessions; those that do not exist are left out.
    async fn heads(&self, sessions: &[SessionKey]) -> Result<Vec<(SessionKey, u64)>, StoreError>;

    /// Asks the owner of a session to hand it over; replaces an earlier request.
    async fn hand_over_ask(&self, key: &SessionKey, to: &NodeId) -> Result<(), StoreError>;

    /// Where this node's request stands.
    async fn hand_over_state(&self, key: &SessionKey, to: &NodeId) -> Result<HandOverState, StoreError>;

    /// The unanswered requests for sessions of this node.
    async fn hand_overs_of(&self, me: &NodeIdentity, limit: u32) -> Result<Vec<HandOver>, StoreError>;

    /// Refuses a request.
    async fn hand_over_refuse(&self, request: &HandOver) -> Result<(), StoreError>;

    /// Takes a request back.
    async fn hand_over_withdraw(&self, key: &SessionKey, to: &NodeId) -> Result<(), StoreError>;

    /// Wakes these nodes.
    async fn hint(&self, nodes: &[NodeId]) -> Result<(), StoreError>;

    /// Where this node's hints arrive; `None` where there are none.
    async fn hints(&self, me: &NodeId) -> Result<Option<Box<dyn Hints>>, StoreError>;
}
