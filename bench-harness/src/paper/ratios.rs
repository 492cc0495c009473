//! Figures 5 and 6, table 1: saturated throughput by the share of reads and the size of the ensemble.

use anyhow::Result;

use super::bench::{Bench, GENERATOR_CPU, LATENCY_P99, Place, SERVER_CPU, THROUGHPUT};
use super::experiment::{Experiment, Plan, View};
use super::published;
use super::scale::{Axis, Scale};

const QUICK: [u8; 5] = [0, 30, 50, 80, 100];
const FULL: [u8; 11] = [0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100];

/// Clients on all servers, or on the leader alone.
pub(crate) struct Ratios {
    at_leader: bool,
}

impl Ratios {
    /// Figure 5 and table 1.
    pub(crate) const SPREAD: Self = Self { at_leader: false };
    /// Figure 6.
    pub(crate) const AT_LEADER: Self = Self { at_leader: true };
}

impl Experiment for Ratios {
    fn plan(&self) -> Plan {
        let (id, title, about) = if self.at_leader {
            (
                "fig6",
                "Throughput by the share of reads, all clients at the leader",
                "As fig5, but every client is connected to the leader, which then also answers all reads.",
            )
        } else {
            (
                "fig5",
                "Throughput by the share of reads",
                "getData and setData of 1 KiB in a given proportion, closed loop, sessions spread evenly \
                 over all servers, each with a znode of its own, so that every read's exact value is known \
                 and checked. As in the paper, 250 clients have 100 outstanding each, and the servers stop \
                 reading above 2,000 in process (globalOutstandingLimit); there they were on 35 machines. \
                 Its table 1 has the two ends.",
            )
        };
        let published = if self.at_leader { Vec::new() } else { published::table1() };
        Plan {
            id,
            title,
            about,
            x: Axis { label: "reads, percent of all requests", scale: Scale::Linear },
            views: vec![
                View::log(THROUGHPUT, "", "throughput, operations/s"),
                View::log(SERVER_CPU, "cpu", "CPU of all servers, s per million operations"),
            ],
            figures: vec![THROUGHPUT, SERVER_CPU, LATENCY_P99, GENERATOR_CPU],
            published,
            etcd: !self.at_leader,
            floor: !self.at_leader,
            many_generators: true,
            ..Plan::default()
        }
    }

    fn run(&self, bench: &mut Bench<'_>) -> Result<()> {
        let sizes =
            if self.at_leader && bench.pace().quick { vec![bench.first_size()] } else { bench.sizes() };
        bench.turns(&sizes, |turn| {
            let reads = &turn.bench.settings.reads;
            let percents: &[u8] = if reads.is_empty() { turn.pace().pick(&QUICK, &FULL) } else { reads };
            let servers =
                if self.at_leader { vec![turn.service.leader_address()?] } else { turn.addresses().to_vec() };
            for percent in percents {
                turn.at(&format!("{percent} % reads"));
                let load = turn.saturation().load(*percent, turn.pace().warmup, turn.pace().window);
                let measured = turn.measure(&servers, &load)?;
                turn.record_measurement(Place { series: "", x: f64::from(*percent) }, &measured);
            }
            Ok(())
        })
    }
}
