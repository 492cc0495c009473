//! Reports of four-letter words: assembled from the shards, the leader core and the system.

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::Arc;

use ringkeeper_engine::fourletter::{Metric, Mode, ProposalSizes, ServerReport, Word};
use ringkeeper_engine::limits::Refusals;
use ringkeeper_engine::state::State;
use ringkeeper_engine::zab::{Learners, Status};
use ringkeeper_wire::{SessionId, Zxid};

use super::admission::Admission;
use super::audit::AuditLog;
use super::clock::Clock;
use super::inspect::ShardAnswer;
use super::log_task::Forced;
use super::scrub::Findings;
use super::snapshots::Taken;
use super::system::{self, Measured};
use super::tls::TlsAcceptor;
use crate::config::{Config, PeerRole};

/// Statistics of the leader core.
#[derive(Debug, Default)]
pub(crate) struct CoreCounters {
    leading: Cell<bool>,
    status_since_ms: Cell<u64>,
    looking: Cell<u64>,
    proposals: Cell<Proposals>,
}

/// The batches that this server proposed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Proposals {
    /// How many.
    pub(crate) count: u64,
    /// Their sizes since the last `srst`; `None` before the first.
    pub(crate) sizes: Option<ProposalSizes>,
}

/// The report of the leader core.
pub(crate) struct CoreReport {
    /// The committed state.
    pub(crate) state: Arc<State>,
    pub(crate) status: Status,
    /// Why it does not serve, in one sentence; empty while it serves.
    pub(crate) missing: String,
    pub(crate) learners: Learners,
    pub(crate) digests: Vec<(Zxid, u64)>,
    pub(crate) peers_connected: usize,
    pub(crate) forced: Forced,
    /// Whether writes wait for room on the disk.
    pub(crate) disk_full: bool,
    /// Whether a server with another history was met recently.
    pub(crate) history_conflict: bool,
    /// Whether two processes with one id were met recently.
    pub(crate) id_conflict: bool,
    /// The statistics of damage.
    pub(crate) findings: Findings,
    /// A part of the log that recovery cut off is still missing.
    pub(crate) lacks_log: bool,
    /// Number of peers' digests that differed from this server's.
    pub(crate) digest_mismatches: u64,
    /// The snapshots written so far.
    pub(crate) snapshots: Taken,
    pub(crate) proposals: Proposals,
    /// Its refusals as a leader.
    pub(crate) refusals: Refusals,
    /// How often the server began to look for a leader.
    pub(crate) looking: u64,
    /// When its status changed last, on the server's clock.
    pub(crate) status_since_ms: u64,
}

/// Constants of a running server, and the sources of shared figures.
pub(crate) struct Facts {
    pub(crate) config: Config,
    pub(crate) data_dir: PathBuf,
    pub(crate) log_dir: PathBuf,
    pub(crate) clock: Clock,
    pub(crate) shards: u16,
    pub(crate) admission: Arc<Admission>,
    pub(crate) tls: Option<Arc<TlsAcceptor>>,
    pub(crate) audit: Option<AuditLog>,
}

impl CoreCounters {
    /// Counts a batch that is appended to the log; on a leader it is a proposal.
    pub(crate) fn appended(&self, bytes: usize) {
        if !self.leading.get() {
            return;
        }
        let last = i64::try_from(bytes).unwrap_or(i64::MAX);
        let mut proposals = self.proposals.get();
        proposals.count += 1;
        proposals.sizes = Some(match proposals.sizes {
            None => ProposalSizes { last, min: last, max: last },
            Some(ProposalSizes { min, max, .. }) => {
                ProposalSizes { last, min: min.min(last), max: max.max(last) }
            }
        });
        self.proposals.set(proposals);
    }

    /// Records a change of the server's status.
    pub(crate) fn changed(&self, now_ms: u64, status: Status) {
        self.status_since_ms.set(now_ms);
        self.leading.set(matches!(status, Status::Leading { .. }));
        if status == Status::Looking {
            self.looking.set(self.looking.get() + 1);
        }
    }

