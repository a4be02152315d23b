//! `Cluster` on an SQL database. Leases are judged by the clock of the database alone.

use std::time::Duration;

use async_trait::async_trait;
use toolgate_core::id::{InputId, SessionId, TenantId};
use toolgate_core::time::Timestamp;
use uuid::Uuid;

use crate::append::Sealed;
use crate::cluster::{Cluster, Fate, HandOver, HandOverState, Hints, KEPT_FOR_ASKER, NodeStart, Renewed};
use crate::error::StoreError;
use crate::limits;
use crate::name::{NodeId, NodeIdentity};
use crate::page::page_limit;
use crate::record::{InboxRow, NodeRow};
use crate::session::SessionKey;
use crate::sql::cells::{Cells, corrupt};
use crate::sql::{Database, SqlStore, Value, columns, values};

fn us(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

fn number(number: u64, what: &'static str) -> Result<i64, StoreError> {
    i64::try_from(number).map_err(|_| StoreError::Invalid(what))
}

/// A life of a node, and its number.
fn life(identity: &NodeIdentity) -> Result<Vec<Value>, StoreError> {
    Ok(values![identity.node.as_str(), number(identity.incarnation, "incarnation out of range")?])
}

/// Sessions as one JSON text, the only list that both databases take.
fn listed<'a>(sessions: impl Iterator<Item = (&'a SessionKey, u64)>) -> String {
    let list: Vec<_> = sessions.map(|(key, n)| (key.tenant.as_str(), key.session.uuid().to_string(), n)).collect();
    // Texts and numbers serialize; the fallback cannot be reached.
    serde_json::to_string(&list).unwrap_or_else(|_| "[]".to_owned())
}

fn place(key: &SessionKey) -> Vec<Value> {
    values![key.tenant.as_str(), key.session.uuid()]
}

#[async_trait]
impl<D: Database> Cluster for SqlStore<D> {
    async fn node_start(&self, start: &NodeStart) -> Result<NodeIdentity, StoreError> {
        limits::version(&start.version)?;
        let bound = values![start.node.as_str(), us(start.ttl), false, start.protocol, start.version.as_str()];
        let rows = self.database.write(D::STATEMENTS.start, bound).await?;
        let row = rows.first().ok_or_else(|| StoreError::Unavailable("no incarnation came back".into()))?;
        Ok(NodeIdentity { node: start.node.clone(), incarnation: row.count("incarnation")? })
    }

    async fn node_renew(&self, identity: &NodeIdentity, ttl: Duration) -> Result<Option<Renewed>, StoreError> {
        let mut bound = life(identity)?;
        bound.push(us(ttl).into());
        let rows = self.database.at_once(D::STATEMENTS.renew, bound).await?;
        rows.first().map(|row| Ok(Renewed { draining: row.flag("draining")? })).transpose()
    }

    async fn node_leave(&self, identity: &NodeIdentity) -> Result<(), StoreError> {
        self.database.execute(D::STATEMENTS.leave, life(identity)?).await.map(drop)
    }

    async fn node_drain(&self, node: &NodeId, draining: bool) -> Result<bool, StoreError> {
        let sql = "UPDATE node SET draining = $2 WHERE node = $1";
        Ok(self.database.execute(sql, values![node.as_str(), draining]).await? == 1)
    }

    async fn nodes(&self, limit: u32) -> Result<Vec<NodeRow>, StoreError> {
        let rows = self.database.at_once(D::STATEMENTS.nodes, values![page_limit(limit)]).await?;
        rows.iter().map(columns::node).collect()
    }

    async fn sessions_owned(&self) -> Result<Vec<(NodeIdentity, u64)>, StoreError> {
        let sql = "SELECT owner, owner_incarnation, count(*) AS sessions FROM session \
             WHERE owner IS NOT NULL GROUP BY owner, owner_incarnation ORDER BY owner, owner_incarnation";
        let rows = self.database.read(sql, Vec::new()).await?;
        let owned = rows.iter().map(|row| {
            let node = NodeId::new(&row.text("owner")?).map_err(|error| corrupt("owner", error))?;
            Ok((NodeIdentity { node, incarnation: row.count("owner_incarnation")? }, row.count("sessions")?))
        });
        owned.collect()
    }

