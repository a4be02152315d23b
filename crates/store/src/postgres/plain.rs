//! Plain writes of many sessions in one statement: those that carry nothing but rows, new keys, the answer to a request and
//! the state of their session, as nearly all do, and new sessions without an alias. The order of the bound values is the
//! order of the parameters of `migrations/postgres/0011_write_batch.sql`. What is not here: what the others carry (`append`).

use sqlx::postgres::PgRow;
use sqlx::{Row as _, query};

use super::append::{bind_rows, column, int, refused};
use super::kept::Kept;
use crate::append::{Append, NewSession, Write};
use crate::keys::WrappedKey;
use crate::record::IdempotencyRow;
use crate::row::{AFTER_CLOSE, Row, SESSION_CLOSED};
use crate::sql::Refused;
use crate::sql::failure::store_error;

const WRITE: &str = "SELECT write_batch($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36, $37, $38, $39, $40, $41, $42, $43, $44, $45, $46, $47, $48, $49, $50, $51, $52, $53, $54, $55, $56, $57, $58) AS applied";

/// Whether a write carries nothing that only the functions for single ones write.
pub(super) fn is_plain(write: &Write) -> bool {
    let append = write.append();
    !matches!(write, Write::Create(new) if new.alias.is_some())
        && append.consumed_inbox.is_empty()
        && append.outbox.is_empty()
        && append.approvals.is_empty()
        && append.blobs.is_empty()
        && append.destroyed_keys.is_empty()
        && append.security.is_empty()
}

/// Applies plain writes of different sessions. Answers for each whether it was applied; of those that were not, nothing is
/// known but that they did not fit.
pub(super) async fn write(kept: &Kept, writes: &[&Write]) -> Result<Vec<bool>, Refused> {
    let appends: Vec<&Append> = writes.iter().map(|write| write.append()).collect();
    let appends = appends.as_slice();
    let new: Vec<(i64, &NewSession)> = (1..).zip(writes).filter_map(|(of, write)| created(of, write)).collect();
    let answers: Vec<(i64, &IdempotencyRow)> =
        (1..).zip(appends).filter_map(|(of, append)| append.idempotency.as_ref().map(|row| (of, row))).collect();
    let of = |value: fn(&Append) -> i64| appends.iter().map(|append| value(append)).collect::<Vec<i64>>();
    let state = appends.iter().map(|append| &append.projection);
    let rows: Vec<(i64, &Append, &Row)> = placed(appends, |append| &append.rows);
    let keys: Vec<(i64, &Append, &WrappedKey)> = placed(appends, |append| &append.new_keys);
    let tenants: Vec<&str> = appends.iter().map(|append| append.tenant.as_str()).collect();
    let sessions: Vec<_> = appends.iter().map(|append| append.session.uuid()).collect();
    let query = query(WRITE)
        .bind(tenants)
        .bind(sessions)
        .bind(of(|append| int(append.epoch)))
        .bind(of(|append| int(append.expected_head)))
        .bind(of(|append| i64::try_from(append.rows.len()).unwrap_or(i64::MAX)))
        .bind(column(appends, |append| append.rows.first().map(|row| row.prev_hash.as_slice())))
        .bind(column(appends, |append| append.rows.last().map(|row| row.hash.as_slice())))
        .bind(column(appends, |append| append.rows.iter().any(|row| row.kind == SESSION_CLOSED)))
        .bind(column(appends, |append| append.rows.iter().all(|row| AFTER_CLOSE.contains(&row.kind.as_str()))))
        .bind(state.clone().map(|now| now.status.as_str()).collect::<Vec<_>>())
        .bind(state.clone().map(|now| now.active).collect::<Vec<_>>())
        .bind(state.clone().map(|now| now.profile.as_ref().map(|profile| profile.as_str())).collect::<Vec<_>>())
        .bind(state.clone().map(|now| now.ending.as_deref()).collect::<Vec<_>>())
        .bind(state.clone().map(|now| i64::from(now.pending_approvals)).collect::<Vec<_>>())
        .bind(state.clone().map(|now| now.updated_at.as_micros()).collect::<Vec<_>>())
        .bind(state.clone().map(|now| now.next_wake_at.map(|at| at.as_micros())).collect::<Vec<_>>())
        .bind(state.clone().map(|now| now.title.as_ref().map(|title| title.bytes.as_slice())).collect::<Vec<_>>())
        .bind(state.map(|now| now.title.as_ref().map(|title| title.key.as_str())).collect::<Vec<_>>())
        .bind(column(&new, |(of, _)| *of))
        .bind(column(&new, |(_, new)| new.body_fingerprint.as_bytes().as_slice()))
        .bind(column(&new, |(_, new)| new.bundle.as_bytes().as_slice()))
        .bind(column(&new, |(_, new)| new.created_at.as_micros()))
        .bind(column(&new, |(_, new)| new.owner.node.as_str()))
        .bind(column(&new, |(_, new)| int(new.owner.incarnation)))
        .bind(column(&rows, |(of, _, _)| *of))
        .bind(column(&rows, |(_, append, _)| append.tenant.as_str()))
        .bind(column(&rows, |(_, append, _)| append.session.uuid()))
        .bind(column(&rows, |(_, _, row)| int(row.seq)))
        .bind(column(&rows, |(_, _, row)| int(row.epoch)));
    let query = bind_rows(query, rows.iter().map(|(_, _, row)| *row))
        .bind(column(&keys, |(of, _, _)| *of))
        .bind(column(&keys, |(_, append, _)| append.tenant.as_str()))
        .bind(column(&keys, |(_, append, _)| append.session.uuid()))
        .bind(column(&keys, |(_, _, key)| key.id.as_str()))
        .bind(column(&keys, |(_, _, key)| key.wrapped.as_slice()))
        .bind(column(&answers, |(of, _)| *of))
        .bind(column(&answers, |(_, row)| row.key.credential.as_str()))
        .bind(column(&answers, |(_, row)| row.key.route.as_str()))
        .bind(column(&answers, |(_, row)| row.key.key.as_str()))
        .bind(column(&answers, |(_, row)| row.fingerprint.as_bytes().as_slice()))
        .bind(column(&answers, |(_, row)| i64::from(row.status)))
        .bind(column(&answers, |(_, row)| row.body.as_slice()))
        .bind(column(&answers, |(_, row)| row.sealed_under.as_ref().map(|(session, _)| session.uuid())))
        .bind(column(&answers, |(_, row)| row.sealed_under.as_ref().map(|(_, key)| key.as_str())))
        .bind(column(&answers, |(_, row)| row.expires_at.as_micros()));
    let answer: PgRow = kept.fetch_one(query).await.map_err(refused)?;
    let applied: Vec<i64> = answer.try_get("applied").map_err(store_error)?;
    let mut answers = vec![false; appends.len()];
    for place in applied {
        if let Some(answer) = usize::try_from(place - 1).ok().and_then(|place| answers.get_mut(place)) {
            *answer = true;
        }
    }
    Ok(answers)
}

fn created(of: i64, write: &Write) -> Option<(i64, &NewSession)> {
    match write {
        Write::Create(new) => Some((of, new)),
        Write::Append(_) => None,
    }
}

/// All parts of all appends, each with the place of its append, from 1.
fn placed<'a, T>(appends: &[&'a Append], parts: fn(&'a Append) -> &'a Vec<T>) -> Vec<(i64, &'a Append, &'a T)> {
    let appends = (1..).zip(appends.iter().copied());
    appends.flat_map(|(of, append)| parts(append).iter().map(move |part| (of, append, part))).collect()
}
