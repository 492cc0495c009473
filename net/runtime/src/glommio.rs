//! The runtime of the library: executors, files and sockets of glommio.

pub mod dma;
pub mod env;
pub mod executor;
mod tcp;
