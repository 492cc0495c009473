//! Watches of one shard: which connection waits for an event on which path (docs/protocol.md, 6.1).
//!
//! ZooKeeper keeps two tables, data and child, of pairs (path, connection), each pair with a set of modes.
//! Here a pair is one [`Watch`], which has the modes of both tables as bits and is linked into two lists:
//! that of its path (to fire) and that of its connection (to remove all when the connection ends). So
//! setting, consuming and removing a watch cost the same however many watchers a path has and however many
//! paths a connection watches. The tables grow in parts, so that no insertion moves a million others.
//!
//! Most watches are alone on their path, and most are not recursive, so these take no room for what only
//! others need: a path names its oldest watch, and only those set after it are indexed by their pair. A watch
//! takes 24 bytes; a path, which is stored once, 32 and its characters, if they are more than 24.
//!
//! Recursive watches require a look-up of every ancestor of a path, which is omitted while a shard has none.
//! They are in a set of their own, so that an event skips the other watches of its ancestors.

mod arena;
mod index;
mod list;
mod tenants;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::hash::Hasher;
use std::num::NonZeroU32;
use std::sync::Arc;

use compact_str::CompactString;
use ringkeeper_wire::{AddWatchMode, WatcherType};
use siphasher::sip::SipHasher13;

use crate::limits::{Limit, Limits};
use crate::shard::{Slot, WatchCounts};
use crate::steps;
use crate::tenants::{Tenant, Tenants};
use arena::Arena;
use index::Index;
use list::{Links, List, NONE};
use tenants::TenantWatches;

/// Modes of one connection on one path, in both tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Modes(u8);

impl Modes {
    /// Left by exists and getData.
    pub(crate) const DATA: Self = Self(1);
    /// Left by getChildren.
    pub(crate) const CHILD: Self = Self(1 << 1);
    const PERSISTENT_DATA: Self = Self(1 << 2);
    const PERSISTENT_CHILD: Self = Self(1 << 3);
    /// Left by addWatch: sees data and children, and stays.
    pub(crate) const PERSISTENT: Self = Self(Self::PERSISTENT_DATA.0 | Self::PERSISTENT_CHILD.0);
    /// Left by addWatch: sees everything below, but no child events, and stays.
    pub(crate) const RECURSIVE: Self = Self(1 << 4);
    const DATA_TABLE: Self = Self(Self::DATA.0 | Self::PERSISTENT_DATA.0 | Self::RECURSIVE.0);
    const CHILD_TABLE: Self = Self(Self::CHILD.0 | Self::PERSISTENT_CHILD.0);
    pub(crate) const ALL: Self = Self(Self::DATA_TABLE.0 | Self::CHILD_TABLE.0);

    const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl From<AddWatchMode> for Modes {
    fn from(mode: AddWatchMode) -> Self {
        match mode {
            AddWatchMode::Persistent => Self::PERSISTENT,
            AddWatchMode::PersistentRecursive => Self::RECURSIVE,
        }
    }
}

impl From<WatcherType> for Modes {
    fn from(kind: WatcherType) -> Self {
        match kind {
            WatcherType::Children => Self::CHILD,
            WatcherType::Data => Self::DATA,
            WatcherType::Any => Self::ALL,
            WatcherType::Persistent => Self::PERSISTENT,
            WatcherType::PersistentRecursive => Self::RECURSIVE,
        }
    }
}

/// One of the two tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Table {
    /// Creation, deletion and data.
    Data,
    /// Children, and deletion.
    Child,
}

impl Table {
    const fn modes(self) -> Modes {
        match self {
            Self::Data => Modes::DATA_TABLE,
            Self::Child => Modes::CHILD_TABLE,
        }
    }

    /// The modes that an event in this table consumes.
    const fn standard(self) -> Modes {
        match self {
            Self::Data => Modes::DATA,
            Self::Child => Modes::CHILD,
        }
    }
}

/// One connection's modes on one path.
#[derive(Debug)]
struct Watch {
    path: u32,
    holder: Holder,
    of_path: Links,
    of_connection: Links,
}

/// A connection and its modes on a path, which are not empty, in one word.
#[derive(Clone, Copy, Debug)]
struct Holder(NonZeroU32);

