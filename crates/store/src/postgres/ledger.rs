//! The ledger on PostgreSQL: each posting is one call of a function, in autocommit. The order of the bound values is the
//! order of the function's parameters in `migrations/postgres/0006_ledger.sql`.

use sqlx::postgres::PgRow;

use super::append::int;
use super::kept::Kept;
use crate::error::StoreError;
use crate::ledger::plan::OVERFLOW;
use crate::ledger::{MAX_AMOUNT, Posting, Reserved};
use crate::sql::cells::Cells;
use crate::sql::failure::store_error;

const WRITE: &str = "SELECT outcome, refused_nth, refused_used FROM ledger_write( \
     $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)";

/// How often a posting is sent that the server gave up for the sake of another one.
const TRIES: u32 = 4;

/// Applies one posting.
pub(super) async fn post(kept: &Kept, posting: &Posting) -> Result<Reserved, StoreError> {
    let mut tries = 1;
    loop {
        match write(kept, posting).await {
            Ok(row) => return answer(&row, posting),
            // The server took everything back, and says that it may be sent again.
            Err(error) if tries < TRIES && gave_way(&error) => tries = tries.saturating_add(1),
            Err(error) => return Err(failed(error)),
        }
    }
}

async fn write(kept: &Kept, posting: &Posting) -> Result<PgRow, sqlx::Error> {
    let settle: Vec<&str> = posting.settle.iter().map(|settlement| settlement.key.as_str()).collect();
    let (mut used_key, mut used_counter, mut used) = (Vec::new(), Vec::new(), Vec::new());
    for settlement in &posting.settle {
        for (counter, amount) in &settlement.used {
            used_key.push(settlement.key.as_str());
            used_counter.push(counter.as_str());
            used.push(int(*amount));
        }
    }
    let key = posting.reserve.as_ref().map(|wish| wish.key.as_str());
    let charges = posting.reserve.as_ref().map_or(&[][..], |wish| &wish.charges);
    let query = sqlx::query(WRITE)
        .bind(posting.tenant.as_str())
        .bind(posting.session.uuid())
        .bind(posting.at.as_micros())
        .bind(settle)
        .bind(used_key)
        .bind(used_counter)
        .bind(used)
        .bind(key)
        .bind(charges.iter().map(|charge| charge.counter.as_str()).collect::<Vec<_>>())
        .bind(charges.iter().map(|charge| charge.window_start.as_micros()).collect::<Vec<_>>())
        .bind(charges.iter().map(|charge| int(charge.amount)).collect::<Vec<_>>())
        .bind(charges.iter().map(|charge| int(charge.limit.min(MAX_AMOUNT))).collect::<Vec<_>>());
    kept.fetch_one(query).await
}

fn answer(row: &PgRow, posting: &Posting) -> Result<Reserved, StoreError> {
    let outcome = row.text("outcome")?;
    match outcome.as_str() {
        "granted" => return Ok(Reserved::Granted),
        "refused" => {
            let nth = usize::try_from(row.count("refused_nth")?).ok().and_then(|nth| nth.checked_sub(1));
            let charge = nth.zip(posting.reserve.as_ref()).and_then(|(nth, wish)| wish.charges.get(nth));
            if let Some(charge) = charge {
                return Ok(Reserved::Refused {
                    counter: charge.counter.clone(),
                    used: row.count("refused_used")?,
                    limit: charge.limit,
                });
            }
        }
        _ => {}
    }
    Err(StoreError::Corrupt { place: "the function of the ledger".to_owned(), detail: format!("answer `{outcome}`") })
}

fn code(error: &sqlx::Error) -> String {
    error.as_database_error().and_then(|error| error.code()).unwrap_or_default().into_owned()
}

/// A conflict or a deadlock: nothing of the statement was applied.
fn gave_way(error: &sqlx::Error) -> bool {
    ["40001", "40P01"].contains(&code(error).as_str())
}

fn failed(error: sqlx::Error) -> StoreError {
    match error.as_database_error() {
        Some(database) if database.code().as_deref() == Some("TG008") => {
            StoreError::InvalidAt { place: database.message().to_owned(), rule: OVERFLOW }
        }
        _ => store_error(error),
    }
}
