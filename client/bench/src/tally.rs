//! What a measurement found, as one line from process to process.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use rustix::time::{ClockId, clock_gettime};

/// Before the measurement, so that everything is warm.
pub(crate) const WARMUP: Duration = Duration::from_millis(500);

/// A finished measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Tally {
    /// Operations a second.
    pub(crate) rate: f64,
    /// Operations a second of this process's CPU time; 0 if that was not measured.
    pub(crate) rate_per_cpu: f64,
    /// Latency in microseconds: median, and what 99 of 100 stay below; 0 if that was not measured.
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
}

impl Tally {
    /// As `line` printed it.
    pub(crate) fn parse(line: &str) -> Result<Self> {
        let mut numbers = line.split_whitespace().map(str::parse);
        let mut next = || numbers.next().context("a number is missing")?.context("not a number");
        Ok(Self { rate: next()?, rate_per_cpu: next()?, p50_us: next()?, p99_us: next()? })
    }

    pub(crate) fn line(&self) -> String {
        format!("{} {} {} {}", self.rate, self.rate_per_cpu, self.p50_us, self.p99_us)
    }
}

/// A measurement that runs: first warm, then in earnest.
pub(crate) struct Meter {
    warm_until: Instant,
    duration: Duration,
    began: Option<Began>,
    ops: u64,
    latencies: Histogram<u64>,
}

struct Began {
    at: Instant,
    cpu: Duration,
}

impl Meter {
    pub(crate) fn start(duration: Duration) -> Result<Self> {
        let latencies = Histogram::new(3)?;
        Ok(Self { warm_until: Instant::now() + WARMUP, duration, began: None, ops: 0, latencies })
    }

    /// Counts an operation that took so long; `false` when the time is over.
    pub(crate) fn count(&mut self, now: Instant, latency: Option<Duration>) -> bool {
        let Some(began) = &self.began else {
            if now >= self.warm_until {
                self.began = Some(Began { at: now, cpu: cpu_time() });
            }
            return true;
        };
        self.ops += 1;
        if let Some(latency) = latency {
            let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
            self.latencies.record(nanos).expect("it grows as needed");
        }
        now < began.at + self.duration
    }

    #[expect(clippy::cast_precision_loss, reason = "for people")]
    pub(crate) fn finish(&self) -> Result<Tally> {
        let began = self.began.as_ref().context("it never became warm")?;
        let cpu = cpu_time().saturating_sub(began.cpu);
        let us = |quantile| self.latencies.value_at_quantile(quantile) as f64 / 1000.0;
        Ok(Tally {
            rate: self.ops as f64 / began.at.elapsed().as_secs_f64(),
            rate_per_cpu: self.ops as f64 / cpu.as_secs_f64(),
            p50_us: us(0.5),
            p99_us: us(0.99),
        })
    }
}

/// CPU time of all threads of this process, in user and system mode.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}
