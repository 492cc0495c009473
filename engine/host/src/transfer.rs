//! Snapshots on their way between servers.
//!
//! ```text
//! leader                                                     learner
//! newest file --piece--> ... at most WINDOW_BYTES ... --> install.part --whole, verified--> log reset, state replaced
//!        <------- SnapshotReceived, after each piece -------
//! ```
//!
//! The bytes on the link are the file's own. A peer that is further behind than the log reaches back is sent
//! the newest snapshot ([`send_snapshots`]) and puts it in the place of its own log and state
//! ([`receive_snapshots`]).

mod piece;
mod receive;
mod send;

use ringkeeper_engine::zab::{Input, Message};
use ringkeeper_wire::{ServerId, Zxid};

pub use receive::{Receiving, receive_snapshots};
pub use send::{Sending, send_snapshots};

/// What transfers ask of the server that they belong to.
pub trait TransferHost: 'static {
    /// The snapshots that peers are sent.
    fn sending(&self) -> &Sending;

    /// The snapshot that the leader sends.
    fn receiving(&self) -> &Receiving;

    /// Everything up to here is committed.
    fn committed(&self) -> Zxid;

    /// The ensemble, 0 while not known.
    fn cluster(&self) -> u64;

    /// Version of the application's state in snapshots: one of another application or version is not
    /// installed.
    fn state_version(&self) -> u32;

    /// A snapshot newer than those in the folder is wanted.
    fn demand_snapshot(&self);

    /// Something happened.
    fn input(&self, input: Input);

    /// Something happened, and what follows from it is done when this returns.
    fn input_now(&self, input: Input);

    /// Sends a message if the peer is connected.
    fn send(&self, to: ServerId, message: &Message);

    /// Closes the connection to a peer.
    fn disconnect(&self, peer: ServerId);

    /// The server cannot go on.
    fn fail(&self, reason: String);
}
