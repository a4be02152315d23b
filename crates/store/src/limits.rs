//! Checks of what a caller hands in, the same for every backend, before anything is sent. What is not here: rules that
//! need the stored rows (the databases keep those themselves).

use toolgate_core::id::Sha256Digest;

use crate::append::{Append, NewSession, Sealed, TakeOver};
use crate::error::{Guard, StoreError};
use crate::record::{ApiKeyRow, BundleRow, IdempotencyClaim, IdempotencyKey, IdempotencyRow, InboxRow, SecurityRow};
use crate::row::{AFTER_CLOSE, Row, SESSION_CLOSED};
use crate::snapshot::Snapshot;

/// Rows of one append.
pub const MAX_ROWS: usize = 1_024;
/// Bytes of one header.
pub const MAX_HEADER: usize = 256 * 1024;
/// Bytes of one payload, blob, bundle or other content.
pub const MAX_CONTENT: usize = 16 * 1024 * 1024;
/// Bytes of one short text.
pub const MAX_TEXT: usize = 1_024;

/// The kind of the row that a take-over appends.
pub const OWNER_CHANGED: &str = "owner_changed";

fn size(what: &'static str, size: usize, limit: usize) -> Result<(), StoreError> {
    if size > limit { Err(StoreError::TooLarge { what, size, limit }) } else { Ok(()) }
}

fn text(what: &'static str, text: &str) -> Result<(), StoreError> {
    size(what, text.len(), MAX_TEXT)?;
    // PostgreSQL cannot hold NUL in a text; the same values must work everywhere.
    if text.contains('\0') { Err(StoreError::Invalid("a text holds NUL")) } else { Ok(()) }
}

/// 1 to 128 visible ASCII characters.
pub(crate) fn is_token(text: &str) -> bool {
    (1..=128).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic())
}

fn signed(number: u64) -> Result<(), StoreError> {
    i64::try_from(number).map(|_| ()).map_err(|_| StoreError::Invalid("a number is over 2^63-1"))
}

fn row(row: &Row) -> Result<(), StoreError> {
    text("kind", &row.kind)?;
    size("header", row.header.len(), MAX_HEADER)?;
    size("payload", row.payload.len(), MAX_CONTENT)?;
    signed(row.seq)?;
    signed(row.epoch)?;
    if row.call.is_none() && !row.marks.is_none() {
        return Err(StoreError::Invalid("a row marks a call without naming it"));
    }
    Ok(())
}

/// Whether the rows follow each other and fit the append around them.
pub(crate) fn append(append: &Append) -> Result<(), StoreError> {
    size("append", append.rows.len(), MAX_ROWS)?;
    signed(append.expected_head.saturating_add(MAX_ROWS as u64))?;
    signed(append.epoch)?;
    let mut seq = append.expected_head;
    let mut before: Option<&Row> = None;
    let mut closed = false;
    for next in &append.rows {
        row(next)?;
        seq = seq.saturating_add(1);
        if next.seq != seq || next.epoch != append.epoch {
            return Err(StoreError::Invalid("the rows do not follow the expected head in the append's epoch"));
        }
        if before.is_some_and(|before| before.hash != next.prev_hash) {
            return Err(StoreError::Invalid("the rows are not chained to each other"));
        }
        if closed && !AFTER_CLOSE.contains(&next.kind.as_str()) {
            return Err(StoreError::Guard(Guard::SessionClosed));
        }
        closed |= next.kind == SESSION_CLOSED;
        before = Some(next);
    }
    let projection = &append.projection;
    text("status", &projection.status)?;
    if let Some(ending) = &projection.ending {
        text("ending", ending)?;
    }
    if let Some(title) = &projection.title {
        size("title", title.bytes.len(), MAX_CONTENT)?;
    }
    if let Some(idempotency) = &append.idempotency {
        if idempotency.key.tenant != append.tenant {
            return Err(StoreError::Invalid("the idempotency key belongs to another tenant"));
        }
        idempotency_row(idempotency)?;
    }
    for out in &append.outbox {
        text("outbox id", &out.id)?;
        text("outbox kind", &out.kind)?;
        size("outbox body", out.body.len(), MAX_CONTENT)?;
    }
    if append.approvals.iter().any(|approval| approval.session != append.session) {
        return Err(StoreError::Invalid("an approval belongs to another session"));
    }
    for approval in &append.approvals {
        size("approval", approval.body.bytes.len(), MAX_CONTENT)?;
    }
    for blob in &append.blobs {
        size("blob", blob.content.bytes.len(), MAX_CONTENT)?;
    }
    for key in &append.new_keys {
        size("wrapped key", key.wrapped.len(), MAX_TEXT)?;
    }
    append.security.iter().try_for_each(security)
}

