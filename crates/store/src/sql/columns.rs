//! Result rows to the values of the contract. What cannot be read is corruption, named by its column.

use std::str::FromStr;

use toolgate_core::id::{SessionId, Sha256Digest, TenantId};
use toolgate_core::time::Timestamp;

use crate::append::{Projection, Sealed};
use crate::cluster::HandOver;
use crate::error::StoreError;
use crate::keys::WrappedKey;
use crate::name::{KeyId, NodeId, NodeIdentity};
use crate::record::{
    ApiKeyRow, ApprovalRow, ApprovalStatus, Blob, BundleRow, IdempotencyKey, IdempotencyRow, InboxRow, NodeRow,
    OutboxRow, SecurityRow,
};
use crate::row::{Marks, Row};
use crate::session::{SessionKey, SessionRow};
use crate::sql::cells::{Cells, corrupt};

fn name<T: FromStr<Err: ToString>>(row: &impl Cells, column: &str) -> Result<T, StoreError> {
    row.text(column)?.parse().map_err(|error: T::Err| corrupt(column, error))
}

fn maybe_name<T: FromStr<Err: ToString>>(row: &impl Cells, column: &str) -> Result<Option<T>, StoreError> {
    row.maybe_text(column)?.map(|text| text.parse().map_err(|error: T::Err| corrupt(column, error))).transpose()
}

pub(crate) fn key_id(row: &impl Cells, column: &str) -> Result<KeyId, StoreError> {
    KeyId::parse(&row.text(column)?).map_err(|error| corrupt(column, error))
}

fn maybe_key_id(row: &impl Cells, column: &str) -> Result<Option<KeyId>, StoreError> {
    row.maybe_text(column)?.map(|text| KeyId::parse(&text).map_err(|error| corrupt(column, error))).transpose()
}

fn time(row: &impl Cells, column: &str) -> Result<Timestamp, StoreError> {
    row.int(column).map(Timestamp)
}

fn maybe_time(row: &impl Cells, column: &str) -> Result<Option<Timestamp>, StoreError> {
    Ok(row.maybe_int(column)?.map(Timestamp))
}

fn digest(row: &impl Cells, column: &str) -> Result<Sha256Digest, StoreError> {
    row.hash(column).map(Sha256Digest::from_bytes)
}

fn session_id(row: &impl Cells) -> Result<SessionId, StoreError> {
    row.key("session").map(SessionId::from_uuid)
}

fn sealed(row: &impl Cells) -> Result<Sealed, StoreError> {
    Ok(Sealed { key: key_id(row, "key_id")?, bytes: row.bytes("body")? })
}

pub(crate) fn session_key(row: &impl Cells) -> Result<SessionKey, StoreError> {
    Ok(SessionKey { tenant: name(row, "tenant")?, session: session_id(row)? })
}

pub(crate) fn event(row: &impl Cells) -> Result<Row, StoreError> {
    Ok(Row {
        seq: row.count("seq")?,
        epoch: row.count("epoch")?,
        kind: row.text("kind")?,
        run: row.maybe_small("run")?,
        step: row.maybe_small("step")?,
        call: maybe_name(row, "call")?,
        marks: Marks {
            decision: row.flag("decision")?,
            allow: row.flag("allow")?,
            dispatch_attempt: row.maybe_small("dispatch_attempt")?,
            terminal: row.flag("terminal")?,
        },
        input_id: maybe_name(row, "input_id")?,
        recorded_at: time(row, "recorded_at")?,
        header: row.bytes("header")?,
        payload: row.bytes("payload")?,
        prev_hash: row.hash("prev_hash")?,
        hash: row.hash("hash")?,
    })
}

pub(crate) fn session(row: &impl Cells) -> Result<SessionRow, StoreError> {
    let owner = match (row.maybe_text("owner")?, row.maybe_int("owner_incarnation")?) {
        (Some(node), Some(incarnation)) => Some(NodeIdentity {
            node: NodeId::new(&node).map_err(|error| corrupt("owner", error))?,
            incarnation: u64::try_from(incarnation).map_err(|_| corrupt("owner_incarnation", "negative number"))?,
        }),
        _ => None,
    };
    let title = match (maybe_key_id(row, "title_key")?, row.maybe_bytes("title")?) {
        (Some(key), Some(bytes)) => Some(Sealed { key, bytes }),
        _ => None,
    };
    Ok(SessionRow {
        tenant: name(row, "tenant")?,
        session: session_id(row)?,
        alias: row.maybe_text("alias")?,
        body_fingerprint: digest(row, "body_fingerprint")?,
        bundle: digest(row, "bundle")?,
        created_at: time(row, "created_at")?,
        epoch: row.count("epoch")?,
        owner,
        head_seq: row.count("head_seq")?,
        head_hash: row.hash("head_hash")?,
        closed: row.flag("closed")?,
        projection: Projection {
            status: row.text("status")?,
            active: row.flag("active")?,
            profile: maybe_name(row, "profile")?,
            ending: row.maybe_text("ending")?,
            pending_approvals: row.maybe_small("pending_approvals")?.unwrap_or_default(),
            updated_at: time(row, "updated_at")?,
            next_wake_at: maybe_time(row, "next_wake_at")?,
            title,
        },
    })
}

