//! Elections: a leader counts in its znode until it resigns or is told that it leads no longer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ringkeeper_client::recipes::{Election, Holding, Loss};
use ringkeeper_client::{Client, Result, Wait};

use crate::fence::{Fence, Step};
use crate::soak::{Soak, Team};
use crate::worker::Worker;

/// Where the elections are.
pub(crate) const PATHS: [&str; 2] = ["/elections/a", "/elections/b"];

const CANDIDATES: usize = 4;

/// Eight workers in two elections.
pub(crate) fn start(soak: &Arc<Soak>, client: &Client, team: &mut Team) -> Result<Vec<Arc<Fence>>> {
    let mut fences = Vec::new();
    for path in PATHS {
        let fence = Arc::new(Fence::new(client, &path[1..].replace('/', "-"))?);
        for number in 0..CANDIDATES {
            let fence = Arc::clone(&fence);
            team.spawn(soak, format!("{path}#{number}"), move |worker| {
                worker.run(|worker| term(worker, path, &fence));
            });
        }
        fences.push(fence);
    }
    Ok(fences)
}

fn term(worker: &mut Worker, path: &str, fence: &Fence) -> Result<()> {
    worker.at(format_args!("waits to lead at {path}"));
    let leadership = Election::new(&worker.client, path, &worker.name).lead().wait()?;
    worker.count("terms of leaders");
    let until = Instant::now() + Duration::from_millis(worker.random(50..1500));
    while Instant::now() < until && worker.goes_on() {
        worker.at(format_args!("leads at {}", leadership.path()));
        if fence.step(worker, &leadership)? == Step::Lost {
            worker.at(format_args!("waits to be told that {} is lost", leadership.path()));
            drop(leadership.lost().wait());
            worker.count("leaderships lost, and the leader told");
            return Ok(());
        }
        let pause = Duration::from_millis(worker.random(10..100));
        if let Some(loss) = leadership.lost().wait_timeout(pause) {
            return told(worker, &leadership, &loss);
        }
    }
    worker.at(format_args!("resigns at {path}"));
    leadership.release().wait()
}

/// What a leader is told must be true.
fn told(worker: &Worker, leadership: &Holding, loss: &Loss) -> Result<()> {
    match loss {
        Loss::Deleted => {
            let path = leadership.path();
            let there = worker.retried(|client| {
                let (synced, stat) = (client.sync(path), client.exists(path));
                synced.wait()?;
                stat.wait()
            })?;
            if there.is_some() {
                worker.violation(format_args!("told that {path} is deleted, and it is there"));
            }
            worker.count("leaderships lost, and the leader told");
        }
        Loss::Lapsed => worker.count("leaderships given up because the session may have expired"),
        _ => worker.count("leaderships ended with their session"),
    }
    Ok(())
}
