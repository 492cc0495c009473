//! The tree against its naive twin: a map from paths to znodes.

use super::*;
use proptest::prelude::*;
use ringkeeper_wire::{SessionId, Stat};
use std::collections::{BTreeMap, BTreeSet};

/// What the tree should hold.
#[derive(Clone)]
struct Model(BTreeMap<String, (ZnodeMeta, Option<Vec<u8>>)>);

impl Model {
    fn of(tree: &Tree) -> Self {
        let entry = |znode: &Znode| (znode.path(), (znode.meta(), znode.data().map(<[u8]>::to_vec)));
        Self(tree.nodes().map(entry).collect())
    }

    fn parent_of(path: &str) -> String {
        match path.rsplit_once('/') {
            Some(("", _)) => "/".to_owned(),
            Some((parent, _)) => parent.to_owned(),
            None => String::new(),
        }
    }

    fn children<'a>(&'a self, parent: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.keys().filter(move |path| *path != "/" && Self::parent_of(path) == parent).map(String::as_str)
    }

    fn insert(&mut self, path: &str, new: &NewZnode<'_>) -> Result<(), InsertError> {
        let (parent, _) = self.0.get_mut(&Self::parent_of(path)).ok_or(InsertError::NoParent)?;
        let mut parent_after = *parent;
        parent_after.num_children += 1;
        let cversion = if new.parent_cversion == -1 { parent.cversion + 1 } else { new.parent_cversion };
        if cversion > parent.cversion {
            parent_after.cversion = cversion;
            parent_after.pzxid = new.zxid;
        }
        if self.0.contains_key(path) {
            return Err(InsertError::NodeExists);
        }
        self.0.get_mut(&Self::parent_of(path)).expect("seen").0 = parent_after;
        let meta = ZnodeMeta::fresh(new.zxid, new.time, new.acl, new.owner);
        self.0.insert(path.to_owned(), (meta, new.data.map(<[u8]>::to_vec)));
        Ok(())
    }

    fn remove(&mut self, path: &str, zxid: Zxid) -> Result<(), RemoveError> {
        if !self.0.contains_key(path) {
            return Err(RemoveError::NoNode);
        }
        if self.children(path).next().is_some() {
            return Err(RemoveError::NotEmpty);
        }
        self.0.remove(path);
        if let Some((parent, _)) = self.0.get_mut(&Self::parent_of(path)) {
            parent.num_children -= 1;
            parent.pzxid = parent.pzxid.max(zxid);
        }
        Ok(())
    }

    fn change(
        &mut self,
        path: &str,
        change: impl FnOnce(&mut ZnodeMeta, &mut Option<Vec<u8>>),
    ) -> Result<(), NoNode> {
        let (meta, data) = self.0.get_mut(path).ok_or(NoNode)?;
        change(meta, data);
        Ok(())
    }

    fn data_size(&self) -> u64 {
        let sizes = self.0.iter().map(|(path, (_, data))| path.len() + data.as_ref().map_or(0, Vec::len));
        u64::try_from(sizes.sum::<usize>()).expect("small")
    }

    fn assert_same_as(&self, tree: &Tree) {
        tree.nodes.check();
        assert_eq!(tree.len(), self.0.len());
        assert_eq!(tree.data_size(), self.data_size());
        assert_eq!(tree.nodes().count(), self.0.len());
        for (path, (meta, data)) in &self.0 {
            let znode = tree.get(path).unwrap_or_else(|| panic!("{path} is missing"));
            assert_eq!(&znode.meta(), meta, "{path}");
            assert_eq!(znode.data(), data.as_deref(), "{path}");
            assert_eq!(&znode.path(), path);
            let listed: Vec<_> = tree.children(path).map(|(name, _)| name.to_owned()).collect();
            let names: BTreeSet<_> = self.children(path).filter_map(|p| p.rsplit('/').next()).collect();
            assert_eq!(listed.len(), names.len(), "children of {path}: {listed:?}");
            assert!(listed.iter().all(|name| names.contains(name.as_str())), "children of {path}");
        }
        self.assert_same_descendants(tree);
    }

    fn assert_same_descendants(&self, tree: &Tree) {
        let mut seen = BTreeSet::from(["/".to_owned()]);
        for znode in tree.descendants("/") {
            assert!(seen.contains(znode.parent_path()), "{znode:?} came before its parent");
            assert!(seen.insert(znode.path()), "{znode:?} came twice");
        }
        assert!(seen.iter().eq(self.0.keys()));
    }
}

