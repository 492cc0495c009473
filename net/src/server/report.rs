//! Reports of four-letter words: assembled from the shards, the leader core and the system.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ringkeeper_engine::findings::Members;
use ringkeeper_engine::fourletter::{Mode, ServerReport, Word};
use ringkeeper_engine::level::Level;
use ringkeeper_engine::limits::Refusals;
use ringkeeper_engine::message::Serving;
use ringkeeper_engine::metrics::Samples;
use ringkeeper_engine::replica::ConnectionThrottleReport;
use ringkeeper_engine::state::State;
use ringkeeper_engine::zab::{Learners, Status, SyncedLearner};
use ringkeeper_wire::{ServerId, SessionId, Zxid};

use super::admission::Admission;
use super::audit::AuditLog;
use super::clock::Clock;
use super::core_counters::{CoreTimes, Counts};
use super::inspect::ShardAnswer;
use super::log_task::Appends;
use super::metrics;
use super::pauses::Pauses;
use super::pulse::Pulse;
use super::scrub::Findings;
use super::slow::Explained;
use super::snapshots::Taken;
use super::system::{self, Measured};
use super::tls::{OwnCertificates, TlsAcceptor};
use super::traces::Traces;
use crate::config::{self, Config, MemberAddress, PeerRole, ServerSpec};

/// The report of the leader core.
pub(crate) struct CoreReport {
    /// The committed state.
    pub(crate) state: Arc<State>,
    pub(crate) status: Status,
    /// Whether it serves reads although there is no leader.
    /// What it does for clients.
    pub(crate) serving: Serving,
    /// Of a follower: what the leader last said is committed.
    pub(crate) leaders_commit: Zxid,
    /// Why it does not serve, in one sentence; empty while it serves.
    pub(crate) missing: String,
    pub(crate) learners: Learners,
    /// Of a leader, the learners that have its history.
    pub(crate) synced: Vec<SyncedLearner>,
    /// What the log and, on a leader, those learners took lately.
    pub(crate) members: Members,
    pub(crate) digests: Vec<(Zxid, u64)>,
    pub(crate) peers_connected: usize,
    /// Appends to the log that took longer than `fsync.warningthresholdms`.
    pub(crate) slow_appends: u64,
    /// For how long the disk has been writing the current append.
    pub(crate) appending: Option<Duration>,
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
    /// Number of writes that rules refused, on the leader.
    pub(crate) forbidden: u64,
    /// The snapshots written so far.
    pub(crate) snapshots: Taken,
    pub(crate) counts: Counts,
    /// Its refusals as a leader.
    pub(crate) refusals: Refusals,
    /// Sessions that it ended as a leader since they were silent.
    pub(crate) expired_sessions: u64,
    /// Sessions that this server alone knows.
    pub(crate) local_sessions: usize,
    /// Times of its stages and of its log, if asked for.
    pub(crate) times: Option<(CoreTimes, Appends)>,
    /// The feature level that each member can do, if it is connected.
    pub(crate) members_levels: Vec<(ServerId, Option<Level>)>,
    /// What its throttle of sessions shows of itself.
    pub(crate) connection_throttle: ConnectionThrottleReport,
}

