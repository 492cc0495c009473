//! Probes: whether the process has to be ended, and whether it is to be sent clients. The conventions are
//! those of Kubernetes: status 200 or 503, `?verbose` for a line for each check, `?exclude=` for those that
//! do not count, and each check by itself below the probe.
//!
//! Whether there is a quorum never decides about life: to end the members that are left helps nobody.

use std::time::Duration;

use hyper::StatusCode;
use ringkeeper_engine::message::Serving;
use ringkeeper_engine::zab::Status;
use ringkeeper_wire::Zxid;
use tokio::time::timeout;

use super::query::Query;
use crate::server::inspect::Inspectors;
use crate::server::report::CoreReport;

/// Silence after which an executor counts as stuck. Far longer than pauses of a loaded machine, since a probe
/// of life that fails ends the process.
const STUCK_AFTER: Duration = Duration::from_secs(10);

/// How long the disk may take for one append.
const APPEND_MAX: Duration = Duration::from_secs(30);

/// Transactions that a follower may have yet to apply of those that are committed.
const LAG_MAX: u32 = 10_000;

/// How long the core may take to tell about itself. Shorter than a probe usually waits.
const REPORT_MAX: Duration = Duration::from_millis(800);

/// Whether this server takes clients. It decides about no probe: a leader that takes none (`leaderServes=no`)
/// is as it should be, and orchestration that waited for it to be ready would wait for ever.
const CLIENTS: &str = "clients";

/// A probe, by the last part of its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Probe {
    /// Whether the process works. One that does not has to be started again.
    Live,
    /// Whether clients are served.
    Ready,
    /// Whether log and snapshots are read.
    Started,
}

