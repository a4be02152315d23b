//! Writing the log on SQLite: one immediate transaction each, on the one writer connection.

use std::sync::LazyLock;

use sqlx::pool::PoolConnection;
use sqlx::sqlite::SqlitePool;
use sqlx::{Connection as _, SqliteConnection};

use super::bound;
use crate::append::{Append, Appended, Created, NewSession, TakeOver, TakenOver, Write, Wrote};
use crate::chain::GENESIS;
use crate::error::{Guard, StoreError};
use crate::fence::{Fence, Standing, judge};
use crate::row::{AFTER_CLOSE, Row, SESSION_CLOSED};
use crate::sql::cells::Cells;
use crate::sql::failure::{Failure, again, meaning, store_error};
use crate::sql::{Refused, Value, values};

pub(super) const BEGIN: &str = "BEGIN IMMEDIATE";

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::DuplicateInput => Self::DuplicateInput,
            Failure::Idempotency => Self::Idempotency,
            Failure::Store(error) => Self::Failed(error),
        }
    }
}

fn failed(error: sqlx::Error) -> Refused {
    meaning(error).into()
}

pub(super) fn int(number: u64) -> Value {
    // `limits` refused larger numbers before.
    Value::Int(Some(i64::try_from(number).unwrap_or(i64::MAX)))
}

async fn run(conn: &mut SqliteConnection, sql: &'static str, values: Vec<Value>) -> Result<u64, Refused> {
    bound(sql, values).execute(conn).await.map(|done| done.rows_affected()).map_err(failed)
}

/// Gives the writer back, or throws it away after a failure of the database. When the disk is full or broken, SQLite ends
/// the transaction by itself; the driver, which counts transactions, would then refuse every later one.
pub(super) async fn give_back(writer: PoolConnection<sqlx::Sqlite>, failure: Option<&StoreError>) {
    if failure.is_some_and(may_have_ended_the_transaction) {
        // The failure itself is what the caller hears of.
        let _ = writer.close().await;
    }
}

const fn may_have_ended_the_transaction(error: &StoreError) -> bool {
    !matches!(
        error,
        StoreError::NoSuchSession
            | StoreError::Guard(_)
            | StoreError::TooLarge { .. }
            | StoreError::Invalid(_)
            | StoreError::InvalidAt { .. }
    )
}

fn failure<T>(answer: &Result<T, Refused>) -> Option<&StoreError> {
    match answer {
        Err(Refused::Failed(error)) => Some(error),
        Ok(_) | Err(Refused::DuplicateInput | Refused::Idempotency | Refused::Alias) => None,
    }
}

/// Applies one append in a transaction of its own.
pub(super) async fn append(pool: &SqlitePool, append: &Append) -> Result<Appended, Refused> {
    let mut writer = pool.acquire().await.map_err(failed)?;
    let answer = append_one(&mut writer, append).await;
    give_back(writer, failure(&answer)).await;
    answer
}

async fn append_one(writer: &mut SqliteConnection, append: &Append) -> Result<Appended, Refused> {
    let mut tx = writer.begin_with(BEGIN).await.map_err(failed)?;
    let answer = apply(&mut tx, append).await?;
    tx.commit().await.map_err(failed)?;
    Ok(answer)
}

/// Applies several writes in one transaction, so that they share one flush.
pub(super) async fn write_many(pool: &SqlitePool, writes: &[Write]) -> Vec<Result<Wrote, Refused>> {
    let mut writer = match pool.acquire().await.map_err(store_error) {
        Ok(writer) => writer,
        Err(error) => return writes.iter().map(|_| Err(again(&error).into())).collect(),
    };
    let answers = match smooth(&mut writer, writes).await {
        Ok(None) => one_by_one(&mut writer, writes).await,
        Ok(Some(answers)) => Ok(answers),
        Err(error) => Err(error),
    };
    give_back(writer, answers.as_ref().err()).await;
    match answers {
        Ok(answers) => answers,
        Err(error) => writes.iter().map(|_| Err(again(&error).into())).collect(),
    }
}

