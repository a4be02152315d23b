//! `EventLog` on an SQL database: answers of writes completed, and all reads. Every list reads in key pages.

use std::sync::Arc;

use async_trait::async_trait;
use toolgate_core::id::{ApprovalId, SessionId, Sha256Digest, TenantId};
use toolgate_core::time::Timestamp;
use uuid::Uuid;

use crate::append::{Append, Appended, Created, NewSession, TakeOver, TakenOver, Write, Wrote};
use crate::error::StoreError;
use crate::event_log::{EventLog, MAX_PAGE_BYTES};
use crate::keys::WrappedKey;
use crate::limits;
use crate::page::{page, page_limit};
use crate::record::{ApprovalCursor, ApprovalRow, ApprovalStatus, Blob, InboxPut, InboxRow, OutboxRow};
use crate::row::Row;
use crate::session::{Page, SessionCursor, SessionFilter, SessionKey, SessionRow, Wanted};
use crate::sql::cells::Cells;
use crate::sql::{Database, Refused, SqlStore, columns, values};

macro_rules! select_session {
    ($rest:literal) => {
        concat!(
            "SELECT s.tenant, s.session, s.alias, s.body_fingerprint, s.bundle, s.created_at, s.epoch, s.owner, ",
            "s.owner_incarnation, s.head_seq, s.head_hash, s.closed, s.status, s.active, s.profile, s.ending, ",
            "s.pending_approvals, s.updated_at, s.next_wake_at, s.title, s.title_key FROM session s ",
            $rest
        )
    };
}

async fn one_session(
    database: &impl Database,
    sql: &'static str,
    values: Vec<super::Value>,
) -> Result<Option<SessionRow>, StoreError> {
    database.read(sql, values).await?.first().map(columns::session).transpose()
}

async fn recorded(
    database: &impl Database,
    tenant: &TenantId,
    session: SessionId,
    input: &str,
) -> Result<Option<u64>, StoreError> {
    let sql = "SELECT seq FROM event WHERE tenant = $1 AND session = $2 AND input_id = $3";
    let rows = database.read(sql, values![tenant.as_str(), session.uuid(), input]).await?;
    rows.first().map(|row| row.count("seq")).transpose()
}

/// Completes the answer to a refused append.
async fn completed(database: &impl Database, append: &Append, refused: Refused) -> Result<Appended, StoreError> {
    match refused {
        Refused::Idempotency => Ok(Appended::IdempotencyConflict),
        Refused::Failed(error) => Err(error),
        Refused::Alias => Err(StoreError::Invalid("an append has no alias")),
        Refused::DuplicateInput => {
            for input in append.rows.iter().filter_map(|row| row.input_id.as_ref()) {
                if let Some(seq) = recorded(database, &append.tenant, append.session, input.as_str()).await? {
                    return Ok(Appended::DuplicateInput { input: input.clone(), seq });
                }
            }
            Err(StoreError::Invalid("two rows of one append record the same input"))
        }
    }
}

/// Completes the answer to a refused creation.
async fn completed_creation(
    database: &impl Database,
    new: &NewSession,
    refused: Refused,
) -> Result<Created, StoreError> {
    match refused {
        Refused::Idempotency => Ok(Created::IdempotencyConflict),
        Refused::Failed(error) => Err(error),
        Refused::DuplicateInput => Err(StoreError::Invalid("two rows of one append record the same input")),
        Refused::Alias => {
            let alias = new.alias.as_deref().unwrap_or_default();
            let existing = session_of_alias(database, &new.append.tenant, alias).await?;
            let Some(existing) = existing else {
                return Err(StoreError::Corrupt {
                    place: "index `session_alias`".to_owned(),
                    detail: "alias taken by no session".to_owned(),
                });
            };
            let same_body = existing.body_fingerprint == new.body_fingerprint;
            Ok(Created::AliasExists { session: existing.session, same_body })
        }
    }
}

async fn session_of_alias(
    database: &impl Database,
    tenant: &TenantId,
    alias: &str,
) -> Result<Option<SessionRow>, StoreError> {
    if !limits::is_token(alias) {
        return Ok(None);
    }
    let sql = select_session!("WHERE s.tenant = $1 AND s.alias = $2");
    one_session(database, sql, values![tenant.as_str(), alias]).await
}

#[async_trait]
impl<D: Database> EventLog for SqlStore<D> {
    async fn create_session(&self, new: Arc<NewSession>) -> Result<Created, StoreError> {
        limits::new_session(&new)?;
        match self.database.create(Arc::clone(&new)).await {
            Ok(created) => Ok(created),
            Err(refused) => completed_creation(&self.database, &new, refused).await,
        }
    }

