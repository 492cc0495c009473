use std::collections::BTreeMap;

use futures_lite::future::{block_on, poll_once};
use ringkeeper_wire::ServerId;

use super::*;
use crate::frame::{AlignedBuf, Checksum, Meta};
use crate::memory::{CrashMode, MemoryDisk, MemoryStorage};
use crate::segment::sequence_of;
use crate::snapshot::{Contents, Head};
use crate::storage::WriteMode;

type Disk = MemoryDisk;
type Frames = BTreeMap<Zxid, Checksum>;

fn zxid(epoch: u32, counter: u32) -> Zxid {
    Zxid::new(Epoch(epoch), counter)
}

fn meta(disk: &Disk) -> MetaStore<MemoryStorage> {
    block_on(MetaStore::open(disk.storage(), ServerId(1), 77)).expect("a folder of ours")
}

fn options(disk: &Disk) -> Options {
    let identity = meta(disk).meta().identity();
    Options { segment_size_bytes: 64 * 1024, write_mode: WriteMode::Synced, ..Options::new(identity) }
}

fn open(disk: &Disk) -> Result<(Wal<MemoryStorage>, Frames), OpenError> {
    let mut frames = Frames::new();
    let opened = block_on(Wal::open(disk.storage(), options(disk), |frame| {
        frames.insert(frame.meta().last_zxid, frame.checksum());
        Ok(())
    }));
    opened.map(|(wal, _)| (wal, frames))
}

fn append(wal: &mut Wal<MemoryStorage>, epoch: u32, groups: u32) {
    for group in 0..groups {
        let mut after = wal.last();
        let mut frames = Vec::new();
        for _ in 0..=group % 3 {
            let first =
                if after.zxid.epoch() == Epoch(epoch) { Zxid(after.zxid.0 + 1) } else { zxid(epoch, 1) };
            let meta = Meta { epoch: Epoch(epoch), first_zxid: first, last_zxid: Zxid(first.0 + 1) };
            let mut bytes = AlignedBuf::new();
            let payload = vec![7; [40, 3000, 9000][(group % 3) as usize]];
            let checksum = frame::encode(meta, &payload, after.checksum, &mut bytes).expect("fitting zxids");
            after = LogPosition { zxid: Zxid(first.0 + 1), checksum };
            frames.push(bytes);
        }
        block_on(wal.append(&frames)).expect("a healthy disk");
    }
}

/// A sealed log of several segments, of which two were begun by cutting the one before.
fn log() -> (Disk, Frames) {
    let disk = Disk::new();
    let (mut wal, _) = open(&disk).expect("an empty folder");
    append(&mut wal, 1, 24);
    let cut = Zxid(wal.last().zxid.0 - 12);
    append(&mut wal, 1, 2);
    block_on(wal.truncate_after(cut)).expect("a position of the log");
    append(&mut wal, 2, 20);
    let cut = Zxid(wal.last().zxid.0 - 2);
    block_on(wal.truncate_after(cut)).expect("a position of the log");
    append(&mut wal, 3, 30);
    block_on(wal.upkeep().settle()).expect("a healthy disk");
    block_on(wal.seal()).expect("a healthy disk");
    drop(wal);
    disk.crash(CrashMode::LoseUnsynced);
    let (_, frames) = open(&disk).expect("a sound log");
    (disk, frames)
}

fn snapshot(disk: &Disk, zxid: Zxid, chain: Checksum) {
    let head = Head { zxid, chain, cluster: 0, state_version: 1 };
    block_on(async {
        let mut writer = Snapshots::new(disk.storage()).begin(head).await.expect("a healthy disk");
        writer.block(&[1; 100]).await.expect("a healthy disk");
        writer.finish(Contents { items: 1, digest: 0 }).await.expect("a healthy disk");
    });
}

/// Every block of every segment's file.
fn blocks(disk: &Disk) -> Vec<(String, u64)> {
    let mut names = block_on(disk.storage().list()).expect("a healthy disk");
    names.retain(|name| sequence_of(name).is_some());
    names.sort();
    let len = |name: &str| disk.contents(name).expect("is there").len() as u64;
    names
        .into_iter()
        .flat_map(|name| (0..len(&name) / BLOCK).map(move |block| (name.clone(), block)))
        .collect()
}

