//! The ledger: what many sessions of a tenant may spend together. What is not here: bad input (`ledger_input`).

use std::sync::Arc;

use toolgate_core::id::SessionId;
use toolgate_core::time::Timestamp;
use toolgate_store::{
    Charge, MAX_AMOUNT, PostgresStore, Reservation, Reserved, Settlement, SqliteStore, Store, StoreError, Usage,
};

use crate::backend::{Backend, Raw, options};
use crate::sample::{session_id, tenant};

contract!(
    a_charge_is_granted_up_to_the_limit_and_refused_above_it,
    a_granted_key_is_granted_again_and_charged_once,
    a_refused_key_may_ask_again,
    the_same_key_of_another_session_is_another_reservation,
    a_settlement_replaces_what_was_reserved,
    a_settlement_above_the_reservation_counts_in_full,
    a_second_settlement_changes_nothing,
    an_unknown_key_settles_nothing,
    settlements_come_before_the_charges_and_outlive_a_refusal,
    several_settlements_are_one_sum,
    tenants_have_their_own_counters,
    windows_have_their_own_sums,
    a_settlement_counts_in_the_windows_of_its_reservation,
    all_charges_or_none,
    the_first_charge_that_does_not_fit_is_named,
    sums_never_wrap,
    a_settlement_over_the_largest_number_is_refused,
    counters_are_listed_in_pages,
    the_sweep_forgets_the_settled_and_the_finished,
    a_swept_window_is_not_brought_back_by_a_settlement,
    a_hundred_sessions_never_overshoot,
    crossing_charges_of_many_sessions_all_get_an_answer,
    one_key_asked_many_times_at_once_is_charged_once,
    what_was_reserved_outlives_the_process,
);

/// A charge that counts for ever.
pub(crate) fn charge(counter: &str, amount: u64, limit: u64) -> Charge {
    in_window(counter, 0, amount, limit)
}

pub(crate) fn in_window(counter: &str, start: i64, amount: u64, limit: u64) -> Charge {
    Charge { counter: counter.to_owned(), window_start: Timestamp(start), amount, limit }
}

pub(crate) fn reservation(session: SessionId, key: &str, charges: Vec<Charge>) -> Reservation {
    Reservation { tenant: tenant("acme"), session, key: key.to_owned(), charges, settle: Vec::new(), at: Timestamp(10) }
}

pub(crate) fn settlement(key: &str, used: &[(&str, u64)]) -> Settlement {
    Settlement {
        key: key.to_owned(),
        used: used.iter().map(|(counter, used)| ((*counter).to_owned(), *used)).collect(),
    }
}

fn refused(counter: &str, used: u64, limit: u64) -> Reserved {
    Reserved::Refused { counter: counter.to_owned(), used, limit }
}

async fn ask(store: &Arc<dyn Store>, session: SessionId, key: &str, charges: Vec<Charge>) -> Reserved {
    store.reserve(&reservation(session, key, charges)).await.unwrap()
}

async fn settle(store: &Arc<dyn Store>, session: SessionId, settlements: &[Settlement]) {
    store.settle(&tenant("acme"), session, settlements, Timestamp(20)).await.unwrap();
}

/// All counters of a tenant, as (name, window, used).
async fn counters(store: &Arc<dyn Store>, of: &str) -> Vec<(String, i64, u64)> {
    let page = store.usage(&tenant(of), None, 1_000).await.unwrap();
    assert_eq!(page.next, None);
    let plain = |usage: Usage| (usage.counter, usage.window_start.as_micros(), usage.used);
    page.items.into_iter().map(plain).collect()
}

fn row(counter: &str, window: i64, used: u64) -> (String, i64, u64) {
    (counter.to_owned(), window, used)
}

async fn a_charge_is_granted_up_to_the_limit_and_refused_above_it(backend: Backend) {
    let (store, session) = (&backend.store, session_id());
    assert_eq!(ask(store, session, "a", vec![charge("money", 60, 100)]).await, Reserved::Granted);
    assert_eq!(ask(store, session, "b", vec![charge("money", 41, 100)]).await, refused("money", 60, 100));
    assert_eq!(ask(store, session, "c", vec![charge("money", 40, 100)]).await, Reserved::Granted);
    assert_eq!(ask(store, session, "d", vec![charge("money", 1, 100)]).await, refused("money", 100, 100));
    assert_eq!(ask(store, session, "e", vec![charge("money", 0, 100)]).await, Reserved::Granted);
    // A limit that was lowered below what is spent refuses even nothing.
    assert_eq!(ask(store, session, "f", vec![charge("money", 0, 99)]).await, refused("money", 100, 99));
    // A first charge over the limit makes no counter.
    assert_eq!(ask(store, session, "g", vec![charge("other", 1, 0)]).await, refused("other", 0, 0));
    assert_eq!(counters(store, "acme").await, [row("money", 0, 100)]);
}

