//! The file `meta`: the server's identity, and the epochs it has promised.
//!
//! It is replaced as a whole (written under another name, synced, renamed, folder synced), so that a crash
//! leaves the old or the new one. Epochs are durable before they are sent (Zab, discovery and synchronization
//! phases). Its two blocks have the same contents, so that one of them may be damaged.
//!
//! ```text
//!  0        4        8   10   12        16      20       21      24        32       40     48       56    64
//!  +--------+--------+---+----+---------+-------+--------+-------+---------+--------+------+--------+------+
//!  | "RKME" | CRC32C |ver|len | accepted|current|initial-| lease,| cluster | server | salt | end    | fork |
//!  |        |        |   |184 | epoch   |epoch  |ized, 0 | ms    |         | id     |      | before |      |
//!  |        |        |   |    |         |       |        |       |         |        |      | damage |      |
//!  +--------+--------+---+----+---------+-------+--------+-------+---------+--------+------+--------+------+
//!                    |<-- covered by the CRC32C, up to the end
//!  64                96                128         136       144           148      152               184
//!  +-----------------+-----------------+-----------+---------+-------------+--------+-----------------+
//!  | voters, one bit | members, one    | committed | leader  | application | former | members of the  |
//!  | each            | bit each        | zxid      | + 1     |             | epoch  | former epoch    |
//!  +-----------------+-----------------+-----------+---------+-------------+--------+-----------------+
//! ```
//!
//! Version 1 ended at 64, with zeros in the place of the fork, version 2 at 96, version 3 at 144. What they
//! lack is read as not known; builds that knew no leases wrote zeros there. Version 5 is written while the
//! voters stand in groups, and only then, so that a build that knows no groups refuses the folder instead of
//! taking majorities for quorums. Version 6 is written while the log may name servers with several addresses,
//! which builds before it cannot read. Both go on with:
//!
//! ```text
//!  184      192
//!  +--------+
//!  | groups |
//!  +--------+
//! ```

use std::io;
use std::rc::Rc;

use ringkeeper_wire::{Epoch, ServerId, Zxid};
use thiserror::Error;

use crate::error::FatalError;
use crate::frame::layout::{put, u16_at, u32_at, u64_at};
use crate::mutation::planted;
use crate::segment::{IDENTITY_LEN, Identity, sequence_of};
use crate::storage::{BLOCK_LEN, Storage, StorageFile, WriteMode};

pub(crate) const NAME: &str = "meta";
const NEW_NAME: &str = "meta.new";
/// The folder that Apache ZooKeeper makes in its `dataDir` and `dataLogDir`.
const ZOOKEEPER_NAME: &str = "version-2";

const VERSION: u16 = 4;
const GROUPED_VERSION: u16 = 5;
const SEVERAL_ADDRESSES_VERSION: u16 = 6;
const LEN_OF_VERSION_1: usize = 64;
const LEN_OF_VERSION_2: usize = 96;
const LEN_OF_VERSION_3: usize = 144;
const MAGIC: [u8; 4] = *b"RKME";
const MAGIC_AT: usize = 0;
const CHECKSUM_AT: usize = MAGIC_AT + 4;
const VERSION_AT: usize = CHECKSUM_AT + 4;
const LEN_AT: usize = VERSION_AT + 2;
const ACCEPTED_AT: usize = LEN_AT + 2;
const CURRENT_AT: usize = ACCEPTED_AT + 4;
const INITIALIZED_AT: usize = CURRENT_AT + 4;
const LEASE_AT: usize = INITIALIZED_AT + 2;
const CLUSTER_AT: usize = LEASE_AT + 2;
const SERVER_AT: usize = CLUSTER_AT + 8;
const SALT_AT: usize = SERVER_AT + 8;
const END_BEFORE_DAMAGE_AT: usize = SALT_AT + 8;
const FORK_AT: usize = END_BEFORE_DAMAGE_AT + 8;
const VOTERS_AT: usize = FORK_AT + 8;
const MEMBERS_AT: usize = VOTERS_AT + VOTERS_LEN;
const COMMITTED_AT: usize = MEMBERS_AT + VOTERS_LEN;
const LEADER_AT: usize = COMMITTED_AT + 8;
const APPLICATION_AT: usize = LEADER_AT + 8;
const FORMER_AT: usize = APPLICATION_AT + 4;
const FORMER_MEMBERS_AT: usize = FORMER_AT + 4;
const GROUPS_AT: usize = FORMER_MEMBERS_AT + VOTERS_LEN;
const LEN_OF_VERSION_4: usize = GROUPS_AT;
const LEN: usize = GROUPS_AT + 8;
const LEN_FIELD_OF_VERSION_4: u16 = 184;
const LEN_FIELD: u16 = 192;
const COVERED_AT: usize = VERSION_AT;

