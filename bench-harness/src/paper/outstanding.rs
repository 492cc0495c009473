//! Throughput by the number of requests outstanding on each session: from clients that wait for every reply
//! to those of the paper, which have a hundred under way.

use anyhow::Result;

use super::bench::{
    Bench, GENERATOR_CPU, LATENCY_P50, LATENCY_P99, Place, SERVER_CPU, Saturation, THROUGHPUT,
};
use super::experiment::{Experiment, Plan, View};
use super::scale::{Axis, Scale};
use crate::etcd;

const QUICK: [u8; 3] = [1, 8, 100];
const FULL: [u8; 8] = [1, 2, 4, 8, 16, 32, 64, 100];

/// What is different where etcd is measured.
const ON_ETCD: &str = "etcd: it gets no more than 2,000 requests at once in all, for it has no limit of its \
                       own at which it would stop reading.";

/// Reads alone, and writes alone.
const KINDS: [(&str, u8); 2] = [("reads", 100), ("writes", 0)];

/// Throughput by depth of the pipelines.
pub(crate) struct Depths;

impl Experiment for Depths {
    fn plan(&self) -> Plan {
        Plan {
            id: "outstanding",
            title: "Throughput by requests outstanding on each session",
            about: "The saturating load with fewer requests outstanding: getData, and setData, of 1 KiB, \
                    closed loop, sessions spread evenly over all servers. At 1, every client waits for each \
                    reply, as most programs do; at 100, it is the load of fig5, of which servers batch what \
                    they can, and above 2,000 in process they stop reading (globalOutstandingLimit), so that \
                    most of the latency there is waiting to be read.",
            x: Axis { label: "requests outstanding on each session", scale: Scale::Log },
            views: vec![
                View::log(THROUGHPUT, "", "throughput, operations/s"),
                View::log(SERVER_CPU, "cpu", "CPU of all servers, s per million operations"),
                View::log(LATENCY_P99, "p99", "p99 latency, us"),
            ],
            figures: vec![THROUGHPUT, SERVER_CPU, LATENCY_P50, LATENCY_P99, GENERATOR_CPU],
            etcd: true,
            floor: true,
            many_generators: true,
            ..Plan::default()
        }
    }

    fn run(&self, bench: &mut Bench<'_>) -> Result<()> {
        bench.note_on_etcd(ON_ETCD);
        let size = bench.first_size();
        bench.turns(&[size], |turn| {
            let depths: &[u8] = turn.pace().pick(&QUICK, &FULL);
            for (series, reads_percent) in KINDS {
                for depth in depths {
                    let outstanding = usize::from(*depth);
                    let sessions = turn.saturation().sessions;
                    if turn.service.is_etcd() && etcd::bearable(outstanding, sessions) < outstanding {
                        continue;
                    }
                    turn.at(&format!("{series}, {depth} outstanding on each session"));
                    let saturation = Saturation { outstanding, ..turn.saturation() };
                    let load = saturation.load(reads_percent, turn.pace().warmup, turn.pace().window);
                    let measured = turn.measure(turn.addresses(), &load)?;
                    turn.record_measurement(Place { series, x: f64::from(*depth) }, &measured);
                }
            }
            Ok(())
        })
    }
}