async fn a_granted_key_is_granted_again_and_charged_once(backend: Backend) {
    let (store, session) = (&backend.store, session_id());
    let charges = vec![charge("money", 60, 100)];
    for _ in 0..3 {
        assert_eq!(ask(store, session, "a", charges.clone()).await, Reserved::Granted);
    }
    assert_eq!(counters(store, "acme").await, [row("money", 0, 60)]);
    // Neither is it charged again once it is settled, nor when the budget is gone by then.
    settle(store, session, &[settlement("a", &[("money", 50)])]).await;
    assert_eq!(ask(store, session, "b", vec![charge("money", 50, 100)]).await, Reserved::Granted);
    assert_eq!(ask(store, session, "a", charges).await, Reserved::Granted);
    assert_eq!(counters(store, "acme").await, [row("money", 0, 100)]);
}

async fn a_refused_key_may_ask_again(backend: Backend) {
    let (store, session) = (&backend.store, session_id());
    assert_eq!(ask(store, session, "first", vec![charge("money", 100, 100)]).await, Reserved::Granted);
    assert_eq!(ask(store, session, "a", vec![charge("money", 10, 100)]).await, refused("money", 100, 100));
    settle(store, session, &[settlement("a", &[("money", 99)])]).await;
    assert_eq!(counters(store, "acme").await, [row("money", 0, 100)], "a refused key has nothing to settle");
    settle(store, session, &[settlement("first", &[])]).await;
    assert_eq!(ask(store, session, "a", vec![charge("money", 10, 100)]).await, Reserved::Granted);
    assert_eq!(counters(store, "acme").await, [row("money", 0, 10)]);
}

async fn the_same_key_of_another_session_is_another_reservation(backend: Backend) {
    let store = &backend.store;
    let (one, two) = (session_id(), session_id());
    assert_eq!(ask(store, one, "a", vec![charge("money", 60, 100)]).await, Reserved::Granted);
    assert_eq!(ask(store, two, "a", vec![charge("money", 60, 100)]).await, refused("money", 60, 100));
    assert_eq!(ask(store, two, "a", vec![charge("money", 40, 100)]).await, Reserved::Granted);
    settle(store, two, &[settlement("a", &[("money", 1)])]).await;
    assert_eq!(counters(store, "acme").await, [row("money", 0, 61)]);
}

async fn a_settlement_replaces_what_was_reserved(backend: Backend) {
    let (store, session) = (&backend.store, session_id());
    let charges = vec![charge("money", 60, 100), charge("tokens", 500, 1_000), charge("calls", 1, 10)];
    assert_eq!(ask(store, session, "a", charges).await, Reserved::Granted);
    // Tokens are not named: none were used. What was not reserved is no counter of this reservation.
    settle(store, session, &[settlement("a", &[("money", 25), ("calls", 1), ("foreign", 7)])]).await;
    assert_eq!(counters(store, "acme").await, [row("calls", 0, 1), row("money", 0, 25), row("tokens", 0, 0)]);
    assert_eq!(ask(store, session, "b", vec![charge("money", 76, 100)]).await, refused("money", 25, 100));
    assert_eq!(ask(store, session, "b", vec![charge("money", 75, 100)]).await, Reserved::Granted);
}

async fn a_settlement_above_the_reservation_counts_in_full(backend: Backend) {
    let (store, session) = (&backend.store, session_id());
    assert_eq!(ask(store, session, "a", vec![charge("money", 60, 100)]).await, Reserved::Granted);
    settle(store, session, &[settlement("a", &[("money", 150)])]).await;
    assert_eq!(counters(store, "acme").await, [row("money", 0, 150)]);
    assert_eq!(ask(store, session, "b", vec![charge("money", 1, 100)]).await, refused("money", 150, 100));
}

