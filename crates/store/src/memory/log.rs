//! `EventLog` in memory.

use std::sync::Arc;

use async_trait::async_trait;
use toolgate_core::id::{ApprovalId, SessionId, Sha256Digest, TenantId};
use toolgate_core::time::Timestamp;

use super::{Gate, MemoryStore, Refusal, Session, State, Waiting};
use crate::append::{Append, Appended, Created, NewSession, TakeOver, TakenOver};
use crate::chain::GENESIS;
use crate::error::{Guard, StoreError};
use crate::event_log::{EventLog, MAX_PAGE_BYTES};
use crate::keys::WrappedKey;
use crate::limits;
use crate::name::NodeIdentity;
use crate::page::{page, page_limit, page_size};
use crate::record::{ApprovalCursor, ApprovalRow, ApprovalStatus, Blob, InboxPut, InboxRow, OutboxRow};
use crate::row::Row;
use crate::session::{Page, SessionCursor, SessionFilter, SessionKey, SessionRow, Wanted};

fn key(tenant: &TenantId, session: SessionId) -> SessionKey {
    SessionKey { tenant: tenant.clone(), session }
}

fn create(state: &mut State, new: &NewSession) -> Result<Created, StoreError> {
    let append = &new.append;
    let key = key(&append.tenant, append.session);
    if let Some(existing) = state.sessions.get(&key) {
        let head = existing.row.head_seq;
        return Ok(if existing.stands(&append.rows) { Created::Already { head } } else { Created::SessionExists });
    }
    if new.alias.is_some() {
        let same = |session: &&Session| session.row.tenant == append.tenant && session.row.alias == new.alias;
        if let Some(existing) = state.sessions.values().find(same) {
            let same_body = existing.row.body_fingerprint == new.body_fingerprint;
            return Ok(Created::AliasExists { session: existing.row.session, same_body });
        }
    }
    let row = SessionRow {
        tenant: append.tenant.clone(),
        session: append.session,
        alias: new.alias.clone(),
        body_fingerprint: new.body_fingerprint,
        bundle: new.bundle,
        created_at: new.created_at,
        epoch: 1,
        owner: Some(new.owner.clone()),
        head_seq: 0,
        head_hash: GENESIS,
        closed: false,
        projection: append.projection.clone(),
    };
    state.sessions.insert(key.clone(), Session::new(row));
    match state.apply(append) {
        Ok(head) => Ok(Created::Ok { head }),
        Err(refusal) => {
            state.sessions.remove(&key);
            match refusal {
                Refusal::Idempotency => Ok(Created::IdempotencyConflict),
                Refusal::Duplicate(..) => Err(StoreError::Invalid("two rows of one append record the same input")),
                Refusal::Failed(error) => Err(error),
            }
        }
    }
}

fn take_over(state: &mut State, take_over: &TakeOver) -> Result<TakenOver, StoreError> {
    let TakeOver { tenant, session, owner, row } = take_over;
    let place = key(tenant, *session);
    let alive = |other: &NodeIdentity| other.node != owner.node && state.is_alive(other);
    let is_owned = state.sessions.get(&place).and_then(|session| session.row.owner.as_ref()).is_some_and(alive);
    let session = state.sessions.get_mut(&key(tenant, *session)).ok_or(StoreError::NoSuchSession)?;
    let (head, epoch) = (session.row.head_seq, session.row.epoch);
    if epoch == row.epoch && session.row.owner.as_ref() == Some(owner) && session.stands(std::slice::from_ref(row)) {
        return Ok(TakenOver::Already { head, epoch });
    }
    if session.row.closed {
        return Err(StoreError::Guard(Guard::SessionClosed));
    }
    let follows = epoch.checked_add(1) == Some(row.epoch)
        && head.checked_add(1) == Some(row.seq)
        && session.row.head_hash == row.prev_hash;
    if !follows {
        return Ok(TakenOver::Stale { head, epoch });
    }
    if is_owned {
        return Ok(TakenOver::Owned { head, epoch });
    }
    session.row.epoch = row.epoch;
    session.row.owner = Some(owner.clone());
    session.row.head_seq = row.seq;
    session.row.head_hash = row.hash;
    session.row.projection.updated_at = row.recorded_at;
    session.rows.push(row.clone());
    state.hand_overs.remove(&place);
    Ok(TakenOver::Ok { head: row.seq, epoch: row.epoch })
}

fn append(state: &mut State, append: &Append) -> Result<Appended, StoreError> {
    match state.gate(append)? {
        Gate::Open => {}
        Gate::Already { head } => return Ok(Appended::Already { head }),
        Gate::Stale { head } => return Ok(Appended::Stale { head }),
        Gate::Fenced { epoch } => return Ok(Appended::Fenced { epoch }),
    }
    match state.apply(append) {
        Ok(head) => Ok(Appended::Ok { head }),
        Err(Refusal::Duplicate(input, seq)) => Ok(Appended::DuplicateInput { input, seq }),
        Err(Refusal::Idempotency) => Ok(Appended::IdempotencyConflict),
        Err(Refusal::Failed(error)) => Err(error),
    }
}

