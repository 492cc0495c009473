//! What clients ask, as the model understands it and as bytes.

use std::sync::Arc;

use ringkeeper_wire::frame::{begin_frame, end_frame};
use ringkeeper_wire::{
    AclList, AddWatchMode, AddWatchRequest, CheckRequest, CreateMode, CreateRequest, DeleteRequest, MultiOp,
    PathWatchRequest, Record, Request, RequestHeader, SetDataRequest, SetWatchesRequest, SyncRequest, Xid,
};

use super::watching::Watches;

/// A request.
#[derive(Clone, Debug)]
pub(crate) enum Ask {
    Create {
        path: Arc<str>,
        data: Arc<[u8]>,
        mode: CreateMode,
        stat: bool,
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
    Ping,
    AddWatch {
        path: Arc<str>,
        recursive: bool,
    },
    /// The watches that the client had, and the newest zxid that it had seen.
    Restore {
        watches: Watches,
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

    pub(crate) const fn is_read(&self) -> bool {
        matches!(self, Self::Data { .. } | Self::Exists { .. } | Self::Children { .. })
    }

    /// The frame that a client sends.
    pub(crate) fn encode(&self, xid: Xid, out: &mut Vec<u8>) {
        let open = [ringkeeper_wire::AclEntry {
            perms: ringkeeper_wire::Perms::ALL,
            scheme: "world".into(),
            id: "anyone".into(),
        }];
        let acl = Some(AclList::from(&open[..]));
        let mut write = |request: &Request<'_>| {
            let start = begin_frame(out);
            RequestHeader { xid, op: request.op().to_wire() }.encode(out);
            request.encode(out);
            end_frame(out, start).unwrap_or_else(|error| unreachable!("a short request: {error}"));
        };
        let at = |path: &Arc<str>, watch: bool| PathWatchRequest { path: path.to_string().into(), watch };
        match self {
            Self::Create { path, data, mode, stat } => {
                let create = create(path, data, *mode, acl);
                write(&if *stat { Request::Create2(create) } else { Request::Create(create) });
            }
            Self::Set { path, data, version } => write(&Request::SetData(set(path, data, *version))),
            Self::Delete { path, version } => write(&Request::Delete(delete(path, *version))),
            Self::Check { .. } => unreachable!("check comes in multis only"),
            Self::Multi(parts) => {
                let ops: Vec<MultiOp<'_>> = parts.iter().map(|part| part.part(acl)).collect();
                write(&Request::Multi((&*ops).into()));
            }
            Self::Close => write(&Request::CloseSession),
            Self::Data { path, watch } => write(&Request::GetData(at(path, *watch))),
            Self::Exists { path, watch } => write(&Request::Exists(at(path, *watch))),
            Self::Children { path, watch, stat: true } => write(&Request::GetChildren2(at(path, *watch))),
            Self::Children { path, watch, stat: false } => write(&Request::GetChildren(at(path, *watch))),
            Self::Sync => write(&Request::Sync(SyncRequest { path: Some("/".into()) })),
            Self::Ping => write(&Request::Ping),
            Self::AddWatch { path, recursive } => {
                let mode =
                    if *recursive { AddWatchMode::PersistentRecursive } else { AddWatchMode::Persistent };
                write(&Request::AddWatch(AddWatchRequest { path: path.to_string().into(), mode }));
            }
            Self::Restore { watches, since } => {
                let lists = watches.lists();
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

    fn part<'a>(&'a self, acl: Option<AclList<'a>>) -> MultiOp<'a> {
        match self {
            Self::Create { path, data, mode, stat } => {
                let create = create(path, data, *mode, acl);
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

fn create<'a>(
    path: &'a str,
    data: &'a [u8],
    mode: CreateMode,
    acl: Option<AclList<'a>>,
) -> CreateRequest<'a> {
    CreateRequest { path: path.into(), data: Some(data), acl, flags: mode.to_wire() }
}

fn set<'a>(path: &'a str, data: &'a [u8], version: i32) -> SetDataRequest<'a> {
    SetDataRequest { path: path.into(), data: Some(data), version }
}

fn delete(path: &str, version: i32) -> DeleteRequest<'_> {
    DeleteRequest { path: path.into(), version }
}
