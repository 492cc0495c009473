//! Distance: three servers that are far apart, by the round trip between them.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ringkeeper_testkit::{Network, Server};

use super::bench::{Bench, LATENCY_P50, LATENCY_P99, Place, SERVER_CPU, Saturation, THROUGHPUT, Turn};
use super::experiment::{Experiment, Plan, View};
use super::restart::wait_for;
use super::scale::{Axis, Scale};
use super::service::Service;
use crate::creates::Creates;
use crate::driver::Schedule;
use crate::machine::Machine;
use crate::measure::{as_f64, fresh_root, under_load};
use crate::request;
use crate::session::{self, Session};
use crate::system::supervised;
use crate::window::Surroundings;

const CATCH_UP: &str = "catching up";

const SERVERS: usize = 3;

/// Round trips between any two servers, in milliseconds.
const QUICK: [u16; 3] = [1, 20, 200];
const FULL: [u16; 6] = [1, 5, 20, 50, 100, 200];

/// How many round trips longer than elsewhere a load runs before it is measured, and then is measured: TCP
/// has to find how much a line that was idle carries.
const ROUND_TRIPS_BEFORE: u32 = 20;
const ROUND_TRIPS_MEASURED: u32 = 10;

/// What a server misses while it is away: 200 values of 500 kB.
const MISSED: u32 = 200;
const MISSED_LEN: usize = 500_000;
const MISSED_OUTSTANDING: usize = 16;
const PATIENCE: Duration = Duration::from_secs(300);

/// Ten round trips, and at least what ringkeeper has by default.
fn peer_timeout_ms(round_trip_ms: u16) -> u16 {
    (10 * round_trip_ms).max(500)
}

/// Distance.
pub(crate) struct Distance;

impl Experiment for Distance {
    fn plan(&self) -> Plan {
        Plan {
            id: "distance",
            title: "Servers that are far apart",
            about: "Each server in a network namespace; packets between servers take half of the round trip \
                    each way, those of clients take no time. setData of 1 KiB at the leader: one session \
                    that waits for every reply, and the saturating load, of which the servers may have \
                    25,000 requests in process. Both run for twenty round trips longer than elsewhere before \
                    they are measured, since TCP starts slowly on a line that was idle. Then a follower is \
                    killed, 100 MB are written in values of 500 kB, and the follower is started: bytes by the \
                    time until it answers a read of the last one, its start included. Needs root. The relay that delays packets runs on the \
                    same machine and takes a part of its processor time, which grows with the bytes.",
            x: Axis { label: "round trip between servers, ms", scale: Scale::Log },
            views: vec![
                View::log(LATENCY_P50, "p50", "p50 latency, us"),
                View::log(THROUGHPUT, "", "throughput, operations/s"),
                View::log(CATCH_UP, "catch-up", "catching up, MB/s"),
            ],
            figures: vec![LATENCY_P50, LATENCY_P99, THROUGHPUT, SERVER_CPU, CATCH_UP],
            own_servers: true,
            ..Plan::default()
        }
    }

    fn run(&self, bench: &mut Bench<'_>) -> Result<()> {
        if let Err(error) = Network::make_far(1, Duration::ZERO) {
            bench.note(format!("left out: there are no networks with delay: {error:#}"));
            return Ok(());
        }
        let round_trips: &[u16] = bench.pace().pick(&QUICK, &FULL);
        let setups: Vec<_> = round_trips.iter().map(|round_trip_ms| (SERVERS, *round_trip_ms)).collect();
        bench.turns_on(
            &setups,
            |settings, subject, servers, round_trip_ms| {
                let system = subject.system().context("a system that can be started")?;
                let network = Network::make_far(servers, Duration::from_millis(round_trip_ms.into()) / 2)?;
                let more = format!(
                    "globalOutstandingLimit=25000\nringkeeper.trustedNetwork=yes\n\
                     ringkeeper.peerTimeoutMs={}",
                    peer_timeout_ms(round_trip_ms)
                );
                let ensemble = system.ensemble_in(supervised(network.seats()), &more, &settings.work_dir)?;
                Service::of(system, ensemble.with_network(Some(network)))
            },
            |turn, round_trip_ms| {
                let x = f64::from(round_trip_ms);
                let one = Saturation { sessions: 1, outstanding: 1, ..turn.saturation() };
                for (series, saturation) in [("one outstanding", one), ("saturated", turn.saturation())] {
                    turn.at(&format!("{round_trip_ms} ms, {series}"));
                    let round_trip = Duration::from_millis(round_trip_ms.into());
                    let warmup = turn.pace().warmup + round_trip * ROUND_TRIPS_BEFORE;
                    let load =
                        saturation.load(0, warmup, turn.pace().window + round_trip * ROUND_TRIPS_MEASURED);
                    let measured = turn.measure(&[turn.service.leader_address()?], &load)?;
                    turn.record_measurement(Place { series, x }, &measured);
                }
                turn.at(&format!("{round_trip_ms} ms, catching up"));
                let before = Machine::now(None);
                let took = catch_up(turn)?;
                let objections = Machine::now(None).since(&before).disturbances();
                let megabytes = f64::from(MISSED) * as_f64(MISSED_LEN as u64) / 1e6;
                let figure = (CATCH_UP, "MB/s", megabytes / took.as_secs_f64());
                turn.record(Place { series: "a follower that was away", x }, &[figure], &objections);
                Ok(())
            },
        )
    }
}

/// How long a follower takes to come back, which was away while much was written.
fn catch_up(turn: &mut Turn<'_, '_>) -> Result<Duration> {
    let leader = turn.service.wait_for_leader()?;
    let ensemble = turn.service.ensemble()?;
    let away: &Server = ensemble.server((leader + 1) % SERVERS);
    away.kill();
    let mut session = Session::open(ensemble.server(leader).address())?;
    let root = fresh_root();
    session.call(|out, xid| request::create(out, xid, &root, b""))?;
    let creates = Creates::new(&root, MISSED, MISSED_LEN);
    let from = Instant::now();
    let schedule = Schedule { outstanding: MISSED_OUTSTANDING, from, to: from + PATIENCE, arrivals: None };
    let written = under_load(vec![session], vec![creates], 1, schedule, Surroundings::default())?;
    session::close_all(written.sessions)?;
    let operations = written.tally.operations;
    ensure!(operations == u64::from(MISSED), "{operations} of {MISSED} creates were answered");
    away.launch()?;
    let began = Instant::now();
    wait_for(away.address(), &format!("{root}/n{:07}", MISSED - 1))?;
    let took = began.elapsed();
    turn.service.renew()?;
    Ok(took)
}