/// A check: its name, and what is wrong.
type Check = (&'static str, Result<(), String>);

impl Probe {
    /// The probe of this path.
    pub(super) fn of(path: &str) -> Option<Self> {
        [Self::Live, Self::Ready, Self::Started].into_iter().find(|probe| probe.path() == path)
    }

    const fn path(self) -> &'static str {
        match self {
            Self::Live => "/livez",
            Self::Ready => "/readyz",
            Self::Started => "/startupz",
        }
    }

    /// The answer; `None` if there is no check `only`.
    pub(super) async fn answer(
        self,
        running: Option<&Inspectors>,
        only: Option<&str>,
        query: &Query<'_>,
    ) -> Option<(StatusCode, String)> {
        let mut checks = self.checks(running, only).await;
        if let Some(only) = only {
            checks.retain(|(name, _)| *name == only);
            if checks.is_empty() {
                return None;
            }
        }
        let excluded = query.all("exclude").flat_map(|names| names.split(','));
        let excluded: Vec<_> = excluded.filter(|name| !name.is_empty()).collect();
        let known = |name: &&str| checks.iter().any(|(check, _)| check == name);
        if let Some(unknown) = excluded.iter().find(|name| !known(name)) {
            let names: Vec<_> = checks.iter().map(|(name, _)| *name).collect();
            let text = format!("there is no check {unknown:?} to exclude, only: {}\n", names.join(", "));
            return Some((StatusCode::BAD_REQUEST, text));
        }
        checks.retain(|(name, _)| !excluded.contains(name));
        Some(self.verdict(&checks, query.has("verbose")))
    }

    fn verdict(self, checks: &[Check], verbose: bool) -> (StatusCode, String) {
        let name = self.path().trim_start_matches('/');
        let healthy = checks.iter().all(|(_, outcome)| outcome.is_ok());
        let status = if healthy { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        if healthy && !verbose {
            return (status, "ok".to_owned());
        }
        let line = |(name, outcome): &Check| match outcome {
            Ok(()) => format!("[+]{name} ok\n"),
            Err(reason) => format!("[-]{name} failed: {reason}\n"),
        };
        let lines: String = checks.iter().map(line).collect();
        let verdict = if healthy { "passed" } else { "failed" };
        (status, format!("{lines}{name} check {verdict}\n"))
    }

    /// Those of the probe, and [`CLIENTS`] if it is asked for.
    async fn checks(self, running: Option<&Inspectors>, only: Option<&str>) -> Vec<Check> {
        let Some(inspectors) = running else { return self.checks_before_start() };
        if self == Self::Started {
            return vec![("recovery", Ok(()))];
        }
        let executors = executors(inspectors);
        let core = timeout(REPORT_MAX, inspectors.core()).await.ok().and_then(Result::ok);
        let of_core = |check: fn(&CoreReport) -> Result<(), String>| match &core {
            Some(core) => check(core),
            None => Err(format!("the core has not answered for {} ms", REPORT_MAX.as_millis())),
        };
        // A core that is slow to answer is no reason to end the process.
        let log = core.as_ref().map_or(Ok(()), appends);
        match self {
            Self::Live => vec![("executors", executors), ("log", log)],
            Self::Ready if only == Some(CLIENTS) => vec![(CLIENTS, of_core(clients))],
            _ => vec![
                ("recovery", Ok(())),
                ("executors", executors),
                ("log", log),
                ("disk", of_core(disk)),
                ("leader", of_core(leader)),
                ("lag", of_core(lag)),
            ],
        }
    }

    /// While log and snapshots are being read.
    fn checks_before_start(self) -> Vec<Check> {
        match self {
            Self::Live => vec![("executors", Ok(())), ("log", Ok(()))],
            _ => vec![("recovery", Err("log and snapshots are being read".to_owned()))],
        }
    }
}

fn executors(inspectors: &Inspectors) -> Result<(), String> {
    let silent = inspectors.facts().pulse.silences().enumerate().find(|(_, silence)| *silence > STUCK_AFTER);
    match silent {
        None => Ok(()),
        Some((0, silence)) => Err(format!("the core has not turned for {} s", silence.as_secs())),
        Some((shard, silence)) => {
            Err(format!("shard {} has not turned for {} s", shard - 1, silence.as_secs()))
        }
    }
}

fn appends(core: &CoreReport) -> Result<(), String> {
    match core.appending.filter(|took| *took > APPEND_MAX) {
        None => Ok(()),
        Some(took) => Err(format!("the disk has not finished an append for {} s", took.as_secs())),
    }
}

fn disk(core: &CoreReport) -> Result<(), String> {
    if core.disk_full { Err("the disk is full: writes are refused".to_owned()) } else { Ok(()) }
}

fn leader(core: &CoreReport) -> Result<(), String> {
    if core.status == Status::Looking { Err(core.missing.clone()) } else { Ok(()) }
}

fn clients(core: &CoreReport) -> Result<(), String> {
    match core.serving {
        Serving::Leads => {
            Err("this server leads, and a leader takes no clients (leaderServes=no)".to_owned())
        }
        _ => leader(core),
    }
}

fn lag(core: &CoreReport) -> Result<(), String> {
    behind(core.leaders_commit, core.state.last_zxid())
}

/// Whether a follower that has applied everything up to `applied` is near enough to what its leader has
/// committed.
fn behind(committed: Zxid, applied: Zxid) -> Result<(), String> {
    let txns = match committed.epoch() == applied.epoch() {
        true => committed.counter().saturating_sub(applied.counter()),
        // What it lacks of the epochs before cannot be counted.
        false if committed > applied => committed.counter(),
        false => 0,
    };
    if txns <= LAG_MAX {
        return Ok(());
    }
    Err(format!(
        "{txns} transactions behind the leader, more than {LAG_MAX}: applied {applied} of {committed}"
    ))
}

#[cfg(test)]
mod tests {
    use ringkeeper_wire::Epoch;

    use super::*;

    #[test]
    fn a_follower_is_ready_while_it_is_near_its_leader() {
        let zxid = |epoch, counter| Zxid::new(Epoch(epoch), counter);
        assert_eq!(behind(Zxid::ZERO, zxid(1, 7)), Ok(()), "a leader");
        assert_eq!(behind(zxid(2, 3), zxid(1, 900_000)), Ok(()), "at the beginning of an epoch");
        assert_eq!(behind(zxid(2, LAG_MAX + 5), zxid(2, 5)), Ok(()));
        let told = behind(zxid(2, LAG_MAX + 6), zxid(2, 5)).expect_err("too far");
        assert!(told.starts_with("10001 transactions behind the leader"), "{told}");
        assert!(behind(zxid(2, LAG_MAX + 1), zxid(1, 5)).is_err());
    }

    #[test]
    fn a_probe_lists_its_checks_when_one_fails_or_when_it_is_asked_to() {
        let good: Check = ("log", Ok(()));
        let bad: Check = ("leader", Err("server 2 has not connected".to_owned()));
        let (ok, unavailable) = (StatusCode::OK, StatusCode::SERVICE_UNAVAILABLE);
        let verdict = |checks: &[Check], verbose| Probe::Ready.verdict(checks, verbose);
        assert_eq!(verdict(std::slice::from_ref(&good), false), (ok, "ok".to_owned()));
        let listed = "[+]log ok\nreadyz check passed\n".to_owned();
        assert_eq!(verdict(std::slice::from_ref(&good), true), (ok, listed));
        let failed =
            "[+]log ok\n[-]leader failed: server 2 has not connected\nreadyz check failed\n".to_owned();
        assert_eq!(verdict(&[good, bad], false), (unavailable, failed));
    }
}
