//! Random requests against a naive twin: a map of paths that is copied whole for a multi, and counts
//! everything by looking.

use std::borrow::Cow;
use std::collections::BTreeMap;

use proptest::prelude::*;
use ringkeeper_engine::txn::Outcome;
use ringkeeper_wire::{
    AclEntry, CheckRequest, CreateRequest, DeleteRequest, ErrorCode, MultiOp, Request, SessionId,
    SetAclRequest, SetDataRequest, Stat,
};

use crate::fixture::*;
use crate::replay::assert_replays;

/// A write, owned.
#[derive(Clone, Debug)]
enum Op {
    Create { path: String, flags: i32, acl: usize, data: Option<Vec<u8>> },
    Delete { path: String, version: i32 },
    SetData { path: String, version: i32, data: Option<Vec<u8>> },
    SetAcl { path: String, version: i32, acl: usize },
    Check { path: String, version: i32 },
}

#[derive(Clone, Debug)]
enum Step {
    Single(Op),
    Multi(Vec<Op>),
    CloseAndReopen,
}

/// Lists by number: open, read only, nothing at all, one user's, invalid.
fn lists() -> [Vec<AclEntry>; 5] {
    [
        vec![entry(31, "world", "anyone")],
        vec![entry(5, "world", "anyone"), entry(5, "world", "anyone")],
        vec![entry(0, "world", "anyone")],
        vec![entry(31, "auth", ""), entry(1, "ip", "10.0.0.0/8")],
        vec![entry(31, "nonsense", "x")],
    ]
}

#[derive(Clone, Debug, PartialEq)]
struct Node {
    data: Option<Vec<u8>>,
    acl: Vec<AclEntry>,
    owner: i64,
    czxid: i64,
    mzxid: i64,
    pzxid: i64,
    ctime: i64,
    mtime: i64,
    version: i32,
    creations: i32,
    aversion: i32,
}

#[derive(Clone, Debug)]
struct Model {
    nodes: BTreeMap<String, Node>,
    zxid: i64,
    time: i64,
}

impl Model {
    fn of(server: &Server) -> Self {
        let nodes = server.state.tree().nodes().map(|znode| {
            let acl = server.state.acl_of(znode).entries().to_vec();
            let zero = Node {
                data: znode.data().map(<[u8]>::to_vec),
                acl,
                owner: 0,
                czxid: 0,
                mzxid: 0,
                pzxid: 0,
                ctime: 0,
                mtime: 0,
                version: 0,
                creations: 0,
                // As in ZooKeeper, which sets the ACL of its configuration at the start without counting it.
                aversion: if znode.path() == "/zookeeper/config" { -1 } else { 0 },
            };
            (znode.path(), zero)
        });
        Self { nodes: nodes.collect(), zxid: 0, time: 0 }
    }

    fn children(&self, path: &str) -> impl Iterator<Item = &String> {
        let prefix = if path == "/" { "/".to_owned() } else { format!("{path}/") };
        self.nodes.keys().filter(move |other| {
            other.len() > prefix.len() && other.starts_with(&prefix) && !other[prefix.len()..].contains('/')
        })
    }

    fn stat(&self, path: &str) -> Stat {
        let node = &self.nodes[path];
        let children = i32::try_from(self.children(path).count()).expect("few");
        Stat {
            czxid: node.czxid,
            mzxid: node.mzxid,
            ctime: node.ctime,
            mtime: node.mtime,
            version: node.version,
            cversion: node.creations * 2 - children,
            aversion: node.aversion,
            ephemeral_owner: node.owner,
            data_length: i32::try_from(node.data.as_ref().map_or(0, Vec::len)).expect("short"),
            num_children: children,
            pzxid: node.pzxid,
        }
    }

    fn node(&self, path: &str) -> Result<&Node, ErrorCode> {
        self.nodes.get(path).ok_or(ErrorCode::NoNode)
    }

    fn allowed(&self, node: &Node, perm: i32) -> Result<(), ErrorCode> {
        let granted = node
            .acl
            .iter()
            .any(|entry| entry.perms.0 & perm != 0 && (entry.scheme == "world" || entry.id == "me:hash"));
        if granted { Ok(()) } else { Err(ErrorCode::NoAuth) }
    }

    fn list(acl: usize) -> Result<Vec<AclEntry>, ErrorCode> {
        match acl {
            1 => Ok(lists()[1][..1].to_vec()),
            3 => Ok(vec![entry(31, "digest", "me:hash"), entry(1, "ip", "10.0.0.0/8")]),
            4 => Err(ErrorCode::InvalidAcl),
            acl => Ok(lists()[acl].clone()),
        }
    }

    fn version(current: i32, expected: i32) -> Result<i32, ErrorCode> {
        if [-1, current].contains(&expected) { Ok(current + 1) } else { Err(ErrorCode::BadVersion) }
    }

