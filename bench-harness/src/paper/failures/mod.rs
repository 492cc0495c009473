//! Figure 8: throughput while servers fail and come back.

mod clients;

use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ringkeeper_testkit::{Ensemble, Server, wait_for};

use self::clients::Clients;
use super::bench::{Bench, Place, SERVER_CPU, Turn};
use super::chart::{Chart, Series, Stroke};
use super::experiment::{Experiment, Plan};
use super::record::{EVENT, Point, Record};
use super::scale::{Axis, Scale};
use crate::machine::{Machine, Servers};
use crate::measure::as_f64;
use crate::server_cpu::{self, ServerProcesses};
use crate::timeline::Timeline;
use crate::window::{Meter, Spectator, Surroundings};

/// As in the paper.
pub(crate) const SERVERS: usize = 5;
const READS_PERCENT: u8 = 70;

const OVER_TIME: &str = "throughput over time";
const GAP: &str = "longest time without a reply after the event";
const LEAST: &str = "least throughput in 300 ms";

/// Replies are counted in slots of this length, from which times without any are read.
const SLOT: Duration = Duration::from_millis(20);

/// How long the others may take to find a leader.
const LEADER_MAX: Duration = Duration::from_secs(120);

/// Slots that make one point of the picture: 300 ms, in which the paper counts.
const SLOTS_A_POINT: usize = 15;

const FULL: Duration = Duration::from_secs(150);
const QUICK: Duration = Duration::from_secs(45);

/// What happens to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    FailFollower,
    FailOtherFollower,
    FailLeader,
    /// All that have failed come back.
    Recover,
}

/// The paper's failures, at its moments, as shares of the whole time.
const EVENTS: [(f64, Act, &str); 11] = [
    (0.10, Act::FailFollower, "a follower fails"),
    (0.17, Act::Recover, "it recovers"),
    (0.23, Act::FailOtherFollower, "another follower fails"),
    (0.30, Act::Recover, "it recovers"),
    (0.37, Act::FailLeader, "the leader fails"),
    (0.45, Act::Recover, "it recovers"),
    (0.52, Act::FailFollower, "a follower fails"),
    (0.56, Act::FailOtherFollower, "another one, too"),
    (0.65, Act::Recover, "both recover"),
    (0.76, Act::FailLeader, "the leader fails"),
    (0.87, Act::Recover, "it recovers"),
];

/// Figure 8.
pub(crate) struct Failures;

impl Experiment for Failures {
    fn plan(&self) -> Plan {
        Plan {
            id: "fig8",
            title: "Throughput while servers fail and recover",
            about: "Five servers, saturated with 30 % writes of 1 KiB; servers are killed (SIGKILL) and \
                    started again at the paper's moments. Clients whose server is gone go to the next one. \
                    In the tables, events are numbered as in the pictures. The paper: no sample fell to \
                    zero, and electing a leader took less than 200 ms.",
            x: Axis { label: "event", scale: Scale::Whole },
            figures: vec![GAP, LEAST, SERVER_CPU],
            own_servers: true,
            ..Plan::default()
        }
    }

    fn run(&self, bench: &mut Bench<'_>) -> Result<()> {
        if bench.pace().quick {
            bench.note("One run of each system: --quick leaves the others out.");
        }
        bench.turns(&[SERVERS], |turn| {
            if turn.pace().quick && turn.run > 1 {
                return Ok(());
            }
            let length = turn.pace().pick(QUICK, FULL);
            turn.at(&format!("{} s of failures", length.as_secs()));
            one_run(turn, length)
        })
    }

    /// One for each system, of its first run.
    fn pictures(&self, record: &Record) -> Vec<(String, Chart)> {
        let curves = record.curves(OVER_TIME);
        curves.iter().enumerate().map(|(colour, curve)| picture(record, &curve.system, colour)).collect()
    }
}

fn picture(record: &Record, system: &str, colour: usize) -> (String, Chart) {
    let of_first_run = record
        .samples
        .iter()
        .filter(|sample| sample.figure == OVER_TIME && sample.system == system && sample.run == 1);
    let point = |(x, value)| Point { x, least: value, median: value, greatest: value };
    let points = of_first_run.filter_map(|sample| Some(point((sample.x, sample.value?)))).collect();
    let name = format!("{system}, {SERVERS} servers, 30 % writes, counted every 300 ms");
    let events = record.events(system, 1);
    let chart = Chart {
        title: format!("Throughput while servers fail and recover: {system}"),
        x: Axis { label: "time, s", scale: Scale::Linear },
        y: Axis { label: "throughput, operations/s", scale: Scale::Linear },
        series: vec![Series { name, colour, stroke: Stroke::Bare, points }],
        marks: events.into_iter().map(|(at, what)| (at, what.to_owned())).collect(),
    };
    (system.to_lowercase(), chart)
}

