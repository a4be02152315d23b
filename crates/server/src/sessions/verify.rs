//! Strict verification of a stored session: chain and head first, then every recorded input decided again, then the
//! invariants, which are told from the log without the code that decides. What is not here: the rules (core's `verify` and
//! `invariants`), the chain (the store's `chain`).

use std::sync::Arc;

use tokio::sync::Semaphore;
use toolgate_core::bundle::Bundle;
use toolgate_core::event::Recorded;
use toolgate_core::id::{SessionId, TenantId};
use toolgate_core::session::Session;
use toolgate_core::{fold, invariants};
use toolgate_store::chain::{Checker, Head};
use toolgate_store::{Codec, CodecError, MasterKey, Row, SessionRow, Snapshot, Store};

use super::load::open_codec;
use super::{Bundles, VerifyFault, VerifyReport};
use crate::failure::Failure;

/// Rows asked for at once.
const PAGE: u32 = 512;
/// Times the log is read on because it has grown meanwhile.
const TRIES: u32 = 16;

/// Verifications at once. Each decides a whole log again, which may take a core for seconds.
static AT_ONCE: Semaphore = Semaphore::const_new(2);

/// A log and what it is checked against; a chain is checked also where its content cannot be opened.
struct Stored {
    tenant: TenantId,
    session: SessionRow,
    rows: Vec<Row>,
    codec: Result<Codec, Failure>,
    bundle: Result<Arc<Bundle>, Failure>,
    snapshot: Option<Snapshot>,
}

/// Verifies one session as it is stored now. The work is done on a thread of its own, so that the server's others go on.
pub(super) async fn verify(
    store: &dyn Store,
    master: &MasterKey,
    bundles: &Bundles,
    tenant: &TenantId,
    id: SessionId,
) -> Result<VerifyReport, Failure> {
    let permit = AT_ONCE.acquire().await.map_err(|_| Failure::Busy)?;
    let (session, rows) = whole_log(store, tenant, id).await?;
    let codec = open_codec(store, master, tenant, id).await;
    let bundle = bundles.get(store, tenant, session.bundle).await;
    let snapshot = store.snapshot(tenant, id).await?;
    let stored = Stored { tenant: tenant.clone(), session, rows, codec, bundle, snapshot };
    let checked = tokio::task::spawn_blocking(move || {
        let report = stored.check();
        // Whoever asked may be gone; the place is free only when the work is done.
        drop(permit);
        report
    });
    checked.await.unwrap_or_else(|error| Err(Failure::Internal(format!("the verification did not end: {error}"))))
}

impl Stored {
    fn check(self) -> Result<VerifyReport, Failure> {
        let events = self.rows.len() as u64;
        let report = |redecided, redacted, fault| VerifyReport { events, redecided, redacted, fault };
        let mut checker = Checker::new(&self.tenant, self.session.session);
        let head = Head { seq: self.session.head_seq, hash: self.session.head_hash };
        let chain = self.rows.iter().try_for_each(|row| checker.row(row)).and_then(|()| checker.finish(&head));
        if let Err(broken) = chain {
            let fault = VerifyFault::Chain { seq: broken.seq, detail: broken.to_string() };
            return Ok(report(0, Vec::new(), Some(fault)));
        }
        let codec = self.codec?;
        let mut log = Vec::with_capacity(self.rows.len());
        for row in &self.rows {
            match codec.decode(row) {
                Ok(recorded) => log.push(recorded),
                Err(CodecError::Erased { seq }) => {
                    return Ok(report(0, Vec::new(), Some(VerifyFault::Erased { seq })));
                }
                Err(error) => {
                    let fault = VerifyFault::Chain { seq: row.seq, detail: error.to_string() };
                    return Ok(report(0, Vec::new(), Some(fault)));
                }
            }
        }
        if let Some(seq) = self.snapshot.as_ref().and_then(|snapshot| strayed(snapshot, &codec, &self.rows, &log)) {
            let detail = format!("the state kept for row {seq} is not the one that the log tells");
            return Ok(report(0, Vec::new(), Some(VerifyFault::Chain { seq, detail })));
        }
        let bundle = self.bundle?;
        Ok(match toolgate_core::verify(self.session.session, &log, &bundle) {
            Ok(verified) => {
                let fault = invariants::check(self.session.session, &log, &bundle).err().map(VerifyFault::Invariant);
                report(verified.redecided, verified.redacted, fault)
            }
            Err(divergence) => report(0, Vec::new(), Some(VerifyFault::Decision(divergence))),
        })
    }
}

/// The row after which a snapshot would have the session go on in another state than the log; none where it agrees or would
/// not be used.
fn strayed(snapshot: &Snapshot, codec: &Codec, rows: &[Row], log: &[Recorded]) -> Option<u64> {
    let place = usize::try_from(snapshot.seq).ok()?;
    let is_used = rows.get(place.checked_sub(1)?)?.hash == snapshot.hash;
    let kept = codec.restore(snapshot).filter(|_| is_used)?;
    let mut told = Session::new(kept.id);
    for recorded in log.get(..place)? {
        fold(&mut told, recorded);
    }
    (told != kept).then_some(snapshot.seq)
}

/// All rows and the head row that belongs to them, also while the session goes on being written.
async fn whole_log(store: &dyn Store, tenant: &TenantId, id: SessionId) -> Result<(SessionRow, Vec<Row>), Failure> {
    let mut rows: Vec<Row> = Vec::new();
    let mut tries = 0;
    loop {
        loop {
            let after = rows.last().map_or(0, |row| row.seq);
            let page = store.read(tenant, id, after, PAGE).await?;
            if page.is_empty() {
                break;
            }
            rows.extend(page);
        }
        // Read after the rows: a head behind them is no race but a fault.
        let session = store.session(tenant, id).await?.ok_or(Failure::NoSuchSession)?;
        let last = rows.last().map_or(0, |row| row.seq);
        tries += 1;
        if last >= session.head_seq || tries >= TRIES {
            return Ok((session, rows));
        }
    }
}
