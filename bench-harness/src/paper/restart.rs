//! Restart: every server is killed, all are started again, and a client wants its data.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ringkeeper_testkit::{Server, interrupt};

use super::bench::{Bench, Place};
use super::experiment::{Experiment, Plan, View};
use super::memory::{SESSIONS, fill};
use super::scale::{Axis, Scale};
use super::service::{Service, Subject};
use crate::machine::Machine;
use crate::page_cache::PageCache;
use crate::request;
use crate::server_cpu::ServerProcesses;
use crate::session::{self, Session};
use crate::system::System;

const TIME: &str = "time until all servers serve";

/// Of the processes from their start on.
const CPU: &str = "CPU of all servers until then";

const FULL: [u32; 3] = [10_000, 100_000, 1_000_000];
const QUICK: [u32; 2] = [1_000, 30_000];

/// After this, servers do not come back any more.
const PATIENCE: Duration = Duration::from_secs(300);

const RETRY_PAUSE: Duration = Duration::from_millis(5);

/// Restart.
pub(crate) struct Restart;

impl Experiment for Restart {
    fn plan(&self) -> Plan {
        Plan {
            id: "restart",
            title: "Restart of all servers, by the number of znodes",
            about: "Znodes of 100 B are created, every server is killed (SIGKILL), and all are started \
                    again: from starting the first until every server has opened a session and answered a \
                    read of the znode created last. The page cache is dropped between the two where that is \
                    permitted. What the servers read is their logs and whatever snapshots they have taken by \
                    their own rules.",
            x: Axis { label: "znodes", scale: Scale::Log },
            views: vec![View::log(TIME, "", "time, s"), View::log(CPU, "cpu", "CPU of all servers, s")],
            figures: vec![TIME, CPU],
            own_servers: true,
            ..Plan::default()
        }
    }

    fn run(&self, bench: &mut Bench<'_>) -> Result<()> {
        let size = bench.first_size();
        let page_cache = PageCache::drop_all();
        bench.note(format!("The page cache is {page_cache}."));
        let counts: &[u32] = match &bench.settings.tree_znodes {
            Some(znodes) => &[*znodes],
            None => bench.pace().pick(&QUICK, &FULL),
        };
        let systems: Vec<&System> = bench.subjects().filter_map(Subject::system).collect();
        bench.alternate(
            bench.pace().runs,
            &systems,
            |system| (system.name(), size, "filling and restarting".to_owned()),
            |bench, system, origin| {
                // Each run has servers of its own: it must not begin with the znodes of those before.
                let settings = bench.settings;
                let mut service = Service::start(system, size, &settings.work_dir, settings.port)?;
                let mut there = 0;
                for count in counts {
                    let filled = fill(service.addresses(), (count - there) / SESSIONS)?;
                    there = *count;
                    let before = Machine::now(None);
                    let (elapsed, cpu) = restart(&mut service, &filled.last_path, page_cache)?;
                    let invalid = Machine::now(None).since(&before).disturbances().join("; ");
                    let figures = [(TIME, "s", elapsed.as_secs_f64()), (CPU, "s", cpu.as_secs_f64())];
                    bench.push(origin, Place { series: "", x: f64::from(*count) }, &figures, &invalid);
                }
                Ok(())
            },
        )
    }
}

/// The time that it takes all servers to serve, and their CPU time until then.
fn restart(service: &mut Service, path: &str, page_cache: PageCache) -> Result<(Duration, Duration)> {
    let ensemble = service.ensemble()?;
    ensemble.iter().for_each(Server::kill);
    page_cache.drop_again()?;
    let began = Instant::now();
    ensemble.launch()?;
    for address in ensemble.addresses() {
        wait_for(address, path).with_context(|| format!("after the restart, {address}"))?;
    }
    let elapsed = began.elapsed();
    let cpu = ServerProcesses::of(ensemble)?.cpu_time()?;
    service.renew()?;
    Ok((elapsed, cpu))
}

/// Waits until a session on `server` can read `path`.
pub(super) fn wait_for(server: SocketAddr, path: &str) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match Session::open(server) {
            Ok(mut session) => {
                session
                    .call(|out, xid| request::get_data(out, xid, path, false))
                    .context("reading what was there")?;
                return session::close_all(vec![session]);
            }
            Err(error) if Instant::now() > deadline => return Err(error),
            Err(_) => interrupt::sleep_until(Instant::now() + RETRY_PAUSE, || false)?,
        }
        if Instant::now() > deadline {
            bail!("no session within {} s", PATIENCE.as_secs());
        }
    }
}
