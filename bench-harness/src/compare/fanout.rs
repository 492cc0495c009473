//! One change, many watchers: the time from sending the change until the last session has its
//! notification.

use std::net::SocketAddr;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use hdrhistogram::Histogram;
use ringkeeper_wire::EventType;

use crate::driver::{latency_histogram, record_latency};
use crate::measure::fresh_root;
use crate::session::{self, Session};
use crate::window::Rate;
use crate::{interrupt, payload, request};

/// Size of the znode's value, in bytes.
const PAYLOAD_LEN: usize = 100;

/// Changes before those that count.
const WARMUP_CHANGES: u32 = 10;

/// Leaves a data watch in each of `watchers` sessions, changes the znode, awaits all notifications, and
/// does so `changes` times. Returns nanoseconds from the change to the last notification. `rate` is told of
/// notifications.
pub(crate) fn fanout(
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
