use futures_lite::future::block_on;
use ringkeeper_wire::Epoch;

use super::*;
use crate::frame::{AlignedBuf, Meta, encode};
use crate::memory::{CrashMode, Effect, Fault, MemoryDisk, MemoryStorage, OpKind};
use crate::recover::Tail;

fn options() -> Options {
    let identity = Identity { owner: *b"cluster 1, server 1; 32 bytes...", salt: 0x5eed };
    Options { segment_size_bytes: 64 * 1024, ..Options::new(identity) }
}

fn zxid(epoch: u32, counter: u32) -> Zxid {
    Zxid::new(Epoch(epoch), counter)
}

fn batch(after: LogPosition, first_zxid: Zxid, count: u64, payload: &[u8]) -> (AlignedBuf, LogPosition) {
    let mut bytes = AlignedBuf::new();
    let last_zxid = Zxid(first_zxid.0 + count - 1);
    let meta = Meta { epoch: first_zxid.epoch(), first_zxid, last_zxid };
    let checksum = encode(meta, payload, after.checksum, &mut bytes).expect("fitting zxids");
    (bytes, LogPosition { zxid: last_zxid, checksum })
}

/// Frames of one transaction each, continuing `after`.
fn batches(mut after: LogPosition, count: u32, payload_len: usize) -> (Vec<AlignedBuf>, LogPosition) {
    let mut frames = Vec::new();
    for _ in 0..count {
        let first = if after.zxid == Zxid::ZERO { zxid(1, 1) } else { Zxid(after.zxid.0 + 1) };
        let payload = vec![u8::try_from(first.0 & 0xff).expect("one byte"); payload_len];
        let (frame, end) = batch(after, first, 1, &payload);
        frames.push(frame);
        after = end;
    }
    (frames, after)
}

type Log = Wal<MemoryStorage>;

fn open(disk: &MemoryDisk) -> Result<(Log, Recovered, Vec<Zxid>), OpenError> {
    let mut replayed = Vec::new();
    let opened = block_on(Wal::open(disk.storage(), options(), |frame| {
        replayed.push(frame.meta().last_zxid);
        Ok(())
    }));
    opened.map(|(wal, recovered)| (wal, recovered, replayed))
}

/// An empty log, and its disk.
fn new_log() -> (MemoryDisk, Log) {
    let disk = MemoryDisk::new();
    let (wal, ..) = open(&disk).expect("an empty folder");
    (disk, wal)
}

fn append(wal: &mut Log, count: u32, payload_len: usize) -> LogPosition {
    let (frames, end) = batches(wal.last(), count, payload_len);
    assert_eq!(block_on(wal.append(&frames)).expect("a healthy disk"), end);
    end
}

fn read(wal: &Log, from: Zxid) -> Vec<Zxid> {
    let mut reader = wal.read_from(from).expect("not purged");
    let mut zxids = Vec::new();
    while let Some(frame) = block_on(reader.next()).expect("sound") {
        zxids.push(frame.meta().last_zxid);
    }
    zxids
}

fn zxids(range: std::ops::RangeInclusive<u32>) -> Vec<Zxid> {
    range.map(|counter| zxid(1, counter)).collect()
}

#[test]
fn a_new_log_is_empty() {
    let disk = MemoryDisk::new();
    let (wal, recovered, replayed) = open(&disk).expect("an empty folder");
    assert_eq!(wal.last(), LogPosition::default());
    assert_eq!((recovered.tail, replayed), (Tail::Clean, vec![]));
}

#[test]
fn appended_frames_are_replayed_after_a_crash() {
    let (disk, mut wal) = new_log();
    append(&mut wal, 3, 100);
    let last = append(&mut wal, 2, 5000);
    disk.crash(CrashMode::LoseUnsynced);
    let (wal, recovered, replayed) = open(&disk).expect("a log after a crash");
    assert_eq!(wal.last(), last);
    assert_eq!(recovered.frames, 5);
    assert_eq!(replayed, zxids(1..=5));
}

#[test]
fn every_frame_is_read_back_from_every_zxid() {
    let (_, mut wal) = new_log();
    for count in [1, 7, 40, 2, 90] {
        append(&mut wal, count, 1500);
    }
    for from in 1..=140 {
        assert_eq!(read(&wal, zxid(1, from)), zxids(from..=140));
    }
    assert!(read(&wal, zxid(1, 141)).is_empty());
    assert!(read(&wal, zxid(2, 1)).is_empty());
}