#[derive(Clone, Debug)]
enum Op {
    Insert {
        path: String,
        data: Option<Vec<u8>>,
        owner: Owner,
        parent_cversion: i32,
    },
    Remove {
        path: String,
    },
    SetData {
        path: String,
        data: Option<Vec<u8>>,
    },
    SetAcl {
        path: String,
        acl: u32,
    },
    RaiseCversion {
        path: String,
        cversion: i32,
    },
    OverwriteData {
        path: String,
        data: Option<Vec<u8>>,
    },
    /// Keep a clone and look at it again in the end.
    Keep,
}

/// Few short names, so that paths share prefixes and operations meet; some are prefixes of one another.
fn path() -> impl Strategy<Value = String> {
    let name = prop_oneof![Just("a".to_owned()), Just("ab".to_owned()), Just("zookeeper".to_owned())];
    let flat = (0..120u8).prop_map(|n| format!("/n{n}"));
    let deep = prop::collection::vec(name, 1..5).prop_map(|names| format!("/{}", names.join("/")));
    let mixed = (0..4u8, 0..40u8).prop_map(|(parent, n)| format!("/n{parent}/{n}"));
    prop_oneof![3 => flat, 2 => deep, 3 => mixed, 1 => Just("/".to_owned()), 1 => Just("x".to_owned())]
}

fn data() -> impl Strategy<Value = Option<Vec<u8>>> {
    let size = prop_oneof![4 => 0..8usize, 1 => 1020..1030usize];
    prop::option::weighted(0.9, (any::<u8>(), size).prop_map(|(byte, len)| vec![byte; len]))
}

fn owner() -> impl Strategy<Value = Owner> {
    let session = any::<u32>().prop_map(|id| Owner::Session(SessionId(i64::from(id) + 1)));
    prop_oneof![Just(Owner::None), session, Just(Owner::Container), Just(Owner::Ttl(77))]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (path(), data(), owner(), -1..40i32).prop_map(|(path, data, owner, parent_cversion)| Op::Insert {
            path, data, owner, parent_cversion
        }),
        5 => path().prop_map(|path| Op::Remove { path }),
        3 => (path(), data()).prop_map(|(path, data)| Op::SetData { path, data }),
        1 => (path(), 0..9u32).prop_map(|(path, acl)| Op::SetAcl { path, acl }),
        1 => (path(), -1..60i32).prop_map(|(path, cversion)| Op::RaiseCversion { path, cversion }),
        1 => (path(), data()).prop_map(|(path, data)| Op::OverwriteData { path, data }),
        1 => Just(Op::Keep),
    ]
}

