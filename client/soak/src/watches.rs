//! Watches: one worker changes znodes, three watch them.
//!
//! The oracle needs no clock. The client promises that an event is delivered before the reply that shows
//! its change. So whoever reads something newer than what it has watched, and has no event by then, never
//! gets one in time; and the events of a persistent watch up to a read are exactly the versions up to it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use ringkeeper_client::{
    AddWatchMode, Client, CreateMode, Error, EventKind, PersistentWatch, Result, Stat, Wait, Watch, Zxid,
};

use crate::soak::{Soak, Team};
use crate::worker::Worker;

const DIR: &str = "/watched";
const DATA: [&str; 3] = ["/watched/0", "/watched/1", "/watched/2"];
/// Comes and goes.
const FLICKERING: &str = "/watched/flickering";

const WATCHERS: usize = 3;

/// What a watcher looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    Data(&'static str),
    Children,
    Existence,
}

/// Four workers.
pub(crate) fn start(soak: &Arc<Soak>, client: &Client, team: &mut Team) -> Result<()> {
    client.ensure_path(DIR).wait()?;
    for path in DATA {
        client.create(path, b"", CreateMode::Persistent).wait()?;
    }
    team.spawn(soak, format!("{DIR}#writer"), |worker| worker.run(change));
    for number in 0..WATCHERS {
        team.spawn(soak, format!("{DIR}#watcher-{number}"), |worker| {
            worker.run(|worker| match worker.random(0..8) {
                0 => follow(worker, AddWatchMode::Persistent),
                1 => follow(worker, AddWatchMode::PersistentRecursive),
                2 | 3 => watch_once(worker, Look::Children),
                4 | 5 => watch_once(worker, Look::Existence),
                _ => {
                    let path = worker.choose(&DATA);
                    watch_once(worker, Look::Data(path))
                }
            });
        });
    }
    Ok(())
}

