//! The table against two plain maps, as ZooKeeper has them.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::path;

/// Modes by path and connection, one map a table.
#[derive(Default)]
struct Naive {
    modes: BTreeMap<(String, u32), u8>,
}

impl Naive {
    fn add(&mut self, connection: u32, path: &str, modes: Modes) {
        *self.modes.entry((path.to_owned(), connection)).or_default() |= modes.0;
    }

    fn remove(&mut self, connection: u32, path: &str, modes: Modes) -> bool {
        let Some(held) = self.modes.get_mut(&(path.to_owned(), connection)) else { return false };
        let found = *held & modes.0 != 0;
        *held &= !modes.0;
        self.modes.retain(|_, modes| *modes != 0);
        found
    }

    fn collect(&mut self, table: Table, path: &str, watchers: &mut BTreeSet<u32>) {
        for ((watched, connection), modes) in &mut self.modes {
            let held = Modes(*modes);
            let recursive = table == Table::Data && held.intersects(Modes::RECURSIVE);
            let here = watched == path && held.intersects(table.modes());
            if here || recursive && path::is_self_or_ancestor(watched, path) {
                watchers.insert(*connection);
            }
            if watched == path {
                *modes = held.without(table.standard()).0;
            }
        }
        self.modes.retain(|_, modes| *modes != 0);
    }

    fn counts(&self) -> WatchCounts {
        let data = || self.modes.iter().filter(|(_, modes)| Modes(**modes).intersects(Modes::DATA_TABLE));
        WatchCounts {
            connections: data().map(|((_, connection), _)| connection).collect::<BTreeSet<_>>().len(),
            paths: data().map(|((path, _), _)| path).collect::<BTreeSet<_>>().len(),
            watches: data().count(),
            child_watches: self
                .modes
                .values()
                .filter(|modes| Modes(**modes).intersects(Modes::CHILD_TABLE))
                .count(),
        }
    }
}

#[derive(Clone, Debug)]
enum Action {
    Add(u32, String, u8),
    Remove(u32, String, u8),
    RemoveConnection(u32),
    Fire(String, Event),
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Data,
    Deleted,
    Children,
}

fn some_path() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(vec!["a", "b", "ab"]), 0..4)
        .prop_map(|names| if names.is_empty() { "/".to_owned() } else { format!("/{}", names.join("/")) })
}

fn some_modes() -> impl Strategy<Value = u8> {
    let all = [Modes::DATA, Modes::CHILD, Modes::PERSISTENT, Modes::RECURSIVE, Modes::ALL];
    prop::sample::select(all.map(|modes| modes.0).to_vec())
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        4 => (0..6_u32, some_path(), some_modes()).prop_map(|(who, path, modes)| Action::Add(who, path, modes)),
        1 => (0..6_u32, some_path(), some_modes()).prop_map(|(who, path, modes)| Action::Remove(who, path, modes)),
        1 => (0..6_u32).prop_map(Action::RemoveConnection),
        4 => (some_path(), prop::sample::select(vec![Event::Data, Event::Deleted, Event::Children]))
            .prop_map(|(path, event)| Action::Fire(path, event)),
    ]
}

/// Applies `action` to both and compares what they answer.
fn apply(table: &mut WatchTable, naive: &mut Naive, action: Action) -> Result<(), TestCaseError> {
    match action {
        Action::Add(who, path, modes) => {
            table.add(Slot(who), &path, Modes(modes));
            naive.add(who, &path, Modes(modes));
            prop_assert!(table.contains(Slot(who), &path, Modes(modes)));
        }
        Action::Remove(who, path, modes) => {
            let expected = naive.remove(who, &path, Modes(modes));
            prop_assert_eq!(table.remove(Slot(who), &path, Modes(modes)), expected);
            prop_assert!(!table.contains(Slot(who), &path, Modes(modes)));
        }
        Action::RemoveConnection(who) => {
            table.remove_some(Slot(who), usize::MAX);
            naive.modes.retain(|(_, connection), _| *connection != who);
        }
        Action::Fire(path, event) => {
            let tables: &[Table] = match event {
                Event::Data => &[Table::Data],
                Event::Deleted => &[Table::Data, Table::Child],
                Event::Children => &[Table::Child],
            };
            let (mut watchers, mut expected) = (Vec::new(), BTreeSet::new());
            table.begin_event();
            for &of in tables {
                table.collect(of, &path, &mut watchers);
                naive.collect(of, &path, &mut expected);
            }
            let distinct: BTreeSet<u32> = watchers.iter().map(|slot| slot.0).collect();
            prop_assert_eq!(distinct.len(), watchers.len(), "someone was collected twice");
            prop_assert_eq!(distinct, expected);
        }
    }
    prop_assert_eq!(table.counts(), naive.counts());
    prop_assert_eq!(table.is_empty(), naive.modes.is_empty());
    Ok(())
}

