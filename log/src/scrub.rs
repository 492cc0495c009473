//! Verifies a log while it is in use, to find damage before the data is needed.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use ringkeeper_wire::Zxid;

use crate::error::{Corruption, ReadError};
use crate::mutation::planted;
use crate::reader::Reader;
use crate::segment::{SegmentHeader, file_name};
use crate::storage::{BLOCK, BLOCK_LEN, Storage, StorageFile};
use crate::wal::Wal;

/// One pass over everything that the log held when the pass began, from [`Wal::scrub`]. Appends and purges
/// continue meanwhile.
pub struct Scrub<F: StorageFile> {
    headers: VecDeque<(Rc<F>, SegmentHeader)>,
    reader: Option<Reader<F>>,
    /// Bytes that were reported.
    reported: u64,
}

impl<S: Storage> Wal<S> {
    /// Begins a pass over all of the log.
    #[must_use]
    pub fn scrub(&self) -> Scrub<S::File> {
        let written = self.segments().filter(|segment| segment.header_written);
        let headers = written.map(|segment| (segment.file.clone(), segment.header)).collect();
        Scrub { headers, reader: self.read_from(Zxid(self.after_zxid().0 + 1)).ok(), reported: 0 }
    }
}

impl<F: StorageFile> Scrub<F> {
    /// Verifies the next part; returns the number of bytes read, or `None` when the pass is complete.
    ///
    /// # Errors
    /// When the log is damaged or the disk fails. The pass is over then.
    pub async fn step(&mut self) -> Result<Option<u64>, ReadError> {
        match self.verify_next().await {
            Err(ReadError::Corrupt(_)) if planted!(ScrubBlind) => Ok(None),
            step => step,
        }
    }

    async fn verify_next(&mut self) -> Result<Option<u64>, ReadError> {
        if let Some((file, header)) = self.headers.pop_front() {
            verify_header(&*file, &header).await?;
            return Ok(Some(BLOCK));
        }
        let Some(reader) = &mut self.reader else { return Ok(None) };
        while reader.next().await?.is_some() {
            let scanned = reader.scanned_bytes();
            if scanned > self.reported {
                let step = scanned - self.reported;
                self.reported = scanned;
                return Ok(Some(step));
            }
        }
        Ok(None)
    }
}

async fn verify_header<F: StorageFile>(file: &F, header: &SegmentHeader) -> Result<(), ReadError> {
    let name = || file_name(header.sequence);
    let read = file.read_at(0, BLOCK_LEN).await;
    let block = read.map_err(|source| ReadError::Io { file: name(), offset: 0, source: Arc::new(source) })?;
    if SegmentHeader::decode(&block, header.sequence) == Ok(*header) {
        return Ok(());
    }
    let after_zxid = header.after_zxid;
    Err(Corruption { file: name(), offset: 0, after_zxid, until_zxid: after_zxid }.into())
}

#[cfg(test)]
mod tests {
    use futures_lite::future::block_on;

    use ringkeeper_wire::Epoch;

    use super::*;
    use crate::frame::{self, AlignedBuf, Meta};
    use crate::memory::MemoryDisk;
    use crate::segment::Identity;
    use crate::wal::Options;

    fn append(wal: &mut Wal<crate::memory::MemoryStorage>, count: u64) {
        for _ in 0..count {
            let last = wal.last();
            let first_zxid = Zxid(last.zxid.max(Zxid(1 << 32)).0 + 1);
            let mut bytes = AlignedBuf::new();
            let meta = Meta { epoch: Epoch(1), first_zxid, last_zxid: first_zxid };
            frame::encode(meta, &[7; 6000], last.checksum, &mut bytes).expect("fitting zxids");
            block_on(wal.append(&[bytes])).expect("a healthy disk");
        }
    }

    fn pass(wal: &Wal<crate::memory::MemoryStorage>) -> Result<u64, ReadError> {
        let mut scrub = wal.scrub();
        let mut bytes = 0;
        while let Some(step) = block_on(scrub.step())? {
            bytes += step;
        }
        Ok(bytes)
    }

    /// A log of two full segments and a third one, of groups of two blocks.
    fn log() -> (MemoryDisk, Wal<crate::memory::MemoryStorage>) {
        let disk = MemoryDisk::new();
        let options =
            Options { segment_size_bytes: 64 * 1024, ..Options::new(Identity { owner: [1; 32], salt: 5 }) };
        let opened = block_on(Wal::open(disk.storage(), options, |_| Ok(())));
        let (mut wal, _) = opened.expect("an empty folder");
        append(&mut wal, 18);
        (disk, wal)
    }

    #[test]
    fn a_pass_reads_every_block_in_use_and_finds_every_flipped_bit() {
        let (disk, wal) = log();
        assert_eq!(pass(&wal).expect("sound"), 3 * BLOCK + 18 * 2 * BLOCK);
        for segment in 1..=3 {
            let name = file_name(segment);
            let used = if segment == 3 { 1 + 2 * 4 } else { 15 };
            for block in 0..used {
                assert!(disk.rot(&name, block * BLOCK + 90, 1));
                match pass(&wal) {
                    Err(ReadError::Corrupt(found)) => {
                        assert_eq!(found.file, name, "block {block}");
                        assert!(found.offset <= block * BLOCK, "block {block} found at {}", found.offset);
                    }
                    other => panic!("{name} block {block}: {other:?}"),
                }
                assert!(disk.rot(&name, block * BLOCK + 90, 1));
            }
        }
    }

    #[test]
    fn a_damaged_segment_is_left_behind_and_let_go_of_when_a_snapshot_covers_it() {
        let (disk, mut wal) = log();
        assert!(disk.rot(&file_name(3), 3 * BLOCK + 90, 1));
        let Err(ReadError::Corrupt(found)) = pass(&wal) else { panic!("not found") };
        let covered = block_on(wal.leave(&found.file)).expect("a healthy disk");
        assert_eq!(covered, wal.last().zxid);
        append(&mut wal, 2);
        assert!(pass(&wal).is_err(), "still there");
        assert_eq!(wal.purge_before(covered), 3);
        pass(&wal).expect("sound");
    }
}
