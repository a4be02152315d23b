//! The model's append rule against the store's, on every small standing: which epoch, which head, whose hash, which bytes.
//! The store in memory is asked, which decides with `fence::judge`; the databases answer like it by the tests of
//! `toolgate-store` that all of them share.

use std::sync::Arc;

use toolgate_core::id::{SessionId, Sha256Digest, TenantId};
use toolgate_core::time::Timestamp;
use toolgate_model::rule::{Claim, Fence, Standing, judge};
use toolgate_model::{Fact, Row as Fabled, Rules, chained};
use toolgate_store::chain::Position;
use toolgate_store::{
    Append, Appended, EventLog, Header, MemoryStore, NewSession, NodeId, NodeIdentity, Projection, Row, TakeOver,
};
use uuid::Uuid;

fn tenant() -> TenantId {
    TenantId::new("acme").unwrap()
}

fn session() -> SessionId {
    SessionId::from_uuid(Uuid::from_u128(7))
}

fn owner(epoch: u64) -> NodeIdentity {
    NodeIdentity { node: NodeId::new(&format!("node-{epoch}")).unwrap(), incarnation: epoch }
}

/// A row for a place; `mark` makes its bytes differ.
fn row(at: &Position, mark: i64) -> Row {
    row_of("ticked", at, mark)
}

fn row_of(kind: &str, at: &Position, mark: i64) -> Row {
    let header = Header::new(kind);
    header.into_row(&tenant(), session(), at, Timestamp(1_000 + mark), Vec::new()).unwrap()
}

fn append(epoch: u64, expected_head: u64, rows: Vec<Row>) -> Append {
    Append {
        tenant: tenant(),
        session: session(),
        epoch,
        expected_head,
        rows,
        consumed_inbox: Vec::new(),
        idempotency: None,
        outbox: Vec::new(),
        projection: Projection {
            status: "running".to_owned(),
            active: true,
            profile: None,
            ending: None,
            pending_approvals: 0,
            updated_at: Timestamp(1),
            next_wake_at: None,
            title: None,
        },
        approvals: Vec::new(),
        blobs: Vec::new(),
        new_keys: Vec::new(),
        destroyed_keys: Vec::new(),
        security: Vec::new(),
    }
}

/// A store whose session has so many rows, the last of which is a take-over where the epoch is 2.
async fn stored(epoch: u64, rows: i64) -> (MemoryStore, Vec<Row>) {
    let store = MemoryStore::new();
    let mut log = vec![row(&Position::FIRST, 0)];
    let new = NewSession {
        alias: None,
        body_fingerprint: Sha256Digest::of(b"body"),
        bundle: Sha256Digest::of(b"bundle"),
        created_at: Timestamp(1),
        owner: owner(1),
        append: append(1, 0, log.clone()),
    };
    store.create_session(Arc::new(new)).await.unwrap();
    let plain = if epoch > 1 { rows - 1 } else { rows };
    for mark in 1..plain {
        let next = row(&Position::after(log.last().unwrap()), mark);
        let answer = store.append(Arc::new(append(1, log.len() as u64, vec![next.clone()]))).await.unwrap();
        assert!(matches!(answer, Appended::Ok { .. }));
        log.push(next);
    }
    if epoch > 1 {
        let at = Position { epoch, ..Position::after(log.last().unwrap()) };
        let taken = row_of("owner_changed", &at, 99);
        let take = TakeOver { tenant: tenant(), session: session(), owner: owner(epoch), row: taken.clone() };
        store.take_over(Arc::new(take)).await.unwrap();
        log.push(taken);
    }
    (store, log)
}

/// The same row as the model has it: `mark` stands in for the bytes that differ.
fn fabled(rows: &[Row], marks: &[u8]) -> Vec<Fabled> {
    let mut log: Vec<Fabled> = Vec::new();
    for (row, mark) in rows.iter().zip(marks) {
        let (seq, epoch) = (u8::try_from(row.seq).unwrap(), u8::try_from(row.epoch).unwrap());
        log.push(Fabled { seq, epoch, prev: chained(log.last()), fact: Fact::Input(*mark) });
    }
    log
}

#[tokio::test]
async fn the_append_rule_is_the_stores() {
    let mut seen = [0_u32; 4];
    for (epoch, rows) in [(1, 1), (1, 2), (1, 3), (2, 2), (2, 3)] {
        for claimed in 1..=3_u64 {
            for expected in 0..=rows + 1 {
                for (mark, prev_fits) in [(0, true), (50, true), (50, false)] {
                    let (store, log) = stored(epoch, rows).await;
                    let marks: Vec<u8> = (1..).take(log.len()).collect();
                    let model = fabled(&log, &marks);
                    let Some(asked) = claim(&log, &model, claimed, expected, mark, prev_fits) else { continue };
                    let last = model.last().unwrap();
                    let standing = Standing {
                        epoch: u8::try_from(epoch).unwrap(),
                        head_seq: last.seq,
                        head_hash: chained(Some(last)),
                    };
                    let fence = judge(&Rules::default(), &standing, &asked.claim);
                    let answer =
                        store.append(Arc::new(append(claimed, asked.expected, vec![asked.row]))).await.unwrap();
                    let same = match (fence, &answer) {
                        (Fence::Open, Appended::Ok { .. }) => 0,
                        (Fence::Fenced, Appended::Fenced { .. }) => 1,
                        (Fence::Moved, Appended::Already { .. }) if asked.stands => 2,
                        (Fence::Moved, Appended::Stale { .. }) if !asked.stands => 3,
                        _ => panic!(
                            "epoch {epoch}, {rows} rows, {asked:?}: model {fence:?}, store {answer:?}",
                            asked = asked.claim
                        ),
                    };
                    *seen.get_mut(same).unwrap() += 1;
                }
            }
        }
    }
    println!("ok {}, fenced {}, already {}, stale {}", seen[0], seen[1], seen[2], seen[3]);
    assert!(seen.iter().all(|times| *times > 0), "each answer is reached: {seen:?}");
}

struct Asked {
    claim: Claim,
    expected: u64,
    row: Row,
    /// Its very bytes stand in the log.
    stands: bool,
}

/// An append for a head: the bytes that stand there (`mark` 0), or others, after the right hash or another one.
fn claim(log: &[Row], model: &[Fabled], epoch: u64, expected: i64, mark: i64, prev_fits: bool) -> Option<Asked> {
    let place = usize::try_from(expected).unwrap();
    let before = place.checked_sub(1).and_then(|last| log.get(last));
    let standing = log.get(place);
    let mut at = match before {
        Some(before) => Position::after(before),
        None => Position { seq: u64::try_from(expected).unwrap() + 1, ..Position::FIRST },
    };
    at.epoch = epoch;
    if !prev_fits {
        at.prev_hash = [9; 32];
    }
    let written = if mark == 0 { standing.filter(|row| row.epoch == epoch)?.clone() } else { row(&at, mark) };
    let prev = place.checked_sub(1).and_then(|last| model.get(last));
    let known = prev_fits && (prev.is_some() || place == 0);
    let claim = Claim {
        epoch: u8::try_from(epoch).unwrap(),
        expected_head: u8::try_from(expected).unwrap(),
        prev_hash: Some(if known { chained(prev) } else { 9 }),
    };
    Some(Asked { claim, expected: u64::try_from(expected).unwrap(), stands: standing == Some(&written), row: written })
}
