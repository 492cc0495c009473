//! Zab as a library.

pub mod shell;