/// The batch as it nearly always is: nothing in it is refused. Nothing is applied if one is.
async fn smooth(
    writer: &mut SqliteConnection,
    writes: &[Write],
) -> Result<Option<Vec<Result<Wrote, Refused>>>, StoreError> {
    let mut tx = writer.begin_with(BEGIN).await.map_err(store_error)?;
    let mut answers = Vec::with_capacity(writes.len());
    for write in writes {
        match apply_write(&mut tx, write).await {
            Ok(answer) => answers.push(Ok(answer)),
            // The whole batch is lost with its transaction.
            Err(Refused::Failed(error)) if may_have_ended_the_transaction(&error) => return Err(error),
            Err(_) => {
                tx.rollback().await.map_err(store_error)?;
                return Ok(None);
            }
        }
    }
    tx.commit().await.map_err(store_error)?;
    Ok(Some(answers))
}

/// Each write behind its own savepoint, so that one that is refused leaves the others alone.
async fn one_by_one(
    writer: &mut SqliteConnection,
    writes: &[Write],
) -> Result<Vec<Result<Wrote, Refused>>, StoreError> {
    let mut tx = writer.begin_with(BEGIN).await.map_err(store_error)?;
    let mut answers = Vec::with_capacity(writes.len());
    for write in writes {
        sqlx::query("SAVEPOINT one").execute(&mut *tx).await.map_err(store_error)?;
        let answer = match apply_write(&mut tx, write).await {
            // The whole batch is lost with its transaction.
            Err(Refused::Failed(error)) if may_have_ended_the_transaction(&error) => return Err(error),
            answer => answer,
        };
        if answer.is_err() {
            sqlx::query("ROLLBACK TO one").execute(&mut *tx).await.map_err(store_error)?;
        }
        sqlx::query("RELEASE one").execute(&mut *tx).await.map_err(store_error)?;
        answers.push(answer);
    }
    tx.commit().await.map_err(store_error)?;
    Ok(answers)
}

async fn apply_write(conn: &mut SqliteConnection, write: &Write) -> Result<Wrote, Refused> {
    Ok(match write {
        Write::Append(append) => Wrote::Append(apply(conn, append).await?),
        Write::Create(new) => Wrote::Create(create_in(conn, new).await?),
    })
}

/// Creates a session and applies its first append.
pub(super) async fn create(pool: &SqlitePool, new: &NewSession) -> Result<Created, Refused> {
    let mut writer = pool.acquire().await.map_err(failed)?;
    let answer = create_one(&mut writer, new).await;
    give_back(writer, failure(&answer)).await;
    answer
}

async fn create_one(writer: &mut SqliteConnection, new: &NewSession) -> Result<Created, Refused> {
    let mut tx = writer.begin_with(BEGIN).await.map_err(failed)?;
    let answer = create_in(&mut tx, new).await?;
    tx.commit().await.map_err(failed)?;
    Ok(answer)
}

async fn create_in(conn: &mut SqliteConnection, new: &NewSession) -> Result<Created, Refused> {
    let append = &new.append;
    if let Some(standing) = standing(conn, append).await? {
        // The reply to the first attempt may have been lost long ago: compare the first rows whatever came after them.
        return Ok(if stands(conn, append).await? {
            Created::Already { head: standing.head_seq }
        } else {
            Created::SessionExists
        });
    }
    let sql = "INSERT INTO session (tenant, session, alias, body_fingerprint, bundle, created_at, epoch, owner, \
         owner_incarnation, head_seq, head_hash, closed, status, active, pending_approvals, updated_at) \
         VALUES ($1, $2, $3, $4, $5, $6, 1, $7, $8, 0, $9, 0, '', 0, 0, $6) ON CONFLICT DO NOTHING";
    let bound = values![
        append.tenant.as_str(),
        append.session.uuid(),
        new.alias.as_deref(),
        new.body_fingerprint.as_bytes().as_slice(),
        new.bundle.as_bytes().as_slice(),
        new.created_at.as_micros(),
        new.owner.node.as_str(),
        int(new.owner.incarnation),
        GENESIS.as_slice(),
    ];
    if run(conn, sql, bound).await? == 0 {
        return Err(Refused::Alias);
    }
    let Appended::Ok { head } = apply(conn, append).await? else {
        return Err(StoreError::Invalid("the first rows do not fit an empty log").into());
    };
    Ok(Created::Ok { head })
}

