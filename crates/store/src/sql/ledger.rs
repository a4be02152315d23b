//! `Ledger` on an SQL database. What is not here: postings (`postgres`, `sqlite`), where the two differ.

use async_trait::async_trait;
use toolgate_core::id::{SessionId, TenantId};
use toolgate_core::time::Timestamp;

use crate::error::StoreError;
use crate::ledger::{Ledger, Posting, Reservation, Reserved, Settlement, Usage, UsageCursor};
use crate::page::{page, page_limit};
use crate::session::Page;
use crate::sql::cells::Cells;
use crate::sql::{Database, SqlStore, values};

#[async_trait]
impl<D: Database> Ledger for SqlStore<D> {
    async fn reserve(&self, reservation: &Reservation) -> Result<Reserved, StoreError> {
        self.database.post(Posting::reserving(reservation)?).await
    }

    async fn settle(
        &self,
        tenant: &TenantId,
        session: SessionId,
        settlements: &[Settlement],
        at: Timestamp,
    ) -> Result<(), StoreError> {
        let posting = Posting::settling(tenant, session, settlements, at)?;
        if posting.settle.is_empty() {
            return Ok(());
        }
        self.database.post(posting).await.map(drop)
    }

    async fn usage(
        &self,
        tenant: &TenantId,
        after: Option<&UsageCursor>,
        limit: u32,
    ) -> Result<Page<Usage, UsageCursor>, StoreError> {
        let limit = page_limit(limit);
        let sql = "SELECT counter, window_start, used FROM ledger_counter \
             WHERE tenant = $1 AND (counter, window_start) > ($2, $3) ORDER BY counter, window_start LIMIT $4";
        // No counter has an empty name: everything comes after this.
        let (counter, window) = after.map_or(("", 0), |after| (after.counter.as_str(), after.window_start.as_micros()));
        let bound = values![tenant.as_str(), counter, window, limit.saturating_add(1)];
        let rows = self.database.read(sql, bound).await?;
        let items = rows.iter().map(usage).collect::<Result<Vec<_>, _>>()?;
        Ok(page(items, limit, Usage::cursor))
    }

    async fn ledger_sweep(&self, before: Timestamp, limit: u32) -> Result<u64, StoreError> {
        let limit = page_limit(limit);
        // The charges go with their reservation.
        let sql = "DELETE FROM ledger_reservation WHERE (tenant, session, key) IN ( \
             SELECT tenant, session, key FROM ledger_reservation WHERE settled_at < $1 ORDER BY settled_at LIMIT $2)";
        let reservations = self.database.execute(sql, values![before.as_micros(), limit]).await?;
        let rest = u64::from(limit).saturating_sub(reservations);
        if rest == 0 {
            return Ok(reservations);
        }
        let sql = "DELETE FROM ledger_counter WHERE (tenant, counter, window_start) IN ( \
             SELECT tenant, counter, window_start FROM ledger_counter WHERE window_start > 0 AND window_start < $1 \
             ORDER BY window_start LIMIT $2)";
        let rest = i64::try_from(rest).unwrap_or(i64::MAX);
        let windows = self.database.execute(sql, values![before.as_micros(), rest]).await?;
        Ok(reservations.saturating_add(windows))
    }
}

fn usage(row: &impl Cells) -> Result<Usage, StoreError> {
    Ok(Usage {
        counter: row.text("counter")?,
        window_start: Timestamp(row.int("window_start")?),
        used: row.count("used")?,
    })
}
