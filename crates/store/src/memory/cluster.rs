//! `Cluster` in memory: several nodes of one process may share it, as tests do.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use toolgate_core::id::{InputId, SessionId, TenantId};
use toolgate_core::time::Timestamp;

use super::{MemoryStore, Session, State};
use crate::append::Sealed;
use crate::cluster::{Cluster, Fate, HandOver, HandOverState, Hints, KEPT_FOR_ASKER, NodeStart, Renewed};
use crate::error::StoreError;
use crate::limits;
use crate::name::{NodeId, NodeIdentity};
use crate::page::{page_limit, page_size};
use crate::record::{InboxRow, NodeRow};
use crate::session::SessionKey;

/// A node, with the end of its lease by this process's clock.
#[derive(Debug)]
pub(super) struct Node {
    identity: NodeIdentity,
    lease_until: i64,
    draining: bool,
    protocol: u32,
    version: String,
    started_at: i64,
}

/// A node that wants a session.
#[derive(Debug)]
pub(super) struct Asked {
    to: NodeId,
    at: i64,
    refused: bool,
}

/// The clock of the database.
fn clock() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

fn us(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

impl State {
    /// Whether the lease of this life of a node runs.
    pub(super) fn is_alive(&self, owner: &NodeIdentity) -> bool {
        self.nodes.get(&owner.node).is_some_and(|node| node.identity == *owner && node.lease_until > clock())
    }

    fn is_lost(&self, session: &Session) -> bool {
        session.row.owner.as_ref().is_none_or(|owner| !self.is_alive(owner))
    }

    fn is_kept_for_another(&self, key: &SessionKey, me: &NodeId) -> bool {
        let fresh = clock().saturating_sub(us(KEPT_FOR_ASKER));
        self.hand_overs.get(key).is_some_and(|asked| asked.to != *me && !asked.refused && asked.at > fresh)
    }
}

#[async_trait]
impl Cluster for MemoryStore {
    async fn node_start(&self, start: &NodeStart) -> Result<NodeIdentity, StoreError> {
        limits::version(&start.version)?;
        Ok(self.with(|state| {
            let before = state.nodes.get(&start.node).map_or(0, |node| node.identity.incarnation);
            let identity = NodeIdentity { node: start.node.clone(), incarnation: before.saturating_add(1) };
            let now = clock();
            let node = Node {
                identity: identity.clone(),
                lease_until: now.saturating_add(us(start.ttl)),
                draining: false,
                protocol: start.protocol,
                version: start.version.clone(),
                started_at: now,
            };
            state.nodes.insert(start.node.clone(), node);
            identity
        }))
    }

    async fn node_renew(&self, identity: &NodeIdentity, ttl: Duration) -> Result<Option<Renewed>, StoreError> {
        Ok(self.with(|state| {
            let node = state.nodes.get_mut(&identity.node).filter(|node| node.identity == *identity)?;
            node.lease_until = clock().saturating_add(us(ttl));
            Some(Renewed { draining: node.draining })
        }))
    }

    async fn node_leave(&self, identity: &NodeIdentity) -> Result<(), StoreError> {
        self.with(|state| {
            if let Some(node) = state.nodes.get_mut(&identity.node).filter(|node| node.identity == *identity) {
                node.lease_until = clock();
            }
        });
        Ok(())
    }

    async fn node_drain(&self, node: &NodeId, draining: bool) -> Result<bool, StoreError> {
        Ok(self.with(|state| match state.nodes.get_mut(node) {
            Some(node) => {
                node.draining = draining;
                true
            }
            None => false,
        }))
    }

    async fn nodes(&self, limit: u32) -> Result<Vec<NodeRow>, StoreError> {
        let now = clock();
        let row = |node: &Node| NodeRow {
            identity: node.identity.clone(),
            lease_left_us: node.lease_until.saturating_sub(now),
            draining: node.draining,
            protocol: node.protocol,
            version: node.version.clone(),
            started_at: Timestamp(node.started_at),
        };
        Ok(self.with(|state| state.nodes.values().take(page_size(page_limit(limit))).map(row).collect()))
    }

    async fn sessions_owned(&self) -> Result<Vec<(NodeIdentity, u64)>, StoreError> {
        Ok(self.with(|state| {
            let mut owned = std::collections::BTreeMap::new();
            for owner in state.sessions.values().filter_map(|session| session.row.owner.clone()) {
                *owned.entry(owner).or_insert(0) += 1;
            }
            owned.into_iter().collect()
        }))
    }

    async fn owned_by(
        &self,
        me: &NodeIdentity,
        after: Option<&SessionKey>,
        limit: u32,
    ) -> Result<Vec<(SessionKey, u64)>, StoreError> {
        Ok(self.with(|state| {
            let own = state.sessions.iter().filter(|(_, session)| session.row.owner.as_ref() == Some(me));
            let behind = own.filter(|(key, _)| after.is_none_or(|after| *key > after));
            behind.map(|(key, session)| (key.clone(), session.row.epoch)).take(page_size(page_limit(limit))).collect()
        }))
    }

    async fn active_of(
        &self,
        me: &NodeId,
        after: Option<&SessionKey>,
        limit: u32,
    ) -> Result<Vec<SessionKey>, StoreError> {
        Ok(self.with(|state| {
            let is_own = |session: &Session| session.row.owner.as_ref().is_some_and(|owner| owner.node == *me);
            let own = state.sessions.iter().filter(|(_, session)| session.row.projection.active && is_own(session));
            let behind = own.map(|(key, _)| key).filter(|key| after.is_none_or(|after| *key > after));
            behind.take(page_size(page_limit(limit))).cloned().collect()
        }))
    }

    async fn orphans(&self, me: &NodeId, now: Timestamp, limit: u32) -> Result<Vec<SessionKey>, StoreError> {
        Ok(self.with(|state| {
            let wanted = |session: &Session| {
                session.row.projection.active
                    || session.row.projection.next_wake_at.is_some_and(|at| at <= now)
                    || session.inbox.values().any(|waiting| waiting.answer.is_none())
            };
            let lost = state.sessions.iter().filter(|(_, session)| wanted(session) && state.is_lost(session));
            let free = lost.filter(|(key, _)| !state.is_kept_for_another(key, me));
            free.map(|(key, _)| key.clone()).take(page_size(page_limit(limit))).collect()
        }))
    }

    async fn due_of(&self, me: &NodeIdentity, now: Timestamp, limit: u32) -> Result<Vec<SessionKey>, StoreError> {
        Ok(self.with(|state| {
            let own = state.sessions.iter().filter(|(_, session)| session.row.owner.as_ref() == Some(me));
            let due = own.filter(|(_, session)| session.row.projection.next_wake_at.is_some_and(|at| at <= now));
            due.map(|(key, _)| key.clone()).take(page_size(page_limit(limit))).collect()
        }))
    }

    async fn release_many(&self, sessions: &[(SessionKey, u64)]) -> Result<u64, StoreError> {
        Ok(self.with(|state| {
            let mut released = 0;
            for (key, epoch) in sessions {
                if let Some(session) = state.sessions.get_mut(key).filter(|session| session.row.epoch == *epoch) {
                    session.row.owner = None;
                    released += 1;
                }
            }
            released
        }))
    }

    async fn inbox_of(&self, me: &NodeIdentity, limit: u32) -> Result<Vec<(SessionKey, InboxRow)>, StoreError> {
        Ok(self.with(|state| {
            let own = state.sessions.iter().filter(|(_, session)| session.row.owner.as_ref() == Some(me));
            let inboxes = own.flat_map(|(key, session)| session.inbox.values().map(move |waiting| (key, waiting)));
            let waiting = inboxes.filter(|(_, waiting)| waiting.answer.is_none());
            let mut items: Vec<_> = waiting.map(|(key, waiting)| (key.clone(), waiting.row.clone())).collect();
            items.sort_by(|(_, a), (_, b)| (a.received_at, &a.id).cmp(&(b.received_at, &b.id)));
            items.truncate(page_size(page_limit(limit)));
            items
        }))
    }

    async fn inbox_answer(
        &self,
        key: &SessionKey,
        epoch: u64,
        input: &InputId,
        answer: &Sealed,
        at: Timestamp,
    ) -> Result<bool, StoreError> {
        limits::answer(answer)?;
        Ok(self.with(|state| {
            let session = state.sessions.get_mut(key).filter(|session| session.row.epoch == epoch);
            let waiting = session.and_then(|session| session.inbox.get_mut(input));
            match waiting.filter(|waiting| waiting.answer.is_none()) {
                Some(waiting) => {
                    waiting.answer = Some((answer.clone(), at));
                    true
                }
                None => false,
            }
        }))
    }

    async fn inbox_fate(&self, tenant: &TenantId, session: SessionId, input: &InputId) -> Result<Fate, StoreError> {
        let key = SessionKey { tenant: tenant.clone(), session };
        Ok(self.with(|state| {
            let Some(session) = state.sessions.get(&key) else { return Fate::Unknown };
            match (session.inbox.get(input), session.recorded(input)) {
                (Some(waiting), recorded) => match (&waiting.answer, recorded) {
                    (Some((answer, _)), _) => Fate::Answered(answer.clone()),
                    (None, _) => Fate::Waiting,
                },
                (None, Some(seq)) => Fate::Recorded { seq },
                (None, None) => Fate::Unknown,
            }
        }))
    }

    async fn inbox_sweep(&self, before: Timestamp, limit: u32) -> Result<u64, StoreError> {
        Ok(self.with(|state| {
            let mut left = page_size(page_limit(limit));
            let mut gone = 0;
            for session in state.sessions.values_mut() {
                session.inbox.retain(|_, waiting| {
                    let old = waiting.answer.as_ref().is_some_and(|(_, at)| *at < before) && left > 0;
                    left -= usize::from(old);
                    gone += u64::from(old);
                    !old
                });
            }
            gone
        }))
    }

    async fn heads(&self, sessions: &[SessionKey]) -> Result<Vec<(SessionKey, u64)>, StoreError> {
        Ok(self.with(|state| {
            let head = |key: &SessionKey| Some((key.clone(), state.sessions.get(key)?.row.head_seq));
            sessions.iter().filter_map(head).collect()
        }))
    }

    async fn hand_over_ask(&self, key: &SessionKey, to: &NodeId) -> Result<(), StoreError> {
        self.with(|state| {
            if !state.sessions.contains_key(key) {
                return Err(StoreError::NoSuchSession);
            }
            let asked = Asked { to: to.clone(), at: clock(), refused: false };
            state.hand_overs.insert(key.clone(), asked);
            Ok(())
        })
    }

    async fn hand_over_state(&self, key: &SessionKey, to: &NodeId) -> Result<HandOverState, StoreError> {
        Ok(self.with(|state| match state.hand_overs.get(key).filter(|asked| asked.to == *to) {
            None => HandOverState::Gone,
            Some(asked) if asked.refused => HandOverState::Refused,
            Some(_) => HandOverState::Waiting,
        }))
    }

    async fn hand_overs_of(&self, me: &NodeIdentity, limit: u32) -> Result<Vec<HandOver>, StoreError> {
        Ok(self.with(|state| {
            let own = |key: &SessionKey| {
                state.sessions.get(key).is_some_and(|session| session.row.owner.as_ref() == Some(me))
            };
            let asked =
                state.hand_overs.iter().filter(|(key, asked)| !asked.refused && asked.to != me.node && own(key));
            let requests = asked.map(|(key, asked)| HandOver { key: key.clone(), to: asked.to.clone() });
            requests.take(page_size(page_limit(limit))).collect()
        }))
    }

    async fn hand_over_refuse(&self, request: &HandOver) -> Result<(), StoreError> {
        self.with(|state| {
            if let Some(asked) = state.hand_overs.get_mut(&request.key).filter(|asked| asked.to == request.to) {
                asked.refused = true;
            }
        });
        Ok(())
    }

    async fn hand_over_withdraw(&self, key: &SessionKey, to: &NodeId) -> Result<(), StoreError> {
        self.with(|state| {
            if state.hand_overs.get(key).is_some_and(|asked| asked.to == *to) {
                state.hand_overs.remove(key);
            }
        });
        Ok(())
    }

    async fn hint(&self, _: &[NodeId]) -> Result<(), StoreError> {
        Ok(())
    }

    async fn hints(&self, _: &NodeId) -> Result<Option<Box<dyn Hints>>, StoreError> {
        Ok(None)
    }
}
