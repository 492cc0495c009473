//! Sends and receives a snapshot between servers: the file's own bytes.

use std::rc::Rc;

use ringkeeper_wire::{ServerId, Zxid};

use super::error::SnapshotError;
use super::folder::Snapshots;
use super::layout::Head;
use super::reader::{self, SnapshotReader};
use super::writer::Appender;
use super::{PART, install_name, part_name};
use crate::frame::LogPosition;
use crate::mutation::planted;
use crate::storage::{BLOCK, BLOCK_LEN, Storage, StorageFile, WriteMode};

/// A snapshot that is being sent. It stays readable if its file is removed meanwhile.
pub struct Outgoing<S: Storage> {
    name: String,
    file: Rc<S::File>,
    len: u64,
    at: u64,
}

impl<S: Storage> Outgoing<S> {
    pub(super) async fn open(storage: &S, name: &str) -> Result<Self, SnapshotError> {
        let file = storage.open(name, WriteMode::Synced).await.map_err(SnapshotError::io("opening", name))?;
        let len = file.size().await.map_err(SnapshotError::io("measuring", name))?;
        Ok(Self { name: name.to_owned(), file: Rc::new(file), len, at: 0 })
    }

    /// Length of the file in bytes.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Whether there is nothing to send, which no snapshot is.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where the next piece begins.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.at
    }

    /// Continues at `offset`, since the receiver has the file up to there.
    ///
    /// # Errors
    /// When that is no place where a piece begins.
    pub fn skip_to(&mut self, offset: u64) -> Result<(), SnapshotError> {
        if offset > self.len || !offset.is_multiple_of(BLOCK_LEN as u64) {
            return Err(SnapshotError::Gap { expected: self.at, found: offset });
        }
        self.at = offset;
        Ok(())
    }

    /// The next piece of at most `len_max` bytes, which are whole blocks; `None` after the last.
    ///
    /// # Errors
    /// When the disk fails. The receiver checks the contents.
    pub async fn next(
        &mut self,
        len_max: usize,
    ) -> Result<Option<<S::File as StorageFile>::Read>, SnapshotError> {
        if self.at >= self.len {
            return Ok(None);
        }
        let len = usize::try_from(self.len - self.at).unwrap_or(usize::MAX).min(len_max);
        let read = self.file.read_at(self.at, len).await;
        let read = read.map_err(SnapshotError::io("reading", &self.name))?;
        if read.len() != len {
            let (file, offset) = (self.name.clone(), self.at + read.len() as u64);
            return Err(SnapshotError::Damaged { file, offset, what: "the file ends in the middle" });
        }
        self.at += len as u64;
        Ok(Some(read))
    }
}

/// A snapshot that is being received.
pub struct Incoming<S: Storage> {
    out: Appender<S>,
    storage: S,
    name: String,
}

impl<S: Storage> Incoming<S> {
    /// The number of bytes received, which is where the next piece has to begin.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.out.len()
    }

    /// Whether nothing has come in.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes the next piece.
    ///
    /// # Errors
    /// When it is not the next one, or the disk is full or fails.
    pub async fn piece(&mut self, offset: u64, bytes: &[u8]) -> Result<(), SnapshotError> {
        let expected = self.len();
        if offset != expected {
            return Err(SnapshotError::Gap { expected, found: offset });
        }
        self.out.push(bytes);
        self.out.write_all().await
    }

    /// Everything was received: verifies it against the announcement, and makes it durable under a name that
    /// no snapshot has yet. [`Snapshots::install`] follows when the log has been reset.
    ///
    /// # Errors
    /// When it is damaged or another one than announced, or the disk is full or fails.
    pub async fn finish(
        self,
        announced: Zxid,
        accept: impl Fn(&Head) -> bool,
    ) -> Result<Head, SnapshotError> {
        let Self { out, storage, name: part } = self;
        if !out.len().is_multiple_of(BLOCK_LEN as u64) {
            let offset = out.len();
            out.abandon().await;
            let what = "the file ends in the middle";
            return Err(SnapshotError::Damaged { file: part, offset, what });
        }
        let name = install_name(announced);
        out.finish(&name).await?;
        match Self::verify(&storage, &name, announced, accept).await {
            Ok(head) => Ok(head),
            Err(error) => {
                // A failure does no harm: a start removes the file, too.
                let _ = storage.remove(&name).await;
                Err(error)
            }
        }
    }

    async fn verify(
        storage: &S,
        name: &str,
        announced: Zxid,
        accept: impl Fn(&Head) -> bool,
    ) -> Result<Head, SnapshotError> {
        let mut reader = SnapshotReader::open(storage, name).await?;
        let head = *reader.head();
        if head.zxid != announced || !accept(&head) {
            let what = "not the snapshot that was announced";
            return Err(SnapshotError::Damaged { file: name.to_owned(), offset: 0, what });
        }
        reader.verify().await?;
        Ok(head)
    }

    /// Gives up and removes the file.
    pub async fn abandon(self) {
        self.out.abandon().await;
    }
}

impl<S: Storage> Snapshots<S> {
    /// Begins to receive the snapshot that ends at `last` from a server, or goes on with what a transfer of
    /// the same one has left: as much as is sound of that. One at a time; what came of others goes.
    ///
    /// # Errors
    /// When the disk is full or fails.
    pub async fn receive(&self, from: ServerId, last: LogPosition) -> Result<Incoming<S>, SnapshotError> {
        let (storage, name) = (self.storage().clone(), part_name(last.zxid, from));
        let mut left = false;
        for found in self.names().await? {
            if found == name {
                left = true;
            } else if found.starts_with(PART) {
                self.remove_file(&found).await?;
            }
        }
        let out = match left {
            true => go_on(storage.clone(), &name, last).await?,
            false => {
                let out = Appender::create(storage.clone(), &name).await?;
                self.sync().await?;
                out
            }
        };
        Ok(Incoming { out, storage, name })
    }

    /// Opens a snapshot to be sent.
    ///
    /// # Errors
    /// When there is none at `zxid`, or the disk fails.
    pub async fn send(&self, zxid: Zxid) -> Result<Outgoing<S>, SnapshotError> {
        Outgoing::open(self.storage(), &super::file_name(zxid)).await
    }
}

/// Goes on behind what is sound of a file.
async fn go_on<S: Storage>(storage: S, name: &str, last: LogPosition) -> Result<Appender<S>, SnapshotError> {
    let file = storage.open(name, WriteMode::Synced).await.map_err(SnapshotError::io("opening", name))?;
    let mut written = reader::sound_len(&file, last).await.map_err(SnapshotError::io("reading", name))?;
    if planted!(ResumeBehindGap) {
        written += BLOCK;
    }
    Ok(Appender::behind(storage, name, file, written))
}
