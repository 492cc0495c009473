//! The server as its users meet it: a process, its folder, its signals, its client port.

#[path = "../support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "another test program uses the rest of it")]
mod support;

mod admin;
mod backup;
mod connections;
mod dashboard;
mod doctor;
mod durability;
mod events;
mod full_disk;
mod migration;
mod repair;
mod sessions;
mod shards;
mod shell;
mod snapshots;
mod start;
mod tail;
mod tenants;
mod terminal;
mod throttles;
mod tls;
mod traces;
mod words;