/// Voters are bits, the one of server 0 first, in words of 64.
const VOTERS_LEN: usize = 4 * 8;

/// Number of copies of the contents, each in a block of its own.
const COPIES: usize = 2;

const _: () = assert!(LEN == LEN_FIELD as usize);
const _: () = assert!(LEN_OF_VERSION_4 == LEN_FIELD_OF_VERSION_4 as usize);
const _: () = assert!(IDENTITY_NAME.len() + 8 <= IDENTITY_LEN);

/// What the identity of a log begins with, before the server's number.
const IDENTITY_NAME: &[u8; 16] = b"ringkeeper\0\0\0\0\0\0";

/// What a server has promised its ensemble (Zab, discovery and synchronization phases).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PersistedEpochs {
    /// The ensemble in which the history began; 0 before its first election. It stays once there is a
    /// history.
    pub cluster: u64,
    /// Drawn when an operator took the folder out of its ensemble; 0 before. Members of different forks of
    /// one history refuse each other.
    pub fork: u64,
    /// The voters of the ensemble that the folder belongs to, one bit each; a server alone is its own only
    /// voter. Zero while unknown: in a folder older than this field.
    pub voters: [u64; 4],
    /// A number that tells their groups and weights apart; 0 if majorities of them decide.
    pub groups: u64,
    /// Whether the log may name servers with several addresses.
    pub several_addresses: bool,
    /// The last epoch promised to a leader; leaders of earlier epochs are refused.
    pub accepted_epoch: Epoch,
    /// The last epoch whose leader's history was taken over. At most `accepted_epoch`.
    pub current_epoch: Epoch,
    /// Who led it; `None` while not known.
    pub leader: Option<ServerId>,
    /// The voters that are known to have taken it over, one bit each.
    pub members: [u64; 4],
    /// The epoch before it of which others are known to have taken it over.
    pub former_epoch: Epoch,
    /// Those voters, one bit each.
    pub former_members: [u64; 4],
    /// Everything up to here was committed when this was written, and is in the log or a snapshot.
    pub committed: Zxid,
    /// Whether this folder has everything that the server ever promised.
    pub initialized: bool,
    /// Where the log ended before a damaged part was cut off, see [`crate::salvage`]; 0 if the log is whole.
    pub end_before_damage: Zxid,
    /// The longest lease that the server may have granted a leader; 0 for none.
    pub lease_ms: u16,
}

/// The contents of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Whose folder it is: `myid`.
    pub server_id: ServerId,
    /// Secret of this folder, see [`Identity::salt`].
    pub salt: u64,
    /// A number for the application whose data the folder has; 0 while not known.
    pub application: u32,
    /// What the server has promised.
    pub promises: PersistedEpochs,
}

impl Meta {
    /// The identity of the folder's log.
    #[must_use]
    pub fn identity(&self) -> Identity {
        let mut owner = [0; IDENTITY_LEN];
        put(&mut owner, 0, *IDENTITY_NAME);
        put(&mut owner, IDENTITY_NAME.len(), self.server_id.0.to_le_bytes());
        Identity { owner, salt: self.salt }
    }

