//! Latency against load: requests leave when they are due, whether or not the servers keep up.

use std::time::Duration;

use anyhow::{Context, Result};

use super::bench::{Bench, GENERATOR_CPU, LATENCY_P50, LATENCY_P99, Place, SERVER_CPU, Turn, condition};
use super::chart::number;
use super::experiment::{Experiment, Plan, View};
use super::scale::{Axis, Scale};
use crate::measure::{Load, as_f64};
use crate::statistics::median;
use crate::window::Surroundings;

/// Sessions over which the requests are spread.
const SESSIONS: usize = 64;

/// Shares of what the slowest system reaches when it is saturated, which every system gets; and of its own
/// saturation, which a system gets that reaches much more.
const SHARES_OF_SLOWEST: [f64; 5] = [0.1, 0.25, 0.5, 0.75, 0.9];
const SHARES_OF_OWN: [f64; 4] = [0.25, 0.5, 0.75, 0.9];
const QUICK_OF_SLOWEST: [f64; 3] = [0.2, 0.5, 0.8];
const QUICK_OF_OWN: [f64; 2] = [0.4, 0.8];

/// From this multiple of the slowest on, a system gets loads of its own.
const MUCH_MORE: f64 = 1.5;

/// The greatest share of its own saturation that a system gets.
const OWN_MAX: f64 = 0.9;

/// A load of its own that is nearer than this to a common one would show nothing new.
const NEAR: f64 = 0.25;

/// Reads alone, and writes alone.
const KINDS: [(&str, u8); 2] = [("reads", 100), ("writes", 0)];

const SENT_LATE: &str = "sent more than 1 ms late";
const STOOD_STILL: &str = "longest pause of the machine";

/// What is different where etcd is measured.
const ON_ETCD: &str = "etcd: it gets those of the common loads that it can take (nine tenths of its own \
    saturation at most), and shares of its own saturation where it cannot take all of them.";

/// Latency under load.
pub(crate) struct LatencyUnderLoad;

impl Experiment for LatencyUnderLoad {
    fn plan(&self) -> Plan {
        Plan {
            id: "latency",
            title: "Latency against load, open loop",
            about: "getData and setData of 1 KiB that come at random at a given average rate, as from many \
                    independent clients, over 64 sessions. Latency counts from when a request was due, so \
                    nobody's waiting is left out. The loads are shares of what the slowest system reaches \
                    when it is saturated (of those with ZooKeeper's protocol), so that all have the same \
                    ones, and beyond them shares of a faster system's own saturation. Bare servers \
                    (floor) show how much of the far percentiles is the machine's and the generator's. A \
                    window in which all processors stood still for more than 5 ms at once, seen by threads \
                    that come before all others, does not count: then every request is late, whoever answers \
                    it.",
            x: Axis { label: "load, requests/s", scale: Scale::Log },
            views: vec![
                View::log(LATENCY_P99, "", "p99 latency, us"),
                View::log(LATENCY_P50, "p50", "median latency, us"),
                View::log("latency p99.9", "p99.9", "p99.9 latency, us"),
                View::log("latency p99.99", "p99.99", "p99.99 latency, us"),
            ],
            figures: vec![
                LATENCY_P50,
                LATENCY_P99,
                "latency p99.9",
                "latency p99.99",
                SERVER_CPU,
                GENERATOR_CPU,
                SENT_LATE,
                STOOD_STILL,
            ],
            etcd: true,
            floor: true,
            many_generators: true,
            ..Plan::default()
        }
    }

    fn run(&self, bench: &mut Bench<'_>) -> Result<()> {
        bench.note_on_etcd(ON_ETCD);
        let size = bench.first_size();
        let saturations = saturations(bench, size)?;
        bench.turns(&[size], |turn| {
            for (kind, (series, reads_percent)) in KINDS.into_iter().enumerate() {
                for rate in rates(turn, kind, &saturations) {
                    turn.at(&format!("{} {series}/s", number(rate)));
                    at_rate(turn, series, reads_percent, rate)?;
                }
            }
            Ok(())
        })
    }
}

/// What a system reaches with each kind of requests, the median of as many windows as there are runs: a JVM
/// that has just started reaches half as much in its first ones.
struct Saturation {
    system: &'static str,
    is_etcd: bool,
    reached: [f64; 2],
}

type Saturations = Vec<Saturation>;