#[test]
fn the_log_is_read_backwards_in_bounded_slices_that_leave_nothing_out() {
    const SLICE: u64 = 300 * 1024;
    let disk = MemoryDisk::new();
    let options = || Options { segment_size_bytes: 4 << 20, ..options() };
    let mut wal = block_on(Wal::open(disk.storage(), options(), |_| Ok(()))).expect("an empty folder").0;
    for _ in 0..450 {
        append(&mut wal, 1, 20_000);
    }
    let check = |wal: &Log| {
        let (mut before, mut slices) = (zxid(1, 451), Vec::new());
        let begins = loop {
            match wal.slice_before(before, SLICE) {
                Ok(after) => {
                    assert!(after.0 + 1 < before.0, "{after} is no step back from {before}");
                    slices.push(after.counter() + 1..=before.counter() - 1);
                    before = Zxid(after.0 + 1);
                }
                Err(ReadError::Purged { after_zxid, .. }) => break after_zxid,
                Err(error) => panic!("{error}"),
            }
        };
        assert_eq!((before, begins), (Zxid(begins.0 + 1), wal.after_zxid()));
        // About 300 KiB of batches of 20 KiB, and up to a mark's distance more.
        assert!(slices.len() > 5 && slices.iter().all(|slice| slice.clone().count() < 40), "{slices:?}");
        slices
    };
    check(&wal);
    wal.purge_before(zxid(1, 300));
    let first = wal.after_zxid().counter() + 1;
    assert!(first > 1);
    check(&wal);
    block_on(wal.upkeep().settle()).expect("a healthy disk");
    drop(wal);
    let wal = block_on(Wal::open(disk.storage(), options(), |_| Ok(()))).expect("a sound log").0;
    let slices = check(&wal);
    assert_eq!(slices.last().map(|slice| *slice.start()), Some(first));
    for slice in slices {
        assert_eq!(read(&wal, zxid(1, *slice.start())).first(), Some(&zxid(1, *slice.start())));
    }
}

#[test]
fn a_reader_ends_where_the_log_ended_when_it_was_made() {
    let (_, mut wal) = new_log();
    append(&mut wal, 2, 10);
    let mut reader = wal.read_from(zxid(1, 1)).expect("not purged");
    append(&mut wal, 1, 10);
    let mut count = 0;
    while block_on(reader.next()).expect("sound").is_some() {
        count += 1;
    }
    assert_eq!(count, 2);
}

#[test]
fn frames_out_of_order_or_out_of_chain_are_refused_and_nothing_is_written() {
    let (_, mut wal) = new_log();
    let last = append(&mut wal, 2, 10);
    let (repeated, _) = batch(last, zxid(1, 2), 1, b"");
    let (skipping, _) = batch(last, zxid(1, 4), 1, b"");
    let (good, end) = batch(last, zxid(1, 3), 1, b"");
    let (unchained, _) = batch(last, zxid(1, 4), 1, b"");
    assert!(matches!(block_on(wal.append(&[repeated])), Err(AppendError::Order { .. })));
    assert!(matches!(block_on(wal.append(&[skipping])), Err(AppendError::Order { .. })));
    assert!(matches!(block_on(wal.append(&[good.clone(), unchained])), Err(AppendError::Chain { .. })));
    assert!(matches!(block_on(wal.append(&[&good[..60]])), Err(AppendError::Frame(_))));
    assert_eq!(wal.last(), last);
    assert_eq!(block_on(wal.append(&[good])).expect("the right frame"), end);
}

#[test]
fn a_frame_longer_than_a_segment_gets_one_of_its_own() {
    let (disk, mut wal) = new_log();
    for len in [61_400, 300_000, 10, 60_000] {
        append(&mut wal, 1, len);
    }
    let last = wal.last();
    block_on(wal.upkeep().settle()).expect("a healthy disk");
    drop(wal);
    disk.crash(CrashMode::LoseUnsynced);
    let (mut wal, recovered, frames) = open(&disk).expect("sound");
    assert_eq!((recovered.last, frames.len()), (last, 4));
    // Its file is of no use afterwards.
    wal.purge_before(last.zxid);
    block_on(wal.upkeep().settle()).expect("a healthy disk");
    let names = block_on(disk.storage().list()).expect("a healthy disk");
    assert!(names.iter().all(|name| disk.contents(name).expect("is there").len() == 64 * 1024), "{names:?}");
}

