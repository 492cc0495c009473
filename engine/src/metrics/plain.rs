//! ZooKeeper's own form: a name and a number, several of them for a summary.

use std::fmt;

use super::{Figure, Kind, Sample, Samples, Summary, TENANT, US_PER_MS, Value};

impl Samples {
    /// Names and figures as `mntr` and the admin command `monitor` show them, without the prefix `zk_`. A
    /// summary `x` is `avg_x`, `min_x`, `max_x`, `cnt_x` and `sum_x`, and with quantiles `p50_x` to `p999_x`.
    /// Labels stand before the name; figures of tenants are left out, since their paths do not fit there.
    /// Extremes and sums are whole, as in ZooKeeper, since tools that store them expect that.
    #[must_use]
    pub fn plain(&self) -> Vec<(String, Figure)> {
        self.in_order().into_iter().flat_map(Sample::plain).collect()
    }
}

impl Sample {
    fn plain(&self) -> Vec<(String, Figure)> {
        let family = self.metric.family();
        if self.labels.iter().any(|(label, _)| *label == TENANT) {
            return Vec::new();
        }
        let mut name = family.name.strip_prefix("process_").unwrap_or(family.name).to_owned();
        if let Some((_, first)) = self.labels.first() {
            name = format!("{first}_{name}");
        }
        match &self.value {
            Value::Number(figure) => vec![(name, *figure)],
            Value::Time(us) => vec![(name, whole(us / u64::from(US_PER_MS)))],
            Value::Summary(summary) => {
                let figures = summary.plain().into_iter();
                figures.map(|(prefix, figure)| (format!("{prefix}_{name}"), figure)).collect()
            }
            Value::Histogram(_) => {
                debug_assert_eq!(family.kind, Kind::Histogram, "{name}");
                Vec::new()
            }
        }
    }
}

impl Summary {
    fn plain(&self) -> Vec<(&'static str, Figure)> {
        let shown = |value: u64| whole(value / u64::from(self.divisor));
        let average = self.totals.average() / f64::from(self.divisor);
        let mut figures = vec![
            ("avg", Figure::Real(four_places(average))),
            ("min", shown(self.totals.min)),
            ("max", shown(self.totals.max)),
            ("cnt", whole(self.totals.count)),
            ("sum", shown(self.totals.sum)),
        ];
        if let Some([p50, _, p95, p99, p999]) = self.quantiles {
            let quantiles = [("p50", p50), ("p95", p95), ("p99", p99), ("p999", p999)];
            figures.extend(quantiles.map(|(prefix, value)| (prefix, Figure::Real(self.shown(value)))));
        }
        figures
    }
}

fn whole(number: u64) -> Figure {
    Figure::Whole(i64::try_from(number).unwrap_or(i64::MAX))
}

/// Rounded as ZooKeeper rounds averages.
#[must_use]
pub fn four_places(number: f64) -> f64 {
    (number * 10_000.0).round() / 10_000.0
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(number) => write!(f, "{number}"),
            // With a fraction, even if it is zero.
            Self::Real(number) => write!(f, "{number:?}"),
        }
    }
}
