//! Requests of clients: as the model understands them, and as bytes.

use std::sync::{Arc, LazyLock};

use ringkeeper_wire::frame::put_frame;
use ringkeeper_wire::{
    AclEntry, AddWatchMode, AddWatchRequest, AuthRequest, CheckRequest, CreateMode, CreateRequest,
    DeleteRequest, MultiOp, OpCode, PathWatchRequest, Perms, Record, Request, RequestHeader, SetDataRequest,
    SetWatchesRequest, SyncRequest, WatcherType, WatchesRequest, Xid,
};

use super::watching::{self, Watch};

/// A request.
#[derive(Clone, Debug)]
pub(crate) enum Ask {
    Create {
        path: Arc<str>,
        data: Arc<[u8]>,
        mode: CreateMode,
        stat: bool,
        /// Its ACL grants nobody anything, or everybody everything.
        closed: bool,
    },
    Set {
        path: Arc<str>,
        data: Arc<[u8]>,
        version: i32,
    },
    Delete {
        path: Arc<str>,
        version: i32,
    },
    /// Only in a multi.
    Check {
        path: Arc<str>,
        version: i32,
    },
    Multi(Vec<Self>),
    Close,
    Data {
        path: Arc<str>,
        watch: bool,
    },
    Exists {
        path: Arc<str>,
        watch: bool,
    },
    Children {
        path: Arc<str>,
        watch: bool,
        stat: bool,
    },
    Sync,
    /// A read that has to see all that was committed before.
    Linearizable(Box<Self>),
    Ping,
    /// An auth packet: `user:password`.
    Login(&'static str),
    AddWatch {
        path: Arc<str>,
        recursive: bool,
    },
    /// Removes a persistent watch.
    RemoveWatch {
        path: Arc<str>,
        recursive: bool,
    },
    /// setWatches2: the watches that the client had, and the newest zxid that it had seen.
    Restore {
        watches: Vec<Watch>,
        since: i64,
    },
}

impl Ask {
    pub(crate) const fn is_write(&self) -> bool {
        matches!(
            self,
            Self::Create { .. } | Self::Set { .. } | Self::Delete { .. } | Self::Multi(_) | Self::Close
        )
    }

    /// Whether a server in read-only mode refuses the request.
    pub(crate) const fn needs_leader(&self) -> bool {
        matches!(self, Self::Sync | Self::Linearizable(_)) || self.is_write() && !matches!(self, Self::Close)
    }

    pub(crate) const fn is_read(&self) -> bool {
        matches!(self, Self::Data { .. } | Self::Exists { .. } | Self::Children { .. })
    }

    /// The frame that a client sends.
    pub(crate) fn encode(&self, xid: Xid, out: &mut Vec<u8>) {
        self.encode_with(xid, 0, out);
    }

    fn encode_with(&self, xid: Xid, flag: i32, out: &mut Vec<u8>) {
        let mut write = |request: &Request<'_>| {
            put_frame(out, |out| {
                RequestHeader { xid, op: request.op().to_wire() | flag }.encode(out);
                request.encode(out);
            });
        };
        let at = |path: &Arc<str>, watch: bool| PathWatchRequest { path: path.to_string().into(), watch };
        match self {
            Self::Create { path, data, mode, stat, closed } => {
                let create = create(path, data, *mode, acl(*closed));
                write(&if *stat { Request::Create2(create) } else { Request::Create(create) });
            }
            Self::Set { path, data, version } => write(&Request::SetData(set(path, data, *version))),
            Self::Delete { path, version } => write(&Request::Delete(delete(path, *version))),
            Self::Check { .. } => unreachable!("check comes in multis only"),
            Self::Multi(parts) => {
                let ops: Vec<MultiOp<'_>> = parts.iter().map(Self::part).collect();
                write(&Request::Multi((&*ops).into()));
            }
            Self::Close => write(&Request::CloseSession),
            Self::Data { path, watch } => write(&Request::GetData(at(path, *watch))),
            Self::Exists { path, watch } => write(&Request::Exists(at(path, *watch))),
            Self::Children { path, watch, stat: true } => write(&Request::GetChildren2(at(path, *watch))),
            Self::Children { path, watch, stat: false } => write(&Request::GetChildren(at(path, *watch))),
            Self::Sync => write(&Request::Sync(SyncRequest { path: Some("/".into()) })),
            Self::Linearizable(read) => read.encode_with(xid, RequestHeader::LINEARIZABLE, out),
            Self::Ping => write(&Request::Ping),
            Self::Login(login) => write(&Request::Auth(AuthRequest {
                auth_type: 0,
                scheme: Some("digest".into()),
                auth: Some(login.as_bytes()),
            })),
            Self::AddWatch { path, recursive } => {
                let mode =
                    if *recursive { AddWatchMode::PersistentRecursive } else { AddWatchMode::Persistent };
                write(&Request::AddWatch(AddWatchRequest { path: path.to_string().into(), mode }));
            }
            Self::RemoveWatch { path, recursive } => {
                let watcher_type =
                    if *recursive { WatcherType::PersistentRecursive } else { WatcherType::Persistent };
                write(&Request::RemoveWatches(WatchesRequest {
                    path: path.to_string().into(),
                    watcher_type,
                }));
            }
            Self::Restore { watches, since } => {
                let lists = watching::lists(watches);
                let [data, exist, child, persistent, recursive] = &lists;
                write(&Request::SetWatches2(SetWatchesRequest {
                    relative_zxid: *since,
                    data_watches: (&**data).into(),
                    exist_watches: (&**exist).into(),
                    child_watches: (&**child).into(),
                    persistent_watches: (&**persistent).into(),
                    persistent_recursive_watches: (&**recursive).into(),
                }));
            }
        }
    }

