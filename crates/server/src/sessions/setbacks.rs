//! Sessions that could not be loaded of late, so that whoever wakes sessions tries each of them again, but not without
//! pause. What is not here: who wakes them (`resume`), loading (`load`, `journal`).

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use toolgate_store::SessionKey;

/// First pause after a failure; doubles up to the most.
const PAUSE_FIRST: Duration = Duration::from_millis(500);
/// Longest pause.
const PAUSE_MOST: Duration = Duration::from_secs(60);
/// Sessions that are remembered; beyond, a session is tried in every round.
const REMEMBERED: usize = 10_000;

/// What is remembered of failures.
#[derive(Debug, Default)]
pub(super) struct Setbacks {
    sessions: Mutex<HashMap<SessionKey, Setback>>,
}

#[derive(Debug)]
struct Setback {
    pause: Duration,
    until: Instant,
}

impl Setbacks {
    /// The session could not be loaded.
    pub(super) fn failed(&self, key: &SessionKey) {
        let now = Instant::now();
        let mut sessions = self.sessions();
        if let Some(known) = sessions.get_mut(key) {
            known.pause = (known.pause * 2).min(PAUSE_MOST);
            known.until = now + known.pause;
            return;
        }
        if sessions.len() >= REMEMBERED {
            // Nobody has tried these again: they are not wanted any more.
            sessions.retain(|_, known| known.until + PAUSE_MOST > now);
        }
        if sessions.len() < REMEMBERED {
            sessions.insert(key.clone(), Setback { pause: PAUSE_FIRST, until: now + PAUSE_FIRST });
        }
    }

    /// The session was loaded.
    pub(super) fn loaded(&self, key: &SessionKey) {
        self.sessions().remove(key);
    }

    /// Whether the session may be tried now.
    pub(super) fn may_try(&self, key: &SessionKey) -> bool {
        self.sessions().get(key).is_none_or(|known| known.until <= Instant::now())
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<SessionKey, Setback>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use toolgate_core::id::TenantId;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_and_end_with_success() {
        let setbacks = Setbacks::default();
        let session = crate::clock::new_session_id();
        let key = SessionKey { tenant: TenantId::new("acme").unwrap(), session };
        assert!(setbacks.may_try(&key));
        let mut pauses = Vec::new();
        for _ in 0..10 {
            setbacks.failed(&key);
            let began = Instant::now();
            while !setbacks.may_try(&key) {
                tokio::time::advance(Duration::from_millis(100)).await;
            }
            pauses.push(began.elapsed());
        }
        assert_eq!(pauses.first(), Some(&PAUSE_FIRST));
        assert!(pauses.is_sorted());
        assert_eq!(pauses.last(), Some(&PAUSE_MOST));
        setbacks.failed(&key);
        setbacks.loaded(&key);
        assert!(setbacks.may_try(&key));
    }
}
