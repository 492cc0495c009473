//! Requests of 1 KiB on one connection, one or many at a time.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::Result;
use ringkeeper_client::{Client, CreateMode, Wait};

use crate::tally::{Meter, Tally};
use crate::{Requests, Subject, Work};

const PATH: &str = "/client-bench";
const DATA: [u8; 1024] = [0x5a; 1024];

/// How many pipelined operations pass between two looks at the clock.
const STRIDE: usize = 64;

pub(crate) fn run(options: &Requests) -> Result<()> {
    let tally = match options.client {
        // Both clients run in the same kind of runtime: one thread, which costs the least CPU time.
        Subject::Ringkeeper => runtime()?.block_on(with_ours(options))?,
        Subject::ZookeeperClient => runtime()?.block_on(with_theirs(options))?,
        Subject::RingkeeperWait => waited_for(options)?,
    };
    println!("{}", tally.line());
    Ok(())
}

/// Makes the znode that is read and written.
pub(crate) fn prepare(server: &str) -> Result<()> {
    let client = Client::connect(server).wait()?;
    match client.create(PATH, DATA, CreateMode::Persistent).wait() {
        Ok(_) | Err(ringkeeper_client::Error::NodeExists(_)) => Ok(client.close().wait()?),
        Err(error) => Err(error.into()),
    }
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

async fn with_ours(options: &Requests) -> Result<Tally> {
    let client = Client::connect(&options.server).await?;
    match options.work {
        Work::Get => measure(options, || client.get_data(PATH)).await,
        Work::Set => measure(options, || client.set_data(PATH, DATA, None)).await,
    }
}

async fn with_theirs(options: &Requests) -> Result<Tally> {
    let client = zookeeper_client::Client::connect(&options.server).await?;
    match options.work {
        Work::Get => measure(options, || client.get_data(PATH)).await,
        Work::Set => measure(options, || client.set_data(PATH, &DATA, None)).await,
    }
}

/// Keeps as many calls under way as there are to be; both clients send when they are called.
async fn measure<T, E, F>(options: &Requests, call: impl Fn() -> F) -> Result<Tally>
where
    E: std::error::Error + Send + Sync + 'static,
    F: Future<Output = Result<T, E>>,
{
    let mut meter = Meter::start(Duration::from_secs(options.seconds))?;
    if options.outstanding == 1 {
        loop {
            let start = Instant::now();
            call().await?;
            let now = Instant::now();
            if !meter.count(now, Some(now - start)) {
                return meter.finish();
            }
        }
    }
    let mut under_way: VecDeque<F> = (0..options.outstanding).map(|_| call()).collect();
    loop {
        let now = Instant::now();
        for _ in 0..STRIDE {
            if let Some(oldest) = under_way.pop_front() {
                oldest.await?;
            }
            under_way.push_back(call());
            if !meter.count(now, None) {
                return meter.finish();
            }
        }
    }
}

/// The same without a runtime: the thread waits for one call after the other.
fn waited_for(options: &Requests) -> Result<Tally> {
    let client = Client::connect(&options.server).wait()?;
    match options.work {
        Work::Get => measure(options, || waiting(client.get_data(PATH))).wait(),
        Work::Set => measure(options, || waiting(client.set_data(PATH, DATA, None))).wait(),
    }
}

/// A call that is under way; whoever polls this waits for it.
async fn waiting<T>(call: impl Future<Output = T>) -> T {
    call.wait()
}