pub(crate) fn blob(row: &impl Cells) -> Result<Blob, StoreError> {
    Ok(Blob { digest: digest(row, "digest")?, content: sealed(row)? })
}

pub(crate) fn wrapped_key(row: &impl Cells) -> Result<WrappedKey, StoreError> {
    Ok(WrappedKey { id: key_id(row, "key_id")?, wrapped: row.bytes("wrapped")? })
}

pub(crate) fn approval(row: &impl Cells) -> Result<ApprovalRow, StoreError> {
    let status = row.text("status")?;
    Ok(ApprovalRow {
        session: session_id(row)?,
        id: name(row, "approval")?,
        call: name(row, "call")?,
        status: ApprovalStatus::parse(&status).ok_or_else(|| corrupt("status", status))?,
        requested_at: time(row, "requested_at")?,
        expires_at: maybe_time(row, "expires_at")?,
        settled_at: maybe_time(row, "settled_at")?,
        settled_by: maybe_name(row, "settled_by")?,
        body: sealed(row)?,
    })
}

pub(crate) fn inbox(row: &impl Cells) -> Result<InboxRow, StoreError> {
    Ok(InboxRow {
        id: name(row, "input_id")?,
        received_at: time(row, "received_at")?,
        body: sealed(row)?,
        fingerprint: digest(row, "fingerprint")?,
    })
}

/// The answer to an input, if there is one.
pub(crate) fn answer(row: &impl Cells) -> Result<Option<Sealed>, StoreError> {
    Ok(match (maybe_key_id(row, "answer_key")?, row.maybe_bytes("answer")?) {
        (Some(key), Some(bytes)) => Some(Sealed { key, bytes }),
        _ => None,
    })
}

pub(crate) fn hand_over(row: &impl Cells) -> Result<HandOver, StoreError> {
    let to = NodeId::new(&row.text("node")?).map_err(|error| corrupt("node", error))?;
    Ok(HandOver { key: session_key(row)?, to })
}

pub(crate) fn outbox(row: &impl Cells) -> Result<OutboxRow, StoreError> {
    Ok(OutboxRow {
        id: row.text("id")?,
        kind: row.text("kind")?,
        body: row.bytes("body")?,
        key: maybe_key_id(row, "key_id")?,
        attempts: row.maybe_small("attempts")?.unwrap_or_default(),
        due_at: time(row, "due_at")?,
    })
}

/// The stored answer; `None` for a claim.
pub(crate) fn idempotency(row: &impl Cells) -> Result<(Sha256Digest, Option<IdempotencyRow>), StoreError> {
    let fingerprint = digest(row, "fingerprint")?;
    let Some(status) = row.maybe_int("status")? else {
        return Ok((fingerprint, None));
    };
    let key = IdempotencyKey {
        tenant: name::<TenantId>(row, "tenant")?,
        credential: row.text("credential")?,
        route: row.text("route")?,
        key: row.text("key")?,
    };
    let sealed_under = match (row.maybe_key("session")?, maybe_key_id(row, "key_id")?) {
        (Some(session), Some(key)) => Some((SessionId::from_uuid(session), key)),
        _ => None,
    };
    let answer = IdempotencyRow {
        key,
        fingerprint,
        status: u16::try_from(status).map_err(|_| corrupt("status", "out of range"))?,
        body: row.maybe_bytes("body")?.unwrap_or_default(),
        sealed_under,
        expires_at: time(row, "expires_at")?,
    };
    Ok((fingerprint, Some(answer)))
}

pub(crate) fn bundle(row: &impl Cells) -> Result<BundleRow, StoreError> {
    Ok(BundleRow {
        digest: digest(row, "digest")?,
        body: row.bytes("body")?,
        created_by: name(row, "created_by")?,
        created_at: time(row, "created_at")?,
    })
}

pub(crate) fn api_key(row: &impl Cells) -> Result<ApiKeyRow, StoreError> {
    Ok(ApiKeyRow {
        tenant: name(row, "tenant")?,
        key_id: row.text("key_id")?,
        secret_digest: digest(row, "secret_digest")?,
        actor: name(row, "actor")?,
        scopes: row.text("scopes")?.split_ascii_whitespace().map(str::to_owned).collect(),
        label: row.text("label")?,
        created_at: time(row, "created_at")?,
        expires_at: maybe_time(row, "expires_at")?,
        revoked_at: maybe_time(row, "revoked_at")?,
    })
}

pub(crate) fn security(row: &impl Cells) -> Result<SecurityRow, StoreError> {
    Ok(SecurityRow {
        id: row.text("id")?,
        at: time(row, "at")?,
        code: row.text("code")?,
        actor: maybe_name(row, "actor")?,
        session: row.maybe_key("session")?.map(SessionId::from_uuid),
        detail: row.bytes("detail")?,
    })
}

pub(crate) fn node(row: &impl Cells) -> Result<NodeRow, StoreError> {
    let node = NodeId::new(&row.text("node")?).map_err(|error| corrupt("node", error))?;
    Ok(NodeRow {
        identity: NodeIdentity { node, incarnation: row.count("incarnation")? },
        lease_left_us: row.int("left_us")?,
        draining: row.flag("draining")?,
        protocol: row.maybe_small("protocol")?.unwrap_or_default(),
        version: row.text("version")?,
        started_at: time(row, "started_at")?,
    })
}
