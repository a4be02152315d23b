//! The tenant's ledger: limits that hold over many sessions, asked before something is spent and settled afterwards.
//! What is not here: which counters a call is charged to (the policy's work), and recording the answer in a session's log
//! (the server's). How the sums are made is in `ledger::plan`, and for PostgreSQL in its function.

use std::collections::BTreeSet;
use std::fmt::Debug;

use async_trait::async_trait;
use toolgate_core::id::{SessionId, TenantId};
use toolgate_core::time::Timestamp;

use crate::error::StoreError;
use crate::limits::is_token;
use crate::session::Page;

pub(crate) mod plan;

/// Charges of one reservation, and counters of one settlement.
pub const MAX_CHARGES: usize = 32;

/// Settlements in one call.
pub const MAX_SETTLEMENTS: usize = 64;

/// Characters of a counter's name.
pub const MAX_COUNTER: usize = 160;

/// The largest number a counter holds, and the largest amount: 2^63-1.
pub const MAX_AMOUNT: u64 = i64::MAX.unsigned_abs();

/// One counter that something is charged to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Charge {
    /// The counter's name within the tenant: 1 to [`MAX_COUNTER`] characters of `[a-z0-9_.:/-]`.
    pub counter: String,
    /// Where the window begins that the counter counts in; 0 for one that counts for ever. Each window has a sum of its own.
    pub window_start: Timestamp,
    /// What is charged, in the counter's own unit; at most [`MAX_AMOUNT`].
    pub amount: u64,
    /// The most that the counter may hold afterwards, in the same unit. Above [`MAX_AMOUNT`] it bounds nothing.
    pub limit: u64,
}

/// Asks for something to be spent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservation {
    /// Whose counters.
    pub tenant: TenantId,
    /// The session that spends.
    pub session: SessionId,
    /// Names the reservation in its session: 1 to 128 visible ASCII characters. Granted once, it is never charged again.
    pub key: String,
    /// What is charged, all of it or nothing: 1 to [`MAX_CHARGES`], each counter and window once.
    pub charges: Vec<Charge>,
    /// Earlier reservations to settle first, whatever the answer: at most [`MAX_SETTLEMENTS`].
    pub settle: Vec<Settlement>,
    /// The present time.
    pub at: Timestamp,
}

/// What an earlier reservation of the same session really spent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settlement {
    /// The key of that reservation.
    pub key: String,
    /// Counters and what was spent of each, at most [`MAX_AMOUNT`], also where that is more than was reserved. It counts
    /// in the windows of the reservation. A counter that is not named spent nothing; one that was not reserved is ignored.
    pub used: Vec<(String, u64)>,
}

/// The ledger's answer to a reservation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reserved {
    /// All charges count and are durable.
    Granted,
    /// Nothing was charged.
    Refused {
        /// The counter of the first charge that does not fit.
        counter: String,
        /// What the counter held without the charge.
        used: u64,
        /// The limit of the charge.
        limit: u64,
    },
}

/// What one counter holds in one window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage {
    /// The counter.
    pub counter: String,
    /// Where its window begins; 0 for ever.
    pub window_start: Timestamp,
    /// What was spent or is reserved.
    pub used: u64,
}

/// A place in the list of counters: the last one seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageCursor {
    /// The counter.
    pub counter: String,
    /// Its window.
    pub window_start: Timestamp,
}

impl Usage {
    /// Its place in the list.
    pub(crate) fn cursor(&self) -> UsageCursor {
        UsageCursor { counter: self.counter.clone(), window_start: self.window_start }
    }
}

/// What tenants have spent over all their sessions.
///
/// However many sessions ask at once, no grant takes a counter over the limit it was asked with; only a settlement may,
/// when more was spent than was reserved. Every method may be dropped half-way by its caller: a write still runs to its end.
#[async_trait]
pub trait Ledger: Send + Sync + Debug {
    /// Settles earlier reservations, then charges all counters or none. Durable when it answers.
    ///
    /// A key that was granted before is `Granted` again without a charge, so that a caller may ask again after a crash or
    /// after [`StoreError::Unavailable`]. A refusal leaves nothing of the reservation behind; its settlements stay done.
    ///
    /// # Errors
    /// [`StoreError::InvalidAt`] names the field that is wrong, or the counter that a settlement takes over
    /// [`MAX_AMOUNT`]; nothing was applied then.
    async fn reserve(&self, reservation: &Reservation) -> Result<Reserved, StoreError>;

    /// Replaces what was reserved by what was spent. A second settlement and an unknown key change nothing.
    ///
    /// # Errors
    /// As for [`Ledger::reserve`].
    async fn settle(
        &self,
        tenant: &TenantId,
        session: SessionId,
        settlements: &[Settlement],
        at: Timestamp,
    ) -> Result<(), StoreError>;

    /// A tenant's counters by name and window.
    async fn usage(
        &self,
        tenant: &TenantId,
        after: Option<&UsageCursor>,
        limit: u32,
    ) -> Result<Page<Usage, UsageCursor>, StoreError>;

