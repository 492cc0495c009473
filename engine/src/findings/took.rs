//! How long something took in the last minutes.

use std::collections::VecDeque;
use std::fmt;

use crate::metrics::Distribution;

/// Ten seconds: when a disk becomes slow, fewer appends are made than in the second before. A longer time
/// would be one of quick appends still.
const PERIOD_US: u64 = 10_000_000;

/// Five minutes.
const PERIODS: u64 = 30;

/// Of fewer in a period nothing is said.
const COUNT_MIN: u64 = 3;

/// Of fewer, nine of ten are too few: one late ping in five says nothing of the network.
const TAIL_COUNT_MIN: u64 = 20;

/// How long something took in the worst ten seconds of the last minutes; microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Took {
    /// How often it was done in these ten seconds.
    pub count: u64,
    /// Half of them took at most this.
    pub p50_us: u64,
    /// Nine of ten took at most this.
    pub p90_us: u64,
    /// Now, the one that waits longest has waited for so long.
    pub waiting_us: u64,
}

impl Took {
    fn of(measured: &Distribution) -> Self {
        let [p50_us, p90_us] = measured.quantiles([0.5, 0.9]);
        Self { count: measured.totals().count, p50_us, p90_us, waiting_us: 0 }
    }

    /// What nine of ten took at most; of few, what half of them took.
    const fn usual_us(&self) -> u64 {
        if self.count < TAIL_COUNT_MIN { self.p50_us } else { self.p90_us }
    }

    /// What is to be judged: the usual time, or that of the one that still waits if it is longer.
    pub(super) fn judged_us(&self) -> u64 {
        self.usual_us().max(self.waiting_us)
    }
}

/// Shows it: `half within 12 ms, nine of ten within 40 ms, one waits for 300 ms`.
impl fmt::Display for Took {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "half within {}, nine of ten within {}", Shown(self.p50_us), Shown(self.p90_us))?;
        match self.waiting_us > self.p90_us {
            true => write!(f, ", one waits for {}", Shown(self.waiting_us)),
            false => Ok(()),
        }
    }
}

/// Microseconds, for people.
pub(super) struct Shown(pub(super) u64);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            us @ 0..10_000 => write!(f, "{}.{} ms", us / 1000, us % 1000 / 100),
            us @ 10_000..1_000_000 => write!(f, "{} ms", us / 1000),
            us => write!(f, "{}.{} s", us / 1_000_000, us % 1_000_000 / 100_000),
        }
    }
}

/// Measures it.
#[derive(Clone, Debug, Default)]
pub struct Recent {
    /// Number of the current period.
    period: u64,
    current: Distribution,
    /// The periods before, oldest first.
    ended: VecDeque<(u64, Took)>,
}

impl Recent {
    /// Records that it was done once.
    pub fn record(&mut self, now_us: u64, took_us: u64) {
        let period = now_us / PERIOD_US;
        if period != self.period {
            self.ended.push_back((self.period, Took::of(&self.current)));
            self.ended.retain(|(ended, _)| ended + PERIODS > period);
            self.current.clear();
            self.period = period;
        }
        self.current.record(took_us);
    }

    /// The worst of the last periods, and how long the one has waited that has begun and not ended.
    #[must_use]
    pub fn worst(&self, now_us: u64, waiting_us: u64) -> Took {
        let oldest = (now_us / PERIOD_US + 1).saturating_sub(PERIODS);
        let current = (self.period, Took::of(&self.current));
        let periods = self.ended.iter().chain([&current]).filter(|(period, _)| *period >= oldest);
        let counted = periods.map(|(_, took)| *took).filter(|took| took.count >= COUNT_MIN);
        Took { waiting_us, ..counted.max_by_key(Took::usual_us).unwrap_or_default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(recent: &mut Recent, second: u64, took_us: u64, times: u64) {
        (0..times).for_each(|_| recent.record(second * 1_000_000, took_us));
    }

    #[test]
    fn ten_bad_seconds_show_beside_many_good_ones_until_they_are_old() {
        let mut recent = Recent::default();
        record(&mut recent, 5, 100, 10_000);
        record(&mut recent, 15, 30_000, 10);
        record(&mut recent, 25, 100, 10_000);
        let worst = |second: u64| recent.worst(second * 1_000_000, 7);
        assert_eq!((worst(25).count, worst(25).waiting_us), (10, 7));
        assert!((30_000..31_000).contains(&worst(309).p90_us), "{:?}", worst(309));
        assert_eq!((worst(310).count, worst(320).count), (10_000, 0));
        record(&mut recent, 330, 50, 5);
        assert_eq!((recent.worst(330_000_000, 0).count, recent.ended.len()), (5, 0));
    }

    #[test]
    fn one_late_ping_of_few_is_not_the_usual_time() {
        let mut recent = Recent::default();
        record(&mut recent, 5, 300, 4);
        record(&mut recent, 5, 60_000, 1);
        record(&mut recent, 15, 900, 5);
        let worst = recent.worst(15_000_000, 0);
        assert!((900..1_000).contains(&worst.judged_us()), "{worst:?}");
    }

    #[test]
    fn one_or_two_say_nothing() {
        let mut recent = Recent::default();
        record(&mut recent, 5, 1_000_000, 2);
        assert_eq!(recent.worst(5_000_000, 0), Took::default());
    }
}
