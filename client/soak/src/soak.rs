//! One run: the workers, the faults, the watchdog, and the last look.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Result;
use ringkeeper_client::{Builder, Client, Wait, path};
use ringkeeper_testkit::{Ensemble, interrupt};

use crate::access::Access;
use crate::board::Board;
use crate::counters::Tally;
use crate::fence::Fence;
use crate::queues::Ledger;
use crate::slips::Operator;
use crate::verdict::Verdict;
use crate::worker::Worker;
use crate::{
    barriers, calls, chaos, configurations, counters, elections, groups, locks, meetings, members, queues,
    watches,
};

/// How often the watchdog looks.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How often a line says that all is well.
const REPORT_EVERY: Duration = Duration::from_secs(30);
/// How long the servers may take to serve again after the last fault.
const HEAL_MAX: Duration = Duration::from_secs(60);

/// What a run is to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) duration: Duration,
    pub(crate) fault_every: Duration,
    pub(crate) patience: Duration,
    pub(crate) seed: u64,
    /// Whether the members of the ensemble change.
    pub(crate) reconfigures: bool,
}

/// What everybody shares.
pub(crate) struct Soak {
    connect_string: String,
    access: Access,
    pub(crate) servers: Ensemble,
    /// Who makes mistakes, if somebody does.
    pub(crate) operator: Option<Operator>,
    pub(crate) board: Board,
    pub(crate) verdict: Verdict,
    stage: AtomicU8,
}

const RUNNING: u8 = 0;
const FINISHING: u8 = 1;
const OVER: u8 = 2;

/// The workers' threads.
pub(crate) struct Team {
    seed: u64,
    threads: Vec<JoinHandle<()>>,
}

impl Team {
    /// Starts a worker.
    pub(crate) fn spawn(
        &mut self,
        soak: &Arc<Soak>,
        name: String,
        work: impl FnOnce(Worker) + Send + 'static,
    ) {
        let (soak, seed) = (Arc::clone(soak), self.seed.wrapping_add(self.threads.len() as u64));
        self.threads.push(thread::spawn(move || work(Worker::start(&soak, name, seed))));
    }
}

impl Soak {
    /// A client of the servers.
    pub(crate) fn client(&self) -> Builder {
        self.access.client(&self.connect_string)
    }

    /// No more faults: everyone finishes what it is at.
    pub(crate) fn is_finishing(&self) -> bool {
        self.stage.load(Ordering::SeqCst) != RUNNING
    }

    /// The run is decided.
    pub(crate) fn is_over(&self) -> bool {
        self.stage.load(Ordering::SeqCst) == OVER
    }

    /// `false` if the run was decided meanwhile.
    pub(crate) fn sleep_until(&self, deadline: Instant) -> bool {
        while !self.is_over() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            thread::sleep(left.min(Duration::from_millis(100)));
        }
        false
    }
}

/// Whether every promise was kept. Prints a summary.
pub(crate) fn run(
    servers: Ensemble,
    operator: Option<Operator>,
    access: Access,
    plan: &Plan,
) -> Result<bool> {
    println!("seed {}, {} s", plan.seed, plan.duration.as_secs());
    let soak = Arc::new(Soak {
        connect_string: servers.connect_string(),
        access,
        servers,
        operator,
        board: Board::default(),
        verdict: Verdict::default(),
        stage: AtomicU8::new(RUNNING),
    });
    let client = soak.client().connect().wait()?;
    let mut team = Team { seed: plan.seed, threads: Vec::new() };
    let mut fences = locks::start(&soak, &client, &mut team)?;
    fences.extend(elections::start(&soak, &client, &mut team)?);
    barriers::start(&soak, &mut team);
    let ledgers = queues::start(&soak, &mut team);
    watches::start(&soak, &client, &mut team)?;
    let tallies = counters::start(&soak, &mut team);
    configurations::start(&soak, &mut team);
    groups::start(&soak, &mut team);
    meetings::start(&soak, &mut team);
    calls::start(&soak, &client, &mut team)?;
    client.close().wait()?;
    println!("{} clients on {}", team.threads.len(), soak.connect_string);

    let chaos = thread::spawn({
        let (soak, plan) = (Arc::clone(&soak), *plan);
        let deadline = Instant::now() + plan.duration;
        move || {
            thread::scope(|scope| {
                if plan.reconfigures {
                    scope.spawn(|| members::run(&soak, deadline, plan.seed.wrapping_mul(37)));
                }
                chaos::run(&soak, deadline, plan.fault_every, plan.seed.wrapping_mul(31));
            });
            // The workers are told to finish when everything runs again.
            if let Err(error) = soak.servers.wait_until_serving(HEAL_MAX)
                && interrupt::check().is_ok()
            {
                soak.verdict.violation(error.to_string());
            }
            let _ = soak.stage.compare_exchange(RUNNING, FINISHING, Ordering::SeqCst, Ordering::SeqCst);
        }
    });
    let is_whole = watch_over(&soak, plan);
    soak.stage.store(OVER, Ordering::SeqCst);
    if chaos.join().is_err() {
        soak.verdict.violation("the faults stopped by a panic".to_owned());
    }
    if is_whole {
        for thread in team.threads {
            if thread.join().is_err() {
                soak.verdict.violation("a worker panicked".to_owned());
            }
        }
        last_look(&soak, &fences, &ledgers, &tallies);
    }
    // A worker that is stuck keeps its part of all this for ever.
    soak.servers.end();
    println!("\n{}", soak.verdict);
    Ok(soak.verdict.is_good())
}

