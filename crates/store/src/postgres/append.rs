//! Writing the log on PostgreSQL: each write is one call of a function, in autocommit. The order of the bound values is
//! the order of the functions' parameters in `migrations/postgres/0004_append.sql`.

use sqlx::Postgres as Driver;
use sqlx::postgres::{PgArguments, PgRow};

use super::kept::Kept;
use crate::append::{Append, Appended, Created, NewSession, TakeOver, TakenOver};
use crate::error::StoreError;
use crate::record::{ApprovalRow, OutboxRow, SecurityRow};
use crate::row::Row;
use crate::sql::Refused;
use crate::sql::cells::Cells;
use crate::sql::failure::{Failure, meaning, store_error};

const APPEND: &str = "SELECT outcome, head, at_epoch FROM append( \
     $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, \
     $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, \
     $33, $34, $35, $36, $37, $38, $39, $40, $41, $42, $43, $44, $45, $46, $47, $48, \
     $49, $50, $51, $52, $53, $54, $55, $56, $57, $58, $59, $60, $61, $62)";

const CREATE: &str = "SELECT outcome, head, at_epoch FROM create_session( \
     $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, \
     $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, \
     $33, $34, $35, $36, $37, $38, $39, $40, $41, $42, $43, $44, $45, $46, $47, $48, \
     $49, $50, $51, $52, $53, $54, $55, $56, $57, $58, $59, $60, $61, $62, $63, $64, \
     $65, $66, $67, $68)";

const TAKE_OVER: &str = "SELECT outcome, head, at_epoch FROM take_over( \
     $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)";

/// How many values one append binds.
pub(super) const VALUES: usize = 62;

pub(super) type Query<'q> = sqlx::query::Query<'q, Driver, PgArguments>;

/// Applies one append.
pub(super) async fn append(kept: &Kept, append: &Append) -> Result<Appended, Refused> {
    let answer = kept.fetch_one(bind(sqlx::query(APPEND), append)).await.map_err(refused)?;
    appended(&answer)
}

/// The answer to one append.
pub(super) fn appended(row: &PgRow) -> Result<Appended, Refused> {
    let answer = Answer::read(row)?;
    match answer.outcome.as_str() {
        "ok" => Ok(Appended::Ok { head: answer.head }),
        "already" => Ok(Appended::Already { head: answer.head }),
        "stale" => Ok(Appended::Stale { head: answer.head }),
        "fenced" => Ok(Appended::Fenced { epoch: answer.epoch }),
        _ => Err(answer.unexpected().into()),
    }
}

/// Creates a session and applies its first append.
pub(super) async fn create(kept: &Kept, new: &NewSession) -> Result<Created, Refused> {
    let query = sqlx::query(CREATE)
        .bind(new.alias.as_deref())
        .bind(new.body_fingerprint.as_bytes().as_slice())
        .bind(new.bundle.as_bytes().as_slice())
        .bind(new.created_at.as_micros())
        .bind(new.owner.node.as_str())
        .bind(int(new.owner.incarnation));
    let answer = kept.fetch_one(bind(query, &new.append)).await.map_err(refused)?;
    let answer = Answer::read(&answer)?;
    match answer.outcome.as_str() {
        "ok" => Ok(Created::Ok { head: answer.head }),
        "already" => Ok(Created::Already { head: answer.head }),
        "exists" => Ok(Created::SessionExists),
        "alias" => Err(Refused::Alias),
        _ => Err(answer.unexpected().into()),
    }
}

