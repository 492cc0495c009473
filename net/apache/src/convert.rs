//! From Apache's tree to a state of ours.

use std::collections::{BTreeMap, HashMap};

use ringkeeper_engine::acl::{self, Acl, DigestAlgorithm};
use ringkeeper_engine::authorisation;
use ringkeeper_engine::members::Membership;
use ringkeeper_engine::path;
use ringkeeper_engine::state::{RestoreError, State, StateBuilder};
use ringkeeper_engine::tenants;
use ringkeeper_engine::tree::{AclId, ZnodeMeta};
use ringkeeper_engine::txn::Session;
use ringkeeper_wire::{AclEntry, Perms, SessionId, Zxid};

use crate::load::{Loaded, Note};
use crate::password::session_password;
use crate::quota;
use crate::tree::{Stat, Tree, Znode, parent};

/// Why a tree is no state.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct ConvertError(#[from] RestoreError);

/// A state, and what became of the rest.
#[derive(Debug)]
pub struct Converted {
    /// The state.
    pub state: State,
    /// Ephemerals whose session had ended: Apache deletes them when it starts, and so does the conversion.
    pub dead_ephemerals: usize,
    /// What the user should know.
    pub notes: Vec<Note>,
}

impl Loaded {
    /// Notes on ACL entries that no client can satisfy here, if ids of the scheme `digest` are made with
    /// `algorithm`: whoever relies on them is locked out.
    #[must_use]
    pub fn unsatisfiable(&self, algorithm: DigestAlgorithm) -> Vec<Note> {
        unsatisfiable(&self.tree, algorithm)
    }

    /// Leaves out the znodes that are nothing to Apache ZooKeeper, where any client may have made them, and
    /// from which a server of ours takes who may do what: they would give their makers rights that they did
    /// not have. With `keep_rules` it leaves out only what a server of ours has to write by itself.
    pub fn leave_out_ours(&mut self, keep_rules: bool) {
        for kind in [Ours::Rules, Ours::Limits, Ours::FeatureLevel] {
            if keep_rules && kind != Ours::FeatureLevel {
                continue;
            }
            let paths: Vec<_> = self
                .tree
                .iter()
                .map(|(path, _)| path)
                .filter(|path| kind.has(path))
                .map(str::to_owned)
                .collect();
            for path in &paths {
                self.tree.take(path);
            }
            if !paths.is_empty() {
                self.notes.push(Note::OursLeftOut { kind, znodes: paths.len() });
            }
        }
    }

    /// The state with these znodes and sessions, each session with the password that its client has. `seed`
    /// as for [`State::new`].
    ///
    /// # Errors
    /// There is no root, which neither a snapshot that was read nor a log leaves so.
    pub fn into_state(mut self, seed: u64) -> Result<Converted, ConvertError> {
        let mut notes = self.notes;
        let dead_ephemerals = end_dead_sessions(&mut self.tree, &self.sessions, self.zxid);
        leave_out_orphans(&mut self.tree, &mut notes);
        self.tree.add_built_in();
        quota::count_anew(&mut self.tree);
        let mut builder = StateBuilder::new(seed);
        for (&id, &timeout_ms) in &self.sessions {
            let id = SessionId(id);
            let timeout_ms = u32::try_from(timeout_ms).unwrap_or(0);
            builder.session(id, Session { timeout_ms, password: session_password(id) });
        }
        let mut children = count_children(&self.tree);
        for (path, znode) in self.tree.into_nodes() {
            let num_children = children.remove(&path).unwrap_or(0);
            let acl = znode.acl.unwrap_or_else(|| {
                notes.push(Note::AclUnknown(path.to_string()));
                nobody()
            });
            // Members that Apache ZooKeeper's servers have agreed upon are not those of the new ensemble.
            let names_nobody = |data: &&[u8]| Membership::read_committed(data, Zxid::ZERO).is_none();
            let data = znode.data.as_deref();
            let data = if &*path == path::CONFIG { data.filter(names_nobody) } else { data };
            builder.znode(&path, &meta(&znode.stat, num_children), &acl, data)?;
        }
        let state = builder.finish(Zxid::from_wire(self.zxid), self.time_ms)?;
        Ok(Converted { state, dead_ephemerals, notes })
    }
}

