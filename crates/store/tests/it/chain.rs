//! The checker finds every edit of every row, and names the first bad one.

use std::sync::Arc;

use proptest::prelude::*;
use toolgate_core::id::InputId;
use toolgate_store::chain::{Checker, Flaw, Head, Position, check};
use toolgate_store::{Appended, Header, Row};

use crate::backend::Backend;
use crate::sample::{DISPATCHED, Log, TERMINAL, all_rows, node, tenant};

contract!(a_stored_log_checks);

/// A log with rows of every kind and two epochs.
fn sample() -> Log {
    let mut log = Log::new("acme");
    log.creation();
    log.recording("in-1");
    log.about(0, DISPATCHED);
    log.about(0, TERMINAL);
    log.plain(b"\0 any bytes \xff");
    let (_, mut log) = log.take_over(&node("node-2", 1));
    log.plain(b"");
    log.recording("in-2");
    log.about(1, DISPATCHED);
    log.plain(b"last");
    log
}

fn head(rows: &[Row]) -> Head {
    rows.last().map_or(Head { seq: 0, hash: [0; 32] }, |row| Head { seq: row.seq, hash: row.hash })
}

fn flaw(log: &Log, rows: &[Row], head: &Head) -> Option<(u64, Flaw)> {
    check(&log.tenant, log.session, rows, head).err().map(|broken| (broken.seq, broken.flaw))
}

async fn a_stored_log_checks(backend: Backend) {
    let store = &backend.store;
    let mut log = Log::started(store, "acme").await;
    for append in [log.recording("in-1"), log.about(0, DISPATCHED), log.about(0, TERMINAL), log.plain(b"")] {
        assert!(matches!(store.append(Arc::new(append)).await.unwrap(), Appended::Ok { .. }));
    }
    let (take_over, after) = log.take_over(&node("node-2", 1));
    store.take_over(Arc::new(take_over)).await.unwrap();
    let rows = all_rows(store, &log.tenant, log.session).await;
    let session = store.session(&log.tenant, log.session).await.unwrap().unwrap();
    let head = Head { seq: session.head_seq, hash: session.head_hash };
    assert_eq!(flaw(&after, &rows, &head), None);
    let mut checker = Checker::new(&log.tenant, log.session);
    for row in &rows {
        checker.row(row).unwrap();
    }
    assert_eq!(checker.checked(), 6);
    checker.finish(&head).unwrap();
}

/// Changes one byte of one column; `pick` chooses the column, `at` the byte, `bit` what is flipped.
fn tamper(row: &mut Row, pick: usize, at: usize, bit: u8) -> &'static str {
    let flip = |bytes: &mut [u8]| {
        let place = at % bytes.len().max(1);
        if let Some(byte) = bytes.get_mut(place) {
            *byte ^= bit;
        }
    };
    match pick {
        0 => row.seq ^= u64::from(bit),
        1 => row.epoch ^= u64::from(bit),
        2 => row.kind = format!("{}{}", row.kind, char::from(b'a' + bit % 26)),
        3 => row.run = row.run.map_or(Some(u32::from(bit)), |run| Some(run ^ u32::from(bit))),
        4 => row.step = row.step.map_or(Some(u32::from(bit)), |step| Some(step ^ u32::from(bit))),
        5 => row.call = if row.call.is_some() { None } else { Some(Log::new("x").call(0)) },
        6 => row.marks.decision = !row.marks.decision,
        7 => row.marks.allow = !row.marks.allow,
        8 => {
            let attempt = row.marks.dispatch_attempt;
            row.marks.dispatch_attempt = attempt.map_or(Some(u32::from(bit)), |n| Some(n ^ u32::from(bit)));
        }
        9 => row.marks.terminal = !row.marks.terminal,
        10 => row.input_id = if row.input_id.is_some() { None } else { Some(InputId::new("forged").unwrap()) },
        11 => row.recorded_at.0 ^= i64::from(bit),
        12 => flip(&mut row.header),
        13 if row.payload.is_empty() => row.payload.push(bit),
        13 => flip(&mut row.payload),
        14 => flip(&mut row.prev_hash),
        _ => flip(&mut row.hash),
    }
    [
        "seq",
        "epoch",
        "kind",
        "run",
        "step",
        "call",
        "decision",
        "allow",
        "dispatch_attempt",
        "terminal",
        "input_id",
        "recorded_at",
        "header",
        "payload",
        "prev_hash",
        "hash",
    ][pick.min(15)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_edit_of_one_row_is_found(index in 0_usize..10, pick in 0_usize..16, at in any::<usize>(), bit in 1_u8..) {
        let log = sample();
        prop_assert_eq!(log.rows.len(), 10);
        let mut rows = log.rows.clone();
        let column = tamper(&mut rows[index], pick, at, bit);
        prop_assert_ne!(&rows, &log.rows);
        let found = flaw(&log, &rows, &head(&log.rows));
        prop_assert_eq!(found.map(|(seq, _)| seq), Some(index as u64 + 1), "column {}: {:?}", column, found);
    }

    #[test]
    fn no_bytes_make_the_checker_panic(header in any::<Vec<u8>>(), payload in any::<Vec<u8>>()) {
        let log = sample();
        let mut rows = log.rows.clone();
        rows[4].header = header;
        rows[4].payload = payload;
        prop_assert_eq!(flaw(&log, &rows, &head(&log.rows)).map(|(seq, _)| seq), Some(5));
    }
}

