//! Makes a sound log from a damaged one, as the operator has decided. What a start does by itself is
//! [`crate::salvage`].
//!
//! The frames to be kept are written to a new log beside the old one; then the new log takes the old one's
//! place. Nothing is removed: the files of the old log, and snapshots behind the new log's end, are kept as
//! `aside.<n>.<name>`.
//!
//! ```text
//! 1  repair.log.<sequence>, higher than the old log has, are written, durable     server: refuses, damage
//! 2  meta gets the former end of the log, if anything is lost                     server: refuses, damage
//! 3  meta becomes repair.<first sequence>.meta                                    server: refuses, no meta
//! 4  repair.log.<sequence> become log.<sequence>; lower ones, and snapshots behind the new end,
//!    are set aside                                                                server: refuses, no meta
//! 5  repair.<first sequence>.meta becomes meta                                    server: starts
//! ```
//!
//! A crash before step 3 leaves the log as it was; after a later crash, [`finish`] completes the repair.
//! Until then no server starts on the folder, since it has a log and no meta file.
//!
//! The folder may be that of a member of an ensemble, whatever the operator knows. Its peers may rely on the
//! server's acks, so the former end of the log is recorded, as in [`crate::salvage`]. A server alone forgets
//! it at its next start.

mod beside;

use std::io;
use std::ops::ControlFlow;

use ringkeeper_wire::Zxid;
use thiserror::Error;

use crate::error::{AppendError, FatalError, OpenError};
use crate::examine::{Damage, Observer, Place, examine};
use crate::frame::LogPosition;
use crate::frame::{AlignedBuf, Frame};
use crate::meta::{self, Meta, MetaError, MetaStore};
use crate::recover;
use crate::salvage;
use crate::segment::{Identity, sequence_of};
use crate::snapshot::{self, SnapshotError, Snapshots};
use crate::storage::Storage;
use crate::wal::{Options, Wal};
use beside::{Beside, PREFIX};

/// Bytes of frames that are written in one append.
const COPY_LEN: usize = 1024 * 1024;

/// Why a repair failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RepairError {
    /// The log cannot be read, or the new one cannot be begun.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The new log cannot be written.
    #[error("writing the new log: {0}")]
    Append(#[from] AppendError),
    /// A snapshot cannot be set aside.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// What the server has promised cannot be read.
    #[error(transparent)]
    Meta(#[from] MetaError),
    /// The former end of the log cannot be recorded.
    #[error("recording the former end of the log: {0}")]
    Claim(#[from] FatalError),
    /// The log cannot be read as far as the frames to be kept.
    #[error("the log can be read up to zxid {found}, and not up to {wanted}")]
    Unreached {
        /// The last zxid that is to stay.
        wanted: Zxid,
        /// The last one that was read.
        found: Zxid,
    },
    /// A repair was begun and not finished.
    #[error("an earlier repair was interrupted")]
    Interrupted,
    /// The disk failed, or is full.
    #[error("{action} {file}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// Name of the file.
        file: String,
        /// The system's answer.
        source: io::Error,
    },
}

/// The part of the history that the new log is to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The position that it continues.
    pub after: LogPosition,
    /// Its last zxid, the end of a batch.
    pub until_zxid: Zxid,
    /// How far the server's history is known to have gone. If that is after `until_zxid`, it is
    /// recorded ([`meta::PersistedEpochs::end_before_damage`]).
    pub known_zxid: Zxid,
}

/// The result of a repair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repaired {
    /// The end of the log now.
    pub last: LogPosition,
    /// New names of the files that were set aside: of the log, then of the snapshots.
    pub set_aside: (Vec<String>, Vec<String>),
}