/// Changes the owner and appends its row.
pub(super) async fn take_over(pool: &SqlitePool, take_over: &TakeOver) -> Result<TakenOver, StoreError> {
    let mut writer = pool.acquire().await.map_err(store_error)?;
    let answer = take_over_one(&mut writer, take_over).await;
    give_back(writer, answer.as_ref().err()).await;
    answer
}

async fn take_over_one(writer: &mut SqliteConnection, take_over: &TakeOver) -> Result<TakenOver, StoreError> {
    let TakeOver { tenant, session, owner, row } = take_over;
    let mut tx = writer.begin_with(BEGIN).await.map_err(store_error)?;
    let sql = "UPDATE session SET epoch = $3, owner = $4, owner_incarnation = $5, head_seq = $6, head_hash = $7, \
         updated_at = $8 WHERE tenant = $1 AND session = $2 AND epoch = $3 - 1 AND head_seq = $6 - 1 \
         AND head_hash = $9 AND NOT closed AND NOT EXISTS (SELECT 1 FROM node n WHERE n.node = session.owner \
         AND n.incarnation = session.owner_incarnation AND n.node <> $4 \
         AND n.lease_until > CAST(unixepoch('subsec') * 1000000 AS INTEGER))";
    let values = values![
        tenant.as_str(),
        session.uuid(),
        int(row.epoch),
        owner.node.as_str(),
        int(owner.incarnation),
        int(row.seq),
        row.hash.as_slice(),
        row.recorded_at.as_micros(),
        row.prev_hash.as_slice(),
    ];
    let changed = bound(sql, values).execute(&mut *tx).await.map_err(store_error)?.rows_affected();
    if changed == 1 {
        insert(&mut tx, tenant.as_str(), session.uuid(), std::slice::from_ref(row)).await.map_err(only_store_error)?;
        let asked = "DELETE FROM hand_over WHERE tenant = $1 AND session = $2";
        bound(asked, values![tenant.as_str(), session.uuid()]).execute(&mut *tx).await.map_err(store_error)?;
        tx.commit().await.map_err(store_error)?;
        return Ok(TakenOver::Ok { head: row.seq, epoch: row.epoch });
    }
    let sql = "SELECT s.epoch, s.head_seq, s.head_hash, s.closed, EXISTS (SELECT 1 FROM event e WHERE e.tenant = $1 AND e.session = $2 \
         AND e.seq = $3 AND e.epoch = $4 AND e.hash = $5 AND e.header = $6 AND e.payload = $7) \
         AND s.epoch = $4 AND s.owner = $8 AND s.owner_incarnation = $9 AS same \
         FROM session s WHERE s.tenant = $1 AND s.session = $2";
    let values = values![
        tenant.as_str(),
        session.uuid(),
        int(row.seq),
        int(row.epoch),
        row.hash.as_slice(),
        row.header.as_slice(),
        row.payload.as_slice(),
        owner.node.as_str(),
        int(owner.incarnation),
    ];
    let found = bound(sql, values).fetch_optional(&mut *tx).await.map_err(store_error)?;
    let Some(found) = found else { return Err(StoreError::NoSuchSession) };
    let (head, epoch) = (found.count("head_seq")?, found.count("epoch")?);
    if found.maybe_int("same")? == Some(1) {
        Ok(TakenOver::Already { head, epoch })
    } else if found.flag("closed")? {
        Err(StoreError::Guard(Guard::SessionClosed))
    } else if epoch.checked_add(1) == Some(row.epoch)
        && head.checked_add(1) == Some(row.seq)
        && found.hash("head_hash")? == row.prev_hash
    {
        Ok(TakenOver::Owned { head, epoch })
    } else {
        Ok(TakenOver::Stale { head, epoch })
    }
}

