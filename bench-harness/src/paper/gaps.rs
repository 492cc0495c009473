//! Gaps in a service: the time without acknowledged writes around something that is done to its servers.

use std::time::{Duration, Instant};

use anyhow::Result;
use ringkeeper_testkit::interrupt;

use super::bench::{Place, Turn};
use super::experiment::{Plan, View};
use super::scale::{Axis, Scale};
use super::writers::Writers;
use crate::machine::Machine;
use crate::measure::as_f64;

const TIME: &str = "time without acknowledged writes";

/// What the disk and the scheduler do by themselves: the same time, while nothing is done to the servers.
const TIME_BEFORE: &str = "the same in the two seconds before";

/// The others must be a quorum.
pub(super) const SERVERS_MIN: usize = 3;

/// Load between the moment that all servers serve and what is done to one.
const LOAD_BEFORE: Duration = Duration::from_secs(2);

/// How long writes may stay away before the run is an error.
const RECOVERY_MAX: Duration = Duration::from_secs(60);

/// The plan of an experiment of gaps, numbered along `axis`.
pub(super) fn plan(id: &'static str, title: &'static str, about: &'static str, axis: &'static str) -> Plan {
    Plan {
        id,
        title,
        about,
        x: Axis { label: axis, scale: Scale::Whole },
        views: vec![View::log(TIME, "", "time without writes, ms")],
        figures: vec![TIME, TIME_BEFORE],
        own_servers: true,
        ..Plan::default()
    }
}

/// Writers on all servers, and what is done to these meanwhile, one thing after the other.
pub(super) struct Gaps {
    writers: Writers,
    series: &'static str,
    done: u64,
}

impl Gaps {
    /// Begins to write.
    pub(super) fn start(turn: &Turn<'_, '_>, series: &'static str) -> Result<Self> {
        Ok(Self { writers: Writers::start(turn.addresses())?, series, done: 0 })
    }

    /// Has something done once all servers have been under load for a while, and records the longest time
    /// between two acknowledged writes from then until all writers write again. `what` is given who leads,
    /// and returns what it has done.
    pub(super) fn around(
        &mut self,
        turn: &mut Turn<'_, '_>,
        what: impl FnOnce(&mut Turn<'_, '_>, usize) -> Result<String>,
    ) -> Result<()> {
        let leader = turn.service.wait_for_leader()?;
        self.writers.wait_for_all(Instant::now(), RECOVERY_MAX)?;
        let undisturbed = Instant::now();
        interrupt::sleep_until(undisturbed + LOAD_BEFORE, || false)?;
        let (before, began) = (Machine::now(None), Instant::now());
        let what = what(turn, leader)?;
        let recovered = self.writers.wait_for_all(Instant::now(), RECOVERY_MAX)?;
        let gap = self.writers.longest_gap(began, recovered);
        let gap_before = self.writers.longest_gap(undisturbed, began);
        let objections = Machine::now(None).since(&before).disturbances();
        turn.at(&format!("{}{what}: {} ms", self.series, gap.as_millis()));
        self.done += 1;
        let place = Place { series: self.series, x: as_f64(self.done) };
        let ms = |gap: Duration| gap.as_secs_f64() * 1e3;
        turn.record(place, &[(TIME, "ms", ms(gap)), (TIME_BEFORE, "ms", ms(gap_before))], &objections);
        Ok(())
    }

    /// Ends the writers; the servers are as they were.
    pub(super) fn end(self, turn: &mut Turn<'_, '_>) -> Result<()> {
        self.writers.stop()?;
        turn.service.renew()
    }
}
