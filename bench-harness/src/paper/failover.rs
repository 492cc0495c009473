//! Failover: the leader is killed, again and again.

use std::time::{Duration, Instant};

use anyhow::Result;
use ringkeeper_testkit::interrupt;

use super::bench::{Bench, Place, Turn};
use super::experiment::{Experiment, Plan, View};
use super::scale::{Axis, Scale};
use super::writers::Writers;
use crate::machine::Machine;
use crate::measure::as_f64;

const TIME: &str = "time without acknowledged writes";

const FULL: usize = 10;
const QUICK: usize = 3;

/// The others must be a quorum.
const SERVERS_MIN: usize = 3;

/// Load between the moment that all servers serve and a kill.
const BETWEEN_KILLS: Duration = Duration::from_secs(2);

/// How long writes may stay away before the run is an error.
const RECOVERY_MAX: Duration = Duration::from_secs(60);

/// Failover.
pub(crate) struct Failover;

impl Experiment for Failover {
    fn plan(&self) -> Plan {
        Plan {
            id: "failover",
            title: "Time without writes after kill -9 of the leader",
            about: "A writer for each server, one setData after the other; when its connection ends it goes \
                    to the next server. After each kill of the leader, the longest gap between two \
                    acknowledged writes of all writers together. The killed server comes back and follows \
                    before the next kill. The paper: elections took less than 200 ms.",
            x: Axis { label: "kill", scale: Scale::Whole },
            views: vec![View::log(TIME, "", "time without writes, ms")],
            figures: vec![TIME],
            own_servers: true,
            ..Plan::default()
        }
    }

    fn run(&self, bench: &mut Bench<'_>) -> Result<()> {
        let size = bench.first_size().max(SERVERS_MIN);
        bench.turns(&[size], |turn| {
            let kills = turn.pace().pick(QUICK, FULL);
            turn.at(&format!("{kills} kills"));
            let before = Machine::now(None);
            let gaps = kill_leaders(turn, kills)?;
            let objections = Machine::now(None).since(&before).disturbances();
            for (kill, gap) in (1_u64..).zip(gaps) {
                let place = Place { series: "", x: as_f64(kill) };
                turn.record(place, &[(TIME, "ms", gap.as_secs_f64() * 1e3)], &objections);
            }
            turn.service.renew()
        })
    }
}

/// Kills the leader so many times under load; the times without acknowledged writes.
fn kill_leaders(turn: &Turn<'_, '_>, kills: usize) -> Result<Vec<Duration>> {
    let ensemble = turn.service.ensemble()?;
    let writers = Writers::start(turn.addresses())?;
    let mut gaps = Vec::with_capacity(kills);
    for kill in 1..=kills {
        let leader = turn.service.wait_for_leader()?;
        writers.wait_for_all(Instant::now(), RECOVERY_MAX)?;
        interrupt::sleep_until(Instant::now() + BETWEEN_KILLS, || false)?;
        let killed = Instant::now();
        ensemble.server(leader).kill();
        let recovered = writers.wait_for_all(killed, RECOVERY_MAX)?;
        let gap = writers.longest_gap(killed, recovered);
        turn.at(&format!("kill {kill} of {kills}, server {leader}: {} ms", gap.as_millis()));
        gaps.push(gap);
        ensemble.server(leader).launch()?;
    }
    writers.stop()?;
    Ok(gaps)
}
