//! How fast a client may send. What is not here: what happens to one that sends faster (`connection`).

use tokio::time::Instant;

/// A bucket of tokens that fills with time.
#[derive(Debug)]
pub(super) struct Rate {
    per_s: f64,
    most: f64,
    left: f64,
    at: Instant,
}

impl Rate {
    /// A full bucket.
    pub(super) fn new(per_s: u32, burst: u32, now: Instant) -> Self {
        let most = f64::from(burst);
        Self { per_s: f64::from(per_s), most, left: most, at: now }
    }

    /// Takes a token, if there is one.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.at = now;
        self.left = (self.left + passed * self.per_s).min(self.most);
        if self.left < 1.0 {
            return false;
        }
        self.left -= 1.0;
        true
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_burst_passes_and_then_the_average() {
        let start = Instant::now();
        let mut rate = Rate::new(20, 100, start);
        assert_eq!((0..150).filter(|_| rate.take(start)).count(), 100);
        let later = start + Duration::from_secs(1);
        assert_eq!((0..150).filter(|_| rate.take(later)).count(), 20);
        let much_later = later + Duration::from_secs(3_600);
        assert_eq!((0..150).filter(|_| rate.take(much_later)).count(), 100);
    }
}
