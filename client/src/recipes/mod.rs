//! Coordination built from the calls: locks, elections, barriers, queues.
//!
//! Each recipe is asynchronous; [`Wait`](crate::Wait) gives every call its synchronous form. All of them
//!
//! - **survive lost connections**: reads are repeated; a create whose outcome is unknown finds its own
//!   znode again by a unique name; a write that must happen once goes into a transaction with a mark that
//!   tells whether it did;
//! - **tell of expired sessions** instead of going on: what was held by an ephemeral znode is lost, and
//!   the holder is told ([`Holding::lost`]) at the latest when the session *may* have expired, so before
//!   another client can hold the same;
//! - **clean up when a future is dropped** (a timeout, a `select`): the driver thread deletes the znode of
//!   a call that was given up;
//! - **offer a fencing token**, the zxid that created the holder's znode ([`Holding::fencing_token`]): hand
//!   it to whatever the lock protects, which refuses tokens smaller than one it has seen.
//!
//! Znodes are named as kazoo names them, so that programs in Python and Rust share locks, elections,
//! barriers, groups, queues and counters; where that makes a difference, [`NodeNames::Curator`] names them
//! as Curator does.

mod claim;
mod configuration;
mod counter;
mod double_barrier;
mod election;
mod holding;
mod line;
mod lock;
mod mark;
mod membership;
mod ordered_barrier;
mod queue;
mod ready_configuration;
mod rendezvous;
mod revocable_lock;
mod round;
mod rw_lock;
mod simple_lock;

pub use configuration::{Configuration, Updates};
pub use counter::{Counter, CounterFormat};
pub use double_barrier::DoubleBarrier;
pub use election::Election;
pub use holding::{Holding, Loss};
pub use line::NodeNames;
pub use lock::Lock;
pub use membership::{Group, Member, Membership};
pub use ordered_barrier::OrderedBarrier;
pub use queue::Queue;
pub use ready_configuration::ReadyConfiguration;
pub use rendezvous::Rendezvous;
pub use revocable_lock::{Revocable, RevocableLock};
pub use round::Participation;
pub use rw_lock::RwLock;
pub use simple_lock::SimpleLock;

use crate::{Client, Result};

/// Repeats a call over lost connections, until the session ends. For calls that do no harm when they are
/// executed twice.
async fn retried<T, F: Future<Output = Result<T>>>(client: &Client, call: impl Fn() -> F) -> Result<T> {
    loop {
        match call().await {
            Err(error) if error.is_connection() => client.connected().await?,
            outcome => return outcome,
        }
    }
}