fn one_run(turn: &mut Turn<'_, '_>, length: Duration) -> Result<()> {
    let clients = Clients::lay_out(turn.addresses(), turn.saturation())?;
    let from = Instant::now() + turn.pace().warmup;
    let to = from + length;
    let spectator: &dyn Spectator = turn.bench.progress;
    let around = Surroundings { spectator: Some(spectator), ..Surroundings::default() };
    let ensemble = turn.service.ensemble()?;
    let replies = [const { AtomicU64::new(0) }; SERVERS];
    let (cpu_before, before) = (cpu_of(ensemble)?, Machine::now(None));
    let (events, tally) = std::thread::scope(|scope| {
        let load = scope.spawn(|| clients.run(READS_PERCENT, Timeline::new(from, SLOT), to, &replies));
        let events = play(ensemble, from, length, &mut Meter::new(&replies, around));
        let tally = load.join().map_err(|_| anyhow::anyhow!("the clients' thread panicked"))?;
        Ok::<_, anyhow::Error>((events?, tally.context("the clients")?))
    })?;
    let busiest_thread = tally.busiest_thread.as_secs_f64() / length.as_secs_f64();
    let objections = Machine::now(None).since(&before).objections(busiest_thread, Servers::Here);
    let server_cpu = cpu_of(turn.service.ensemble()?)?.saturating_sub(cpu_before);
    turn.service.renew()?;
    let timeline = tally.timeline.context("a tally with a timeline")?;
    let mut slots = timeline.counts().to_vec();
    slots.resize(slot_of(length), 0);
    record(turn, &slots, &events, &objections);
    let cpu = server_cpu.as_secs_f64() * 1e6 / as_f64(tally.operations.max(1));
    turn.record(Place { series: "", x: 0.0 }, &[(SERVER_CPU, "s per million operations", cpu)], &objections);
    Ok(())
}

/// CPU time of all servers so far, those that were killed included.
fn cpu_of(ensemble: &Ensemble) -> Result<Duration> {
    Ok(ServerProcesses::of(ensemble)?.cpu_time()? + server_cpu::of_ended_children()?)
}

/// An event and when it came about.
type Happened = (Duration, &'static str);

/// Carries the events out on this thread, to which the servers it starts are tied.
fn play(
    ensemble: &Ensemble,
    from: Instant,
    length: Duration,
    meter: &mut Meter<'_>,
) -> Result<Vec<Happened>> {
    let mut failed = Vec::new();
    let mut happened = Vec::new();
    for (share, act, what) in EVENTS {
        meter.watch_until(from + length.mul_f64(share), || false)?;
        if act == Act::Recover {
            happened.push((from.elapsed(), what));
            failed.drain(..).try_for_each(|server| ensemble.server(server).launch())?;
            continue;
        }
        let leader = leading(ensemble)?;
        let running = (0..SERVERS).filter(|server| *server != leader && !failed.contains(server));
        let victim = match act {
            Act::FailLeader => leader,
            Act::FailFollower => running.min().context("a follower runs")?,
            _ => running.max().context("a follower runs")?,
        };
        let killed = Instant::now();
        ensemble.server(victim).kill();
        happened.push((killed.saturating_duration_since(from), what));
        failed.push(victim);
    }
    meter.watch_until(from + length, || false)?;
    Ok(happened)
}

/// Waits until a server says that it leads, whether or not others follow yet; which one.
fn leading(ensemble: &Ensemble) -> Result<usize> {
    wait_for("a server that leads", LEADER_MAX, || {
        let leads = |server: &Server| server.is_started() && server.mode().as_deref() == Some("leader");
        Ok(ensemble.iter().position(leads))
    })
}

fn record(turn: &mut Turn<'_, '_>, slots: &[u64], events: &[Happened], objections: &[String]) {
    let place = |x| Place { series: "", x };
    let point_length = SLOT.as_secs_f64() * as_f64(SLOTS_A_POINT as u64);
    let mut least = f64::INFINITY;
    for (index, point) in (0_u64..).zip(slots.chunks_exact(SLOTS_A_POINT)) {
        let throughput = as_f64(point.iter().sum()) / point_length;
        least = least.min(throughput);
        turn.record(
            place((as_f64(index) + 0.5) * point_length),
            &[(OVER_TIME, "operations/s", throughput)],
            objections,
        );
    }
    let ends = events.iter().skip(1).map(|(at, _)| slot_of(*at)).chain([slots.len()]);
    for ((number, (at, what)), end) in (1_u64..).zip(events).zip(ends) {
        turn.record(
            Place { series: what, x: at.as_secs_f64() },
            &[(EVENT, "s", at.as_secs_f64())],
            objections,
        );
        let after = &slots[slot_of(*at).min(end)..end.min(slots.len())];
        let gap = longest_empty(after) * SLOT.as_secs_f64() * 1e3;
        turn.record(place(as_f64(number)), &[(GAP, "ms, in steps of 20", gap)], objections);
    }
    turn.record(place(0.0), &[(LEAST, "operations/s", least)], objections);
}

fn slot_of(at: Duration) -> usize {
    usize::try_from(at.as_nanos() / SLOT.as_nanos()).expect("runs are shorter than memory is large")
}

/// Length of the longest stretch of empty slots.
fn longest_empty(slots: &[u64]) -> f64 {
    let longest = slots.split(|count| *count > 0).map(<[u64]>::len).max().unwrap_or(0);
    as_f64(longest as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_stretch_without_replies_is_found() {
        assert_eq!(longest_empty(&[3, 0, 0, 1, 0, 2]), 2.0);
        assert_eq!(longest_empty(&[3, 1]), 0.0);
        assert_eq!(longest_empty(&[0, 0, 0]), 3.0);
    }

    #[test]
    fn events_come_in_order_and_never_take_the_quorum() {
        assert!(EVENTS.windows(2).all(|pair| pair[0].0 < pair[1].0));
        let mut failed = 0;
        for (_, act, _) in EVENTS {
            failed = if act == Act::Recover { 0 } else { failed + 1 };
            assert!(failed <= SERVERS / 2, "{failed} of {SERVERS} have failed");
        }
    }
}
