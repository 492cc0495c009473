//! Replies counted in slots of time, for pictures of throughput over time.

use std::time::{Duration, Instant};

/// Counts in slots of one length from a moment on.
#[derive(Clone, Debug)]
pub(crate) struct Timeline {
    from: Instant,
    slot: Duration,
    counts: Vec<u64>,
}

impl Timeline {
    /// An empty one.
    pub(crate) const fn new(from: Instant, slot: Duration) -> Self {
        Self { from, slot, counts: Vec::new() }
    }

    /// Counts a reply; one that came before the beginning belongs to a warm-up and to no slot.
    pub(crate) fn record(&mut self, at: Instant) {
        let Some(after) = at.checked_duration_since(self.from) else { return };
        let slot = after.as_nanos() / self.slot.as_nanos();
        let slot = usize::try_from(slot).expect("runs are shorter than memory is large");
        if slot >= self.counts.len() {
            self.counts.resize(slot + 1, 0);
        }
        self.counts[slot] += 1;
    }

    /// Adds the counts of another timeline of the same beginning and slots.
    pub(crate) fn add(&mut self, other: &Self) {
        assert_eq!((self.from, self.slot), (other.from, other.slot), "timelines of different runs");
        self.counts.resize(self.counts.len().max(other.counts.len()), 0);
        self.counts.iter_mut().zip(&other.counts).for_each(|(own, others)| *own += others);
    }

    /// The counts of the slots, oldest first, with nothing after the last reply.
    pub(crate) fn counts(&self) -> &[u64] {
        &self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_count_in_their_slots() {
        let earlier = Instant::now();
        let from = earlier + Duration::from_millis(30);
        let at = |ms: u64| from + Duration::from_millis(ms);
        let mut timeline = Timeline::new(from, Duration::from_millis(100));
        [0, 99, 100, 350].into_iter().for_each(|ms| timeline.record(at(ms)));
        let mut other = Timeline::new(from, Duration::from_millis(100));
        other.record(at(420));
        timeline.add(&other);
        // Of a warm-up.
        timeline.record(earlier);
        assert_eq!(timeline.counts(), [2, 1, 0, 1, 1]);
    }
}