impl Holder {
    const MODE_BITS: u32 = 5;

    fn new(connection: Slot, modes: Modes) -> Self {
        debug_assert!(!modes.is_empty(), "a watch without modes is removed");
        let shifted = connection.0 << Self::MODE_BITS;
        assert_eq!(shifted >> Self::MODE_BITS, connection.0, "a process has less than 2^27 sockets");
        Self(NonZeroU32::new(shifted | u32::from(modes.0)).expect("it has modes"))
    }

    const fn connection(self) -> Slot {
        Slot(self.0.get() >> Self::MODE_BITS)
    }

    const fn modes(self) -> Modes {
        Modes((self.0.get() % (1 << Self::MODE_BITS)) as u8)
    }
}

/// A path that someone watches.
#[derive(Debug)]
struct Path {
    path: CompactString,
    /// Watches on it, oldest first. Invariant: never empty.
    watches: List,
    interest: Interest,
}

/// How many watches of a path are in the data table, and whether some may be in the child table, in one word.
/// The latter is set with each watch of the child table, and unset only by an event there that has passed
/// over all watches and left none: so each such pass has a watch that was set before it.
#[derive(Clone, Copy, Debug, Default)]
struct Interest(u32);

impl Interest {
    const CHILD: u32 = 1 << 31;

    const fn data(self) -> u32 {
        self.0 & !Self::CHILD
    }

    /// Whether an event in `table` may concern a watch of the path.
    const fn is_in(self, table: Table) -> bool {
        match table {
            Table::Data => self.data() > 0,
            Table::Child => self.0 & Self::CHILD != 0,
        }
    }

    const fn set_child(&mut self, some: bool) {
        self.0 = if some { self.0 | Self::CHILD } else { self.data() };
    }
}

/// The watch-related data of a connection.
#[derive(Clone, Copy, Debug, Default)]
struct Watcher {
    watches: List,
    /// How many there are, and the bytes of their paths.
    paths: usize,
    path_bytes: usize,
    /// How many of them are in the data table.
    data: u32,
    /// The last event for which it was collected.
    event: u64,
}

/// All watches of a shard.
#[derive(Debug)]
pub(crate) struct WatchTable {
    paths: Arena<Path>,
    by_path: Index,
    watches: Arena<Watch>,
    /// Those that were not the oldest of their path when they were set.
    by_pair: Index,
    /// Paths and their recursive watches.
    recursive: BTreeSet<(u32, u32)>,
    /// By slot of the connection.
    watchers: Vec<Watcher>,
    /// Keyed, since clients choose the paths and must not be able to construct collisions.
    hasher: SipHasher13,
    counts: WatchCounts,
    /// Number of the event that is being collected.
    event: u64,
    of_tenants: TenantWatches,
}

