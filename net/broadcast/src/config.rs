//! The configuration: the members, and where this one keeps its data.

use std::path::PathBuf;
use std::time::Duration;

use ringkeeper_engine::zab::{self, ServerSet};
use ringkeeper_host::scrub::Pace;
use ringkeeper_host::snapshots::Policy;
use ringkeeper_wire::ServerId;

use ringkeeper_host::env::PeerAddress;
use ringkeeper_tls::PeerSettings as TlsSettings;

/// Ids that a member can have.
const ID_MAX: u64 = 254;

/// Upper bound of the setting for the longest proposal: far below the longest frame of a link.
const PROPOSAL_BYTES_LIMIT: u64 = 256 << 20;

/// Snapshots that are kept: the newest, and one to fall back on.
const SNAPSHOTS_KEPT: usize = 2;

/// Rate of writing a snapshot, and of sending one to a learner, in bytes per second.
const SNAPSHOT_BYTES_PER_SECOND: u64 = 64 << 20;

/// Length of the log, as a share of a long snapshot's length, before the next one is taken: bounds the bytes
/// written for snapshots by those of the log.
const SNAPSHOT_LOG_PERCENT: u64 = 50;

/// Lower bound of the setting for the scrub's rate.
const SCRUB_BYTES_PER_SECOND_MIN: u64 = 64 << 10;

/// A member of the ensemble.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) address: PeerAddress,
    /// Learns without a vote.
    pub(crate) observer: bool,
}

/// One server's configuration: where its data is, who it is, and who the others are.
///
/// ```
/// use ringkeeper_broadcast::Config;
///
/// let alone = Config::single("data");
/// let one_of_three = Config::ensemble(2, "data")
///     .member(1, "one.example:2888")
///     .member(2, "two.example:2888")
///     .member(3, "three.example:2888")
///     .secret("known to the members alone");
/// # let _ = (alone, one_of_three);
/// ```
#[derive(Clone, Debug)]
pub struct Config {
    pub(crate) id: u64,
    pub(crate) folder: PathBuf,
    /// As they were given, to be checked by [`Self::check`].
    members: Vec<(u64, String, bool)>,
    pub(crate) secret: Vec<u8>,
    pub(crate) tls: Option<TlsSettings>,
    pub(crate) listen_on_all: bool,
    pub(crate) peer_timeout: Duration,
    pub(crate) synchronization_limit: Duration,
    pub(crate) proposal_bytes_max: usize,
    pub(crate) outstanding_bytes_max: usize,
    pub(crate) snapshot_after_txns: u64,
    pub(crate) snapshot_after_bytes: u64,
    pub(crate) segment_size_bytes: u64,
    pub(crate) scrub: Pace,
}

/// Why a configuration cannot be used, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// An id out of range.
    #[error("{0} is no id of a member: choose one from 1 to {ID_MAX}")]
    Id(u64),
    /// An address that is none.
    #[error("member {id} has the address {address:?}: write it as host:port, with a port from 1 to 65535")]
    Address {
        /// The member.
        id: u64,
        /// What was given.
        address: String,
    },
    /// Two members of one id.
    #[error("member {0} is named twice: each member has an id of its own")]
    Twice(u64),
    /// Two members at one address.
    #[error("members {first} and {second} have the same address {address}: each needs a port of its own")]
    SameAddress {
        /// The one.
        first: u64,
        /// The other.
        second: u64,
        /// Their address.
        address: String,
    },
    /// An ensemble without this server.
    #[error("this server has id {id} and is none of the members ({members}): name it, or correct the id")]
    NotAMember {
        /// This server's id.
        id: u64,
        /// The members' ids.
        members: String,
    },
    /// Nobody to decide.
    #[error("all members are observers: nobody could vote, so make one a voter")]
    NoVoters,
    /// A setting outside of its range.
    #[error("{setting} is {value}: {remedy}")]
    Setting {
        /// The setting.
        setting: &'static str,
        /// Its value.
        value: u64,
        /// What to do.
        remedy: &'static str,
    },
}