/// Applies `op`, as transaction number `step`, to both and compares the answers.
fn apply(tree: &mut Tree, model: &mut Model, op: &Op, step: i32) {
    let zxid = Zxid(u64::from(step.unsigned_abs()));
    let time = 1000 + i64::from(step);
    match op {
        Op::Insert { path, data, owner, parent_cversion } => {
            let new = NewZnode {
                data: data.as_deref(),
                acl: AclId(1),
                owner: *owner,
                zxid,
                time,
                parent_cversion: *parent_cversion,
            };
            assert_eq!(tree.insert(path, &new).map(|_| ()), model.insert(path, &new));
        }
        Op::Remove { path } => {
            assert_eq!(tree.remove(path, zxid).map(|_| ()), model.remove(path, zxid));
        }
        Op::SetData { path, data } => {
            let expected = model.change(path, |meta, old| {
                (meta.version, meta.mzxid, meta.mtime) = (step, zxid, time);
                old.clone_from(data);
            });
            assert_eq!(tree.set_data(path, data.as_deref(), step, zxid, time, |_| ()).map(|_| ()), expected);
        }
        Op::SetAcl { path, acl } => {
            let expected = model.change(path, |meta, _| (meta.acl, meta.aversion) = (AclId(*acl), step));
            assert_eq!(tree.set_acl(path, AclId(*acl), step), expected);
        }
        Op::RaiseCversion { path, cversion } => {
            let expected = model.change(path, |meta, _| {
                let cversion = if *cversion == -1 { meta.cversion + 1 } else { *cversion };
                if cversion > meta.cversion {
                    (meta.cversion, meta.pzxid) = (cversion, zxid);
                }
            });
            assert_eq!(tree.raise_cversion(path, *cversion, zxid), expected);
        }
        Op::OverwriteData { path, data } => {
            let expected = model.change(path, |_, old| old.clone_from(data));
            assert_eq!(tree.overwrite_data_quietly(path, data.as_deref()), expected);
        }
        Op::Keep => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Also under keys that all collide, that tell only names apart, only parents apart, or one bit of each.
    #[test]
    fn behaves_as_a_map_of_paths_and_old_clones_stay(
        mask in prop_oneof![
            Just(u64::MAX), Just(0), Just(0xffff_ffff), Just(0xffff_ffff_0000_0000), Just(1 << 63 | 1)
        ],
        seed in any::<u64>(),
        ops in prop::collection::vec(op(), 0..500),
    ) {
        let mut tree = Tree::with_collisions(seed, mask);
        let mut model = Model::of(&tree);
        let mut kept = Vec::new();
        for (step, op) in (1..).zip(&ops) {
            apply(&mut tree, &mut model, op, step);
            tree.nodes.check();
            if matches!(op, Op::Keep) {
                kept.push((tree.clone(), model.clone()));
            }
        }
        model.assert_same_as(&tree);
        for (tree, model) in kept {
            model.assert_same_as(&tree);
        }
    }

    #[test]
    fn restores_from_its_nodes_under_another_seed(ops in prop::collection::vec(op(), 0..300)) {
        let mut tree = Tree::new(1);
        let mut model = Model::of(&tree);
        for (step, op) in (1..).zip(&ops) {
            apply(&mut tree, &mut model, op, step);
        }
        let mut restored = Tree::empty(2);
        for znode in tree.nodes() {
            restored.restore(&znode.path(), &znode.meta(), znode.data()).expect("paths are distinct");
        }
        model.assert_same_as(&restored);
    }

    #[test]
    fn recounts_children_that_a_source_does_not_know(ops in prop::collection::vec(op(), 0..300)) {
        let mut tree = Tree::new(1);
        let mut model = Model::of(&tree);
        for (step, op) in (1..).zip(&ops) {
            apply(&mut tree, &mut model, op, step);
        }
        let mut restored = Tree::empty(1);
        for znode in tree.nodes() {
            let meta = ZnodeMeta { num_children: 0, ..znode.meta() };
            restored.restore(&znode.path(), &meta, znode.data()).expect("paths are distinct");
        }
        restored.recount_children().expect("no orphans");
        model.assert_same_as(&restored);
    }
}

fn new_znode(data: &[u8]) -> NewZnode<'_> {
    NewZnode {
        data: Some(data),
        acl: AclId::OPEN,
        owner: Owner::None,
        zxid: Zxid(1),
        time: 1,
        parent_cversion: -1,
    }
}

#[test]
fn a_new_tree_has_zookeepers_built_in_znodes() {
    let tree = Tree::new(7);
    assert_eq!(tree.len(), 4);
    let stat = |path: &str| tree.get(path).expect("built in").stat();
    assert_eq!(stat("/"), Stat { cversion: -1, num_children: 1, ..Stat::default() });
    assert_eq!(stat("/zookeeper"), Stat { cversion: -2, num_children: 2, ..Stat::default() });
    assert_eq!(stat("/zookeeper/quota"), Stat::default());
    assert_eq!(stat("/zookeeper/config"), Stat::default());
}

