use std::fmt;

use ringkeeper_wire::{SessionId, Zxid};

use crate::metrics::{Samples, Sizes};
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
    /// Sizes of proposals; of the leader alone.
    pub proposal_sizes: Option<Sizes>,
    /// For `mntr`.
    pub metrics: Samples,
    /// For `conf`: keys and values in order.
    pub configuration: Vec<(String, String)>,
    /// For `conf`: the ensemble's configuration, if there is an ensemble.
    pub membership: Option<String>,
    /// For `envi`: keys and values in order.
    pub environment: Vec<(String, String)>,
    /// For `dirs`: bytes of the snapshots and of the log.
    pub directory_sizes_bytes: (u64, u64),
    /// For `dump`: the ensemble's sessions and their timeouts in milliseconds, by id.
    pub sessions: Vec<(SessionId, u32)>,
    /// For `dump`: the sessions that the server alone knows, with their timeouts in milliseconds, by id;
    /// `None` if it keeps none.
    pub local_sessions: Option<Vec<(SessionId, u32)>>,
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