impl Config {
    /// A server alone, with its data in `folder`. It needs no others, and decides by itself.
    #[must_use]
    pub fn single(folder: impl Into<PathBuf>) -> Self {
        Self::ensemble(1, folder)
    }

    /// The server `id` (1 to 254) of an ensemble, with its data in `folder`, which is made if it is missing.
    /// All members, this one included, are to be named with [`Self::member`] and [`Self::observer`], the same
    /// on all servers.
    #[must_use]
    pub fn ensemble(id: u64, folder: impl Into<PathBuf>) -> Self {
        Self {
            id,
            folder: folder.into(),
            members: Vec::new(),
            secret: Vec::new(),
            tls: None,
            listen_on_all: false,
            peer_timeout: Duration::from_millis(500),
            synchronization_limit: Duration::from_secs(20),
            proposal_bytes_max: 1 << 20,
            outstanding_bytes_max: 64 << 20,
            snapshot_after_txns: 100_000,
            snapshot_after_bytes: 64 << 20,
            segment_size_bytes: 16 << 20,
            scrub: Pace { bytes_per_second: 8 << 20, rest: Duration::from_secs(3600) },
        }
    }

    /// When snapshots are taken, and how.
    pub(crate) const fn snapshot_policy(&self) -> Policy {
        Policy {
            txns_max: self.snapshot_after_txns,
            bytes_max: self.snapshot_after_bytes,
            log_percent: SNAPSHOT_LOG_PERCENT,
            kept: SNAPSHOTS_KEPT,
            bytes_per_second: SNAPSHOT_BYTES_PER_SECOND,
            compressed: false,
        }
    }

    /// The voters; none for a server alone.
    pub(crate) fn voters(&self) -> ServerSet {
        self.members.iter().filter(|(_, _, observer)| !observer).map(|(id, ..)| ServerId(*id)).collect()
    }

    /// Whether there are voters besides this server, which have what it may have lost.
    pub(crate) fn has_voting_peers(&self) -> bool {
        self.members.iter().any(|(id, _, observer)| *id != self.id && !observer)
    }

    /// Names a voter: where it takes the connections of the others, as `host:port` (`[address]:port` for
    /// IPv6). A name is resolved at each dial.
    #[must_use]
    pub fn member(mut self, id: u64, address: impl Into<String>) -> Self {
        self.members.push((id, address.into(), false));
        self
    }

    /// Names a member that learns without a vote.
    #[must_use]
    pub fn observer(mut self, id: u64, address: impl Into<String>) -> Self {
        self.members.push((id, address.into(), true));
        self
    }

    /// The secret by which members authenticate each other. Without it and without [`Self::tls`], whoever
    /// reaches a member's port can pass for another member.
    #[must_use]
    pub fn secret(mut self, secret: impl Into<Vec<u8>>) -> Self {
        self.secret = secret.into();
        self
    }

    /// Members take each other for such by certificates, and everything between them is encrypted. Each one's
    /// certificate has to bear the host of its own address, as a name or an address. Files that change are
    /// read again, for new connections. All members need it, or none.
    #[must_use]
    pub fn tls(mut self, settings: TlsSettings) -> Self {
        self.tls = Some(settings);
        self
    }

    /// Listens on all addresses of the machine instead of those of this member's name.
    #[must_use]
    pub const fn listen_on_all(mut self) -> Self {
        self.listen_on_all = true;
        self
    }

    /// Silence after which another member is considered dead, 500 ms by default.
    #[must_use]
    pub const fn peer_timeout(mut self, timeout: Duration) -> Self {
        self.peer_timeout = timeout;
        self
    }

    /// For how long a new leader may try to bring a quorum up to date, 20 s by default.
    #[must_use]
    pub const fn synchronization_limit(mut self, limit: Duration) -> Self {
        self.synchronization_limit = limit;
        self
    }

    /// The longest proposal, in bytes: 1 MiB by default.
    #[must_use]
    pub const fn proposal_bytes_max(mut self, bytes: usize) -> Self {
        self.proposal_bytes_max = bytes;
        self
    }

