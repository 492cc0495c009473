use futures_lite::future::block_on;
use ringkeeper_wire::{Epoch, ServerId};

use super::*;
use crate::examine::{Examination, Fault, Unobserved};
use crate::frame::{Checksum, Meta, encode};
use crate::memory::{CrashMode, MemoryDisk, MemoryStorage};
use crate::meta::MetaStore;
use crate::storage::BLOCK_LEN;

const SEED: u64 = 0x5eed;

fn options(disk: &MemoryDisk) -> Options {
    let meta = block_on(MetaStore::open(disk.storage(), ServerId(1), SEED)).expect("a sound folder");
    Options { segment_size_bytes: 64 * 1024, ..Options::new(meta.meta().identity()) }
}

fn zxid(counter: u64) -> Zxid {
    Zxid(1 << 32 | counter)
}

fn zxids(counters: std::ops::RangeInclusive<u64>) -> Vec<Zxid> {
    counters.map(zxid).collect()
}

/// Frames of one transaction each, continuing `after`.
fn frames(mut after: LogPosition, count: usize, payload_len: usize) -> Vec<AlignedBuf> {
    let frame = |_| {
        let first_zxid = if after.zxid == Zxid::ZERO { zxid(1) } else { Zxid(after.zxid.0 + 1) };
        let meta = Meta { epoch: Epoch(1), first_zxid, last_zxid: first_zxid };
        let mut bytes = AlignedBuf::new();
        let payload = vec![u8::try_from(first_zxid.0 & 0xff).expect("one byte"); payload_len];
        let checksum = encode(meta, &payload, after.checksum, &mut bytes).expect("fitting zxids");
        after = LogPosition { zxid: first_zxid, checksum };
        bytes
    };
    (0..count).map(frame).collect()
}

/// Groups of 1 to 3 frames, 90 in all, in three segments, sealed.
fn log() -> MemoryDisk {
    let disk = MemoryDisk::new();
    let options = options(&disk);
    let (mut wal, _) = block_on(Wal::open(disk.storage(), options, |_| Ok(()))).expect("an empty folder");
    for round in 0..45 {
        let group = frames(wal.last(), 1 + round % 3, 1500);
        block_on(wal.append(&group)).expect("a healthy disk");
    }
    block_on(wal.seal()).expect("a healthy disk");
    drop(wal);
    disk.crash(CrashMode::LoseUnsynced);
    disk
}

const LAST: u64 = 90;

fn segments(disk: &MemoryDisk) -> Vec<(String, Vec<u8>)> {
    let mut names = block_on(disk.storage().list()).expect("a healthy disk");
    names.retain(|name| sequence_of(name).is_some());
    names.sort_unstable();
    let contents = |name: String| {
        let bytes = disk.contents(&name).expect("listed");
        (name, bytes)
    };
    names.into_iter().map(contents).collect()
}

fn opened(disk: &MemoryDisk) -> Result<Vec<Zxid>, OpenError> {
    let mut replayed = Vec::new();
    let opened = block_on(Wal::open(disk.storage(), options(disk), |frame| {
        replayed.push(frame.meta().last_zxid);
        Ok(())
    }));
    opened.map(|_| replayed)
}

fn look(disk: &MemoryDisk) -> Examination {
    block_on(examine(&disk.storage(), options(disk).identity, &mut Unobserved)).expect("a healthy disk")
}

fn rewrite_to(disk: &MemoryDisk, after: LogPosition, until: Zxid) -> Result<Repaired, RepairError> {
    let snapshots = Snapshots::new(disk.storage());
    let extent = Extent { after, until_zxid: until, known_zxid: zxid(LAST) };
    block_on(rewrite(&disk.storage(), &snapshots, options(disk), extent))
}

fn end_before_damage(disk: &MemoryDisk) -> Zxid {
    let meta = block_on(MetaStore::open(disk.storage(), ServerId(1), SEED)).expect("a sound folder");
    meta.meta().promises.end_before_damage
}

fn contains(disk: &MemoryDisk, bytes: &[u8]) -> bool {
    let names = block_on(disk.storage().list()).expect("a healthy disk");
    names.iter().any(|name| disk.contents(name).as_deref() == Some(bytes))
}

#[test]
fn a_sound_log_has_no_damage_and_one_fragment() {
    let disk = log();
    let found = look(&disk);
    assert!(found.verdict.is_ok() && found.damages.is_empty(), "{found:?}");
    let [fragment] = found.fragments[..] else { panic!("{found:?}") };
    assert_eq!((fragment.after, fragment.last.zxid), (LogPosition::default(), zxid(LAST)));
    assert_eq!(found.segments.iter().map(|segment| segment.frames).sum::<u64>(), LAST);
    assert_eq!(found.last_known_zxid, zxid(LAST));
}

