//! Persistent watches: between two looks without a change of servers there is an event for each change, and
//! for nothing else.

use std::time::Duration;

use ringkeeper_client::{
    AddWatchMode, Client, Error, EventKind, PersistentWatch, ReadResult, Result, Stat, Wait, WatchEvent,
    Zxid, path,
};

use super::{DIR, PLOTS};
use crate::worker::Worker;

/// What a read of everything that is watched has shown.
struct View {
    zxid: Zxid,
    /// Of [`paths`], in their order.
    stats: Vec<Option<Stat>>,
}

fn paths() -> impl Iterator<Item = &'static str> {
    PLOTS.into_iter().chain([DIR])
}

/// Follows persistent watches for a while.
pub(super) fn follow(worker: &mut Worker, mode: AddWatchMode) -> Result<()> {
    worker.at(format_args!("follows {DIR}, {mode:?}"));
    let mut streams = worker.retried(|client| leave(client, mode))?;
    let mut events = Vec::new();
    let mut base: Option<View> = None;
    for _ in 0..worker.random(20..80) {
        let pause = worker.random(0..40);
        worker.sleep(pause);
        worker.at(format_args!("compares events with what they tell of, {mode:?}"));
        let now = worker.retried(look)?;
        if !gather(&mut streams, &mut events)? {
            // After a gap the counting begins anew, with a look that comes after it.
            events.clear();
            base = None;
            continue;
        }
        if events.iter().any(|event| event.zxid.is_none()) {
            worker.violation("events of persistent watches without a zxid, although the server is of 3.9");
            return Ok(());
        }
        if let Some(base) = base {
            compare_all(worker, mode, &base, &now, &events);
        }
        events.retain(|event| event.zxid > Some(now.zxid));
        base = Some(now);
    }
    Ok(())
}

fn leave(client: &Client, mode: AddWatchMode) -> Result<Vec<PersistentWatch>> {
    let watched: Vec<_> = match mode {
        AddWatchMode::Persistent => paths().collect(),
        AddWatchMode::PersistentRecursive => vec![DIR],
    };
    let replies: Vec<_> = watched.into_iter().map(|path| client.watch(path, mode)).collect();
    replies.into_iter().map(Wait::wait).collect()
}

/// All of it in one state. The newest zxid that the client knows afterwards is that of the reply.
fn look(client: &Client) -> Result<View> {
    let reads = paths().fold(client.reads(), |reads, path| reads.get_data(path));
    let stat = |result| match result {
        Ok(ReadResult::Data(_, stat)) => Ok(Some(stat)),
        Ok(other) => unreachable!("data was asked for, and {other:?} came"),
        Err(Error::NoNode(_)) => Ok(None),
        Err(error) => Err(error),
    };
    let stats = reads.commit().wait()?.into_iter().map(stat).collect::<Result<_>>()?;
    Ok(View { zxid: client.last_zxid(), stats })
}

/// Takes what has arrived. `false` if some of it may be missing.
fn gather(streams: &mut [PersistentWatch], events: &mut Vec<WatchEvent>) -> Result<bool> {
    let mut is_whole = true;
    for stream in streams {
        while let Some(Some(event)) = stream.next().wait_timeout(Duration::ZERO) {
            match event {
                Ok(event) if event.kind == EventKind::Restored => is_whole = false,
                Ok(event) => events.push(event),
                Err(Error::EventsMissed(_)) => is_whole = false,
                Err(error) => return Err(error),
            }
        }
    }
    Ok(is_whole)
}

fn compare_all(worker: &Worker, mode: AddWatchMode, base: &View, now: &View, events: &[WatchEvent]) {
    let between: Vec<_> =
        events.iter().filter(|event| event.zxid > Some(base.zxid) && event.zxid <= Some(now.zxid)).collect();
    for ((path, base), now) in paths().zip(&base.stats).zip(&now.stats) {
        if let Err(wrong) = compare(path, mode, base.as_ref(), now.as_ref(), &between) {
            worker.violation(format_args!(
                "{mode:?}: {path} was {base:?}, is {now:?}, {wrong}; events in between: {between:?}"
            ));
        }
    }
    worker.count("stretches of persistent watches compared with what changed");
    (0..between.len()).for_each(|_| worker.count("events of persistent watches"));
}