    fn apply(&mut self, op: &Op) -> Result<(), ErrorCode> {
        match op {
            Op::Create { path, flags, acl, data } => self.create(path, *flags, *acl, data),
            Op::Delete { path, version } => self.delete(path, *version),
            Op::SetData { path, version, data } => {
                let node = self.node(path)?;
                self.allowed(node, 2)?;
                let version = Self::version(node.version, *version)?;
                let (mzxid, mtime) = (self.zxid, self.time);
                let node = self.nodes.get_mut(path).expect("looked up");
                *node = Node { data: data.clone(), version, mzxid, mtime, ..node.clone() };
                Ok(())
            }
            Op::SetAcl { path, version, acl } => {
                let acl = Self::list(*acl)?;
                let node = self.node(path)?;
                self.allowed(node, 16)?;
                let aversion = Self::version(node.aversion, *version)?;
                let node = self.nodes.get_mut(path).expect("looked up");
                *node = Node { acl, aversion, ..node.clone() };
                Ok(())
            }
            Op::Check { path, version } => {
                let node = self.node(path)?;
                self.allowed(node, 1)?;
                Self::version(node.version, *version).map(|_| ())
            }
        }
    }

    fn create(
        &mut self,
        path: &str,
        flags: i32,
        acl: usize,
        data: &Option<Vec<u8>>,
    ) -> Result<(), ErrorCode> {
        let acl = Self::list(acl)?;
        let parent = parent(path);
        let node = self.node(&parent)?;
        self.allowed(node, 4)?;
        let path = if flags & 2 != 0 { format!("{path}{:010}", node.creations) } else { path.to_owned() };
        if self.nodes.contains_key(&path) {
            return Err(ErrorCode::NodeExists);
        }
        if node.owner != 0 {
            return Err(ErrorCode::NoChildrenForEphemerals);
        }
        let (zxid, time) = (self.zxid, self.time);
        let node = self.nodes.get_mut(&parent).expect("looked up");
        node.creations += 1;
        node.pzxid = zxid;
        let new = Node {
            data: data.clone(),
            acl,
            owner: if flags & 1 != 0 { ALICE.0 } else { 0 },
            czxid: zxid,
            mzxid: zxid,
            pzxid: zxid,
            ctime: time,
            mtime: time,
            version: 0,
            creations: 0,
            aversion: 0,
        };
        self.nodes.insert(path, new);
        Ok(())
    }

    fn delete(&mut self, path: &str, version: i32) -> Result<(), ErrorCode> {
        let parent = parent(path);
        self.allowed(self.node(&parent)?, 8)?;
        Self::version(self.node(path)?.version, version)?;
        if self.children(path).next().is_some() {
            return Err(ErrorCode::NotEmpty);
        }
        self.remove(path);
        Ok(())
    }

    fn remove(&mut self, path: &str) {
        self.nodes.remove(path);
        self.nodes.get_mut(&parent(path)).expect("a parent outlives its children").pzxid = self.zxid;
    }

    fn close(&mut self, session: SessionId) {
        let owned = self.nodes.iter().filter(|(_, node)| node.owner == session.0);
        for path in owned.map(|(path, _)| path.clone()).collect::<Vec<_>>() {
            self.remove(&path);
        }
    }
}

fn parent(path: &str) -> String {
    match path.rfind('/').expect("a slash") {
        0 => "/".to_owned(),
        slash => path[..slash].to_owned(),
    }
}

fn request(op: &Op) -> MultiOrSingle<'_> {
    let list = |acl: usize| {
        let list: &'static [AclEntry] = Vec::leak(lists()[acl].clone());
        Some(list.into())
    };
    match op {
        Op::Create { path, flags, acl, data } => MultiOrSingle::Both(MultiOp::Create(CreateRequest {
            path: Cow::Borrowed(path),
            data: data.as_deref(),
            acl: list(*acl),
            flags: *flags,
        })),
        Op::Delete { path, version } => MultiOrSingle::Both(MultiOp::Delete(DeleteRequest {
            path: Cow::Borrowed(path),
            version: *version,
        })),
        Op::SetData { path, version, data } => MultiOrSingle::Both(MultiOp::SetData(SetDataRequest {
            path: Cow::Borrowed(path),
            data: data.as_deref(),
            version: *version,
        })),
        Op::Check { path, version } => MultiOrSingle::OnlyMulti(MultiOp::Check(CheckRequest {
            path: Cow::Borrowed(path),
            version: *version,
        })),
        Op::SetAcl { path, version, acl } => MultiOrSingle::OnlySingle(Request::SetAcl(SetAclRequest {
            path: Cow::Borrowed(path),
            acl: list(*acl),
            version: *version,
        })),
    }
}