fn saturations(bench: &mut Bench<'_>, size: usize) -> Result<Saturations> {
    let settings = bench.settings;
    let mut found = Vec::new();
    for subject in bench.subjects().filter(|subject| !subject.is_floor()) {
        bench.progress.at(&format!("{}: how much it takes", subject.name()));
        let service = settings.serve(subject, size)?;
        condition(&service, &settings.saturation, settings.pace.conditioning)?;
        let around = Surroundings { generators: settings.generators.as_ref(), ..Surroundings::default() };
        let mut reached = [0.0; 2];
        for (kind, (_, reads_percent)) in KINDS.into_iter().enumerate() {
            let load = settings.saturation.load(reads_percent, settings.pace.warmup, settings.pace.window);
            let mut windows = Vec::new();
            for _ in 0..settings.pace.runs {
                let measured = service.measure(service.addresses(), around, &load).context("saturating")?;
                windows.push(measured.throughput());
            }
            reached[kind] = median(windows).unwrap_or(0.0);
        }
        bench.note(format!(
            "{} saturated: {} reads/s, {} writes/s",
            subject.name(),
            number(reached[0]),
            number(reached[1])
        ));
        found.push(Saturation { system: subject.name(), is_etcd: subject.is_etcd(), reached });
    }
    Ok(found)
}

/// The loads of one system. All have those in common that are shares of the slowest one's saturation; etcd,
/// which may be slower, does not lower them for the others, but has those that it can take, and shares of its
/// own. The bare responder has the common ones and no others.
fn rates(turn: &Turn<'_, '_>, kind: usize, saturations: &Saturations) -> Vec<f64> {
    let reached = |system: &Saturation| system.reached[kind];
    let own = saturations.iter().find(|other| other.system == turn.system()).map(reached);
    let slowest =
        saturations.iter().filter(|other| !other.is_etcd).map(reached).fold(f64::INFINITY, f64::min);
    let (of_slowest, of_own) =
        turn.pace().pick((&QUICK_OF_SLOWEST[..], &QUICK_OF_OWN[..]), (&SHARES_OF_SLOWEST, &SHARES_OF_OWN));
    rates_of(own, slowest, of_slowest, of_own)
}

fn rates_of(own: Option<f64>, slowest: f64, of_slowest: &[f64], of_own: &[f64]) -> Vec<f64> {
    let common: Vec<f64> = of_slowest.iter().map(|share| (share * slowest).round()).collect();
    let Some(own) = own else { return common };
    let mut rates: Vec<f64> = common.iter().copied().filter(|rate| *rate <= OWN_MAX * own).collect();
    let shares = of_own.iter().map(|share| (share * own).round());
    if rates.len() < common.len() {
        let is_new = |rate: &f64| common.iter().all(|other| (rate / other - 1.0).abs() > NEAR);
        rates.extend(shares.filter(is_new));
    } else if own > MUCH_MORE * slowest {
        rates.extend(shares.filter(|rate| *rate > slowest));
    }
    rates.retain(|rate| *rate >= 1.0);
    rates.sort_by(f64::total_cmp);
    rates
}

fn at_rate(turn: &mut Turn<'_, '_>, series: &str, reads_percent: u8, rate: f64) -> Result<()> {
    let Load { warmup, window, .. } = turn.saturation().load(0, turn.pace().warmup, turn.pace().window);
    let load = Load {
        sessions: SESSIONS,
        znodes: SESSIONS,
        per_second: Some(rate / as_f64(turn.generators() as u64)),
        // Longer: the far percentiles need many requests.
        window: (window * 2).max(Duration::from_secs(3)),
        ..turn.saturation().load(reads_percent, warmup, window)
    };
    let measured = turn.measure(turn.addresses(), &load)?;
    let place = Place { series, x: rate };
    turn.record_measurement(place, &measured);
    let mut of_the_machine = vec![(SENT_LATE, "% of requests", measured.late_percent())];
    if let Some(pause) = measured.stood_still {
        of_the_machine.push((STOOD_STILL, "ms", pause.as_secs_f64() * 1e3));
    }
    turn.record(place, &of_the_machine, &measured.objections);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_faster_system_has_the_common_loads_and_its_own_beyond_them() {
        assert_eq!(rates_of(Some(1000.0), 1000.0, &[0.2, 0.5, 0.8], &[0.4, 0.8]), [200.0, 500.0, 800.0]);
        assert_eq!(
            rates_of(Some(5000.0), 1000.0, &[0.2, 0.5], &[0.1, 0.4, 0.8]),
            [200.0, 500.0, 2000.0, 4000.0]
        );
    }

    #[test]
    fn what_has_no_saturation_of_its_own_has_the_common_ones() {
        assert_eq!(rates_of(None, 1000.0, &[0.2, 0.5], &[0.4, 0.8]), [200.0, 500.0]);
    }

    #[test]
    fn a_slower_one_has_what_it_can_take_and_what_that_leaves_out() {
        assert_eq!(rates_of(Some(300.0), 1000.0, &[0.2, 0.5, 0.8], &[0.4, 0.8]), [120.0, 200.0]);
        assert_eq!(rates_of(Some(100.0), 1000.0, &[0.2, 0.5, 0.8], &[0.4, 0.8]), [40.0, 80.0]);
    }
}