/// One flipped bit in each block in turn: either nothing is lost, or the place is named, and a repair keeps
/// everything before it and loses no file.
#[test]
fn a_flipped_bit_in_any_block_is_harmless_or_named_and_repaired_without_losing_what_is_sound() {
    let disk = log();
    let mut blocks = 0;
    let mut named = 0;
    for (file, bytes) in segments(&disk) {
        for block in 0..bytes.len() / BLOCK_LEN {
            // Another byte and bit in each block, and always one that every group's header has.
            for at in [block * 997 % BLOCK_LEN, block * 13 % 64] {
                let offset = (block * BLOCK_LEN + at) as u64;
                let harmed = disk.fork();
                assert!(harmed.rot(&file, offset, 1 << (block % 8)));
                blocks += 1;
                named += usize::from(survives(&harmed, &file, block));
            }
        }
    }
    println!("{blocks} flipped bits, {named} named");
    assert!(named > 60, "{named} of {blocks}");
}

/// Whether the damage shows.
fn survives(disk: &MemoryDisk, file: &str, block: usize) -> bool {
    let found = look(disk);
    let verdict = opened(&disk.fork());
    assert_eq!(found.verdict.is_ok(), verdict.is_ok(), "{file} block {block}: {found:?}");
    if let Ok(replayed) = verdict {
        assert_eq!(replayed, zxids(1..=LAST), "{file} block {block}");
        assert!(found.damages.is_empty(), "{file} block {block}: {found:?}");
        return false;
    }
    let damage = found.damages.first().expect("a refusal has a place");
    assert_eq!(damage.file, file, "block {block}: {damage}");
    assert!(damage.offset <= ((block + 1) * BLOCK_LEN) as u64, "{file} block {block}: {damage}");
    let kept = found.fragments[0].last.zxid;
    assert!(kept >= damage.after_zxid, "{damage}");
    assert_eq!(found.last_known_zxid, zxid(LAST), "{file} block {block}: {found:?}");
    let readable: u64 = found.segments.iter().map(|segment| segment.frames).sum();
    assert!(readable + 3 >= LAST, "one bit harms one group: {found:?}");
    let before = segments(disk);
    rewrite_to(disk, found.base(), kept).expect("repaired");
    let expected: Vec<Zxid> = zxids(1..=LAST).into_iter().filter(|zxid| *zxid <= kept).collect();
    assert_eq!(opened(disk).expect("sound"), expected, "{file} block {block}");
    let lost = kept < zxid(LAST);
    assert_eq!(end_before_damage(disk), if lost { zxid(LAST) } else { Zxid::ZERO }, "{file} block {block}");
    for (name, bytes) in before {
        assert!(contains(disk, &bytes), "{name} is gone: {file} block {block}");
    }
    true
}

#[test]
fn a_harmed_group_header_loses_no_transaction() {
    let disk = log();
    assert!(disk.rot("log.0000000000000001", 2 * BLOCK_LEN as u64 + 20, 1));
    let found = look(&disk);
    let [damage] = &found.damages[..] else { panic!("{found:?}") };
    assert_eq!((&damage.fault, damage.loses()), (&Fault::GroupHeader, false));
    let [fragment] = found.fragments[..] else { panic!("{found:?}") };
    assert_eq!(rewrite_to(&disk, found.base(), fragment.last.zxid).expect("repaired").last, fragment.last);
    assert_eq!(opened(&disk).expect("sound"), zxids(1..=LAST));
}

#[test]
fn a_log_can_begin_anew_behind_damage() {
    let disk = log();
    assert!(disk.rot("log.0000000000000001", BLOCK_LEN as u64 + 200, 1));
    let found = look(&disk);
    let [lost, kept] = found.fragments[..] else { panic!("{found:?}") };
    assert_eq!(lost.last, LogPosition::default());
    rewrite_to(&disk, kept.after, kept.last.zxid).expect("repaired");
    assert_eq!(opened(&disk).expect("sound"), zxids(2..=LAST));
}

#[test]
fn a_missing_segment_is_named_and_what_is_before_it_can_be_kept() {
    let disk = log();
    block_on(disk.storage().remove("log.0000000000000002")).expect("removed");
    let found = look(&disk);
    assert!(matches!(found.verdict, Err(OpenError::MissingSegment { .. })), "{found:?}");
    let damage = found.damages.first().expect("named");
    assert_eq!((damage.file.as_str(), &damage.fault), ("log.0000000000000002", &Fault::Missing));
    assert!(damage.loses() && found.fragments.len() == 2, "{found:?}");
    let kept = found.fragments[0].last.zxid;
    rewrite_to(&disk, found.base(), kept).expect("repaired");
    assert_eq!(opened(&disk).expect("sound").last(), Some(&kept));
}

