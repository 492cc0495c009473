//! Snapshots: what writes, names, receives, installs and removes them.

use futures_lite::future::block_on;
use ringkeeper_log::memory::{CrashMode, MemoryDisk};
use ringkeeper_log::snapshot;
use ringkeeper_log::storage::WriteMode;
use ringkeeper_wire::Zxid;

use crate::examine::{Sequence, examine};
use crate::folder::Step::{Append, Purge, Receive, Seal, Snapshot, Start, Withdraw};
use crate::folder::{Folder, How, Model};

/// A snapshot is written, made durable and named, beside one that is there.
#[test]
fn a_snapshot_is_written_and_named() {
    let before = &[Append(&[10]), Snapshot, Append(&[10])];
    examine(&Sequence { name: "snapshot", before, steps: &[Snapshot, Append(&[10])], reserve: false });
}

/// The oldest snapshots go, and the log before the oldest that is kept.
#[test]
fn old_snapshots_go_and_the_log_before_them() {
    let before = &[
        Append(&[10]),
        Snapshot,
        Append(&[55_000]),
        Append(&[10]),
        Snapshot,
        Append(&[55_000]),
        Append(&[10]),
    ];
    let steps = &[Snapshot, Purge, Append(&[10])];
    examine(&Sequence { name: "snapshot, purge", before, steps, reserve: false });
}

/// A snapshot from another server takes the place of log and snapshots (the log's `reset`), and the log goes
/// on after it.
#[test]
fn a_received_snapshot_takes_the_place_of_everything() {
    let before = &[Append(&[10, 10]), Snapshot, Append(&[10])];
    let steps = &[Receive(0x2_0000_0009), Append(&[10])];
    examine(&Sequence { name: "receive, reset, install", before, steps, reserve: false });
}

/// The same with a snapshot that ends before the log does: the rest was never committed.
#[test]
fn a_received_snapshot_may_end_before_the_log() {
    let before = &[Append(&[10, 10]), Snapshot, Append(&[10]), Append(&[10])];
    let steps = &[Receive(0x1_0000_0003), Append(&[10])];
    examine(&Sequence { name: "receive, shorter", before, steps, reserve: false });
}

/// Two snapshots are received, with the servers' own in between.
#[test]
fn a_snapshot_is_received_after_another() {
    let before = &[Append(&[10]), Receive(0x2_0000_0009), Append(&[10]), Snapshot];
    let steps = &[Receive(0x4_0000_0001), Snapshot, Append(&[10]), Snapshot, Purge];
    examine(&Sequence { name: "receive again", before, steps, reserve: false });
}

/// A received snapshot is given up, because there was no room for the log to begin anew.
#[test]
fn a_received_snapshot_is_withdrawn() {
    let before = &[Append(&[10]), Snapshot];
    let steps = &[Withdraw(0x2_0000_0009), Append(&[10]), Seal, Start, Append(&[10])];
    examine(&Sequence { name: "withdraw", before, steps, reserve: false });
}

/// A newest snapshot that is damaged is no loss: an older one is kept, and the log behind it.
#[test]
fn the_log_reaches_back_to_the_oldest_snapshot_that_is_kept() {
    block_on(async {
        let disk = MemoryDisk::new();
        let how = How { mode: WriteMode::Synced, reserve: false };
        let (mut folder, _) = Folder::open(&disk, how).await.expect("a new folder");
        let mut model = Model::new();
        for _ in 0..4 {
            for step in [Append(&[55_000]), Append(&[55_000]), Snapshot, Purge] {
                folder.perform(&model, step).await.expect("a healthy disk");
                model = model.outcomes(step).pop().expect("never empty");
            }
        }
        assert!(folder.wal.base().zxid > Zxid::ZERO, "something was purged");
        drop(folder);
        disk.crash(CrashMode::KeepAll);
        assert!(disk.rot(&snapshot::file_name(model.held().last.zxid), 0, 1));
        let (_, held) = Folder::open(&disk, how).await.expect("an older snapshot");
        assert_eq!(held, model.held());
    });
}
