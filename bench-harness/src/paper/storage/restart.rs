//! From the start of a process to its first reply.

use std::time::Instant;

use anyhow::{Context, Result};

use super::super::bench::Figure;
use super::host::Host;
use super::{LONG_LOG, NO_SNAPSHOTS, SHORT_LOG, Shape};
use crate::measure::as_f64;
use crate::progress::Progress;

/// One start on the folder with the short log; the last value written has to be there.
pub(super) fn restart(host: &Host, shape: Shape, _: &Progress) -> Result<Vec<Figure<'static>>> {
    let start = start(host, shape, SHORT_LOG)?;
    Ok(vec![
        ("until the first reply", "ms", start.seconds * 1e3),
        ("CPU time until then", "ms", start.cpu_seconds * 1e3),
        ("resident memory in all, after the start", "B/znode", start.resident_per_znode),
    ])
}

/// The difference between two starts, one with a long log and one with a short one.
pub(super) fn replay(host: &Host, shape: Shape, _: &Progress) -> Result<Vec<Figure<'static>>> {
    let short = start(host, shape, SHORT_LOG)?;
    host.kill();
    let long = start(host, shape, LONG_LOG)?;
    let txns = f64::from(shape.replay_txns - shape.log_txns);
    let (seconds, cpu_seconds) = (long.seconds - short.seconds, long.cpu_seconds - short.cpu_seconds);
    Ok(vec![
        ("until the first reply, long log", "ms", long.seconds * 1e3),
        ("log replay", "txns/s", txns / seconds),
        ("log replay for each second of CPU time", "txns/s", txns / cpu_seconds),
    ])
}

struct Start {
    seconds: f64,
    cpu_seconds: f64,
    resident_per_znode: f64,
}

fn start(host: &Host, shape: Shape, name: &str) -> Result<Start> {
    host.restore(name)?;
    host.cool_down()?;
    let (until_session, mut session) = host.start(NO_SNAPSHOTS)?;
    let opened = Instant::now();
    shape.tree.check_last(&mut session, name).context("the first reply")?;
    let seconds = (until_session + opened.elapsed()).as_secs_f64();
    let cpu_seconds = host.processes()?.cpu_time()?.as_secs_f64();
    let resident = as_f64(host.processes()?.resident_bytes()?);
    Ok(Start { seconds, cpu_seconds, resident_per_znode: resident / f64::from(shape.tree.znodes()) })
}