    /// Forgets, over all tenants and at most `limit` together, reservations settled before `before`, and windows that began
    /// before it; how many went. A settled key that is forgotten would be charged anew, and a forgotten window counts
    /// from 0: `before` must be further back than the longest window and the longest time until a caller asks again.
    /// Counters without a window and reservations that were never settled stay.
    async fn ledger_sweep(&self, before: Timestamp, limit: u32) -> Result<u64, StoreError>;
}

/// One write to the ledger, checked: settlements, and perhaps a reservation.
#[derive(Debug, Clone)]
pub(crate) struct Posting {
    pub(crate) tenant: TenantId,
    pub(crate) session: SessionId,
    pub(crate) settle: Vec<Settlement>,
    pub(crate) reserve: Option<Wish>,
    pub(crate) at: Timestamp,
}

/// What a posting reserves.
#[derive(Debug, Clone)]
pub(crate) struct Wish {
    pub(crate) key: String,
    pub(crate) charges: Vec<Charge>,
}

impl Posting {
    /// The posting of a reservation.
    pub(crate) fn reserving(reservation: &Reservation) -> Result<Self, StoreError> {
        let Reservation { tenant, session, key, charges, settle, at } = reservation;
        check_key(|| "key".to_owned(), key)?;
        check_charges(charges)?;
        check_settlements(settle)?;
        if let Some(nth) = settle.iter().position(|settlement| settlement.key == *key) {
            return Err(invalid(format!("settle[{nth}].key"), "must be another key than the reservation's own"));
        }
        Ok(Self {
            tenant: tenant.clone(),
            session: *session,
            settle: settle.clone(),
            reserve: Some(Wish { key: key.clone(), charges: charges.clone() }),
            at: *at,
        })
    }

    /// The posting of settlements alone.
    pub(crate) fn settling(
        tenant: &TenantId,
        session: SessionId,
        settle: &[Settlement],
        at: Timestamp,
    ) -> Result<Self, StoreError> {
        check_settlements(settle)?;
        Ok(Self { tenant: tenant.clone(), session, settle: settle.to_vec(), reserve: None, at })
    }
}

fn invalid(place: String, rule: &'static str) -> StoreError {
    StoreError::InvalidAt { place, rule }
}

fn check_key(place: impl Fn() -> String, key: &str) -> Result<(), StoreError> {
    if is_token(key) { Ok(()) } else { Err(invalid(place(), "must be 1 to 128 visible ASCII characters")) }
}

fn check_counter(place: impl Fn() -> String, counter: &str) -> Result<(), StoreError> {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_.:/-".contains(&byte);
    if (1..=MAX_COUNTER).contains(&counter.len()) && counter.bytes().all(fits) {
        Ok(())
    } else {
        Err(invalid(place(), "must be 1 to 160 characters of `[a-z0-9_.:/-]`"))
    }
}

fn check_amount(place: impl Fn() -> String, amount: u64) -> Result<(), StoreError> {
    if amount > MAX_AMOUNT { Err(invalid(place(), "must be at most 2^63-1")) } else { Ok(()) }
}

fn check_charges(charges: &[Charge]) -> Result<(), StoreError> {
    if !(1..=MAX_CHARGES).contains(&charges.len()) {
        return Err(invalid("charges".to_owned(), "must be 1 to 32 charges"));
    }
    let mut seen = BTreeSet::new();
    for (nth, charge) in charges.iter().enumerate() {
        check_counter(|| format!("charges[{nth}].counter"), &charge.counter)?;
        check_amount(|| format!("charges[{nth}].amount"), charge.amount)?;
        if charge.window_start.as_micros() < 0 {
            return Err(invalid(format!("charges[{nth}].window_start"), "must not be before 1970"));
        }
        if !seen.insert((&charge.counter, charge.window_start)) {
            return Err(invalid(format!("charges[{nth}]"), "names a counter and window that an earlier charge names"));
        }
    }
    Ok(())
}

fn check_settlements(settlements: &[Settlement]) -> Result<(), StoreError> {
    if settlements.len() > MAX_SETTLEMENTS {
        return Err(invalid("settle".to_owned(), "must be at most 64 settlements"));
    }
    let mut keys = BTreeSet::new();
    for (nth, settlement) in settlements.iter().enumerate() {
        check_key(|| format!("settle[{nth}].key"), &settlement.key)?;
        if !keys.insert(&settlement.key) {
            return Err(invalid(format!("settle[{nth}].key"), "names a reservation that an earlier settlement names"));
        }
        if settlement.used.len() > MAX_CHARGES {
            return Err(invalid(format!("settle[{nth}].used"), "must be at most 32 counters"));
        }
        let mut counters = BTreeSet::new();
        for (place, (counter, used)) in settlement.used.iter().enumerate() {
            let at = || format!("settle[{nth}].used[{place}]");
            check_counter(at, counter)?;
            check_amount(at, *used)?;
            if !counters.insert(counter) {
                return Err(invalid(at(), "names a counter that was named before"));
            }
        }
    }
    Ok(())
}
