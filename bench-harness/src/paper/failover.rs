//! Failover: the leader is killed, again and again.

use anyhow::Result;

use super::bench::{Bench, Place};
use super::experiment::{Experiment, Plan, View};
use super::scale::{Axis, Scale};
use crate::failover::kill_leaders;
use crate::machine::Machine;
use crate::measure::as_f64;

const TIME: &str = "time without acknowledged writes";

const FULL: usize = 10;
const QUICK: usize = 3;

/// Failover.
pub(crate) struct Failover;

impl Experiment for Failover {
    fn plan(&self) -> Plan {
        Plan {
            id: "failover",
            title: "Time without writes after kill -9 of the leader",
            about: "A writer for each server, one setData after the other; when its connection ends it goes to the next server. After \
                    each kill of the leader, the longest gap between two acknowledged writes of all writers together. The killed \
                    server comes back and follows before the next kill. The paper: elections took less than 200 ms.",
            x: Axis { label: "kill", scale: Scale::Whole },
            views: vec![View {
                figure: TIME,
                suffix: "",
                y: Axis { label: "time without writes, ms", scale: Scale::Log },
            }],
            figures: vec![TIME],
            published: Vec::new(),
            over_servers: false,
            own_servers: true,
            etcd: false,
            floor: false,
            many_generators: false,
        }
    }

    fn run(&self, bench: &mut Bench<'_>) -> Result<()> {
        let size = bench.first_size();
        bench.turns(&[size], |turn| {
            let kills = turn.pace().pick(QUICK, FULL);
            turn.at(&format!("{kills} kills"));
            let before = Machine::now(None);
            let gaps = kill_leaders(turn.service.ensemble()?, kills)?;
            let objections = Machine::now(None).since(&before).disturbances();
            for (kill, gap) in (1_u64..).zip(gaps) {
                let place = Place { series: "", x: as_f64(kill) };
                turn.record(place, &[(TIME, "ms", gap.as_secs_f64() * 1e3)], &objections);
            }
            turn.service.renew()
        })
    }
}
