//! `mntr`: one metric a line, under the names that monitoring knows (docs/protocol.md, 10.2).

use std::fmt::Write;

use super::report::{Mode, ServerReport};

pub(super) fn mntr(out: &mut String, mode: Mode, report: &ServerReport) -> std::fmt::Result {
    writeln!(out, "zk_version\t{}", report.version)?;
    writeln!(out, "zk_server_state\t{mode}")?;
    let part = match mode {
        Mode::Leader => Some("leading"),
        Mode::Follower => Some("following"),
        Mode::Observer => Some("observing"),
        Mode::Standalone | Mode::ReadOnly => None,
    };
    if let Some(part) = part {
        // A serving server has completed election, discovery and synchronization.
        writeln!(out, "zk_peer_state\t{part} - broadcast")?;
    }
    metrics(out, report)
}

/// The metrics, shown whether or not the server serves.
pub(super) fn metrics(out: &mut String, report: &ServerReport) -> std::fmt::Result {
    report.metrics.plain().iter().try_for_each(|(name, figure)| writeln!(out, "zk_{name}\t{figure}"))
}