#[test]
fn a_failed_or_short_write_or_sync_is_final() {
    for (kind, effect) in [
        (OpKind::Write, Effect::Short),
        (OpKind::Write, Effect::Fail(std::io::ErrorKind::Other)),
        (OpKind::Sync, Effect::Fail(std::io::ErrorKind::Other)),
        (OpKind::Sync, Effect::Fail(std::io::ErrorKind::StorageFull)),
    ] {
        let (disk, mut wal) = new_log();
        let last = append(&mut wal, 1, 10);
        disk.inject(Fault { kind, prefix: "log".into(), skip: 0, times: 1, effect });
        let (frames, _) = batches(last, 1, 10);
        for _ in 0..2 {
            assert!(
                matches!(block_on(wal.append(&frames)), Err(AppendError::Failed(_))),
                "{kind:?} {effect:?}"
            );
        }
    }
}

#[test]
fn a_dropped_append_is_final() {
    let (disk, mut wal) = new_log();
    let (frames, _) = batches(wal.last(), 1, 10);
    disk.hold(true);
    assert!(block_on(futures_lite::future::poll_once(wal.append(&frames))).is_none());
    disk.hold(false);
    assert!(matches!(block_on(wal.append(&frames)), Err(AppendError::Failed(FatalError::Abandoned))));
}

#[test]
fn an_append_waits_for_the_sync() {
    let (disk, mut wal) = new_log();
    let (frames, _) = batches(wal.last(), 1, 10);
    disk.hold(true);
    let mut append = Box::pin(wal.append(&frames));
    for expected in [OpKind::Write, OpKind::Sync] {
        assert!(block_on(futures_lite::future::poll_once(&mut append)).is_none());
        let held = disk.held();
        assert_eq!(held.len(), 1);
        assert_eq!(held[0].1, expected);
        disk.release(held[0].0);
    }
    assert!(block_on(append).is_ok());
}

#[test]
fn a_full_disk_refuses_appends_and_takes_them_again_when_there_is_room() {
    let (disk, mut wal) = new_log();
    disk.set_capacity_bytes(Some(100 * 1024));
    append(&mut wal, 1, 40_000);
    let (frames, end) = batches(wal.last(), 1, 40_000);
    for _ in 0..2 {
        assert!(matches!(block_on(wal.append(&frames)), Err(AppendError::NoSpace { .. })));
    }
    assert_eq!(read(&wal, zxid(1, 1)), zxids(1..=1));
    disk.set_capacity_bytes(None);
    assert_eq!(block_on(wal.append(&frames)).expect("there is room"), end);
}

#[test]
fn a_write_without_room_is_undone_and_taken_later() {
    let (disk, mut wal) = new_log();
    append(&mut wal, 1, 10);
    let effect = Effect::Fail(std::io::ErrorKind::StorageFull);
    disk.inject(Fault { kind: OpKind::Write, prefix: "log".into(), skip: 1, times: 1, effect });
    wal.write_len_max = 4096;
    let (frames, _) = batches(wal.last(), 3, 3000);
    assert!(matches!(block_on(wal.append(&frames)), Err(AppendError::NoSpace { .. })));
    let last = append(&mut wal, 1, 20);
    disk.crash(CrashMode::KeepAll);
    assert_eq!(open(&disk).expect("a sound log").0.last(), last);
}

#[test]
fn upkeep_prepares_the_next_segment_and_reuses_purged_ones() {
    let (disk, mut wal) = new_log();
    let names = || {
        let mut names = block_on(disk.storage().list()).expect("a healthy disk");
        names.sort();
        names
    };
    block_on(wal.upkeep().settle()).expect("a healthy disk");
    assert_eq!(names(), ["log.0000000000000001", "log.0000000000000002"]);
    append(&mut wal, 3, 25_000);
    let last = wal.last();
    append(&mut wal, 1, 25_000);
    assert_eq!(wal.purge_before(last.zxid), 1);
    block_on(wal.upkeep().settle()).expect("a healthy disk");
    assert_eq!(names(), ["log.0000000000000002", "log.0000000000000003"]);
    assert!(matches!(wal.read_from(zxid(1, 1)), Err(ReadError::Purged { .. })));
    append(&mut wal, 2, 25_000);
    disk.crash(CrashMode::LoseUnsynced);
    let (_, recovered, replayed) = open(&disk).expect("a sound log");
    assert_eq!(recovered.after.zxid, zxid(1, 2));
    assert_eq!(replayed, zxids(3..=6));
}

#[test]
fn a_segment_is_not_reused_under_a_reader() {
    let (_, mut wal) = new_log();
    append(&mut wal, 6, 25_000);
    let mut reader = wal.read_from(zxid(1, 1)).expect("not purged");
    wal.purge_before(zxid(1, 6));
    block_on(wal.upkeep().settle()).expect("a healthy disk");
    append(&mut wal, 6, 25_000);
    for counter in 1..=6 {
        let frame = block_on(reader.next()).expect("sound").expect("a frame");
        assert_eq!(frame.meta().last_zxid, zxid(1, counter));
    }
}

