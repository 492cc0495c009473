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

pub use receive::{Receiving, receive_snapshots};
pub use send::{Sending, send_snapshots};