async fn a_second_settlement_changes_nothing(backend: Backend) {
    let (store, session) = (&backend.store, session_id());
    assert_eq!(ask(store, session, "a", vec![charge("money", 60, 100)]).await, Reserved::Granted);
    assert_eq!(ask(store, session, "b", vec![charge("money", 30, 100)]).await, Reserved::Granted);
    settle(store, session, &[settlement("a", &[("money", 10)])]).await;
    settle(store, session, &[settlement("a", &[("money", 55)])]).await;
    settle(store, session, &[settlement("a", &[])]).await;
    assert_eq!(counters(store, "acme").await, [row("money", 0, 40)]);
}

async fn an_unknown_key_settles_nothing(backend: Backend) {
    let (store, session) = (&backend.store, session_id());
    settle(store, session, &[settlement("never", &[("money", 10)])]).await;
    settle(store, session, &[]).await;
    assert_eq!(counters(store, "acme").await, []);
    assert_eq!(ask(store, session, "a", vec![charge("money", 60, 100)]).await, Reserved::Granted);
    settle(store, session_id(), &[settlement("a", &[])]).await;
    store.settle(&tenant("globex"), session, &[settlement("a", &[])], Timestamp(20)).await.unwrap();
    assert_eq!(counters(store, "acme").await, [row("money", 0, 60)], "neither by another session nor another tenant");
}

async fn settlements_come_before_the_charges_and_outlive_a_refusal(backend: Backend) {
    let (store, session) = (&backend.store, session_id());
    assert_eq!(ask(store, session, "a", vec![charge("money", 100, 100)]).await, Reserved::Granted);
    let mut next = reservation(session, "b", vec![charge("money", 70, 100)]);
    next.settle = vec![settlement("a", &[("money", 40)])];
    assert_eq!(store.reserve(&next).await.unwrap(), refused("money", 40, 100));
    assert_eq!(counters(store, "acme").await, [row("money", 0, 40)]);
    next.charges = vec![charge("money", 60, 100)];
    assert_eq!(store.reserve(&next).await.unwrap(), Reserved::Granted);
    assert_eq!(counters(store, "acme").await, [row("money", 0, 100)]);
    // What is settled with a key that was granted before is settled too.
    let mut again = next.clone();
    assert_eq!(ask(store, session, "c", vec![charge("tokens", 9, 9)]).await, Reserved::Granted);
    again.settle = vec![settlement("c", &[("tokens", 3)])];
    assert_eq!(store.reserve(&again).await.unwrap(), Reserved::Granted);
    assert_eq!(counters(store, "acme").await, [row("money", 0, 100), row("tokens", 0, 3)]);
}

async fn several_settlements_are_one_sum(backend: Backend) {
    let (store, session) = (&backend.store, session_id());
    for key in ["a", "b", "c"] {
        assert_eq!(ask(store, session, key, vec![charge("money", 10, 100)]).await, Reserved::Granted);
    }
    let all = [settlement("c", &[("money", 1)]), settlement("a", &[("money", 20)]), settlement("b", &[])];
    settle(store, session, &all).await;
    assert_eq!(counters(store, "acme").await, [row("money", 0, 21)]);
}

async fn tenants_have_their_own_counters(backend: Backend) {
    let (store, session) = (&backend.store, session_id());
    let mut other = reservation(session, "a", vec![charge("money", 90, 100)]);
    assert_eq!(store.reserve(&other).await.unwrap(), Reserved::Granted);
    other.tenant = tenant("globex");
    assert_eq!(store.reserve(&other).await.unwrap(), Reserved::Granted, "the same session and key of another tenant");
    settle(store, session, &[settlement("a", &[("money", 5)])]).await;
    assert_eq!(counters(store, "acme").await, [row("money", 0, 5)]);
    assert_eq!(counters(store, "globex").await, [row("money", 0, 90)]);
    assert_eq!(counters(store, "initech").await, []);
}

async fn windows_have_their_own_sums(backend: Backend) {
    let (store, session) = (&backend.store, session_id());
    assert_eq!(ask(store, session, "a", vec![in_window("calls", 1_000, 2, 2)]).await, Reserved::Granted);
    assert_eq!(ask(store, session, "b", vec![in_window("calls", 1_000, 1, 2)]).await, refused("calls", 2, 2));
    assert_eq!(ask(store, session, "c", vec![in_window("calls", 2_000, 1, 2)]).await, Reserved::Granted);
    // One counter in several windows of one reservation.
    let both = vec![in_window("calls", 2_000, 1, 2), in_window("calls", 0, 1, 2)];
    assert_eq!(ask(store, session, "d", both).await, Reserved::Granted);
    assert_eq!(counters(store, "acme").await, [row("calls", 0, 1), row("calls", 1_000, 2), row("calls", 2_000, 2)]);
}

