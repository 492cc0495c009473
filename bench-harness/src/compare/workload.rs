//! The workloads by name, each measured against a server, or an ensemble, that was started for it.

use std::time::Duration;

use anyhow::{Context, Result};

use super::churn::churn;
use super::fanout::fanout;
use super::memory::memory;
use super::metric::{Metric, metrics_of};
use super::server::Server;
use super::system::System;
use crate::creates::{CreateLoad, Creates, create_synchronously};
use crate::measure::{Load, as_f64, measure};
use crate::window::{Rate, Surroundings};

/// What to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum Workload {
    /// 100 % getData of 1 KiB, 64 sessions with 100 outstanding each
    Reads,
    /// 90 % getData, 10 % setData
    Mixed90,
    /// 50 % getData, 50 % setData
    Mixed50,
    /// 100 % setData
    Writes,
    /// One client, one setData of 1 KiB outstanding
    SetOne,
    /// Synchronous creates of 100 B by 1 client, then by 100
    Create100,
    /// Synchronous creates of 1 KiB, each deleted again asynchronously, by 1 worker, then by 20
    CreateDelete,
    /// Sessions opened and closed, 64 at a time
    Sessions,
    /// One znode watched by 1,000 sessions: from the change to the last notification
    WatchFanout,
    /// Memory for each of 1,000,000 znodes of 100 B
    Memory,
}

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lengths {
    /// Mixed load on a fresh server, so that a JVM has compiled its code.
    pub(crate) conditioning: Duration,
    pub(crate) warmup: Duration,
    pub(crate) window: Duration,
    pub(crate) memory_znodes: u32,
}

const SATURATING_SESSIONS: usize = 64;
const SATURATING_OUTSTANDING: usize = 100;
const PAYLOAD_LEN: usize = 1024;
const CREATED_LEN: usize = 100;
const CREATING_CLIENTS: [usize; 2] = [1, 100];
const CREATING_WORKERS: [usize; 2] = [1, 20];
const WATCHERS: usize = 1000;
const CHANGES: u32 = 50;
const SEED: u64 = 1;

/// The most sessions that a workload has open at once.
pub(crate) const SESSIONS_MAX: usize = WATCHERS + 1;

impl Workload {
    /// Its name on the command line and in tables.
    pub(crate) fn name(self) -> String {
        clap::ValueEnum::to_possible_value(&self)
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Whether it says something of `system`: canned answers measure the way to the server and back, not memory or
    /// watches.
    pub(crate) const fn suits(self, system: &System) -> bool {
        !matches!(system, System::Floor) || !matches!(self, Self::WatchFanout | Self::Memory)
    }

    /// Runs it once. `is_jvm`: the server has a garbage-collected heap to look into.
    pub(crate) fn run(self, server: &Server, lengths: Lengths, is_jvm: bool) -> Result<Vec<Metric>> {
        // Memory is measured on a server that has done nothing else.
        if self != Self::Memory && !lengths.conditioning.is_zero() {
            condition(server, lengths.conditioning).context("conditioning")?;
        }
        match self {
            Self::Reads => saturate(server, 100, lengths),
            Self::Mixed90 => saturate(server, 90, lengths),
            Self::Mixed50 => saturate(server, 50, lengths),
            Self::Writes => saturate(server, 0, lengths),
            Self::SetOne => set_one(server, lengths),
            Self::Create100 => create100(server, lengths),
            Self::CreateDelete => create_delete(server, lengths),
            Self::Sessions => sessions(server, lengths),
            Self::WatchFanout => watch_fanout(server),
            Self::Memory => memory(server, lengths.memory_znodes, is_jvm),
        }
    }
}

fn load(reads_percent: u8, warmup: Duration, window: Duration) -> Load {
    Load {
        sessions: SATURATING_SESSIONS,
        outstanding: SATURATING_OUTSTANDING,
        threads: 1,
        payload_len: PAYLOAD_LEN,
        znodes: SATURATING_SESSIONS,
        reads_percent,
        per_second: None,
        warmup,
        window,
        seed: SEED,
    }
}

fn condition(server: &Server, length: Duration) -> Result<()> {
    measure(server.addresses(), Surroundings::default(), &load(50, Duration::ZERO, length)).map(drop)
}

fn saturate(server: &Server, reads_percent: u8, lengths: Lengths) -> Result<Vec<Metric>> {
    let load = load(reads_percent, lengths.warmup, lengths.window);
    let measurement = measure(server.addresses(), Surroundings::servers(Some(server.processes())), &load)?;
    Ok(metrics_of(&measurement, "", &[50.0, 99.0, 99.9]))
}

fn set_one(server: &Server, lengths: Lengths) -> Result<Vec<Metric>> {
    let load = Load { sessions: 1, outstanding: 1, znodes: 1, ..load(0, lengths.warmup, lengths.window) };
    let measurement = measure(server.addresses(), Surroundings::servers(Some(server.processes())), &load)?;
    Ok(metrics_of(&measurement, "", &[50.0, 99.0, 99.9]))
}

fn load_of(server: &Server, lengths: Lengths) -> CreateLoad<'_> {
    let Lengths { warmup, window, .. } = lengths;
    let around = Surroundings::servers(Some(server.processes()));
    CreateLoad { servers: server.addresses(), around, warmup, window }
}