fn only_store_error(refused: Refused) -> StoreError {
    match refused {
        Refused::Failed(error) => error,
        Refused::DuplicateInput | Refused::Idempotency | Refused::Alias => StoreError::Invalid("a key exists already"),
    }
}

async fn standing(conn: &mut SqliteConnection, append: &Append) -> Result<Option<Standing>, Refused> {
    let sql = "SELECT epoch, head_seq, head_hash, closed FROM session WHERE tenant = $1 AND session = $2";
    let row = bound(sql, values![append.tenant.as_str(), append.session.uuid()]).fetch_optional(conn).await;
    let Some(row) = row.map_err(failed)? else { return Ok(None) };
    Ok(Some(Standing {
        epoch: row.count("epoch")?,
        head_seq: row.count("head_seq")?,
        head_hash: row.hash("head_hash")?,
        closed: row.flag("closed")?,
    }))
}

/// Whether the very bytes of these rows stand in their places.
async fn stands(conn: &mut SqliteConnection, append: &Append) -> Result<bool, Refused> {
    for row in &append.rows {
        let sql = "SELECT 1 AS one FROM event WHERE tenant = $1 AND session = $2 AND seq = $3 AND epoch = $4 \
             AND hash = $5 AND header = $6 AND payload = $7";
        let values = values![
            append.tenant.as_str(),
            append.session.uuid(),
            int(row.seq),
            int(row.epoch),
            row.hash.as_slice(),
            row.header.as_slice(),
            row.payload.as_slice(),
        ];
        if bound(sql, values).fetch_optional(&mut *conn).await.map_err(failed)?.is_none() {
            return Ok(false);
        }
    }
    Ok(!append.rows.is_empty())
}

async fn apply(conn: &mut SqliteConnection, append: &Append) -> Result<Appended, Refused> {
    if !move_head(conn, append).await? {
        return unfit(conn, append).await;
    }
    insert(conn, append.tenant.as_str(), append.session.uuid(), &append.rows).await?;
    if append.rows.iter().any(|row| row.kind == SESSION_CLOSED) {
        // Behind the rows: a trigger lets nothing but late facts into a session that is closed.
        let sql = "UPDATE session SET closed = 1 WHERE tenant = $1 AND session = $2";
        run(conn, sql, values![append.tenant.as_str(), append.session.uuid()]).await?;
    }
    beside(conn, append).await?;
    let rows = u64::try_from(append.rows.len()).unwrap_or(u64::MAX);
    Ok(Appended::Ok { head: append.expected_head.saturating_add(rows) })
}

/// Moves the session on, if it stands where the append expects it: the comparison of [`judge`], in the one statement that
/// changes the row.
async fn move_head(conn: &mut SqliteConnection, append: &Append) -> Result<bool, Refused> {
    let (first, last) = (append.rows.first(), append.rows.last());
    let late = append.rows.iter().all(|row| AFTER_CLOSE.contains(&row.kind.as_str()));
    let now = &append.projection;
    let sql = "UPDATE session SET head_seq = $3, head_hash = coalesce($4, head_hash), status = $5, active = $6, \
         profile = $7, ending = $8, pending_approvals = $9, updated_at = $10, next_wake_at = $11, title = $12, title_key = $13 \
         WHERE tenant = $1 AND session = $2 AND epoch = $14 AND head_seq = $15 AND head_hash = coalesce($16, head_hash) \
         AND (NOT closed OR $17)";
    let values = values![
        append.tenant.as_str(),
        append.session.uuid(),
        int(last.map_or(append.expected_head, |row| row.seq)),
        Value::Bytes(last.map(|row| row.hash.to_vec())),
        now.status.as_str(),
        now.active,
        now.profile.as_ref().map(|profile| profile.as_str()),
        now.ending.as_deref(),
        now.pending_approvals,
        now.updated_at.as_micros(),
        now.next_wake_at.map(|at| at.as_micros()),
        Value::Bytes(now.title.as_ref().map(|title| title.bytes.clone())),
        now.title.as_ref().map(|title| title.key.as_str()),
        int(append.epoch),
        int(append.expected_head),
        Value::Bytes(first.map(|row| row.prev_hash.to_vec())),
        late,
    ];
    Ok(run(conn, sql, values).await? == 1)
}