/// Writes the log anew with the frames of `extent` only, which have to be sound and part of one history.
/// Snapshots behind its end are set aside, too.
///
/// # Errors
/// Either nothing has changed, or [`finish`] has to be called ([`interrupted`] tells which).
pub async fn rewrite<S: Storage>(
    log: &S,
    snapshots: &Snapshots<S>,
    options: Options,
    extent: Extent,
) -> Result<Repaired, RepairError> {
    let Extent { after, until_zxid, known_zxid } = extent;
    if interrupted(log).await?.is_some() {
        return Err(RepairError::Interrupted);
    }
    let beside = Beside(log.clone());
    for name in list(&beside).await?.iter().filter(|name| sequence_of(name).is_some()) {
        beside.remove(name).await.map_err(failed("removing an unfinished", name))?;
    }
    let newest = list(log).await?.iter().filter_map(|name| sequence_of(name)).max();
    let first = newest.unwrap_or(0) + 1;
    let wal = Wal::begin(beside.clone(), &options, first, after).await?;
    let mut copying =
        Copying { wal, after_zxid: after.zxid, until_zxid, frames: Vec::new(), len: 0, failed: None };
    examine(log, options.identity, &mut copying).await?;
    let last = copying.finish().await?;
    if last.zxid != until_zxid {
        return Err(RepairError::Unreached { wanted: until_zxid, found: last.zxid });
    }
    recover::recover(&beside, &options, &mut |_| Ok(())).await?;
    if known_zxid > until_zxid {
        let Meta { server_id, salt, .. } = meta::read(log, meta::NAME).await?;
        let mut meta = MetaStore::open(log.clone(), server_id, salt).await?;
        salvage::record_end_before_damage(&mut meta, known_zxid).await?;
    }
    let guard = guard_name(first);
    log.rename(meta::NAME, &guard).await.map_err(failed("renaming", meta::NAME))?;
    sync(log).await?;
    finish(log, snapshots, options.identity).await
}

/// The file that an interrupted repair has left in place of `meta`, if any.
///
/// # Errors
/// The folder cannot be read.
pub async fn interrupted<S: Storage>(log: &S) -> Result<Option<String>, RepairError> {
    Ok(list(log).await?.into_iter().find(|name| guarded(name).is_some()))
}

/// The contents of the meta file that an interrupted repair has renamed; `None` without one.
///
/// # Errors
/// The file is damaged, or the disk fails.
pub async fn guarded_meta<S: Storage>(log: &S) -> Result<Option<Meta>, MetaError> {
    let names = log.list().await.map_err(|source| MetaError::Io { action: "looking for", source })?;
    match names.iter().find(|name| guarded(name).is_some()) {
        Some(guard) => meta::read(log, guard).await.map(Some),
        None => Ok(None),
    }
}

/// Completes a repair that has renamed `meta`. Does nothing if there is none.
///
/// # Errors
/// The disk fails; it may be tried again.
pub async fn finish<S: Storage>(
    log: &S,
    snapshots: &Snapshots<S>,
    identity: Identity,
) -> Result<Repaired, RepairError> {
    let names = list(log).await?;
    let guard = names.iter().find_map(|name| Some((name, guarded(name)?)));
    if let Some((_, first)) = guard {
        let beside = Beside(log.clone());
        for name in list(&beside).await?.iter().filter(|name| sequence_of(name).is_some()) {
            beside.reveal(name).await.map_err(failed("renaming", name))?;
        }
        sync(log).await?;
        for name in names.iter().filter(|name| sequence_of(name).is_some_and(|sequence| sequence < first)) {
            set_aside(log, name).await?;
        }
        sync(log).await?;
    }
    let history = recover::recover(log, &Options::new(identity), &mut |_| Ok(())).await?;
    let last = history.recovered.last;
    let mut snapshots_aside = Vec::new();
    if let Some((guard, _)) = guard {
        for zxid in snapshots.list().await?.into_iter().filter(|zxid| *zxid > last.zxid) {
            snapshots_aside.push(snapshots.set_aside(zxid).await?);
        }
        log.rename(guard, meta::NAME).await.map_err(failed("renaming", guard))?;
        sync(log).await?;
    }
    let now = list(log).await?;
    let aside = now.into_iter().filter(|name| is_aside_of(name, "log."));
    let mut aside: Vec<_> = aside.collect();
    aside.sort_unstable();
    Ok(Repaired { last, set_aside: (aside, snapshots_aside) })
}

