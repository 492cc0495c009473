//! A member of the broadcast alone, a process that `paper` starts for figure 7: no clients, no tree; the
//! leader's own process generates the proposals.
//!
//! Commands come on the standard input, one a line, and each is answered with one line:
//!
//! ```text
//! status                                     leading, following or looking
//! heard                                      number of proposals delivered here
//! generate OUTSTANDING WARMUP_MS WINDOW_MS   then: generated ALL IN_WINDOW P50_NS P99_NS
//! ```

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use ringkeeper_broadcast::{Broadcast, Config, Handle, Outcome, StateError, StateMachine, Status, Zxid};

use crate::driver::{latency_histogram, record_latency};

/// Size of a proposal in bytes, as in the paper.
const PROPOSAL_LEN: usize = 1024;

/// Long: members share the machine, and a crowded one is no failure.
const PEER_TIMEOUT: Duration = Duration::from_secs(5);

/// Is a member of the broadcast alone, until its input ends.
#[derive(Debug, clap::Args)]
pub(crate) struct MemberArgs {
    /// Which of the members
    #[arg(long)]
    id: u64,
    /// Where its data is
    #[arg(long)]
    folder: PathBuf,
    /// All members' addresses, by their ids from 1 on
    #[arg(long, value_delimiter = ',')]
    members: Vec<String>,
}

/// Counts proposals, each of which carries its number: a missing one, or one out of order, shows.
#[derive(Clone, Default)]
struct Counter(Arc<Count>);

#[derive(Default)]
struct Count {
    heard: AtomicU64,
    out_of_order: AtomicBool,
}

impl StateMachine for Counter {
    fn deliver(&mut self, _: Zxid, proposal: &[u8]) {
        let number = proposal.first_chunk().map(|bytes| u64::from_be_bytes(*bytes));
        let heard = self.0.heard.load(Ordering::Relaxed) + 1;
        if number != Some(heard) {
            self.0.out_of_order.store(true, Ordering::Relaxed);
        }
        self.0.heard.store(heard, Ordering::Relaxed);
    }

    fn get_state(&mut self) -> Vec<u8> {
        self.0.heard.load(Ordering::Relaxed).to_be_bytes().to_vec()
    }

    fn set_state(&mut self, _: Zxid, state: &[u8]) -> Result<(), StateError> {
        self.0.heard.store(u64::from_be_bytes(state.try_into()?), Ordering::Relaxed);
        Ok(())
    }
}

/// Runs the subcommand.
pub(crate) fn run(args: &MemberArgs) -> Result<()> {
    let members = (1..).zip(&args.members);
    let config = members
        .fold(Config::ensemble(args.id, &args.folder).peer_timeout(PEER_TIMEOUT), |config, (id, member)| {
            config.member(id, member)
        });
    let counter = Counter::default();
    let broadcast = Broadcast::start(config, counter.clone())?;
    let handle = broadcast.handle();
    for line in std::io::stdin().lines() {
        println!("{}", answer(&line?, &handle, &counter.0)?);
    }
    handle.shutdown();
    Ok(broadcast.join()?)
}

fn answer(line: &str, handle: &Handle, count: &Count) -> Result<String> {
    if count.out_of_order.load(Ordering::Relaxed) {
        bail!("a proposal is missing or out of order");
    }
    match line.split(' ').collect::<Vec<_>>()[..] {
        ["status"] => Ok(match handle.status() {
            Status::Looking => "looking",
            Status::Following { .. } => "following",
            Status::Leading { .. } => "leading",
        }
        .to_owned()),
        ["heard"] => Ok(count.heard.load(Ordering::Relaxed).to_string()),
        ["generate", outstanding, warmup, window] => {
            let from = Instant::now() + Duration::from_millis(warmup.parse()?);
            let to = from + Duration::from_millis(window.parse()?);
            generate(handle, count.heard.load(Ordering::Relaxed), outstanding.parse()?, from, to)
        }
        _ => bail!("no command: {line}"),
    }
}

/// Proposes until `to`, as many as `outstanding` at a time. `heard`: how many there were before.
fn generate(handle: &Handle, heard: u64, outstanding: usize, from: Instant, to: Instant) -> Result<String> {
    let mut under_way: VecDeque<(Instant, Outcome)> = VecDeque::with_capacity(outstanding);
    let mut proposal = vec![0x5a; PROPOSAL_LEN];
    let mut latencies_ns = latency_histogram();
    let mut proposed = heard;
    let mut settle = |(at, outcome): (Instant, Outcome)| -> Result<()> {
        outcome.wait().context("a proposal failed")?;
        let now = Instant::now();
        if now >= from && now < to {
            record_latency(&mut latencies_ns, now - at);
        }
        Ok(())
    };
    while Instant::now() < to {
        while under_way.len() < outstanding {
            proposed += 1;
            proposal[..size_of::<u64>()].copy_from_slice(&proposed.to_be_bytes());
            under_way.push_back((Instant::now(), handle.propose(proposal.clone())));
        }
        let oldest = under_way.pop_front().context("nothing may be outstanding")?;
        settle(oldest)?;
    }
    under_way.into_iter().try_for_each(settle)?;
    ensure!(matches!(handle.status(), Status::Leading { .. }), "the leader was lost meanwhile");
    let (p50, p99) = (latencies_ns.value_at_percentile(50.0), latencies_ns.value_at_percentile(99.0));
    Ok(format!("generated {} {} {p50} {p99}", proposed - heard, latencies_ns.len()))
}