    async fn append(&self, append: Arc<Append>) -> Result<Appended, StoreError> {
        limits::append(&append)?;
        match self.database.append(Arc::clone(&append)).await {
            Ok(appended) => Ok(appended),
            Err(refused) => completed(&self.database, &append, refused).await,
        }
    }

    async fn write_many(&self, writes: Vec<Write>) -> Vec<Result<Wrote, StoreError>> {
        let check = |write: &Write| match write {
            Write::Append(append) => limits::append(append),
            Write::Create(new) => limits::new_session(new),
        };
        let checks: Vec<_> = writes.iter().map(check).collect();
        let sound = writes.iter().zip(&checks).filter(|(_, check)| check.is_ok()).map(|(write, _)| write.clone());
        let mut answers = self.database.write_many(sound.collect()).await.into_iter();
        let mut all = Vec::with_capacity(writes.len());
        for (write, check) in writes.iter().zip(checks) {
            let answer = match check {
                Err(error) => Err(error),
                Ok(()) => match (answers.next(), write) {
                    (Some(Ok(wrote)), _) => Ok(wrote),
                    (Some(Err(refused)), Write::Append(append)) => {
                        completed(&self.database, append, refused).await.map(Wrote::Append)
                    }
                    (Some(Err(refused)), Write::Create(new)) => {
                        completed_creation(&self.database, new, refused).await.map(Wrote::Create)
                    }
                    (None, _) => Err(StoreError::Unavailable("no answer for a write of the batch".into())),
                },
            };
            all.push(answer);
        }
        all
    }

    async fn take_over(&self, take_over: Arc<TakeOver>) -> Result<TakenOver, StoreError> {
        limits::take_over(&take_over)?;
        self.database.take_over(take_over).await
    }

    async fn release(&self, tenant: &TenantId, session: SessionId, epoch: u64) -> Result<bool, StoreError> {
        let sql = "UPDATE session SET owner = NULL, owner_incarnation = NULL WHERE tenant = $1 AND session = $2 AND epoch = $3";
        let epoch = i64::try_from(epoch).map_err(|_| StoreError::Invalid("epoch out of range"))?;
        Ok(self.database.execute(sql, values![tenant.as_str(), session.uuid(), epoch]).await? == 1)
    }

    async fn session(&self, tenant: &TenantId, session: SessionId) -> Result<Option<SessionRow>, StoreError> {
        let sql = select_session!("WHERE s.tenant = $1 AND s.session = $2");
        one_session(&self.database, sql, values![tenant.as_str(), session.uuid()]).await
    }

    async fn session_by_alias(&self, tenant: &TenantId, alias: &str) -> Result<Option<SessionRow>, StoreError> {
        session_of_alias(&self.database, tenant, alias).await
    }

    async fn list_sessions(
        &self,
        tenant: &TenantId,
        filter: &SessionFilter,
        after: Option<SessionCursor>,
        limit: u32,
    ) -> Result<Page<SessionRow, SessionCursor>, StoreError> {
        // The open ends are bound as the ends of the range, so that one plan serves all and starts at the cursor.
        let sql = select_session!(
            "WHERE s.tenant = $1 AND (s.created_at, s.session) < ($2, $3) AND s.created_at >= $4 AND s.created_at < $5 \
             AND ($6 IS NULL OR s.status = $6) AND ($7 IS NULL OR s.profile = $7) \
             ORDER BY s.created_at DESC, s.session DESC LIMIT $8"
        );
        let limit = page_limit(limit);
        let (time, key) = after.map_or((i64::MAX, Uuid::max()), |c| (c.created_at.as_micros(), c.session.uuid()));
        let rows = self
            .database
            .read(
                sql,
                values![
                    tenant.as_str(),
                    time,
                    key,
                    filter.created_from.map_or(i64::MIN, Timestamp::as_micros),
                    filter.created_before.map_or(i64::MAX, Timestamp::as_micros),
                    filter.status.as_deref(),
                    filter.profile.as_ref().map(|profile| profile.as_str()),
                    limit.saturating_add(1),
                ],
            )
            .await?;
        let items = rows.iter().map(columns::session).collect::<Result<Vec<_>, _>>()?;
        Ok(page(items, limit, |row| SessionCursor { created_at: row.created_at, session: row.session }))
    }

