//! The server as its users meet it: a process, its folder, its signals, its client port.

#[path = "../support/mod.rs"]
mod support;

mod connections;
mod durability;
mod sessions;
mod shards;
mod start;
mod words;
