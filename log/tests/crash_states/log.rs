//! The log: what creates, rolls, cuts, empties and purges segments.

use crate::examine::{Sequence, examine};
use crate::folder::Step::{Append, Purge, Seal, Snapshot, Start, Truncate, Upkeep};

/// A server's first start: its meta file and its first segment come into being.
#[test]
fn a_first_start() {
    examine(&Sequence { name: "first start", before: &[], steps: &[Start], reserve: false });
}

/// Two appends to a segment, one of them in several groups and writes, and a seal.
#[test]
fn appends_and_a_seal() {
    let (before, steps) = (&[Append(&[100])], &[Append(&[10]), Append(&[900, 5000, 10]), Seal]);
    examine(&Sequence { name: "append, seal", before, steps, reserve: false });
}

/// An append for which the segment has no room: the next one is made on the spot, and begun.
#[test]
fn an_append_goes_on_in_a_new_segment() {
    let (before, steps) = (&[Append(&[55_000])], &[Append(&[10, 5000])]);
    examine(&Sequence { name: "segment switch", before, steps, reserve: false });
}

/// The same with a segment that upkeep has prepared, and the preparation of the one after it.
#[test]
fn an_append_goes_on_in_a_prepared_segment() {
    let (before, steps) = (&[Append(&[55_000])], &[Upkeep, Append(&[10, 5000]), Upkeep]);
    examine(&Sequence { name: "segment switch, prepared", before, steps, reserve: false });
}

/// A frame that is longer than a segment gets one of its own, and what follows another.
#[test]
fn a_frame_longer_than_a_segment() {
    let (before, steps) = (&[Append(&[100])], &[Append(&[70_000]), Append(&[10])]);
    examine(&Sequence { name: "long frame", before, steps, reserve: false });
}

/// The log is cut inside of a segment, and goes on with another history.
#[test]
fn truncate_after_within_a_segment() {
    let before = &[Append(&[10, 10]), Append(&[10]), Upkeep];
    let steps = &[Truncate(2), Append(&[10])];
    examine(&Sequence { name: "truncate_after", before, steps, reserve: false });
}

/// The log is cut in front of whole segments, which are cleared away, and cut again before anything follows.
#[test]
fn truncate_after_over_segments() {
    let before = &[Append(&[10]), Append(&[50_000]), Append(&[50_000]), Append(&[50_000])];
    let steps = &[Truncate(2), Upkeep, Truncate(1), Append(&[10]), Upkeep];
    examine(&Sequence { name: "truncate_after, segments", before, steps, reserve: false });
}

/// Segments that a snapshot has made superfluous are recycled or removed, and the log goes on in a recycled
/// one.
#[test]
fn purge_and_a_recycled_segment() {
    let before =
        &[Append(&[50_000]), Append(&[50_000]), Append(&[50_000]), Snapshot, Append(&[10]), Snapshot];
    let steps = &[Purge, Append(&[50_000]), Append(&[10]), Upkeep];
    examine(&Sequence { name: "purge, recycle", before, steps, reserve: false });
}

/// An append, a clean stop, a start, and on.
#[test]
fn a_restart_and_on() {
    let before = &[Append(&[10]), Upkeep];
    let steps = &[Append(&[900, 10]), Seal, Start, Append(&[10]), Upkeep];
    examine(&Sequence { name: "restart", before, steps, reserve: false });
}
