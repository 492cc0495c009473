//! Transfers of snapshots between servers.
//!
//! ```text
//! leader                                                     learner
//! newest file --piece--> ... as the window allows ...  --> install.part.* --whole, verified--> log reset, state replaced
//!        <------- SnapshotReceived, after each piece -------
//! ```
//!
//! The bytes on the link are those of the file. A peer whose log ends before the leader's begins is sent the
//! newest snapshot ([`send_snapshots`]), and replaces its own log and state by it ([`receive_snapshots`]).

mod piece;
mod receive;
mod send;

use ringkeeper_log::storage::BLOCK_LEN;

pub(crate) use receive::{Receiving, receive_snapshots};
pub(crate) use send::{Sending, send_snapshots};

/// How fast a snapshot is sent, and how much of it at once.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes a second that one peer is sent.
    pub bytes_per_second: u64,
    /// Bytes sent to a peer that it has not said to have written, on a short line: see
    /// [`SendWindow`](ringkeeper_engine::send_window::SendWindow).
    pub window_bytes: usize,
    /// The same on the longest one.
    pub window_bytes_max: usize,
    /// Bytes of a piece, whole blocks of the disk.
    pub piece_bytes: usize,
}

impl Limits {
    /// For real disks and networks.
    #[must_use]
    pub const fn with_rate(bytes_per_second: u64) -> Self {
        Self {
            bytes_per_second,
            window_bytes: WINDOW_BYTES,
            window_bytes_max: WINDOW_BYTES_MAX,
            piece_bytes: 64 * BLOCK_LEN,
        }
    }
}

/// What is under way to a peer on real disks and networks.
const WINDOW_BYTES: usize = 1 << 20;
const WINDOW_BYTES_MAX: usize = 32 << 20;