/// Whether the first rows can be the first.
pub(crate) fn new_session(new: &NewSession) -> Result<(), StoreError> {
    append(&new.append)?;
    signed(new.owner.incarnation)?;
    if new.append.expected_head != 0 || new.append.epoch != 1 || new.append.rows.is_empty() {
        return Err(StoreError::Invalid("a session begins with rows from seq 1 in epoch 1"));
    }
    if new.append.rows.first().is_some_and(|row| row.prev_hash != crate::chain::GENESIS) {
        return Err(StoreError::Invalid("the first row follows no other"));
    }
    if new.alias.as_deref().is_some_and(|alias| !is_token(alias)) {
        return Err(StoreError::Invalid("an alias has 1 to 128 visible ASCII characters"));
    }
    Ok(())
}

/// Whether the row can be the first of a new epoch.
pub(crate) fn snapshot(snapshot: &Snapshot) -> Result<(), StoreError> {
    signed(snapshot.seq)?;
    text("snapshot form", &snapshot.form)?;
    size("snapshot", snapshot.state.bytes.len(), MAX_CONTENT)
}

pub(crate) fn take_over(take_over: &TakeOver) -> Result<(), StoreError> {
    row(&take_over.row)?;
    signed(take_over.owner.incarnation)?;
    let row = &take_over.row;
    if row.kind != OWNER_CHANGED
        || row.seq == 0
        || row.epoch < 2
        || row.run.is_some()
        || row.step.is_some()
        || row.call.is_some()
    {
        return Err(StoreError::Invalid("a take-over appends an `owner_changed` row without run, step and call"));
    }
    Ok(())
}

/// Whether the scope can be stored.
pub(crate) fn idempotency_key(key: &IdempotencyKey) -> Result<(), StoreError> {
    text("credential", &key.credential)?;
    text("route", &key.route)?;
    text("idempotency key", &key.key)
}

/// Whether the answer can be stored.
pub(crate) fn idempotency_row(row: &IdempotencyRow) -> Result<(), StoreError> {
    idempotency_key(&row.key)?;
    size("answer", row.body.len(), MAX_CONTENT)
}

/// Whether the claim can be stored.
pub(crate) fn claim(claim: &IdempotencyClaim) -> Result<(), StoreError> {
    idempotency_key(&claim.key)
}

/// Whether the input can be stored.
pub(crate) fn inbox(row: &InboxRow) -> Result<(), StoreError> {
    size("input", row.body.bytes.len(), MAX_CONTENT)
}

/// Whether the answer to an input can be stored.
pub(crate) fn answer(answer: &Sealed) -> Result<(), StoreError> {
    size("answer", answer.bytes.len(), MAX_HEADER)
}

/// Whether the name of a build can be stored.
pub(crate) fn version(version: &str) -> Result<(), StoreError> {
    size("version", version.len(), 128)
}

/// Whether the entry can be stored.
pub(crate) fn security(row: &SecurityRow) -> Result<(), StoreError> {
    text("security id", &row.id)?;
    text("security code", &row.code)?;
    size("security detail", row.detail.len(), MAX_HEADER)
}

/// Whether the bundle can be stored under its name.
pub(crate) fn bundle(row: &BundleRow) -> Result<(), StoreError> {
    size("bundle", row.body.len(), MAX_CONTENT)?;
    if Sha256Digest::of(&row.body) == row.digest {
        Ok(())
    } else {
        Err(StoreError::Invalid("a bundle is named by the digest of its bytes"))
    }
}

/// Whether the credential can be stored.
pub(crate) fn api_key(row: &ApiKeyRow) -> Result<(), StoreError> {
    text("label", &row.label)?;
    if !is_token(&row.key_id) {
        return Err(StoreError::Invalid("a key id has 1 to 128 visible ASCII characters"));
    }
    if row.scopes.iter().any(|scope| !is_token(scope)) {
        return Err(StoreError::Invalid("a scope has 1 to 128 visible ASCII characters"));
    }
    size("scopes", row.scopes.len(), 64)
}
