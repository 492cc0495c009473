//! One-shot watches: on each znode one, of a kind drawn when it is left, for as long as the session lives.

use std::pin::Pin;
use std::time::Duration;

use ringkeeper_client::{Client, Error, EventKind, Result, Stat, Wait, Watch, WatchEvent, Zxid};

use super::{DIR, PLOTS};
use crate::worker::Worker;

/// What a watch waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    Data,
    Children,
    Existence,
}

/// A watch, and what was there when it was left.
struct Stand {
    path: &'static str,
    look: Look,
    before: Option<Zxid>,
    watch: Watch,
    /// What the watch has told.
    event: Option<WatchEvent>,
    /// It has told its event or its end, and tells nothing more.
    is_told: bool,
}

impl Stand {
    /// Takes the event, if it is there.
    fn look_for_event(&mut self) -> Result<()> {
        if !self.is_told
            && let Some(event) = (&mut self.watch).wait_timeout(Duration::ZERO)
        {
            self.is_told = true;
            self.event = Some(event?);
        }
        Ok(())
    }
}

type Leaving = Pin<Box<dyn Future<Output = Result<Option<(Option<Stat>, Watch)>>> + Send>>;

impl Look {
    /// The request is queued when this returns. No watch if there is no znode that could have one.
    fn leave(self, client: &Client, path: &str) -> Leaving {
        match self {
            Self::Data => {
                let reply = client.get_data_and_watch(path);
                Box::pin(async { if_there(reply.await.map(|((_, stat), watch)| (Some(stat), watch))) })
            }
            Self::Children => {
                let reply = client.get_children_and_watch(path);
                Box::pin(async { if_there(reply.await.map(|((_, stat), watch)| (Some(stat), watch))) })
            }
            Self::Existence => {
                let reply = client.exists_and_watch(path);
                Box::pin(async { reply.await.map(Some) })
            }
        }
    }

    /// The last change that such a watch waits for; `None` if the znode does not exist.
    fn last_change(self, stat: Option<&Stat>) -> Option<Zxid> {
        stat.map(|stat| if self == Self::Children { stat.pzxid } else { stat.mzxid })
    }

    const fn fired(self) -> &'static str {
        match self {
            Self::Data => "data watches fired",
            Self::Children => "child watches fired",
            Self::Existence => "exists watches fired",
        }
    }
}

fn if_there<T>(outcome: Result<T>) -> Result<Option<T>> {
    match outcome {
        Err(Error::NoNode(_)) => Ok(None),
        other => other.map(Some),
    }
}

/// Leaves watches and looks whether they should have fired, until the session ends.
pub(super) fn watch(worker: &mut Worker) -> Result<()> {
    let mut stands: Vec<Stand> = Vec::new();
    while worker.goes_on() {
        let outcome = look_around(worker, &mut stands);
        if let Err(error) = outcome {
            if !error.is_connection() {
                worker.at("waits to be told that its watches have ended");
                // Ready, or the watchdog sees that it is not.
                let untold = stands.into_iter().filter(|stand| !stand.is_told);
                untold.for_each(|stand| drop(stand.watch.wait()));
                return Err(error);
            }
            worker.client.connected().wait()?;
        }
    }
    Ok(())
}

fn look_around(worker: &mut Worker, stands: &mut Vec<Stand>) -> Result<()> {
    worker.at("leaves watches");
    leave_all(worker, stands)?;
    let pause = worker.random(0..40);
    worker.sleep(pause);
    stands.iter_mut().try_for_each(Stand::look_for_event)?;
    worker.at("looks at what it watches");
    let stats = worker.retried(|client| {
        let synced = client.sync(DIR);
        let stats: Vec<_> = stands.iter().map(|stand| client.exists(stand.path)).collect();
        synced.wait()?;
        stats.into_iter().map(Wait::wait).collect::<Result<Vec<_>>>()
    })?;
    let mut kept = Vec::with_capacity(stands.len());
    for (mut stand, stat) in std::mem::take(stands).into_iter().zip(stats) {
        let was_early = stand.event.is_some();
        stand.look_for_event()?;
        let Stand { path, look, before, ref event, .. } = stand;
        let now = look.last_change(stat.as_ref());
        if let Some(wrong) = judge(look, before, now, event.as_ref(), was_early) {
            worker.violation(format_args!("{look:?} of {path} was {before:?}, is {now:?}: {wrong}"));
            continue;
        }
        match event {
            Some(event) => {
                worker.count("one-shot watches fired");
                worker.count(look.fired());
                if event.zxid.is_none() {
                    worker.count("one-shot watches fired after a change of servers");
                }
            }
            None => kept.push(stand),
        }
    }
    *stands = kept;
    Ok(())
}

