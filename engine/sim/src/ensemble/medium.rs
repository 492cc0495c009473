//! What a power loss at this moment would leave of a server's folder: the truth that its words are held against.

use std::collections::HashMap;

use ringkeeper_frame::{Checksum, FRAME_ALIGN, LogPosition, encoded_len, parse};
use ringkeeper_log::memory::{CrashMode, MemoryDisk};
use ringkeeper_log::meta::{MetaStore, Promises};
use ringkeeper_wire::Zxid;

use super::recovery::at_once;

/// The durable part of a disk.
pub(crate) struct Medium {
    disk: MemoryDisk,
    /// What was found when it was last looked at; epochs only grow.
    promises: Promises,
    /// In which files there is a frame that ends so.
    frames: HashMap<(Zxid, Checksum), Vec<u64>>,
}

impl Medium {
    pub(crate) fn new(disk: &MemoryDisk) -> Self {
        let mut medium = Self { disk: disk.clone(), promises: Promises::default(), frames: HashMap::new() };
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

    /// Finds the frames in a piece of a file: one write has all of a frame.
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
    pub(crate) fn promises(&mut self, enough: impl Fn(&Promises) -> bool) -> Promises {
        if !enough(&self.promises) {
            let left = self.disk.fork();
            left.crash(CrashMode::LoseUnsynced);
            let meta = at_once(MetaStore::peek(&left.storage())).and_then(Result::ok).flatten();
            self.promises = meta.map_or_else(Promises::default, |meta| meta.promises);
        }
        self.promises
    }
}
