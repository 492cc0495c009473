//! The durable contents of a server's disk, to check what the server claims about it.

use std::collections::HashMap;

use ringkeeper_frame::{Checksum, FRAME_ALIGN, LogPosition, encoded_len, parse};
use ringkeeper_log::memory::{CrashMode, MemoryDisk};
use ringkeeper_log::meta::{MetaStore, PersistedEpochs};
use ringkeeper_wire::Zxid;

use super::recovery::at_once;

/// The durable part of a disk.
pub(crate) struct Medium {
    disk: MemoryDisk,
    /// PersistedEpochs at the last look; epochs only increase.
    promises: PersistedEpochs,
    /// Files with a frame that ends at a position.
    frames: HashMap<(Zxid, Checksum), Vec<u64>>,
}

impl Medium {
    pub(crate) fn new(disk: &MemoryDisk) -> Self {
        let mut medium =
            Self { disk: disk.clone(), promises: PersistedEpochs::default(), frames: HashMap::new() };
        for (file, bytes) in disk.durable_files() {
            medium.read(file, &bytes);
        }
        medium
    }

    /// Whether it has the batch that ends so.
    pub(crate) fn has(&mut self, end: LogPosition) -> bool {
        let disk = self.disk.clone();
        disk.take_newly_durable(|file, bytes, new| self.read(file, &bytes[new]));
        let files = self.frames.get(&(end.zxid, end.checksum));
        files.is_some_and(|files| files.iter().any(|file| disk.has_durable_name(*file)))
    }

    /// Finds the frames in new bytes of a file; each frame is written by one write.
    fn read(&mut self, file: u64, bytes: &[u8]) {
        for at in (0..bytes.len()).step_by(FRAME_ALIGN) {
            let rest = &bytes[at..];
            if rest.starts_with(b"RKPB")
                && let Some(frame) = encoded_len(rest).ok().and_then(|len| rest.get(..len))
                && let Ok(frame) = parse(frame)
            {
                let end = (frame.meta().last_zxid, frame.checksum());
                self.frames.entry(end).or_default().push(file);
            }
        }
    }

    /// What the server has promised.
    pub(crate) fn promises(&mut self, enough: impl Fn(&PersistedEpochs) -> bool) -> PersistedEpochs {
        if !enough(&self.promises) {
            let left = self.disk.fork();
            left.crash(CrashMode::LoseUnsynced);
            let meta = at_once(MetaStore::peek(&left.storage())).and_then(Result::ok).flatten();
            self.promises = meta.map_or_else(PersistedEpochs::default, |meta| meta.promises);
        }
        self.promises
    }
}