#[test]
fn clients_see_creations_and_deletions_in_cversion() {
    let mut tree = Tree::new(7);
    tree.insert("/q", &new_znode(b"")).expect("new");
    for n in 0..5 {
        tree.insert(&format!("/q/{n}"), &new_znode(b"")).expect("new");
    }
    tree.remove("/q/0", Zxid(9)).expect("is there");
    let znode = tree.get("/q").expect("is there");
    assert_eq!(znode.persisted_cversion(), 5);
    assert_eq!(znode.stat().cversion, 6);
    assert_eq!(znode.stat().num_children, 4);
    assert_eq!(znode.stat().pzxid, 9);
}

#[test]
fn a_replayed_creation_leaves_a_parent_that_is_ahead() {
    let mut tree = Tree::new(7);
    tree.insert("/q", &new_znode(b"")).expect("new");
    tree.raise_cversion("/q", 5, Zxid(50)).expect("is there");
    tree.insert("/q/a", &NewZnode { zxid: Zxid(20), parent_cversion: 3, ..new_znode(b"") }).expect("new");
    let meta = tree.get("/q").expect("is there").meta();
    assert_eq!((meta.cversion, meta.pzxid, meta.num_children), (5, Zxid(50), 1));
}

#[test]
fn null_and_empty_data_differ() {
    let mut tree = Tree::new(7);
    tree.insert("/null", &NewZnode { data: None, ..new_znode(b"") }).expect("new");
    tree.insert("/empty", &new_znode(b"")).expect("new");
    assert_eq!(tree.get("/null").expect("is there").data(), None);
    assert_eq!(tree.get("/empty").expect("is there").data(), Some(&[][..]));
    tree.set_data("/null", Some(b""), 1, Zxid(2), 2, |_| ()).expect("is there");
    assert_eq!(tree.get("/null").expect("is there").data(), Some(&[][..]));
}

#[test]
fn long_names_and_wide_numbers_are_kept_through_all_changes() {
    const NARROW_MAX: u64 = (1 << 48) - 1;
    for len in [1, 255, 256, 70_000] {
        for zxid in [0, NARROW_MAX, NARROW_MAX + 1, u64::MAX] {
            for time in [0, -1, i64::MIN, NARROW_MAX.cast_signed(), NARROW_MAX.cast_signed() + 1, i64::MAX] {
                let mut tree = Tree::new(7);
                let (name, path) = ("n".repeat(len), format!("/{}", "n".repeat(len)));
                let mut meta = ZnodeMeta::fresh(Zxid(zxid), time, AclId(3), Owner::None);
                let check = |tree: &Tree, meta: &ZnodeMeta, data: &[u8]| {
                    let znode = tree.get(&path).expect("is there");
                    assert_eq!((znode.name(), znode.data(), znode.meta()), (&*name, Some(data), *meta));
                    assert_eq!((znode.acl(), znode.path_len()), (meta.acl, path.len()));
                };
                tree.restore(&path, &meta, Some(b"one")).expect("new");
                check(&tree, &meta, b"one");
                (meta.acl, meta.aversion) = (AclId::OPEN, 1);
                tree.set_acl(&path, meta.acl, 1).expect("is there");
                check(&tree, &meta, b"one");
                (meta.version, meta.mzxid, meta.mtime) = (1, Zxid(u64::MAX), 5);
                tree.set_data(&path, Some(b"two"), 1, Zxid(u64::MAX), 5, |_| ()).expect("is there");
                check(&tree, &meta, b"two");
                // In place.
                (meta.version, meta.mzxid, meta.mtime) = (2, Zxid(1), -6);
                tree.set_data(&path, Some(b"six"), 2, Zxid(1), -6, |_| ()).expect("is there");
                check(&tree, &meta, b"six");
            }
        }
    }
}

#[test]
fn orphans_are_found() {
    let mut tree = Tree::new(7);
    let meta = ZnodeMeta::fresh(Zxid(1), 1, AclId::OPEN, Owner::None);
    tree.restore("/lost/child", &meta, None).expect("new");
    assert_eq!(tree.recount_children(), Err(Orphan { path: "/lost/child".to_owned() }));
}