    /// Resets the sizes of proposals, not their number.
    pub(crate) fn reset_proposals(&self) {
        self.proposals.set(Proposals { sizes: None, ..self.proposals.get() });
    }

    pub(crate) fn proposals(&self) -> Proposals {
        self.proposals.get()
    }

    pub(crate) fn looking(&self) -> u64 {
        self.looking.get()
    }

    pub(crate) fn status_since_ms(&self) -> u64 {
        self.status_since_ms.get()
    }
}

impl Facts {
    /// Assembles the report that answers `word`. Expensive fields that the word does not show stay empty.
    pub(crate) fn assemble(
        &self,
        word: Word,
        mut shards: ShardAnswer,
        core: CoreReport,
        measured: Measured,
    ) -> ServerReport {
        let now = self.clock.now();
        let mode = self.mode(core.status);
        let metrics =
            if word == Word::Mntr { self.metrics(&shards, &core, now.monotonic_ms) } else { Vec::new() };
        shards.report.counters.limits.merge(&core.refusals.limits);
        shards.report.counters.connections_rejected += self.admission.refused();
        let state = &core.state;
        ServerReport {
            version: system::version(),
            mode,
            missing: core.missing,
            shards: shards.report,
            clock_offset_ms: now.wall_ms.saturating_sub_unsigned(now.monotonic_ms),
            uptime_ms: now.monotonic_ms,
            last_zxid: state.last_zxid(),
            znode_count: state.tree().len(),
            data_size_bytes: state.tree().data_size(),
            ephemeral_count: state.ephemeral_count(),
            session_count: state.sessions().len(),
            file_descriptors: measured.file_descriptors,
            proposal_sizes: (mode == Some(Mode::Leader)).then(|| core.proposals.shown()),
            metrics,
            configuration: if word == Word::Conf { self.configuration(&measured) } else { Vec::new() },
            membership: self.membership(),
            environment: if word == Word::Envi { system::environment() } else { Vec::new() },
            directory_sizes_bytes: measured.directory_sizes_bytes,
            sessions: if word == Word::Dump { sessions(state) } else { Vec::new() },
            ephemerals: if word == Word::Dump { ephemerals(state) } else { Vec::new() },
            data_watches: shards.data_watches,
            digests: core.digests,
            trace_mask: 0,
        }
    }

    fn mode(&self, status: Status) -> Option<Mode> {
        match status {
            Status::Looking => None,
            Status::Leading { .. } if self.config.servers.is_empty() => Some(Mode::Standalone),
            Status::Leading { .. } => Some(Mode::Leader),
            Status::Following { .. } if self.is_observer() => Some(Mode::Observer),
            Status::Following { .. } => Some(Mode::Follower),
        }
    }

    fn is_observer(&self) -> bool {
        self.config.own_server().is_some_and(|server| server.role == PeerRole::Observer)
    }