fn create_delete(server: &Server, lengths: Lengths) -> Result<Vec<Metric>> {
    let mut metrics = Vec::new();
    for workers in CREATING_WORKERS {
        let source = |parent: &str| Creates::new(parent, u32::MAX, PAYLOAD_LEN).deleting();
        let measurement = create_synchronously(&load_of(server, lengths), workers, source)?;
        metrics.extend(metrics_of(&measurement, &format!("{workers} worker(s): "), &[50.0, 99.0]));
    }
    Ok(metrics)
}

fn create100(server: &Server, lengths: Lengths) -> Result<Vec<Metric>> {
    let mut metrics = Vec::new();
    for clients in CREATING_CLIENTS {
        let source = |parent: &str| Creates::new(parent, u32::MAX, CREATED_LEN);
        let measurement = create_synchronously(&load_of(server, lengths), clients, source)?;
        metrics.extend(metrics_of(&measurement, &format!("{clients} client(s): "), &[50.0, 99.0]));
    }
    Ok(metrics)
}

fn sessions(server: &Server, lengths: Lengths) -> Result<Vec<Metric>> {
    let Lengths { warmup, window, .. } = lengths;
    let churned = churn(server.addresses(), server.processes(), SATURATING_SESSIONS, warmup, window)?;
    let sessions = as_f64(churned.sessions);
    let handshake_us = |percent| as_f64(churned.handshakes_ns.value_at_percentile(percent)) / 1e3;
    let cpu = churned.server_cpu.as_secs_f64();
    Ok(vec![
        Metric::higher("opened and closed", "sessions/s", sessions / window.as_secs_f64()),
        Metric::lower("handshake p50", "us", handshake_us(50.0)),
        Metric::lower("handshake p99", "us", handshake_us(99.0)),
        Metric::lower("server CPU", "s per million sessions", cpu * 1e6 / sessions.max(1.0)),
        Metric::context(
            "generator CPU",
            "% of a core",
            churned.generator_cpu.as_secs_f64() * 1e2 / window.as_secs_f64(),
        ),
    ])
}

fn watch_fanout(server: &Server) -> Result<Vec<Metric>> {
    let latencies_ns = fanout(server.addresses(), WATCHERS, CHANGES, &mut Rate::new(None, "notifications"))?;
    let latency_us = |percent| as_f64(latencies_ns.value_at_percentile(percent)) / 1e3;
    Ok(vec![
        Metric::lower("last notification p50", "us", latency_us(50.0)),
        Metric::lower("last notification p90", "us", latency_us(90.0)),
    ])
}