#[test]
fn a_cut_log_continues_with_another_history() {
    let (disk, mut wal) = new_log();
    append(&mut wal, 10, 20_000);
    let cut = block_on(wal.truncate_after(zxid(1, 4))).expect("a boundary");
    assert_eq!(cut.zxid, zxid(1, 4));
    let (other, end) = batch(cut, zxid(2, 1), 3, b"another leader's");
    block_on(wal.append(&[other])).expect("it continues the cut");
    let expected = [zxids(1..=4), vec![zxid(2, 3)]].concat();
    assert_eq!(read(&wal, Zxid(1)), expected);
    block_on(wal.upkeep().settle()).expect("a healthy disk");
    disk.crash(CrashMode::LoseUnsynced);
    let (wal, _, replayed) = open(&disk).expect("a sound log");
    assert_eq!((wal.last(), replayed), (end, expected));
}

#[test]
fn a_log_is_cut_between_batches_only() {
    let (_, mut wal) = new_log();
    let (three, end) = batch(LogPosition::default(), zxid(1, 1), 3, b"");
    let (one, last) = batch(end, zxid(1, 4), 1, b"");
    block_on(wal.append(&[three, one])).expect("a healthy disk");
    assert!(matches!(block_on(wal.truncate_after(zxid(1, 2))), Err(TruncateError::NotABoundary { .. })));
    assert_eq!(wal.last(), last);
    assert_eq!(block_on(wal.truncate_after(zxid(1, 3))).expect("a boundary"), end);
    assert_eq!(block_on(wal.truncate_after(Zxid::ZERO)).expect("the beginning"), LogPosition::default());
}

#[test]
fn a_reset_log_goes_on_after_the_snapshot() {
    let (disk, mut wal) = new_log();
    append(&mut wal, 5, 30_000);
    let snapshot = LogPosition { zxid: zxid(7, 70), checksum: Checksum(0x1234) };
    block_on(wal.reset(snapshot.zxid, snapshot.checksum)).expect("a healthy disk");
    append(&mut wal, 2, 10);
    disk.crash(CrashMode::LoseUnsynced);
    let (_, recovered, replayed) = open(&disk).expect("a sound log");
    assert_eq!(recovered.after, snapshot);
    assert_eq!(replayed, [zxid(7, 71), zxid(7, 72)]);
}

#[test]
fn damage_before_durable_frames_is_corruption_at_its_place() {
    let (disk, mut wal) = new_log();
    for _ in 0..3 {
        append(&mut wal, 2, 1000);
    }
    for (offset, after, until) in [(4096 + 5, 0, 2), (4096 + 1500, 0, 2), (8192 + 2000, 2, 4)] {
        let disk = disk.fork();
        assert!(disk.rot("log.0000000000000001", offset, 0x40));
        disk.crash(CrashMode::LoseUnsynced);
        let Err(OpenError::Corrupt(corruption)) = open(&disk).map(|_| ()) else { panic!("offset {offset}") };
        assert_eq!(corruption.file, "log.0000000000000001");
        assert_eq!(corruption.offset, offset / 4096 * 4096);
        assert_eq!(corruption.after_zxid.counter(), after);
        assert_eq!(corruption.until_zxid, zxid(1, until));
    }
}

#[test]
fn damage_to_the_last_append_is_corruption_once_it_is_sealed() {
    let (disk, mut wal) = new_log();
    append(&mut wal, 1, 10);
    append(&mut wal, 1, 10);
    let unsealed = disk.fork();
    block_on(wal.seal()).expect("a healthy disk");
    for disk in [&disk, &unsealed] {
        assert!(disk.rot("log.0000000000000001", 8192 + 70, 1));
        disk.crash(CrashMode::LoseUnsynced);
    }
    assert!(matches!(open(&disk), Err(OpenError::Corrupt(_))));
    // Nothing on the disk tells this from a crash in the middle of the append.
    let (_, recovered, replayed) = open(&unsealed).expect("a torn log");
    assert_eq!((recovered.tail.is_torn(), replayed), (true, zxids(1..=1)));
}