/// Where there is no watch, one of some kind.
fn leave_all(worker: &mut Worker, stands: &mut Vec<Stand>) -> Result<()> {
    let empty = |path: &&str| !stands.iter().any(|stand| stand.path == *path);
    let paths: Vec<_> = PLOTS.into_iter().chain([DIR]).filter(empty).collect();
    let mut leaving = Vec::new();
    for path in paths {
        let look = worker.choose(&[Look::Data, Look::Children, Look::Existence]);
        leaving.push((path, look, look.leave(&worker.client, path)));
    }
    for (path, look, left) in leaving {
        if let Some((stat, watch)) = left.wait()? {
            let before = look.last_change(stat.as_ref());
            stands.push(Stand { path, look, before, watch, event: None, is_told: false });
        }
    }
    Ok(())
}

/// What is wrong with a watch that was left when the last change was `before`, if it is `now` by a read, and
/// `event` had come when that was answered, or even before it was asked.
fn judge(
    look: Look,
    before: Option<Zxid>,
    now: Option<Zxid>,
    event: Option<&WatchEvent>,
    was_early: bool,
) -> Option<String> {
    let Some(event) = event else {
        return (now != before).then(|| "the watch was lost, no event came before the reply".to_owned());
    };
    let fits = match (look, event.kind) {
        (Look::Existence, EventKind::Created) => before.is_none(),
        (Look::Data | Look::Existence, EventKind::DataChanged)
        | (Look::Children, EventKind::ChildrenChanged) => before.is_some(),
        (_, EventKind::Deleted) => before.is_some(),
        _ => false,
    };
    if !fits {
        return Some(format!("no such watch tells {event:?}"));
    }
    if event.zxid.is_some_and(|zxid| Some(zxid) <= before) {
        return Some(format!("the watch told what was seen before it was left: {event:?}"));
    }
    // What was created may have been deleted since, with nothing to be seen of it.
    (was_early && now == before && before.is_some())
        .then(|| format!("nothing happened, and it told {event:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOKS: [Look; 3] = [Look::Data, Look::Children, Look::Existence];

    fn at(zxid: i64) -> Option<Zxid> {
        Some(Zxid::from_wire(zxid))
    }

    fn event(kind: EventKind, zxid: Option<Zxid>) -> WatchEvent {
        WatchEvent { kind, path: DIR.to_owned(), zxid }
    }

    #[test]
    fn a_watch_that_did_not_fire_is_lost_whatever_it_waits_for() {
        for look in LOOKS {
            assert_eq!(judge(look, at(1), at(1), None, false), None);
            for now in [at(2), None] {
                assert!(judge(look, at(1), now, None, false).is_some(), "{look:?}");
            }
        }
        assert_eq!(judge(Look::Existence, None, None, None, false), None);
        assert!(judge(Look::Existence, None, at(2), None, false).is_some());
    }

    #[test]
    fn a_watch_tells_its_own_kind_of_change_and_after_a_change_of_servers_no_zxid() {
        use EventKind::{ChildrenChanged, Created, DataChanged, Deleted};
        let right = [
            (Look::Data, at(1), DataChanged),
            (Look::Data, at(1), Deleted),
            (Look::Children, at(1), ChildrenChanged),
            (Look::Children, at(1), Deleted),
            (Look::Existence, None, Created),
            (Look::Existence, at(1), DataChanged),
            (Look::Existence, at(1), Deleted),
        ];
        for look in LOOKS {
            for before in [None, at(1)] {
                for kind in [Created, DataChanged, ChildrenChanged, Deleted] {
                    for zxid in [at(2), None] {
                        let verdict = judge(look, before, at(3), Some(&event(kind, zxid)), true);
                        let is_right = right.contains(&(look, before, kind));
                        assert_eq!(verdict.is_none(), is_right, "{look:?} {before:?} {kind:?}: {verdict:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn an_event_of_nothing_new_is_invented() {
        let told = event(EventKind::DataChanged, at(2));
        assert!(judge(Look::Data, at(1), at(1), Some(&told), true).is_some());
        // It came while the read was on its way.
        assert_eq!(judge(Look::Data, at(1), at(1), Some(&told), false), None);
        assert!(judge(Look::Data, at(2), at(3), Some(&told), true).is_some());
        let created = event(EventKind::Created, at(2));
        assert_eq!(judge(Look::Existence, None, None, Some(&created), true), None);
    }
}
