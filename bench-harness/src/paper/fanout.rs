//! Watch fan-out: one change, many watchers.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use hdrhistogram::Histogram;
use ringkeeper_testkit::interrupt;
use ringkeeper_wire::EventType;

use super::bench::{Bench, Place, SERVER_CPU};
use super::experiment::{Experiment, Plan, View};
use super::scale::{Axis, Scale};
use crate::driver::{latency_histogram, record_latency};
use crate::measure::{as_f64, fresh_root};
use crate::session::{self, Session};
use crate::window::Rate;
use crate::{payload, request};

const P50: &str = "last notification p50";
const P90: &str = "last notification p90";

const WATCHERS: [usize; 3] = [10, 100, 1000];

/// Changes that count.
const FULL: u32 = 50;
const QUICK: u32 = 10;

/// Size of the znode's value, in bytes.
const PAYLOAD_LEN: usize = 100;

/// Changes before those that count.
const WARMUP_CHANGES: u32 = 10;

/// Watch fan-out.
pub(crate) struct WatchFanout;

impl Experiment for WatchFanout {
    fn plan(&self) -> Plan {
        Plan {
            id: "fanout",
            title: "Watch fan-out: one change, n watchers",
            about: "n sessions, spread over the servers, watch one znode; a client sets its data. From \
                    sending the change until the last session has its notification.",
            x: Axis { label: "watchers", scale: Scale::Log },
            views: vec![View::log(P50, "", "time until the last notification, median, us")],
            figures: vec![P50, P90, SERVER_CPU],
            ..Plan::default()
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

/// Leaves a data watch in each of `watchers` sessions, changes the znode, awaits all notifications, and
/// does so `changes` times. Returns nanoseconds from the change to the last notification. `rate` is told of
/// notifications.
fn fanout(
    servers: &[SocketAddr],
    watchers: usize,
    changes: u32,
    rate: &mut Rate<'_>,
) -> Result<Histogram<u64>> {
    let server = servers.first().context("no server")?;
    let mut writer = Session::open(*server)?;
    let mut watching = Session::open_all(servers, watchers)?;
    let path = fresh_root();
    let value = payload::first(0, PAYLOAD_LEN);
    writer.call(|out, xid| request::create(out, xid, &path, &value))?;
    // Their servers may not have heard of the znode yet.
    session::call_each(&mut watching, |_, out, xid| request::sync(out, xid, &path))
        .context("synchronizing")?;
    let mut latencies_ns = latency_histogram();
    for change in 0..WARMUP_CHANGES + changes {
        interrupt::check()?;
        session::call_each(&mut watching, |_, out, xid| request::get_data(out, xid, &path, true))
            .context("leaving the watches")?;
        let sent_at = Instant::now();
        writer.send(|out, xid| request::set_data(out, xid, &path, &value))?;
        for (index, session) in watching.iter_mut().enumerate() {
            expect_change(session, &path).with_context(|| format!("watcher {index}, change {change}"))?;
        }
        let latency = sent_at.elapsed();
        rate.look(u64::from(change + 1) * watchers as u64);
        writer.receive()?;
        if change >= WARMUP_CHANGES {
            record_latency(&mut latencies_ns, latency);
        }
    }
    session::close_all(watching)?;
    session::close_all(vec![writer])?;
    Ok(latencies_ns)
}

fn expect_change(session: &mut Session, path: &str) -> Result<()> {
    let event = session.receive_event()?;
    if event.event_type != EventType::NodeDataChanged.to_wire() || event.path != path {
        bail!("{event:?} instead of a change of {path}");
    }
    Ok(())
}