impl WatchTable {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            paths: Arena::new(),
            by_path: Index::new(),
            watches: Arena::new(),
            by_pair: Index::new(),
            recursive: BTreeSet::new(),
            watchers: Vec::new(),
            hasher: SipHasher13::new_with_keys(seed, !seed),
            counts: WatchCounts::default(),
            event: 0,
            of_tenants: TenantWatches::new(),
        }
    }

    /// Counts the watches of these tenants from now on, once [`Self::count_some`] has counted those that are
    /// there.
    pub(crate) fn set_tenants(&mut self, tenants: Tenants) {
        self.of_tenants.replace(tenants);
    }

    /// Whether watches are left to be counted.
    pub(crate) fn is_counting(&self) -> bool {
        self.of_tenants.is_counting()
    }

    /// Counts at most `max` watches.
    pub(crate) fn count_some(&mut self, max: u32) {
        if !self.is_counting() {
            return;
        }
        for id in self.of_tenants.next(self.watches.end(), max) {
            steps::count(1);
            if let Some(watch) = self.watches.get(id) {
                self.of_tenants.count(&self.paths[watch.path].path);
            }
        }
    }

    /// The tenant of `path`.
    pub(crate) fn tenant_of(&self, path: &str) -> Option<&Arc<Tenant>> {
        self.of_tenants.covering(path)
    }

    /// Whether there is no watch, so that events need no look-up.
    pub(crate) fn is_empty(&self) -> bool {
        self.watches.is_empty()
    }

    /// Numbers of watches.
    pub(crate) fn counts(&self) -> WatchCounts {
        self.counts
    }

    /// The pairs of the data table among at most `max` entries from number `from` on; and the number to
    /// continue from, if there are more.
    pub(crate) fn data_watches(
        &self,
        from: u32,
        max: u32,
    ) -> (impl Iterator<Item = (&str, Slot)>, Option<u32>) {
        let end = self.watches.end().min(from.saturating_add(max));
        steps::count(end.saturating_sub(from) as usize);
        let entries = (from..end).filter_map(|id| self.watches.get(id));
        let of_data = entries.filter(|watch| watch.holder.modes().intersects(Modes::DATA_TABLE));
        let pairs = of_data.map(|watch| (&*self.paths[watch.path].path, watch.holder.connection()));
        (pairs, Some(end).filter(|end| *end < self.watches.end()))
    }

    /// [`Self::add`], unless the connection would watch more than it may.
    pub(crate) fn add_within(
        &mut self,
        limits: &Limits,
        connection: Slot,
        path: &str,
        modes: Modes,
    ) -> Result<(), Limit> {
        let Watcher { paths, path_bytes, .. } =
            self.watchers.get(connection.index()).copied().unwrap_or_default();
        let exceeded = [(Limit::Watches, paths + 1), (Limit::WatchBytes, path_bytes + path.len())]
            .into_iter()
            .find(|(limit, amount)| !limits.allow(*limit, *amount));
        if let Some((limit, _)) = exceeded.filter(|_| !self.contains(connection, path, Modes::ALL)) {
            return Err(limit);
        }
        self.add(connection, path, modes);
        Ok(())
    }

    /// Sets a watch; setting it again changes nothing.
    pub(crate) fn add(&mut self, connection: Slot, path: &str, modes: Modes) {
        let path = self.intern(path);
        match self.pair(path, connection) {
            Some(watch) => self.change_modes(watch, self.watches[watch].holder.modes().with(modes)),
            None => self.link(path, connection, modes),
        }
    }

    /// Whether there is a watch of any of `modes`.
    pub(crate) fn contains(&self, connection: Slot, path: &str, modes: Modes) -> bool {
        let watch = self.find_path(path).and_then(|path| self.pair(path, connection));
        watch.is_some_and(|watch| self.watches[watch].holder.modes().intersects(modes))
    }

    /// Removes watches of `modes`; whether there was any.
    pub(crate) fn remove(&mut self, connection: Slot, path: &str, modes: Modes) -> bool {
        let Some(watch) = self.find_path(path).and_then(|path| self.pair(path, connection)) else {
            return false;
        };
        let before = self.watches[watch].holder.modes();
        self.change_modes(watch, before.without(modes));
        before.intersects(modes)
    }

    /// Forgets at most `max` watches of a connection; how many there were.
    pub(crate) fn remove_some(&mut self, connection: Slot, max: usize) -> usize {
        for removed in 0..max {
            match self.watchers.get(connection.index()).map(|watcher| watcher.watches.first) {
                None | Some(NONE) => return removed,
                Some(first) => self.change_modes(first, Modes::default()),
            }
        }
        max
    }

    /// Begins an event: each connection is collected at most once until the next one begins.
    pub(crate) fn begin_event(&mut self) {
        self.event += 1;
    }

    /// Collects the connections that see the current event in `table` at `path`: those of the path in the
    /// order in which they set their watches, then those of each ancestor's recursive watches. Consumes the
    /// standard watches, even those of connections that were collected before.
    pub(crate) fn collect(&mut self, table: Table, path: &str, watchers: &mut Vec<Slot>) {
        if table == Table::Data && !self.recursive.is_empty() {
            self.collect_with_ancestors(path, watchers);
        } else if let Some(path) = self.find_path(path) {
            self.collect_at(table, path, watchers);
        }
    }

    /// How many ancestors of a changed path are looked up.
    pub(crate) fn ancestors_of(&self, path: &str) -> usize {
        if self.recursive.is_empty() { 0 } else { path.matches('/').count() }
    }

    fn collect_at(&mut self, table: Table, path: u32, watchers: &mut Vec<Slot>) {
        let entry = &self.paths[path];
        if !entry.interest.is_in(table) {
            return;
        }
        let (mut next, mut left) = (entry.watches.first, false);
        while next != NONE {
            steps::count(1);
            let watch = &self.watches[next];
            let (current, modes) = (next, watch.holder.modes());
            next = watch.of_path.next;
            if modes.intersects(table.modes()) {
                collect_once(&mut self.watchers, self.event, watch.holder.connection(), watchers);
                let kept = modes.without(table.standard());
                self.change_modes(current, kept);
                left |= kept.intersects(table.modes());
            }
        }
        // A path without watches is gone.
        if table == Table::Child && self.paths.get(path).is_some() {
            self.paths[path].interest.set_child(left);
        }
    }

    /// `path` itself, then its ancestors from the top down. Prefixes are hashed as the path is hashed, so
    /// that a deep path costs its length once.
    fn collect_with_ancestors(&mut self, path: &str, watchers: &mut Vec<Slot>) {
        if let Some(path) = self.find_path(path) {
            self.collect_at(Table::Data, path, watchers);
        }
        if path != crate::path::ROOT {
            self.collect_recursive(self.hash_path(crate::path::ROOT), crate::path::ROOT, watchers);
        }
        let mut hasher = self.hasher;
        let mut hashed = 0;
        for (slash, _) in path.match_indices('/').skip(1) {
            hasher.write(&path.as_bytes()[hashed..slash]);
            hashed = slash;
            self.collect_recursive(hasher.finish(), &path[..slash], watchers);
        }
    }

    fn collect_recursive(&mut self, hash: u64, ancestor: &str, watchers: &mut Vec<Slot>) {
        let Some(path) = self.find_hashed(hash, ancestor) else { return };
        for &(_, watch) in self.recursive.range((path, 0)..=(path, NONE)) {
            steps::count(1);
            let connection = self.watches[watch].holder.connection();
            collect_once(&mut self.watchers, self.event, connection, watchers);
        }
    }
}

