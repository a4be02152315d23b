//! `Registry` on an SQL database.

use async_trait::async_trait;
use toolgate_core::id::{SessionId, Sha256Digest, TenantId};
use toolgate_core::time::Timestamp;

use crate::error::StoreError;
use crate::event_log::Registry;
use crate::keys::MasterKey;
use crate::limits;
use crate::page::{page, page_limit};
use crate::record::{
    ApiKeyRow, BundleRow, Claimed, IdempotencyClaim, IdempotencyKey, IdempotencyRow, SecurityCursor, SecurityRow,
};
use crate::session::Page;
use crate::sql::{Database, SqlStore, Value, columns, master, values};

fn scope(key: &IdempotencyKey) -> Vec<Value> {
    values![key.tenant.as_str(), key.credential.as_str(), key.route.as_str(), key.key.as_str()]
}

async fn stored(
    database: &impl Database,
    key: &IdempotencyKey,
) -> Result<Option<(Sha256Digest, Option<IdempotencyRow>)>, StoreError> {
    let sql = "SELECT * FROM idempotency WHERE tenant = $1 AND credential = $2 AND route = $3 AND key = $4";
    database.read(sql, scope(key)).await?.first().map(columns::idempotency).transpose()
}

#[async_trait]
impl<D: Database> Registry for SqlStore<D> {
    async fn idempotency_claim(&self, claim: &IdempotencyClaim) -> Result<Claimed, StoreError> {
        limits::claim(claim)?;
        let sql = "INSERT INTO idempotency (tenant, credential, route, key, fingerprint, expires_at) \
             VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (tenant, credential, route, key) DO UPDATE SET \
             fingerprint = excluded.fingerprint, status = NULL, body = NULL, session = NULL, key_id = NULL, \
             expires_at = excluded.expires_at WHERE idempotency.expires_at <= $7";
        let mut bound = scope(&claim.key);
        bound.extend(values![
            claim.fingerprint.as_bytes().as_slice(),
            claim.claimed_until.as_micros(),
            claim.now.as_micros()
        ]);
        // A claim given back between the two statements leaves nothing to read: ask again.
        for _ in 0..3 {
            if self.database.execute(sql, bound.clone()).await? == 1 {
                return Ok(Claimed::New);
            }
            match stored(&self.database, &claim.key).await? {
                Some((fingerprint, _)) if fingerprint != claim.fingerprint => return Ok(Claimed::OtherBody),
                Some((_, Some(answer))) => return Ok(Claimed::Done(Box::new(answer))),
                Some((_, None)) => return Ok(Claimed::InProgress),
                None => {}
            }
        }
        Ok(Claimed::InProgress)
    }

    async fn idempotency_get(&self, key: &IdempotencyKey) -> Result<Option<IdempotencyRow>, StoreError> {
        limits::idempotency_key(key)?;
        Ok(stored(&self.database, key).await?.and_then(|(_, answer)| answer))
    }

    async fn idempotency_put(&self, row: &IdempotencyRow) -> Result<bool, StoreError> {
        limits::idempotency_row(row)?;
        let sql = "INSERT INTO idempotency (tenant, credential, route, key, fingerprint, status, body, session, key_id, \
             expires_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) \
             ON CONFLICT (tenant, credential, route, key) DO UPDATE SET status = excluded.status, body = excluded.body, \
             session = excluded.session, key_id = excluded.key_id, expires_at = excluded.expires_at \
             WHERE idempotency.status IS NULL AND idempotency.fingerprint = excluded.fingerprint";
        let mut bound = scope(&row.key);
        bound.extend(values![
            row.fingerprint.as_bytes().as_slice(),
            row.status,
            row.body.as_slice(),
            row.sealed_under.as_ref().map(|(session, _)| SessionId::uuid(session)),
            row.sealed_under.as_ref().map(|(_, key)| key.as_str()),
            row.expires_at.as_micros(),
        ]);
        Ok(self.database.execute(sql, bound).await? == 1)
    }

    async fn idempotency_release(&self, key: &IdempotencyKey) -> Result<(), StoreError> {
        limits::idempotency_key(key)?;
        let sql = "DELETE FROM idempotency \
             WHERE tenant = $1 AND credential = $2 AND route = $3 AND key = $4 AND status IS NULL";
        self.database.execute(sql, scope(key)).await.map(drop)
    }

    async fn idempotency_sweep(&self, now: Timestamp, limit: u32) -> Result<u64, StoreError> {
        let sql = "DELETE FROM idempotency WHERE (tenant, credential, route, key) IN ( \
             SELECT tenant, credential, route, key FROM idempotency WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2) \
             AND expires_at <= $1";
        self.database.execute(sql, values![now.as_micros(), page_limit(limit)]).await
    }

    async fn bundle_put(&self, tenant: &TenantId, bundle: &BundleRow) -> Result<bool, StoreError> {
        limits::bundle(bundle)?;
        let sql = "INSERT INTO bundle (tenant, digest, body, created_by, created_at) VALUES ($1, $2, $3, $4, $5) \
             ON CONFLICT (tenant, digest) DO NOTHING";
        let bound = values![
            tenant.as_str(),
            bundle.digest.as_bytes().as_slice(),
            bundle.body.as_slice(),
            bundle.created_by.as_str(),
            bundle.created_at.as_micros(),
        ];
        Ok(self.database.execute(sql, bound).await? == 1)
    }