fn change(worker: &mut Worker) -> Result<()> {
    let data = worker.choose(&DATA);
    let create_first = worker.random(0..2) == 0;
    let what = worker.random(0..3);
    worker.at("changes what others watch");
    let client = &worker.client;
    let outcome = match what {
        0 if create_first => client.create(FLICKERING, b"", CreateMode::Persistent).wait().map(drop),
        0 => client.delete(FLICKERING, None).wait(),
        _ => client.set_data(data, worker.name.as_bytes(), None).wait().map(drop),
    };
    match outcome {
        Ok(()) => worker.count("changes of what others watch"),
        // Nothing here depends on whether it was executed.
        Err(Error::NodeExists | Error::NoNode) => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

/// What a read shows that only grows with changes; `None` if the znode does not exist.
fn age(look: Look, stat: Option<Stat>) -> Option<i64> {
    stat.map(|stat| match look {
        Look::Data(_) => stat.version.into(),
        Look::Children => stat.cversion.into(),
        Look::Existence => stat.czxid.to_wire(),
    })
}

fn look_and_watch(client: &Client, look: Look) -> Result<(Option<i64>, Watch)> {
    let (stat, watch) = match look {
        Look::Data(path) => {
            let ((_, stat), watch) = client.get_data_and_watch(path).wait()?;
            (Some(stat), watch)
        }
        Look::Children => {
            let ((_, stat), watch) = client.get_children_and_watch(DIR).wait()?;
            (Some(stat), watch)
        }
        Look::Existence => client.exists_and_watch(FLICKERING).wait()?,
    };
    Ok((age(look, stat), watch))
}

/// The same, now, with everything that was committed before.
fn look_again(worker: &Worker, look: Look) -> Result<Option<i64>> {
    let path = match look {
        Look::Data(path) => path,
        Look::Children => DIR,
        Look::Existence => FLICKERING,
    };
    let stat = worker.retried(|client| {
        let (synced, stat) = (client.sync(path), client.exists(path));
        synced.wait()?;
        stat.wait()
    })?;
    Ok(age(look, stat))
}

/// Leaves a watch and waits for it, looking now and then whether it should have fired.
fn watch_once(worker: &mut Worker, look: Look) -> Result<()> {
    worker.at(format_args!("watches {look:?}"));
    let (before, mut watch) = worker.retried(|client| look_and_watch(client, look))?;
    loop {
        let patience = Duration::from_millis(worker.random(1..200));
        let fired = (&mut watch).wait_timeout(patience);
        let now = look_again(worker, look)?;
        match fired {
            Some(event) => {
                let event = event?;
                worker.count("one-shot watches fired");
                // What was created may have been deleted since.
                let came_and_went = look == Look::Existence && before.is_none();
                if now == before && !came_and_went {
                    worker.violation(format_args!("{look:?} told {event:?}, but is {now:?} as before"));
                }
                return Ok(());
            }
            // The read is answered: the event was delivered before, or never is.
            None if now != before => {
                return match (&mut watch).wait_timeout(Duration::ZERO) {
                    Some(event) => event.map(|_| worker.count("one-shot watches fired")),
                    None => {
                        worker.violation(format_args!(
                            "a watch was lost: {look:?} was {before:?}, is {now:?}, and no event came before"
                        ));
                        Ok(())
                    }
                };
            }
            None if !worker.goes_on() => return Ok(()),
            None => worker.count("looks at what did not change"),
        }
    }
}

/// Follows a persistent watch for a while: between two reads without a change of servers, there is an event
/// for each version.
fn follow(worker: &mut Worker, mode: AddWatchMode) -> Result<()> {
    let data = worker.choose(&DATA);
    let path = if mode == AddWatchMode::Persistent { data } else { DIR };
    worker.at(format_args!("follows {path}, {mode:?}"));
    let mut events = worker.retried(|client| client.watch(path, mode).wait())?;
    let mut gathered = Gathered::default();
    let mut base: Option<Stat> = None;
    for _ in 0..worker.random(5..40) {
        let pause = worker.random(1..100);
        worker.sleep(pause);
        let (_, now) = worker.retried(|client| client.get_data(data).wait())?;
        let whole = gathered.gather(&mut events, data)?;
        if let (Some(base), true) = (base, whole) {
            gathered.check(worker, &base, &now);
        }
        // After a gap the counting begins anew.
        gathered.forget_up_to(now.mzxid);
        base = Some(now);
    }
    Ok(())
}

/// Events of one znode that were not compared yet.
#[derive(Debug, Default)]
struct Gathered(VecDeque<Option<Zxid>>);

impl Gathered {
    /// Takes what has arrived. `false` if the connection was lost in between.
    fn gather(&mut self, events: &mut PersistentWatch, path: &str) -> Result<bool> {
        let mut whole = true;
        while let Some(Some(event)) = events.next().wait_timeout(Duration::ZERO) {
            let event = event?;
            match event.kind {
                EventKind::Restored => {
                    whole = false;
                    self.0.clear();
                }
                EventKind::DataChanged if event.path == path => self.0.push_back(event.zxid),
                _ => {}
            }
        }
        Ok(whole)
    }

    fn check(&self, worker: &Worker, base: &Stat, now: &Stat) {
        // Servers before ZooKeeper 3.9 do not tell the zxid.
        let up_to_now = self.0.iter().filter(|zxid| zxid.is_none_or(|zxid| zxid <= now.mzxid));
        let (found, expected) = (up_to_now.count(), i64::from(now.version) - i64::from(base.version));
        worker.count("stretches of a persistent watch compared with the versions");
        if i64::try_from(found) != Ok(expected) {
            worker.violation(format_args!(
                "versions {} to {}, and {found} events in between: {:?}",
                base.version, now.version, self.0
            ));
        }
    }

    fn forget_up_to(&mut self, zxid: Zxid) {
        self.0.retain(|event| event.is_some_and(|event| event > zxid));
    }
}