/// Why an append does not fit its session.
async fn unfit(conn: &mut SqliteConnection, append: &Append) -> Result<Appended, Refused> {
    let Some(standing) = standing(conn, append).await? else {
        return Err(StoreError::NoSuchSession.into());
    };
    match judge(&standing, append) {
        Fence::Open => Err(StoreError::Invalid("an append that fits its session was not applied").into()),
        Fence::Fenced => Ok(Appended::Fenced { epoch: standing.epoch }),
        Fence::Closed => Err(StoreError::Guard(Guard::SessionClosed).into()),
        Fence::Moved if stands(conn, append).await? => Ok(Appended::Already { head: standing.head_seq }),
        Fence::Moved => Ok(Appended::Stale { head: standing.head_seq }),
    }
}

/// Rows of one statement at most: few different statements are prepared, and the bound values stay within SQLite's limit.
const ROWS_AT_ONCE: usize = 8;
/// Values of one row.
const COLUMNS: usize = 18;

async fn insert(conn: &mut SqliteConnection, tenant: &str, session: uuid::Uuid, rows: &[Row]) -> Result<(), Refused> {
    for rows in rows.chunks(ROWS_AT_ONCE) {
        let Some(sql) = rows.len().checked_sub(1).and_then(|place| INSERTS.get(place)) else { continue };
        let mut bound = Vec::with_capacity(rows.len() * COLUMNS);
        for row in rows {
            bound.extend(values![
                tenant,
                session,
                int(row.seq),
                int(row.epoch),
                row.kind.as_str(),
                row.run.map(i64::from),
                row.step.map(i64::from),
                row.call.as_ref().map(|call| call.as_str()),
                row.marks.decision,
                row.marks.allow,
                row.marks.dispatch_attempt.map(i64::from),
                row.marks.terminal,
                row.input_id.as_ref().map(|input| input.as_str()),
                row.recorded_at.as_micros(),
                row.header.as_slice(),
                row.payload.as_slice(),
                row.prev_hash.as_slice(),
                row.hash.as_slice(),
            ]);
        }
        run(conn, sql, bound).await?;
    }
    Ok(())
}

/// The statements that insert 1, 2, ... rows.
static INSERTS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let statement = |rows: usize| {
        let row = format!("({})", vec!["?"; COLUMNS].join(", "));
        format!(
            "INSERT INTO event (tenant, session, seq, epoch, kind, run, step, call, decision, allow, dispatch_attempt, \
             terminal, input_id, recorded_at, header, payload, prev_hash, hash) VALUES {}",
            vec![row; rows].join(", ")
        )
    };
    (1..=ROWS_AT_ONCE).map(statement).collect()
});