proptest! {
    #[test]
    fn the_table_does_what_plain_maps_do(actions in prop::collection::vec(action(), 0..200)) {
        let (mut table, mut naive) = (WatchTable::new(1), Naive::default());
        for action in actions {
            apply(&mut table, &mut naive, action)?;
        }
        for who in 0..6 {
            table.remove_some(Slot(who), usize::MAX);
        }
        prop_assert!(table.is_empty() && table.paths.is_empty() && table.by_path.len() + table.by_pair.len() == 0);
        prop_assert_eq!((table.recursive.len(), table.counts()), (0, WatchCounts::default()));
    }
}

#[test]
fn watchers_are_collected_in_the_order_in_which_they_came() {
    let mut table = WatchTable::new(1);
    for slot in [5, 1, 3, 2] {
        table.add(Slot(slot), "/a", Modes::DATA);
    }
    table.remove_some(Slot(3), usize::MAX);
    let mut watchers = Vec::new();
    table.begin_event();
    table.collect(Table::Data, "/a", &mut watchers);
    assert_eq!(watchers, [Slot(5), Slot(1), Slot(2)]);
}

#[test]
fn many_watchers_of_one_path_and_many_paths_of_one_watcher_come_and_go() {
    let mut table = WatchTable::new(1);
    for number in 0..20_000 {
        table.add(Slot(number), "/hot", Modes::DATA);
        table.add(Slot(7), &format!("/a/{number}"), Modes::CHILD);
    }
    table.remove_some(Slot(7), usize::MAX);
    assert_eq!(table.paths.len(), 1);
    let mut watchers = Vec::new();
    table.begin_event();
    table.collect(Table::Data, "/hot", &mut watchers);
    assert_eq!(watchers.len(), 19_999);
    assert!(table.is_empty());
}

#[test]
fn a_deep_path_is_looked_up_level_by_level() {
    let mut table = WatchTable::new(1);
    let path = "/x".repeat(10_000);
    table.add(Slot(0), &path[..10_000], Modes::RECURSIVE);
    table.add(Slot(1), "/", Modes::RECURSIVE);
    let mut watchers = Vec::new();
    table.begin_event();
    table.collect(Table::Data, &path, &mut watchers);
    assert_eq!(watchers, [Slot(1), Slot(0)]);
}

#[test]
fn a_watch_and_a_path_take_no_more_than_what_is_said_of_them() {
    assert_eq!((size_of::<arena::Entry<Watch>>(), size_of::<arena::Entry<Path>>()), (24, 32));
}

#[test]
fn an_event_passes_over_watches_of_its_ancestors_that_are_not_recursive() {
    let mut table = WatchTable::new(1);
    for number in 0..1_000 {
        table.add(Slot(number), "/a", Modes::PERSISTENT);
    }
    table.add(Slot(500), "/a", Modes::RECURSIVE);
    table.add(Slot(2_000), "/a", Modes::RECURSIVE);
    let collected = |table: &mut WatchTable| {
        let mut watchers = Vec::new();
        table.begin_event();
        table.collect(Table::Data, "/a/b", &mut watchers);
        watchers
    };
    let (watchers, steps) = steps::of(|| collected(&mut table));
    assert_eq!((watchers, steps), (vec![Slot(500), Slot(2_000)], 5), "a look-up of each of three paths");
    table.remove(Slot(500), "/a", Modes::RECURSIVE);
    assert_eq!(collected(&mut table), [Slot(2_000)]);
}

#[test]
fn an_event_of_children_passes_over_watches_of_data_once_for_each_watch_of_children() {
    let mut table = WatchTable::new(1);
    for number in 0..1_000 {
        table.add(Slot(number), "/a", Modes::DATA);
    }
    let children_changed = |table: &mut WatchTable| {
        let mut watchers = Vec::new();
        table.begin_event();
        steps::of(|| table.collect(Table::Child, "/a", &mut watchers)).1
    };
    assert_eq!(children_changed(&mut table), 1, "the look-up alone");
    table.add(Slot(1_000), "/a", Modes::CHILD);
    table.remove(Slot(1_000), "/a", Modes::CHILD);
    assert_eq!(children_changed(&mut table), 1_001);
    assert_eq!(children_changed(&mut table), 1);
    table.add(Slot(1_000), "/a", Modes::PERSISTENT);
    for _ in 0..2 {
        assert!(children_changed(&mut table) > 1_001, "a watch that stays is found again");
    }
}

#[test]
fn a_connection_watches_no_more_paths_than_it_may() {
    let mut table = WatchTable::new(1);
    let limits = Limits::default().with(Limit::Watches, 2).with(Limit::WatchBytes, 6);
    let mut add = |path: &str, modes| table.add_within(&limits, Slot(1), path, modes);
    assert_eq!((add("/a", Modes::DATA), add("/b", Modes::DATA)), (Ok(()), Ok(())));
    assert_eq!((add("/a", Modes::CHILD), add("/c", Modes::DATA)), (Ok(()), Err(Limit::Watches)));
    table.remove(Slot(1), "/b", Modes::ALL);
    let long = table.add_within(&limits, Slot(1), "/long", Modes::DATA);
    assert_eq!((long, table.contains(Slot(1), "/long", Modes::ALL)), (Err(Limit::WatchBytes), false));
    assert_eq!(table.add_within(&limits, Slot(2), "/long", Modes::DATA), Ok(()));
}
