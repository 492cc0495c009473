//! From the start of a process to its first reply.

use std::time::Instant;

use anyhow::{Context, Result};

use super::host::Host;
use super::{LONG_LOG, NO_SNAPSHOTS, SHORT_LOG, StorageArgs};
use crate::compare::Metric;
use crate::measure::as_f64;

/// One start on the folder that was put aside under `name`; the last value written has to be there.
pub(super) fn restart(host: &mut Host, args: &StorageArgs, name: &str) -> Result<Vec<Metric>> {
    let start = start(host, args, name)?;
    Ok(vec![
        Metric::lower("until the first reply", "ms", start.seconds * 1e3),
        Metric::lower("CPU time until then", "ms", start.cpu_seconds * 1e3),
        Metric::lower("resident memory in all, after the start", "B/znode", start.resident_per_znode),
    ])
}

/// The difference between two starts, one with a long log and one with a short one.
pub(super) fn replay(host: &mut Host, args: &StorageArgs) -> Result<Vec<Metric>> {
    let short = start(host, args, SHORT_LOG)?;
    host.kill()?;
    let long = start(host, args, LONG_LOG)?;
    let txns = f64::from(args.replay_txns - args.log_txns);
    let (seconds, cpu_seconds) = (long.seconds - short.seconds, long.cpu_seconds - short.cpu_seconds);
    Ok(vec![
        Metric::lower("until the first reply, long log", "ms", long.seconds * 1e3),
        Metric::higher("log replay", "txns/s", txns / seconds),
        Metric::higher("log replay for each second of CPU time", "txns/s", txns / cpu_seconds),
    ])
}

struct Start {
    seconds: f64,
    cpu_seconds: f64,
    resident_per_znode: f64,
}

fn start(host: &mut Host, args: &StorageArgs, name: &str) -> Result<Start> {
    host.restore(name)?;
    host.cool_down()?;
    let (until_session, mut session) = host.start(NO_SNAPSHOTS)?;
    let opened = Instant::now();
    args.tree().check_last(&mut session, name).context("the first reply")?;
    let seconds = (until_session + opened.elapsed()).as_secs_f64();
    let cpu_seconds = host.processes()?.cpu_time()?.as_secs_f64();
    let resident = as_f64(host.processes()?.resident_bytes()?);
    Ok(Start { seconds, cpu_seconds, resident_per_znode: resident / f64::from(args.tree().znodes()) })
}