/// Changes the owner and appends its row.
pub(super) async fn take_over(kept: &Kept, take_over: &TakeOver) -> Result<TakenOver, StoreError> {
    let TakeOver { tenant, session, owner, row } = take_over;
    let query = sqlx::query(TAKE_OVER)
        .bind(tenant.as_str())
        .bind(session.uuid())
        .bind(owner.node.as_str())
        .bind(int(owner.incarnation))
        .bind(int(row.seq))
        .bind(int(row.epoch))
        .bind(row.kind.as_str())
        .bind(row.input_id.as_ref().map(|input| input.as_str()))
        .bind(row.recorded_at.as_micros())
        .bind(row.header.as_slice())
        .bind(row.payload.as_slice())
        .bind(row.prev_hash.as_slice())
        .bind(row.hash.as_slice());
    let answer = kept.fetch_one(query).await.map_err(store_error)?;
    let answer = Answer::read(&answer)?;
    let (head, epoch) = (answer.head, answer.epoch);
    match answer.outcome.as_str() {
        "ok" => Ok(TakenOver::Ok { head, epoch }),
        "already" => Ok(TakenOver::Already { head, epoch }),
        "stale" => Ok(TakenOver::Stale { head, epoch }),
        "owned" => Ok(TakenOver::Owned { head, epoch }),
        _ => Err(answer.unexpected()),
    }
}

struct Answer {
    outcome: String,
    head: u64,
    epoch: u64,
}

impl Answer {
    fn read(row: &PgRow) -> Result<Self, StoreError> {
        let number = |column| {
            Ok::<_, StoreError>(row.maybe_int(column)?.and_then(|n| u64::try_from(n).ok()).unwrap_or_default())
        };
        Ok(Self { outcome: row.text("outcome")?, head: number("head")?, epoch: number("at_epoch")? })
    }

    fn unexpected(self) -> StoreError {
        match self.outcome.as_str() {
            "no_session" => StoreError::NoSuchSession,
            _ => StoreError::Corrupt {
                place: "a function of the log".to_owned(),
                detail: format!("answer `{}`", self.outcome),
            },
        }
    }
}

pub(super) fn refused(error: sqlx::Error) -> Refused {
    match meaning(error) {
        Failure::DuplicateInput => Refused::DuplicateInput,
        Failure::Idempotency => Refused::Idempotency,
        Failure::Store(error) => Refused::Failed(error),
    }
}

pub(super) fn int(number: u64) -> i64 {
    // `limits` refused larger numbers before.
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// One column over many values, as an array.
pub(super) fn column<'q, T, V>(items: &'q [T], value: impl Fn(&'q T) -> V) -> Vec<V> {
    items.iter().map(value).collect()
}

/// Binds the values of one append.
pub(super) fn bind<'q>(query: Query<'q>, append: &'q Append) -> Query<'q> {
    let query = query
        .bind(append.tenant.as_str())
        .bind(append.session.uuid())
        .bind(int(append.epoch))
        .bind(int(append.expected_head));
    let query = bind_outside(bind_projection(bind_rows(query, append.rows.iter()), append), append);
    bind_security(
        bind_content(bind_approvals(bind_outbox(query, &append.outbox), &append.approvals), append),
        &append.security,
    )
}

/// One column over rows.
fn of_each<'q, V>(rows: &[&'q Row], value: impl Fn(&'q Row) -> V) -> Vec<V> {
    rows.iter().map(|row| value(row)).collect()
}

/// The columns of rows, of one append or of many.
pub(super) fn bind_rows<'q>(query: Query<'q>, rows: impl Iterator<Item = &'q Row>) -> Query<'q> {
    let rows: Vec<&'q Row> = rows.collect();
    query
        .bind(of_each(&rows, |row| row.kind.as_str()))
        .bind(of_each(&rows, |row| row.run.map(i64::from)))
        .bind(of_each(&rows, |row| row.step.map(i64::from)))
        .bind(of_each(&rows, |row| row.call.as_ref().map(|call| call.as_str())))
        .bind(of_each(&rows, |row| row.marks.decision))
        .bind(of_each(&rows, |row| row.marks.allow))
        .bind(of_each(&rows, |row| row.marks.dispatch_attempt.map(i64::from)))
        .bind(of_each(&rows, |row| row.marks.terminal))
        .bind(of_each(&rows, |row| row.input_id.as_ref().map(|input| input.as_str())))
        .bind(of_each(&rows, |row| row.recorded_at.as_micros()))
        .bind(of_each(&rows, |row| row.header.as_slice()))
        .bind(of_each(&rows, |row| row.payload.as_slice()))
        .bind(of_each(&rows, |row| row.prev_hash.as_slice()))
        .bind(of_each(&rows, |row| row.hash.as_slice()))
}

