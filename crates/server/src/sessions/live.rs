//! What was appended of late, for those who follow a session from this node: they all take it from here, and what it looks
//! like on the wire is made once for all of them. A cache of the log's end and nothing more: whoever lacks something reads
//! the log. What is not here: who is told that there is more (`heads`), the forms on the wire (`routes::stream`, `channel`).

use std::sync::{Arc, OnceLock};

use axum::body::Bytes;
use axum::extract::ws::Utf8Bytes;
use toolgate_core::event::Recorded;

/// The most events that are kept.
const MOST: usize = 64;
/// The most bytes, as stored, that are kept.
const MOST_BYTES: usize = 256 * 1024;

/// An event that several may send.
#[derive(Debug)]
pub struct Live {
    /// The event.
    pub recorded: Recorded,
    /// Header and payload as stored.
    size: usize,
    sse: OnceLock<Bytes>,
    line: OnceLock<Bytes>,
    frame: OnceLock<Utf8Bytes>,
}

impl Live {
    /// An event that takes so many bytes in the log.
    #[must_use]
    pub const fn new(recorded: Recorded, size: usize) -> Self {
        Self { recorded, size, sse: OnceLock::new(), line: OnceLock::new(), frame: OnceLock::new() }
    }

    /// It as a server-sent event, made by whoever needs it first.
    pub fn sse(&self, make: impl FnOnce(&Recorded) -> Bytes) -> Bytes {
        self.sse.get_or_init(|| make(&self.recorded)).clone()
    }

    /// It as a line of JSON.
    pub fn line(&self, make: impl FnOnce(&Recorded) -> Bytes) -> Bytes {
        self.line.get_or_init(|| make(&self.recorded)).clone()
    }

    /// It as a frame of the channel.
    pub fn frame(&self, make: impl FnOnce(&Recorded) -> Utf8Bytes) -> Utf8Bytes {
        self.frame.get_or_init(|| make(&self.recorded)).clone()
    }
}

/// The last events of a log, without a gap; none when nobody follows.
#[derive(Debug, Clone, Default)]
pub(super) struct Recent(Arc<[Arc<Live>]>);

impl Recent {
    /// These and what follows them. The oldest go where there are too many.
    pub(super) fn and(&self, fresh: Vec<Live>) -> Self {
        let Some(first) = fresh.first().map(|live| live.recorded.seq) else { return self.clone() };
        let follows = self.0.last().is_some_and(|last| last.recorded.seq.checked_add(1) == Some(first));
        let known: &[Arc<Live>] = if follows { &self.0 } else { &[] };
        let mut all: Vec<Arc<Live>> = known.iter().cloned().chain(fresh.into_iter().map(Arc::new)).collect();
        let mut bytes = 0_usize;
        let fits = |live: &&Arc<Live>| {
            bytes = bytes.saturating_add(live.size);
            bytes <= MOST_BYTES
        };
        let kept = all.iter().rev().take(MOST).take_while(fits).count();
        all.drain(..all.len().saturating_sub(kept));
        Self(all.into())
    }

    /// These, unless the log is longer than this knows, or nobody has asked for them.
    pub(super) fn ending_at(self, head: u64) -> Self {
        if self.0.last().is_some_and(|last| last.recorded.seq == head) { self } else { Self::default() }
    }

    /// What comes after a place, if all of it is here; nothing comes after the end.
    pub(super) fn after(&self, seq: u64) -> Option<&[Arc<Live>]> {
        let (first, last) = (self.0.first()?.recorded.seq, self.0.last()?.recorded.seq);
        if seq > last {
            return None;
        }
        let known = seq.checked_add(1)?.checked_sub(first)?;
        self.0.get(usize::try_from(known).ok()?..)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use toolgate_core::event::{Event, OwnerChanged};
    use toolgate_core::time::Timestamp;

    use super::*;

    fn live(seqs: std::ops::RangeInclusive<u64>, size: usize) -> Vec<Live> {
        let event = Event::OwnerChanged(OwnerChanged { node: "n".to_owned(), incarnation: 1 });
        let at = |seq| Recorded { seq, epoch: 1, at: Timestamp(0), input_id: None, event: event.clone() };
        seqs.map(|seq| Live::new(at(seq), size)).collect()
    }

    fn seqs(recent: &Recent, after: u64) -> Option<Vec<u64>> {
        recent.after(after).map(|events| events.iter().map(|live| live.recorded.seq).collect())
    }

    #[test]
    fn what_follows_is_added_and_told_from_any_place_in_it() {
        let recent = Recent::default().and(live(5..=6, 1)).and(live(7..=7, 1));
        assert_eq!(seqs(&recent, 4), Some(vec![5, 6, 7]));
        assert_eq!(seqs(&recent, 6), Some(vec![7]));
        assert_eq!(seqs(&recent, 7), Some(vec![]));
        assert_eq!(seqs(&recent, 3), None, "event 4 is not here");
        assert_eq!(seqs(&recent, 8), None, "the log is longer than this");
        assert_eq!(seqs(&Recent::default(), 0), None);
        assert_eq!(seqs(&recent, u64::MAX), None);
    }

    #[test]
    fn after_a_gap_it_begins_anew() {
        let recent = Recent::default().and(live(1..=3, 1)).and(live(5..=5, 1));
        assert_eq!(seqs(&recent, 3), None);
        assert_eq!(seqs(&recent, 4), Some(vec![5]));
    }

    #[test]
    fn it_is_forgotten_when_the_log_is_longer() {
        let recent = Recent::default().and(live(1..=3, 1));
        assert_eq!(seqs(&recent.clone().ending_at(3), 2), Some(vec![3]));
        assert_eq!(seqs(&recent.ending_at(4), 2), None);
    }

    #[test]
    fn it_is_bounded_in_events_and_bytes() {
        let recent = Recent::default().and(live(1..=MOST as u64, 1)).and(live(MOST as u64 + 1..=MOST as u64 + 1, 1));
        assert_eq!(seqs(&recent, 0), None);
        assert_eq!(seqs(&recent, 1).unwrap().len(), MOST);
        let recent = Recent::default().and(live(1..=10, MOST_BYTES / 4));
        assert_eq!(seqs(&recent, 6), Some(vec![7, 8, 9, 10]));
        let recent = recent.and(live(11..=11, MOST_BYTES + 1));
        assert_eq!(seqs(&recent, 10), None, "what is too large is read from the log");
        assert_eq!(seqs(&recent.and(live(12..=12, 1)), 11), Some(vec![12]));
    }

    #[test]
    fn a_form_is_made_once() {
        let one = live(1..=1, 1).pop().unwrap();
        assert_eq!(one.sse(|_| Bytes::from_static(b"first")), one.sse(|_| Bytes::from_static(b"second")));
    }
}
