//! The owner's side of what other nodes bring: inputs in the inboxes of its sessions, and requests to hand sessions over.
//! What is not here: deciding them (`actor`).

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use toolgate_core::id::InputId;
use toolgate_store::{HandOver, InboxRow, SessionKey, StoreError};

use super::deps::Deps;
use super::mail::Mail;
use super::registry::Registry;

/// How often inboxes are looked into without a hint.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Inputs taken at once.
const PAGE: u32 = 500;

/// Inputs that are with their sessions already.
type UnderWay = Arc<Mutex<HashSet<Place>>>;
type Place = (SessionKey, InputId);

/// An input on its way to its session; dropped once the session is done with it.
#[derive(Debug)]
pub(super) struct Delivered {
    pub(super) row: InboxRow,
    key: SessionKey,
    under_way: UnderWay,
}

impl Drop for Delivered {
    fn drop(&mut self) {
        let place = (self.key.clone(), self.row.id.clone());
        lock(&self.under_way).remove(&place);
    }
}

/// Looks into the inboxes until the server stops.
pub(super) async fn consume(deps: Arc<Deps>, registry: Arc<Registry>) {
    let under_way = UnderWay::default();
    loop {
        match round(&deps, &registry, &under_way).await {
            // A full page: there may be more.
            Ok(true) => {}
            Ok(false) => pause(&deps).await,
            Err(error) => {
                tracing::warn!(%error, "the inboxes could not be looked into; they will be in the next round");
                pause(&deps).await;
            }
        }
        if deps.stopping.is_cancelled() {
            return;
        }
    }
}

async fn pause(deps: &Deps) {
    tokio::select! {
        () = deps.nodes.inbox.notified() => {}
        () = tokio::time::sleep(LOOK_EVERY) => {}
        () = deps.stopping.cancelled() => {}
    }
}

async fn round(deps: &Arc<Deps>, registry: &Arc<Registry>, under_way: &UnderWay) -> Result<bool, StoreError> {
    let mut sent = 0;
    let before = lock(under_way).clone();
    for (key, row) in deps.store.inbox_of(&deps.node, PAGE).await? {
        // What is given away is taken by the next owner.
        if deps.nodes.draining().is_cancelled() && !registry.holds(&key) || !registry.may_try(&key) {
            continue;
        }
        let Some(delivered) = deliver(key, row, &before, under_way) else { continue };
        let key = delivered.key.clone();
        if registry.send(&key, Mail::Letter(Box::new(delivered))).await.is_ok() {
            sent += 1;
        }
    }
    for request in deps.store.hand_overs_of(&deps.node, PAGE).await? {
        hand_over(deps, registry, request).await?;
    }
    Ok(sent == PAGE)
}

/// Takes an input of a list, unless it is with its session or was when the list was asked for: it may have been answered
/// since, and the list not know it. If it was not, the next list has it again.
fn deliver(key: SessionKey, row: InboxRow, before: &HashSet<Place>, under_way: &UnderWay) -> Option<Delivered> {
    let place = (key, row.id.clone());
    if before.contains(&place) || !lock(under_way).insert(place.clone()) {
        return None;
    }
    Some(Delivered { row, key: place.0, under_way: Arc::clone(under_way) })
}

fn lock(under_way: &UnderWay) -> MutexGuard<'_, HashSet<Place>> {
    under_way.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn hand_over(deps: &Deps, registry: &Arc<Registry>, request: HandOver) -> Result<(), StoreError> {
    if registry.holds(&request.key) {
        // One that is busy hears of it in the next round.
        let key = request.key.clone();
        let _ = registry.send(&key, Mail::HandOver(request)).await;
        return Ok(());
    }
    let key = &request.key;
    let Some(row) = deps.store.session(&key.tenant, key.session).await? else { return Ok(()) };
    if row.owner.as_ref() == Some(&deps.node) {
        deps.store.release(&key.tenant, key.session, row.epoch).await?;
        deps.nodes.wake([request.to]);
    }
    Ok(())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;
    use toolgate_core::id::{SessionId, Sha256Digest, TenantId};
    use toolgate_core::time::Timestamp;
    use toolgate_store::{KeyId, Sealed};

    #[test]
    fn an_input_that_was_with_its_session_when_the_list_was_asked_for_is_left_to_the_next_list() {
        let key =
            SessionKey { tenant: TenantId::new("acme").unwrap(), session: SessionId::from_uuid(uuid::Uuid::nil()) };
        let row = InboxRow {
            id: InputId::new("in-1").unwrap(),
            received_at: Timestamp(0),
            body: Sealed { key: KeyId::session(), bytes: Vec::new() },
            fingerprint: Sha256Digest::of(b""),
        };
        let under_way = UnderWay::default();
        let first = deliver(key.clone(), row.clone(), &HashSet::new(), &under_way).unwrap();
        assert!(deliver(key.clone(), row.clone(), &HashSet::new(), &under_way).is_none(), "it is under way");
        // A list is asked for, the session answers, and the list comes without knowing it.
        let before = lock(&under_way).clone();
        drop(first);
        assert!(deliver(key.clone(), row.clone(), &before, &under_way).is_none());
        let before = lock(&under_way).clone();
        assert!(deliver(key, row, &before, &under_way).is_some(), "whatever still waits is taken from the next list");
    }
}
