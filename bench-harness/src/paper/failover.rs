//! Failover: the leader is killed, again and again.

use anyhow::Result;

use super::bench::Bench;
use super::experiment::{Experiment, Plan};
use super::gaps::{self, Gaps, SERVERS_MIN};

const FULL: usize = 10;
const QUICK: usize = 3;

/// Failover.
pub(crate) struct Failover;

impl Experiment for Failover {
    fn plan(&self) -> Plan {
        gaps::plan(
            "failover",
            "Time without writes after kill -9 of the leader",
            "A writer for each server, one setData after the other; when its connection ends it goes to the \
             next server. After each kill of the leader, the longest gap between two acknowledged writes of \
             all writers together. The killed server comes back and follows before the next kill. The \
             paper: elections took less than 200 ms.",
            "kill",
        )
    }

    fn run(&self, bench: &mut Bench<'_>) -> Result<()> {
        let size = bench.first_size().max(SERVERS_MIN);
        bench.turns(&[size], |turn| {
            let kills = turn.pace().pick(QUICK, FULL);
            let mut gaps = Gaps::start(turn, "")?;
            for kill in 1..=kills {
                let mut killed = 0;
                gaps.around(turn, |turn, leader| {
                    killed = leader;
                    turn.service.ensemble()?.server(leader).kill();
                    Ok(format!("kill {kill} of {kills}, server {leader}"))
                })?;
                turn.service.ensemble()?.server(killed).launch()?;
            }
            gaps.end(turn)
        })
    }
}
