//! Reserved disk space: a file that is removed when the disk is full.
//!
//! A full disk only delays appends. But elections need promises, which are in a file of their own
//! ([`crate::meta`]). Without any space, a server could not even take part in an election.

use std::io;
use std::rc::Rc;

use crate::error::FatalError;
use crate::storage::{BLOCK_LEN, Storage, StorageFile, WriteMode, is_no_space};

const NAME: &str = "reserve";

/// Size of the reserve: many times that of the promises.
const LEN: usize = 64 * BLOCK_LEN;

/// The reserve in a server's folder.
pub struct Reserve<S> {
    storage: S,
    kept: bool,
}

impl<S: Storage> Reserve<S> {
    /// Creates the reserve if there is room for it.
    ///
    /// # Errors
    /// When the disk fails.
    pub async fn open(storage: S) -> Result<Self, FatalError> {
        let names = storage.list().await;
        let names = names.map_err(|error| FatalError::io("looking for", NAME.into(), 0, error))?;
        let mut reserve = Self { kept: names.iter().any(|name| name == NAME), storage };
        reserve.release().await;
        reserve.keep().await?;
        Ok(reserve)
    }

    /// Creates the reserve again after a release. If there is no room, the next call tries again.
    ///
    /// # Errors
    /// When the disk fails.
    pub async fn keep(&mut self) -> Result<(), FatalError> {
        if self.kept {
            return Ok(());
        }
        let written = self.write().await;
        self.kept = true;
        match written {
            Ok(()) => Ok(()),
            Err(error) if is_no_space(&error) => {
                tracing::warn!(code = "RK0409", %error, "no room for the reserve");
                self.release().await;
                Ok(())
            }
            Err(error) => Err(FatalError::io("writing", NAME.into(), 0, error)),
        }
    }

    async fn write(&self) -> io::Result<()> {
        let file = self.storage.create(NAME, WriteMode::Synced).await?;
        let mut buffer = file.buffer(LEN);
        buffer.as_mut().fill(0);
        let wrote = file.write_at(buffer, 0).await?;
        file.datasync().await?;
        S::File::close(Rc::new(file)).await?;
        if wrote == LEN { Ok(()) } else { Err(io::ErrorKind::StorageFull.into()) }
    }

    /// Removes the reserve, to make room for promises.
    pub async fn release(&mut self) {
        if std::mem::take(&mut self.kept)
            && let Err(error) = self.storage.remove(NAME).await
        {
            tracing::warn!(code = "RK0410", %error, "the reserve cannot be removed");
        }
    }

    /// Bytes that were released and are to be reserved again; they are not for the log.
    #[must_use]
    pub const fn missing_bytes(&self) -> u64 {
        if self.kept { 0 } else { LEN as u64 }
    }
}

#[cfg(test)]
mod tests {
    use futures_lite::future::block_on;

    use ringkeeper_wire::{Epoch, ServerId};

    use super::*;
    use crate::memory::MemoryDisk;
    use crate::meta::{MetaStore, PersistedEpochs};

    #[test]
    fn promises_find_room_on_a_full_disk() {
        block_on(async {
            let disk = MemoryDisk::new();
            let mut reserve = Reserve::open(disk.storage()).await.expect("a healthy disk");
            let mut meta = MetaStore::open(disk.storage(), ServerId(1), 2).await.expect("an empty folder");
            let used = disk.contents(NAME).expect("is there").len() + BLOCK_LEN;
            disk.set_capacity_bytes(Some(used as u64));
            reserve.release().await;
            let promises = PersistedEpochs { accepted_epoch: Epoch(1), ..PersistedEpochs::default() };
            meta.promise(promises).await.expect("the reserve's room");
            disk.set_capacity_bytes(Some(BLOCK_LEN as u64));
            reserve.keep().await.expect("a healthy disk");
            assert_ne!(reserve.missing_bytes(), 0);
            disk.set_capacity_bytes(None);
            reserve.keep().await.expect("a healthy disk");
            assert_eq!(reserve.missing_bytes(), 0);
        });
    }
}
