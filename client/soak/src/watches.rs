//! Watches: one worker changes znodes, three watch them, with every kind of watch there is.
//!
//! The oracles need no clock. The client promises that an event is delivered before the reply that shows
//! its change. So whoever reads something newer than what it has watched, and has no event by then, never
//! gets one in time; and the events of a persistent watch up to a read are exactly the changes up to it.
//!
//! No watch may hide that another was lost: a session has one kind of watch on a znode at a time, since the
//! client gives an event to all who wait for it, whichever watch the server has sent it for.

mod one_shot;
mod stream;

use std::pin::Pin;
use std::sync::Arc;

use ringkeeper_client::{AddWatchMode, Client, CreateMode, Error, Result, Wait};

use crate::soak::{Soak, Team};
use crate::worker::Worker;

/// Its children come and go, and theirs.
const DIR: &str = "/watched";
const PLOTS: [&str; 8] = [
    "/watched/0",
    "/watched/1",
    "/watched/2",
    "/watched/3",
    "/watched/4",
    "/watched/5",
    "/watched/6",
    "/watched/7",
];
const CHILDREN: [&str; 3] = ["x", "y", "z"];

/// How many changes the writer asks for at once.
const BURST_MAX: u64 = 6;

const WATCHERS: usize = 2;

/// Four workers.
pub(crate) fn start(soak: &Arc<Soak>, client: &Client, team: &mut Team) -> Result<()> {
    client.ensure_path(DIR).wait()?;
    team.spawn(soak, format!("{DIR}#writer"), |worker| {
        worker.run(|worker| {
            // Often enough that something happens while a watcher changes servers.
            (0..20).try_for_each(|_| {
                let pause = worker.random(0..20);
                worker.sleep(pause);
                change(worker)
            })
        });
    });
    for number in 0..WATCHERS {
        team.spawn(soak, format!("{DIR}#watcher-{number}"), |worker| worker.run(one_shot::watch));
    }
    team.spawn(soak, format!("{DIR}#follower"), |worker| {
        worker.run(|worker| {
            let mode = worker.choose(&[AddWatchMode::Persistent, AddWatchMode::PersistentRecursive]);
            stream::follow(worker, mode)
        });
    });
    Ok(())
}

/// A few changes, one after another or as a whole. Nothing here depends on what becomes of them.
fn change(worker: &mut Worker) -> Result<()> {
    worker.at("changes what others watch");
    if worker.random(0..4) == 0 {
        let plot = worker.choose(&PLOTS);
        let child = format!("{plot}/{}", worker.choose(&CHILDREN));
        let changes = worker.client.transaction().set_data(plot, b"whole", None);
        let outcome = changes.create(&child, b"", CreateMode::Persistent).commit().wait();
        return outcome
            .map(drop)
            .or_else(is_no_matter)
            .map(|()| worker.count("changes of what others watch"));
    }
    let changes: Vec<_> = (0..=worker.random(0..BURST_MAX)).map(|_| ask_for_change(worker)).collect();
    for change in changes {
        change.wait().or_else(is_no_matter)?;
        worker.count("changes of what others watch");
    }
    Ok(())
}

type Change = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

/// The request is queued when this returns.
fn ask_for_change(worker: &mut Worker) -> Change {
    let plot = worker.choose(&PLOTS);
    let child = format!("{plot}/{}", worker.choose(&CHILDREN));
    let what = worker.random(0..10);
    let client = &worker.client;
    match what {
        0..4 => {
            let set = client.set_data(plot, worker.name.as_bytes(), None);
            Box::pin(async { set.await.map(drop) })
        }
        4 => {
            let create = client.create(plot, b"", CreateMode::Persistent);
            Box::pin(async { create.await.map(drop) })
        }
        5 | 6 => {
            let create = client.create(&child, b"", CreateMode::Persistent);
            Box::pin(async { create.await.map(drop) })
        }
        7 | 8 => Box::pin(client.delete(&child, None)),
        _ => Box::pin(client.delete(plot, None)),
    }
}

fn is_no_matter(error: Error) -> Result<()> {
    match error {
        Error::NodeExists(_) | Error::NoNode(_) | Error::NotEmpty(_) | Error::Transaction { .. } => Ok(()),
        other => Err(other),
    }
}
