//! The model of the service: a map of paths that is changed by one request after another.
//!
//! It is naive on purpose and independent of the engine, since it is the oracle for the engine's replies and
//! trees. Every version is kept; versions share their structure.

use std::sync::Arc;

use imbl::{OrdMap, OrdSet};
use ringkeeper_wire::{
    Create2Response, CreateMode, CreateResponse, ErrorCode, EventType, MultiEntry, MultiResult, Record, Stat,
    end_multi,
};

use super::ask::Ask;
use super::rules::{self, Does, Who};

/// One znode.
#[derive(Clone, Debug)]
pub(crate) struct Znode {
    pub(crate) data: Arc<[u8]>,
    /// All fields of the Stat that do not follow from others.
    fixed: Stat,
    /// How many children it has ever had.
    created: i32,
    pub(crate) children: OrdSet<Arc<str>>,
    /// Its ACL grants nobody anything.
    pub(crate) closed: bool,
}

impl Znode {
    pub(crate) fn stat(&self) -> Stat {
        let children = count(self.children.len());
        Stat {
            cversion: self.created * 2 - children,
            data_length: count(self.data.len()),
            num_children: children,
            ..self.fixed
        }
    }

    const fn owner(&self) -> i64 {
        self.fixed.ephemeral_owner
    }
}

/// A change that watches can see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) event: EventType,
    pub(crate) path: Arc<str>,
    /// The ACL of the znode, and that of its parent, grants nobody anything.
    pub(crate) closed: bool,
    pub(crate) parent_closed: bool,
}

/// The model's answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) err: ErrorCode,
    pub(crate) body: Vec<u8>,
    /// The Stats of what it created or set, in order.
    pub(crate) stats: Vec<Stat>,
}

/// The state after some transaction.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    pub(crate) znodes: OrdMap<Arc<str>, Znode>,
    pub(crate) sessions: OrdSet<i64>,
    /// How many ephemerals a session may own, so that it ends in so many steps.
    ephemerals_max: usize,
}

/// The session of a request, and its place in the order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamp {
    pub(crate) session: i64,
    /// The session is known to its own server alone.
    pub(crate) is_local: bool,
    pub(crate) zxid: i64,
    pub(crate) time_ms: i64,
    /// The session's client.
    pub(crate) who: Who,
}

/// What one change gave.
enum Done {
    Created { path: Arc<str>, stat: Option<Stat> },
    Set(Stat),
    Deleted,
    Checked,
}

impl Tree {
    pub(crate) fn new(ephemerals_max: usize) -> Self {
        let built_in = |children: OrdSet<Arc<str>>| Znode {
            data: Arc::from([]),
            fixed: Stat::default(),
            created: 0,
            children,
            closed: false,
        };
        let root = built_in(OrdSet::unit("zookeeper".into()));
        let mut znodes = OrdMap::unit("/".into(), root);
        znodes.insert("/zookeeper".into(), built_in(OrdSet::new()));
        Self { znodes, sessions: OrdSet::new(), ephemerals_max }
    }

    /// The ephemerals of a session.
    pub(crate) fn ephemerals(&self, session: i64) -> Vec<Arc<str>> {
        let owned = self.znodes.iter().filter(|(_, znode)| znode.owner() == session);
        owned.map(|(path, _)| Arc::clone(path)).collect()
    }

    /// Ends a session and deletes its ephemerals, in the order of their paths.
    pub(crate) fn close(&mut self, stamp: Stamp) -> Vec<Change> {
        let mut changes = Vec::new();
        for path in self.ephemerals(stamp.session) {
            let change = self.change(EventType::NodeDeleted, &path);
            if self.delete(stamp, &path, -1).is_ok() {
                changes.push(change);
            }
        }
        self.sessions.remove(&stamp.session);
        changes
    }

