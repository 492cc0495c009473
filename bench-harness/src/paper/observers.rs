//! Observers: three voters with more and more servers that only learn.

use std::net::SocketAddr;

use anyhow::{Context, Result};

use super::bench::{Bench, LATENCY_P50, LATENCY_P99, Place, SERVER_CPU, THROUGHPUT, Turn};
use super::experiment::{Experiment, Plan, View};
use super::scale::{Axis, Scale};
use super::service::Service;
use crate::measure::as_f64;
use crate::system::seats;

const LEADER_CPU: &str = "CPU of the leader";

const VOTERS: usize = 3;

const QUICK: [usize; 3] = [0, 2, 8];
const FULL: [usize; 5] = [0, 1, 2, 4, 8];

/// Observers.
pub(crate) struct Observers;

impl Experiment for Observers {
    fn plan(&self) -> Plan {
        Plan {
            id: "observers",
            title: "Three voters, and observers beside them",
            about: "setData of 1 KiB at the leader, and getData of 1 KiB spread over all servers, the \
                    saturating load each; what an observer adds to the CPU time of an operation, at the \
                    leader and in all. All servers share this machine's cores, so throughput shows what is \
                    left for each server, and not what observers on machines of their own would add.",
            x: Axis { label: "observers", scale: Scale::Whole },
            views: vec![
                View::log(THROUGHPUT, "", "throughput, operations/s"),
                View {
                    figure: LEADER_CPU,
                    suffix: "leader",
                    y: Axis { label: "CPU of the leader, s per million operations", scale: Scale::Linear },
                },
            ],
            figures: vec![THROUGHPUT, SERVER_CPU, LEADER_CPU, LATENCY_P50, LATENCY_P99],
            own_servers: true,
            ..Plan::default()
        }
    }

    fn run(&self, bench: &mut Bench<'_>) -> Result<()> {
        let counts: &[usize] = bench.pace().pick(&QUICK, &FULL);
        let setups: Vec<_> = counts.iter().map(|observers| (VOTERS + observers, ())).collect();
        bench.turns_on(
            &setups,
            |settings, subject, servers, ()| {
                let system = subject.system().context("a system that can be started")?;
                let mut seats = seats(servers, settings.port)?;
                seats[VOTERS..].iter_mut().for_each(|seat| seat.observer = true);
                Service::of(system, system.ensemble_in(seats, "", &settings.work_dir)?)
            },
            |turn, ()| {
                let all = turn.addresses().to_vec();
                let leader = turn.service.leader_address()?;
                measure(turn, "writes at the leader", 0, &[leader])?;
                measure(turn, "reads at all servers", 100, &all)
            },
        )
    }
}

/// Measures a load at `servers`, and how the CPU time for it is shared.
fn measure(
    turn: &mut Turn<'_, '_>,
    series: &'static str,
    reads_percent: u8,
    servers: &[SocketAddr],
) -> Result<()> {
    turn.at(series);
    let load = turn.saturation().load(reads_percent, turn.pace().warmup, turn.pace().window);
    let before = turn.service.cpu_times()?;
    let measured = turn.measure(servers, &load)?;
    let after = turn.service.cpu_times()?;
    // Of the time with the load that warms up; the CPU time of an operation is that of the window.
    let share = (after.0 - before.0) / (after.1 - before.1);
    let place = Place { series, x: as_f64((turn.addresses().len() - VOTERS) as u64) };
    turn.record_measurement(place, &measured);
    if let Some(cpu) = measured.server_cpu_per_million() {
        turn.record(place, &[(LEADER_CPU, "s per million operations", cpu * share)], &measured.objections);
    }
    Ok(())
}