    async fn open_sessions(
        &self,
        wanted: &Wanted,
        after: Option<&SessionKey>,
        limit: u32,
    ) -> Result<Page<SessionRow, SessionKey>, StoreError> {
        let limit = page_limit(limit);
        let (tenant, key) = after.map_or(("", Uuid::nil()), |key| (key.tenant.as_str(), key.session.uuid()));
        let mut bound = values![tenant, key, limit.saturating_add(1)];
        let sql = match wanted {
            Wanted::Active => {
                select_session!(
                    "WHERE s.active AND (s.tenant, s.session) > ($1, $2) ORDER BY s.tenant, s.session LIMIT $3"
                )
            }
            Wanted::Due(now) => {
                bound.push(now.as_micros().into());
                select_session!(
                    "WHERE s.next_wake_at <= $4 AND (s.tenant, s.session) > ($1, $2) ORDER BY s.tenant, s.session LIMIT $3"
                )
            }
            Wanted::Inbox => select_session!(
                "JOIN (SELECT DISTINCT i.tenant, i.session FROM inbox i WHERE i.answered_at IS NULL AND (i.tenant, i.session) > ($1, $2) \
                 ORDER BY i.tenant, i.session LIMIT $3) w ON w.tenant = s.tenant AND w.session = s.session \
                 ORDER BY s.tenant, s.session"
            ),
        };
        let rows = self.database.read(sql, bound).await?;
        let items = rows.iter().map(columns::session).collect::<Result<Vec<_>, _>>()?;
        Ok(page(items, limit, |row| SessionKey { tenant: row.tenant.clone(), session: row.session }))
    }

    async fn read(
        &self,
        tenant: &TenantId,
        session: SessionId,
        after_seq: u64,
        limit: u32,
    ) -> Result<Vec<Row>, StoreError> {
        let sql = "SELECT seq, epoch, kind, run, step, call, decision, allow, dispatch_attempt, terminal, input_id, \
             recorded_at, header, payload, prev_hash, hash FROM ( \
               SELECT p.*, sum(octet_length(p.header) + octet_length(p.payload)) OVER (ORDER BY p.seq) AS bytes, \
                   row_number() OVER (ORDER BY p.seq) AS nth \
               FROM (SELECT * FROM event WHERE tenant = $1 AND session = $2 AND seq > $3 ORDER BY seq LIMIT $4) p \
             ) q WHERE nth = 1 OR bytes <= $5 ORDER BY seq";
        let Ok(after_seq) = i64::try_from(after_seq) else {
            return Ok(Vec::new());
        };
        let bytes = i64::try_from(MAX_PAGE_BYTES).unwrap_or(i64::MAX);
        let values = values![tenant.as_str(), session.uuid(), after_seq, page_limit(limit), bytes];
        self.database.read(sql, values).await?.iter().map(columns::event).collect()
    }

    async fn blob(
        &self,
        tenant: &TenantId,
        session: SessionId,
        digest: &Sha256Digest,
    ) -> Result<Option<Blob>, StoreError> {
        let sql = "SELECT digest, key_id, body FROM blob WHERE tenant = $1 AND session = $2 AND digest = $3";
        let values = values![tenant.as_str(), session.uuid(), digest.as_bytes().as_slice()];
        self.database.read(sql, values).await?.first().map(columns::blob).transpose()
    }

    async fn session_keys(&self, tenant: &TenantId, session: SessionId) -> Result<Vec<WrappedKey>, StoreError> {
        let sql = "SELECT key_id, wrapped FROM content_key WHERE tenant = $1 AND session = $2 ORDER BY key_id";
        let rows = self.database.read(sql, values![tenant.as_str(), session.uuid()]).await?;
        rows.iter().map(columns::wrapped_key).collect()
    }

    async fn list_approvals(
        &self,
        tenant: &TenantId,
        status: Option<ApprovalStatus>,
        after: Option<&ApprovalCursor>,
        limit: u32,
    ) -> Result<Page<ApprovalRow, ApprovalCursor>, StoreError> {
        let limit = page_limit(limit);
        let (time, key, id) = after
            .map_or((i64::MAX, Uuid::max(), ""), |c| (c.requested_at.as_micros(), c.session.uuid(), c.id.as_str()));
        let mut bound = values![tenant.as_str(), time, key, id, limit.saturating_add(1)];
        let sql = match status {
            None => {
                "SELECT * FROM approval WHERE tenant = $1 AND (requested_at, session, approval) < ($2, $3, $4) \
                 ORDER BY requested_at DESC, session DESC, approval DESC LIMIT $5"
            }
            Some(status) => {
                bound.push(status.as_str().into());
                "SELECT * FROM approval WHERE tenant = $1 AND (requested_at, session, approval) < ($2, $3, $4) \
                 AND status = $6 ORDER BY requested_at DESC, session DESC, approval DESC LIMIT $5"
            }
        };
        let rows = self.database.read(sql, bound).await?;
        let items = rows.iter().map(columns::approval).collect::<Result<Vec<_>, _>>()?;
        Ok(page(items, limit, |row| ApprovalCursor {
            requested_at: row.requested_at,
            session: row.session,
            id: row.id.clone(),
        }))
    }

