//! The host: the driver of one server, between the decisions of `engine` and the system calls of a runtime.
//!
//! It is generic over two traits: the application above and the environment below ([`mod@env`]).
#![forbid(unsafe_code)]

pub mod alarms;
pub mod env;
pub mod feed;
pub mod identity;
pub mod links;
pub mod log_task;
pub mod pump;
pub mod rate_limiter;
pub mod recovery;
pub mod restore;
pub mod scrub;
pub mod snapshots;
pub mod tasks;
pub mod transfer;
pub mod wake;