#[test]
fn edits_of_the_whole_are_found() {
    let log = sample();
    let rows = &log.rows;
    let whole = head(rows);
    assert_eq!(flaw(&log, rows, &whole), None);
    assert_eq!(flaw(&log, &rows[..8], &whole), Some((9, Flaw::Truncated)));
    assert_eq!(flaw(&log, &[], &whole), Some((1, Flaw::Truncated)));
    assert_eq!(flaw(&log, &rows[1..], &whole), Some((1, Flaw::Gap { found: 2 })));
    let mut swapped = rows.clone();
    swapped.swap(3, 4);
    assert_eq!(flaw(&log, &swapped, &whole), Some((4, Flaw::Gap { found: 5 })));
    let mut repeated = rows.clone();
    repeated.insert(7, rows[6].clone());
    assert_eq!(flaw(&log, &repeated, &whole), Some((8, Flaw::Gap { found: 7 })));
    let missing: Vec<_> = rows.iter().filter(|row| row.seq != 5).cloned().collect();
    assert_eq!(flaw(&log, &missing, &whole), Some((5, Flaw::Gap { found: 6 })));
    assert_eq!(flaw(&log, rows, &head(&rows[..9])), Some((10, Flaw::BeyondHead)));
    assert_eq!(flaw(&log, rows, &Head { seq: 10, hash: [1; 32] }), Some((10, Flaw::HeadHash)));
}

#[test]
fn a_log_of_another_session_or_tenant_is_found() {
    let log = sample();
    let other = Log { tenant: tenant("globex"), ..log.clone() };
    assert_eq!(flaw(&other, &log.rows, &head(&log.rows)), Some((1, Flaw::Hash)));
    let twin = Log::new("acme");
    assert_eq!(flaw(&twin, &log.rows, &head(&log.rows)), Some((1, Flaw::Hash)));
    // One row of another session in the right place.
    let mut rows = log.rows.clone();
    let mut foreign = sample();
    foreign.tenant = tenant("globex");
    rows[4] = foreign.rows[4].clone();
    assert_eq!(flaw(&log, &rows, &head(&log.rows)), Some((5, Flaw::PrevHash)));
}

#[test]
fn an_epoch_that_goes_back_is_found() {
    let mut log = sample();
    log.epoch = 1;
    let row = log.row(Header::new("noted"), b"x");
    log.rows.push(row);
    assert_eq!(flaw(&log, &log.rows, &head(&log.rows)), Some((11, Flaw::EpochBack)));
}

#[test]
fn a_rewritten_log_differs_from_an_exported_head() {
    let log = sample();
    let mut forged = Log { rows: Vec::new(), epoch: 1, ..log.clone() };
    forged.push(Header::new("session_started"), b"another beginning");
    for _ in 1..10 {
        forged.plain(b"rewritten");
    }
    let own = head(&forged.rows);
    assert_eq!(flaw(&forged, &forged.rows, &own), None, "a rewritten chain holds together by itself");
    assert_eq!(flaw(&forged, &forged.rows, &head(&log.rows)), Some((10, Flaw::HeadHash)));
}

#[test]
fn the_hash_is_the_documented_one() {
    use sha2::{Digest, Sha256};
    let log = sample();
    let row = &log.rows[1];
    let mut bytes = Vec::new();
    let session = log.session.uuid();
    let numbers = [row.seq.to_be_bytes(), row.epoch.to_be_bytes(), row.recorded_at.0.to_be_bytes()];
    let parts: [&[u8]; 9] = [
        b"toolgate.event.v1",
        &row.prev_hash,
        b"acme",
        session.as_bytes().as_slice(),
        &numbers[0],
        &numbers[1],
        row.kind.as_bytes(),
        &numbers[2],
        &row.header,
    ];
    for part in parts {
        bytes.extend((part.len() as u64).to_be_bytes());
        bytes.extend(part);
    }
    assert_eq!(row.hash, <[u8; 32]>::from(Sha256::digest(&bytes)));
    assert_eq!(Position::after(row), Position { seq: 3, epoch: 1, prev_hash: row.hash });
}