    async fn approval(&self, tenant: &TenantId, id: &ApprovalId) -> Result<Option<ApprovalRow>, StoreError> {
        let sql = "SELECT * FROM approval WHERE tenant = $1 AND approval = $2";
        let rows = self.database.read(sql, values![tenant.as_str(), id.as_str()]).await?;
        rows.first().map(columns::approval).transpose()
    }

    async fn inbox_put(&self, tenant: &TenantId, session: SessionId, row: InboxRow) -> Result<InboxPut, StoreError> {
        limits::inbox(&row)?;
        let sql = "INSERT INTO inbox (tenant, session, input_id, received_at, fingerprint, key_id, body) \
             SELECT $1, $2, $3, $4, $5, $6, $7 \
             WHERE EXISTS (SELECT 1 FROM session s WHERE s.tenant = $1 AND s.session = $2) \
             AND NOT EXISTS (SELECT 1 FROM event e WHERE e.tenant = $1 AND e.session = $2 AND e.input_id = $3) \
             ON CONFLICT (tenant, session, input_id) DO UPDATE SET received_at = excluded.received_at, \
             fingerprint = excluded.fingerprint, key_id = excluded.key_id, body = excluded.body, answer = NULL, \
             answer_key = NULL, answered_at = NULL WHERE inbox.answered_at IS NOT NULL";
        let bound = values![
            tenant.as_str(),
            session.uuid(),
            row.id.as_str(),
            row.received_at.as_micros(),
            row.fingerprint.as_bytes().as_slice(),
            row.body.key.as_str(),
            row.body.bytes.as_slice(),
        ];
        // The owner may consume the waiting row between the two statements; then the second look or the next round tells.
        for _ in 0..3 {
            if self.database.execute(sql, bound.clone()).await? == 1 {
                return Ok(InboxPut::Ok);
            }
            let waiting = "SELECT fingerprint FROM inbox WHERE tenant = $1 AND session = $2 AND input_id = $3";
            let waiting =
                self.database.read(waiting, values![tenant.as_str(), session.uuid(), row.id.as_str()]).await?;
            if let Some(waiting) = waiting.first() {
                let same_body = waiting.hash("fingerprint")? == *row.fingerprint.as_bytes();
                return Ok(InboxPut::Waiting { same_body });
            }
            if let Some(seq) = recorded(&self.database, tenant, session, row.id.as_str()).await? {
                return Ok(InboxPut::Recorded { seq });
            }
            if self.session(tenant, session).await?.is_none() {
                return Err(StoreError::NoSuchSession);
            }
        }
        Err(StoreError::Unavailable("the inbox changes too fast".into()))
    }

    async fn inbox_list(&self, tenant: &TenantId, session: SessionId, limit: u32) -> Result<Vec<InboxRow>, StoreError> {
        let sql = "SELECT input_id, received_at, fingerprint, key_id, body FROM inbox \
             WHERE tenant = $1 AND session = $2 AND answered_at IS NULL ORDER BY received_at, input_id LIMIT $3";
        let rows = self.database.read(sql, values![tenant.as_str(), session.uuid(), page_limit(limit)]).await?;
        rows.iter().map(columns::inbox).collect()
    }

    async fn outbox_due(&self, now: Timestamp, limit: u32) -> Result<Vec<(SessionKey, OutboxRow)>, StoreError> {
        let sql = "SELECT * FROM outbox WHERE due_at <= $1 ORDER BY due_at LIMIT $2";
        let rows = self.database.read(sql, values![now.as_micros(), page_limit(limit)]).await?;
        rows.iter().map(|row| Ok((columns::session_key(row)?, columns::outbox(row)?))).collect()
    }

    async fn outbox_done(&self, key: &SessionKey, id: &str) -> Result<(), StoreError> {
        let sql = "DELETE FROM outbox WHERE tenant = $1 AND session = $2 AND id = $3";
        self.database.execute(sql, values![key.tenant.as_str(), key.session.uuid(), id]).await.map(drop)
    }

    async fn outbox_postpone(&self, key: &SessionKey, id: &str, due_at: Timestamp) -> Result<(), StoreError> {
        let sql =
            "UPDATE outbox SET attempts = attempts + 1, due_at = $4 WHERE tenant = $1 AND session = $2 AND id = $3";
        let values = values![key.tenant.as_str(), key.session.uuid(), id, due_at.as_micros()];
        self.database.execute(sql, values).await.map(drop)
    }
}
