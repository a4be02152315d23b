//! Writes of many sessions with one flush: plain ones in one statement (`plain`), other appends by a statement that calls the
//! function for single appends once for each, other creations one by one. What is not here: gathering them (`lanes`).

use std::fmt::Write as _;

use sqlx::AssertSqlSafe;

use super::append::{VALUES, append, appended, bind, create, refused};
use super::kept::Kept;
use super::plain::{self, is_plain};
use crate::append::{Append, Appended, Created, Write, Wrote};
use crate::error::StoreError;
use crate::sql::Refused;
use crate::sql::failure::again;

/// The most appends of one statement. Batches are cut into powers of two, so that few different statements are prepared.
const MOST: usize = 64;

/// The most plain writes of one statement.
const MOST_PLAIN: usize = 512;

/// Applies several writes: plain ones together, the others in statements of their own. When one of a statement's writes is
/// refused, nothing of that statement was applied, and each is sent by itself.
pub(super) async fn write_many(kept: &Kept, writes: &[Write]) -> Vec<Result<Wrote, Refused>> {
    // All batches lock their sessions in the same order, so that none waits for another in a circle. The sort is stable:
    // writes of one session stay in the order given.
    let mut order: Vec<usize> = (0..writes.len()).collect();
    order.sort_by_key(|index| {
        writes.get(*index).map(Write::append).map(|append| (append.tenant.clone(), append.session))
    });
    let mut answers: Vec<Option<Result<Wrote, Refused>>> = writes.iter().map(|_| None).collect();
    for wave in waves(writes, order) {
        let (plain, others): (Vec<usize>, Vec<usize>) =
            wave.into_iter().partition(|index| writes.get(*index).is_some_and(is_plain));
        for chunk in plain.chunks(MOST_PLAIN) {
            settle(&mut answers, chunk, together(kept, &of(writes, chunk)).await);
        }
        let mut appends = Vec::new();
        for index in others {
            match writes.get(index) {
                Some(Write::Append(append)) => appends.push((index, append.as_ref())),
                Some(Write::Create(new)) => {
                    settle(&mut answers, &[index], vec![create(kept, new).await.map(Wrote::Create)]);
                }
                None => {}
            }
        }
        let mut rest = appends.as_slice();
        while !rest.is_empty() {
            let size = (1 << rest.len().ilog2()).min(MOST);
            let (chunk, after) = rest.split_at(size);
            rest = after;
            let (places, chunk): (Vec<usize>, Vec<&Append>) = chunk.iter().copied().unzip();
            let answered = statement(kept, &chunk).await;
            settle(&mut answers, &places, answered.into_iter().map(|one| one.map(Wrote::Append)).collect());
        }
    }
    let missing = || Err(StoreError::Unavailable("no answer for a write of the batch".into()).into());
    answers.into_iter().map(|answer| answer.unwrap_or_else(missing)).collect()
}

/// Cuts a batch so that no part names a session twice: the later ones build on the earlier. Nearly always there is one part.
fn waves(writes: &[Write], order: Vec<usize>) -> Vec<Vec<usize>> {
    let mut waves: Vec<Vec<usize>> = Vec::new();
    let mut last = None;
    let mut nth = 0;
    for index in order {
        let session = writes.get(index).map(Write::append).map(|append| (&append.tenant, append.session));
        nth = if session == last { nth + 1 } else { 0 };
        last = session;
        match waves.get_mut(nth) {
            Some(wave) => wave.push(index),
            None => waves.push(vec![index]),
        }
    }
    waves
}

fn of<'a>(writes: &'a [Write], chunk: &[usize]) -> Vec<&'a Write> {
    chunk.iter().filter_map(|index| writes.get(*index)).collect()
}

fn settle(answers: &mut [Option<Result<Wrote, Refused>>], chunk: &[usize], settled: Vec<Result<Wrote, Refused>>) {
    for (index, answer) in chunk.iter().zip(settled) {
        if let Some(place) = answers.get_mut(*index) {
            *place = Some(answer);
        }
    }
}

/// Plain writes in one statement; those that did not fit are told why by the functions for single ones.
async fn together(kept: &Kept, writes: &[&Write]) -> Vec<Result<Wrote, Refused>> {
    let applied = match plain::write(kept, writes).await {
        Ok(applied) => applied,
        Err(Refused::Failed(error)) if error.is_retryable() => return all_again(&error, writes.len()),
        Err(refused) => {
            // A rule that one of them breaks is that one's matter. Anything else costs everybody a statement of their own.
            if let Refused::Failed(error @ StoreError::Database(_)) = &refused {
                tracing::error!(%error, "a batch was refused; its writes are sent one by one");
            }
            vec![false; writes.len()]
        }
    };
    let mut answers = Vec::with_capacity(writes.len());
    for (write, applied) in writes.iter().zip(applied) {
        answers.push(match write {
            Write::Append(one) if applied => Ok(Wrote::Append(Appended::Ok { head: head_after(one) })),
            Write::Append(one) => append(kept, one).await.map(Wrote::Append),
            Write::Create(new) if applied => Ok(Wrote::Create(Created::Ok { head: head_after(&new.append) })),
            Write::Create(new) => create(kept, new).await.map(Wrote::Create),
        });
    }
    answers
}

fn head_after(append: &Append) -> u64 {
    append.expected_head.saturating_add(u64::try_from(append.rows.len()).unwrap_or(u64::MAX))
}

/// Unknown outcome or full storage: one by one would only say the same more slowly.
fn all_again<T>(error: &StoreError, count: usize) -> Vec<Result<T, Refused>> {
    (0..count).map(|_| Err(again(error).into())).collect()
}

async fn statement(kept: &Kept, appends: &[&Append]) -> Vec<Result<Appended, Refused>> {
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
