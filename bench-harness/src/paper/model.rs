//! A model: what ensembles on machines of their own reach, by what is measured of each role on this one.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ringkeeper_testkit::interrupt;

use super::SIZES;
use super::bench::{Bench, Origin, Place, SERVER_CPU, THROUGHPUT, Turn};
use super::chart::number;
use super::experiment::{Experiment, Plan, View};
use super::prediction::{Costs, Hardware, predict};
use super::published;
use super::record::{Curve, Record};
use super::scale::{Axis, Scale};
use super::table::Table;
use crate::measure::{Load, as_f64};
use crate::statistics::median;

const LEAD: &str = "CPU of a write at the leader";
const FOLLOW: &str = "CPU of a write at each other server";
const SERVE_WRITE: &str = "CPU of a write where its client is";
const SERVE_READ: &str = "CPU of a read where its client is";

/// The CPU time that the model has for the saturating load, as a share of what that took here.
const CHECK: &str = "CPU by the model beside the measured";

const PERCENTS: [u8; 11] = [0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100];

/// Shares of reads at which the model is checked.
const CHECKED: [u8; 3] = [0, 50, 100];

/// Requests that come at once: as many as the paper had in its whole system. Servers batch them as they do at
/// saturation.
const BURST: usize = 2000;

/// Reads a second; and writes, divided by the servers, all of which a write costs something. So servers have
/// this machine's cores when they want them.
const PER_SECOND: f64 = 40_000.0;

/// A window has several bursts, and is long beside the resolution of CPU times.
const WINDOW_MIN: Duration = Duration::from_secs(4);

/// The model.
pub(crate) struct Model;

impl Experiment for Model {
    fn plan(&self) -> Plan {
        Plan {
            id: "model",
            title: "Throughput by the share of reads, on machines of their own, by a model",
            about: "Not measured: computed from the CPU time that a write takes at the leader, at each other \
                    server, and where its client is, and a read where its client is. Those are measured here, \
                    in ensembles of each size, with bursts of 2,000 requests and pauses in between, so that \
                    servers batch as at saturation and seldom wait for a core. The leader's part is that with \
                    all clients elsewhere, a follower's that with all clients at the leader. What limits an \
                    ensemble is the busiest core, the leader's link, or the disk; a server of two cores is \
                    one thread. Where an ensemble fits on this machine, its CPU time at saturation is \
                    measured beside the model's. The cores are as fast as this machine's, and those of the \
                    paper were of 2010.",
            x: Axis { label: "reads, percent of all requests", scale: Scale::Linear },
            views: vec![View::log(THROUGHPUT, "", "throughput by the model, operations/s")],
            figures: vec![THROUGHPUT, CHECK],
            published: published::table1(),
            own_servers: true,
            ringkeeper_alone: true,
            ..Plan::default()
        }
    }

    fn run(&self, bench: &mut Bench<'_>) -> Result<()> {
        let fit = bench.sizes();
        let sizes = if bench.settings.sizes_note.is_some() { SIZES.to_vec() } else { fit.clone() };
        bench.turns(&sizes, |turn| {
            let costs = costs(turn)?;
            if fit.contains(&turn.addresses().len()) {
                check(turn, &costs)?;
            }
            Ok(())
        })?;
        let payload_len = bench.settings.saturation.payload_len;
        for hardware in [Hardware::OF_THE_PAPER, Hardware::OF_TODAY] {
            extrapolate(bench, as_f64(payload_len as u64), &hardware);
        }
        Ok(())
    }

    fn tables(&self, record: &Record) -> Vec<Table> {
        let published = self.plan().published;
        let published: Vec<_> = published.iter().collect();
        let by_reads = [(THROUGHPUT, &published[..]), (CHECK, &[])];
        let by_reads =
            by_reads.map(|(figure, published)| Table::of(record, self.plan().x.label, figure, published));
        let record = record.over_servers();
        let costs =
            [LEAD, FOLLOW, SERVE_WRITE, SERVE_READ].map(|figure| Table::of(&record, "servers", figure, &[]));
        costs.into_iter().chain(by_reads).filter(|table| !table.is_empty()).collect()
    }
}

/// What the servers took for one operation, beyond what they take when nothing is asked.
struct Taken {
    by_leader: f64,
    by_all: f64,
}

/// Measures what each role takes for an operation.
fn costs(turn: &mut Turn<'_, '_>) -> Result<Costs> {
    let all = turn.addresses().to_vec();
    let leader = turn.service.leader_address()?;
    let others: Vec<_> = all.iter().copied().filter(|server| *server != leader).collect();
    let servers = as_f64(all.len() as u64);
    turn.at("nothing asked");
    let idle = idle(turn)?;
    let elsewhere = taken(turn, "writes, clients at the followers", 0, &others, idle)?;
    let at_leader = taken(turn, "writes, clients at the leader", 0, &[leader], idle)?;
    let reads = taken(turn, "reads", 100, &all, idle)?;
    let follow = (at_leader.by_all - at_leader.by_leader) / (servers - 1.0);
    let costs = Costs {
        lead: elsewhere.by_leader,
        follow,
        serve_write: (elsewhere.by_all - elsewhere.by_leader - follow * (servers - 1.0)).max(0.0),
        serve_read: reads.by_all,
    };
    let figures = [
        (LEAD, costs.lead),
        (FOLLOW, costs.follow),
        (SERVE_WRITE, costs.serve_write),
        (SERVE_READ, costs.serve_read),
    ];
    let figures = figures.map(|(figure, seconds)| (figure, "us", seconds * 1e6));
    turn.record(Place { series: "", x: servers }, &figures, &[]);
    Ok(costs)
}

