//! Deterministic simulation: ensembles on simulated networks, disks and clocks, in one thread, from one seed.
//!
//! A run draws a fault mix from its seed. (Swarm testing: each run has few kinds of fault, so that they
//! combine in many ways.) It exposes an [`ensemble`] with clients to these faults for a while, then heals
//! everything and expects progress. Oracles check every step. A run that fails names the broken promise; the
//! same seed reproduces it.
//!
//! To add a fault, give it a rate in [`ensemble::FaultMix`], draw it there, and inject it in
//! `ensemble/chaos.rs`. To see that the oracles can fail, plant one of [`ensemble::Planted`].
#![forbid(unsafe_code)]

pub mod ensemble;
#[allow(dead_code, reason = "the ensemble moves onto it with the host")]
mod env;
mod random;

pub use env::strangers;