/// What the events say of one znode must be what has become of it.
fn compare(
    path: &str,
    mode: AddWatchMode,
    base: Option<&Stat>,
    now: Option<&Stat>,
    events: &[&WatchEvent],
) -> std::result::Result<(), String> {
    let mut created = base.map(|stat| stat.czxid);
    let (mut version, mut cversion) = base.map_or((0, 0), |stat| (stat.version, stat.cversion));
    for event in events {
        // A watch of the whole subtree tells of the children themselves, and no more than that.
        if mode == AddWatchMode::PersistentRecursive && path::parent(&event.path) == path {
            cversion += i32::from(matches!(event.kind, EventKind::Created | EventKind::Deleted));
        }
        if event.path != path {
            continue;
        }
        match event.kind {
            EventKind::Created if created.is_some() => return Err("the deletion was not told".to_owned()),
            EventKind::Created => (created, version, cversion) = (event.zxid, 0, 0),
            _ if created.is_none() => return Err("the creation was not told".to_owned()),
            EventKind::Deleted => created = None,
            EventKind::DataChanged => version += 1,
            EventKind::ChildrenChanged => cversion += 1,
            other => return Err(format!("{other:?} was told")),
        }
    }
    let told = created.map(|created| (created, version, cversion));
    let seen = now.map(|stat| (stat.czxid, stat.version, stat.cversion));
    if told == seen { Ok(()) } else { Err(format!("and told is (czxid, version, cversion) {told:?}")) }
}

#[cfg(test)]
mod tests {
    use EventKind::{ChildrenChanged, Created, DataChanged, Deleted};

    use super::*;

    const PLOT: &str = PLOTS[0];

    fn stat(czxid: i64, version: i32, cversion: i32) -> Stat {
        let zxid = Zxid::from_wire(czxid);
        Stat {
            czxid: zxid,
            mzxid: zxid,
            pzxid: zxid,
            ctime_ms: 0,
            mtime_ms: 0,
            version,
            cversion,
            aversion: 0,
            ephemeral_owner: None,
            data_length: 0,
            num_children: 0,
        }
    }

    /// What happens to a plot and below it, as each kind of watch tells it. In between the plot is deleted
    /// and created anew.
    fn histories() -> [(AddWatchMode, Vec<WatchEvent>); 2] {
        let event = |zxid, kind, path: &str| WatchEvent {
            kind,
            path: path.to_owned(),
            zxid: Some(Zxid::from_wire(zxid)),
        };
        let child = path::join(PLOT, "x");
        let of_plot = [(2, DataChanged), (5, Deleted), (6, Created), (7, DataChanged)];
        let of_plot = of_plot.map(|(zxid, kind)| event(zxid, kind, PLOT));
        let persistent = [3, 4, 8].map(|zxid| event(zxid, ChildrenChanged, PLOT));
        let recursive = [(3, Created), (4, Deleted), (8, Created)];
        let recursive = recursive.map(|(zxid, kind)| event(zxid, kind, &child));
        let in_order = |of_children: &[WatchEvent]| {
            let mut events = [&of_plot, of_children].concat();
            events.sort_by_key(|event| event.zxid);
            events
        };
        [
            (AddWatchMode::Persistent, in_order(&persistent)),
            (AddWatchMode::PersistentRecursive, in_order(&recursive)),
        ]
    }

    /// The plot in the beginning, after the first three events, and in the end.
    fn stages() -> [Stat; 3] {
        [stat(1, 4, 4), stat(1, 5, 6), stat(6, 1, 1)]
    }

    #[test]
    fn a_whole_stream_is_what_has_become_of_the_znode() {
        let [base, middle, end] = stages();
        for (mode, events) in histories() {
            let events: Vec<_> = events.iter().collect();
            assert_eq!(compare(PLOT, mode, Some(&base), Some(&middle), &events[..3]), Ok(()));
            assert_eq!(compare(PLOT, mode, Some(&base), None, &events[..4]), Ok(()));
            assert_eq!(compare(PLOT, mode, Some(&base), Some(&end), &events), Ok(()));
        }
    }

    #[test]
    fn a_lost_event_is_seen_whatever_it_told() {
        let [base, middle, end] = stages();
        for (mode, events) in histories() {
            // What happened to a plot before it was deleted is not to be seen afterwards.
            for (range, now, lost) in [(0..3, &middle, 0..3), (0..7, &end, 3..7)] {
                for lost in lost {
                    let mut rest: Vec<_> = events[range.clone()].iter().collect();
                    let event = rest.remove(lost);
                    assert!(compare(PLOT, mode, Some(&base), Some(now), &rest).is_err(), "{event:?}");
                }
            }
        }
    }

    #[test]
    fn an_event_of_nothing_is_seen() {
        for (mode, events) in histories() {
            let [base, ..] = stages();
            let told: Vec<_> = events[..1].iter().collect();
            assert!(compare(PLOT, mode, Some(&base), Some(&base), &told).is_err());
        }
    }
}