/// Where an operation may stand.
enum MultiOrSingle<'a> {
    Both(MultiOp<'a>),
    OnlyMulti(MultiOp<'a>),
    OnlySingle(Request<'a>),
}

fn single(op: &Op) -> Option<Request<'_>> {
    Some(match request(op) {
        MultiOrSingle::Both(MultiOp::Create(request)) => Request::Create(request),
        MultiOrSingle::Both(MultiOp::Delete(request)) => Request::Delete(request),
        MultiOrSingle::Both(MultiOp::SetData(request)) => Request::SetData(request),
        MultiOrSingle::OnlySingle(request) => request,
        MultiOrSingle::Both(_) | MultiOrSingle::OnlyMulti(_) => return None,
    })
}

fn in_multi(op: &Op) -> Option<MultiOp<'_>> {
    match request(op) {
        MultiOrSingle::Both(op) | MultiOrSingle::OnlyMulti(op) => Some(op),
        MultiOrSingle::OnlySingle(_) => None,
    }
}

fn some_path() -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec!["a", "b", "c"]);
    prop::collection::vec(name, 1..4).prop_map(|names| format!("/{}", names.join("/")))
}

fn some_op() -> impl Strategy<Value = Op> {
    let version = prop_oneof![3 => Just(-1), 2 => 0..3i32];
    let data = prop::option::weighted(0.9, prop::collection::vec(any::<u8>(), 0..40));
    let acl = prop_oneof![6 => Just(0usize), 1 => 1..5usize];
    prop_oneof![
        4 => (some_path(), 0..4i32, acl.clone(), data.clone())
            .prop_map(|(path, flags, acl, data)| Op::Create { path, flags, acl, data }),
        2 => (some_path(), version.clone()).prop_map(|(path, version)| Op::Delete { path, version }),
        2 => (some_path(), version.clone(), data)
            .prop_map(|(path, version, data)| Op::SetData { path, version, data }),
        1 => (some_path(), version.clone(), acl)
            .prop_map(|(path, version, acl)| Op::SetAcl { path, version, acl }),
        1 => (some_path(), version).prop_map(|(path, version)| Op::Check { path, version }),
    ]
}

fn some_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => some_op().prop_map(Step::Single),
        4 => prop::collection::vec(some_op(), 0..5).prop_map(Step::Multi),
        1 => Just(Step::CloseAndReopen),
    ]
}

fn codes(ops: usize, failed: Option<(usize, ErrorCode)>) -> Vec<ErrorCode> {
    let code = |op| match failed {
        Some((at, code)) if op == at => code,
        Some((at, _)) if op > at => ErrorCode::RuntimeInconsistency,
        _ => ErrorCode::Ok,
    };
    (0..ops).map(code).collect()
}

fn run(server: &mut Server, model: &mut Model, step: &Step) {
    model.zxid = server.next_zxid().to_wire();
    model.time = 1_000_000 + i64::try_from(server.log.len()).expect("short") * 10;
    match step {
        Step::Single(op) => {
            let Some(request) = single(op) else { return };
            let expected = model.apply(op).err().unwrap_or(ErrorCode::Ok);
            assert_eq!(code(&server.ask(&request)), expected, "{op:?}");
        }
        Step::Multi(ops) => {
            let ops: Vec<&Op> = ops.iter().filter(|op| in_multi(op).is_some()).collect();
            let mut after = model.clone();
            let failed = ops.iter().enumerate().find_map(|(at, op)| Some((at, after.apply(op).err()?)));
            if failed.is_none() {
                *model = after;
            }
            let requests: Vec<MultiOp<'_>> = ops.iter().filter_map(|op| in_multi(op)).collect();
            let got = match server.multi(&requests) {
                Outcome::Multi(effects) => codes(effects.len(), None),
                Outcome::MultiFailed(failed) => failed.codes().collect(),
                outcome => panic!("{outcome:?}"),
            };
            assert_eq!(got, codes(ops.len(), failed), "{ops:?}");
        }
        Step::CloseAndReopen => {
            let session = *server.state.session(ALICE).expect("open");
            model.close(ALICE);
            server.close(ALICE);
            server.commit(ringkeeper_engine::txn::TxnOp::CreateSession(session));
        }
    }
}

fn assert_matches(server: &Server, model: &Model) {
    let paths: Vec<String> = contents(&server.state).into_iter().map(|(path, ..)| path).collect();
    assert!(paths.iter().eq(model.nodes.keys()), "{paths:?}");
    for (path, node) in &model.nodes {
        let znode = server.state.znode(path).expect(path);
        assert_eq!(znode.stat(), model.stat(path), "{path}");
        assert_eq!(znode.data(), node.data.as_deref(), "{path}");
        assert_eq!(server.state.acl_of(znode).entries(), node.acl, "{path}");
    }
    let ephemerals = model.nodes.iter().filter(|(_, node)| node.owner != 0).map(|(path, _)| path.as_str());
    assert!(server.state.ephemerals(ALICE).eq(ephemerals));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn a_state_does_what_the_naive_model_does(steps in prop::collection::vec(some_step(), 1..60)) {
        let mut server = Server::new();
        server.identities = vec![identity("digest", "me:hash")];
        let mut model = Model::of(&server);
        for step in &steps {
            run(&mut server, &mut model, step);
        }
        assert_matches(&server, &model);
        assert_replays(&server);
    }
}