    /// Executes a write at its place in the order.
    pub(crate) fn write(&mut self, stamp: Stamp, ask: &Ask) -> (Answer, Vec<Change>) {
        let mut changes = Vec::new();
        let Ask::Multi(parts) = ask else {
            let answer = match self.one(stamp, ask, &mut changes) {
                Ok(done) => done.answer(),
                Err(err) => Answer { err, body: Vec::new(), stats: Vec::new() },
            };
            return (answer, changes);
        };
        let before = self.clone();
        let (mut body, mut stats, mut failed) = (Vec::new(), Vec::new(), None);
        for (index, part) in parts.iter().enumerate() {
            match self.one(stamp, part, &mut changes) {
                Ok(done) => done.encode_part(&mut body, &mut stats),
                Err(code) => {
                    failed = Some((index, code));
                    break;
                }
            }
        }
        if let Some((at, code)) = failed {
            *self = before;
            (body, stats) = (Vec::new(), Vec::new());
            changes.clear();
            for index in 0..parts.len() {
                let code = match index.cmp(&at) {
                    std::cmp::Ordering::Less => ErrorCode::Ok,
                    std::cmp::Ordering::Equal => code,
                    std::cmp::Ordering::Greater => ErrorCode::RuntimeInconsistency,
                };
                MultiResult::Error(code.to_wire()).encode_entry(&mut body);
            }
        }
        end_multi(&mut body);
        (Answer { err: ErrorCode::Ok, body, stats }, changes)
    }

    fn one(&mut self, stamp: Stamp, ask: &Ask, changes: &mut Vec<Change>) -> Result<Done, ErrorCode> {
        if let Ask::Create { mode, .. } = ask
            && stamp.is_local
            && mode.is_ephemeral()
        {
            return Err(ErrorCode::EphemeralOnLocalSession);
        }
        if !stamp.is_local && !self.sessions.contains(&stamp.session) {
            return Err(ErrorCode::SessionExpired);
        }
        match ask {
            Ask::Create { path, data, mode, stat: with_stat, closed } => {
                let (path, stat) = self.create(stamp, path, data, *mode, *closed)?;
                changes.push(self.change(EventType::NodeCreated, &path));
                Ok(Done::Created { path, stat: with_stat.then_some(stat) })
            }
            Ask::Set { path, data, version } => {
                self.reach(stamp.who, Does::Change, path)?;
                let znode = self.znodes.get_mut(path).ok_or(ErrorCode::NoNode)?;
                expect_rule(path, data)?;
                expect_version(znode, *version)?;
                znode.data = Arc::clone(data);
                znode.fixed.version += 1;
                (znode.fixed.mzxid, znode.fixed.mtime) = (stamp.zxid, stamp.time_ms);
                let stat = znode.stat();
                changes.push(self.change(EventType::NodeDataChanged, path));
                Ok(Done::Set(stat))
            }
            Ask::Delete { path, version } => {
                self.permit(stamp.who, Does::Change, path)?;
                self.reach(stamp.who, Does::Change, split(path).0)?;
                let change = self.change(EventType::NodeDeleted, path);
                self.delete(stamp, path, *version)?;
                changes.push(change);
                Ok(Done::Deleted)
            }
            Ask::Check { path, version } => {
                expect_version(self.reach(stamp.who, Does::Read, path)?, *version)?;
                Ok(Done::Checked)
            }
            other => unreachable!("{other:?} is no write of the tree"),
        }
    }

    fn create(
        &mut self,
        stamp: Stamp,
        path: &Arc<str>,
        data: &Arc<[u8]>,
        mode: CreateMode,
        closed: bool,
    ) -> Result<(Arc<str>, Stat), ErrorCode> {
        let parent = self.reach(stamp.who, Does::Change, split(path).0)?;
        let path: Arc<str> = match mode.is_sequential() {
            true => format!("{path}{:010}", parent.created).into(),
            false => Arc::clone(path),
        };
        self.permit(stamp.who, Does::Change, &path)?;
        if self.znodes.contains_key(&path) {
            return Err(ErrorCode::NodeExists);
        }
        if parent.owner() != 0 {
            return Err(ErrorCode::NoChildrenForEphemerals);
        }
        if rules::is_place(&path) && stamp.who != Who::Administrator {
            return Err(ErrorCode::NoAuth);
        }
        expect_rule(&path, data)?;
        if mode.is_ephemeral() && self.ephemerals(stamp.session).len() >= self.ephemerals_max {
            return Err(ErrorCode::QuotaExceeded);
        }
        let Stamp { session, zxid, time_ms, .. } = stamp;
        let fixed = Stat {
            czxid: zxid,
            mzxid: zxid,
            pzxid: zxid,
            ctime: time_ms,
            mtime: time_ms,
            ephemeral_owner: if mode.is_ephemeral() { session } else { 0 },
            ..Stat::default()
        };
        let znode = Znode { data: Arc::clone(data), fixed, created: 0, children: OrdSet::new(), closed };
        let stat = znode.stat();
        self.znodes.insert(Arc::clone(&path), znode);
        let (parent_path, name) = split(&path);
        if let Some(parent) = self.znodes.get_mut(parent_path) {
            parent.created += 1;
            parent.fixed.pzxid = zxid;
            parent.children.insert(name.into());
        }
        Ok((path, stat))
    }