    fn encode(&self) -> [u8; LEN] {
        let mut out = [0; LEN];
        put(&mut out, MAGIC_AT, MAGIC);
        let (version, len_field) = match (self.promises.several_addresses, self.promises.groups) {
            (true, _) => (SEVERAL_ADDRESSES_VERSION, LEN_FIELD),
            (false, 0) => (VERSION, LEN_FIELD_OF_VERSION_4),
            (false, _) => (GROUPED_VERSION, LEN_FIELD),
        };
        put(&mut out, VERSION_AT, version.to_le_bytes());
        put(&mut out, LEN_AT, len_field.to_le_bytes());
        put(&mut out, ACCEPTED_AT, self.promises.accepted_epoch.0.to_le_bytes());
        put(&mut out, CURRENT_AT, self.promises.current_epoch.0.to_le_bytes());
        put(&mut out, INITIALIZED_AT, [u8::from(self.promises.initialized)]);
        put(&mut out, LEASE_AT, self.promises.lease_ms.to_le_bytes());
        put(&mut out, CLUSTER_AT, self.promises.cluster.to_le_bytes());
        put(&mut out, SERVER_AT, self.server_id.0.to_le_bytes());
        put(&mut out, SALT_AT, self.salt.to_le_bytes());
        put(&mut out, END_BEFORE_DAMAGE_AT, self.promises.end_before_damage.0.to_le_bytes());
        put(&mut out, FORK_AT, self.promises.fork.to_le_bytes());
        let sets = self.promises.voters.iter().chain(&self.promises.members);
        for (word, at) in sets.zip((VOTERS_AT..COMMITTED_AT).step_by(8)) {
            put(&mut out, at, word.to_le_bytes());
        }
        put(&mut out, COMMITTED_AT, self.promises.committed.0.to_le_bytes());
        let leader = self.promises.leader.map_or(0, |leader| leader.0.saturating_add(1));
        put(&mut out, LEADER_AT, leader.to_le_bytes());
        put(&mut out, APPLICATION_AT, self.application.to_le_bytes());
        put(&mut out, FORMER_AT, self.promises.former_epoch.0.to_le_bytes());
        for (word, at) in self.promises.former_members.iter().zip((FORMER_MEMBERS_AT..GROUPS_AT).step_by(8)) {
            put(&mut out, at, word.to_le_bytes());
        }
        put(&mut out, GROUPS_AT, self.promises.groups.to_le_bytes());
        let checksum = crc32c::crc32c(&out[COVERED_AT..len_field.into()]);
        put(&mut out, CHECKSUM_AT, checksum.to_le_bytes());
        out
    }

    fn decode(bytes: &[u8]) -> Result<Self, MetaError> {
        if bytes.len() < LEN {
            return Err(MetaError::Corrupt);
        }
        let len = usize::from(u16_at(bytes, LEN_AT));
        let covered = bytes.get(COVERED_AT..len).ok_or(MetaError::Corrupt)?;
        let sound = bytes[..MAGIC.len()] == MAGIC && u32_at(bytes, CHECKSUM_AT) == crc32c::crc32c(covered);
        if !sound {
            return Err(MetaError::Corrupt);
        }
        // In a shorter version, the bytes behind its end are zeros.
        match (u16_at(bytes, VERSION_AT), len) {
            (1, LEN_OF_VERSION_1) | (2, LEN_OF_VERSION_2) | (3, LEN_OF_VERSION_3) => {}
            (VERSION, LEN_OF_VERSION_4) | (GROUPED_VERSION | SEVERAL_ADDRESSES_VERSION, LEN) => {}
            (version, _) => return Err(MetaError::Version(version)),
        }
        Ok(Self {
            server_id: ServerId(u64_at(bytes, SERVER_AT)),
            salt: u64_at(bytes, SALT_AT),
            application: u32_at(bytes, APPLICATION_AT),
            promises: PersistedEpochs {
                cluster: u64_at(bytes, CLUSTER_AT),
                accepted_epoch: Epoch(u32_at(bytes, ACCEPTED_AT)),
                current_epoch: Epoch(u32_at(bytes, CURRENT_AT)),
                initialized: bytes[INITIALIZED_AT] != 0,
                lease_ms: u16_at(bytes, LEASE_AT),
                end_before_damage: Zxid(u64_at(bytes, END_BEFORE_DAMAGE_AT)),
                fork: u64_at(bytes, FORK_AT),
                groups: u64_at(bytes, GROUPS_AT),
                several_addresses: u16_at(bytes, VERSION_AT) == SEVERAL_ADDRESSES_VERSION,
                voters: std::array::from_fn(|word| u64_at(bytes, VOTERS_AT + 8 * word)),
                members: std::array::from_fn(|word| u64_at(bytes, MEMBERS_AT + 8 * word)),
                former_epoch: Epoch(u32_at(bytes, FORMER_AT)),
                former_members: std::array::from_fn(|word| u64_at(bytes, FORMER_MEMBERS_AT + 8 * word)),
                committed: Zxid(u64_at(bytes, COMMITTED_AT)),
                leader: u64_at(bytes, LEADER_AT).checked_sub(1).map(ServerId),
            },
        })
    }
}

