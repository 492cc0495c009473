//! The time with which a leader stamps transactions: its clock's, but never earlier than that of the
//! transaction before.
//!
//! A clock that was ahead, this leader's or that of one before it, leaves a time in the log that the right
//! clock reaches later. Until then the stamps go on from there at half the clock's speed: so they tell what
//! came first and how far apart, TTL znodes still expire, and the clock catches up.

use super::Now;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct TransactionTime {
    last_ms: i64,
    /// When the stamps went on from `last_ms`, on the monotonic clock.
    since_ms: u64,
}

impl TransactionTime {
    /// The last transaction has this time.
    pub(super) const fn new(now: Now, last_ms: i64) -> Self {
        Self { last_ms, since_ms: now.monotonic_ms }
    }

    /// Which time it is, milliseconds since the Unix epoch.
    pub(super) fn at(&self, now: Now) -> i64 {
        now.wall_ms.max(self.last_ms.saturating_add_unsigned(self.passed_ms(now) / 2))
    }

    /// The time of the next transaction.
    pub(super) fn next(&mut self, now: Now) -> i64 {
        let at_ms = self.at(now);
        if at_ms > self.last_ms {
            // An odd millisecond counts the next time.
            let odd_ms = if at_ms > now.wall_ms { self.passed_ms(now) % 2 } else { 0 };
            (self.last_ms, self.since_ms) = (at_ms, now.monotonic_ms - odd_ms);
        }
        self.last_ms
    }

    const fn passed_ms(&self, now: Now) -> u64 {
        now.monotonic_ms.saturating_sub(self.since_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now(monotonic_ms: u64, wall_ms: i64) -> Now {
        Now { monotonic_ms, wall_ms }
    }

    #[test]
    fn transactions_have_the_clocks_time() {
        let mut time = TransactionTime::new(now(0, 100), 100);
        assert_eq!([now(0, 100), now(0, 100), now(7, 107)].map(|now| time.next(now)), [100, 100, 107]);
        assert_eq!(time.at(now(1000, 1100)), 1100);
    }

    #[test]
    fn time_goes_on_at_half_speed_from_a_time_that_was_ahead_until_the_clock_has_caught_up() {
        let mut time = TransactionTime::new(now(0, 0), 0);
        assert_eq!(time.next(now(10, 5010)), 5010, "the clock jumps ahead");
        let stamps: Vec<_> = (11..=14_i64).map(|ms| time.next(now(ms.unsigned_abs(), ms))).collect();
        assert_eq!(stamps, [5010, 5011, 5011, 5012], "and back");
        assert_eq!(time.at(now(1010, 1010)), 5510);
        assert_eq!(
            [9_990, 10_010, 10_020].map(|ms: i64| time.next(now(ms.unsigned_abs(), ms))),
            [10_000, 10_010, 10_020]
        );
    }
}