/// Collects `connection`, unless it was collected for the same event before.
fn collect_once(of_shard: &mut [Watcher], event: u64, connection: Slot, watchers: &mut Vec<Slot>) {
    let watcher = &mut of_shard[connection.index()];
    if watcher.event != event {
        watcher.event = event;
        watchers.push(connection);
    }
}

/// The tables behind it.
impl WatchTable {
    /// Unlike `Hash for str` it appends no terminator, so the hashes of prefixes are computed on the way.
    fn hash_path(&self, path: &str) -> u64 {
        let mut hasher = self.hasher;
        hasher.write(path.as_bytes());
        hasher.finish()
    }

    fn hash_pair(hasher: SipHasher13, path: u32, connection: Slot) -> u64 {
        let mut hasher = hasher;
        hasher.write_u32(path);
        hasher.write_u32(connection.0);
        hasher.finish()
    }

    fn find_path(&self, path: &str) -> Option<u32> {
        self.find_hashed(self.hash_path(path), path)
    }

    fn find_hashed(&self, hash: u64, path: &str) -> Option<u32> {
        steps::count(1);
        self.by_path.find(hash, |other| *self.paths[other].path == *path)
    }

    fn pair(&self, path: u32, connection: Slot) -> Option<u32> {
        let oldest = self.paths[path].watches.first;
        let watch = self.watches.get(oldest)?;
        if watch.holder.connection() == connection {
            return Some(oldest);
        }
        if watch.of_path.next == NONE {
            return None;
        }
        let hash = Self::hash_pair(self.hasher, path, connection);
        self.by_pair.find(hash, |other| {
            let watch = &self.watches[other];
            watch.path == path && watch.holder.connection() == connection
        })
    }

    fn intern(&mut self, path: &str) -> u32 {
        let hash = self.hash_path(path);
        if let Some(known) = self.find_hashed(hash, path) {
            return known;
        }
        let (watches, interest) = Default::default();
        let id = self.paths.insert(Path { path: path.into(), watches, interest });
        let (paths, hasher) = (&self.paths, self.hasher);
        self.by_path.insert(hash, id, |other| {
            let mut hasher = hasher;
            hasher.write(paths[other].path.as_bytes());
            hasher.finish()
        });
        id
    }

