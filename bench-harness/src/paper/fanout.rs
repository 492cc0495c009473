//! Watch fan-out: one change, many watchers.

use std::time::Duration;

use anyhow::Result;

use super::bench::{Bench, Place, SERVER_CPU};
use super::experiment::{Experiment, Plan, View};
use super::scale::{Axis, Scale};
use crate::compare::fanout::fanout;
use crate::measure::as_f64;

const P50: &str = "last notification p50";
const P90: &str = "last notification p90";

const WATCHERS: [usize; 3] = [10, 100, 1000];

/// Changes that count.
const FULL: u32 = 50;
const QUICK: u32 = 10;

/// Watch fan-out.
pub(crate) struct WatchFanout;

impl Experiment for WatchFanout {
    fn plan(&self) -> Plan {
        Plan {
            id: "fanout",
            title: "Watch fan-out: one change, n watchers",
            about: "n sessions, spread over the servers, watch one znode; a client sets its data. From sending the change until the last \
                    session has its notification.",
            x: Axis { label: "watchers", scale: Scale::Log },
            views: vec![View {
                figure: P50,
                suffix: "",
                y: Axis { label: "time until the last notification, median, us", scale: Scale::Log },
            }],
            figures: vec![P50, P90, SERVER_CPU],
            published: Vec::new(),
            over_servers: false,
            own_servers: false,
            etcd: false,
            floor: false,
            many_generators: false,
        }
    }

    fn run(&self, bench: &mut Bench<'_>) -> Result<()> {
        let size = bench.first_size();
        bench.turns(&[size], |turn| {
            for watchers in WATCHERS {
                turn.at(&format!("{watchers} watchers"));
                let changes = turn.pace().pick(QUICK, FULL);
                let mut rate = turn.rate("notifications");
                let (latencies, around) =
                    turn.around(|addresses| fanout(addresses, watchers, changes, &mut rate))?;
                let latency = |percent| as_f64(latencies.value_at_percentile(percent)) / 1e3;
                let mut figures = vec![(P50, "us", latency(50.0)), (P90, "us", latency(90.0))];
                // A notification is the operation here; leaving its watch is part of it.
                figures.extend(around.server_cpu_figure(u64::from(changes) * watchers as u64));
                let place = Place { series: "", x: as_f64(watchers as u64) };
                turn.record(place, &figures, &around.objections());
                turn.log(place, &latencies, Duration::from_secs(1));
            }
            Ok(())
        })
    }
}
