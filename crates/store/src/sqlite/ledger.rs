//! The ledger on SQLite: each posting is one immediate transaction on the one writer connection.

use sqlx::sqlite::{SqlitePool, SqliteRow};
use sqlx::{Connection as _, SqliteConnection};
use toolgate_core::time::Timestamp;

use super::append::{BEGIN, give_back, int};
use super::bound;
use crate::error::StoreError;
use crate::ledger::plan::{Books, Held, Slot};
use crate::ledger::{Posting, Reserved, Settlement, Usage};
use crate::sql::cells::Cells;
use crate::sql::failure::store_error;
use crate::sql::{Value, values};

/// Applies one posting in a transaction of its own.
pub(super) async fn post(pool: &SqlitePool, posting: &Posting) -> Result<Reserved, StoreError> {
    let mut writer = pool.acquire().await.map_err(store_error)?;
    let answer = post_one(&mut writer, posting).await;
    give_back(writer, answer.as_ref().err()).await;
    answer
}

async fn post_one(writer: &mut SqliteConnection, posting: &Posting) -> Result<Reserved, StoreError> {
    let mut tx = writer.begin_with(BEGIN).await.map_err(store_error)?;
    let answer = apply(&mut tx, posting).await?;
    tx.commit().await.map_err(store_error)?;
    Ok(answer)
}

async fn run(conn: &mut SqliteConnection, sql: &'static str, values: Vec<Value>) -> Result<u64, StoreError> {
    bound(sql, values).execute(conn).await.map(|done| done.rows_affected()).map_err(store_error)
}

async fn apply(conn: &mut SqliteConnection, posting: &Posting) -> Result<Reserved, StoreError> {
    let mut books = Books::default();
    let mut settled: Vec<(&Settlement, Vec<Held>)> = Vec::new();
    for settlement in &posting.settle {
        if mark_settled(conn, posting, &settlement.key).await? {
            let held = held(conn, posting, &settlement.key).await?;
            for Held { slot, .. } in &held {
                open(conn, posting, &mut books, slot.clone()).await?;
            }
            settled.push((settlement, held));
        }
    }
    books.settle(settled.iter().map(|(settlement, held)| (*settlement, held.as_slice())))?;
    let answer = reserve(conn, posting, &mut books).await?;
    for usage in books.changed() {
        write(conn, posting, &usage).await?;
    }
    Ok(answer)
}

async fn reserve(conn: &mut SqliteConnection, posting: &Posting, books: &mut Books) -> Result<Reserved, StoreError> {
    let Some(wish) = &posting.reserve else { return Ok(Reserved::Granted) };
    if is_known(conn, posting, &wish.key).await? {
        return Ok(Reserved::Granted);
    }
    for charge in &wish.charges {
        let slot = (charge.counter.clone(), charge.window_start);
        if !books.holds(&slot) {
            open(conn, posting, books, slot).await?;
        }
    }
    let answer = books.reserve(&wish.charges);
    if answer == Reserved::Granted {
        let sql = "INSERT INTO ledger_reservation (tenant, session, key, reserved_at) VALUES ($1, $2, $3, $4)";
        let mut bound = names(posting, &wish.key);
        bound.push(posting.at.as_micros().into());
        run(conn, sql, bound).await?;
        for charge in &wish.charges {
            let sql = "INSERT INTO ledger_charge (tenant, session, key, counter, window_start, amount) \
                 VALUES ($1, $2, $3, $4, $5, $6)";
            let mut bound = names(posting, &wish.key);
            bound.extend(values![charge.counter.as_str(), charge.window_start.as_micros()]);
            bound.push(int(charge.amount));
            run(conn, sql, bound).await?;
        }
    }
    Ok(answer)
}

fn names(posting: &Posting, key: &str) -> Vec<Value> {
    values![posting.tenant.as_str(), posting.session.uuid(), key]
}

/// Marks a reservation settled; `false` when there is none, or it was settled before.
async fn mark_settled(conn: &mut SqliteConnection, posting: &Posting, key: &str) -> Result<bool, StoreError> {
    let sql = "UPDATE ledger_reservation SET settled_at = $4 \
         WHERE tenant = $1 AND session = $2 AND key = $3 AND settled_at IS NULL";
    let mut bound = names(posting, key);
    bound.push(posting.at.as_micros().into());
    Ok(run(conn, sql, bound).await? == 1)
}

async fn is_known(conn: &mut SqliteConnection, posting: &Posting, key: &str) -> Result<bool, StoreError> {
    let sql = "SELECT 1 FROM ledger_reservation WHERE tenant = $1 AND session = $2 AND key = $3";
    let found = bound(sql, names(posting, key)).fetch_optional(conn).await.map_err(store_error)?;
    Ok(found.is_some())
}

async fn held(conn: &mut SqliteConnection, posting: &Posting, key: &str) -> Result<Vec<Held>, StoreError> {
    let sql = "SELECT counter, window_start, amount FROM ledger_charge \
         WHERE tenant = $1 AND session = $2 AND key = $3";
    let rows = bound(sql, names(posting, key)).fetch_all(conn).await.map_err(store_error)?;
    let held = |row: &SqliteRow| {
        let slot = (row.text("counter")?, Timestamp(row.int("window_start")?));
        Ok(Held { slot, amount: row.count("amount")? })
    };
    rows.iter().map(held).collect()
}

/// Reads a counter into the books, if there is one.
async fn open(conn: &mut SqliteConnection, posting: &Posting, books: &mut Books, slot: Slot) -> Result<(), StoreError> {
    let sql = "SELECT used FROM ledger_counter WHERE tenant = $1 AND counter = $2 AND window_start = $3";
    let values = values![posting.tenant.as_str(), slot.0.as_str(), slot.1.as_micros()];
    if let Some(row) = bound(sql, values).fetch_optional(conn).await.map_err(store_error)? {
        books.open(slot, row.count("used")?);
    }
    Ok(())
}

async fn write(conn: &mut SqliteConnection, posting: &Posting, usage: &Usage) -> Result<(), StoreError> {
    let sql = "INSERT INTO ledger_counter (tenant, counter, window_start, used) VALUES ($1, $2, $3, $4) \
         ON CONFLICT (tenant, counter, window_start) DO UPDATE SET used = excluded.used";
    let mut bound = values![posting.tenant.as_str(), usage.counter.as_str(), usage.window_start.as_micros()];
    bound.push(int(usage.used));
    run(conn, sql, bound).await.map(drop)
}