async fn a_settlement_counts_in_the_windows_of_its_reservation(backend: Backend) {
    let (store, session) = (&backend.store, session_id());
    let both = vec![in_window("money", 1_000, 50, 100), in_window("money", 0, 50, 100)];
    assert_eq!(ask(store, session, "a", both).await, Reserved::Granted);
    let mut next = reservation(session, "b", vec![in_window("money", 2_000, 10, 100)]);
    next.settle = vec![settlement("a", &[("money", 20)])];
    assert_eq!(store.reserve(&next).await.unwrap(), Reserved::Granted);
    assert_eq!(counters(store, "acme").await, [row("money", 0, 20), row("money", 1_000, 20), row("money", 2_000, 10)]);
}

async fn all_charges_or_none(backend: Backend) {
    let (store, session) = (&backend.store, session_id());
    assert_eq!(ask(store, session, "a", vec![charge("money", 90, 100)]).await, Reserved::Granted);
    let charges = vec![charge("calls", 1, 10), charge("money", 20, 100), charge("tokens", 5, 10)];
    assert_eq!(ask(store, session, "b", charges).await, refused("money", 90, 100));
    assert_eq!(counters(store, "acme").await, [row("money", 0, 90)]);
    let charges = vec![charge("tokens", 5, 10), charge("money", 10, 100), charge("calls", 1, 10)];
    assert_eq!(ask(store, session, "b", charges).await, Reserved::Granted);
    assert_eq!(counters(store, "acme").await, [row("calls", 0, 1), row("money", 0, 100), row("tokens", 0, 5)]);
}

async fn the_first_charge_that_does_not_fit_is_named(backend: Backend) {
    let (store, session) = (&backend.store, session_id());
    let over = |name: &str| charge(name, 2, 1);
    // First in the caller's order, not by name.
    let charges = vec![charge("m", 1, 1), over("z"), over("a"), over("k")];
    assert_eq!(ask(store, session, "a", charges).await, refused("z", 0, 1));
    let charges = vec![charge("m", 1, 1), over("k"), over("z"), over("a")];
    assert_eq!(ask(store, session, "a", charges).await, refused("k", 0, 1));
}

async fn sums_never_wrap(backend: Backend) {
    let (store, session) = (&backend.store, session_id());
    let without_bound = |amount| vec![charge("money", amount, u64::MAX)];
    assert_eq!(ask(store, session, "a", without_bound(MAX_AMOUNT - 1)).await, Reserved::Granted);
    assert_eq!(ask(store, session, "b", without_bound(2)).await, refused("money", MAX_AMOUNT - 1, u64::MAX));
    assert_eq!(ask(store, session, "b", without_bound(MAX_AMOUNT)).await, refused("money", MAX_AMOUNT - 1, u64::MAX));
    assert_eq!(ask(store, session, "b", without_bound(1)).await, Reserved::Granted);
    assert_eq!(ask(store, session, "c", without_bound(1)).await, refused("money", MAX_AMOUNT, u64::MAX));
    assert_eq!(counters(store, "acme").await, [row("money", 0, MAX_AMOUNT)]);
}

async fn a_settlement_over_the_largest_number_is_refused(backend: Backend) {
    let (store, session) = (&backend.store, session_id());
    assert_eq!(ask(store, session, "a", vec![charge("money", 10, 100)]).await, Reserved::Granted);
    assert_eq!(ask(store, session, "b", vec![charge("money", 10, 100)]).await, Reserved::Granted);
    assert_eq!(ask(store, session, "c", vec![charge("calls", 1, 100)]).await, Reserved::Granted);
    let huge = [settlement("c", &[]), settlement("a", &[("money", MAX_AMOUNT)])];
    let alone = store.settle(&tenant("acme"), session, &huge, Timestamp(20)).await.unwrap_err();
    let mut next = reservation(session, "d", vec![charge("tokens", 1, 100)]);
    next.settle = huge.to_vec();
    let before = store.reserve(&next).await.unwrap_err();
    for error in [alone, before] {
        let StoreError::InvalidAt { place, rule } = &error else { panic!("{error:?}") };
        assert_eq!(place, "settle: counter `money`");
        assert!(rule.contains("2^63-1"), "{rule}");
    }
    // Nothing was applied, so that it can be settled rightly.
    assert_eq!(counters(store, "acme").await, [row("calls", 0, 1), row("money", 0, 20)]);
    settle(store, session, &[settlement("a", &[("money", MAX_AMOUNT - 10)])]).await;
    assert_eq!(counters(store, "acme").await, [row("calls", 0, 1), row("money", 0, MAX_AMOUNT)]);
}

