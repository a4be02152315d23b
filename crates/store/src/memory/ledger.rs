//! `Ledger` in memory.

use std::collections::BTreeMap;

use async_trait::async_trait;
use toolgate_core::id::{SessionId, TenantId};
use toolgate_core::time::Timestamp;

use super::MemoryStore;
use crate::error::StoreError;
use crate::ledger::plan::{Books, Held, Slot};
use crate::ledger::{Ledger, Posting, Reservation, Reserved, Settlement, Usage, UsageCursor};
use crate::page::{page, page_limit, page_size};
use crate::session::{Page, SessionKey};

/// The counters and reservations of all tenants.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    counters: BTreeMap<(TenantId, Slot), u64>,
    reservations: BTreeMap<(SessionKey, String), Kept>,
}

#[derive(Debug)]
struct Kept {
    held: Vec<Held>,
    settled_at: Option<Timestamp>,
}

impl Accounts {
    pub(super) fn is_empty(&self) -> bool {
        self.counters.is_empty()
    }

    fn post(&mut self, posting: &Posting) -> Result<Reserved, StoreError> {
        let session = SessionKey { tenant: posting.tenant.clone(), session: posting.session };
        let named = |key: &str| (session.clone(), key.to_owned());
        let open = |settlement: &&Settlement| {
            self.reservations.get(&named(&settlement.key)).is_some_and(|kept| kept.settled_at.is_none())
        };
        let settling: Vec<&Settlement> = posting.settle.iter().filter(open).collect();
        let held = |settlement: &&Settlement| {
            self.reservations.get(&named(&settlement.key)).map_or_else(Vec::new, |kept| kept.held.clone())
        };
        let settled: Vec<(&Settlement, Vec<Held>)> = settling.iter().map(|one| (*one, held(one))).collect();
        let wish = posting.reserve.as_ref().filter(|wish| !self.reservations.contains_key(&named(&wish.key)));

        let mut books = Books::default();
        let charged = wish.iter().flat_map(|wish| &wish.charges);
        let charged = charged.map(|charge| (charge.counter.clone(), charge.window_start));
        let touched = settled.iter().flat_map(|(_, held)| held).map(|held| held.slot.clone()).chain(charged);
        for slot in touched {
            if let Some(used) = self.counters.get(&(posting.tenant.clone(), slot.clone())) {
                books.open(slot, *used);
            }
        }
        books.settle(settled.iter().map(|(settlement, held)| (*settlement, held.as_slice())))?;
        let answer = wish.map_or(Reserved::Granted, |wish| books.reserve(&wish.charges));

        // Everything was checked: from here on it is written.
        for Usage { counter, window_start, used } in books.changed() {
            self.counters.insert((posting.tenant.clone(), (counter, window_start)), used);
        }
        for settlement in settling {
            if let Some(kept) = self.reservations.get_mut(&named(&settlement.key)) {
                kept.settled_at = Some(posting.at);
            }
        }
        if let Some(wish) = wish.filter(|_| answer == Reserved::Granted) {
            let held = wish
                .charges
                .iter()
                .map(|charge| Held { slot: (charge.counter.clone(), charge.window_start), amount: charge.amount });
            self.reservations.insert(named(&wish.key), Kept { held: held.collect(), settled_at: None });
        }
        Ok(answer)
    }

    fn sweep(&mut self, before: Timestamp, limit: usize) -> u64 {
        let old = self.reservations.iter().filter_map(|(key, kept)| {
            kept.settled_at.filter(|settled_at| *settled_at < before).map(|settled_at| (settled_at, key.clone()))
        });
        let mut old: Vec<_> = old.collect();
        old.sort();
        old.truncate(limit);
        for (_, key) in &old {
            self.reservations.remove(key);
        }
        let finished = |window: Timestamp| window > Timestamp(0) && window < before;
        let mut windows: Vec<_> = self.counters.keys().filter(|(_, slot)| finished(slot.1)).cloned().collect();
        windows.sort_by_key(|(_, slot)| slot.1);
        windows.truncate(limit.saturating_sub(old.len()));
        for key in &windows {
            self.counters.remove(key);
        }
        u64::try_from(old.len().saturating_add(windows.len())).unwrap_or(u64::MAX)
    }
}

#[async_trait]
impl Ledger for MemoryStore {
    async fn reserve(&self, reservation: &Reservation) -> Result<Reserved, StoreError> {
        let posting = Posting::reserving(reservation)?;
        self.with(|state| state.ledger.post(&posting))
    }

    async fn settle(
        &self,
        tenant: &TenantId,
        session: SessionId,
        settlements: &[Settlement],
        at: Timestamp,
    ) -> Result<(), StoreError> {
        let posting = Posting::settling(tenant, session, settlements, at)?;
        self.with(|state| state.ledger.post(&posting)).map(drop)
    }

    async fn usage(
        &self,
        tenant: &TenantId,
        after: Option<&UsageCursor>,
        limit: u32,
    ) -> Result<Page<Usage, UsageCursor>, StoreError> {
        let behind = |counter: &String, window: Timestamp| {
            after.is_none_or(|after| (counter, window) > (&after.counter, after.window_start))
        };
        let items = self.with(|state| {
            let own =
                state.ledger.counters.iter().filter(|((owner, slot), _)| owner == tenant && behind(&slot.0, slot.1));
            own.map(|((_, (counter, window)), used)| Usage {
                counter: counter.clone(),
                window_start: *window,
                used: *used,
            })
            .collect()
        });
        Ok(page(items, page_limit(limit), Usage::cursor))
    }

    async fn ledger_sweep(&self, before: Timestamp, limit: u32) -> Result<u64, StoreError> {
        Ok(self.with(|state| state.ledger.sweep(before, page_size(page_limit(limit)))))
    }
}
