//! Copies of what a salvage removes, kept beside the log for an operator who investigates the damage. No
//! server reads them.
//!
//! A file that was `<name>` before the n-th salvage is `salvaged.<n>.<name>`. It is removed by
//!
//! - a newer salvage, when there are [`SALVAGES_MAX`] with it, or when the copies would exceed the free
//!   space;
//! - a full disk: all copies are removed before an append has to wait ([`let_go`]);
//! - the operator. No tool and no server looks into these files.

use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;

use crate::storage::{BLOCK_LEN, Storage, StorageFile, WriteMode};

const PREFIX: &str = "salvaged.";

/// A copy that is not complete yet.
const NEW_NAME: &str = "salvaged.new";

/// Number of salvages whose copies are kept.
const SALVAGES_MAX: usize = 3;

/// Bytes that are copied at a time.
const COPY_LEN: usize = 256 * BLOCK_LEN;

/// The copies of one salvage.
pub(super) struct Shelf<S> {
    storage: S,
    number: u64,
    /// Bytes that may still be kept.
    room: u64,
}

impl<S: Storage> Shelf<S> {
    /// Begins a salvage's copies, and removes older ones if `wanted_bytes` need their space.
    pub(super) async fn clear(storage: S, wanted_bytes: u64) -> io::Result<Self> {
        let mut kept: BTreeMap<u64, Vec<(String, u64)>> = BTreeMap::new();
        for name in storage.list().await? {
            if let Some(number) = number_of(&name) {
                let file = storage.open(&name, WriteMode::Synced).await?;
                let len = file.size().await?;
                S::File::close(Rc::new(file)).await?;
                kept.entry(number).or_default().push((name, len));
            }
        }
        let number = kept.last_key_value().map_or(1, |(newest, _)| newest + 1);
        let mut free = storage.free_bytes().await?;
        let mut held: u64 = kept.values().flatten().map(|(_, len)| len).sum();
        while kept.len() >= SALVAGES_MAX || held.saturating_add(wanted_bytes) > free {
            let Some((_, oldest)) = kept.pop_first() else { break };
            for (name, len) in oldest {
                storage.remove(&name).await?;
                held -= len;
                free = free.saturating_add(len);
            }
        }
        Ok(Self { storage, number, room: free.saturating_sub(held) })
    }

    /// The name for the copy of a file of `len` bytes; `None` if there is no room.
    pub(super) fn name(&mut self, name: &str, len: u64) -> Option<String> {
        self.room = self.room.checked_sub(len)?;
        Some(format!("{PREFIX}{}.{name}", self.number))
    }

    /// Copies a file that has to stay where it is; the copy's name, if there is room for it.
    pub(super) async fn copy(&mut self, file: &S::File, name: &str) -> io::Result<Option<String>> {
        let len = file.size().await?;
        // The copy itself needs free space, too.
        if self.room < len.saturating_mul(2) {
            return Ok(None);
        }
        self.room -= len;
        let Some(copy) = self.name(name, len) else { return Ok(None) };
        if self.storage.list().await?.iter().any(|name| name == NEW_NAME) {
            self.storage.remove(NEW_NAME).await?;
        }
        let target = self.storage.create(NEW_NAME, WriteMode::Synced).await?;
        let mut at = 0;
        while at < len {
            let piece = file.read_at(at, COPY_LEN).await?;
            if piece.is_empty() {
                break;
            }
            // A file whose length is no multiple of a block is padded.
            let mut buffer = target.buffer(piece.len().next_multiple_of(BLOCK_LEN));
            buffer.as_mut().fill(0);
            buffer.as_mut()[..piece.len()].copy_from_slice(&piece);
            if target.write_at(buffer, at).await? < piece.len() {
                return Err(io::ErrorKind::StorageFull.into());
            }
            at += piece.len() as u64;
        }
        target.datasync().await?;
        S::File::close(Rc::new(target)).await?;
        self.storage.rename(NEW_NAME, &copy).await?;
        self.storage.sync_dir().await?;
        Ok(Some(copy))
    }

    /// Moves a file here that nobody uses; its name, if there is room for it.
    pub(super) async fn take(&mut self, name: &str) -> io::Result<Option<String>> {
        let file = self.storage.open(name, WriteMode::Synced).await?;
        let len = file.size().await?;
        S::File::close(Rc::new(file)).await?;
        let Some(kept) = self.name(name, len) else { return Ok(None) };
        self.storage.rename(name, &kept).await?;
        self.storage.sync_dir().await?;
        Ok(Some(kept))
    }
}

/// Removes all copies that salvages have kept in a folder, to make room; returns the number of files.
///
/// # Errors
/// When the disk fails.
pub async fn let_go<S: Storage>(storage: &S) -> io::Result<usize> {
    let kept: Vec<_> = storage.list().await?.into_iter().filter(|name| name.starts_with(PREFIX)).collect();
    for name in &kept {
        storage.remove(name).await?;
    }
    Ok(kept.len())
}

/// The salvage that a file was kept by.
fn number_of(name: &str) -> Option<u64> {
    name.strip_prefix(PREFIX)?.split_once('.')?.0.parse().ok()
}
