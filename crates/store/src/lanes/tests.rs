//! Lanes over a write that the test holds up. Lanes over real databases are in `tests/it/lanes.rs`.

use std::sync::Mutex;

use tokio::sync::Semaphore;
use toolgate_core::id::SessionId;

use super::*;

/// A write that waits for leave, notes its batches, and answers with each append's `expected_head`.
#[derive(Clone)]
struct Held {
    leave: Arc<Semaphore>,
    begun: Arc<Semaphore>,
    batches: Arc<Mutex<Vec<usize>>>,
}

/// The head for which the write panics.
const PANIC: u64 = 666;

impl Held {
    fn new() -> Self {
        let none = || Arc::new(Semaphore::new(0));
        Self { leave: none(), begun: none(), batches: Arc::default() }
    }

    fn lanes(&self, count: usize) -> Arc<Lanes> {
        let held = self.clone();
        Arc::new(Lanes::over(NonZeroUsize::new(count).unwrap(), move |writes: Vec<Write>| {
            let held = held.clone();
            async move {
                held.batches.lock().unwrap().push(writes.len());
                held.begun.add_permits(1);
                held.leave.acquire().await.unwrap().forget();
                assert!(writes.iter().all(|write| write.append().expected_head != PANIC));
                let answer = |write: &Write| Ok(Wrote::Append(Appended::Ok { head: write.append().expected_head }));
                writes.iter().map(answer).collect()
            }
        }))
    }

    async fn until_begun(&self) {
        self.begun.acquire().await.unwrap().forget();
    }
}

fn append(session: u128, head: u64) -> Arc<Append> {
    Arc::new(Append::empty(SessionId::from_uuid(uuid::Uuid::from_u128(session)), head))
}

type Asked = tokio::task::JoinHandle<Result<Appended, StoreError>>;

/// Appends in a task of its own.
fn asked(lanes: &Arc<Lanes>, append: Arc<Append>) -> Asked {
    let lanes = Arc::clone(lanes);
    tokio::spawn(async move { lanes.append(append).await })
}

/// Gives an append to its lane, and returns once it waits there.
async fn given(lanes: &Arc<Lanes>, append: Arc<Append>) -> Asked {
    let lane = lanes.lane_of(&append).unwrap().clone();
    let before = lane.capacity();
    let asked = asked(lanes, append);
    while lane.capacity() == before {
        tokio::task::yield_now().await;
    }
    asked
}

#[tokio::test]
async fn what_came_during_a_write_is_the_next_batch_and_each_gets_its_answer() {
    let held = Held::new();
    let lanes = held.lanes(1);
    let first = asked(&lanes, append(1, 0));
    held.until_begun().await;
    let mut waiting = Vec::new();
    for head in 1..=10 {
        waiting.push(given(&lanes, append(u128::from(head), head)).await);
    }
    held.leave.add_permits(2);
    assert_eq!(first.await.unwrap().unwrap(), Appended::Ok { head: 0 });
    for (head, asked) in (1..).zip(waiting) {
        assert_eq!(asked.await.unwrap().unwrap(), Appended::Ok { head });
    }
    assert_eq!(*held.batches.lock().unwrap(), [1, 10]);
}

#[tokio::test]
async fn a_held_lane_does_not_hold_the_others() {
    let held = Held::new();
    let lanes = held.lanes(2);
    let even = asked(&lanes, append(2, 2));
    held.until_begun().await;
    let odd = asked(&lanes, append(3, 3));
    // The second write begins while the first is held.
    held.until_begun().await;
    held.leave.add_permits(2);
    assert_eq!(even.await.unwrap().unwrap(), Appended::Ok { head: 2 });
    assert_eq!(odd.await.unwrap().unwrap(), Appended::Ok { head: 3 });
}

#[tokio::test]
async fn an_append_is_written_though_its_caller_is_gone() {
    let held = Held::new();
    let lanes = held.lanes(1);
    let first = asked(&lanes, append(1, 0));
    held.until_begun().await;
    given(&lanes, append(2, 1)).await.abort();
    first.abort();
    held.leave.add_permits(2);
    held.until_begun().await;
    drop(lanes);
    assert_eq!(*held.batches.lock().unwrap(), [1, 1]);
}

#[tokio::test]
async fn a_write_that_panics_costs_its_batch_and_not_the_lane() {
    let held = Held::new();
    let lanes = held.lanes(1);
    held.leave.add_permits(2);
    assert!(matches!(lanes.append(append(1, PANIC)).await, Err(StoreError::Unavailable(_))));
    assert_eq!(lanes.append(append(1, 1)).await.unwrap(), Appended::Ok { head: 1 });
}