#[async_trait]
impl EventLog for MemoryStore {
    async fn create_session(&self, new: Arc<NewSession>) -> Result<Created, StoreError> {
        limits::new_session(&new)?;
        self.with(|state| create(state, &new))
    }

    async fn append(&self, value: Arc<Append>) -> Result<Appended, StoreError> {
        limits::append(&value)?;
        self.with(|state| append(state, &value))
    }

    async fn take_over(&self, value: Arc<TakeOver>) -> Result<TakenOver, StoreError> {
        limits::take_over(&value)?;
        self.with(|state| take_over(state, &value))
    }

    async fn release(&self, tenant: &TenantId, session: SessionId, epoch: u64) -> Result<bool, StoreError> {
        Ok(self.with(|state| match state.sessions.get_mut(&key(tenant, session)) {
            Some(session) if session.row.epoch == epoch => {
                session.row.owner = None;
                true
            }
            _ => false,
        }))
    }

    async fn session(&self, tenant: &TenantId, session: SessionId) -> Result<Option<SessionRow>, StoreError> {
        Ok(self.with(|state| state.sessions.get(&key(tenant, session)).map(|session| session.row.clone())))
    }

    async fn session_by_alias(&self, tenant: &TenantId, alias: &str) -> Result<Option<SessionRow>, StoreError> {
        let same = |session: &&Session| session.row.tenant == *tenant && session.row.alias.as_deref() == Some(alias);
        Ok(self.with(|state| state.sessions.values().find(same).map(|session| session.row.clone())))
    }

    async fn list_sessions(
        &self,
        tenant: &TenantId,
        filter: &SessionFilter,
        after: Option<SessionCursor>,
        limit: u32,
    ) -> Result<Page<SessionRow, SessionCursor>, StoreError> {
        let shown = |row: &&SessionRow| {
            row.tenant == *tenant
                && filter.status.as_ref().is_none_or(|status| *status == row.projection.status)
                && (filter.profile.is_none() || filter.profile == row.projection.profile)
                && filter.created_from.is_none_or(|from| row.created_at >= from)
                && filter.created_before.is_none_or(|before| row.created_at < before)
                && after.is_none_or(|after| (row.created_at, row.session) < (after.created_at, after.session))
        };
        let mut items: Vec<SessionRow> =
            self.with(|state| state.sessions.values().map(|session| &session.row).filter(shown).cloned().collect());
        items.sort_by_key(|row| std::cmp::Reverse((row.created_at, row.session)));
        Ok(page(items, page_limit(limit), |row| SessionCursor { created_at: row.created_at, session: row.session }))
    }

    async fn open_sessions(
        &self,
        wanted: &Wanted,
        after: Option<&SessionKey>,
        limit: u32,
    ) -> Result<Page<SessionRow, SessionKey>, StoreError> {
        let is_wanted = |session: &Session| match wanted {
            Wanted::Active => session.row.projection.active,
            Wanted::Due(now) => session.row.projection.next_wake_at.is_some_and(|at| at <= *now),
            Wanted::Inbox => session.inbox.values().any(|waiting| waiting.answer.is_none()),
        };
        let limit = page_limit(limit);
        let items = self.with(|state| {
            let beyond = state.sessions.iter().filter(|(key, _)| after.is_none_or(|after| *key > after));
            let found = beyond.filter(|(_, session)| is_wanted(session)).map(|(_, session)| session.row.clone());
            found.take(page_size(limit).saturating_add(1)).collect()
        });
        Ok(page(items, limit, |row: &SessionRow| key(&row.tenant, row.session)))
    }

    async fn read(
        &self,
        tenant: &TenantId,
        session: SessionId,
        after_seq: u64,
        limit: u32,
    ) -> Result<Vec<Row>, StoreError> {
        Ok(self.with(|state| {
            let Some(session) = state.sessions.get(&key(tenant, session)) else { return Vec::new() };
            let start = usize::try_from(after_seq).unwrap_or(usize::MAX);
            let mut bytes = 0_u64;
            let fits = |row: &&Row| {
                let first = bytes == 0;
                bytes = bytes.saturating_add((row.header.len() as u64).saturating_add(row.payload.len() as u64));
                first || bytes <= MAX_PAGE_BYTES
            };
            session.rows.iter().skip(start).take(page_size(page_limit(limit))).take_while(fits).cloned().collect()
        }))
    }

