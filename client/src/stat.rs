use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ringkeeper_wire::{SessionId, Zxid};

/// A znode's metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The transaction that created the znode. Unique in the ensemble and growing, so it serves as a
    /// fencing token: a later holder of a lock has a greater one.
    pub czxid: Zxid,
    /// The transaction that last set its data.
    pub mzxid: Zxid,
    /// The last creation or deletion of a child, or the znode's own creation.
    pub pzxid: Zxid,
    /// Creation time by the leader's clock, in milliseconds since the Unix epoch.
    pub ctime_ms: i64,
    /// Time of the last change of its data by the leader's clock, in milliseconds since the Unix epoch.
    pub mtime_ms: i64,
    /// Number of changes of its data; wraps.
    pub version: i32,
    /// Number of creations and deletions of children; wraps.
    pub cversion: i32,
    /// Number of changes of its ACL; wraps.
    pub aversion: i32,
    /// The session that an ephemeral znode belongs to.
    pub ephemeral_owner: Option<SessionId>,
    /// Length of its data, in bytes.
    pub data_length: u32,
    /// Number of its children.
    pub num_children: u32,
}

impl Stat {
    /// When the znode was created, by the leader's clock.
    #[must_use]
    pub fn ctime(&self) -> SystemTime {
        time(self.ctime_ms)
    }

    /// When its data was last set, by the leader's clock.
    #[must_use]
    pub fn mtime(&self) -> SystemTime {
        time(self.mtime_ms)
    }
}

/// Times before the epoch, which only a server with a broken clock sends, read as the epoch.
fn time(ms: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

impl From<ringkeeper_wire::Stat> for Stat {
    fn from(stat: ringkeeper_wire::Stat) -> Self {
        Self {
            czxid: Zxid::from_wire(stat.czxid),
            mzxid: Zxid::from_wire(stat.mzxid),
            pzxid: Zxid::from_wire(stat.pzxid),
            ctime_ms: stat.ctime,
            mtime_ms: stat.mtime,
            version: stat.version,
            cversion: stat.cversion,
            aversion: stat.aversion,
            ephemeral_owner: Some(SessionId(stat.ephemeral_owner)).filter(|id| *id != SessionId::default()),
            data_length: u32::try_from(stat.data_length).unwrap_or(0),
            num_children: u32::try_from(stat.num_children).unwrap_or(0),
        }
    }
}
