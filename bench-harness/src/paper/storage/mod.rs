//! Storage: how long a start takes, how fast a scrub reads, what a snapshot costs the clients, what the tree
//! takes of memory.
//!
//! For each system the tree is filled once, brought to a snapshot, and put aside with a short and a long log
//! behind the snapshot. Then the systems take turns (A B B A A B): each turn takes the folder back and starts
//! on it.
//!
//! ```text
//! fill ─ snapshots ─┬─ + short log ─ kill -9 ─▶ saved: restart ─▶ first reply
//!                   ├─ + long log ── kill -9 ─▶ saved: restart; long - short = the replay alone;
//!                   │                           scrub, beside the disk's own speed
//!                   └─▶ saved: load without, then with snapshots being taken
//! ```
//!
//! Files are copied just before a start, so the page cache is dropped between the two, for both systems alike
//! (see [`crate::page_cache`]).

mod host;
mod restart;
mod scrub;
mod snapshots;
mod tree;

use std::time::Duration;

use anyhow::{Context, Result};

use self::host::Host;
use self::tree::Tree;
use super::bench::{Bench, Figure, Place};
use super::experiment::{Experiment, Plan};
use super::record::Record;
use super::scale::{Axis, Scale};
use super::service::Subject;
use super::table::Table;
use crate::machine::Machine;
use crate::measure::as_f64;
use crate::page_cache::PageCache;
use crate::progress::Progress;
use crate::window::Surroundings;

/// A snapshot every so many transactions: none.
const NO_SNAPSHOTS: u32 = 2_000_000_000;

/// Folders put aside.
const SETTLED: &str = "settled";
const SHORT_LOG: &str = "short-log";
const LONG_LOG: &str = "long-log";

const IN_ALL: &str = "resident memory in all, after creating";

/// How much is stored, and the load beside which snapshots are taken.
#[derive(Clone, Copy, Debug)]
struct Shape {
    tree: Tree,
    /// Transactions in the log after the snapshot when the start is measured.
    log_txns: u32,
    /// The same once more with so many: what the difference takes is the speed of replay.
    replay_txns: u32,
    sessions: usize,
    reads_percent: u8,
    window: Duration,
    warmup: Duration,
    /// Transactions between two snapshots in the window with snapshots.
    snap_count: u32,
}

/// Sizes of the tree, and transactions of the two logs, for each thousand znodes.
const FULL: u32 = 1_000_000;
const QUICK: u32 = 100_000;
const LOG_TXNS_A_THOUSAND: u32 = 100;
const REPLAY_TXNS_A_THOUSAND: u32 = 1100;

/// Storage.
pub(crate) struct Storage;

impl Experiment for Storage {
    fn plan(&self) -> Plan {
        Plan {
            id: "storage",
            title: "Starts, scrub, snapshots and memory of a server with a big tree",
            about: "A server alone with znodes of 100 B under 64 parents. A start is from the process to the \
                    reply that has the last value written, with snapshots and a log of a tenth as many \
                    transactions as znodes behind them; the replay is the difference to a start with a log \
                    of eleven times that. The page cache is dropped before each where that is permitted. A \
                    scrub reads all files again without a limit, beside plain reads of the same files past \
                    the page cache. Snapshots are taken one after the other beside 16 synchronous clients, \
                    half of whose requests are reads, and beside the same load without.",
            x: Axis { label: "znodes", scale: Scale::Log },
            own_servers: true,
            ..Plan::default()
        }
    }

    fn run(&self, bench: &mut Bench<'_>) -> Result<()> {
        let (settings, runs) = (bench.settings, bench.pace().runs);
        let page_cache = PageCache::drop_all();
        bench.note(format!("The page cache is {page_cache}."));
        let znodes = settings.tree_znodes.unwrap_or_else(|| bench.pace().pick(QUICK, FULL));
        let shape = Shape {
            tree: Tree::new(znodes, 100),
            log_txns: znodes / 1000 * LOG_TXNS_A_THOUSAND,
            replay_txns: znodes / 1000 * REPLAY_TXNS_A_THOUSAND,
            sessions: 16,
            reads_percent: 50,
            window: bench.pace().window * 2,
            warmup: bench.pace().warmup,
            snap_count: 2000,
        };
        let systems = bench.subjects().filter_map(Subject::system);
        let hosts: Vec<Host> =
            systems.map(|system| Host::new(system, settings, page_cache)).collect::<Result<_>>()?;
        turns(bench, &hosts, shape, ("filling and settling", 1), prepare)?;
        turns(bench, &hosts, shape, ("restart", runs), restart::restart)?;
        turns(bench, &hosts, shape, ("replay", runs), restart::replay)?;
        turns(bench, &hosts, shape, ("scrub", runs), scrub::scrub)?;
        turns(bench, &hosts, shape, ("snapshots", runs), snapshots::beside_load)
    }

    /// One, with a row for each figure.
    fn tables(&self, record: &Record) -> Vec<Table> {
        vec![Table::of_figures(record)]
    }
}

/// Has `measure` look at every system as often as there are runs, in turns.
fn turns(
    bench: &mut Bench<'_>,
    hosts: &[Host],
    shape: Shape,
    (what, runs): (&str, usize),
    measure: impl Fn(&Host, Shape, &Progress) -> Result<Vec<Figure<'static>>>,
) -> Result<()> {
    bench.alternate(
        runs,
        hosts,
        |host| (host.system().name(), 1, what.to_owned()),
        |bench, host, origin| {
            let before = Machine::now(None);
            let measured = measure(host, shape, bench.progress);
            host.kill();
            let figures = measured.with_context(|| format!("its output ends with:\n{}", host.log_tail()))?;
            let invalid = Machine::now(None).since(&before).disturbances().join("; ");
            let place = Place { series: "", x: f64::from(shape.tree.znodes()) };
            bench.push(origin, place, &figures, &invalid);
            Ok(())
        },
    )
}

/// Fills the tree, and puts the folders aside that the other measurements begin with.
fn prepare(host: &Host, shape: Shape, progress: &Progress) -> Result<Vec<Figure<'static>>> {
    let (tree, around) = (shape.tree, Surroundings::spectator(progress));
    drop(host.start(NO_SNAPSHOTS)?);
    tree.create(host.address(), around).context("creating the tree")?;
    let resident = host.processes()?.resident_bytes()?;
    host.kill();
    snapshots::settle(host, tree, progress).context("waiting for snapshots")?;
    host.kill();
    host.save(SETTLED)?;
    for (name, txns) in [(SHORT_LOG, shape.log_txns), (LONG_LOG, shape.replay_txns)] {
        host.restore(SETTLED)?;
        drop(host.start(NO_SNAPSHOTS)?);
        tree.update(host.address(), txns, 1, around)?;
        tree.set_last(host.address(), name)?;
        host.kill();
        host.save(name)?;
    }
    Ok(vec![(IN_ALL, "B/znode", as_f64(resident) / f64::from(tree.znodes()))])
}
