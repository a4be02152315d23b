//! Appends of many sessions with one flush: one statement calls the function once for each. What is not here: gathering
//! them, which is the caller's.

use std::fmt::Write as _;
use std::sync::Arc;

use sqlx::AssertSqlSafe;
use sqlx::postgres::PgPool;

use super::append::{VALUES, append, appended, bind, refused};
use crate::append::{Append, Appended};
use crate::error::StoreError;
use crate::sql::Refused;

/// The most appends of one statement. Batches are cut into powers of two, so that few different statements are prepared.
const MOST: usize = 64;

/// Applies several appends. When one of a statement's appends is refused, nothing of that statement was applied, and each
/// is sent by itself.
pub(super) async fn append_many(pool: &PgPool, appends: &[Arc<Append>]) -> Vec<Result<Appended, Refused>> {
    // All batches lock their sessions in the same order, so that none waits for another in a circle. The sort is stable:
    // appends of one session stay in the order given.
    let mut order: Vec<usize> = (0..appends.len()).collect();
    order.sort_by_key(|index| appends.get(*index).map(|append| (append.tenant.clone(), append.session)));
    let mut answers: Vec<Option<Result<Appended, Refused>>> = appends.iter().map(|_| None).collect();
    let mut rest = order.as_slice();
    while !rest.is_empty() {
        let size = (1 << rest.len().ilog2()).min(MOST);
        let (chunk, after) = rest.split_at(size);
        rest = after;
        let of_chunk: Vec<&Arc<Append>> = chunk.iter().filter_map(|index| appends.get(*index)).collect();
        for (index, answer) in chunk.iter().zip(statement(pool, &of_chunk).await) {
            if let Some(place) = answers.get_mut(*index) {
                *place = Some(answer);
            }
        }
    }
    let missing = || Err(StoreError::Unavailable("no answer for an append of the batch".into()).into());
    answers.into_iter().map(|answer| answer.unwrap_or_else(missing)).collect()
}

async fn statement(pool: &PgPool, appends: &[&Arc<Append>]) -> Vec<Result<Appended, Refused>> {
    if appends.len() > 1 {
        let query = sqlx::query(AssertSqlSafe(sql(appends.len())));
        let query = appends.iter().fold(query, |query, append| bind(query, append));
        match query.fetch_all(pool).await.map_err(refused) {
            Ok(rows) if rows.len() == appends.len() => return rows.iter().map(appended).collect(),
            // Unknown outcome or full storage: one by one would only say the same more slowly.
            Err(Refused::Failed(error)) if error.is_retryable() => {
                let text = error.to_string();
                let again = |_: &&Arc<Append>| match error {
                    StoreError::StorageFull(_) => Err(StoreError::StorageFull(text.clone().into()).into()),
                    _ => Err(StoreError::Unavailable(text.clone().into()).into()),
                };
                return appends.iter().map(again).collect();
            }
            Ok(_) | Err(_) => {}
        }
    }
    let mut answers = Vec::with_capacity(appends.len());
    for one in appends {
        answers.push(append(pool, one).await);
    }
    answers
}

/// The statement for so many appends; built from numbers alone.
fn sql(count: usize) -> String {
    let mut sql = String::new();
    for call in 0..count {
        if call > 0 {
            sql.push_str(" UNION ALL ");
        }
        // Writing to a string cannot fail.
        let _ = write!(sql, "SELECT {call} AS nth, outcome, head, at_epoch FROM append(");
        for value in 1..=VALUES {
            let comma = if value == VALUES { ")" } else { ", " };
            let _ = write!(sql, "${}{comma}", call * VALUES + value);
        }
    }
    sql.push_str(" ORDER BY nth");
    sql
}