    async fn bundle(&self, tenant: &TenantId, digest: &Sha256Digest) -> Result<Option<BundleRow>, StoreError> {
        let sql = "SELECT * FROM bundle WHERE tenant = $1 AND digest = $2";
        let rows = self.database.read(sql, values![tenant.as_str(), digest.as_bytes().as_slice()]).await?;
        rows.first().map(columns::bundle).transpose()
    }

    async fn bundle_current(&self, tenant: &TenantId) -> Result<Option<BundleRow>, StoreError> {
        let sql = "SELECT b.* FROM bundle_current c JOIN bundle b ON b.tenant = c.tenant AND b.digest = c.digest \
             WHERE c.tenant = $1";
        let rows = self.database.read(sql, values![tenant.as_str()]).await?;
        rows.first().map(columns::bundle).transpose()
    }

    async fn bundle_set_current(
        &self,
        tenant: &TenantId,
        expected: Option<&Sha256Digest>,
        digest: &Sha256Digest,
    ) -> Result<bool, StoreError> {
        if self.bundle(tenant, digest).await?.is_none() {
            return Err(StoreError::Invalid("the bundle is not stored"));
        }
        let mut bound = values![tenant.as_str(), digest.as_bytes().as_slice()];
        let sql = match expected {
            None => "INSERT INTO bundle_current (tenant, digest) VALUES ($1, $2) ON CONFLICT (tenant) DO NOTHING",
            Some(expected) => {
                bound.push(expected.as_bytes().as_slice().into());
                "UPDATE bundle_current SET digest = $2 WHERE tenant = $1 AND digest = $3"
            }
        };
        Ok(self.database.execute(sql, bound).await? == 1)
    }

    async fn api_key_put(&self, key: &ApiKeyRow) -> Result<bool, StoreError> {
        limits::api_key(key)?;
        let sql = "INSERT INTO api_key (key_id, tenant, secret_digest, actor, scopes, label, created_at, expires_at, \
             revoked_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (key_id) DO NOTHING";
        let bound = values![
            key.key_id.as_str(),
            key.tenant.as_str(),
            key.secret_digest.as_bytes().as_slice(),
            key.actor.as_str(),
            key.scopes.join(" "),
            key.label.as_str(),
            key.created_at.as_micros(),
            key.expires_at.map(Timestamp::as_micros),
            key.revoked_at.map(Timestamp::as_micros),
        ];
        Ok(self.database.execute(sql, bound).await? == 1)
    }

    async fn api_key_find(&self, key_id: &str) -> Result<Option<ApiKeyRow>, StoreError> {
        if !limits::is_token(key_id) {
            return Ok(None);
        }
        let rows = self.database.read("SELECT * FROM api_key WHERE key_id = $1", values![key_id]).await?;
        rows.first().map(columns::api_key).transpose()
    }

    async fn api_key_list(
        &self,
        tenant: &TenantId,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Page<ApiKeyRow, String>, StoreError> {
        let sql = "SELECT * FROM api_key WHERE tenant = $1 AND key_id > $2 ORDER BY key_id LIMIT $3";
        let limit = page_limit(limit);
        let bound = values![tenant.as_str(), after.unwrap_or_default(), limit.saturating_add(1)];
        let rows = self.database.read(sql, bound).await?;
        let items = rows.iter().map(columns::api_key).collect::<Result<Vec<_>, _>>()?;
        Ok(page(items, limit, |row| row.key_id.clone()))
    }

    async fn api_key_revoke(&self, tenant: &TenantId, key_id: &str, at: Timestamp) -> Result<bool, StoreError> {
        if !limits::is_token(key_id) {
            return Ok(false);
        }
        let sql = "UPDATE api_key SET revoked_at = coalesce(revoked_at, $3) WHERE tenant = $1 AND key_id = $2";
        Ok(self.database.execute(sql, values![tenant.as_str(), key_id, at.as_micros()]).await? == 1)
    }

    async fn security_append(&self, tenant: &TenantId, row: &SecurityRow) -> Result<(), StoreError> {
        limits::security(row)?;
        let sql = "INSERT INTO security_log (tenant, at, id, code, actor, session, detail) \
             VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (tenant, id) DO NOTHING";
        let bound = values![
            tenant.as_str(),
            row.at.as_micros(),
            row.id.as_str(),
            row.code.as_str(),
            row.actor.as_ref().map(|actor| actor.as_str()),
            row.session.map(|session| session.uuid()),
            row.detail.as_slice(),
        ];
        self.database.execute(sql, bound).await.map(drop)
    }

    async fn security_list(
        &self,
        tenant: &TenantId,
        after: Option<&SecurityCursor>,
        limit: u32,
    ) -> Result<Page<SecurityRow, SecurityCursor>, StoreError> {
        let limit = page_limit(limit);
        let sql = "SELECT * FROM security_log WHERE tenant = $1 AND (at < $2 OR (at = $2 AND id < $3)) \
             ORDER BY at DESC, id DESC LIMIT $4";
        let (at, id) = after.map_or((i64::MAX, ""), |cursor| (cursor.at.as_micros(), cursor.id.as_str()));
        let rows = self.database.read(sql, values![tenant.as_str(), at, id, limit.saturating_add(1)]).await?;
        let items = rows.iter().map(columns::security).collect::<Result<Vec<_>, _>>()?;
        Ok(page(items, limit, |row| SecurityCursor { at: row.at, id: row.id.clone() }))
    }

    async fn check_master(&self, master: &MasterKey) -> Result<(), StoreError> {
        master::check(&self.database, master).await
    }

    async fn ping(&self) -> Result<(), StoreError> {
        self.database.read("SELECT 1 AS one", Vec::new()).await.map(drop)
    }
}
