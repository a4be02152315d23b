//! Reads a session back from its log: rows, chain, keys, state. What is not here: taking ownership (`journal`).

use std::sync::Arc;

use toolgate_core::bundle::Bundle;
use toolgate_core::event::Recorded;
use toolgate_core::fold;
use toolgate_core::id::{SessionId, TenantId};
use toolgate_core::session::Session;
use toolgate_core::time::Timestamp;
use toolgate_store::chain::{self, Position};
use toolgate_store::{Codec, CodecError, MasterKey, NodeIdentity, Row, SessionRow, Store};

use super::Snapshot;
use super::deps::Deps;
use crate::failure::Failure;

/// Rows asked for at once.
const PAGE: u32 = 512;

/// Rows after which a state is worth keeping: folding fewer costs less than looking for it.
const SNAPSHOT_EVERY: u64 = 256;

/// A session as its log tells it.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) tenant: TenantId,
    pub(super) alias: Option<String>,
    pub(super) created_at: Timestamp,
    pub(super) owner: Option<NodeIdentity>,
    pub(super) state: Session,
    pub(super) codec: Codec,
    pub(super) bundle: Arc<Bundle>,
    pub(super) next: Position,
    pub(super) updated_at: Timestamp,
    /// How often the node's lease had lapsed before the session was read.
    pub(super) lapses: u64,
}

impl Loaded {
    pub(super) fn into_snapshot(self) -> Snapshot {
        Snapshot {
            state: Arc::new(self.state),
            bundle: self.bundle,
            alias: self.alias,
            created_at: self.created_at,
            updated_at: self.updated_at,
        }
    }
}

/// Reads and folds a session, from its snapshot where there is one that belongs to the log. Refuses a log whose chain is
/// broken behind that: nothing may run on it.
pub(super) async fn load(deps: &Deps, tenant: &TenantId, id: SessionId) -> Result<Loaded, Failure> {
    let lapses = deps.nodes.lapses();
    let row = deps.store.session(tenant, id).await?.ok_or(Failure::NoSuchSession)?;
    let codec = open_codec(&*deps.store, &deps.master, tenant, id).await?;
    let bundle = deps.bundles.get(&*deps.store, tenant, row.bundle).await?;
    let mut state = Session::new(id);
    let mut checker = chain::Checker::new(tenant, id);
    let mut next = Position::FIRST;
    let mut updated_at = row.created_at;
    if let Some((known, last)) = restored(deps, &codec, &row).await? {
        state = known;
        checker = chain::Checker::behind(tenant, id, &last);
        next = Position::after(&last);
        updated_at = last.recorded_at;
    }
    let known = state.head;
    loop {
        let rows = deps.store.read(tenant, id, state.head, PAGE).await?;
        if rows.is_empty() {
            break;
        }
        for stored in rows.iter().take_while(|stored| stored.seq <= row.head_seq) {
            checker.row(stored).map_err(|broken| Failure::LogBroken { seq: broken.seq, detail: broken.to_string() })?;
            let recorded = codec.decode(stored).map_err(|error| unreadable(&error))?;
            fold(&mut state, &recorded);
            next = Position::after(stored);
            updated_at = stored.recorded_at;
        }
        if state.head >= row.head_seq {
            break;
        }
    }
    if state.head != row.head_seq {
        let detail = format!("the session's head is {}, but the log ends at {}", row.head_seq, state.head);
        return Err(Failure::LogBroken { seq: state.head + 1, detail });
    }
    if state.head >= known + SNAPSHOT_EVERY {
        keep(deps, tenant, &codec, &state, next.prev_hash).await;
    }
    next.epoch = row.epoch;
    Ok(Loaded {
        tenant: row.tenant,
        alias: row.alias,
        created_at: row.created_at,
        owner: row.owner,
        state,
        codec,
        bundle,
        next,
        updated_at,
        lapses,
    })
}

/// The state in the session's snapshot, and the row after which it was so; none unless the log has that very row.
async fn restored(deps: &Deps, codec: &Codec, row: &SessionRow) -> Result<Option<(Session, Row)>, Failure> {
    let (tenant, id) = (&row.tenant, row.session);
    if row.head_seq < SNAPSHOT_EVERY {
        return Ok(None);
    }
    let Some(snapshot) = deps.store.snapshot(tenant, id).await? else { return Ok(None) };
    let Some(before) = snapshot.seq.checked_sub(1).filter(|_| snapshot.seq <= row.head_seq) else { return Ok(None) };
    let last = deps.store.read(tenant, id, before, 1).await?.into_iter().next();
    let is_its = |last: &Row| last.hash == snapshot.hash && chain::row_hash(tenant, id, last) == snapshot.hash;
    Ok(codec.restore(&snapshot).zip(last.filter(is_its)))
}

/// Keeps the state as the log tells it. Made of what was read only: what is in memory may hold contents that the log has lost
/// by design.
async fn keep(deps: &Deps, tenant: &TenantId, codec: &Codec, state: &Session, hash: [u8; 32]) {
    let kept = match codec.snapshot(state, hash) {
        Ok(Some(snapshot)) => deps.store.snapshot_put(tenant, state.id, &snapshot).await.map_err(|e| e.to_string()),
        Ok(None) => Ok(()),
        Err(error) => Err(error.to_string()),
    };
    if let Err(error) = kept {
        tracing::debug!(session = %state.id, error, "a snapshot was not kept; the log tells the state");
    }
}

/// The codec with the keys that still exist.
pub(super) async fn open_codec(
    store: &dyn Store,
    master: &MasterKey,
    tenant: &TenantId,
    id: SessionId,
) -> Result<Codec, Failure> {
    let keys = store.session_keys(tenant, id).await?;
    Codec::open(tenant.clone(), id, master.clone(), &keys)
        .map_err(|error| Failure::Internal(format!("content keys: {error}; is the master key the right one?")))
}

/// Decodes rows in order.
pub(super) fn decode_all(codec: &Codec, rows: &[Row]) -> Result<Vec<Recorded>, Failure> {
    rows.iter().map(|row| codec.decode(row).map_err(|error| unreadable(&error))).collect()
}

pub(super) fn unreadable(error: &CodecError) -> Failure {
    match error {
        CodecError::Erased { .. } => Failure::Erased,
        CodecError::Key { seq, .. }
        | CodecError::Corrupt { seq, .. }
        | CodecError::UnknownKind { seq, .. }
        | CodecError::NewerForm { seq, .. } => Failure::LogBroken { seq: *seq, detail: error.to_string() },
        CodecError::Row(source) => Failure::Internal(source.to_string()),
    }
}