fn bind_projection<'q>(query: Query<'q>, append: &'q Append) -> Query<'q> {
    let now = &append.projection;
    query
        .bind(now.status.as_str())
        .bind(now.active)
        .bind(now.profile.as_ref().map(|profile| profile.as_str()))
        .bind(now.ending.as_deref())
        .bind(i64::from(now.pending_approvals))
        .bind(now.updated_at.as_micros())
        .bind(now.next_wake_at.map(|at| at.as_micros()))
        .bind(now.title.as_ref().map(|title| title.bytes.as_slice()))
        .bind(now.title.as_ref().map(|title| title.key.as_str()))
}

/// The inbox and the idempotency key.
fn bind_outside<'q>(query: Query<'q>, append: &'q Append) -> Query<'q> {
    let answer = append.idempotency.as_ref();
    let scope = answer.map(|row| vec![row.key.credential.as_str(), row.key.route.as_str(), row.key.key.as_str()]);
    query
        .bind(column(&append.consumed_inbox, |input| input.as_str()))
        .bind(scope.unwrap_or_default())
        .bind(answer.map(|row| row.fingerprint.as_bytes().as_slice()))
        .bind(answer.map(|row| i64::from(row.status)))
        .bind(answer.map(|row| row.body.as_slice()))
        .bind(answer.and_then(|row| row.sealed_under.as_ref()).map(|(session, _)| session.uuid()))
        .bind(answer.and_then(|row| row.sealed_under.as_ref()).map(|(_, key)| key.as_str()))
        .bind(answer.map(|row| row.expires_at.as_micros()))
}

fn bind_outbox<'q>(query: Query<'q>, rows: &'q [OutboxRow]) -> Query<'q> {
    query
        .bind(column(rows, |row| row.id.as_str()))
        .bind(column(rows, |row| row.kind.as_str()))
        .bind(column(rows, |row| row.body.as_slice()))
        .bind(column(rows, |row| row.key.as_ref().map(|key| key.as_str())))
        .bind(column(rows, |row| i64::from(row.attempts)))
        .bind(column(rows, |row| row.due_at.as_micros()))
}

fn bind_approvals<'q>(query: Query<'q>, rows: &'q [ApprovalRow]) -> Query<'q> {
    query
        .bind(column(rows, |row| row.id.as_str()))
        .bind(column(rows, |row| row.call.as_str()))
        .bind(column(rows, |row| row.status.as_str()))
        .bind(column(rows, |row| row.requested_at.as_micros()))
        .bind(column(rows, |row| row.expires_at.map(|at| at.as_micros())))
        .bind(column(rows, |row| row.settled_at.map(|at| at.as_micros())))
        .bind(column(rows, |row| row.settled_by.as_ref().map(|actor| actor.as_str())))
        .bind(column(rows, |row| row.body.key.as_str()))
        .bind(column(rows, |row| row.body.bytes.as_slice()))
}

/// Blobs and keys.
fn bind_content<'q>(query: Query<'q>, append: &'q Append) -> Query<'q> {
    query
        .bind(column(&append.blobs, |blob| blob.digest.as_bytes().as_slice()))
        .bind(column(&append.blobs, |blob| blob.content.key.as_str()))
        .bind(column(&append.blobs, |blob| blob.content.bytes.as_slice()))
        .bind(column(&append.new_keys, |key| key.id.as_str()))
        .bind(column(&append.new_keys, |key| key.wrapped.as_slice()))
        .bind(column(&append.destroyed_keys, |key| key.as_str()))
}

fn bind_security<'q>(query: Query<'q>, rows: &'q [SecurityRow]) -> Query<'q> {
    query
        .bind(column(rows, |row| row.id.as_str()))
        .bind(column(rows, |row| row.at.as_micros()))
        .bind(column(rows, |row| row.code.as_str()))
        .bind(column(rows, |row| row.actor.as_ref().map(|actor| actor.as_str())))
        .bind(column(rows, |row| row.session.map(|session| session.uuid())))
        .bind(column(rows, |row| row.detail.as_slice()))
}
