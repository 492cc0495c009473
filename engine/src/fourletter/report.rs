use std::fmt;

use ringkeeper_wire::{SessionId, Zxid};

use crate::shard::ShardReport;

/// The role of a server, as `srvr` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A server without an ensemble.
    Standalone,
    /// The server that orders writes.
    Leader,
    /// A voter that follows.
    Follower,
    /// A learner without a vote.
    Observer,
    /// A server without a quorum that serves reads.
    ReadOnly,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Standalone => "standalone",
            Self::Leader => "leader",
            Self::Follower => "follower",
            Self::Observer => "observer",
            Self::ReadOnly => "read-only",
        })
    }
}

/// Sizes of proposals in bytes; -1 before the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProposalSizes {
    /// Of the last one.
    pub last: i64,
    /// Of the smallest.
    pub min: i64,
    /// Of the largest.
    pub max: i64,
}

/// A metric that `mntr` shows in addition to the fields of the report.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// Its name, without the prefix `zk_`.
    pub name: String,
    /// Its value; whole numbers are shown without a fraction.
    pub value: f64,
}

/// What four-letter words report about a server. Fields that the asked word does not show may be empty.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerReport {
    /// Version, revision and build date, as `3.9.5-<revision>, built on <date>`.
    pub version: String,
    /// The server's role; `None` while it does not serve.
    pub mode: Option<Mode>,
    /// Why it does not serve, in one sentence; empty while it serves.
    pub missing: String,
    /// The reports of its shards, merged by [`ShardReport::merge`].
    pub shards: ShardReport,
    /// Milliseconds since the Unix epoch at time 0 of the shards' clock.
    pub clock_offset_ms: i64,
    /// Milliseconds since the start.
    pub uptime_ms: u64,
    /// The last transaction applied.
    pub last_zxid: Zxid,
    /// Number of znodes.
    pub znode_count: usize,
    /// Bytes of all paths and data.
    pub data_size_bytes: u64,
    /// Number of ephemeral znodes.
    pub ephemeral_count: usize,
    /// Number of sessions.
    pub session_count: usize,
    /// Open file descriptors of the process, and how many it may have.
    pub file_descriptors: (u64, u64),
    /// Of the leader alone.
    pub proposal_sizes: Option<ProposalSizes>,
    /// For `mntr`: more metrics, such as the log's and the quorum's.
    pub metrics: Vec<Metric>,
    /// For `conf`: keys and values in order.
    pub configuration: Vec<(String, String)>,
    /// For `conf`: the ensemble's configuration, if there is an ensemble.
    pub membership: Option<String>,
    /// For `envi`: keys and values in order.
    pub environment: Vec<(String, String)>,
    /// For `dirs`: bytes of the snapshots and of the log.
    pub directory_sizes_bytes: (u64, u64),
    /// For `dump`: sessions and their timeouts in milliseconds, by id.
    pub sessions: Vec<(SessionId, u32)>,
    /// For `dump`: sessions with their ephemeral znodes, by id.
    pub ephemerals: Vec<(SessionId, Vec<String>)>,
    /// For `wchc` and `wchp`: who watches what, see
    /// [`Shard::data_watches`](crate::shard::Shard::data_watches).
    pub data_watches: Vec<(SessionId, String)>,
    /// For `hash`: fingerprints of the tree.
    pub digests: Vec<(Zxid, u64)>,
    /// For `gtmk` and `stmk`: the trace mask.
    pub trace_mask: i64,
}