/// Writes what stands beside the log.
async fn beside(conn: &mut SqliteConnection, append: &Append) -> Result<(), Refused> {
    let (tenant, session) = (append.tenant.as_str(), append.session.uuid());
    for input in &append.consumed_inbox {
        let sql = "DELETE FROM inbox WHERE tenant = $1 AND session = $2 AND input_id = $3";
        run(conn, sql, values![tenant, session, input.as_str()]).await?;
    }
    if let Some(row) = &append.idempotency {
        let sql = "INSERT INTO idempotency (tenant, credential, route, key, fingerprint, status, body, session, key_id, \
             expires_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) \
             ON CONFLICT (tenant, credential, route, key) DO UPDATE SET status = excluded.status, body = excluded.body, \
             session = excluded.session, key_id = excluded.key_id, expires_at = excluded.expires_at \
             WHERE idempotency.status IS NULL AND idempotency.fingerprint = excluded.fingerprint";
        let values = values![
            tenant,
            row.key.credential.as_str(),
            row.key.route.as_str(),
            row.key.key.as_str(),
            row.fingerprint.as_bytes().as_slice(),
            row.status,
            row.body.as_slice(),
            row.sealed_under.as_ref().map(|(session, _)| session.uuid()),
            row.sealed_under.as_ref().map(|(_, key)| key.as_str()),
            row.expires_at.as_micros(),
        ];
        if run(conn, sql, values).await? == 0 {
            return Err(Refused::Idempotency);
        }
    }
    for key in &append.new_keys {
        let sql = "INSERT INTO content_key (tenant, session, key_id, wrapped) VALUES ($1, $2, $3, $4)";
        run(conn, sql, values![tenant, session, key.id.as_str(), key.wrapped.as_slice()]).await?;
    }
    for key in &append.destroyed_keys {
        let sql = "DELETE FROM content_key WHERE tenant = $1 AND session = $2 AND key_id = $3";
        run(conn, sql, values![tenant, session, key.as_str()]).await?;
    }
    for blob in &append.blobs {
        let sql = "INSERT INTO blob (tenant, session, digest, key_id, body) VALUES ($1, $2, $3, $4, $5) \
             ON CONFLICT (tenant, session, digest) DO NOTHING";
        let digest = blob.digest.as_bytes().as_slice();
        let (key, body) = (blob.content.key.as_str(), blob.content.bytes.as_slice());
        run(conn, sql, values![tenant, session, digest, key, body]).await?;
    }
    for row in &append.approvals {
        let sql = "INSERT INTO approval (tenant, session, approval, call, status, requested_at, expires_at, settled_at, \
             settled_by, key_id, body) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) \
             ON CONFLICT (tenant, session, approval) DO UPDATE SET call = excluded.call, status = excluded.status, \
             requested_at = excluded.requested_at, expires_at = excluded.expires_at, settled_at = excluded.settled_at, \
             settled_by = excluded.settled_by, key_id = excluded.key_id, body = excluded.body";
        let values = values![
            tenant,
            session,
            row.id.as_str(),
            row.call.as_str(),
            row.status.as_str(),
            row.requested_at.as_micros(),
            row.expires_at.map(|at| at.as_micros()),
            row.settled_at.map(|at| at.as_micros()),
            row.settled_by.as_ref().map(|actor| actor.as_str()),
            row.body.key.as_str(),
            row.body.bytes.as_slice(),
        ];
        run(conn, sql, values).await?;
    }
    for row in &append.outbox {
        let sql = "INSERT INTO outbox (tenant, session, id, kind, body, key_id, attempts, due_at) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (tenant, session, id) DO NOTHING";
        let key = row.key.as_ref().map(|key| key.as_str());
        let (id, kind, body) = (row.id.as_str(), row.kind.as_str(), row.body.as_slice());
        run(conn, sql, values![tenant, session, id, kind, body, key, row.attempts, row.due_at.as_micros()]).await?;
    }
    for row in &append.security {
        let sql = "INSERT INTO security_log (tenant, at, id, code, actor, session, detail) \
             VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (tenant, id) DO NOTHING";
        let actor = row.actor.as_ref().map(|actor| actor.as_str());
        let within = row.session.map(|session| session.uuid());
        let (at, id, code) = (row.at.as_micros(), row.id.as_str(), row.code.as_str());
        run(conn, sql, values![tenant, at, id, code, actor, within, row.detail.as_slice()]).await?;
    }
    Ok(())
}
