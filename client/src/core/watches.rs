//! Which watches the program waits for, by kind and path: what to deliver, and what to restore.
//!
//! The server keeps watches by connection and fires each at most once a table; here they are kept for
//! the life of the session. Keys are paths at the server. Ordered maps, so that a run repeats exactly.

use std::collections::{BTreeMap, BTreeSet};

use ringkeeper_wire::{AddWatchMode, EventType, Zxid};

use super::Sink;
use crate::{Error, WatchEvent};

/// A watch of this client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatchId(u64);

/// A watch to be registered when its request is answered.
#[derive(Debug)]
pub struct WatchRequest<W> {
    /// Number from [`super::Core::new_watch_id`].
    pub id: WatchId,
    /// The znode, as the server names it.
    pub path: String,
    /// What to wake.
    pub watcher: W,
    /// Which kind of persistent watch an addWatch asks for. One-shot watches follow from their request.
    pub mode: Option<AddWatchMode>,
}

/// Watches on one path: in most programs, one.
type Watchers<W> = Vec<(WatchId, W)>;
type Table<W> = BTreeMap<String, Watchers<W>>;

/// Every watch of a session.
pub(super) struct Watches<W> {
    /// From getData, and exists on a znode that was there.
    pub(super) data: Table<W>,
    /// From exists on a znode that was not there.
    pub(super) exist: Table<W>,
    /// From getChildren.
    pub(super) child: Table<W>,
    pub(super) persistent: Table<W>,
    pub(super) recursive: Table<W>,
    /// Persistent watches that may have missed events, and are to be told of that before any other.
    gaps: BTreeSet<WatchId>,
    next_id: u64,
}

impl<W> Default for Watches<W> {
    fn default() -> Self {
        Self {
            data: Table::new(),
            exist: Table::new(),
            child: Table::new(),
            persistent: Table::new(),
            recursive: Table::new(),
            gaps: BTreeSet::new(),
            next_id: 0,
        }
    }
}

/// The table that a watch goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WatchTable {
    Data,
    Exist,
    Child,
    Persistent(AddWatchMode),
}

impl<W> Watches<W> {
    pub(super) const fn new_id(&mut self) -> WatchId {
        self.next_id += 1;
        WatchId(self.next_id)
    }

    pub(super) fn add(&mut self, table: WatchTable, watch: WatchRequest<W>) {
        let table = match table {
            WatchTable::Data => &mut self.data,
            WatchTable::Exist => &mut self.exist,
            WatchTable::Child => &mut self.child,
            WatchTable::Persistent(mode) => self.persistent_table(mode),
        };
        table.entry(watch.path).or_default().push((watch.id, watch.watcher));
    }

    const fn persistent_table(&mut self, mode: AddWatchMode) -> &mut Table<W> {
        match mode {
            AddWatchMode::Persistent => &mut self.persistent,
            AddWatchMode::PersistentRecursive => &mut self.recursive,
        }
    }

    pub(super) fn forget(&mut self, path: &str, id: WatchId) {
        for table in [&mut self.data, &mut self.exist, &mut self.child] {
            remove(table, path, id);
        }
    }

    /// `true` if that was the last one of its mode on the path.
    pub(super) fn forget_persistent(&mut self, path: &str, mode: AddWatchMode, id: WatchId) -> bool {
        remove(self.persistent_table(mode), path, id)
    }

    /// Delivers an event: one-shot watches fire and are gone (ZooKeeper's ZKWatchManager holds the same
    /// rules), persistent ones see it.
    pub(super) fn dispatch<S: Sink<Watcher = W>>(
        &mut self,
        event: EventType,
        path: &str,
        zxid: Option<Zxid>,
        sink: &mut S,
    ) {
        let tables: &mut [&mut Table<W>] = match event {
            EventType::NodeCreated | EventType::NodeDataChanged => &mut [&mut self.data, &mut self.exist],
            EventType::NodeChildrenChanged => &mut [&mut self.child],
            EventType::NodeDeleted => &mut [&mut self.data, &mut self.exist, &mut self.child],
        };
        let event_at = || WatchEvent { kind: event.into(), path: path.to_owned(), zxid };
        for (_, watcher) in tables.iter_mut().filter_map(|table| table.remove(path)).flatten() {
            sink.fired(watcher, event_at());
        }
        let gaps = &mut self.gaps;
        let mut show = |watched: &str, (id, watcher): &(WatchId, W)| {
            // The server may report an event before it has answered that it watches again.
            if gaps.remove(id) {
                sink.seen(watcher, WatchEvent::restored(watched));
            }
            sink.seen(watcher, event_at());
        };
        self.persistent.get(path).into_iter().flatten().for_each(|watch| show(path, watch));
        // Recursive watches learn of children by their own events.
        if event == EventType::NodeChildrenChanged || self.recursive.is_empty() {
            return;
        }
        for watched in std::iter::once(path).chain(crate::path::ancestors(path)) {
            self.recursive.get(watched).into_iter().flatten().for_each(|watch| show(watched, watch));
        }
    }

    /// The connection was lost, and the watches are asked for anew.
    pub(super) fn note_gap(&mut self) {
        let persistent = self.persistent.values().chain(self.recursive.values());
        self.gaps = persistent.flatten().map(|(id, _)| *id).collect();
    }

    /// Tells persistent watches that events may have been missed.
    pub(super) fn restored<S: Sink<Watcher = W>>(&mut self, sink: &mut S) {
        self.gaps.clear();
        for (path, watchers) in self.persistent.iter().chain(&self.recursive) {
            watchers.iter().for_each(|(_, watcher)| sink.seen(watcher, WatchEvent::restored(path)));
        }
    }

    /// All watches are gone with the session.
    pub(super) fn end<S: Sink<Watcher = W>>(&mut self, reason: &Error, sink: &mut S) {
        let all = std::mem::take(self);
        for table in [all.data, all.exist, all.child, all.persistent, all.recursive] {
            for (_, watcher) in table.into_values().flatten() {
                sink.ended(watcher, reason.clone());
            }
        }
        self.next_id = all.next_id;
    }
}

/// `true` if the path has no watch left in the table, and had one.
fn remove<W>(table: &mut Table<W>, path: &str, id: WatchId) -> bool {
    let Some(watchers) = table.get_mut(path) else { return false };
    watchers.retain(|(other, _)| *other != id);
    if watchers.is_empty() {
        table.remove(path);
        return true;
    }
    false
}
