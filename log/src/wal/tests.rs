use futures_lite::future::block_on;

use super::*;
use crate::frame::{AlignedBuf, Meta, encode};
use crate::memory::{CrashMode, Effect, Fault, MemoryDisk, MemoryStorage, OpKind};
use crate::recover::Tail;

fn options() -> Options {
    let identity = Identity { owner: *b"cluster 1, server 1; 32 bytes...", salt: 0x5eed };
    Options { segment_size_bytes: 64 * 1024, ..Options::new(identity) }
}

fn zxid(epoch: u32, counter: u32) -> u64 {
    u64::from(epoch) << 32 | u64::from(counter)
}

fn batch(after: Position, first_zxid: u64, count: u64, payload: &[u8]) -> (AlignedBuf, Position) {
    let mut bytes = AlignedBuf::new();
    let epoch = u32::try_from(first_zxid >> 32).expect("a zxid's epoch has 32 bits");
    let last_zxid = first_zxid + count - 1;
    let meta = Meta { epoch, first_zxid, last_zxid };
    let checksum = encode(meta, payload, after.checksum, &mut bytes).expect("fitting zxids");
    (bytes, Position { zxid: last_zxid, checksum })
}

/// Frames of one transaction each, continuing `after`.
fn batches(mut after: Position, count: u32, payload_len: usize) -> (Vec<AlignedBuf>, Position) {
    let mut frames = Vec::new();
    for _ in 0..count {
        let first = if after.zxid == 0 { zxid(1, 1) } else { after.zxid + 1 };
        let payload = vec![u8::try_from(first & 0xff).expect("one byte"); payload_len];
        let (frame, end) = batch(after, first, 1, &payload);
        frames.push(frame);
        after = end;
    }
    (frames, after)
}

type Log = Wal<MemoryStorage>;

fn open(disk: &MemoryDisk) -> Result<(Log, Recovered, Vec<u64>), OpenError> {
    let mut replayed = Vec::new();
    let opened = block_on(Wal::open(disk.storage(), options(), |frame| {
        replayed.push(frame.meta().last_zxid);
        Ok(())
    }));
    opened.map(|(wal, recovered)| (wal, recovered, replayed))
}

fn append(wal: &mut Log, count: u32, payload_len: usize) -> Position {
    let (frames, end) = batches(wal.last(), count, payload_len);
    assert_eq!(block_on(wal.append(&frames)).expect("a healthy disk"), end);
    end
}

fn read(wal: &Log, from: u64) -> Vec<u64> {
    let mut reader = wal.read_from(from).expect("not purged");
    let mut zxids = Vec::new();
    while let Some(frame) = block_on(reader.next()).expect("sound") {
        zxids.push(frame.meta().last_zxid);
    }
    zxids
}

fn zxids(range: std::ops::RangeInclusive<u32>) -> Vec<u64> {
    range.map(|counter| zxid(1, counter)).collect()
}

#[test]
fn a_new_log_is_empty() {
    let disk = MemoryDisk::new();
    let (wal, recovered, replayed) = open(&disk).expect("an empty folder");
    assert_eq!(wal.last(), Position::default());
    assert_eq!((recovered.tail, replayed), (Tail::Clean, vec![]));
}

#[test]
fn appended_frames_are_replayed_after_a_crash() {
    let disk = MemoryDisk::new();
    let (mut wal, ..) = open(&disk).expect("an empty folder");
    append(&mut wal, 3, 100);
    let last = append(&mut wal, 2, 5000);
    disk.crash(CrashMode::LoseUnsynced);
    let (wal, recovered, replayed) = open(&disk).expect("a log after a crash");
    assert_eq!(wal.last(), last);
    assert_eq!(recovered.frames, 5);
    assert_eq!(replayed, zxids(1..=5));
}