    /// Bytes of proposals that may be outstanding at this server: 64 MiB by default.
    #[must_use]
    pub const fn outstanding_bytes_max(mut self, bytes: usize) -> Self {
        self.outstanding_bytes_max = bytes;
        self
    }

    /// A snapshot is due at random between half and all of this many proposals (100,000 by default) or bytes
    /// of the log (64 MiB by default), whichever comes first, so that the members do not write at the same
    /// time. After a snapshot of more than 16 MiB, the log first grows to half of its length. The log that
    /// the last two snapshots cover is removed.
    #[must_use]
    pub const fn snapshot_after(mut self, txns: u64, bytes: u64) -> Self {
        self.snapshot_after_txns = txns;
        self.snapshot_after_bytes = bytes;
        self
    }

    /// All files are read and verified again and again, so that damage is found and repaired while the state
    /// in memory is complete: with pauses of `rest` (an hour by default; without one, nothing is verified),
    /// reading at most so many bytes a second (8 MiB by default).
    #[must_use]
    pub const fn scrub(mut self, rest: Duration, bytes_per_second: u64) -> Self {
        self.scrub = Pace { bytes_per_second, rest };
        self
    }

    /// Length of a file of the log in bytes, the unit in which it is removed: a multiple of 4096 from 64 KiB
    /// to 1 GiB, 16 MiB by default.
    #[must_use]
    pub const fn segment_size_bytes(mut self, bytes: u64) -> Self {
        self.segment_size_bytes = bytes;
        self
    }

    /// Validates the settings without touching anything; returns the members.
    ///
    /// # Errors
    /// Something is wrong.
    pub(crate) fn check(&self) -> Result<Vec<Member>, ConfigError> {
        self.check_settings()?;
        let mut members: Vec<Member> = Vec::new();
        for (id, address, observer) in &self.members {
            check_id(*id)?;
            let wrong = || ConfigError::Address { id: *id, address: address.clone() };
            let address = parse(*id, address).ok_or_else(wrong)?;
            for other in &members {
                if other.address.id == address.id {
                    return Err(ConfigError::Twice(*id));
                }
                if (&other.address.host, other.address.port) == (&address.host, address.port) {
                    let (first, second) = (other.address.id.0, *id);
                    let address = format!("{}:{}", address.host, address.port);
                    return Err(ConfigError::SameAddress { first, second, address });
                }
            }
            members.push(Member { address, observer: *observer });
        }
        if members.is_empty() {
            return Ok(members);
        }
        if members.iter().all(|member| member.address.id.0 != self.id) {
            let members: Vec<_> = members.iter().map(|member| member.address.id.to_string()).collect();
            return Err(ConfigError::NotAMember { id: self.id, members: members.join(", ") });
        }
        if members.iter().all(|member| member.observer) {
            return Err(ConfigError::NoVoters);
        }
        Ok(members)
    }

    fn check_settings(&self) -> Result<(), ConfigError> {
        check_id(self.id)?;
        let refuse = |setting, value, remedy| Err(ConfigError::Setting { setting, value, remedy });
        let size = self.segment_size_bytes;
        if !size.is_multiple_of(4096) || !(64 << 10..=1 << 30).contains(&size) {
            return refuse(
                "segment_size_bytes",
                size,
                "a multiple of 4096 from 65536 to 1073741824 is needed",
            );
        }
        let longest = self.proposal_bytes_max as u64;
        if longest == 0 || longest > PROPOSAL_BYTES_LIMIT {
            return refuse("proposal_bytes_max", longest, "it has to be from 1 to 268435456");
        }
        let outstanding = self.outstanding_bytes_max as u64;
        if outstanding < longest {
            return refuse("outstanding_bytes_max", outstanding, "it has to be at least proposal_bytes_max");
        }
        if self.snapshot_after_txns == 0 || self.snapshot_after_bytes == 0 {
            return refuse("snapshot_after", 0, "both limits have to be above 0");
        }
        let scrubbed = self.scrub.bytes_per_second;
        if scrubbed < SCRUB_BYTES_PER_SECOND_MIN {
            return refuse("scrub (bytes a second)", scrubbed, "less than 65536 takes days for one pass");
        }
        let timeout = millis(self.peer_timeout);
        if timeout < 20 {
            return refuse("peer_timeout (ms)", timeout, "less than 20 ms takes every pause for a death");
        }
        Ok(())
    }

