//! The snapshots of a server's folder.

use std::io;

use ringkeeper_wire::Zxid;

use super::error::SnapshotError;
use super::layout::Head;
use super::reader::SnapshotReader;
use super::writer::SnapshotWriter;
use super::{NEW_NAME, file_name, install_name, zxid_behind, zxid_of, zxid_of_part};
use crate::frame::LogPosition;
use crate::storage::Storage;

/// The snapshots in a folder.
#[derive(Clone)]
pub struct Snapshots<S> {
    storage: S,
}

impl<S: Storage> Snapshots<S> {
    /// The snapshots in `storage`, which may hold other files as well.
    #[must_use]
    pub const fn new(storage: S) -> Self {
        Self { storage }
    }

    pub(crate) const fn storage(&self) -> &S {
        &self.storage
    }

    /// Zxids of all snapshots, newest first. Whether they are sound is found by reading them.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub async fn list(&self) -> Result<Vec<Zxid>, SnapshotError> {
        let mut zxids: Vec<_> = self.names().await?.iter().filter_map(|name| zxid_of(name)).collect();
        zxids.sort_unstable_by(|a, b| b.cmp(a));
        Ok(zxids)
    }

    /// Length of the newest one in bytes; 0 if there is none.
    ///
    /// # Errors
    /// When the folder or the file cannot be read.
    pub async fn newest_len(&self) -> Result<u64, SnapshotError> {
        match self.list().await?.first() {
            Some(newest) => Ok(self.send(*newest).await?.len()),
            None => Ok(0),
        }
    }

    pub(super) async fn names(&self) -> Result<Vec<String>, SnapshotError> {
        self.storage.list().await.map_err(SnapshotError::io("listing", "the snapshots' folder"))
    }

    /// After a start, when the log is open: finishes an installation that a crash has interrupted, or takes
    /// it back, and removes what was begun and not finished, except for a part of a newer snapshot that was
    /// being received. `log_base` is where the log begins.
    ///
    /// # Errors
    /// When the disk fails.
    pub async fn settle(&self, log_base: LogPosition) -> Result<(), SnapshotError> {
        for name in self.names().await? {
            if let Some(zxid) = zxid_behind("install.", &name) {
                if zxid == log_base.zxid && self.has_chain(&name, log_base).await? {
                    self.install(zxid).await?;
                } else {
                    self.remove_file(&name).await?;
                }
            } else if name == NEW_NAME {
                self.remove_file(&name).await?;
            }
        }
        self.remove_parts(log_base.zxid).await?;
        self.sync().await
    }

    /// Removes what came of transfers of snapshots up to `zxid`: those are not needed any more.
    async fn remove_parts(&self, zxid: Zxid) -> Result<(), SnapshotError> {
        for name in self.names().await? {
            if zxid_of_part(&name).is_some_and(|part| part <= zxid) {
                self.remove_file(&name).await?;
            }
        }
        Ok(())
    }

    /// Whether the snapshot ends with the frame that the log's first frame continues.
    async fn has_chain(&self, name: &str, log_base: LogPosition) -> Result<bool, SnapshotError> {
        match SnapshotReader::open(&self.storage, name).await {
            Ok(reader) => Ok(reader.head().chain == log_base.checksum),
            // The log depends on this snapshot even if it is damaged: it gets its name, and its reader
            // reports the damage.
            Err(error) if error.is_damage() => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Begins a snapshot.
    ///
    /// # Errors
    /// When the disk is full or fails.
    pub async fn begin(&self, head: Head) -> Result<SnapshotWriter<S>, SnapshotError> {
        SnapshotWriter::begin(self.storage.clone(), head, false).await
    }

    /// Begins a snapshot whose blocks are compressed where that makes them shorter.
    ///
    /// # Errors
    /// When the disk is full or fails.
    pub async fn begin_compressed(&self, head: Head) -> Result<SnapshotWriter<S>, SnapshotError> {
        SnapshotWriter::begin(self.storage.clone(), head, true).await
    }

    /// Opens a snapshot.
    ///
    /// # Errors
    /// When there is none at `zxid`, its header, index or footer is damaged, or the disk fails.
    pub async fn open(&self, zxid: Zxid) -> Result<SnapshotReader<S>, SnapshotError> {
        SnapshotReader::open(&self.storage, &file_name(zxid)).await
    }

    /// The log was reset to the received snapshot: gives it its name, and removes the older ones, which no
    /// log continues any more.
    ///
    /// # Errors
    /// When the disk fails.
    pub async fn install(&self, zxid: Zxid) -> Result<(), SnapshotError> {
        let name = file_name(zxid);
        let renamed = self.storage.rename(&install_name(zxid), &name).await;
        renamed.map_err(SnapshotError::io("renaming", &name))?;
        self.sync().await?;
        for other in self.list().await?.into_iter().filter(|other| *other != zxid) {
            self.remove_file(&file_name(other)).await?;
        }
        self.sync().await
    }

    /// The log will not be reset to the received snapshot: removes it.
    ///
    /// # Errors
    /// When the disk fails.
    pub async fn withdraw(&self, zxid: Zxid) -> Result<(), SnapshotError> {
        self.remove_file(&install_name(zxid)).await?;
        self.sync().await
    }

    /// Removes all snapshots but the newest `count`, oldest first. Returns the oldest one left: the log must
    /// reach back to it, so that each kept snapshot can replace a damaged newer one. `None` while there are
    /// fewer than `count`; then the log must keep its beginning.
    ///
    /// # Errors
    /// When the disk fails.
    pub async fn retain(&self, count: usize) -> Result<Option<Zxid>, SnapshotError> {
        let zxids = self.list().await?;
        let Some((kept, surplus)) = zxids.split_at_checked(count.max(1)) else { return Ok(None) };
        for zxid in surplus.iter().rev() {
            self.remove_file(&file_name(*zxid)).await?;
        }
        if !surplus.is_empty() {
            self.sync().await?;
        }
        if let Some(newest) = kept.first() {
            self.remove_parts(*newest).await?;
        }
        Ok(kept.last().copied())
    }

    /// Removes a snapshot that cannot be used.
    ///
    /// # Errors
    /// When the disk fails.
    pub async fn remove(&self, zxid: Zxid) -> Result<(), SnapshotError> {
        self.remove_file(&file_name(zxid)).await?;
        self.sync().await
    }

    /// Removes a file, if it is there: whoever takes a snapshot and the scrub may remove the same one.
    pub(super) async fn remove_file(&self, name: &str) -> Result<(), SnapshotError> {
        match self.storage.remove(name).await {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(SnapshotError::io("removing", name)(error))
            }
            _ => Ok(()),
        }
    }

    pub(super) async fn sync(&self) -> Result<(), SnapshotError> {
        let synced = self.storage.sync_dir().await;
        synced.map_err(SnapshotError::sync("the snapshots' folder"))
    }
}
