//! Prometheus' text format 0.0.4.

use std::borrow::Cow;
use std::fmt::{self, Write};

use super::{Family, Figure, Kind, Metric, Origin, QUANTILES, Sample, Samples, Summary, US_PER_MS, Value};
use crate::metrics::Distribution;

/// Upper bounds of a histogram's ranges, microseconds.
const BOUNDS_US: [u64; 19] = [
    10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 5_000_000, 10_000_000,
];

const US_PER_SECOND: f64 = 1_000_000.0;

impl Samples {
    /// The samples as `/metrics` shows them: names of ZooKeeper as they are, in its milliseconds but with
    /// fractions; ours begin with `ringkeeper_`.
    #[must_use]
    pub fn prometheus(&self) -> String {
        let mut out = String::new();
        let mut last: Option<Metric> = None;
        for sample in self.in_order() {
            let family = sample.metric.family();
            if last.replace(sample.metric) != Some(sample.metric) {
                family.header(&mut out).expect(WRITES);
            }
            sample.lines(&mut out).expect(WRITES);
        }
        out
    }
}

const WRITES: &str = "writing to a String does not fail";

impl Family {
    /// The name that Prometheus sees.
    pub(super) fn exposed_name(&self) -> Cow<'static, str> {
        match (self.origin, self.kind) {
            (Origin::ZooKeeper | Origin::Process, _) => self.name.into(),
            (Origin::Ringkeeper, Kind::Counter) => format!("ringkeeper_{}_total", self.name).into(),
            (Origin::Ringkeeper, _) => format!("ringkeeper_{}", self.name).into(),
        }
    }

    fn header(&self, out: &mut String) -> fmt::Result {
        let (name, help) = (self.exposed_name(), self.help.replace('\\', "\\\\").replace('\n', "\\n"));
        let kind = match self.kind {
            Kind::Gauge => "gauge",
            Kind::Counter => "counter",
            Kind::Summary => "summary",
            Kind::Histogram => "histogram",
        };
        write!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n")
    }
}

impl Sample {
    fn lines(&self, out: &mut String) -> fmt::Result {
        match &self.value {
            Value::Number(Figure::Whole(number)) => self.line(out, "", None, number),
            Value::Number(Figure::Real(number)) => self.line(out, "", None, number),
            Value::Time(us) => self.line(out, "", None, in_ms(*us)),
            Value::Summary(summary) => self.summary(out, summary),
            Value::Histogram(times) => self.histogram(out, times),
        }
    }

    fn summary(&self, out: &mut String, summary: &Summary) -> fmt::Result {
        let count = summary.totals.count;
        let quantiles = summary.quantiles.as_ref().map_or(summary.median.as_slice(), <[u64; _]>::as_slice);
        for (quantile, value) in QUANTILES.iter().zip(quantiles) {
            let value = if count == 0 { f64::NAN } else { summary.shown(*value) };
            self.line(out, "", Some(("quantile", quantile)), value)?;
        }
        self.line(out, "_count", None, count)?;
        self.line(out, "_sum", None, summary.shown(summary.totals.sum))
    }

    #[expect(clippy::cast_precision_loss, reason = "durations far below 2^53 microseconds")]
    fn histogram(&self, out: &mut String, times: &Distribution) -> fmt::Result {
        let totals = times.totals();
        for bound_us in BOUNDS_US {
            let bound = bound_us as f64 / US_PER_SECOND;
            self.line(out, "_bucket", Some(("le", &bound)), times.count_upto(bound_us))?;
        }
        self.line(out, "_bucket", Some(("le", &"+Inf")), totals.count)?;
        self.line(out, "_count", None, totals.count)?;
        self.line(out, "_sum", None, totals.sum as f64 / US_PER_SECOND)
    }

    /// One line; `more` is a label beside the sample's own.
    fn line(
        &self,
        out: &mut String,
        suffix: &str,
        more: Option<(&str, &dyn fmt::Display)>,
        value: impl fmt::Display,
    ) -> fmt::Result {
        write!(out, "{}{suffix}", self.metric.family().exposed_name())?;
        let own = self.labels.iter().map(|(label, value)| (*label, value as &dyn fmt::Display));
        let mut separator = '{';
        for (label, value) in own.chain(more) {
            write!(out, "{separator}{label}=\"{}\"", escaped(&value.to_string()))?;
            separator = ',';
        }
        if separator == ',' {
            out.push('}');
        }
        writeln!(out, " {value}")
    }
}

#[expect(clippy::cast_precision_loss, reason = "durations far below 2^53 microseconds")]
fn in_ms(us: u64) -> f64 {
    us as f64 / f64::from(US_PER_MS)
}

/// A label's value: clients choose some of them, such as the first element of a path.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
