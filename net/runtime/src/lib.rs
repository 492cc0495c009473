//! The host's environment on io_uring: executors, files, sockets with or without TLS, clocks, and the rings
//! between executors. There are two runtimes: the server runs on the [`reactor`], the library on [`glommio`].
//! The simulator has an environment of its own.
//!
//! All `unsafe` code of the product lies in this crate: in [`completions`], `glommio/tcp.rs`, [`kerberos`],
//! `preflight.rs` and `allocator.rs`.

#[cfg(feature = "process-wide")]
pub mod allocator;
pub mod clock;
pub mod completions;
pub mod env;
pub mod glommio;
pub mod helper;
pub mod kerberos;
pub mod names;
pub mod preflight;
pub mod reactor;
pub mod ring;
pub mod runtime;
pub mod socket;
pub mod storage;
pub mod tls;
