//! Every decision of ringkeeper, and no I/O: no socket, file, clock, thread or random source in it.
//!
//! Each part is a state machine. Inputs come in with the time, outputs go out as plain data; the `net` and
//! `log` crates move the bytes, and the simulator does the same from a seed.
#![forbid(unsafe_code)]

// By this name the checks of the fuzz targets know it.
#[cfg(test)]
extern crate self as ringkeeper_engine;

pub mod acl;
pub mod application;
mod apply;
pub mod audit;
pub mod authorisation;
pub mod batches;
pub mod codec;
pub mod findings;
pub mod fourletter;
pub mod level;
pub mod limits;
pub mod members;
pub mod message;
pub mod metrics;
pub mod mutation;
mod newest;
pub mod node;
pub mod path;
mod prefetch;
pub mod prepare;
pub mod quota;
pub mod read;
pub mod replica;
pub mod sasl;
pub mod send_window;
pub mod settings;
pub mod shard;
pub mod slow;
pub mod snapshot;
pub mod spares;
pub mod state;
pub mod steps;
mod subtrees;
pub mod tenants;
pub mod trace;
pub mod tree;
pub mod txn;
mod watch;
pub mod zab;
