//! etcd beside the others: puts, ranges, deletes and watches through its own gRPC API, on as many connections
//! as the others have sessions.
//!
//! All connections are made, and each has had an answer, before a window begins.
//!
//! What is alike and what is not:
//! - A put is durable on a quorum before it is answered, as a write of ZooKeeper's is (etcd forces its log by
//!   default).
//! - A serializable range is answered by the member that is asked from what it has, as a read of ZooKeeper's
//!   is.
//! - Requests of one connection are independent of each other: etcd may answer them in any order, where
//!   ZooKeeper keeps the order of a session. So which of the values that were sent a read must return is not
//!   known when it is sent. It is checked that the value is whole, of its key, was sent, and is not older
//!   than one whose put was answered before.
//! - Every answer tells of which revision of the store it is: what a list must have follows from that
//!   ([`children`]).
//! - A watch is a stream of all changes from a revision on; ZooKeeper's tells of one, and is set anew.

mod calls;
mod children;
mod client;
mod configuration;
mod creates;
mod load;
mod message;
mod pipeline;
mod values;

use anyhow::{Context, Result};
use tokio::runtime::Runtime;

pub(crate) use self::children::mixed;
pub(crate) use self::configuration::Configuration;
pub(crate) use self::creates::create;
pub(crate) use self::values::measure;
use crate::system::IN_PROCESS_MAX;

/// How the experiments use it, for readers of their results.
pub(crate) const ABOUT: &str = "etcd: puts and serializable ranges (answered by the member asked, as \
    ZooKeeper's reads are) through its gRPC API, a connection for each session; a create is a put of a new \
    key, a delete a DeleteRange of it. etcd does not keep the order of requests, so of a value read it is \
    checked that it is whole, of its key, was sent, and is not older than one whose put had been answered. \
    Of its requests, 2,000 are outstanding at most, as many as the others' servers have in process.";

/// How many requests may be outstanding on each of `sessions`: etcd has no limit of requests in process that
/// it would hold back for, and refuses them when there are too many.
pub(crate) fn bearable(outstanding: usize, sessions: usize) -> usize {
    outstanding.min(IN_PROCESS_MAX / sessions).max(1)
}

/// A runtime that has the calling thread and no other.
fn runtime() -> Result<Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().context("a runtime")
}
