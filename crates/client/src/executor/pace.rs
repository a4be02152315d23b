//! How fast frames are sent, so that the server's limit (20 a second after a burst of 100) is never met, not even when
//! everything is said again after a lost connection. What is not here: sending (`engine`).

use std::time::Duration;

use tokio::time::Instant;

/// Frames a second.
const PER_SECOND: f64 = 15.0;
/// Frames at once.
const BURST: f64 = 60.0;
/// Frames that are left for what matters.
const RESERVE: f64 = 30.0;

/// A bucket of frames that fills with time.
#[derive(Debug)]
pub(super) struct Pace {
    left: f64,
    at: Instant,
}

impl Pace {
    pub(super) const fn new(now: Instant) -> Self {
        Self { left: BURST, at: now }
    }

    /// Counts a frame; the time to wait before it is sent.
    pub(super) fn wait(&mut self, now: Instant) -> Duration {
        self.fill(now);
        self.left -= 1.0;
        if self.left >= 0.0 { Duration::ZERO } else { Duration::from_secs_f64(-self.left / PER_SECOND) }
    }

    /// Whether there is room for a frame that may as well be lost.
    pub(super) fn has_room(&mut self, now: Instant) -> bool {
        self.fill(now);
        self.left > RESERVE
    }

    fn fill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.at = now;
        self.left = (self.left + passed * PER_SECOND).min(BURST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_frames_are_sent_than_the_server_bears() {
        let start = Instant::now();
        let (mut pace, mut now) = (Pace::new(start), start);
        let mut sent = 0_u32;
        while now < start + Duration::from_secs(10) {
            now += pace.wait(now);
            sent += 1;
        }
        assert!((200..=300).contains(&sent), "{sent} in ten seconds");
        assert!(!pace.has_room(now));
        assert!(pace.has_room(now + Duration::from_secs(60)));
    }
}