fn try_salvage(disk: &Disk) -> impl Future<Output = Result<Salvage, SalvageError>> {
    let (storage, options, mut meta) = (disk.storage(), options(disk), meta(disk));
    async move { salvage(&storage, &options, &Snapshots::new(storage.clone()), &mut meta).await }
}

/// What is left is what was there, goes on from the snapshot, and nothing is missing without a record of it.
fn check(disk: &Disk, whole: &Frames, snapshot: Zxid, place: &str) -> bool {
    let last = *whole.keys().next_back().expect("a log");
    let (mut wal, frames) = open(disk).unwrap_or_else(|error| panic!("{place}: {error}"));
    assert!(frames.iter().all(|(zxid, checksum)| whole.get(zxid) == Some(checksum)), "{place}");
    assert!(wal.after_zxid() <= snapshot && wal.last().zxid >= snapshot, "{place}: a gap to the snapshot");
    let after = wal.after_zxid();
    let end = wal.last().zxid;
    let kept = whole.range(Zxid(after.0 + 1)..).take_while(|(zxid, _)| **zxid <= end);
    assert!(frames.iter().eq(kept), "{place}: a hole");
    let lost = wal.last().zxid < last;
    assert_eq!(meta(disk).meta().promises.end_before_damage, if lost { last } else { Zxid::ZERO }, "{place}");
    append(&mut wal, 4, 3);
    let end = wal.last();
    drop(wal);
    disk.crash(CrashMode::LoseUnsynced);
    assert_eq!(open(disk).expect("a sound log").0.last(), end, "{place}");
    lost
}

#[test]
fn one_flipped_bit_in_any_block_leaves_a_sound_log_and_a_claim_on_the_rest() {
    let (disk, whole) = log();
    let zxids: Vec<Zxid> = whole.keys().copied().collect();
    let (mut damaged, mut lost) = (0, 0);
    for covered in [None, Some(zxids.len() / 3), Some(zxids.len() * 2 / 3), Some(zxids.len() - 1)] {
        let disk = disk.fork();
        let newest = covered.map_or(Zxid::ZERO, |index| zxids[index]);
        if newest > Zxid::ZERO {
            snapshot(&disk, Zxid(newest.0), whole[&newest]);
        }
        for (index, (name, block)) in blocks(&disk).into_iter().enumerate() {
            let disk = disk.fork();
            let place = format!("{name} block {block}, snapshot {newest}");
            // Headers, bodies and padding, each in its turn.
            let offset = block * BLOCK + [9, 30, 50, 70, 800][index % 5];
            assert!(disk.rot(&name, offset, 1 << (index % 8)));
            if let Err(error) = open(&disk) {
                assert!(error.is_damage(), "{place}: {error}");
                damaged += 1;
                let rotten = disk.contents(&name).expect("is there");
                let salvaged =
                    block_on(try_salvage(&disk)).unwrap_or_else(|error| panic!("{place}: {error}"));
                assert!(!salvaged.damage.is_empty(), "{place}");
                assert_eq!(salvaged.last_zxid, zxids[zxids.len() - 1], "{place}");
                let kept = salvaged
                    .kept
                    .iter()
                    .find(|kept| kept.ends_with(&name))
                    .expect("the damaged file is kept");
                assert_eq!(disk.contents(kept).expect("is there"), rotten, "{place}");
                lost += u32::from(salvaged.lost);
            }
            check(&disk, &whole, Zxid(newest.0), &place);
        }
    }
    println!("{damaged} damaged blocks, {lost} of them with something lost");
    assert!(damaged > 100 && lost > 50 && damaged > lost);
}

/// Damages the log in the middle of what it has, and has it salvaged.
fn damage_and_salvage(disk: &Disk) -> Salvage {
    for (name, block) in blocks(disk) {
        let rotten = disk.fork();
        if block > 2 && rotten.rot(&name, block * BLOCK + 70, 1) && open(&rotten).is_err() {
            assert!(disk.rot(&name, block * BLOCK + 70, 1));
            break;
        }
    }
    block_on(try_salvage(disk)).expect("salvaged")
}

fn kept(disk: &Disk) -> Vec<String> {
    let mut names = block_on(disk.storage().list()).expect("a healthy disk");
    names.retain(|name| name.starts_with("salvaged."));
    names.sort();
    names
}