/// Why a folder cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MetaError {
    /// Apache ZooKeeper keeps its data here.
    #[error("the folder holds data of Apache ZooKeeper ({ZOOKEEPER_NAME})")]
    ZooKeeper,
    /// Apache ZooKeeper was started on a folder of ours.
    #[error("beside this server's data there is data of Apache ZooKeeper ({ZOOKEEPER_NAME})")]
    ZooKeeperBeside,
    /// Another server's.
    #[error("the folder belongs to server {0}")]
    Foreign(ServerId),
    /// Written by another version of the format.
    #[error("meta has format version {0}, this build reads up to {SEVERAL_ADDRESSES_VERSION}")]
    Version(u16),
    /// The file is damaged.
    #[error("meta is damaged: the epochs this server has promised are lost")]
    Corrupt,
    /// There is a log and no meta file.
    #[error("meta is missing beside {log}: the epochs this server has promised are lost")]
    Missing {
        /// A file of the log.
        log: String,
    },
    /// The disk failed, or is full.
    #[error("{action} meta: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// The system's answer.
        source: io::Error,
    },
}

/// The meta file of a server's folder.
pub struct MetaStore<S> {
    storage: S,
    meta: Meta,
    failed: Option<FatalError>,
}

impl<S: Storage> MetaStore<S> {
    /// Opens the folder's meta file. A folder with neither this file nor a log is initialized for the server,
    /// with `salt`.
    ///
    /// # Errors
    /// When the folder belongs to another server or program, the file is damaged or missing, or the disk
    /// fails.
    pub async fn open(storage: S, server_id: ServerId, salt: u64) -> Result<Self, MetaError> {
        let failed = |action| move |source| MetaError::Io { action, source };
        let names = storage.list().await.map_err(failed("looking for"))?;
        let has = |wanted: &str| names.iter().any(|name| name == wanted);
        if has(ZOOKEEPER_NAME) {
            return Err(if has(NAME) { MetaError::ZooKeeperBeside } else { MetaError::ZooKeeper });
        }
        if has(NEW_NAME) {
            storage.remove(NEW_NAME).await.map_err(failed("removing an unfinished"))?;
        }
        if has(NAME) {
            let Found { meta, whole } = read_copies(&storage, NAME).await?;
            if meta.server_id != server_id {
                return Err(MetaError::Foreign(meta.server_id));
            }
            // The file may have been renamed by a process that ended before the renaming was durable.
            storage.sync_dir().await.map_err(failed("syncing"))?;
            if !whole {
                tracing::warn!(
                    code = "RK0512",
                    "one of the two copies in meta is damaged, it is written anew from the other"
                );
                write(&storage, &meta).await.map_err(failed("writing"))?;
            }
            return Ok(Self { storage, meta, failed: None });
        }
        if let Some(log) = names.iter().find(|name| sequence_of(name).is_some()) {
            return Err(MetaError::Missing { log: log.clone() });
        }
        let meta = Meta { server_id, salt, application: 0, promises: PersistedEpochs::default() };
        write(&storage, &meta).await.map_err(failed("writing"))?;
        Ok(Self { storage, meta, failed: None })
    }

    /// The contents of a folder's meta file; `None` if there is none. Nothing is changed.
    ///
    /// # Errors
    /// When the file is damaged, or the disk fails.
    pub async fn peek(storage: &S) -> Result<Option<Meta>, MetaError> {
        let names = storage.list().await;
        let names = names.map_err(|source| MetaError::Io { action: "looking for", source })?;
        if names.iter().any(|name| name == NAME) { read(storage, NAME).await.map(Some) } else { Ok(None) }
    }

    /// The durable contents.
    #[must_use]
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// Records whose folder it is: the application, and the voters of its ensemble with their groups.
    ///
    /// # Errors
    /// Like [`Self::promise`].
    pub async fn record_owner(
        &mut self,
        application: u32,
        voters: [u64; 4],
        groups: u64,
    ) -> Result<(), FatalError> {
        let promises = PersistedEpochs { voters, groups, ..self.meta.promises };
        self.save(Meta { application, promises, ..self.meta }).await
    }

