//! Appends of many sessions with one flush: plain ones in one statement (`plain`), others by a statement that calls the
//! function for single appends once for each. What is not here: gathering them (`lanes`).

use std::fmt::Write as _;
use std::sync::Arc;

use sqlx::AssertSqlSafe;

use super::append::{VALUES, append, appended, bind, refused};
use super::kept::Kept;
use super::plain::{self, is_plain};
use crate::append::{Append, Appended};
use crate::error::StoreError;
use crate::sql::Refused;
use crate::sql::failure::again;

/// The most appends of one statement. Batches are cut into powers of two, so that few different statements are prepared.
const MOST: usize = 64;

/// The most plain appends of one statement.
const MOST_PLAIN: usize = 512;

/// Applies several appends: plain ones together, the others in statements of their own. When one of a statement's appends is
/// refused, nothing of that statement was applied, and each is sent by itself.
pub(super) async fn append_many(kept: &Kept, appends: &[Arc<Append>]) -> Vec<Result<Appended, Refused>> {
    // All batches lock their sessions in the same order, so that none waits for another in a circle. The sort is stable:
    // appends of one session stay in the order given.
    let mut order: Vec<usize> = (0..appends.len()).collect();
    order.sort_by_key(|index| appends.get(*index).map(|append| (append.tenant.clone(), append.session)));
    let mut answers: Vec<Option<Result<Appended, Refused>>> = appends.iter().map(|_| None).collect();
    for wave in waves(appends, order) {
        let (plain, others): (Vec<usize>, Vec<usize>) =
            wave.into_iter().partition(|index| appends.get(*index).is_some_and(|append| is_plain(append)));
        for chunk in plain.chunks(MOST_PLAIN) {
            settle(&mut answers, chunk, together(kept, &of(appends, chunk)).await);
        }
        let mut rest = others.as_slice();
        while !rest.is_empty() {
            let size = (1 << rest.len().ilog2()).min(MOST);
            let (chunk, after) = rest.split_at(size);
            rest = after;
            settle(&mut answers, chunk, statement(kept, &of(appends, chunk)).await);
        }
    }
    let missing = || Err(StoreError::Unavailable("no answer for an append of the batch".into()).into());
    answers.into_iter().map(|answer| answer.unwrap_or_else(missing)).collect()
}

/// Cuts a batch so that no part names a session twice: the later ones build on the earlier. Nearly always there is one part.
fn waves(appends: &[Arc<Append>], order: Vec<usize>) -> Vec<Vec<usize>> {
    let mut waves: Vec<Vec<usize>> = Vec::new();
    let mut last = None;
    let mut nth = 0;
    for index in order {
        let session = appends.get(index).map(|append| (&append.tenant, append.session));
        nth = if session == last { nth + 1 } else { 0 };
        last = session;
        match waves.get_mut(nth) {
            Some(wave) => wave.push(index),
            None => waves.push(vec![index]),
        }
    }
    waves
}

fn of<'a>(appends: &'a [Arc<Append>], chunk: &[usize]) -> Vec<&'a Arc<Append>> {
    chunk.iter().filter_map(|index| appends.get(*index)).collect()
}

fn settle(answers: &mut [Option<Result<Appended, Refused>>], chunk: &[usize], settled: Vec<Result<Appended, Refused>>) {
    for (index, answer) in chunk.iter().zip(settled) {
        if let Some(place) = answers.get_mut(*index) {
            *place = Some(answer);
        }
    }
}

/// Plain appends in one statement; those that did not fit are told why by the function for single ones.
async fn together(kept: &Kept, appends: &[&Arc<Append>]) -> Vec<Result<Appended, Refused>> {
    let applied = match plain::append(kept, appends).await {
        Ok(applied) => applied,
        Err(Refused::Failed(error)) if error.is_retryable() => return all_again(&error, appends.len()),
        Err(_) => vec![false; appends.len()],
    };
    let mut answers = Vec::with_capacity(appends.len());
    for (one, applied) in appends.iter().zip(applied) {
        answers.push(if applied {
            let rows = u64::try_from(one.rows.len()).unwrap_or(u64::MAX);
            Ok(Appended::Ok { head: one.expected_head.saturating_add(rows) })
        } else {
            append(kept, one).await
        });
    }
    answers
}

/// Unknown outcome or full storage: one by one would only say the same more slowly.
fn all_again(error: &StoreError, count: usize) -> Vec<Result<Appended, Refused>> {
    (0..count).map(|_| Err(again(error).into())).collect()
}

async fn statement(kept: &Kept, appends: &[&Arc<Append>]) -> Vec<Result<Appended, Refused>> {
    if appends.len() > 1 {
        let query = sqlx::query(AssertSqlSafe(sql(appends.len())));
        let query = appends.iter().fold(query, |query, append| bind(query, append));
        match kept.fetch_all(query).await.map_err(refused) {
            Ok(rows) if rows.len() == appends.len() => return rows.iter().map(appended).collect(),
            Err(Refused::Failed(error)) if error.is_retryable() => return all_again(&error, appends.len()),
            Ok(_) | Err(_) => {}
        }
    }
    let mut answers = Vec::with_capacity(appends.len());
    for one in appends {
        answers.push(append(kept, one).await);
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