    async fn blob(
        &self,
        tenant: &TenantId,
        session: SessionId,
        digest: &Sha256Digest,
    ) -> Result<Option<Blob>, StoreError> {
        Ok(self.with(|state| state.sessions.get(&key(tenant, session))?.blobs.get(digest).cloned()))
    }

    async fn session_keys(&self, tenant: &TenantId, session: SessionId) -> Result<Vec<WrappedKey>, StoreError> {
        Ok(self.with(|state| {
            let Some(session) = state.sessions.get(&key(tenant, session)) else { return Vec::new() };
            session.keys.iter().map(|(id, wrapped)| WrappedKey { id: id.clone(), wrapped: wrapped.clone() }).collect()
        }))
    }

    async fn list_approvals(
        &self,
        tenant: &TenantId,
        status: Option<ApprovalStatus>,
        after: Option<&ApprovalCursor>,
        limit: u32,
    ) -> Result<Page<ApprovalRow, ApprovalCursor>, StoreError> {
        let cursor = |row: &ApprovalRow| ApprovalCursor {
            requested_at: row.requested_at,
            session: row.session,
            id: row.id.clone(),
        };
        let place = |cursor: &ApprovalCursor| (cursor.requested_at, cursor.session, cursor.id.clone());
        let shown = |row: &&ApprovalRow| {
            status.is_none_or(|status| status == row.status)
                && after.is_none_or(|after| place(&cursor(row)) < place(after))
        };
        let mut items: Vec<ApprovalRow> = self.with(|state| {
            let own = state.sessions.values().filter(|session| session.row.tenant == *tenant);
            own.flat_map(|session| session.approvals.values()).filter(shown).cloned().collect()
        });
        items.sort_by_key(|row| std::cmp::Reverse(place(&cursor(row))));
        Ok(page(items, page_limit(limit), cursor))
    }

    async fn approval(&self, tenant: &TenantId, id: &ApprovalId) -> Result<Option<ApprovalRow>, StoreError> {
        Ok(self.with(|state| {
            let mut own = state.sessions.values().filter(|session| session.row.tenant == *tenant);
            own.find_map(|session| session.approvals.get(id)).cloned()
        }))
    }

    async fn inbox_put(&self, tenant: &TenantId, session: SessionId, row: InboxRow) -> Result<InboxPut, StoreError> {
        limits::inbox(&row)?;
        self.with(|state| {
            let session = state.sessions.get_mut(&key(tenant, session)).ok_or(StoreError::NoSuchSession)?;
            if let Some(seq) = session.recorded(&row.id) {
                return Ok(InboxPut::Recorded { seq });
            }
            if let Some(waiting) = session.inbox.get(&row.id).filter(|waiting| waiting.answer.is_none()) {
                return Ok(InboxPut::Waiting { same_body: waiting.row.fingerprint == row.fingerprint });
            }
            session.inbox.insert(row.id.clone(), Waiting { row, answer: None });
            Ok(InboxPut::Ok)
        })
    }

    async fn inbox_list(&self, tenant: &TenantId, session: SessionId, limit: u32) -> Result<Vec<InboxRow>, StoreError> {
        Ok(self.with(|state| {
            let Some(session) = state.sessions.get(&key(tenant, session)) else { return Vec::new() };
            let mut items: Vec<InboxRow> = session
                .inbox
                .values()
                .filter(|waiting| waiting.answer.is_none())
                .map(|waiting| waiting.row.clone())
                .collect();
            items.sort_by(|a, b| (a.received_at, &a.id).cmp(&(b.received_at, &b.id)));
            items.truncate(page_size(page_limit(limit)));
            items
        }))
    }

    async fn outbox_due(&self, now: Timestamp, limit: u32) -> Result<Vec<(SessionKey, OutboxRow)>, StoreError> {
        Ok(self.with(|state| {
            let all =
                state.sessions.iter().flat_map(|(key, session)| session.outbox.values().map(move |row| (key, row)));
            let due = all.filter(|(_, row)| row.due_at <= now);
            let mut items: Vec<_> = due.map(|(key, row)| (key.clone(), row.clone())).collect();
            items.sort_by_key(|(_, row)| row.due_at);
            items.truncate(page_size(page_limit(limit)));
            items
        }))
    }

    async fn outbox_done(&self, key: &SessionKey, id: &str) -> Result<(), StoreError> {
        self.with(|state| {
            if let Some(session) = state.sessions.get_mut(key) {
                session.outbox.remove(id);
            }
        });
        Ok(())
    }

    async fn outbox_postpone(&self, key: &SessionKey, id: &str, due_at: Timestamp) -> Result<(), StoreError> {
        self.with(|state| {
            if let Some(row) = state.sessions.get_mut(key).and_then(|session| session.outbox.get_mut(id)) {
                row.attempts = row.attempts.saturating_add(1);
                row.due_at = due_at;
            }
        });
        Ok(())
    }
}