async fn counters_are_listed_in_pages(backend: Backend) {
    let (store, session) = (&backend.store, session_id());
    let names = ["a", "a.b", "a/b", "a:1", "a_b", "b", "b-1", "z"];
    let charges = names.iter().flat_map(|name| [in_window(name, 500, 1, 9), charge(name, 2, 9)]).collect();
    assert_eq!(ask(store, session, "k", charges).await, Reserved::Granted);
    let mut expected: Vec<_> = names.iter().flat_map(|name| [row(name, 0, 2), row(name, 500, 1)]).collect();
    expected.sort();
    assert_eq!(counters(store, "acme").await, expected);

    let (mut paged, mut after) = (Vec::new(), None);
    for _ in 0..=expected.len() {
        let page = store.usage(&tenant("acme"), after.as_ref(), 3).await.unwrap();
        assert!(page.items.len() <= 3);
        paged.extend(page.items.into_iter().map(|usage| (usage.counter, usage.window_start.as_micros(), usage.used)));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(paged, expected);
}

async fn the_sweep_forgets_the_settled_and_the_finished(backend: Backend) {
    let (store, session) = (&backend.store, session_id());
    let charges = |start| vec![charge("money", 1, 100), in_window("calls", start, 1, 1)];
    for (key, start) in [("a", 1_000), ("b", 2_000), ("c", 3_000), ("open", 4_000)] {
        assert_eq!(ask(store, session, key, charges(start)).await, Reserved::Granted);
    }
    for (key, at) in [("a", 1_500), ("b", 2_500), ("c", 3_500)] {
        let spent = [settlement(key, &[("money", 1), ("calls", 1)])];
        store.settle(&tenant("acme"), session, &spent, Timestamp(at)).await.unwrap();
    }
    assert_eq!(store.ledger_sweep(Timestamp(1_000), 100).await.unwrap(), 0, "nothing is old enough");
    // `a` and `b` with the windows of 1,000 and 2,000; the limit holds for both kinds together.
    let before = Timestamp(3_000);
    assert_eq!(store.ledger_sweep(before, 3).await.unwrap(), 3);
    assert_eq!(store.ledger_sweep(before, 3).await.unwrap(), 1);
    assert_eq!(store.ledger_sweep(before, 3).await.unwrap(), 0);
    assert_eq!(counters(store, "acme").await, [row("calls", 3_000, 1), row("calls", 4_000, 1), row("money", 0, 4)]);
    // What was settled later and what is still open is known; what was forgotten is charged anew.
    for key in ["c", "open"] {
        assert_eq!(ask(store, session, key, vec![charge("money", 50, 100)]).await, Reserved::Granted);
    }
    assert_eq!(ask(store, session, "a", vec![charge("money", 50, 100)]).await, Reserved::Granted);
    assert_eq!(counters(store, "acme").await.last(), Some(&row("money", 0, 54)));
}

async fn a_swept_window_is_not_brought_back_by_a_settlement(backend: Backend) {
    let (store, session) = (&backend.store, session_id());
    let charges = vec![in_window("calls", 1_000, 5, 10), charge("money", 5, 10)];
    assert_eq!(ask(store, session, "a", charges).await, Reserved::Granted);
    assert_eq!(ask(store, session, "b", vec![in_window("late", 1_000, 5, 10)]).await, Reserved::Granted);
    assert_eq!(store.ledger_sweep(Timestamp(5_000), 100).await.unwrap(), 2);
    settle(store, session, &[settlement("a", &[("calls", 9), ("money", 2)])]).await;
    assert_eq!(counters(store, "acme").await, [row("money", 0, 2)]);
    // A window that counts anew is never taken below zero by what was reserved before.
    assert_eq!(ask(store, session, "c", vec![in_window("late", 1_000, 1, 10)]).await, Reserved::Granted);
    settle(store, session, &[settlement("b", &[])]).await;
    assert_eq!(counters(store, "acme").await, [row("late", 1_000, 0), row("money", 0, 2)]);
}

/// Two stores over one database, as two servers have.
async fn two(backend: &Backend) -> [Arc<dyn Store>; 2] {
    [Arc::clone(&backend.store), backend.second().await]
}

async fn a_hundred_sessions_never_overshoot(backend: Backend) {
    let stores = two(&backend).await;
    let (amount, limit) = (7, 300);
    let mut tasks = Vec::new();
    for task in 0..100 {
        let store = Arc::clone(&stores[task % 2]);
        tasks.push(tokio::spawn(async move {
            ask(&store, session_id(), "call", vec![charge("money", amount, limit)]).await == Reserved::Granted
        }));
    }
    let mut granted = 0;
    for task in tasks {
        granted += u64::from(task.await.unwrap());
    }
    assert_eq!(granted, limit / amount);
    assert_eq!(counters(&backend.store, "acme").await, [row("money", 0, granted * amount)]);
}

/// Sessions that charge the same counters in opposite orders, and settle in between: nobody waits in a circle, and the
/// sums are right.
async fn crossing_charges_of_many_sessions_all_get_an_answer(backend: Backend) {
    let stores = two(&backend).await;
    let names = ["a", "b", "c", "d", "e"];
    let mut tasks = Vec::new();
    for task in 0..24_usize {
        let store = Arc::clone(&stores[task % 2]);
        tasks.push(tokio::spawn(async move {
            let session = session_id();
            let mut charges: Vec<_> = names.iter().map(|name| charge(name, 3, u64::MAX)).collect();
            charges.rotate_left(task % names.len());
            if task % 2 == 1 {
                charges.reverse();
            }
            let mut before: Option<String> = None;
            for round in 0..5 {
                let mut next = reservation(session, &format!("call-{round}"), charges.clone());
                next.settle = before.iter().map(|key| settlement(key, &[("b", 1), ("d", 4)])).collect();
                assert_eq!(store.reserve(&next).await.unwrap(), Reserved::Granted);
                before = Some(next.key);
            }
            let last = before.unwrap();
            settle(&store, session, &[settlement(&last, &[("b", 1), ("d", 4)])]).await;
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let calls = 24 * 5;
    let expected = names.map(|name| match name {
        "b" => row(name, 0, calls),
        "d" => row(name, 0, 4 * calls),
        _ => row(name, 0, 0),
    });
    assert_eq!(counters(&backend.store, "acme").await, expected);
}

async fn one_key_asked_many_times_at_once_is_charged_once(backend: Backend) {
    let stores = two(&backend).await;
    let session = session_id();
    let mut tasks = Vec::new();
    for task in 0..30_usize {
        let store = Arc::clone(&stores[task % 2]);
        tasks.push(tokio::spawn(async move {
            let charges = vec![charge("money", 60, 100), charge("calls", 1, 1)];
            ask(&store, session, "call", charges).await
        }));
    }
    for task in tasks {
        assert_eq!(task.await.unwrap(), Reserved::Granted);
    }
    assert_eq!(counters(&backend.store, "acme").await, [row("calls", 0, 1), row("money", 0, 60)]);
    // And settled once.
    let mut tasks = Vec::new();
    for task in 0..30_usize {
        let store = Arc::clone(&stores[task % 2]);
        tasks.push(tokio::spawn(async move {
            settle(&store, session, &[settlement("call", &[("money", 59), ("calls", 1)])]).await;
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(counters(&backend.store, "acme").await, [row("calls", 0, 1), row("money", 0, 59)]);
}

async fn what_was_reserved_outlives_the_process(backend: Backend) {
    let session = session_id();
    let charges = vec![charge("money", 60, 100)];
    let Backend { store, raw } = backend;
    assert_eq!(ask(&store, session, "a", charges.clone()).await, Reserved::Granted);
    assert_eq!(ask(&store, session, "b", vec![charge("money", 30, 100)]).await, Reserved::Granted);
    let again: Arc<dyn Store> = match &raw {
        // Memory does not outlive it; there the same store goes on.
        Raw::Memory => store,
        Raw::Sqlite(dir) => {
            drop(store);
            Arc::new(SqliteStore::open(&dir.path().join("log.sqlite")).await.unwrap())
        }
        Raw::Postgres(url) => {
            drop(store);
            Arc::new(PostgresStore::open(url, &options()).await.unwrap())
        }
    };
    assert_eq!(counters(&again, "acme").await, [row("money", 0, 90)]);
    assert_eq!(ask(&again, session, "a", charges.clone()).await, Reserved::Granted);
    assert_eq!(ask(&again, session, "c", charges).await, refused("money", 90, 100));
    settle(&again, session, &[settlement("a", &[("money", 1)])]).await;
    assert_eq!(counters(&again, "acme").await, [row("money", 0, 31)]);
}
