//! What the ledger refuses to look at: each with the field's place, and nothing is written.

use toolgate_core::time::Timestamp;
use toolgate_store::{Charge, MAX_AMOUNT, MAX_CHARGES, MAX_SETTLEMENTS, Reservation, Settlement, StoreError};

use crate::backend::Backend;
use crate::ledger::{charge, in_window, reservation, settlement};
use crate::sample::{session_id, tenant};

contract!(
    bad_charges_are_refused_by_place,
    bad_keys_are_refused_by_place,
    bad_settlements_are_refused_by_place,
    the_largest_of_everything_is_accepted,
);

fn place(error: StoreError) -> String {
    let text = error.to_string();
    let StoreError::InvalidAt { place, rule } = error else { panic!("{error:?}") };
    assert_eq!(text, format!("invalid request to the store: {place}: {rule}"));
    place
}

async fn refused_at(backend: &Backend, reservation: &Reservation) -> String {
    place(backend.store.reserve(reservation).await.unwrap_err())
}

async fn is_empty(backend: &Backend) -> bool {
    backend.store.usage(&tenant("acme"), None, 10).await.unwrap().items.is_empty()
}

async fn bad_charges_are_refused_by_place(backend: Backend) {
    let good = || charge("good", 1, 9);
    let too_many: Vec<Charge> = (0..=MAX_CHARGES).map(|nth| charge(&format!("c{nth}"), 1, 9)).collect();
    let over = charge("c", MAX_AMOUNT + 1, u64::MAX);
    let cases: Vec<(Vec<Charge>, &str)> = vec![
        (vec![], "charges"),
        (too_many, "charges"),
        (vec![charge("", 1, 9)], "charges[0].counter"),
        (vec![good(), charge("Upper", 1, 9)], "charges[1].counter"),
        (vec![good(), charge("a b", 1, 9)], "charges[1].counter"),
        (vec![charge("a\0b", 1, 9)], "charges[0].counter"),
        (vec![charge("über", 1, 9)], "charges[0].counter"),
        (vec![charge(&"x".repeat(161), 1, 9)], "charges[0].counter"),
        (vec![over], "charges[0].amount"),
        (vec![good(), in_window("c", -1, 1, 9)], "charges[1].window_start"),
        (vec![good(), charge("other", 1, 9), good()], "charges[2]"),
    ];
    for (charges, expected) in cases {
        let asked = reservation(session_id(), "k", charges);
        assert_eq!(refused_at(&backend, &asked).await, expected, "{asked:?}");
    }
    assert!(is_empty(&backend).await);
}

async fn bad_keys_are_refused_by_place(backend: Backend) {
    for key in ["", "a b", "a\0", "ä", &"k".repeat(129)] {
        let asked = reservation(session_id(), key, vec![charge("c", 1, 9)]);
        assert_eq!(refused_at(&backend, &asked).await, "key", "{key:?}");
    }
    let mut own = reservation(session_id(), "k", vec![charge("c", 1, 9)]);
    own.settle = vec![settlement("other", &[]), settlement("k", &[])];
    assert_eq!(refused_at(&backend, &own).await, "settle[1].key");
    assert!(is_empty(&backend).await);
}

async fn bad_settlements_are_refused_by_place(backend: Backend) {
    let names: Vec<String> = (0..=MAX_CHARGES).map(|nth| format!("c{nth}")).collect();
    let many: Vec<(&str, u64)> = names.iter().map(|name| (name.as_str(), 1)).collect();
    let cases: Vec<(Vec<Settlement>, &str)> = vec![
        ((0..=MAX_SETTLEMENTS).map(|nth| settlement(&format!("k{nth}"), &[])).collect(), "settle"),
        (vec![settlement("", &[])], "settle[0].key"),
        (vec![settlement("a", &[]), settlement("b", &[]), settlement("a", &[])], "settle[2].key"),
        (vec![settlement("a", &many)], "settle[0].used"),
        (vec![settlement("a", &[("ok", 1), ("Not", 1)])], "settle[0].used[1]"),
        (vec![settlement("a", &[("ok", MAX_AMOUNT + 1)])], "settle[0].used[0]"),
        (vec![settlement("a", &[("ok", 1), ("ok", 1)])], "settle[0].used[1]"),
    ];
    for (settle, expected) in cases {
        let mut asked = reservation(session_id(), "k", vec![charge("c", 1, 9)]);
        let alone = backend.store.settle(&tenant("acme"), asked.session, &settle, Timestamp(1)).await;
        assert_eq!(place(alone.unwrap_err()), expected, "{settle:?}");
        asked.settle = settle;
        assert_eq!(refused_at(&backend, &asked).await, expected, "{asked:?}");
    }
    assert!(is_empty(&backend).await);
}

async fn the_largest_of_everything_is_accepted(backend: Backend) {
    let session = session_id();
    let name = |nth: usize| format!("{nth:0>160}");
    let key = |nth: usize| format!("{nth:k>128}");
    let charges: Vec<Charge> = (0..MAX_CHARGES).map(|nth| in_window(&name(nth), i64::MAX, 1, u64::MAX)).collect();
    for nth in 0..MAX_SETTLEMENTS {
        let asked = reservation(session, &key(nth), charges.clone());
        assert_eq!(backend.store.reserve(&asked).await.unwrap(), toolgate_store::Reserved::Granted);
    }
    let used: Vec<(String, u64)> = (0..MAX_CHARGES).map(|nth| (name(nth), 2)).collect();
    let mut asked = reservation(session, "last", charges);
    asked.settle = (0..MAX_SETTLEMENTS).map(|nth| Settlement { key: key(nth), used: used.clone() }).collect();
    assert_eq!(backend.store.reserve(&asked).await.unwrap(), toolgate_store::Reserved::Granted);
    let page = backend.store.usage(&tenant("acme"), None, 1_000).await.unwrap();
    assert_eq!(page.items.len(), MAX_CHARGES);
    assert!(page.items.iter().all(|usage| usage.used == 2 * MAX_SETTLEMENTS as u64 + 1), "{page:?}");
}
