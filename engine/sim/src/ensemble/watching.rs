//! The events that a client must receive, and their order.
//!
//! A client keeps its watches as ZooKeeper's clients do, to restore them on another server. They and the
//! committed order determine each event that the server must send.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use ringkeeper_wire::{EventType, SetWatchesRequest};

use super::judge::Entry;
use super::model::{Change, Tree, split};
use super::rules::{Does, Who};

/// What is watched on one path, as bits.
pub(crate) type Kinds = u8;
/// Left by getData, and by exists on a znode that was there.
pub(crate) const DATA: Kinds = 1;
/// Left by exists on a znode that was not there.
pub(crate) const EXIST: Kinds = 1 << 1;
/// Left by getChildren.
pub(crate) const CHILD: Kinds = 1 << 2;
/// Left by addWatch.
pub(crate) const PERSISTENT: Kinds = 1 << 3;
/// Left by addWatch, for everything below too.
pub(crate) const RECURSIVE: Kinds = 1 << 4;

/// All kinds, in the order of the lists of setWatches2.
const KINDS: [Kinds; 5] = [DATA, EXIST, CHILD, PERSISTENT, RECURSIVE];

/// One watch of a setWatches.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    pub(crate) kind: Kinds,
    pub(crate) path: Arc<str>,
}

/// A client's watches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Watches(BTreeMap<Arc<str>, Kinds>);

/// An event on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) zxid: i64,
    pub(crate) event: EventType,
    pub(crate) path: Arc<str>,
}

impl Watches {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether all of `others` are among these.
    pub(crate) fn cover(&self, others: &Self) -> bool {
        others.0.iter().all(|(path, kinds)| self.0.get(path).is_some_and(|own| kinds & !own == 0))
    }

    pub(crate) fn absorb(&mut self, others: Self) {
        others.0.iter().for_each(|(path, kinds)| self.add(path, *kinds));
    }

    pub(crate) fn add(&mut self, path: &Arc<str>, kinds: Kinds) {
        *self.0.entry(Arc::clone(path)).or_default() |= kinds;
    }

    fn has(&self, path: &str, kinds: Kinds) -> bool {
        self.0.get(path).is_some_and(|set| set & kinds != 0)
    }

    pub(crate) fn consume(&mut self, path: &str, kinds: Kinds) {
        if let Some(set) = self.0.get_mut(path) {
            *set &= !kinds;
            if *set == 0 {
                self.0.remove(path);
            }
        }
    }

    /// In the order in which setWatches2 restores them.
    pub(crate) fn in_order(&self) -> Vec<Watch> {
        let of_kind = |kind| {
            let paths = self.0.iter().filter(move |(_, set)| **set & kind != 0);
            paths.map(move |(path, _)| Watch { kind, path: Arc::clone(path) })
        };
        KINDS.into_iter().flat_map(of_kind).collect()
    }

    fn sees_below(&self, path: &str) -> bool {
        let mut at = path;
        loop {
            if self.has(at, RECURSIVE) {
                return true;
            }
            if at == "/" {
                return false;
            }
            at = split(at).0;
        }
    }

    /// The events of one change, consuming what fires once, also where the rules hide it from the client.
    fn fire(&mut self, entry: &Entry, change: &Change, who: Who, out: &mut VecDeque<Event>) {
        let Change { event, path, closed, parent_closed } = change;
        let zxid = entry.zxid;
        let may_see = |path: &str, closed| who.may_with(Does::Read, path, closed, &entry.tree);
        let deleted = *event == EventType::NodeDeleted;
        let of_child = deleted && self.has(path, CHILD);
        let is_watched = of_child || self.has(path, DATA | EXIST | PERSISTENT) || self.sees_below(path);
        if is_watched && may_see(path, *closed) {
            out.push_back(Event { zxid, event: *event, path: Arc::clone(path) });
        }
        self.consume(path, if deleted { DATA | EXIST | CHILD } else { DATA | EXIST });
        let (parent, _) = split(path);
        if *event != EventType::NodeDataChanged && self.has(parent, CHILD | PERSISTENT) {
            if may_see(parent, *parent_closed) {
                out.push_back(Event { zxid, event: EventType::NodeChildrenChanged, path: parent.into() });
            }
            self.consume(parent, CHILD);
        }
    }

    /// Whether a transaction has an event for one of these watches that rules or ACL hide from the client.
    pub(crate) fn is_kept_from(&self, entry: &Entry, who: Who) -> bool {
        let may_see = |path: &str, closed| who.may_with(Does::Read, path, closed, &entry.tree);
        entry.changes.iter().any(|Change { path, closed, parent_closed, .. }| {
            let (parent, _) = split(path);
            let is_watched = self.0.contains_key(path) || self.sees_below(path);
            is_watched && !may_see(path, *closed)
                || self.has(parent, CHILD | PERSISTENT) && !may_see(parent, *parent_closed)
        })
    }

    /// The events of a transaction for a client.
    pub(crate) fn fire_all(&mut self, entry: &Entry, who: Who, out: &mut VecDeque<Event>) {
        for change in &entry.changes {
            self.fire(entry, change, who, out);
        }
    }
}

impl Watch {
    /// The event that setWatches2 must report on `tree` to a client that has seen `since` (docs/protocol.md,
    /// 6.4). A znode that was created and deleted meanwhile causes no event for an exist watch: ZooKeeper
    /// cannot detect it either.
    pub(crate) fn missed(&self, since: i64, tree: &Tree) -> Option<EventType> {
        let stat = tree.znodes.get(&self.path).map(super::model::Znode::stat);
        match (self.kind, stat) {
            (PERSISTENT | RECURSIVE, _) | (EXIST, None) => None,
            (EXIST, Some(_)) => Some(EventType::NodeCreated),
            (_, None) => Some(EventType::NodeDeleted),
            (DATA, Some(stat)) => (stat.mzxid > since).then_some(EventType::NodeDataChanged),
            (_, Some(stat)) => (stat.pzxid > since).then_some(EventType::NodeChildrenChanged),
        }
    }
}

impl FromIterator<Watch> for Watches {
    fn from_iter<I: IntoIterator<Item = Watch>>(watches: I) -> Self {
        let mut all = Self::default();
        watches.into_iter().for_each(|watch| all.add(&watch.path, watch.kind));
        all
    }
}

/// The watches of a setWatches or setWatches2, in the order in which a server restores them.
pub(crate) fn of_lists(lists: &SetWatchesRequest<'_>) -> Vec<Watch> {
    let lists = [
        (lists.data_watches, DATA),
        (lists.exist_watches, EXIST),
        (lists.child_watches, CHILD),
        (lists.persistent_watches, PERSISTENT),
        (lists.persistent_recursive_watches, RECURSIVE),
    ];
    let watch = |kind| move |path: std::borrow::Cow<'_, str>| Watch { kind, path: (*path).into() };
    lists.into_iter().flat_map(|(list, kind)| list.iter().map(watch(kind)).collect::<Vec<_>>()).collect()
}

/// The paths of each kind, in the order of the kinds.
pub(crate) fn lists(watches: &[Watch]) -> [Vec<String>; 5] {
    KINDS.map(|kind| {
        let of_kind = watches.iter().filter(|watch| watch.kind == kind);
        of_kind.map(|watch| watch.path.to_string()).collect()
    })
}