    /// Makes promises durable. The adoption of an epoch is one of them, so its history has to be durable
    /// before.
    ///
    /// # Errors
    /// When the disk fails; then all later calls fail, too. When it is full ([`FatalError::is_no_space`]),
    /// the earlier promises are still in force, and the call may be repeated.
    ///
    /// # Panics
    /// When a promise would be taken back.
    pub async fn promise(&mut self, promises: PersistedEpochs) -> Result<(), FatalError> {
        let kept = &self.meta.promises;
        assert!(promises.accepted_epoch >= kept.accepted_epoch, "{promises:?} after {kept:?}");
        // A server without data that joins another ensemble has adopted no epoch of that ensemble.
        let same = promises.cluster == kept.cluster && promises.fork == kept.fork;
        assert!(!same || promises.current_epoch >= kept.current_epoch, "{promises:?} after {kept:?}");
        assert!(promises.current_epoch <= promises.accepted_epoch, "{promises:?}");
        self.save(Meta { promises, ..self.meta }).await
    }

    async fn save(&mut self, meta: Meta) -> Result<(), FatalError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if meta == self.meta {
            return Ok(());
        }
        if planted!(StaleEpochs) {
            self.meta = meta;
            return Ok(());
        }
        // If this future is dropped, the file is half written, which counts as a failure.
        self.failed = Some(FatalError::Abandoned);
        let failed = |error| FatalError::io("writing", NAME.into(), 0, error);
        if let Err(error) = prepare(&self.storage, &meta).await.map_err(failed) {
            if error.is_no_space() && self.withdraw().await {
                self.failed = None;
                return Err(error);
            }
            // The contents of the folder are unknown now, so this error is final even if there is room later.
            tracing::error!(
                code = "RK0413",
                %error,
                "the promises could be neither written nor left as they were"
            );
            return Err(FatalError::Abandoned);
        }
        if let Err(error) = put_in_place(&self.storage).await.map_err(failed) {
            tracing::error!(
                code = "RK0413",
                %error,
                "the promises were written, and could not be put in their place"
            );
            return Err(FatalError::Abandoned);
        }
        self.failed = None;
        self.meta = meta;
        Ok(())
    }

    /// Removes a file that found no room; whether it is gone.
    async fn withdraw(&self) -> bool {
        let removed = self.storage.remove(NEW_NAME).await;
        removed.is_ok() || removed.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    }
}

/// The contents of a meta file.
struct Found {
    meta: Meta,
    /// Whether both blocks are sound.
    whole: bool,
}

/// Reads the meta file `name`.
pub(crate) async fn read<S: Storage>(storage: &S, name: &str) -> Result<Meta, MetaError> {
    read_copies(storage, name).await.map(|found| found.meta)
}

async fn read_copies<S: Storage>(storage: &S, name: &str) -> Result<Found, MetaError> {
    let failed = |source| MetaError::Io { action: "reading", source };
    let file = storage.open(name, WriteMode::Synced).await.map_err(failed)?;
    let blocks = file.read_at(0, COPIES * BLOCK_LEN).await.map_err(failed)?;
    let mut copies = blocks.chunks(BLOCK_LEN).map(Meta::decode);
    let first = copies.next().unwrap_or(Err(MetaError::Corrupt));
    let second = copies.next().unwrap_or(Err(MetaError::Corrupt));
    let whole = first.is_ok() && second.is_ok();
    let meta = if matches!(first, Err(MetaError::Corrupt)) { second } else { first };
    drop(blocks);
    S::File::close(Rc::new(file)).await.map_err(failed)?;
    Ok(Found { meta: meta?, whole })
}

async fn write<S: Storage>(storage: &S, meta: &Meta) -> io::Result<()> {
    prepare(storage, meta).await?;
    put_in_place(storage).await
}

/// Writes the contents to a file of another name, durably.
async fn prepare<S: Storage>(storage: &S, meta: &Meta) -> io::Result<()> {
    let file = storage.create(NEW_NAME, WriteMode::Synced).await?;
    let mut blocks = file.buffer(COPIES * BLOCK_LEN);
    blocks.as_mut().fill(0);
    for copy in 0..COPIES {
        put(blocks.as_mut(), copy * BLOCK_LEN, meta.encode());
    }
    if file.write_at(blocks, 0).await? != COPIES * BLOCK_LEN {
        return Err(io::ErrorKind::StorageFull.into());
    }
    file.datasync().await?;
    S::File::close(Rc::new(file)).await
}

async fn put_in_place<S: Storage>(storage: &S) -> io::Result<()> {
    storage.rename(NEW_NAME, NAME).await?;
    storage.sync_dir().await
}

#[cfg(test)]
mod tests;