/// What a server of ours takes from znodes below `/zookeeper`, and Apache ZooKeeper does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ours {
    /// Who may use which subtrees.
    Rules,
    /// Limits of tenants.
    Limits,
    /// Which features an ensemble may use.
    FeatureLevel,
}

impl Ours {
    fn has(self, path: &str) -> bool {
        match self {
            Self::Rules => authorisation::is_place(path),
            // Those below are left out as well: whoever may write limits may write there.
            Self::Limits => {
                let mut tops = std::iter::successors(Some(path), |&path| parent(path));
                tops.any(|path| tenants::limited_by(path).is_some())
            }
            Self::FeatureLevel => {
                let rest = path.strip_prefix(path::FEATURE_LEVEL);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            }
        }
    }
}

impl Tree {
    /// Adds the built-in znodes that are missing: 3.4 has no `/zookeeper/config`.
    pub(crate) fn add_built_in(&mut self) {
        for path in path::RESERVED {
            let (acl, aversion) = match path {
                path::CONFIG => (Acl::read_only(), -1),
                _ => (Acl::OPEN, 0),
            };
            let stat = Stat { aversion, ..Stat::default() };
            // One that is there stays as it is.
            let _ = self.add(path, Znode { data: Some(Box::default()), acl: Some(acl), stat });
        }
    }
}

/// Deletes ephemerals without a session, as of the last transaction (`ZooKeeperServer.loadData`).
fn end_dead_sessions(tree: &mut Tree, sessions: &std::collections::BTreeMap<i64, i32>, zxid: i64) -> usize {
    let before = tree.len();
    for owner in tree.owners() {
        if !sessions.contains_key(&owner) {
            tree.end_ephemerals(owner, zxid);
        }
    }
    before - tree.len()
}

fn leave_out_orphans(tree: &mut Tree, notes: &mut Vec<Note>) {
    let is_orphan = |path: &str| parent(path).is_some_and(|parent| tree.get(parent).is_none());
    let mut orphans: Vec<_> =
        tree.iter().map(|(path, _)| path).filter(|path| is_orphan(path)).map(str::to_owned).collect();
    let below: Vec<_> =
        orphans.iter().flat_map(|path| tree.descendants(path)).map(|(path, _)| path.to_owned()).collect();
    orphans.extend(below);
    for path in orphans {
        tree.take(&path);
        notes.push(Note::OrphanLeftOut(path));
    }
}

fn unsatisfiable(tree: &Tree, algorithm: DigestAlgorithm) -> Vec<Note> {
    let mut found = BTreeMap::<String, (usize, usize, String)>::new();
    for (path, znode) in tree.iter() {
        let Some(acl) = znode.acl.as_ref().filter(|acl| !acl.is_open()) else { continue };
        let foreign = |entry| acl::unsatisfiable(entry, algorithm).map(|scheme| (scheme, entry));
        let foreign: Vec<_> = acl.entries().iter().filter_map(foreign).collect();
        let locked = foreign.len() == acl.entries().len();
        for (scheme, AclEntry { scheme: name, id, .. }) in BTreeMap::from_iter(foreign) {
            let (znodes, all_locked, _) =
                found.entry(scheme).or_insert_with(|| (0, 0, format!("{path} ({name}:{id})")));
            *znodes += 1;
            *all_locked += usize::from(locked);
        }
    }
    let note = |(scheme, (znodes, locked, example))| Note::Unsatisfiable { scheme, znodes, locked, example };
    found.into_iter().map(note).collect()
}

fn count_children(tree: &Tree) -> HashMap<Box<str>, u32> {
    let mut counts = HashMap::<Box<str>, u32>::new();
    for (path, _) in tree.iter() {
        let Some(parent) = parent(path) else { continue };
        match counts.get_mut(parent) {
            Some(count) => *count += 1,
            None => {
                counts.insert(parent.into(), 1);
            }
        }
    }
    counts
}

