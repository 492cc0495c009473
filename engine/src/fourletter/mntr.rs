//! `mntr`: one metric a line, under the names that monitoring knows (docs/protocol.md, 10.2).

use std::fmt::Write;

use super::answer::counted_znodes;
use super::report::{Mode, ServerReport};
use crate::limits::Limit;

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
    let shards = &report.shards;
    let (counters, latency) = (&shards.counters, &shards.counters.latency);
    let (open_files, max_files) = report.file_descriptors;
    writeln!(out, "zk_avg_latency\t{:?}", latency.average_ms())?;
    let gauges: [(&str, u64); 24] = [
        ("max_latency", latency.max_ms),
        ("min_latency", latency.min_ms),
        ("packets_received", counters.received),
        ("packets_sent", counters.sent),
        ("num_alive_connections", count(shards.connection_count)),
        ("outstanding_requests", count(shards.outstanding)),
        ("uptime", report.uptime_ms),
        ("znode_count", count(counted_znodes(report))),
        ("watch_count", count(shards.watches.watches)),
        ("ephemerals_count", count(report.ephemeral_count)),
        ("approximate_data_size", report.data_size_bytes),
        ("global_sessions", count(report.session_count)),
        ("local_sessions", 0),
        ("open_file_descriptor_count", open_files),
        ("max_file_descriptor_count", max_files),
        ("auth_failed_count", counters.auth_failed),
        ("connection_request_count", counters.connection_requests),
        ("connection_rejected", counters.connections_rejected),
        ("sessionless_connections_expired", counters.sessionless_expired),
        ("bytes_received_count", counters.received_bytes),
        ("response_bytes", counters.sent_bytes),
        ("notifications_sent", counters.notifications),
        ("malformed_connections", counters.malformed),
        ("slow_reader_connections", counters.slow_readers),
    ];
    for (name, value) in gauges {
        writeln!(out, "zk_{name}\t{value}")?;
    }
    for &limit in Limit::ALL {
        writeln!(out, "zk_{}\t{}", limit.metric(), counters.limits.of(limit))?;
    }
    if let Some(sizes) = report.proposal_sizes {
        writeln!(out, "zk_last_proposal_size\t{}", sizes.last)?;
        writeln!(out, "zk_max_proposal_size\t{}", sizes.max)?;
        writeln!(out, "zk_min_proposal_size\t{}", sizes.min)?;
    }
    further(out, report)
}

/// The metrics of [`ServerReport::metrics`], shown whether or not the server serves.
pub(super) fn further(out: &mut String, report: &ServerReport) -> std::fmt::Result {
    for metric in &report.metrics {
        let (name, value) = (&metric.name, metric.value);
        match value.fract() == 0.0 {
            true => writeln!(out, "zk_{name}\t{value}")?,
            false => writeln!(out, "zk_{name}\t{value:?}")?,
        }
    }
    Ok(())
}

fn count(items: usize) -> u64 {
    u64::try_from(items).expect("a usize has at most 64 bits")
}
