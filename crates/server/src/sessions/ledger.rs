//! Questions to the tenant's ledger. Its answer is an input of the session; while it cannot be reached, the question is
//! asked again, since without an answer nothing may be spent. What is not here: the counters (the store).

use std::sync::Arc;
use std::time::Duration;

use toolgate_core::event::{Charge, LedgerAnswer, Purpose, Settlement};
use toolgate_core::id::TenantId;
use toolgate_core::input::ReservationAnswer;
use toolgate_core::session::Session;
use toolgate_core::time::Timestamp;
use toolgate_store::{self as store, MAX_SETTLEMENTS, Reservation, Reserved, StoreError};

use super::deps::Deps;

/// First wait before the ledger is asked again; doubles up to the second.
const RETRY_FIRST: Duration = Duration::from_millis(50);
/// Longest wait between questions.
const RETRY_MOST: Duration = Duration::from_secs(2);

/// Asks for a reservation, and settles what the session has yet to settle.
pub(super) fn reserve(
    deps: &Arc<Deps>,
    tenant: &TenantId,
    state: &Session,
    purpose: Purpose,
    charges: &[Charge],
) -> impl Future<Output = ReservationAnswer> + Send + 'static {
    let (deps, at) = (Arc::clone(deps), deps.clock.now());
    let settle: Vec<store::Settlement> = state.unsettled.iter().take(MAX_SETTLEMENTS).map(settlement).collect();
    let settled: Vec<String> = settle.iter().map(|one| one.key.clone()).collect();
    let reservation = Reservation {
        tenant: tenant.clone(),
        session: state.id,
        key: purpose.key(),
        charges: charges.iter().map(|one| charge(one, at)).collect(),
        settle,
        at,
    };
    async move {
        let mut wait = RETRY_FIRST;
        loop {
            match deps.store.reserve(&reservation).await {
                Ok(answer) => return ReservationAnswer { purpose, answer: answered(answer), settled },
                Err(error @ StoreError::InvalidAt { .. }) => {
                    // Asking again would change nothing: what the ledger cannot take is not granted.
                    tracing::error!(session = %reservation.session, %error, "the ledger cannot take a reservation");
                    return lost(purpose, "the ledger cannot take it");
                }
                Err(error) => tracing::warn!(session = %reservation.session, %error, "the ledger is asked again"),
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(RETRY_MOST);
        }
    }
}

/// Tells what was really spent; gives the keys that the ledger has taken.
pub(super) fn settle(
    deps: &Arc<Deps>,
    tenant: &TenantId,
    state: &Session,
    settlements: &[Settlement],
) -> impl Future<Output = Vec<String>> + Send + 'static {
    let (deps, tenant, session) = (Arc::clone(deps), tenant.clone(), state.id);
    let settle: Vec<store::Settlement> = settlements.iter().take(MAX_SETTLEMENTS).map(settlement).collect();
    async move {
        let mut wait = RETRY_FIRST;
        loop {
            match deps.store.settle(&tenant, session, &settle, deps.clock.now()).await {
                Ok(()) => return settle.into_iter().map(|one| one.key).collect(),
                Err(error @ StoreError::InvalidAt { .. }) => {
                    // What was reserved stays counted; telling it again would change nothing.
                    tracing::error!(%session, %error, "the ledger cannot take a settlement");
                    return settle.into_iter().map(|one| one.key).collect();
                }
                Err(error) => tracing::warn!(%session, %error, "the ledger is told again"),
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(RETRY_MOST);
        }
    }
}

/// The question's task broke: that is a refusal, since nothing is known to be granted.
pub(super) fn lost(purpose: Purpose, why: &str) -> ReservationAnswer {
    let answer = LedgerAnswer::Refused { counter: format!("unavailable: {why}"), used: 0, limit: 0 };
    ReservationAnswer { purpose, answer, settled: Vec::new() }
}

fn answered(answer: Reserved) -> LedgerAnswer {
    match answer {
        Reserved::Granted => LedgerAnswer::Granted,
        Reserved::Refused { counter, used, limit } => LedgerAnswer::Refused { counter, used, limit },
    }
}

fn charge(charge: &Charge, at: Timestamp) -> store::Charge {
    store::Charge {
        counter: charge.counter.clone(),
        window_start: window_start(charge.window_ms, at),
        amount: charge.amount,
        limit: charge.limit,
    }
}

/// Windows begin at multiples of their length since 1970.
fn window_start(window_ms: Option<u64>, at: Timestamp) -> Timestamp {
    let length = window_ms.and_then(|ms| i64::try_from(ms).ok()).map_or(0, |ms| ms.saturating_mul(1_000));
    if length <= 0 { Timestamp(0) } else { Timestamp(at.as_micros().div_euclid(length).saturating_mul(length)) }
}

fn settlement(settlement: &Settlement) -> store::Settlement {
    store::Settlement {
        key: settlement.key.clone(),
        used: settlement.used.iter().map(|(counter, used)| (counter.clone(), *used)).collect(),
    }
}