/// Constants of a running server, and the sources of shared figures.
pub(crate) struct Facts {
    pub(crate) config: Config,
    pub(crate) data_dir: PathBuf,
    pub(crate) log_dir: PathBuf,
    pub(crate) clock: Clock,
    /// How long recovery took, microseconds.
    pub(crate) recovery_us: u64,
    /// Transactions that recovery took from the log.
    pub(crate) replayed_txns: u64,
    pub(crate) shards: u16,
    pub(crate) admission: Arc<Admission>,
    pub(crate) tls: Option<Arc<TlsAcceptor>>,
    pub(crate) certificates: OwnCertificates,
    pub(crate) audit: Option<AuditLog>,
    pub(crate) pulse: Arc<Pulse>,
    /// The last slow requests.
    pub(crate) slow: Explained,
    /// The last times in which this server was off the CPU.
    pub(crate) pauses: Pauses,
    pub(crate) traces: Traces,
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
        let mode = self.mode(&core);
        shards.report.counters.limits.merge(&core.refusals.limits);
        shards.report.counters.forbidden += core.forbidden;
        shards.report.counters.connections_rejected += self.admission.refused();
        let metrics = match word {
            Word::Mntr => metrics::samples(self, now, &shards.report, &core, &measured),
            _ => Samples::default(),
        };
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
            proposal_sizes: (mode == Some(Mode::Leader)).then_some(core.counts.sizes),
            metrics,
            configuration: if word == Word::Conf { self.configuration(&measured, state) } else { Vec::new() },
            membership: self.membership(state),
            environment: if word == Word::Envi { system::environment() } else { Vec::new() },
            directory_sizes_bytes: measured.directory_sizes_bytes,
            sessions: if word == Word::Dump { sessions(state) } else { Vec::new() },
            local_sessions: None,
            ephemerals: if word == Word::Dump { ephemerals(state) } else { Vec::new() },
            data_watches: shards.data_watches,
            digests: core.digests,
            trace_mask: 0,
        }
    }

    fn mode(&self, core: &CoreReport) -> Option<Mode> {
        match core.status {
            Status::Looking => (core.serving == Serving::ReadOnly).then_some(Mode::ReadOnly),
            Status::Leading { .. } if self.config.servers.is_empty() => Some(Mode::Standalone),
            Status::Leading { .. } => Some(Mode::Leader),
            Status::Following { .. } if self.is_observer(&core.state) => Some(Mode::Observer),
            Status::Following { .. } => Some(Mode::Follower),
        }
    }

    /// The members of the ensemble, by the log or else by the configuration.
    pub(crate) fn members(&self, state: &State) -> config::Members {
        state.membership().map_or_else(|| self.config.members(), |logged| logged.members.clone())
    }

    fn is_observer(&self, state: &State) -> bool {
        let own = ServerId(self.config.server_id());
        self.members(state).get(own).is_some_and(|server| server.role == PeerRole::Observer)
    }

    /// ZooKeeper's keys in its order, then ours.
    fn configuration(&self, measured: &Measured, state: &State) -> Vec<(String, String)> {
        let config = &self.config;
        let (data_size, log_size) = measured.directory_sizes_bytes;
        let listed = client_port(config, &self.members(state));
        let mut pairs = vec![
            ("clientPort", port(Some(listed).filter(|&port| port != 0))),
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
                ("electionPort", ports(own, |it| it.election_port)),
                ("quorumPort", ports(own, |it| it.quorum_port)),
                ("peerType", if self.is_observer(state) { "1" } else { "0" }.to_owned()),
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
    fn membership(&self, state: &State) -> Option<String> {
        let version = state.membership().map_or(0, |logged| logged.quorums.since.0);
        Some(self.members(state).describe(version)).filter(|text| !text.is_empty())
    }
}

/// The port for clients in the clear, by the list of members where that names one; 0 without any.
pub(crate) fn client_port(config: &Config, members: &config::Members) -> u16 {
    let own = members.get(ServerId(config.server_id()));
    let listed = own.and_then(|own| own.client.as_ref()).map(|(_, port)| *port);
    listed.filter(|_| config.client_port != 0).unwrap_or(config.client_port)
}

/// The ports of all addresses of a server, as `conf` shows them.
fn ports(server: &ServerSpec, port: fn(&MemberAddress) -> u16) -> String {
    let ports: BTreeSet<u16> = server.addresses.iter().map(port).collect();
    ports.iter().map(u16::to_string).collect::<Vec<_>>().join("|")
}

/// A port as `conf` shows it.
fn port(port: Option<u16>) -> String {
    port.map_or_else(|| "-1".to_owned(), |port| port.to_string())
}

fn sessions(state: &State) -> Vec<(SessionId, u32)> {
    state.sessions().map(|(id, session)| (id, session.timeout_ms)).collect()
}

fn ephemerals(state: &State) -> Vec<(SessionId, Vec<String>)> {
    let owned =
        state.sessions().map(|(id, _)| (id, state.ephemerals(id).map(str::to_owned).collect::<Vec<_>>()));
    owned.filter(|(_, paths)| !paths.is_empty()).collect()
}
