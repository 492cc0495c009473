//! The host's environment on glommio and io_uring: executors, files, sockets with or without TLS, clocks, and
//! the rings between executors. The server and the library run on it; the simulator has an environment of its
//! own.
//!
//! All `unsafe` code of the product lies in this crate: in [`socket`], [`completions`], [`kerberos`],
//! `cooperative` and `allocator`.

#[cfg(feature = "process-wide")]
pub mod allocator;
pub mod clock;
pub mod completions;
pub mod dma;
pub mod env;
pub mod executor;
mod folder;
pub mod helper;
pub mod kerberos;
pub mod preflight;
pub mod reactor;
pub mod ring;
pub mod socket;
pub mod tls;