#[test]
fn what_is_kept_of_damaged_logs_is_what_the_last_three_salvages_took_out() {
    let (disk, _) = log();
    for round in 1..6_u32 {
        let salvaged = damage_and_salvage(&disk);
        let now = kept(&disk);
        let of =
            |number: u32| now.iter().filter(|name| name.starts_with(&format!("salvaged.{number}."))).count();
        assert_eq!(of(round), salvaged.kept.len(), "{now:?}");
        assert!((1..=round).all(|number| (of(number) > 0) == (number + 3 > round)), "{round}: {now:?}");
        let (mut wal, _) = open(&disk).expect("a sound log");
        append(&mut wal, 10 + round, 30);
        block_on(wal.seal()).expect("a healthy disk");
    }
}

#[test]
fn nothing_is_kept_for_which_there_is_no_room_and_a_full_disk_lets_go_of_it() {
    let (disk, _) = log();
    let full = disk.fork();
    let segment = options(&disk).segment_size_bytes;
    full.set_capacity_bytes(Some(full.used_bytes() + 2 * segment));
    assert!(damage_and_salvage(&full).kept.len() < damage_and_salvage(&disk.fork()).kept.len());

    let names = damage_and_salvage(&disk).kept;
    let used = disk.used_bytes();
    assert_eq!(block_on(let_go(&disk.storage())).expect("a healthy disk"), names.len());
    assert!(kept(&disk).is_empty() && disk.used_bytes() < used);
    open(&disk).expect("the log is as it was");
}

#[test]
fn two_damaged_places_leave_a_sound_log_too() {
    let (disk, whole) = log();
    let blocks = blocks(&disk);
    let last = *whole.keys().next_back().expect("a log");
    for (index, (name, block)) in blocks.iter().enumerate().step_by(3) {
        for (other, other_block) in blocks.iter().skip(index + 1).step_by(5) {
            let disk = disk.fork();
            let place = format!("{name} block {block} and {other} block {other_block}");
            assert!(disk.rot(name, block * BLOCK + 9, 4));
            assert!(disk.rot(other, other_block * BLOCK + 70, 1));
            if open(&disk).is_err() {
                let salvaged =
                    block_on(try_salvage(&disk)).unwrap_or_else(|error| panic!("{place}: {error}"));
                // The seal that told how far the log went may be one of them; its last group is then taken
                // for torn.
                assert!(salvaged.last_zxid <= last, "{place}");
            }
            let (wal, frames) = open(&disk).unwrap_or_else(|error| panic!("{place}: {error}"));
            assert!(frames.iter().eq(whole.range(..=wal.last().zxid)), "{place}");
        }
    }
}

#[test]
fn a_salvage_that_a_crash_interrupts_is_done_again_and_forgets_no_claim() {
    let (disk, whole) = log();
    let zxids: Vec<Zxid> = whole.keys().copied().collect();
    let middle = zxids[zxids.len() / 2];
    for covered in [None, Some(middle)] {
        if let Some(zxid) = covered {
            snapshot(&disk, zxid, whole[&zxid]);
        }
        // One in the first segment, which the snapshot covers, and one behind it.
        for (name, block) in [&blocks(&disk)[3], &blocks(&disk)[60]] {
            let damaged = disk.fork();
            assert!(damaged.rot(name, block * BLOCK + 70, 1));
            if open(&damaged).is_ok() {
                panic!("{name} block {block} is not in use");
            }
            for halt in 0.. {
                let disk = damaged.fork();
                let salvaged = try_salvage(&disk);
                disk.halt_after(halt);
                let done = block_on(poll_once(salvaged)).is_some();
                for seed in 0..5 {
                    let disk = disk.fork();
                    disk.crash(CrashMode::Tear { seed });
                    let place = format!("{name} block {block}, {halt} operations, seed {seed}");
                    if open(&disk).is_err() {
                        block_on(try_salvage(&disk)).unwrap_or_else(|error| panic!("{place}: {error}"));
                    }
                    check(&disk, &whole, covered.unwrap_or_default(), &place);
                }
                if done {
                    assert!(halt > 3, "{halt} operations");
                    break;
                }
            }
        }
    }
}

