//! The epochs' file and the reserve.

use crate::examine::{Sequence, examine};
use crate::folder::Step::{Append, Keep, Promise, Release, Start};

/// Epochs are promised one after the other, with a start in between: each file replaces the one before.
#[test]
fn epochs_are_promised() {
    let steps = &[Promise(2), Promise(3), Start, Promise(4), Append(&[10])];
    examine(&Sequence { name: "epochs", before: &[Promise(1)], steps, reserve: false });
}

/// The reserve is let go of on a full disk, an epoch is promised in its room, and it is taken again.
#[test]
fn the_reserve_is_let_go_of_and_taken_again() {
    let steps = &[Release, Promise(2), Keep, Append(&[10])];
    examine(&Sequence { name: "reserve", before: &[Append(&[10])], steps, reserve: true });
}
