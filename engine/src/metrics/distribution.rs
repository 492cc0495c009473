//! Distributions of durations and sizes.

use hdrhistogram::Histogram;

/// Number, sum and extremes of values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// How many.
    pub count: u64,
    /// Their sum.
    pub sum: u64,
    /// The smallest; 0 if there is none.
    pub min: u64,
    /// The largest.
    pub max: u64,
}

impl Totals {
    /// Counts a value `times` times.
    pub fn record_n(&mut self, value: u64, times: u64) {
        self.merge(&Self { count: times, sum: value * times, min: value, max: value });
    }

    /// Counts one more.
    pub fn record(&mut self, value: u64) {
        self.record_n(value, 1);
    }

    /// Counts all of `other`.
    pub fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        self.min = if self.count == 0 { other.min } else { self.min.min(other.min) };
        self.max = self.max.max(other.max);
        self.sum += other.sum;
        self.count += other.count;
    }

    /// The average; 0 without values.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53, for people and monitoring")]
    pub fn average(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum as f64 / self.count as f64 }
    }
}

/// Sizes in bytes; -1 before the first, as in ZooKeeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// The last one.
    pub last: i64,
    /// The smallest.
    pub min: i64,
    /// The largest.
    pub max: i64,
}

impl Default for Sizes {
    fn default() -> Self {
        Self { last: -1, min: -1, max: -1 }
    }
}

impl Sizes {
    /// Counts one more.
    pub fn record(&mut self, bytes: usize) {
        let last = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.merge(&Self { last, min: last, max: last });
    }

    /// Counts all of `other`.
    pub fn merge(&mut self, other: &Self) {
        if other.last >= 0 {
            self.last = other.last;
            self.max = self.max.max(other.max);
            self.min = if self.min < 0 { other.min } else { self.min.min(other.min) };
        }
    }
}

/// A distribution of values: number, sum and extremes exactly, quantiles to two digits.
#[derive(Clone, Debug, PartialEq)]
pub struct Distribution {
    totals: Totals,
    histogram: Histogram<u64>,
}

/// Larger values count as this one in quantiles; a minute in microseconds.
const HIGHEST: u64 = 60_000_000;

impl Default for Distribution {
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(1, HIGHEST, 2).expect("bounds that the library takes");
        Self { totals: Totals::default(), histogram }
    }
}

impl Distribution {
    /// Records a value `times` times.
    pub fn record_n(&mut self, value: u64, times: u64) {
        self.totals.record_n(value, times);
        self.histogram.saturating_record_n(value, times);
    }

    /// Records a value.
    pub fn record(&mut self, value: u64) {
        self.record_n(value, 1);
    }

    /// Counts all of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.totals.merge(&other.totals);
        self.histogram.add(&other.histogram).expect("all have the same bounds");
    }

    /// Forgets all values.
    pub fn clear(&mut self) {
        self.totals = Totals::default();
        self.histogram.reset();
    }

    /// Number, sum and extremes.
    #[must_use]
    pub const fn totals(&self) -> Totals {
        self.totals
    }

    /// The values at these quantiles, between 0 and 1; 0 without values.
    #[must_use]
    pub fn quantiles<const N: usize>(&self, of: [f64; N]) -> [u64; N] {
        of.map(|quantile| self.histogram.value_at_quantile(quantile))
    }

    /// Number of values that are at most this, to two digits.
    pub(super) fn count_upto(&self, value: u64) -> u64 {
        self.histogram.count_between(0, value)
    }
}