    /// A change of a znode that is there.
    fn change(&self, event: EventType, path: &Arc<str>) -> Change {
        let is_closed = |path: &str| self.znodes.get(path).is_some_and(|znode| znode.closed);
        let (closed, parent_closed) = (is_closed(path), is_closed(split(path).0));
        Change { event, path: Arc::clone(path), closed, parent_closed }
    }

    /// The znode, if rules and its ACL permit it.
    fn reach(&self, who: Who, does: Does, path: &str) -> Result<&Znode, ErrorCode> {
        self.permit(who, does, path)?;
        let znode = self.znodes.get(path).ok_or(ErrorCode::NoNode)?;
        if who.may_with(does, path, znode.closed, self) { Ok(znode) } else { Err(ErrorCode::NoAuth) }
    }

    /// Whether the rules permit it.
    fn permit(&self, who: Who, does: Does, path: &str) -> Result<(), ErrorCode> {
        if who.may(does, path, self) { Ok(()) } else { Err(ErrorCode::NoAuth) }
    }

    fn delete(&mut self, stamp: Stamp, path: &str, version: i32) -> Result<(), ErrorCode> {
        let (parent_path, name) = split(path);
        let znode = self.znodes.get(path).ok_or(ErrorCode::NoNode)?;
        expect_version(znode, version)?;
        if !znode.children.is_empty() {
            return Err(ErrorCode::NotEmpty);
        }
        self.znodes.remove(path);
        if let Some(parent) = self.znodes.get_mut(parent_path) {
            parent.fixed.pzxid = stamp.zxid;
            parent.children.remove(name);
        }
        Ok(())
    }
}

impl Done {
    fn answer(self) -> Answer {
        let mut body = Vec::new();
        let stats = match self {
            Self::Created { path, stat: None } => {
                CreateResponse { path: (&*path).into() }.encode(&mut body);
                Vec::new()
            }
            Self::Created { path, stat: Some(stat) } => {
                Create2Response { path: (&*path).into(), stat }.encode(&mut body);
                vec![stat]
            }
            Self::Set(stat) => {
                stat.encode(&mut body);
                vec![stat]
            }
            Self::Deleted | Self::Checked => Vec::new(),
        };
        Answer { err: ErrorCode::Ok, body, stats }
    }

    fn encode_part(self, body: &mut Vec<u8>, stats: &mut Vec<Stat>) {
        match self {
            Self::Created { path, stat: None } => MultiResult::Created((&*path).into()).encode_entry(body),
            Self::Created { path, stat: Some(stat) } => {
                stats.push(stat);
                MultiResult::Created2((&*path).into(), stat).encode_entry(body);
            }
            Self::Set(stat) => {
                stats.push(stat);
                MultiResult::DataSet(stat).encode_entry(body);
            }
            Self::Deleted => MultiResult::Deleted.encode_entry(body),
            Self::Checked => MultiResult::Checked.encode_entry(body),
        }
    }
}

fn expect_rule(path: &str, data: &[u8]) -> Result<(), ErrorCode> {
    if !rules::is_place(path) || rules::is_rule(path, data) { Ok(()) } else { Err(ErrorCode::BadArguments) }
}

fn expect_version(znode: &Znode, version: i32) -> Result<(), ErrorCode> {
    if version == -1 || version == znode.fixed.version { Ok(()) } else { Err(ErrorCode::BadVersion) }
}

/// Parent and name.
pub(crate) fn split(path: &str) -> (&str, &str) {
    match path.rsplit_once('/') {
        Some(("", name)) => ("/", name),
        Some(parts) => parts,
        None => ("/", path),
    }
}

fn count(len: usize) -> i32 {
    i32::try_from(len).unwrap_or(i32::MAX)
}