    async fn owned_by(
        &self,
        me: &NodeIdentity,
        after: Option<&SessionKey>,
        limit: u32,
    ) -> Result<Vec<(SessionKey, u64)>, StoreError> {
        let sql = "SELECT tenant, session, epoch FROM session WHERE owner = $1 AND owner_incarnation = $2 \
             AND (tenant, session) > ($3, $4) ORDER BY tenant, session LIMIT $5";
        let (tenant, session) = after.map_or(("", Uuid::nil()), |key| (key.tenant.as_str(), key.session.uuid()));
        let mut bound = life(me)?;
        bound.extend(values![tenant, session, page_limit(limit)]);
        let rows = self.database.read(sql, bound).await?;
        rows.iter().map(|row| Ok((columns::session_key(row)?, row.count("epoch")?))).collect()
    }

    async fn active_of(
        &self,
        me: &NodeId,
        after: Option<&SessionKey>,
        limit: u32,
    ) -> Result<Vec<SessionKey>, StoreError> {
        let sql = "SELECT tenant, session FROM session WHERE active AND owner = $1 \
             AND (tenant, session) > ($2, $3) ORDER BY tenant, session LIMIT $4";
        let (tenant, session) = after.map_or(("", Uuid::nil()), |key| (key.tenant.as_str(), key.session.uuid()));
        let bound = values![me.as_str(), tenant, session, page_limit(limit)];
        self.database.read(sql, bound).await?.iter().map(columns::session_key).collect()
    }

    async fn orphans(&self, me: &NodeId, now: Timestamp, limit: u32) -> Result<Vec<SessionKey>, StoreError> {
        let bound = values![me.as_str(), now.as_micros(), page_limit(limit), us(KEPT_FOR_ASKER)];
        self.database.read(D::STATEMENTS.orphans, bound).await?.iter().map(columns::session_key).collect()
    }

    async fn due_of(&self, me: &NodeIdentity, now: Timestamp, limit: u32) -> Result<Vec<SessionKey>, StoreError> {
        let sql = "SELECT tenant, session FROM session WHERE next_wake_at <= $3 AND owner = $1 AND owner_incarnation = $2 \
             ORDER BY next_wake_at LIMIT $4";
        let mut bound = life(me)?;
        bound.extend(values![now.as_micros(), page_limit(limit)]);
        self.database.read(sql, bound).await?.iter().map(columns::session_key).collect()
    }

    async fn release_many(&self, sessions: &[(SessionKey, u64)]) -> Result<u64, StoreError> {
        if sessions.is_empty() {
            return Ok(0);
        }
        let list = listed(sessions.iter().map(|(key, epoch)| (key, *epoch)));
        self.database.execute(D::STATEMENTS.release, values![list]).await
    }

    async fn inbox_of(&self, me: &NodeIdentity, limit: u32) -> Result<Vec<(SessionKey, InboxRow)>, StoreError> {
        let sql = "SELECT i.tenant, i.session, i.input_id, i.received_at, i.fingerprint, i.key_id, i.body FROM inbox i \
             JOIN session s ON s.tenant = i.tenant AND s.session = i.session \
             WHERE i.answered_at IS NULL AND s.owner = $1 AND s.owner_incarnation = $2 \
             ORDER BY i.received_at, i.input_id LIMIT $3";
        let mut bound = life(me)?;
        bound.push(page_limit(limit).into());
        let rows = self.database.read(sql, bound).await?;
        rows.iter().map(|row| Ok((columns::session_key(row)?, columns::inbox(row)?))).collect()
    }

    async fn inbox_answer(
        &self,
        key: &SessionKey,
        epoch: u64,
        input: &InputId,
        answer: &Sealed,
        at: Timestamp,
    ) -> Result<bool, StoreError> {
        limits::answer(answer)?;
        let sql = "UPDATE inbox SET answer = $5, answer_key = $6, answered_at = $7 \
             WHERE tenant = $1 AND session = $2 AND input_id = $3 AND answered_at IS NULL AND EXISTS \
             (SELECT 1 FROM session s WHERE s.tenant = $1 AND s.session = $2 AND s.epoch = $4)";
        let mut bound = place(key);
        bound.extend(values![
            input.as_str(),
            number(epoch, "epoch out of range")?,
            answer.bytes.as_slice(),
            answer.key.as_str(),
            at.as_micros(),
        ]);
        Ok(self.database.execute(sql, bound).await? == 1)
    }

