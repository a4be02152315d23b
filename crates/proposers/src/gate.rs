//! Places for requests: so many at once over all sessions of a process, so many of one tenant, starts apart in time.
//! Tenants that wait take turns. A place is given back whenever its holder is dropped, also while it still waits. What is
//! not here: what is done with a place (`exchange`).

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Mutex as AsyncMutex, oneshot};
use tokio::time::{Instant, sleep_until};

/// Most requests that wait for one model.
const MAX_WAITING: usize = 10_000;

/// More requests wait than are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Full;

/// The door to one model.
#[derive(Debug)]
pub(crate) struct Gate {
    limit: usize,
    per_tenant: usize,
    interval: Duration,
    state: Mutex<State>,
    /// When the last request started. Whoever holds this waits until the next may; giving up changes nothing.
    last_start: AsyncMutex<Option<Instant>>,
}

#[derive(Debug, Default)]
struct State {
    running: usize,
    waiting: usize,
    by_tenant: BTreeMap<Arc<str>, usize>,
    /// Who waits, by tenant, in the order of turns.
    turns: VecDeque<(Arc<str>, VecDeque<oneshot::Sender<Place>>)>,
}

/// A place; dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Place {
    gate: Arc<Gate>,
    tenant: Arc<str>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.gate.lock();
        state.running = state.running.saturating_sub(1);
        let left = state.by_tenant.get(&self.tenant).map_or(0, |n| n.saturating_sub(1));
        if left == 0 {
            state.by_tenant.remove(&self.tenant);
        } else {
            state.by_tenant.insert(Arc::clone(&self.tenant), left);
        }
        let granted = self.gate.next(&mut state);
        drop(state);
        // Outside the lock: a place that nobody takes any more is dropped here, and so passed on.
        if let Some((waiter, place)) = granted {
            drop(waiter.send(place));
        }
    }
}

