//! Latency against load: requests leave when they are due, whether or not the servers keep up.

use std::time::Duration;

use anyhow::{Context, Result};

use super::bench::{Bench, GENERATOR_CPU, LATENCY_P50, LATENCY_P99, Place, SERVER_CPU, Turn, condition};
use super::chart::number;
use super::experiment::{Experiment, Plan, View};
use super::scale::{Axis, Scale};
use crate::measure::{Load, as_f64, measure};
use crate::window::Surroundings;

/// Sessions over which the requests are spread.
const SESSIONS: usize = 64;

/// Shares of what the slowest system reaches when it is saturated, which every system gets; and of its own saturation,
/// which a system gets that reaches much more.
const SHARES_OF_SLOWEST: [f64; 5] = [0.1, 0.25, 0.5, 0.75, 0.9];
const SHARES_OF_OWN: [f64; 4] = [0.25, 0.5, 0.75, 0.9];
const QUICK_OF_SLOWEST: [f64; 3] = [0.2, 0.5, 0.8];
const QUICK_OF_OWN: [f64; 2] = [0.4, 0.8];

/// From this multiple of the slowest on, a system gets loads of its own.
const MUCH_MORE: f64 = 1.5;

/// Reads alone, and writes alone.
const KINDS: [(&str, u8); 2] = [("reads", 100), ("writes", 0)];

/// Latency under load.
pub(crate) struct LatencyUnderLoad;

impl Experiment for LatencyUnderLoad {
    fn plan(&self) -> Plan {
        let view = |figure, suffix, label| View { figure, suffix, y: Axis { label, scale: Scale::Log } };
        Plan {
            id: "latency",
            title: "Latency against load, open loop",
            about: "getData and setData of 1 KiB that come at random at a given average rate, as from many independent clients, over \
                    64 sessions. Latency counts from when a request was due, so nobody's waiting is left out. The loads are shares of what \
                    the slowest system reaches when it is saturated, so that all have the same ones, and beyond them shares of a faster \
                    system's own saturation.",
            x: Axis { label: "load, requests/s", scale: Scale::Log },
            views: vec![
                view(LATENCY_P99, "", "p99 latency, us"),
                view(LATENCY_P50, "p50", "median latency, us"),
                view("latency p99.9", "p99.9", "p99.9 latency, us"),
                view("latency p99.99", "p99.99", "p99.99 latency, us"),
            ],
            figures: vec![
                LATENCY_P50,
                LATENCY_P99,
                "latency p99.9",
                "latency p99.99",
                SERVER_CPU,
                GENERATOR_CPU,
                "sent more than 1 ms late",
            ],
            published: Vec::new(),
            over_servers: false,
            own_servers: false,
            etcd: false,
            many_generators: true,
        }
    }

    fn run(&self, bench: &mut Bench<'_>) -> Result<()> {
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

/// What each system reaches with each kind of requests.
type Saturations = Vec<(&'static str, [f64; 2])>;

fn saturations(bench: &mut Bench<'_>, size: usize) -> Result<Saturations> {
    let settings = bench.settings;
    let mut found = Vec::new();
    for subject in bench.subjects() {
        bench.progress.at(&format!("{}: how much it takes", subject.name()));
        let service = subject.serve(size, &settings.work_dir, settings.port)?;
        condition(&service, &settings.saturation, settings.pace.conditioning)?;
        let around = Surroundings { generators: settings.generators.as_ref(), ..Surroundings::default() };
        let mut reached = [0.0; 2];
        for (kind, (_, reads_percent)) in KINDS.into_iter().enumerate() {
            let load = settings.saturation.load(reads_percent, settings.pace.warmup, settings.pace.window);
            reached[kind] = measure(service.addresses(), around, &load).context("saturating")?.throughput();
        }
        bench.note(format!(
            "{} saturated: {} reads/s, {} writes/s",
            subject.name(),
            number(reached[0]),
            number(reached[1])
        ));
        found.push((subject.name(), reached));
    }
    Ok(found)
}

fn rates(turn: &Turn<'_, '_>, kind: usize, saturations: &Saturations) -> Vec<f64> {
    let slowest = saturations.iter().map(|(_, reached)| reached[kind]).fold(f64::INFINITY, f64::min);
    let own =
        saturations.iter().find(|(system, _)| *system == turn.system()).map_or(0.0, |(_, own)| own[kind]);
    let (of_slowest, of_own): (&[f64], &[f64]) =
        turn.pace().pick((&QUICK_OF_SLOWEST, &QUICK_OF_OWN), (&SHARES_OF_SLOWEST, &SHARES_OF_OWN));
    let mut rates: Vec<f64> = of_slowest.iter().map(|share| (share * slowest).round()).collect();
    if own > MUCH_MORE * slowest {
        let beyond = of_own.iter().map(|share| (share * own).round()).filter(|rate| *rate > slowest);
        rates.extend(beyond);
    }
    rates.retain(|rate| *rate >= 1.0);
    rates
}

fn at_rate(turn: &mut Turn<'_, '_>, series: &str, reads_percent: u8, rate: f64) -> Result<()> {
    let Load { warmup, window, .. } = turn.saturation().load(0, turn.pace().warmup, turn.pace().window);
    let load = Load {
        sessions: SESSIONS,
        znodes: SESSIONS,
        per_second: Some(rate / as_f64(turn.generators() as u64)),
        // Twice as long: the far percentiles need many requests.
        window: (window * 2).max(Duration::from_secs(2)),
        ..turn.saturation().load(reads_percent, warmup, window)
    };
    let measured = turn.measure(turn.addresses(), &load)?;
    let place = Place { series, x: rate };
    turn.record_measurement(place, &measured);
    let late = measured.late_percent();
    turn.record(place, &[("sent more than 1 ms late", "% of requests", late)], &measured.objections);
    Ok(())
}