    async fn inbox_fate(&self, tenant: &TenantId, session: SessionId, input: &InputId) -> Result<Fate, StoreError> {
        // An input that was refused may be in the log all the same; then the refusal is the answer.
        let sql = "SELECT i.answered_at, i.answer, i.answer_key, NULL AS seq FROM inbox i \
             WHERE i.tenant = $1 AND i.session = $2 AND i.input_id = $3 \
             UNION ALL SELECT NULL, NULL, NULL, e.seq FROM event e \
             WHERE e.tenant = $1 AND e.session = $2 AND e.input_id = $3";
        let rows = self.database.read(sql, values![tenant.as_str(), session.uuid(), input.as_str()]).await?;
        let mut fate = Fate::Unknown;
        for row in &rows {
            match (row.maybe_int("seq")?, columns::answer(row)?) {
                (_, Some(answer)) => return Ok(Fate::Answered(answer)),
                (Some(_), None) if fate == Fate::Unknown => fate = Fate::Recorded { seq: row.count("seq")? },
                (Some(_), None) => {}
                (None, None) => fate = Fate::Waiting,
            }
        }
        Ok(fate)
    }

    async fn inbox_sweep(&self, before: Timestamp, limit: u32) -> Result<u64, StoreError> {
        let sql = "DELETE FROM inbox WHERE (tenant, session, input_id) IN (SELECT tenant, session, input_id FROM inbox \
             WHERE answered_at < $1 ORDER BY answered_at LIMIT $2) AND answered_at < $1";
        self.database.execute(sql, values![before.as_micros(), page_limit(limit)]).await
    }

    async fn heads(&self, sessions: &[SessionKey]) -> Result<Vec<(SessionKey, u64)>, StoreError> {
        if sessions.is_empty() {
            return Ok(Vec::new());
        }
        let list = listed(sessions.iter().map(|key| (key, 0)));
        let rows = self.database.read(D::STATEMENTS.heads, values![list]).await?;
        rows.iter().map(|row| Ok((columns::session_key(row)?, row.count("head_seq")?))).collect()
    }

    async fn hand_over_ask(&self, key: &SessionKey, to: &NodeId) -> Result<(), StoreError> {
        let mut bound = place(key);
        bound.extend(values![to.as_str(), false]);
        match self.database.execute(D::STATEMENTS.ask, bound).await? {
            0 => Err(StoreError::NoSuchSession),
            _ => Ok(()),
        }
    }

    async fn hand_over_state(&self, key: &SessionKey, to: &NodeId) -> Result<HandOverState, StoreError> {
        let sql = "SELECT refused FROM hand_over WHERE tenant = $1 AND session = $2 AND node = $3";
        let mut bound = place(key);
        bound.push(to.as_str().into());
        Ok(match self.database.read(sql, bound).await?.first() {
            None => HandOverState::Gone,
            Some(row) if row.flag("refused")? => HandOverState::Refused,
            Some(_) => HandOverState::Waiting,
        })
    }

    async fn hand_overs_of(&self, me: &NodeIdentity, limit: u32) -> Result<Vec<HandOver>, StoreError> {
        let sql = "SELECT h.tenant, h.session, h.node FROM hand_over h \
             JOIN session s ON s.tenant = h.tenant AND s.session = h.session \
             WHERE NOT h.refused AND s.owner = $1 AND s.owner_incarnation = $2 AND h.node <> $1 ORDER BY h.asked_at LIMIT $3";
        let mut bound = life(me)?;
        bound.push(page_limit(limit).into());
        self.database.read(sql, bound).await?.iter().map(columns::hand_over).collect()
    }

    async fn hand_over_refuse(&self, request: &HandOver) -> Result<(), StoreError> {
        let sql = "UPDATE hand_over SET refused = $4 WHERE tenant = $1 AND session = $2 AND node = $3";
        let mut bound = place(&request.key);
        bound.extend(values![request.to.as_str(), true]);
        self.database.execute(sql, bound).await.map(drop)
    }

    async fn hand_over_withdraw(&self, key: &SessionKey, to: &NodeId) -> Result<(), StoreError> {
        let sql = "DELETE FROM hand_over WHERE tenant = $1 AND session = $2 AND node = $3";
        let mut bound = place(key);
        bound.push(to.as_str().into());
        self.database.execute(sql, bound).await.map(drop)
    }

    async fn hint(&self, nodes: &[NodeId]) -> Result<(), StoreError> {
        self.database.hint(nodes.to_vec()).await
    }

    async fn hints(&self, me: &NodeId) -> Result<Option<Box<dyn Hints>>, StoreError> {
        self.database.hints(me.clone()).await
    }
}