    /// The configuration of the broadcast; a server alone is an ensemble of one.
    pub(crate) fn zab(&self, members: &[Member]) -> zab::Config {
        let own = ServerId(self.id);
        let of = |observer| {
            let those = members.iter().filter(move |member| member.observer == observer);
            those.map(|member| member.address.id)
        };
        let voters = if members.is_empty() { [own].into_iter().collect() } else { of(false).collect() };
        let limit_ms = millis(self.synchronization_limit);
        let alike = zab::Config::new(own, voters, of(true).collect());
        zab::Config {
            init_limit_ms: limit_ms,
            sync_limit_ms: limit_ms / 2,
            ..alike.with_peer_timeout(millis(self.peer_timeout))
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

const fn check_id(id: u64) -> Result<(), ConfigError> {
    if id >= 1 && id <= ID_MAX { Ok(()) } else { Err(ConfigError::Id(id)) }
}

/// `host:port` or `[v6]:port`.
fn parse(id: u64, address: &str) -> Option<PeerAddress> {
    let (host, port) = address.trim().rsplit_once(':')?;
    let host = match host.strip_prefix('[') {
        Some(bracketed) => bracketed.strip_suffix(']')?,
        None if host.contains(':') => return None,
        None => host,
    };
    let port = port.parse().ok().filter(|&port| port != 0)?;
    (!host.is_empty()).then(|| PeerAddress { id: ServerId(id), host: host.to_owned(), port })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three() -> Config {
        Config::ensemble(2, "x").member(1, "a:1").member(2, "[::1]:2").observer(3, "c:3")
    }

    fn wrong(config: &Config) -> String {
        config.check().expect_err("wrong").to_string()
    }

    #[test]
    fn members_are_read_with_their_roles() {
        let members = three().check().expect("right");
        let hosts: Vec<_> = members.iter().map(|member| member.address.host.as_str()).collect();
        assert_eq!(hosts, ["a", "::1", "c"]);
        assert_eq!(members.iter().map(|member| member.observer).collect::<Vec<_>>(), [false, false, true]);
        assert_eq!(Config::single("x").check(), Ok(Vec::new()));
    }

    #[test]
    fn what_is_wrong_is_named_with_the_remedy() {
        assert!(wrong(&three().member(1, "d:1")).contains("named twice"));
        assert!(wrong(&three().member(4, "a:1")).contains("members 1 and 4 have the same address a:1"));
        assert!(wrong(&Config::ensemble(7, "x").member(1, "a:1")).contains("none of the members (1)"));
        assert!(wrong(&Config::ensemble(1, "x").observer(1, "a:1")).contains("make one a voter"));
        assert!(wrong(&Config::ensemble(255, "x")).contains("from 1 to 254"));
        for address in ["", "a", "a:", "a:0", ":1", "a:70000", "::1:2", "[::1:2"] {
            assert!(wrong(&three().member(9, address)).contains("host:port"), "{address:?}");
        }
    }

    #[test]
    fn settings_that_do_not_fit_together_are_refused() {
        assert!(wrong(&three().segment_size_bytes(100_000)).contains("multiple of 4096"));
        assert!(wrong(&three().proposal_bytes_max(1 << 30)).contains("proposal_bytes_max"));
        assert!(wrong(&three().outstanding_bytes_max(1)).contains("outstanding_bytes_max"));
        assert!(wrong(&three().snapshot_after(0, 1)).contains("above 0"));
        assert!(wrong(&three().scrub(Duration::ZERO, 1)).contains("65536"));
        assert!(wrong(&three().peer_timeout(Duration::from_millis(1))).contains("20 ms"));
    }
}