#[test]
fn a_damaged_segment_header_is_corruption() {
    let (disk, mut wal) = new_log();
    append(&mut wal, 2, 10);
    append(&mut wal, 5, 30_000);
    append(&mut wal, 1, 10);
    let sequences = wal.segments.iter().map(|segment| segment.header.sequence);
    let files: Vec<_> = sequences.map(file_name).collect();
    assert_eq!(
        wal.segments.iter().map(|segment| segment.tip.zxid.counter()).collect::<Vec<_>>(),
        [3, 5, 7, 8]
    );
    block_on(wal.seal()).expect("a healthy disk");
    assert!(files.len() >= 3);
    for file in files {
        let disk = disk.fork();
        assert!(disk.rot(&file, 40, 1));
        disk.crash(CrashMode::LoseUnsynced);
        let refused = open(&disk).map(|_| ()).expect_err("a lost header");
        assert!(matches!(refused, OpenError::Corrupt(_)), "{file}: {refused}");
    }
}

#[test]
fn a_rotten_cut_does_not_bring_frames_back() {
    let (disk, mut wal) = new_log();
    append(&mut wal, 4, 10);
    block_on(wal.truncate_after(zxid(1, 2))).expect("a boundary");
    let file = wal.segments.back().expect("never empty").name();
    assert!(disk.rot(&file, 40, 1));
    disk.crash(CrashMode::LoseUnsynced);
    assert!(matches!(open(&disk), Err(OpenError::Corrupt(_))));
}

#[test]
fn batches_are_found_by_their_last_zxid() {
    let (_, mut wal) = new_log();
    let (three, end) = batch(LogPosition::default(), zxid(1, 1), 3, b"");
    block_on(wal.append(&[three])).expect("a healthy disk");
    let find = |zxid| block_on(wal.find(zxid)).expect("sound");
    assert_eq!(find(end.zxid), Some(end));
    assert_eq!(find(Zxid::ZERO), Some(LogPosition::default()));
    assert_eq!((find(zxid(1, 2)), find(zxid(1, 4))), (None, None));
}

#[test]
fn a_second_seal_writes_nothing() {
    let (disk, mut wal) = new_log();
    append(&mut wal, 1, 10);
    block_on(wal.seal()).expect("a healthy disk");
    let operations = disk.operations();
    block_on(wal.seal()).expect("a healthy disk");
    assert_eq!(disk.operations(), operations);
}

#[test]
fn a_missing_segment_is_named() {
    let (disk, mut wal) = new_log();
    append(&mut wal, 8, 30_000);
    block_on(disk.storage().remove("log.0000000000000002")).expect("it is there");
    let refused = open(&disk).map(|_| ()).expect_err("a gap");
    assert!(
        matches!(&refused, OpenError::MissingSegment { missing, .. } if missing == "log.0000000000000002")
    );
}

#[test]
fn another_servers_log_is_refused() {
    let disk = MemoryDisk::new();
    open(&disk).expect("an empty folder");
    let mut options = options();
    options.identity.owner[0] ^= 1;
    let refused = block_on(Wal::open(disk.storage(), options, |_| Ok(()))).map(|_| ());
    assert!(matches!(refused, Err(OpenError::Foreign { .. })));
}

#[test]
fn a_group_inside_of_clients_data_proves_nothing() {
    let (disk, mut wal) = new_log();
    append(&mut wal, 1, 10);
    let forged = GroupHeader {
        home: crate::group::Home { segment: 1, salt: 0xbad },
        number: 1000,
        durable: 999,
        after_zxid: zxid(1, 9),
        frames: 0,
        body_len: 0,
    };
    let payload: Vec<u8> = forged.encode().repeat(200);
    let (frame, _) = batch(wal.last(), zxid(1, 2), 1, &payload);
    block_on(wal.append(&[frame])).expect("a healthy disk");
    assert!(disk.rot("log.0000000000000001", 8192, 1));
    disk.crash(CrashMode::LoseUnsynced);
    let (_, _, replayed) = open(&disk).expect("a torn log");
    assert_eq!(replayed, zxids(1..=1));
}

/// A sync fails, and the process ends. What it was to write is in the system's memory alone, and no sync
/// writes it any more (<https://wiki.postgresql.org/wiki/Fsync_Errors>). The next process reads it as a sound
/// end of the log, and says that it is durable: so it has to be.
#[test]
fn what_a_start_finds_behind_a_failed_sync_is_durable_afterwards() {
    let (disk, mut wal) = new_log();
    let durable = append(&mut wal, 1, 10);
    let effect = Effect::Drop { cached: true };
    disk.inject(Fault { kind: OpKind::Sync, prefix: "log".into(), skip: 0, times: 1, effect });
    let (frames, end) = batches(durable, 2, 5000);
    assert!(matches!(block_on(wal.append(&frames)), Err(AppendError::Failed(_))));
    disk.end_process();
    assert_eq!(open(&disk).expect("a sound log").0.last(), end);
    disk.crash(CrashMode::LoseUnsynced);
    assert_eq!(open(&disk).expect("a sound log").0.last(), end);
}