fn meta(stat: &Stat, num_children: u32) -> ZnodeMeta {
    ZnodeMeta {
        czxid: Zxid::from_wire(stat.czxid),
        mzxid: Zxid::from_wire(stat.mzxid),
        pzxid: Zxid::from_wire(stat.pzxid),
        ctime: stat.ctime,
        mtime: stat.mtime,
        version: stat.version,
        cversion: stat.cversion,
        aversion: stat.aversion,
        num_children,
        raw_owner: stat.owner,
        acl: AclId::OPEN,
    }
}

/// A list that grants nothing: an unknown one may have kept secrets.
fn nobody() -> Acl {
    Acl::new(vec![AclEntry { perms: Perms(0), scheme: "world".to_owned(), id: "anyone".to_owned() }])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On Apache ZooKeeper anybody may write below `/zookeeper`: an import gave whoever had made a rule there
    /// the rights that it names.
    #[test]
    fn what_grants_rights_here_and_is_nothing_to_apache_is_left_out() {
        let ours = [
            "/zookeeper/authorisation",
            "/zookeeper/authorisation/world:anyone",
            "/zookeeper/authorisation/world:anyone/below",
            "/zookeeper/quota/app/ringkeeper_limits",
            "/zookeeper/quota/app/ringkeeper_limits/below",
            "/zookeeper/feature_level",
        ];
        let others = [
            "/zookeeper/authorisations",
            "/zookeeper/quota/app",
            "/zookeeper/feature_levels",
            "/app/zookeeper",
        ];
        let left = |keep_rules| {
            let mut tree = Tree::default();
            tree.add_built_in();
            for path in ["/app"].iter().chain(&others).chain(&ours) {
                let znode = Znode { data: None, acl: Some(Acl::OPEN), stat: Stat::default() };
                tree.add(path, znode).expect("all differ");
            }
            let mut loaded = Loaded::of_tree(tree);
            loaded.leave_out_ours(keep_rules);
            assert!(others.iter().all(|path| loaded.tree.get(path).is_some()));
            let there = ours.iter().filter(|path| loaded.tree.get(path).is_some()).count();
            (there, loaded.notes.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        let (there, notes) = left(false);
        assert_eq!(there, 0);
        assert!(notes[0].contains("3 znodes at /zookeeper/authorisation were left out"), "{notes:?}");
        assert!(notes[1].contains("2 znodes at /zookeeper/quota/*/ringkeeper_limits"), "{notes:?}");
        assert!(notes[2].contains("1 znode at /zookeeper/feature_level was left out"), "{notes:?}");
        let (there, notes) = left(true);
        assert_eq!((there, notes.len()), (5, 1), "{notes:?}");
    }

    #[test]
    fn entries_that_nobody_can_satisfy_are_noted_by_scheme() {
        let algorithm = DigestAlgorithm::default();
        let sha256 = DigestAlgorithm::named("SHA-256").expect("known");
        let entry = |scheme: &str| {
            let (scheme, id) = match scheme {
                "digest" => (scheme, algorithm.id("a:b")),
                "SHA-256" => ("digest", sha256.id("a:b")),
                scheme => (scheme, "a:b".to_owned()),
            };
            AclEntry { perms: Perms::ALL, scheme: scheme.to_owned(), id }
        };
        let mut tree = Tree::default();
        for (path, schemes) in [
            ("/", &[][..]),
            ("/a", &["key", "digest"]),
            ("/b", &["key", "token"]),
            ("/c", &["digest"]),
            ("/d", &["SHA-256"]),
        ] {
            let acl = Some(Acl::new(schemes.iter().map(|scheme| entry(scheme)).collect()));
            tree.add(path, Znode { data: None, acl, stat: Stat::default() }).expect("all differ");
        }
        let notes: Vec<_> = unsatisfiable(&tree, algorithm).iter().map(ToString::to_string).collect();
        assert_eq!(notes.len(), 3, "{notes:?}");
        assert!(notes[0].starts_with("ACL entries of the scheme digest, not made with SHA-1, "), "{notes:?}");
        assert!(notes[1].starts_with("ACL entries of the scheme key, "), "{notes:?}");
        assert!(notes[1].contains("on 2 znodes, such as /a (key:a:b); on 1 znodes of these"), "{notes:?}");
        assert!(notes[2].contains("the scheme token"), "{notes:?}");
    }
}
