//! What a transaction does to a tree that has seen it already, in part or not at all.

use super::*;
use ringkeeper_engine::acl::Acl;

const SESSION: i64 = 0x100;

struct World {
    tree: Tree,
    sessions: BTreeMap<i64, i32>,
}

impl World {
    fn new() -> Self {
        let mut tree = Tree::default();
        tree.add_built_in();
        Self { tree, sessions: BTreeMap::new() }
    }

    fn apply(&mut self, zxid: i64, txn: Txn) {
        let header = TxnHeader { session: SESSION, xid: 0, zxid, time: zxid * 1000, kind: 0 };
        apply(&mut self.tree, &mut self.sessions, &header, &txn);
    }

    fn stat(&self, path: &str) -> Stat {
        self.tree.get(path).unwrap_or_else(|| panic!("{path} is missing")).stat
    }
}

fn create(path: &str, owner: i64, parent_cversion: i32) -> Txn {
    let (path, data) = (path.to_owned(), Some(b"new"[..].into()));
    Txn::Create(Create { path, data, acl: Acl::OPEN, owner, parent_cversion })
}

#[test]
fn a_creation_of_what_exists_leaves_it_and_counts_in_the_parent() {
    let mut world = World::new();
    world.apply(5, create("/a", 0, 1));
    world.apply(6, Txn::SetData { path: "/a".into(), data: None, version: 1 });
    let before = world.stat("/a");
    world.tree.change("/", |root| (root.stat.cversion, root.stat.pzxid) = (0, 0));
    world.apply(5, create("/a", 0, 1));
    assert_eq!(world.stat("/a"), before);
    assert_eq!((world.stat("/").cversion, world.stat("/").pzxid), (1, 5));
}

#[test]
fn a_parent_that_is_ahead_is_not_set_back() {
    let mut world = World::new();
    world.tree.change("/", |root| (root.stat.cversion, root.stat.pzxid) = (9, 90));
    world.apply(5, create("/a", 0, 1));
    world.apply(6, Txn::Delete("/a".into()));
    assert_eq!((world.stat("/").cversion, world.stat("/").pzxid), (9, 90));
}

#[test]
fn a_deletion_of_what_is_missing_counts_in_the_parent() {
    let mut world = World::new();
    world.apply(7, Txn::Delete("/gone".into()));
    assert_eq!(world.stat("/").pzxid, 7);
    assert_eq!(world.stat("/").cversion, 0);
}

#[test]
fn a_child_of_the_next_life_survives_the_end_of_the_last_one() {
    let mut world = World::new();
    world.apply(5, create("/a", 0, 1));
    world.apply(9, create("/a/b", 0, 1));
    world.apply(6, Txn::Delete("/a".into()));
    world.apply(8, create("/a", 0, 2));
    world.apply(9, create("/a/b", 0, 1));
    assert_eq!((world.stat("/a").czxid, world.stat("/a").cversion), (8, 1));
    assert_eq!(world.stat("/a/b").czxid, 9);
}

#[test]
fn an_old_creation_adds_one_to_the_parents_count() {
    let mut world = World::new();
    world.tree.change("/", |root| root.stat.cversion = 4);
    world.apply(5, create("/a", 0, -1));
    assert_eq!(world.stat("/").cversion, 5);
}

#[test]
fn a_session_takes_its_ephemerals_along_listed_or_not() {
    for paths in [None, Some(vec!["/a".to_owned(), "/gone".to_owned()])] {
        let mut world = World::new();
        world.apply(1, Txn::CreateSession { timeout_ms: 4000 });
        world.apply(2, create("/a", SESSION, 1));
        world.apply(3, create("/b", SESSION, 2));
        world.apply(4, create("/c", SESSION + 1, 3));
        assert_eq!(world.sessions.get(&SESSION), Some(&4000));
        world.apply(5, Txn::CloseSession { paths });
        assert!(world.tree.get("/a").is_none() && world.tree.get("/b").is_none());
        assert!(world.tree.get("/c").is_some() && world.sessions.is_empty());
        assert_eq!(world.stat("/").pzxid, 5);
    }
}

#[test]
fn the_rest_of_a_multi_is_applied_when_a_part_was_already() {
    let mut world = World::new();
    world.apply(5, create("/a", 0, 1));
    let set = Txn::SetData { path: "/gone".into(), data: None, version: 1 };
    world.apply(5, Txn::Multi(vec![create("/a", 0, 1), set, Txn::Nothing, create("/b", 0, 2)]));
    assert_eq!(world.stat("/b").czxid, 5);
    assert_eq!(world.stat("/").cversion, 2);
}

#[test]
fn the_root_is_neither_created_nor_deleted() {
    let mut world = World::new();
    world.apply(5, create("/", 0, 1));
    world.apply(6, Txn::Delete("/".into()));
    assert_eq!(world.stat("/"), Stat::default());
}

#[test]
fn a_znode_whose_parent_is_missing_waits_for_its_next_creation() {
    let mut world = World::new();
    world.apply(5, create("/a/b", 0, 1));
    assert!(world.tree.get("/a/b").is_none());
}