    /// Times are milliseconds, as in ZooKeeper.
    #[expect(clippy::cast_precision_loss, reason = "counters far below 2^53, for people and monitoring")]
    fn metrics(&self, shards: &ShardAnswer, core: &CoreReport, now_ms: u64) -> Vec<Metric> {
        let Forced { count, sum_us, min_us, max_us, slow, percentiles_us } = core.forced;
        let average_ms =
            if count == 0 { 0.0 } else { (sum_us as f64 / count as f64 * 10.0).round() / 10_000.0 };
        let mut metrics = vec![
            ("avg_fsynctime", average_ms),
            ("min_fsynctime", (min_us / 1000) as f64),
            ("max_fsynctime", (max_us / 1000) as f64),
            ("cnt_fsynctime", count as f64),
            ("sum_fsynctime", (sum_us / 1000) as f64),
            ("fsync_threshold_exceed_count", slow as f64),
            ("output_queue_bytes", shards.report.output_bytes as f64),
            ("shards", f64::from(self.shards)),
            ("memory_limit_bytes", self.config.memory_limit.bytes().unwrap_or(0) as f64),
            ("memory_limit_exceeded", core.refusals.memory as f64),
            ("disk_full", f64::from(u8::from(core.disk_full))),
        ];
        let names = ["p50_fsynctime", "p95_fsynctime", "p99_fsynctime", "p999_fsynctime"];
        metrics.extend(names.into_iter().zip(percentiles_us.map(|us| us as f64 / 1000.0)));
        metrics.extend(snapshot_metrics(&core.snapshots));
        let handshakes = self.tls.iter().flat_map(|tls| tls.metrics());
        metrics.extend(handshakes.map(|(name, value)| (name, value as f64)));
        metrics.extend(self.audit.iter().map(|audit| ("audit_records_lost", audit.lost() as f64)));
        metrics.extend(integrity_metrics(core, now_ms));
        metrics.extend(system::resident_memory_bytes().map(|bytes| ("resident_memory_bytes", bytes as f64)));
        if !self.config.servers.is_empty() {
            let voters = self.config.servers.iter().filter(|server| server.role == PeerRole::Participant);
            metrics.extend([
                ("quorum_size", voters.count() as f64),
                ("looking_count", core.looking as f64),
                ("history_conflict", f64::from(u8::from(core.history_conflict))),
                ("id_conflict", f64::from(u8::from(core.id_conflict))),
                ("peers_connected", core.peers_connected as f64),
            ]);
            if matches!(core.status, Status::Leading { .. }) {
                let Learners { all, synced_followers, synced_observers } = core.learners;
                metrics.extend([
                    ("learners", all as f64),
                    ("synced_followers", synced_followers as f64),
                    ("synced_observers", synced_observers as f64),
                    ("pending_syncs", all.saturating_sub(synced_followers + synced_observers) as f64),
                    ("leader_uptime", now_ms.saturating_sub(core.status_since_ms) as f64),
                    ("proposal_count", core.proposals.count as f64),
                ]);
            }
        }
        metrics.into_iter().map(|(name, value)| Metric { name: name.to_owned(), value }).collect()
    }

    /// ZooKeeper's keys in its order, then ours.
    fn configuration(&self, measured: &Measured) -> Vec<(String, String)> {
        let config = &self.config;
        let (data_size, log_size) = measured.directory_sizes_bytes;
        let mut pairs = vec![
            ("clientPort", port(Some(config.client_port).filter(|&port| port != 0))),
            ("secureClientPort", port(config.tls.secure_port)),
            ("dataDir", self.data_dir.display().to_string()),
            ("dataDirSize", data_size.to_string()),
            ("dataLogDir", self.log_dir.display().to_string()),
            ("dataLogSize", log_size.to_string()),
            ("tickTime", config.tick_time_ms.to_string()),
            ("maxClientCnxns", config.max_client_connections.to_string()),
            ("minSessionTimeout", config.min_session_timeout().to_string()),
            ("maxSessionTimeout", config.max_session_timeout().to_string()),
            ("clientPortListenBacklog", config.client_backlog.to_string()),
            // As in ZooKeeper, a server alone has id 0 here.
            ("serverId", config.own_server().map_or(0, |own| own.id).to_string()),
        ];
        if let Some(own) = config.own_server() {
            pairs.extend([
                ("initLimit", config.init_limit.unwrap_or(0).to_string()),
                ("syncLimit", config.sync_limit.unwrap_or(0).to_string()),
                ("electionAlg", "3".to_owned()),
                ("electionPort", own.election_port.to_string()),
                ("quorumPort", own.quorum_port.to_string()),
                ("peerType", if self.is_observer() { "1" } else { "0" }.to_owned()),
                ("ringkeeper.peerTimeoutMs", config.peer_timeout_ms.to_string()),
            ]);
        }
        pairs.extend([
            ("clientPortAddress", config.client_address.to_string()),
            ("maxCnxns", config.max_connections.to_string()),
            ("jute.maxbuffer", config.jute_max_buffer.to_string()),
            ("globalOutstandingLimit", config.outstanding_requests_max.to_string()),
            ("preAllocSize", (config.segment_size_bytes / 1024).to_string()),
            ("ringkeeper.shards", self.shards.to_string()),
        ]);
        pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }

    /// The ensemble in the form of ZooKeeper's dynamic configuration.
    fn membership(&self) -> Option<String> {
        Some(crate::config::describe_all(&self.config.servers)).filter(|text| !text.is_empty())
    }
}

/// A port as `conf` shows it.
fn port(port: Option<u16>) -> String {
    port.map_or_else(|| "-1".to_owned(), |port| port.to_string())
}

#[expect(clippy::cast_precision_loss, reason = "counters far below 2^53, for people and monitoring")]
fn integrity_metrics(core: &CoreReport, now_ms: u64) -> [(&'static str, f64); 6] {
    let found = core.findings;
    let ago = found.last_pass_ms.map_or(-1.0, |ended_ms| (now_ms.saturating_sub(ended_ms) / 1000) as f64);
    [
        ("scrubbed_bytes", found.scrubbed_bytes as f64),
        ("scrub_passes", found.passes as f64),
        ("scrub_last_pass_seconds_ago", ago),
        ("digest_mismatches", core.digest_mismatches as f64),
        ("damage_found", found.damage as f64),
        ("repairs_pending", (found.pending + u64::from(core.lacks_log)) as f64),
    ]
}

/// Times are milliseconds, as in ZooKeeper; what begins with `last` is ours.
#[expect(clippy::cast_precision_loss, reason = "counters far below 2^53, for people and monitoring")]
fn snapshot_metrics(taken: &Taken) -> [(&'static str, f64); 7] {
    let Taken { count, sum_ms, min_ms, max_ms, bytes, zxid } = *taken;
    let average_ms = if count == 0 { 0.0 } else { sum_ms as f64 / count as f64 };
    [
        ("avg_snapshottime", average_ms),
        ("min_snapshottime", min_ms as f64),
        ("max_snapshottime", max_ms as f64),
        ("cnt_snapshottime", count as f64),
        ("sum_snapshottime", sum_ms as f64),
        ("last_snapshot_bytes", bytes as f64),
        ("last_snapshot_zxid", zxid.0 as f64),
    ]
}

impl Proposals {
    /// ZooKeeper shows -1 before the first.
    fn shown(self) -> ProposalSizes {
        self.sizes.unwrap_or(ProposalSizes { last: -1, min: -1, max: -1 })
    }
}

fn sessions(state: &State) -> Vec<(SessionId, u32)> {
    state.sessions().map(|(id, session)| (id, session.timeout_ms)).collect()
}

fn ephemerals(state: &State) -> Vec<(SessionId, Vec<String>)> {
    let owned =
        state.sessions().map(|(id, _)| (id, state.ephemerals(id).map(str::to_owned).collect::<Vec<_>>()));
    owned.filter(|(_, paths)| !paths.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringkeeper_wire::Epoch;

    #[test]
    fn only_a_leaders_batches_are_proposals() {
        let counters = CoreCounters::default();
        counters.appended(10);
        assert_eq!(counters.proposals().count, 0);
        counters.changed(7, Status::Leading { epoch: Epoch(1) });
        [30, 10, 20].into_iter().for_each(|bytes| counters.appended(bytes));
        assert_eq!(counters.proposals().sizes, Some(ProposalSizes { last: 20, min: 10, max: 30 }));
        counters.reset_proposals();
        assert_eq!(counters.proposals().shown(), ProposalSizes { last: -1, min: -1, max: -1 });
        assert_eq!((counters.proposals().count, counters.status_since_ms()), (3, 7));
    }
}
