//! Snapshots: what writes, names, receives, installs and removes them.

use crate::examine::{Sequence, examine};
use crate::folder::Step::{Append, Purge, Receive, Seal, Snapshot, Start, Withdraw};

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
