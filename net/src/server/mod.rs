//! The running server: configuration, executors and their tasks, and a clean end.

mod admin;
mod admission;
mod audit;
mod block_readers;
mod client_ports;
mod core_counters;
mod core_host;
mod door;
mod identity;
mod inspect;
mod kerberos;
mod listener;
mod log_levels;
mod log_writer;
mod memory_limit;
mod metrics;
mod otlp;
mod pauses;
mod peer_kerberos;
mod pulse;
mod recovery;
mod replay;
mod report;
mod service_manager;
mod serving;
mod shard_host;
mod slow;
mod start;
mod system;
mod tls;
mod traces;

use ringkeeper_host::{feed, links, log_task, rate_limiter, scrub, snapshots, wake};
use ringkeeper_runtime::{clock, helper, names, preflight, reactor, ring, socket};

pub(crate) use clock::Clock;
pub(crate) use identity::wanted;
pub(crate) use log_writer::{flush as flush_log, say};
pub(crate) use reactor::env::ReactorEnv;
pub(crate) use recovery::{Folder, FolderError, Recovered, check_finished};
pub(crate) use replay::{RestoreError, check_snapshot, read_state};
pub(crate) use start::{StartError, rehearse, run};
pub(crate) use tls::{Found, State};
