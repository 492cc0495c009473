//! One lock, acquired and released by one client, or handed on among many.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ringkeeper_client::recipes::Lock;
use ringkeeper_client::{Client, Wait};

use crate::Locks;
use crate::tally::{Tally, WARMUP};

/// Acquisitions a second: one thread and one session a client, as the programs for kazoo and Curator do it.
pub(crate) fn run(options: &Locks) -> Result<()> {
    let (acquired, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let ready = Barrier::new(options.clients + 1);
    let path = format!("/client-bench-locks/ringkeeper-{}", options.clients);
    let rate = thread::scope(|scope| {
        let clients: Vec<_> = (0..options.clients)
            .map(|_| {
                scope.spawn(|| {
                    let client = Client::connect(&options.server).wait();
                    ready.wait();
                    let client = client?;
                    let lock = Lock::new(&client, &path);
                    while !is_over.load(Ordering::Relaxed) {
                        let holding = lock.acquire().wait()?;
                        acquired.fetch_add(1, Ordering::Relaxed);
                        holding.release().wait()?;
                    }
                    client.close().wait()
                })
            })
            .collect();
        ready.wait();
        thread::sleep(WARMUP);
        let (start, before) = (Instant::now(), acquired.load(Ordering::Relaxed));
        thread::sleep(Duration::from_secs(options.seconds));
        let (took, count) = (start.elapsed(), acquired.load(Ordering::Relaxed) - before);
        is_over.store(true, Ordering::Relaxed);
        for client in clients {
            client.join().ok().context("a client panicked")??;
        }
        #[expect(clippy::cast_precision_loss, reason = "for people")]
        Ok::<_, anyhow::Error>(count as f64 / took.as_secs_f64())
    })?;
    println!("{}", Tally { rate, ..Tally::default() }.line());
    Ok(())
}
