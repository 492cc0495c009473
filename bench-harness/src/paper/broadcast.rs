//! Figure 7: the broadcast alone. The leader's process generates the proposals; there are no clients.

use std::time::Duration;

use anyhow::Result;

use super::bench::{Bench, LATENCY_P50, LATENCY_P99, Origin, Place, SERVER_CPU, THROUGHPUT};
use super::experiment::{Experiment, Plan, View};
use super::members::{Kind, Members};
use super::scale::{Axis, Scale};
use super::service::Subject;
use crate::machine::Machine;
use crate::measure::as_f64;
use crate::system::IN_PROCESS_MAX;
use crate::window::Rate;

/// Figure 7.
pub(crate) struct BroadcastAlone;

impl Experiment for BroadcastAlone {
    fn plan(&self) -> Plan {
        Plan {
            id: "fig7",
            title: "The atomic broadcast alone",
            about: "Proposals of 1 KiB, generated inside the leader's process, without clients and sessions; \
                    2,000 are outstanding, as many as the servers of the other experiments take at once. \
                    Each carries its number, and every member must hear of all of them in order. The CPU \
                    time is that of all members, the generator included. ringkeeper's broadcast is the \
                    library, without a tree. Apache ZooKeeper's is not to be had without its server: \
                    transactions enter it behind the preparation of requests, and what commits sets the data \
                    of one znode.",
            x: Axis { label: "servers", scale: Scale::Whole },
            views: vec![View {
                figure: THROUGHPUT,
                suffix: "",
                y: Axis { label: "proposals delivered/s", scale: Scale::Linear },
            }],
            figures: vec![THROUGHPUT, LATENCY_P50, LATENCY_P99, SERVER_CPU],
            over_servers: true,
            own_servers: true,
            ..Plan::default()
        }
    }

    fn run(&self, bench: &mut Bench<'_>) -> Result<()> {
        let settings = bench.settings;
        let kinds: Vec<Kind> =
            settings.subjects.iter().filter_map(Subject::system).filter_map(Kind::of).collect();
        let sizes = bench.sizes();
        let subjects: Vec<(&Kind, usize)> =
            kinds.iter().flat_map(|kind| sizes.iter().map(move |size| (kind, *size))).collect();
        bench.alternate(
            settings.pace.runs,
            &subjects,
            |(kind, size)| (kind.name(), *size, format!("{size} servers")),
            |bench, (kind, size), origin| measure(bench, kind, *size, origin),
        )
    }
}

fn measure(bench: &mut Bench<'_>, kind: &Kind, size: usize, origin: Origin<'_>) -> Result<()> {
    let settings = bench.settings;
    let mut members = Members::start(kind, size, &settings.work_dir, settings.port)?;
    let processes = members.processes()?;
    let pace = settings.pace;
    let leader = members.leader()?;
    // A JVM compiles its code meanwhile.
    let mut rate = Rate::new(Some(bench.progress), "proposals");
    let lengths = (pace.conditioning, Duration::ZERO);
    let conditioned = members.generate(leader, IN_PROCESS_MAX, lengths, &mut rate)?;
    let before = (processes.cpu_time()?, Machine::now(Some(&processes)));
    let generated = members.generate(leader, IN_PROCESS_MAX, (pace.warmup, pace.window), &mut rate)?;
    let after = (processes.cpu_time()?, Machine::now(Some(&processes)));
    members.wait_until_all_heard(conditioned.all + generated.all)?;
    let cpu = after.0.saturating_sub(before.0).as_secs_f64() * 1e6 / as_f64(generated.all.max(1));
    let figures = [
        (THROUGHPUT, "operations/s", as_f64(generated.in_window) / pace.window.as_secs_f64()),
        (LATENCY_P50, "us", as_f64(generated.p50_ns) / 1e3),
        (LATENCY_P99, "us", as_f64(generated.p99_ns) / 1e3),
        (SERVER_CPU, "s per million operations", cpu),
    ];
    // The generator is inside the leader: what it takes is the leader's.
    let invalid = after.1.since(&before.1).disturbances().join("; ");
    let place = Place { series: "", x: as_f64(size as u64) };
    bench.push(origin, place, &figures, &invalid);
    Ok(())
}
