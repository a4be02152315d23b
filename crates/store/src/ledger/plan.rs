//! The sums of one posting, for backends that hold the counters while they count. PostgreSQL makes the same sums inside
//! its function. What is not here: reading and writing the counters.

use std::collections::{BTreeMap, BTreeSet};

use toolgate_core::time::Timestamp;

use super::{Charge, MAX_AMOUNT, Reserved, Settlement, Usage};
use crate::error::StoreError;

/// A counter in one window.
pub(crate) type Slot = (String, Timestamp);

/// What was reserved of one counter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) slot: Slot,
    pub(crate) amount: u64,
}

/// The counters that a posting touches, as they stand; those that do not exist yet are missing.
#[derive(Debug, Clone, Default)]
pub(crate) struct Books {
    counters: BTreeMap<Slot, u64>,
    changed: BTreeSet<Slot>,
}

impl Books {
    /// Takes in a counter as it stands.
    pub(crate) fn open(&mut self, slot: Slot, used: u64) {
        self.counters.insert(slot, used);
    }

    /// Whether the counter was taken in; its sum may have changed since.
    pub(crate) fn holds(&self, slot: &Slot) -> bool {
        self.counters.contains_key(slot)
    }

    /// Replaces what settled reservations held by what was spent, all of them as one sum.
    pub(crate) fn settle<'a>(
        &mut self,
        settled: impl IntoIterator<Item = (&'a Settlement, &'a [Held])>,
    ) -> Result<(), StoreError> {
        let mut changes: BTreeMap<&Slot, i128> = BTreeMap::new();
        for (settlement, held) in settled {
            for Held { slot, amount } in held {
                let used = settlement.used.iter().find(|(counter, _)| *counter == slot.0).map_or(0, |(_, used)| *used);
                // At most 64 settlements of 63 bits: the sum keeps far away from the type's ends.
                let change = i128::from(used).saturating_sub(i128::from(*amount));
                let sum = changes.entry(slot).or_default();
                *sum = sum.saturating_add(change);
            }
        }
        for (slot, change) in changes {
            // A settlement alone does not bring a swept window back.
            let Some(used) = self.counters.get_mut(slot) else { continue };
            // Below zero only where the window was swept and counts anew.
            let total = i128::from(*used).saturating_add(change).max(0);
            let total = u64::try_from(total).ok().filter(|total| *total <= MAX_AMOUNT);
            *used = total.ok_or_else(|| StoreError::InvalidAt {
                place: format!("settle: counter `{}`", slot.0),
                rule: OVERFLOW,
            })?;
            self.changed.insert(slot.clone());
        }
        Ok(())
    }

    /// Charges all counters, or none.
    pub(crate) fn reserve(&mut self, charges: &[Charge]) -> Reserved {
        let mut totals = Vec::with_capacity(charges.len());
        for charge in charges {
            let slot = (charge.counter.clone(), charge.window_start);
            let used = self.counters.get(&slot).copied().unwrap_or_default();
            let total = used.checked_add(charge.amount).filter(|total| *total <= charge.limit.min(MAX_AMOUNT));
            let Some(total) = total else {
                return Reserved::Refused { counter: charge.counter.clone(), used, limit: charge.limit };
            };
            totals.push((slot, total));
        }
        for (slot, total) in totals {
            self.changed.insert(slot.clone());
            self.counters.insert(slot, total);
        }
        Reserved::Granted
    }

    /// The counters that were changed, as they must stand from now on.
    pub(crate) fn changed(&self) -> impl Iterator<Item = Usage> + '_ {
        self.changed.iter().filter_map(|slot| {
            let used = *self.counters.get(slot)?;
            Some(Usage { counter: slot.0.clone(), window_start: slot.1, used })
        })
    }
}

/// The rule that a settlement breaks when its counter would hold too much.
pub(crate) const OVERFLOW: &str = "what was used takes it over 2^63-1";
