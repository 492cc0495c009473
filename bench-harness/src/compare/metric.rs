//! What a workload yields: named figures with a unit and a direction.

use crate::measure::Measurement;

/// Which of two values is the better one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Better {
    Higher,
    Lower,
    /// Context, such as the load generator's own share.
    Neither,
}

impl Better {
    /// As tables write it.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Higher => "higher",
            Self::Lower => "lower",
            Self::Neither => "-",
        }
    }
}

/// One figure of one run.
#[derive(Clone, Debug)]
pub(crate) struct Metric {
    pub(crate) name: String,
    pub(crate) unit: &'static str,
    pub(crate) better: Better,
    pub(crate) value: f64,
}

impl Metric {
    pub(crate) fn higher(name: impl Into<String>, unit: &'static str, value: f64) -> Self {
        Self { name: name.into(), unit, better: Better::Higher, value }
    }

    pub(crate) fn lower(name: impl Into<String>, unit: &'static str, value: f64) -> Self {
        Self { name: name.into(), unit, better: Better::Lower, value }
    }

    pub(crate) fn context(name: impl Into<String>, unit: &'static str, value: f64) -> Self {
        Self { name: name.into(), unit, better: Better::Neither, value }
    }
}

/// The figures of a measurement: throughput, latencies at `percents`, and CPU time. `prefix` tells several
/// measurements of one workload apart.
pub(crate) fn metrics_of(measurement: &Measurement, prefix: &str, percents: &[f64]) -> Vec<Metric> {
    let mut metrics =
        vec![Metric::higher(format!("{prefix}throughput"), "operations/s", measurement.throughput())];
    for percent in percents {
        let latency = measurement.latency_us(*percent);
        metrics.push(Metric::lower(format!("{prefix}latency p{percent}"), "us", latency));
    }
    if let Some(cpu) = measurement.server_cpu_per_million() {
        metrics.push(Metric::lower(format!("{prefix}server CPU"), "s per million operations", cpu));
    }
    let share = measurement.generator_share() * 100.0;
    metrics.push(Metric::context(format!("{prefix}generator CPU"), "% of a core", share));
    metrics
}
