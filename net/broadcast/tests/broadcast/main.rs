//! Whole servers on loopback, with real files and connections.

mod configuration;
mod ensemble;
mod register;
mod single;
mod state_transfer;
mod support;
mod symbols;
