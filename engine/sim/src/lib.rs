//! Deterministic simulation: ensembles on simulated networks, disks and clocks, in one thread, from one seed.
//!
//! A run draws a fault mix from its seed (swarm testing: each run has faults of few kinds, so that they meet
//! in many combinations), lets an [`ensemble`] with clients suffer for a while, heals everything and expects
//! progress. Oracles watch every step. A run that fails says which promise was broken; the same seed breaks
//! it again.
//!
//! To add a fault: give it a rate in [`ensemble::FaultMix`], draw it there, and carry it out in
//! `ensemble/chaos.rs`. To see that the oracles can fail, plant one of [`ensemble::Planted`].
#![forbid(unsafe_code)]

pub mod ensemble;
#[allow(dead_code, reason = "the ensemble moves onto it with the host")]
mod env;
mod random;
