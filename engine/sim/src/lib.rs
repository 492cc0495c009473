//! Deterministic simulation: ensembles on simulated networks, disks and clocks, in one thread, from one seed.
//!
//! [`run`] draws a fault mix from its seed (swarm testing: each run has faults of few kinds, so that they
//! meet in many combinations), lets the ensemble suffer for a while, heals everything and expects progress.
//! The [`checker`] watches every step. A run that fails says what broke; the same seed breaks again.
//!
//! Two worlds: the broadcast alone ([`run`]), and whole servers with clients ([`ensemble`]).
//!
//! To add a fault: give it a rate in [`faults::Faults`], draw it there, and let `World` carry it out. To see
//! that the checker can fail, plant a [`Mutation`](ringkeeper_engine::zab::Mutation).
#![forbid(unsafe_code)]

pub mod checker;
mod disk;
pub mod ensemble;
mod env;
pub mod faults;
mod network;
mod node;
mod random;
mod world;

pub use world::{Outcome, run, trace};
