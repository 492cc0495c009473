//! Memory for each znode, on a server alone.

use anyhow::Result;

use super::bench::{Bench, Origin, Place};
use super::experiment::{Experiment, Plan, View};
use super::scale::{Axis, Scale};
use super::service::Subject;
use crate::compare::System;
use crate::compare::memory::memory;
use crate::compare::server::Server;
use crate::interrupt;
use crate::machine::Machine;

const GROWTH: &str = "resident memory growth";
const LIVE_HEAP: &str = "live heap growth";

const FULL: [u32; 2] = [100_000, 1_000_000];
const QUICK: [u32; 2] = [20_000, 100_000];

/// Memory.
pub(crate) struct Memory;

impl Experiment for Memory {
    fn plan(&self) -> Plan {
        Plan {
            id: "memory",
            title: "Memory for each znode of 100 B",
            about: "A server alone, on which znodes of 100 B are created under 64 parents: growth of its resident memory, divided by the \
                    number of znodes, payload included. For a JVM also the growth of what is left on the heap after a collection (with \
                    the JDK's jcmd): its resident memory is mostly a matter of the heap it is given.",
            x: Axis { label: "znodes", scale: Scale::Log },
            views: vec![View {
                figure: GROWTH,
                suffix: "",
                y: Axis { label: "resident memory, B/znode", scale: Scale::Linear },
            }],
            figures: vec![GROWTH, "resident memory in all", LIVE_HEAP, "creates, pipelined"],
            published: Vec::new(),
            over_servers: false,
            own_servers: true,
            etcd: false,
            floor: false,
            many_generators: false,
        }
    }

    fn run(&self, bench: &mut Bench<'_>) -> Result<()> {
        let settings = bench.settings;
        let counts = bench.pace().pick(QUICK, FULL);
        for run in 1..=bench.pace().runs {
            for system in bench.subjects().filter_map(Subject::system) {
                for znodes in counts {
                    let at = format!("run {run}/{}, {}, {znodes} znodes", settings.pace.runs, system.name());
                    bench.progress.at(&at);
                    let before = Machine::now(None);
                    let grown = grow(bench, system, znodes);
                    let invalid = Machine::now(None).since(&before).disturbances().join("; ");
                    match grown {
                        Ok(metrics) => {
                            let origin = Origin { system: system.name(), servers: 1, run };
                            let figures: Vec<_> = metrics
                                .iter()
                                .map(|metric| (metric.name.as_str(), metric.unit, metric.value))
                                .collect();
                            bench.push(
                                origin,
                                Place { series: "", x: f64::from(znodes) },
                                &figures,
                                &invalid,
                            );
                        }
                        Err(error) => {
                            interrupt::check()?;
                            bench.fail(system.name(), 1, run, &error, None);
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

fn grow(bench: &Bench<'_>, system: &System, znodes: u32) -> Result<Vec<crate::compare::metric::Metric>> {
    let server = Server::start(system, &bench.settings.work_dir, bench.settings.port)?;
    memory(&server, znodes, matches!(system, System::ZooKeeper { .. }))
}