impl Gate {
    pub(crate) fn new(limit: u32, per_tenant: Option<u32>, interval: Duration) -> Self {
        let size = |n: u32| usize::try_from(n).unwrap_or(usize::MAX).max(1);
        Self {
            limit: size(limit),
            per_tenant: per_tenant.map_or(usize::MAX, size),
            interval,
            state: Mutex::default(),
            last_start: AsyncMutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place, once there is one and the last start is long enough ago.
    pub(crate) async fn enter(self: &Arc<Self>, tenant: &Arc<str>) -> Result<Place, Full> {
        let place = self.place(tenant).await?;
        if !self.interval.is_zero() {
            let mut last = self.last_start.lock().await;
            if let Some(last) = *last {
                sleep_until(last + self.interval).await;
            }
            *last = Some(Instant::now());
        }
        Ok(place)
    }

    async fn place(self: &Arc<Self>, tenant: &Arc<str>) -> Result<Place, Full> {
        let waiter = {
            let mut state = self.lock();
            if state.waiting >= MAX_WAITING {
                return Err(Full);
            }
            if self.is_free(&state, tenant) && !state.turns.iter().any(|(other, _)| other == tenant) {
                return Ok(self.admit(&mut state, tenant));
            }
            let (sender, receiver) = oneshot::channel();
            state.waiting += 1;
            match state.turns.iter_mut().find(|(other, _)| other == tenant) {
                Some((_, queue)) => queue.push_back(sender),
                None => state.turns.push_back((Arc::clone(tenant), VecDeque::from([sender]))),
            }
            receiver
        };
        // The sender stays in the queue as long as the gate, so that this cannot end without a place.
        waiter.await.map_err(|_| Full)
    }

    fn is_free(&self, state: &State, tenant: &Arc<str>) -> bool {
        state.running < self.limit && state.by_tenant.get(tenant).copied().unwrap_or_default() < self.per_tenant
    }

    fn admit(self: &Arc<Self>, state: &mut State, tenant: &Arc<str>) -> Place {
        state.running += 1;
        *state.by_tenant.entry(Arc::clone(tenant)).or_default() += 1;
        Place { gate: Arc::clone(self), tenant: Arc::clone(tenant) }
    }

    /// Whose turn it is: the first tenant that may have another place; then the tenant waits for its next turn.
    fn next(self: &Arc<Self>, state: &mut State) -> Option<(oneshot::Sender<Place>, Place)> {
        for (_, queue) in &mut state.turns {
            let before = queue.len();
            queue.retain(|waiter| !waiter.is_closed());
            state.waiting = state.waiting.saturating_sub(before - queue.len());
        }
        state.turns.retain(|(_, queue)| !queue.is_empty());
        let at = state.turns.iter().position(|(tenant, _)| self.is_free(state, tenant))?;
        let (tenant, mut queue) = state.turns.remove(at)?;
        let waiter = queue.pop_front()?;
        state.waiting = state.waiting.saturating_sub(1);
        if !queue.is_empty() {
            state.turns.push_back((Arc::clone(&tenant), queue));
        }
        let place = self.admit(state, &tenant);
        Some((waiter, place))
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn gate(limit: u32, per_tenant: Option<u32>) -> Arc<Gate> {
        Arc::new(Gate::new(limit, per_tenant, Duration::ZERO))
    }

    /// Polls once.
    fn poll<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> Option<T> {
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }

    #[test]
    fn tenants_take_turns_whatever_the_length_of_their_queues() {
        let gate = gate(1, None);
        let (a, b): (Arc<str>, Arc<str>) = (Arc::from("a"), Arc::from("b"));
        let first = poll(pin!(gate.enter(&a))).unwrap().unwrap();
        let mut a2 = Box::pin(gate.enter(&a));
        let mut a3 = Box::pin(gate.enter(&a));
        let mut b1 = Box::pin(gate.enter(&b));
        assert!(poll(a2.as_mut()).is_none() && poll(a3.as_mut()).is_none() && poll(b1.as_mut()).is_none());
        drop(first);
        let place = poll(a2.as_mut()).unwrap().unwrap();
        assert!(poll(a3.as_mut()).is_none() && poll(b1.as_mut()).is_none());
        drop(place);
        assert!(poll(a3.as_mut()).is_none());
        let place = poll(b1.as_mut()).unwrap().unwrap();
        drop(place);
        assert!(poll(a3.as_mut()).unwrap().is_ok());
    }

    #[test]
    fn who_gives_up_keeps_no_place() {
        let gate = gate(1, None);
        let a: Arc<str> = Arc::from("a");
        let first = poll(pin!(gate.enter(&a))).unwrap().unwrap();
        // Given up while waiting, and given up after the place was granted but before it was taken.
        let mut waiting = Box::pin(gate.enter(&a));
        let mut granted = Box::pin(gate.enter(&a));
        let mut last = Box::pin(gate.enter(&a));
        assert!(poll(waiting.as_mut()).is_none() && poll(granted.as_mut()).is_none() && poll(last.as_mut()).is_none());
        drop(waiting);
        drop(first);
        drop(granted);
        drop(poll(last.as_mut()).unwrap().unwrap());
        let state = gate.lock();
        assert_eq!((state.running, state.waiting, state.by_tenant.len(), state.turns.len()), (0, 0, 0, 0));
    }

    #[test]
    fn a_tenant_at_its_limit_leaves_room_for_others() {
        let gate = gate(3, Some(1));
        let (a, b): (Arc<str>, Arc<str>) = (Arc::from("a"), Arc::from("b"));
        let first = poll(pin!(gate.enter(&a))).unwrap().unwrap();
        let mut second = Box::pin(gate.enter(&a));
        assert!(poll(second.as_mut()).is_none());
        assert!(poll(pin!(gate.enter(&b))).unwrap().is_ok());
        drop(first);
        assert!(poll(second.as_mut()).unwrap().is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn starts_are_apart_and_giving_up_costs_no_start() {
        let gate = Arc::new(Gate::new(4, None, Duration::from_secs(1)));
        let a: Arc<str> = Arc::from("a");
        let began = Instant::now();
        drop(gate.enter(&a).await.unwrap());
        for _ in 0..20 {
            let mut given_up = Box::pin(gate.enter(&a));
            assert!(poll(given_up.as_mut()).is_none());
        }
        drop(gate.enter(&a).await.unwrap());
        assert_eq!(began.elapsed(), Duration::from_secs(1));
        drop(gate.enter(&a).await.unwrap());
        assert_eq!(began.elapsed(), Duration::from_secs(2));
        assert_eq!(gate.lock().running, 0);
    }
}