#[test]
fn snapshots_behind_the_new_end_are_set_aside_and_others_stay() {
    let disk = log();
    let snapshots = Snapshots::new(disk.storage());
    for zxid in [zxid(3), zxid(50)] {
        let head = snapshot::Head { zxid, chain: Checksum::NONE, cluster: 1, state_version: 1 };
        let writer = block_on(snapshots.begin(head)).expect("a healthy disk");
        block_on(writer.finish(snapshot::Contents::default())).expect("a healthy disk");
    }
    let repaired = rewrite_to(&disk, LogPosition::default(), zxid(40)).expect("repaired");
    assert_eq!(repaired.set_aside.1, ["aside.1.snapshot.0000000100000032"]);
    assert_eq!(block_on(snapshots.list()).expect("a healthy disk"), [zxid(3)]);
    assert_eq!(opened(&disk).expect("sound").last(), Some(&zxid(40)));
}

#[test]
fn what_is_not_the_end_of_a_batch_or_not_there_changes_nothing() {
    let disk = log();
    let before = segments(&disk);
    let refused = rewrite_to(&disk, LogPosition::default(), zxid(91)).expect_err("there is no such zxid");
    assert!(matches!(refused, RepairError::Unreached { .. }), "{refused}");
    assert_eq!(segments(&disk), before);
    assert_eq!(opened(&disk).expect("as before").len(), 90);
}

/// The power fails at each operation of a repair in turn: a server then refuses or finds the old damage,
/// never anything else, and the repair can be done again or finished.
#[test]
fn a_crash_at_any_moment_of_a_repair_leaves_the_old_log_or_something_to_finish() {
    let origin = log();
    assert!(origin.rot("log.0000000000000002", 3 * BLOCK_LEN as u64 + 200, 1));
    let kept = look(&origin).fragments[0].last.zxid;
    let mut crashes = 0;
    for halt_after in 0.. {
        for mode in [CrashMode::LoseUnsynced, CrashMode::KeepAll, CrashMode::Tear { seed: halt_after }] {
            let disk = origin.fork();
            let identity = options(&disk).identity;
            disk.halt_after(halt_after);
            let result = rewrite_halting(&disk, kept, identity);
            if !disk.halted() {
                result.expect("nothing went wrong");
                println!("{crashes} crashes");
                assert!(crashes > 100);
                return;
            }
            disk.crash(mode);
            crashes += 1;
            assert_finishes(&disk, kept, identity, halt_after);
        }
    }
}

fn rewrite_halting(disk: &MemoryDisk, kept: Zxid, identity: Identity) -> Result<Repaired, RepairError> {
    let options = Options { segment_size_bytes: 64 * 1024, ..Options::new(identity) };
    let (storage, snapshots) = (disk.storage(), Snapshots::new(disk.storage()));
    let extent = Extent { after: LogPosition::default(), until_zxid: kept, known_zxid: zxid(LAST) };
    let mut repair = std::pin::pin!(rewrite(&storage, &snapshots, options, extent));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    loop {
        match repair.as_mut().poll(&mut context) {
            std::task::Poll::Ready(result) => return result,
            std::task::Poll::Pending if disk.halted() => return Err(RepairError::Interrupted),
            std::task::Poll::Pending => {}
        }
    }
}

fn assert_finishes(disk: &MemoryDisk, kept: Zxid, identity: Identity, halt_after: u64) {
    let starts = disk.fork();
    let server = block_on(MetaStore::open(starts.storage(), ServerId(1), SEED));
    let interrupted = block_on(interrupted(&disk.storage())).expect("a healthy disk");
    match (server, interrupted) {
        (Ok(_), None) => {
            // The meta file has its name again last of all.
            let replayed = opened(&starts);
            let done = replayed.as_ref().is_ok_and(|zxids| zxids.last() == Some(&kept));
            assert!(done || matches!(replayed, Err(OpenError::Corrupt(_))), "{halt_after}: {replayed:?}");
            if !done {
                rewrite_halting(disk, kept, identity).expect("repaired");
            }
        }
        (Err(meta::MetaError::Missing { .. }), Some(_)) => {
            let storage: MemoryStorage = disk.storage();
            block_on(finish(&storage, &Snapshots::new(storage.clone()), identity)).expect("finished");
        }
        (server, interrupted) => {
            panic!("{halt_after}: {:?} with {interrupted:?}", server.map(|_| "a start"));
        }
    }
    assert_eq!(opened(disk).expect("sound").last(), Some(&kept), "{halt_after}");
    assert_eq!(end_before_damage(disk), zxid(LAST), "{halt_after}");
}
