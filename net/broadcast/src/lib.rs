//! Zab as a library: a totally ordered, durable broadcast for any deterministic state machine.
//!
//! All servers of an ensemble deliver the same proposals in the same order to their machines. A delivered
//! proposal is durable on a quorum: 2f+1 servers survive the loss of any f, and nothing acknowledged is lost.
//! The `ringkeeper` server uses the same broadcast, with a tree of znodes as its machine.
//!
//! ```no_run
//! use ringkeeper_broadcast::{Broadcast, Config, StateError, StateMachine, Zxid};
//!
//! /// Counts bytes.
//! struct Counter(u64);
//!
//! impl StateMachine for Counter {
//!     fn deliver(&mut self, _: Zxid, proposal: &[u8]) {
//!         self.0 += proposal.len() as u64;
//!     }
//!
//!     fn get_state(&mut self) -> Vec<u8> {
//!         self.0.to_le_bytes().to_vec()
//!     }
//!
//!     fn set_state(&mut self, _: Zxid, state: &[u8]) -> Result<(), StateError> {
//!         self.0 = u64::from_le_bytes(state.try_into()?);
//!         Ok(())
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let config = Config::ensemble(1, "data")
//!     .member(1, "one.example:2888")
//!     .member(2, "two.example:2888")
//!     .member(3, "three.example:2888")
//!     .secret("known to the members alone");
//! let broadcast = Broadcast::start(config, Counter(0))?;
//! let zxid = broadcast.handle().propose(b"hello".to_vec()).wait()?;
//! println!("delivered as {zxid}");
//! # Ok(())
//! # }
//! ```
//!
//! [`Config::single`] is the same for a server alone. `examples/register.rs` replicates registers on three
//! processes and kills the leader: `cargo run -p ringkeeper-broadcast --example register`.
//!
//! # Guarantees
//! - **Order.** All machines are told the same proposals in the same order, each with a rising [`Zxid`];
//!   proposals made through one server keep their order.
//! - **Durability.** [`Handle::propose`] is answered when the proposal is on the disks of a quorum and was
//!   delivered to this server's own machine.
//! - **Honest outcomes.** [`ProposeError::Unknown`] says that the leader was lost in between; the library
//!   never repeats a proposal by itself. After every other error nothing was proposed.
//! - **Linearizable reads.** After [`Handle::sync`], this server's machine has everything that any server had
//!   acknowledged before.
//! - **State transfer.** After a number of proposals or bytes, the machine's state is written to disk and the
//!   log before it is removed. A member that was away for longer is sent that state.
//!
//! A new ensemble begins when all its voters have connected for the first time; afterwards a majority is
//! enough.
//!
//! # Inside
//! `replica` decides, without I/O; the host that the server has as well (`ringkeeper_host`) carries out, on
//! an executor of its own.

mod broadcast;
mod config;
mod entry;
mod handle;
mod handles;
mod machine;
mod message;
mod recovery;
mod replica;
mod snapshots;
mod waiters;

pub use broadcast::{Broadcast, Failure, StartError};
pub use config::{Config, ConfigError};
pub use handle::{Handle, Outcome, ProposeError};
pub use machine::{StateError, StateMachine};
pub use recovery::FolderError;
pub use ringkeeper_engine::zab::Status;
pub use ringkeeper_runtime::preflight::Unmet;
pub use ringkeeper_runtime::tls::StartError as TlsError;
pub use ringkeeper_tls::{PeerSettings as TlsSettings, StoreSettings};
pub use ringkeeper_wire::{Epoch, ServerId, Zxid};