#[test]
fn siblings_share_their_parents_path() {
    let mut tree = Tree::new(7);
    tree.insert("/q", &new_znode(b"")).expect("new");
    for n in 0..1000 {
        tree.insert(&format!("/q/{n}"), &new_znode(b"")).expect("new");
        tree.insert(&format!("/{n}"), &new_znode(b"")).expect("new");
    }
    let directories: BTreeSet<_> =
        tree.children("/q").map(|(_, znode)| znode.parent_path().as_ptr()).collect();
    assert_eq!(directories.len(), 1);
}

#[test]
fn a_million_children_are_created_listed_and_deleted() {
    const COUNT: u32 = 1_000_000;
    let mut tree = Tree::new(7);
    let mut path = String::new();
    for n in 0..COUNT {
        key::join("/", &format!("{n:010}"), &mut path);
        tree.insert(&path, &new_znode(b"payload")).expect("new");
    }
    tree.nodes.check();
    assert_eq!(tree.get("/").expect("root").num_children(), COUNT + 1);
    assert_eq!(tree.children("/").count(), COUNT as usize + 1);
    let full = tree.clone();
    for n in 0..COUNT {
        key::join("/", &format!("{n:010}"), &mut path);
        tree.remove(&path, Zxid(2)).expect("is there");
    }
    tree.nodes.check();
    assert_eq!(tree.len(), 4);
    assert_eq!(tree.nodes.node_counts(), (1, 0));
    assert_eq!(full.children("/").count(), COUNT as usize + 1);
}

#[test]
fn a_path_of_ten_thousand_levels_is_built_read_and_deleted() {
    const LEVELS: usize = 10_000;
    let mut tree = Tree::new(7);
    let whole = "/d".repeat(LEVELS);
    for level in 1..=LEVELS {
        tree.insert(&whole[..2 * level], &new_znode(b"x")).expect("new");
    }
    assert_eq!(tree.get(&whole).expect("is there").data(), Some(&b"x"[..]));
    assert_eq!(tree.descendants("/d").count(), LEVELS - 1);
    let deep = tree.clone();
    for level in (1..=LEVELS).rev() {
        tree.remove(&whole[..2 * level], Zxid(2)).expect("is there");
    }
    assert_eq!(tree.len(), 4);
    assert_eq!(deep.len(), 4 + LEVELS);
    drop(deep);
}

#[test]
fn a_tree_can_be_read_on_any_thread() {
    const fn assert_shareable<T: Send + Sync>() {}
    assert_shareable::<Tree>();
}

#[test]
fn a_change_of_stat_shares_a_big_payload_with_the_old_version() {
    let mut tree = Tree::new(7);
    tree.insert("/big", &new_znode(&[1; 5000])).expect("new");
    let address = |tree: &Tree| tree.get("/big").expect("is there").data().expect("not null").as_ptr();
    let old = tree.clone();
    tree.insert("/big/child", &new_znode(b"")).expect("new");
    tree.set_acl("/big", AclId(3), 1).expect("is there");
    assert_eq!(address(&tree), address(&old));
    assert_eq!(old.get("/big").expect("is there").num_children(), 0);
}

#[test]
fn what_no_clone_shares_is_changed_in_place() {
    let mut tree = Tree::new(7);
    tree.insert("/a", &new_znode(b"one")).expect("new");
    tree.set_data("/a", Some(b"two"), 1, Zxid(2), 2, |_| ()).expect("is there");
    let address = |tree: &Tree| tree.get("/a").expect("is there").data().expect("not null").as_ptr();
    let before = address(&tree);
    tree.set_data("/a", Some(b"six"), 2, Zxid(3), 3, |_| ()).expect("is there");
    assert_eq!(address(&tree), before);
    let old = tree.clone();
    tree.set_data("/a", Some(b"ten"), 3, Zxid(4), 4, |_| ()).expect("is there");
    assert_eq!(old.get("/a").expect("is there").data(), Some(&b"six"[..]));
}