#[test]
fn a_log_whose_files_are_all_gone_leaves_a_server_with_a_new_disk_and_a_claim() {
    let (disk, whole) = log();
    let newest = *whole.keys().nth(40).expect("a log");
    snapshot(&disk, newest, whole[&newest]);
    let is_gone = || block_on(is_gone(&disk.storage(), &meta(&disk))).expect("a healthy disk");
    assert!(!is_gone());
    let promises = PersistedEpochs {
        accepted_epoch: Epoch(3),
        current_epoch: Epoch(3),
        initialized: true,
        ..PersistedEpochs::default()
    };
    block_on(meta(&disk).promise(promises)).expect("a healthy disk");
    for name in block_on(disk.storage().list()).expect("a healthy disk") {
        if sequence_of(&name).is_some() {
            block_on(disk.storage().remove(&name)).expect("a healthy disk");
        }
    }
    assert!(is_gone());
    let snapshots = Snapshots::new(disk.storage());
    let names = block_on(begin_without(&snapshots, &mut meta(&disk))).expect("a healthy disk");
    assert_eq!(kept(&disk), names);
    assert!(block_on(snapshots.list()).expect("a healthy disk").is_empty() && is_gone());
    let PersistedEpochs { end_before_damage, initialized, current_epoch, .. } = meta(&disk).meta().promises;
    assert_eq!((end_before_damage, initialized, current_epoch), (newest, false, Epoch(3)));
    let (wal, _) = open(&disk).expect("a new log");
    assert_eq!(wal.last(), LogPosition::default());
    assert!(!is_gone());
}

#[test]
fn a_log_without_a_snapshot_that_reaches_it_begins_anew_with_a_claim() {
    let (disk, whole) = log();
    let last = *whole.keys().next_back().expect("a log");
    let newest = *whole.keys().nth(40).expect("a log");
    snapshot(&disk, newest, whole[&newest]);
    let (mut wal, _) = open(&disk).expect("a sound log");
    assert!(wal.purge_before(newest) > 0);
    let segments = wal.segments().count();
    let snapshots = Snapshots::new(disk.storage());
    let names = block_on(begin_anew(&mut wal, &snapshots, &mut meta(&disk))).expect("a healthy disk");
    assert_eq!(names.iter().filter(|name| name.starts_with("salvaged.1.log.")).count(), segments);
    assert_eq!(names.iter().filter(|name| name.starts_with("salvaged.1.snapshot.")).count(), 1);
    assert_eq!(kept(&disk).len(), names.len());
    assert_eq!(wal.last(), LogPosition::default());
    assert_eq!(meta(&disk).meta().promises.end_before_damage, last);
    assert!(block_on(snapshots.list()).expect("a healthy disk").is_empty());
}

#[test]
fn a_log_that_a_crash_keeps_from_beginning_anew_is_never_empty_beside_a_snapshot() {
    let (disk, whole) = log();
    let newest = *whole.keys().nth(40).expect("a log");
    snapshot(&disk, newest, whole[&newest]);
    let (mut wal, _) = open(&disk).expect("a sound log");
    assert!(wal.purge_before(newest) > 0);
    block_on(wal.upkeep().settle()).expect("a healthy disk");
    drop(wal);
    for halt in 0.. {
        let disk = disk.fork();
        let (mut wal, _) = open(&disk).expect("a sound log");
        let snapshots = Snapshots::new(disk.storage());
        let mut meta = meta(&disk);
        disk.halt_after(halt);
        let done = block_on(poll_once(begin_anew(&mut wal, &snapshots, &mut meta))).is_some();
        for seed in 0..5 {
            let disk = disk.fork();
            disk.crash(CrashMode::Tear { seed });
            let (wal, _) = open(&disk).unwrap_or_else(|error| panic!("{halt} operations, {seed}: {error}"));
            let left = block_on(Snapshots::new(disk.storage()).list()).expect("a healthy disk");
            let place = format!("{halt} operations, seed {seed}: {left:?} beside {:?}", wal.last());
            assert!(wal.last().zxid > Zxid::ZERO || left.is_empty(), "{place}");
        }
        if done {
            assert!(halt > 3, "{halt} operations");
            break;
        }
    }
}