/// Renames a file to a name that no server looks for; returns the name. Durable when the folder is synced.
pub(crate) async fn set_aside<S: Storage>(storage: &S, name: &str) -> Result<String, RepairError> {
    let names = list(storage).await?;
    let aside = (1_u64..).map(|number| format!("aside.{number}.{name}"));
    let aside = aside.into_iter().find(|aside| !names.contains(aside)).expect("numbers do not end");
    storage.rename(name, &aside).await.map_err(failed("renaming", name))?;
    Ok(aside)
}

/// Whether a name is that of a file set aside whose former name began with `prefix`.
fn is_aside_of(name: &str, prefix: &str) -> bool {
    let rest = name.strip_prefix("aside.").and_then(|rest| rest.split_once('.'));
    rest.is_some_and(|(number, name)| number.parse::<u64>().is_ok() && name.starts_with(prefix))
}

fn guard_name(first: u64) -> String {
    format!("{PREFIX}{first:016x}.{}", meta::NAME)
}

/// The first sequence of the new log, from the name of the file that replaces `meta` during a repair.
fn guarded(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(PREFIX)?.strip_suffix(meta::NAME)?.strip_suffix('.')?;
    u64::from_str_radix(digits, 16).ok()
}

async fn list<S: Storage>(storage: &S) -> Result<Vec<String>, RepairError> {
    storage.list().await.map_err(failed("listing", "the log's folder"))
}

async fn sync<S: Storage>(storage: &S) -> Result<(), RepairError> {
    storage.sync_dir().await.map_err(failed("syncing", "the log's folder"))
}

fn failed<'a>(action: &'static str, file: &'a str) -> impl FnOnce(io::Error) -> RepairError + use<'a> {
    move |source| RepairError::Io { action, file: file.to_owned(), source }
}

/// An observer of the old log that copies its frames to the new one.
struct Copying<S: Storage> {
    wal: Wal<Beside<S>>,
    after_zxid: Zxid,
    until_zxid: Zxid,
    frames: Vec<AlignedBuf>,
    len: usize,
    failed: Option<AppendError>,
}

impl<S: Storage> Copying<S> {
    async fn write(&mut self) -> ControlFlow<()> {
        let frames = std::mem::take(&mut self.frames);
        self.len = 0;
        self.failed = self.wal.append(&frames).await.err();
        if self.failed.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// The end of the new log, which is durable and sealed.
    async fn finish(mut self) -> Result<LogPosition, RepairError> {
        if self.failed.is_none() {
            let _ = self.write().await;
        }
        match self.failed {
            Some(error) => Err(error.into()),
            None => {
                self.wal.seal().await?;
                Ok(self.wal.last())
            }
        }
    }
}

impl<S: Storage> Observer for Copying<S> {
    async fn frame(&mut self, _: Place<'_>, frame: Frame<'_>) -> ControlFlow<()> {
        let meta = frame.meta();
        if meta.first_zxid <= self.after_zxid {
            return ControlFlow::Continue(());
        }
        if meta.last_zxid > self.until_zxid {
            return ControlFlow::Break(());
        }
        let mut bytes = AlignedBuf::with_capacity(frame.bytes().len());
        bytes.extend_from_slice(frame.bytes());
        self.len += bytes.len();
        self.frames.push(bytes);
        if self.len < COPY_LEN { ControlFlow::Continue(()) } else { self.write().await }
    }

    fn damage(&mut self, _: &Damage) {}
}

impl<S: Storage> Snapshots<S> {
    /// Gives a snapshot a name that no server looks for, durably; returns it.
    ///
    /// # Errors
    /// The disk fails.
    pub async fn set_aside(&self, zxid: Zxid) -> Result<String, RepairError> {
        let aside = set_aside(self.storage(), &snapshot::file_name(zxid)).await?;
        sync(self.storage()).await?;
        Ok(aside)
    }
}

#[cfg(test)]
mod tests;
