//! The connections of a node: one per client id, counted per tenant, and who follows what. What is not here: the
//! connections themselves; connections at other nodes, which it does not know of.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use toolgate_core::id::{ActorId, ClientInstance, SessionId, TenantId};

use super::close::{CloseReason, Exit};
use super::outbox::Outbox;
use crate::wire::frame::ServerFrame;

/// A client: its name counts for its own actor only, so that nobody closes another's connection by it.
type ClientKey = (TenantId, ActorId, ClientInstance);

/// All connections of a node.
#[derive(Debug, Default)]
pub(super) struct Hub {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    clients: HashMap<ClientKey, Client>,
    followers: HashMap<(TenantId, SessionId), HashMap<u64, Outbox>>,
}

#[derive(Debug)]
struct Client {
    connection: u64,
    exit: Exit,
}

/// The tenant has too many connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooMany;

/// A connection's entry; dropping it takes the entry out.
#[derive(Debug)]
pub(super) struct Place {
    state: Arc<Mutex<State>>,
    connection: u64,
    client: ClientKey,
    followed: Mutex<BTreeSet<SessionId>>,
}

impl Hub {
    /// Enters a connection. An older one of the same client is closed.
    pub(super) fn enter(&self, client: ClientKey, exit: &Exit, per_tenant: usize) -> Result<Place, TooMany> {
        let mut state = lock(&self.state);
        let others = state.clients.keys().filter(|other| other.0 == client.0 && **other != client).count();
        if others >= per_tenant {
            return Err(TooMany);
        }
        state.next += 1;
        let connection = state.next;
        if let Some(older) = state.clients.insert(client.clone(), Client { connection, exit: exit.clone() }) {
            older.exit.close(CloseReason::Replaced);
        }
        Ok(Place { state: Arc::clone(&self.state), connection, client, followed: Mutex::default() })
    }

    pub(super) fn connections(&self) -> usize {
        lock(&self.state).clients.len()
    }
}

impl Place {
    /// Notes that the connection follows a session.
    pub(super) fn follow(&self, session: SessionId, outbox: &Outbox) {
        lock(&self.followed).insert(session);
        let mut state = lock(&self.state);
        state.followers.entry((self.client.0.clone(), session)).or_default().insert(self.connection, outbox.clone());
    }

    /// Passes a frame on to all others that follow the session and have room for it.
    pub(super) fn tell_others(&self, session: SessionId, frame: &ServerFrame) {
        let state = lock(&self.state);
        for (connection, outbox) in state.followers.get(&(self.client.0.clone(), session)).into_iter().flatten() {
            if *connection != self.connection {
                outbox.if_room(frame);
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = lock(&self.state);
        if state.clients.get(&self.client).is_some_and(|client| client.connection == self.connection) {
            state.clients.remove(&self.client);
        }
        for session in std::mem::take(&mut *lock(&self.followed)) {
            let key = (self.client.0.clone(), session);
            let left = state.followers.get_mut(&key).map(|connections| {
                connections.remove(&self.connection);
                connections.len()
            });
            if left == Some(0) {
                state.followers.remove(&key);
            }
        }
    }
}

fn lock<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn a_newer_connection_of_a_client_replaces_the_older_one_and_tenants_are_counted_apart() {
        let hub = Hub::default();
        let client = |tenant: &str, actor: &str, name: &str| -> ClientKey {
            let (tenant, actor) = (TenantId::new(tenant).unwrap(), ActorId::new(actor).unwrap());
            (tenant, actor, ClientInstance::new(name).unwrap())
        };
        let (a, b, foreign_a) = (client("acme", "ann", "a"), client("acme", "ann", "b"), client("other", "ann", "a"));
        let (first, second) = (Exit::default(), Exit::default());
        let place = hub.enter(a.clone(), &first, 1).unwrap();
        let newer = hub.enter(a.clone(), &second, 1).unwrap();
        assert_eq!((first.reason(), second.reason()), (Some(CloseReason::Replaced), None));
        assert!(hub.enter(b.clone(), &Exit::default(), 1).is_err());
        let foreign = Exit::default();
        let foreign_place = hub.enter(foreign_a, &foreign, 1).unwrap();
        assert_eq!((second.reason(), foreign.reason()), (None, None));
        // The same name of another actor is another client.
        let twin = hub.enter(client("acme", "bob", "a"), &Exit::default(), 2).unwrap();
        assert_eq!((second.reason(), hub.connections()), (None, 3));
        drop(twin);
        // The older one leaves late: the newer one keeps the name.
        drop(place);
        assert_eq!(hub.connections(), 2);
        drop((newer, foreign_place));
        assert_eq!(hub.connections(), 0);
        assert!(hub.enter(b.clone(), &Exit::default(), 1).is_ok());
    }
}
