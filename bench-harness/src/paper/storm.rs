//! Session storm: many clients connect at once, as after an outage.

use std::time::Instant;

use anyhow::Result;

use super::bench::{Bench, Place, SERVER_CPU};
use super::experiment::{Experiment, Plan, View};
use super::scale::{Axis, Scale};
use crate::measure::as_f64;
use crate::session::{self, Session};

const TIME: &str = "time until all sessions are open";

const SESSIONS: [usize; 3] = [100, 300, 1000];

/// Session storm.
pub(crate) struct SessionStorm;

impl Experiment for SessionStorm {
    fn plan(&self) -> Plan {
        Plan {
            id: "storm",
            title: "Session storm: n clients connect at once",
            about: "n connections are made and n sessions asked for before the first answer is read; from \
                    the first connection until the last session is open. Opening a session is a transaction: \
                    durable on a quorum.",
            x: Axis { label: "sessions", scale: Scale::Log },
            views: vec![View::log(TIME, "", "time, ms")],
            figures: vec![TIME, SERVER_CPU],
            ..Plan::default()
        }
    }

    fn run(&self, bench: &mut Bench<'_>) -> Result<()> {
        let size = bench.first_size();
        bench.turns(&[size], |turn| {
            for count in SESSIONS {
                turn.at(&format!("{count} sessions"));
                let mut rate = turn.rate("sessions");
                let (elapsed, around) = turn.around(|addresses| {
                    let began = Instant::now();
                    let sessions = Session::open_all_told(addresses, count, &mut rate)?;
                    let elapsed = began.elapsed();
                    session::close_all(sessions)?;
                    Ok(elapsed)
                })?;
                let mut figures = vec![(TIME, "ms", elapsed.as_secs_f64() * 1e3)];
                figures.extend(around.server_cpu_figure(count as u64));
                let place = Place { series: "", x: as_f64(count as u64) };
                turn.record(place, &figures, &around.objections());
            }
            Ok(())
        })
    }
}
