//! Session storm: many clients connect at once, as after an outage.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::bench::{Bench, Place, SERVER_CPU};
use super::experiment::{Experiment, Plan, View};
use super::scale::{Axis, Scale};
use crate::driver::thread_cpu;
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
            about: "n connections are made and n sessions asked for before the first answer is read; from the first connection until \
                    the last session is open. Opening a session is a transaction: durable on a quorum.",
            x: Axis { label: "sessions", scale: Scale::Log },
            views: vec![View { figure: TIME, suffix: "", y: Axis { label: "time, ms", scale: Scale::Log } }],
            figures: vec![TIME, SERVER_CPU],
            published: Vec::new(),
            over_servers: false,
            own_servers: false,
        }
    }

    fn run(&self, bench: &mut Bench<'_>) -> Result<()> {
        let size = bench.first_size();
        bench.turns(&[size], |turn| {
            for count in SESSIONS {
                turn.at(&format!("{count} sessions"));
                let ((elapsed, own_cpu), around) = turn.around(|addresses| {
                    let (began, cpu_before) = (Instant::now(), thread_cpu());
                    let sessions = Session::open_all(addresses, count)?;
                    let opened = (began.elapsed(), thread_cpu().saturating_sub(cpu_before));
                    session::close_all(sessions)?;
                    Ok(opened)
                })?;
                let mut figures = vec![(TIME, "ms", elapsed.as_secs_f64() * 1e3)];
                figures.extend(around.server_cpu_figure(count as u64));
                let objections = around.objections(own_cpu, elapsed.max(Duration::from_millis(1)));
                turn.record(Place { series: "", x: as_f64(count as u64) }, &figures, &objections);
            }
            Ok(())
        })
    }
}
