//! What this node knows of itself and its neighbours: whether its lease still lets it act, who is alive, whether it gives
//! its sessions away. All of it is a hint: the epochs of the log alone keep a deposed node out. What is not here: who finds
//! it out (`heartbeat`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use toolgate_store::{NodeId, NodeIdentity, NodeRow};

/// Share of the lease after which a node starts nothing more, in tenths.
const ACTS_TENTHS: u32 = 7;

/// The node and its neighbours, as of the last heartbeat.
#[derive(Debug, Default)]
pub struct Nodes {
    /// When the last successful renewal was sent; before the first nothing is held back.
    lease: watch::Sender<Option<Instant>>,
    lapses: AtomicU64,
    alive: Mutex<BTreeMap<NodeId, Neighbour>>,
    draining: CancellationToken,
    hints: Mutex<BTreeSet<NodeId>>,
    hint: Notify,
    /// Something waits in this node's inboxes, or may be taken over.
    pub(super) inbox: Notify,
    pub(super) orphans: Notify,
}

#[derive(Debug)]
struct Neighbour {
    incarnation: u64,
    until: Instant,
    draining: bool,
}

impl Nodes {
    /// A renewal that was sent at this time has succeeded.
    pub(super) fn renewed(&self, sent: Instant, lease: Duration) {
        // Counted before the lease counts as young again, so that nobody acts on it in between.
        if self.since_renewal().is_some_and(|ago| ago >= lease) {
            self.lapses.fetch_add(1, Ordering::SeqCst);
        }
        self.lease.send_replace(Some(sent));
    }

    /// How often the lease may have lapsed before it was renewed. Whoever knew the sessions before must ask the log whose
    /// they are now.
    pub(super) fn lapses(&self) -> u64 {
        self.lapses.load(Ordering::SeqCst)
    }

    /// How long ago the last successful renewal was sent.
    pub(super) fn since_renewal(&self) -> Option<Duration> {
        self.lease.borrow().map(|sent| sent.elapsed())
    }

    /// Whether the lease is young enough to start effects.
    pub(super) fn may_act(&self, lease: Duration) -> bool {
        self.since_renewal().is_none_or(|ago| ago < lease * ACTS_TENTHS / 10)
    }

    /// Waits for the next renewal.
    pub(super) async fn next_renewal(&self) {
        let mut lease = self.lease.subscribe();
        // The sender lives as long as this.
        let _ = lease.changed().await;
    }

    /// Takes over what the database says of nodes.
    pub(super) fn seen(&self, rows: &[NodeRow], at: Instant) {
        let alive = rows.iter().filter_map(|row| {
            let left = u64::try_from(row.lease_left_us).ok().filter(|left| *left > 0)?;
            let until = at + Duration::from_micros(left);
            let neighbour = Neighbour { incarnation: row.identity.incarnation, until, draining: row.draining };
            Some((row.identity.node.clone(), neighbour))
        });
        *self.alive() = alive.collect();
    }

    /// Whether this life of a node holds a lease, as far as this node knows.
    pub(super) fn is_alive(&self, node: &NodeIdentity) -> bool {
        let now = Instant::now();
        let alive = self.alive();
        alive.get(&node.node).is_some_and(|known| known.incarnation == node.incarnation && known.until > now)
    }

    /// The other nodes that take sessions.
    pub(super) fn others(&self, me: &NodeId) -> Vec<NodeId> {
        let now = Instant::now();
        let alive = self.alive();
        let takers = alive.iter().filter(|(node, known)| *node != me && known.until > now && !known.draining);
        takers.map(|(node, _)| node.clone()).collect()
    }

    /// Whether any other node is alive.
    pub(super) fn has_others(&self, me: &NodeId) -> bool {
        let now = Instant::now();
        self.alive().iter().any(|(node, known)| node != me && known.until > now)
    }

    /// Cancelled once the node gives its sessions away; that ends with its next start.
    #[must_use]
    pub const fn draining(&self) -> &CancellationToken {
        &self.draining
    }

    /// Wakes other nodes, soon and together with others that are to be woken.
    pub(super) fn wake(&self, nodes: impl IntoIterator<Item = NodeId>) {
        self.hints.lock().unwrap_or_else(PoisonError::into_inner).extend(nodes);
        self.hint.notify_one();
    }

    /// The nodes to wake, once there are any.
    pub(super) async fn to_wake(&self) -> Vec<NodeId> {
        loop {
            self.hint.notified().await;
            let nodes = std::mem::take(&mut *self.hints.lock().unwrap_or_else(PoisonError::into_inner));
            if !nodes.is_empty() {
                return nodes.into_iter().collect();
            }
        }
    }

    /// A hint has arrived.
    pub(super) fn woken(&self) {
        self.inbox.notify_one();
        self.orphans.notify_one();
    }

    fn alive(&self) -> MutexGuard<'_, BTreeMap<NodeId, Neighbour>> {
        self.alive.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolgate_core::time::Timestamp;

    fn row(name: &str, left: i64, draining: bool) -> Option<NodeRow> {
        let identity = NodeIdentity { node: NodeId::new(name).ok()?, incarnation: 2 };
        let (version, started_at) = (String::new(), Timestamp(0));
        Some(NodeRow { identity, lease_left_us: left, draining, protocol: 1, version, started_at })
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_without_renewals_starts_nothing_after_seven_tenths_of_its_lease() {
        let (nodes, lease) = (Nodes::default(), Duration::from_secs(10));
        assert!(nodes.may_act(lease));
        nodes.renewed(Instant::now(), lease);
        tokio::time::advance(Duration::from_millis(6_999)).await;
        assert!(nodes.may_act(lease));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(!nodes.may_act(lease));
        nodes.renewed(Instant::now(), lease);
        assert!(nodes.may_act(lease));
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_may_have_lapsed_is_counted_when_it_is_renewed() {
        let (nodes, lease) = (Nodes::default(), Duration::from_secs(10));
        nodes.renewed(Instant::now(), lease);
        tokio::time::advance(Duration::from_millis(9_999)).await;
        nodes.renewed(Instant::now(), lease);
        assert_eq!(nodes.lapses(), 0);
        tokio::time::advance(Duration::from_secs(10)).await;
        assert!(!nodes.may_act(lease));
        nodes.renewed(Instant::now(), lease);
        assert_eq!(nodes.lapses(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn neighbours_are_alive_for_what_was_left_of_their_leases() {
        let nodes = Nodes::default();
        let rows: Vec<_> =
            [row("a", 2_000_000, false), row("b", 9_000_000, true), row("c", 0, false)].into_iter().flatten().collect();
        nodes.seen(&rows, Instant::now());
        let life = |name: &str, incarnation| NodeId::new(name).map(|node| NodeIdentity { node, incarnation });
        assert!(life("a", 2).is_ok_and(|life| nodes.is_alive(&life)));
        assert!(life("a", 1).is_ok_and(|life| !nodes.is_alive(&life)));
        assert!(life("c", 2).is_ok_and(|life| !nodes.is_alive(&life)));
        let others = |me: &str| NodeId::new(me).map(|me| nodes.others(&me).len());
        assert_eq!((others("z"), others("a")), (Ok(1), Ok(0)));
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(life("a", 2).is_ok_and(|life| !nodes.is_alive(&life)));
        assert_eq!(others("z"), Ok(0));
        assert!(NodeId::new("z").is_ok_and(|me| nodes.has_others(&me)));
    }
}