/// CPU time of the leader and of all servers in a second without requests.
fn idle(turn: &Turn<'_, '_>) -> Result<(f64, f64)> {
    let (before, began) = (turn.service.cpu_times()?, Instant::now());
    interrupt::sleep_until(began + window(turn), || false)?;
    let (after, seconds) = (turn.service.cpu_times()?, began.elapsed().as_secs_f64());
    Ok(((after.0 - before.0) / seconds, (after.1 - before.1) / seconds))
}

fn window(turn: &Turn<'_, '_>) -> Duration {
    turn.pace().window.max(WINDOW_MIN)
}

/// Measures bursts of requests at `servers`.
fn taken(
    turn: &mut Turn<'_, '_>,
    what: &str,
    reads_percent: u8,
    servers: &[SocketAddr],
    idle: (f64, f64),
) -> Result<Taken> {
    turn.at(what);
    let divided = if reads_percent == 0 { as_f64(turn.addresses().len() as u64) } else { 1.0 };
    let load = Load {
        per_second: Some(PER_SECOND / divided),
        burst: BURST,
        ..turn.saturation().load(reads_percent, Duration::ZERO, window(turn))
    };
    let (before, began) = (turn.service.cpu_times()?, Instant::now());
    let measured = turn.measure(servers, &load)?;
    let (after, seconds) = (turn.service.cpu_times()?, began.elapsed().as_secs_f64());
    let by_leader = (after.0 - before.0 - idle.0 * seconds).max(0.0);
    let by_all = after.1 - before.1 - idle.1 * seconds;
    // All of the time outside of the window is for laying out znodes, which is shared alike.
    let in_window = measured.server_cpu.context("own servers")?.as_secs_f64();
    let in_window = idle.1.mul_add(-measured.window.as_secs_f64(), in_window);
    let of_each = (in_window / as_f64(measured.tally.operations.max(1))).max(0.0);
    Ok(Taken { by_leader: of_each * by_leader / by_all, by_all: of_each })
}

/// Measures the saturating load, and records what the model has for it beside that.
fn check(turn: &mut Turn<'_, '_>, costs: &Costs) -> Result<()> {
    let servers = turn.addresses().to_vec();
    for percent in CHECKED {
        turn.at(&format!("saturated, {percent} % reads"));
        let load = turn.saturation().load(percent, turn.pace().warmup, turn.pace().window);
        let measured = turn.measure(&servers, &load)?;
        let taken = measured.server_cpu_per_million().context("own servers")?;
        let by_model = costs.of_all(as_f64(servers.len() as u64), f64::from(percent) / 100.0) * 1e6;
        let place = Place { series: "", x: f64::from(percent) };
        let figures = [(SERVER_CPU, "s per million operations", taken), (CHECK, "ratio", by_model / taken)];
        turn.record(place, &figures, &measured.objections);
    }
    Ok(())
}

/// Records what each measured ensemble would reach on such machines, and says what holds it back.
fn extrapolate(bench: &mut Bench<'_>, payload_len: f64, hardware: &Hardware) {
    for curve in bench.record.curves(LEAD) {
        let Some(costs) = medians(&bench.record, &curve) else { continue };
        let servers = as_f64(curve.servers as u64);
        let origin = Origin { system: &curve.system, servers: curve.servers, run: 1 };
        let mut held_back = Vec::new();
        for percent in PERCENTS {
            let reads = f64::from(percent) / 100.0;
            let (throughput, limit) = predict(&costs, servers, reads, payload_len, hardware);
            let place = Place { series: hardware.name, x: f64::from(percent) };
            bench.push(origin, place, &[(THROUGHPUT, "operations/s", throughput)], "");
            match held_back.last_mut() {
                Some((_, last, held_by)) if *held_by == limit => *last = percent,
                _ => held_back.push((percent, percent, limit)),
            }
        }
        let held_back: Vec<_> = held_back
            .iter()
            .map(|(first, last, limit)| match first == last {
                true => format!("{first} % reads: {limit}"),
                false => format!("{first} to {last} % reads: {limit}"),
            })
            .collect();
        let machines = if hardware.name.is_empty() { "the paper's machines" } else { hardware.name };
        let line =
            format!("{}, {} servers, {machines}: {}", curve.system, number(servers), held_back.join("; "));
        bench.note(line);
    }
}

/// Over all runs.
fn medians(record: &Record, curve: &Curve) -> Option<Costs> {
    let of = |figure| median(record.points(curve, figure).iter().map(|point| point.median / 1e6));
    Some(Costs {
        lead: of(LEAD)?,
        follow: of(FOLLOW)?,
        serve_write: of(SERVE_WRITE)?,
        serve_read: of(SERVE_READ)?,
    })
}