/// Waits until everyone has finished; `false` if somebody is stuck, or all is lost.
fn watch_over(soak: &Soak, plan: &Plan) -> bool {
    let start = Instant::now();
    let mut next_report = start + REPORT_EVERY;
    while soak.board.unfinished() > 0 {
        thread::sleep(LOOK_EVERY);
        if let Err(error) = interrupt::check() {
            soak.verdict.violation(error.to_string());
            return false;
        }
        let stuck = soak.board.stuck(plan.patience);
        if !stuck.is_empty() {
            eprintln!("{}", diagnosis(soak));
            soak.verdict.violation(format!("stuck: {}", stuck.join("; ")));
            return false;
        }
        if Instant::now() >= next_report {
            next_report += REPORT_EVERY;
            let count = |what| soak.verdict.counted(what);
            println!(
                "{:>5} s: {} kills, {} partitions, {} locks held, {} terms, {} barriers, {} entries taken, {} watches fired",
                start.elapsed().as_secs(),
                count("kill -9 of a server"),
                count("partitions"),
                count("locks held"),
                count("terms of leaders"),
                count("barriers left"),
                count("entries taken"),
                count("one-shot watches fired"),
            );
        }
    }
    true
}

/// Who waits for what: what everyone says, and what the tree and the servers say.
fn diagnosis(soak: &Soak) -> String {
    let mut text = format!("what everyone is doing:\n{}", soak.board.lines());
    for server in soak.servers.servers() {
        let answer = soak.servers.server(server).ask("srvr").unwrap_or_else(|error| error.to_string());
        let _ = writeln!(text, "server {server}:\n{answer}");
    }
    let described = async {
        let client = soak.client().connect().await?;
        let mut text = String::new();
        for root in ["/locks", "/elections", "/barriers", "/queues"] {
            describe(soak, &client, root, &mut text).await?;
        }
        Ok::<_, ringkeeper_client::Error>(text)
    };
    match described.wait_timeout(Duration::from_secs(20)) {
        Some(Ok(tree)) => text.push_str(&tree),
        Some(Err(error)) => drop(writeln!(text, "the tree cannot be read: {error}")),
        None => text.push_str("the tree cannot be read in time\n"),
    }
    text.push_str(&soak.servers.log_tails());
    text
}

/// The znodes below a path, with the names of those whose sessions hold them.
async fn describe(
    soak: &Soak,
    client: &Client,
    root: &str,
    text: &mut String,
) -> ringkeeper_client::Result<()> {
    let mut left = vec![root.to_owned()];
    while let Some(path) = left.pop() {
        let Some(stat) = client.exists(&path).await? else { continue };
        let holder = stat.ephemeral_owner.map(|session| match soak.board.owner(session) {
            Some(name) => format!(" held by {name}"),
            None => format!(" held by {session}, nobody's session now"),
        });
        let _ = writeln!(text, "  {path} (created by {}){}", stat.czxid, holder.unwrap_or_default());
        let Ok((mut names, _)) = client.get_children(&path).await else { continue };
        names.sort_unstable_by(|one, two| two.cmp(one));
        left.extend(names.iter().map(|name| path::join(&path, name)));
    }
    Ok(())
}

/// When all is quiet: the counts are right, everything put was taken, nobody left anything behind.
fn last_look(soak: &Arc<Soak>, fences: &[Arc<Fence>], ledgers: &[Arc<Ledger>], tallies: &[Arc<Tally>]) {
    let worker = Worker::start(soak, "the last look".to_owned(), 0);
    let looked = || -> ringkeeper_client::Result<()> {
        for fence in fences {
            fence.check_in_the_end(&worker)?;
        }
        for (path, ledger) in queues::PATHS.into_iter().zip(ledgers) {
            ledger.check_in_the_end(path, &worker)?;
        }
        for tally in tallies {
            tally.check_in_the_end(&worker)?;
        }
        for path in locks::PATHS.into_iter().chain(elections::PATHS) {
            let children = worker.retried(|client| {
                client.sync(path).wait()?;
                Ok(client.get_children(path).wait().map(|(names, _)| names).unwrap_or_default())
            })?;
            // Sessions that could not be closed may not have expired yet.
            if !children.is_empty() {
                worker
                    .violation(format_args!("{path}: left in the line although all have gone: {children:?}"));
            }
        }
        Ok(())
    };
    if let Err(error) = looked() {
        worker.violation(format_args!("the last look failed: {error}"));
    }
    worker.finish();
}
