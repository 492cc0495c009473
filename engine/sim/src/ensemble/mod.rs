//! Whole servers and their clients, from one seed, in one thread.
//!
//! ```text
//! client --bytes--> link --> shard --RequestBatch--> core --Append--> log --> disk in memory
//!        <--bytes--              <--ToShard--    <--Message--> host's links <--bytes--> other servers
//!                     judge: committed order, model, digests     client: replies, reads, events
//! ```
//!
//! [`server`] drives the host's tasks, [`client`] is a client that checks its replies, [`workers`] run the
//! client library with recipes, [`judge`] holds the committed order and the model with which replies and
//! reads are compared, [`world`] has time, network and faults.

mod ask;
mod chaos;
mod client;
mod damage;
#[cfg(test)]
mod distance;
mod faults;
mod founding;
mod frontend;
mod handing_over;
mod judge;
mod levels;
mod links;
mod medium;
mod model;
mod planted;
mod reconfiguring;
mod recovery;
mod report;
mod restoring;
mod rules;
mod server;
mod slips;
mod spoil;
mod strangers;
mod violation;
mod watching;
mod workers;
mod workload;
mod world;

pub use faults::FaultMix;
pub use founding::Founding;
pub use planted::Planted;
pub use report::Report;
pub use violation::{Oracle, Violation};
pub use world::{run, run_recipes, trace, trace_recipes};
