//! Distributions of the last minutes.

use super::Distribution;

const PERIOD_US: u64 = 60_000_000;

/// A distribution of values of the last one to two minutes.
#[derive(Clone, Debug, Default)]
pub struct Recent {
    /// Number of the minute that values are recorded in.
    period: u64,
    current: Distribution,
    before: Distribution,
}

impl Recent {
    /// Records a value `times` times.
    pub fn record_n(&mut self, now_us: u64, value: u64, times: u64) {
        let period = now_us / PERIOD_US;
        if period != self.period {
            std::mem::swap(&mut self.before, &mut self.current);
            self.current.clear();
            if period != self.period + 1 {
                self.before.clear();
            }
            self.period = period;
        }
        self.current.record_n(value, times);
    }

    /// What was recorded last.
    #[must_use]
    pub fn at(&self, now_us: u64) -> Distribution {
        let mut recent = Distribution::default();
        let ago = (now_us / PERIOD_US).saturating_sub(self.period);
        if ago == 0 {
            recent.merge(&self.before);
        }
        if ago <= 1 {
            recent.merge(&self.current);
        }
        recent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_older_than_two_minutes_is_forgotten() {
        let mut recent = Recent::default();
        recent.record_n(0, 10, 1);
        recent.record_n(PERIOD_US, 20, 2);
        let at = |recent: &Recent, minutes| recent.at(minutes * PERIOD_US).totals();
        assert_eq!((at(&recent, 1).count, at(&recent, 2).count, at(&recent, 3).count), (3, 2, 0));
        recent.record_n(2 * PERIOD_US, 30, 1);
        assert_eq!((at(&recent, 2).count, at(&recent, 2).min), (3, 20));
        recent.record_n(9 * PERIOD_US, 40, 1);
        assert_eq!(at(&recent, 9).count, 1);
    }
}