    /// Adds a watch and links it into both lists.
    fn link(&mut self, path: u32, connection: Slot, modes: Modes) {
        if self.watchers.len() <= connection.index() {
            self.watchers.resize(connection.index() + 1, Watcher::default());
        }
        let (of_path, of_connection) = Default::default();
        let holder = Holder::new(connection, modes);
        let id = self.watches.insert(Watch { path, holder, of_path, of_connection });
        let entry = &mut self.paths[path];
        let is_first = entry.watches.first == NONE;
        entry.watches.push(id, &mut self.watches, |watch| &mut watch.of_path);
        self.of_tenants.added(id, &entry.path);
        let watcher = &mut self.watchers[connection.index()];
        watcher.paths += 1;
        watcher.path_bytes += entry.path.len();
        watcher.watches.push(id, &mut self.watches, |watch| &mut watch.of_connection);
        if !is_first {
            let (watches, hasher) = (&self.watches, self.hasher);
            self.by_pair.insert(Self::hash_pair(hasher, path, connection), id, |other| {
                let watch = &watches[other];
                Self::hash_pair(hasher, watch.path, watch.holder.connection())
            });
        }
        self.count(id, Modes::default(), modes);
    }

    /// Changes the modes; a watch left without any is removed.
    fn change_modes(&mut self, id: u32, modes: Modes) {
        let Watch { holder, .. } = self.watches[id];
        self.count(id, holder.modes(), modes);
        if modes.is_empty() {
            self.unlink(id);
        } else {
            self.watches[id].holder = Holder::new(holder.connection(), modes);
        }
    }

    /// Counts a watch whose modes change.
    fn count(&mut self, id: u32, before: Modes, now: Modes) {
        steps::count(1);
        let Watch { path: path_id, holder, .. } = self.watches[id];
        let (path, watcher) = (&mut self.paths[path_id], &mut self.watchers[holder.connection().index()]);
        match [before, now].map(|modes| modes.intersects(Modes::DATA_TABLE)) {
            [false, true] => {
                self.counts.watches += 1;
                self.counts.paths += usize::from(path.interest.data() == 0);
                self.counts.connections += usize::from(watcher.data == 0);
                path.interest.0 += 1;
                watcher.data += 1;
            }
            [true, false] => {
                path.interest.0 -= 1;
                watcher.data -= 1;
                self.counts.watches -= 1;
                self.counts.paths -= usize::from(path.interest.data() == 0);
                self.counts.connections -= usize::from(watcher.data == 0);
            }
            _ => {}
        }
        if now.intersects(Modes::CHILD_TABLE) {
            path.interest.set_child(true);
        }
        match [before, now].map(|modes| modes.intersects(Modes::CHILD_TABLE)) {
            [false, true] => self.counts.child_watches += 1,
            [true, false] => self.counts.child_watches -= 1,
            _ => {}
        }
        match [before, now].map(|modes| modes.intersects(Modes::RECURSIVE)) {
            [false, true] => drop(self.recursive.insert((path_id, id))),
            [true, false] => drop(self.recursive.remove(&(path_id, id))),
            _ => {}
        }
    }

    fn unlink(&mut self, id: u32) {
        let Watch { path, holder, .. } = self.watches[id];
        self.by_pair.remove(Self::hash_pair(self.hasher, path, holder.connection()), id);
        let entry = &mut self.paths[path];
        self.of_tenants.removed(id, &entry.path);
        let watcher = &mut self.watchers[holder.connection().index()];
        watcher.paths -= 1;
        watcher.path_bytes -= entry.path.len();
        watcher.watches.remove(id, &mut self.watches, |watch| &mut watch.of_connection);
        entry.watches.remove(id, &mut self.watches, |watch| &mut watch.of_path);
        let unwatched = entry.watches.first == NONE;
        self.watches.remove(id);
        if unwatched {
            self.forget_path(path);
        }
    }

    fn forget_path(&mut self, id: u32) {
        let hash = self.hash_path(&self.paths[id].path);
        self.by_path.remove(hash, id);
        self.paths.remove(id);
    }
}
