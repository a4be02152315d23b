//! Leaves a provider alone that keeps failing, and tries it again with one request after a while. What is not here: what
//! counts as failing (`exchange`).

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use toolgate_core::bundle::model::Breaker as Settings;

/// The breaker of one provider.
#[derive(Debug, Default)]
pub(crate) struct Breaker {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    failures: u32,
    open_until: Option<Instant>,
}

/// Providers by the state of their breaker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BreakerStates {
    /// Left alone at the moment.
    pub open: usize,
    /// Asked as ever.
    pub closed: usize,
}

impl Breaker {
    /// Whether the provider is left alone at the moment.
    pub(crate) fn is_open(&self) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.open_until.is_some_and(|until| until > Instant::now())
    }

    /// Whether a request may go out; else how long the provider is still left alone. The first request after that time
    /// tries the provider, and the others go on waiting: if it is given up, the next try comes as much later.
    pub(crate) fn check(&self, settings: Option<Settings>) -> Result<(), Duration> {
        let Some(settings) = settings else { return Ok(()) };
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        match state.open_until {
            Some(until) if until > now => Err(until - now),
            Some(_) => {
                state.open_until = Some(now + Duration::from_millis(settings.open_ms));
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Counts an attempt.
    pub(crate) fn count(&self, settings: Option<Settings>, failed: bool) {
        let Some(settings) = settings else { return };
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !failed {
            *state = State::default();
            return;
        }
        state.failures = state.failures.saturating_add(1);
        if state.failures >= settings.failures {
            state.open_until = Some(Instant::now() + Duration::from_millis(settings.open_ms));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_opens_after_failures_in_a_row_and_tries_with_one() {
        let settings = Some(Settings { failures: 2, open_ms: 1_000 });
        let breaker = Breaker::default();
        breaker.count(settings, true);
        breaker.count(settings, false);
        breaker.count(settings, true);
        assert_eq!(breaker.check(settings), Ok(()));
        breaker.count(settings, true);
        assert_eq!(breaker.check(settings), Err(Duration::from_secs(1)));
        assert_eq!(breaker.check(None), Ok(()));
        tokio::time::advance(Duration::from_millis(1_000)).await;
        assert_eq!(breaker.check(settings), Ok(()));
        assert!(breaker.check(settings).is_err());
        breaker.count(settings, false);
        assert_eq!(breaker.check(settings), Ok(()));
    }
}