    /// Decodes the body of a request, if it is of one of the kinds above.
    pub(crate) fn decode(op: OpCode, body: &[u8]) -> Result<Self, String> {
        let request = Request::decode(op, body).map_err(|error| format!("{op:?}: {error}"))?;
        let recursive = |mode| mode == AddWatchMode::PersistentRecursive;
        Ok(match &request {
            Request::Create(record) => Self::of_create(record, false)?,
            Request::Create2(record) => Self::of_create(record, true)?,
            Request::SetData(record) => Self::of_set(record),
            Request::Delete(record) => Self::of_delete(record),
            Request::Multi(ops) => {
                Self::Multi(ops.iter().map(|op| Self::of_part(&op)).collect::<Result<_, _>>()?)
            }
            Request::CloseSession => Self::Close,
            Request::GetData(PathWatchRequest { path, watch }) => {
                Self::Data { path: (**path).into(), watch: *watch }
            }
            Request::Exists(PathWatchRequest { path, watch }) => {
                Self::Exists { path: (**path).into(), watch: *watch }
            }
            Request::GetChildren(PathWatchRequest { path, watch }) => {
                Self::Children { path: (**path).into(), watch: *watch, stat: false }
            }
            Request::GetChildren2(PathWatchRequest { path, watch }) => {
                Self::Children { path: (**path).into(), watch: *watch, stat: true }
            }
            Request::Sync(_) => Self::Sync,
            Request::Ping => Self::Ping,
            Request::AddWatch(AddWatchRequest { path, mode }) => {
                Self::AddWatch { path: (**path).into(), recursive: recursive(*mode) }
            }
            Request::RemoveWatches(WatchesRequest { path, watcher_type }) => {
                let recursive = match watcher_type {
                    WatcherType::Persistent => false,
                    WatcherType::PersistentRecursive => true,
                    _ => return Err(format!("{request:?}")),
                };
                Self::RemoveWatch { path: (**path).into(), recursive }
            }
            Request::SetWatches(lists) | Request::SetWatches2(lists) => {
                Self::Restore { watches: watching::of_lists(lists), since: lists.relative_zxid }
            }
            _ => return Err(format!("{request:?}")),
        })
    }

    fn of_create(record: &CreateRequest<'_>, stat: bool) -> Result<Self, String> {
        let mode = CreateMode::from_wire(record.flags).ok_or_else(|| format!("{record:?}"))?;
        let data = record.data.unwrap_or_default().into();
        Ok(Self::Create { path: (*record.path).into(), data, mode, stat, closed: false })
    }

    fn of_set(record: &SetDataRequest<'_>) -> Self {
        let data = record.data.unwrap_or_default().into();
        Self::Set { path: (*record.path).into(), data, version: record.version }
    }

    fn of_delete(record: &DeleteRequest<'_>) -> Self {
        Self::Delete { path: (*record.path).into(), version: record.version }
    }

    fn of_part(op: &MultiOp<'_>) -> Result<Self, String> {
        Ok(match op {
            MultiOp::Create(record) => Self::of_create(record, false)?,
            MultiOp::Create2(record) => Self::of_create(record, true)?,
            MultiOp::SetData(record) => Self::of_set(record),
            MultiOp::Delete(record) => Self::of_delete(record),
            MultiOp::Check(record) => Self::Check { path: (*record.path).into(), version: record.version },
            other => return Err(format!("{other:?}")),
        })
    }

    fn part(&self) -> MultiOp<'_> {
        match self {
            Self::Create { path, data, mode, stat, closed } => {
                let create = create(path, data, *mode, acl(*closed));
                if *stat { MultiOp::Create2(create) } else { MultiOp::Create(create) }
            }
            Self::Set { path, data, version } => MultiOp::SetData(set(path, data, *version)),
            Self::Delete { path, version } => MultiOp::Delete(delete(path, *version)),
            Self::Check { path, version } => {
                MultiOp::Check(CheckRequest { path: (&**path).into(), version: *version })
            }
            other => unreachable!("{other:?} in a multi"),
        }
    }
}

/// Everything for everybody, and what counts for no client of a run.
static ACLS: LazyLock<[[AclEntry; 1]; 2]> = LazyLock::new(|| {
    [("world", "anyone"), ("ip", "10.0.0.1")]
        .map(|(scheme, id)| [AclEntry { perms: Perms::ALL, scheme: scheme.to_owned(), id: id.to_owned() }])
});

fn acl(closed: bool) -> &'static [AclEntry] {
    &ACLS[usize::from(closed)]
}

fn create<'a>(path: &'a str, data: &'a [u8], mode: CreateMode, acl: &'a [AclEntry]) -> CreateRequest<'a> {
    CreateRequest { path: path.into(), data: Some(data), acl: Some(acl.into()), flags: mode.to_wire() }
}

fn set<'a>(path: &'a str, data: &'a [u8], version: i32) -> SetDataRequest<'a> {
    SetDataRequest { path: path.into(), data: Some(data), version }
}

fn delete(path: &str, version: i32) -> DeleteRequest<'_> {
    DeleteRequest { path: path.into(), version }
}
