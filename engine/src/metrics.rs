//! Metrics: what a server counts and measures, under ZooKeeper's names where it has them (docs/metrics.md).
//!
//! [`FAMILIES`] has the name, type and meaning of every metric once. The rooms of a server count on their
//! own; whoever is asked collects [`Samples`] of them. `mntr` and the admin command `monitor` show them in
//! ZooKeeper's plain form ([`Samples::plain`]), `/metrics` in Prometheus' ([`Samples::prometheus`]).

mod distribution;
mod plain;
mod prometheus;
mod table;

pub use distribution::{Distribution, Sizes, Totals};
pub use plain::four_places;
pub use table::FAMILIES;

/// The label for the path of a tenant.
pub const TENANT: &str = "tenant";

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A value of the moment.
    Gauge,
    /// A number that only grows, until the process ends or `srst` resets it.
    Counter,
    /// Number, sum and extremes of values, and their quantiles if they are known.
    Summary,
    /// Values by ranges, which can be added up over servers and time; shown to Prometheus alone.
    Histogram,
}

/// Whose name a metric has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// ZooKeeper's: it means the same here.
    ZooKeeper,
    /// The one that Prometheus' clients have for every process.
    Process,
    /// Ours; Prometheus sees it with `ringkeeper_` in front.
    Ringkeeper,
}

/// A metric with all its labels.
#[derive(Debug)]
pub struct Family {
    /// Its name in the plain form; a `process_` in front is left out there.
    pub name: &'static str,
    /// Its type.
    pub kind: Kind,
    /// Whose name it is.
    pub origin: Origin,
    /// What it counts, in which unit.
    pub help: &'static str,
}

/// A family, by its place in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Metric(usize);

impl Metric {
    /// The family of this name; see [`samples!`](crate::samples), which has it looked up by the compiler.
    ///
    /// # Panics
    /// The table has no such name.
    #[must_use]
    pub const fn named(name: &str) -> Self {
        let mut place = 0;
        while place < FAMILIES.len() {
            if is_same(FAMILIES[place].name.as_bytes(), name.as_bytes()) {
                return Self(place);
            }
            place += 1;
        }
        panic!("the table of metrics has no such name")
    }

    fn family(self) -> &'static Family {
        &FAMILIES[self.0]
    }
}

/// `==` of slices is not const.
const fn is_same(left: &[u8], right: &[u8]) -> bool {
    if left.len() != right.len() {
        return false;
    }
    let mut place = 0;
    while place < left.len() {
        if left[place] != right[place] {
            return false;
        }
        place += 1;
    }
    true
}

/// A number: whole ones are shown without a fraction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Figure {
    /// A whole number.
    Whole(i64),
    /// A real one, such as an average.
    Real(f64),
}

/// What was counted or measured.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Of a gauge or a counter.
    Number(Figure),
    /// Of a gauge: a duration in microseconds.
    Time(u64),
    /// Of a summary.
    Summary(Summary),
    /// Of a histogram: durations in microseconds, which are shown in seconds.
    Histogram(Distribution),
}

/// The value of a summary.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    totals: Totals,
    /// [`QUANTILES`] of the values.
    quantiles: Option<[u64; QUANTILES.len()]>,
    /// Shown to Prometheus alone, where ZooKeeper gives no other quantile.
    median: Option<u64>,
    /// How many of what was recorded are one of what is shown.
    divisor: u32,
}

/// The quantiles that are shown: of them ZooKeeper has all but 0.9 in the plain form, and 0.5, 0.9 and 0.99
/// in Prometheus'.
const QUANTILES: [f64; 5] = [0.5, 0.9, 0.95, 0.99, 0.999];

/// Microseconds are recorded, milliseconds are shown, as ZooKeeper does.
const US_PER_MS: u32 = 1000;

impl Summary {
    /// Of durations in microseconds, without quantiles.
    #[must_use]
    pub const fn time_totals(totals: Totals) -> Self {
        Self { totals, quantiles: None, median: None, divisor: US_PER_MS }
    }

    /// Of durations in microseconds.
    #[must_use]
    pub fn times(times: &Distribution) -> Self {
        Self { quantiles: Some(times.quantiles(QUANTILES)), ..Self::time_totals(times.totals()) }
    }

    /// Of numbers or sizes, without quantiles.
    #[must_use]
    pub const fn amounts(totals: Totals) -> Self {
        Self { totals, quantiles: None, median: None, divisor: 1 }
    }

    /// With the median of what was recorded.
    #[must_use]
    pub const fn with_median(self, median: u64) -> Self {
        Self { median: Some(median), ..self }
    }

    /// In the unit that is shown.
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53, for people and monitoring")]
    fn shown(&self, value: u64) -> f64 {
        value as f64 / f64::from(self.divisor)
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Number(Figure::Whole(number))
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        i64::try_from(number).unwrap_or(i64::MAX).into()
    }
}

impl From<usize> for Value {
    fn from(number: usize) -> Self {
        i64::try_from(number).unwrap_or(i64::MAX).into()
    }
}

impl From<bool> for Value {
    fn from(yes: bool) -> Self {
        i64::from(yes).into()
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Self::Number(Figure::Real(number))
    }
}

impl From<Summary> for Value {
    fn from(summary: Summary) -> Self {
        Self::Summary(summary)
    }
}

/// A value of a family.
#[derive(Clone, Debug, PartialEq)]
struct Sample {
    metric: Metric,
    labels: Vec<(&'static str, String)>,
    value: Value,
}

/// Values of families, each family with one value or with one for each set of labels.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Samples(Vec<Sample>);

impl Samples {
    /// Adds the value of a family.
    pub fn add(&mut self, metric: Metric, value: impl Into<Value>) {
        self.add_labelled(metric, Vec::new(), value);
    }

    /// Adds one of the values of a family.
    pub fn add_labelled(
        &mut self,
        metric: Metric,
        labels: Vec<(&'static str, String)>,
        value: impl Into<Value>,
    ) {
        self.0.push(Sample { metric, labels, value: value.into() });
    }

    /// Adds all of `others`.
    pub fn extend(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    /// In the order of the table; those of a family in the order in which they were added.
    fn in_order(&self) -> Vec<&Sample> {
        let mut samples: Vec<_> = self.0.iter().collect();
        samples.sort_by_key(|sample| sample.metric);
        samples
    }
}

/// Adds values to [`Samples`]: `samples!(out, { "znode_count": 5_u64, "shards": 2_u64 })`. A name that the
/// table lacks does not compile.
#[macro_export]
macro_rules! samples {
    ($out:expr, { $($name:literal: $value:expr),* $(,)? }) => {
        $($out.add(const { $crate::metrics::Metric::named($name) }, $value);)*
    };
}

#[cfg(test)]
mod tests;
