//! Request bodies, one record per opcode (docs/protocol.md, 3.1; field order from `zookeeper.jute`).

use std::borrow::Cow;

use crate::jute::{self, DecodeError, Fault, Reader};
use crate::multi::{MultiReadRequest, MultiRequest};
use crate::record::{record, validated_path};
use crate::{AclList, AddWatchMode, OpCode, Record, StringList, WatcherType};

record! {
    /// create, create2 and createContainer.
    CreateRequest<'a> {
        /// The znode to create; of a sequential one, without the counter.
        path: Cow<'a, str>,
        /// Its data; null and empty are different.
        data: Option<&'a [u8]>,
        /// Its access control list; null is representable, and answered with INVALIDACL.
        acl: Option<AclList<'a>>,
        /// See [`crate::CreateMode`]; raw, since an unknown one is answered with BADARGUMENTS.
        flags: i32,
    }
}

record! {
    /// createTTL.
    CreateTtlRequest<'a> {
        /// The znode to create.
        path: Cow<'a, str>,
        /// Its data.
        data: Option<&'a [u8]>,
        /// Its access control list.
        acl: Option<AclList<'a>>,
        /// See [`crate::CreateMode`].
        flags: i32,
        /// Time to live, in milliseconds.
        ttl_ms: i64,
    }
}

record! {
    /// delete.
    DeleteRequest<'a> {
        /// The znode.
        path: Cow<'a, str>,
        /// The version that it must have, or -1.
        version: i32,
    }
}

record! {
    /// exists, getData, getChildren and getChildren2.
    PathWatchRequest<'a> {
        /// The znode.
        path: Cow<'a, str>,
        /// Whether to leave a watch.
        watch: bool,
    }
}

record! {
    /// setData.
    SetDataRequest<'a> {
        /// The znode.
        path: Cow<'a, str> = validated_path,
        /// Its new data.
        data: Option<&'a [u8]>,
        /// The version that it must have, or -1.
        version: i32,
    }
}

record! {
    /// sync.
    SyncRequest<'a> {
        /// Any path, even null: it is sent back, and not looked at.
        path: Option<Cow<'a, str>>,
    }
}

record! {
    /// getACL and getAllChildrenNumber.
    PathRequest<'a> {
        /// The znode.
        path: Cow<'a, str>,
    }
}

record! {
    /// setACL.
    SetAclRequest<'a> {
        /// The znode.
        path: Cow<'a, str> = validated_path,
        /// Its new access control list.
        acl: Option<AclList<'a>>,
        /// The ACL version (`aversion`) that it must have, or -1.
        version: i32,
    }
}

record! {
    /// check; only inside a multi.
    CheckRequest<'a> {
        /// The znode.
        path: Cow<'a, str> = validated_path,
        /// The version that it must have, or -1.
        version: i32,
    }
}

record! {
    /// reconfig.
    ReconfigRequest<'a> {
        /// Servers to add or change, separated by commas.
        joining_servers: Option<Cow<'a, str>>,
        /// Ids of servers to remove, separated by commas.
        leaving_servers: Option<Cow<'a, str>>,
        /// The whole new configuration; null for an incremental change.
        new_members: Option<Cow<'a, str>>,
        /// The configuration version that must be current, or -1.
        cur_config_id: i64,
    }
}

record! {
    /// checkWatches and removeWatches.
    WatchesRequest<'a> {
        /// The znode.
        path: Cow<'a, str>,
        /// Which watches on it.
        watcher_type: WatcherType,
    }
}

record! {
    /// addWatch.
    AddWatchRequest<'a> {
        /// The znode; it need not exist.
        path: Cow<'a, str>,
        /// What kind of watch.
        mode: AddWatchMode,
    }
}

record! {
    /// auth (`zookeeper.jute`, AuthPacket).
    AuthRequest<'a> {
        /// Always 0; not looked at.
        auth_type: i32,
        /// The authentication scheme.
        scheme: Option<Cow<'a, str>>,
        /// The credentials, in the words of the scheme.
        auth: Option<&'a [u8]>,
    }
}

record! {
    /// sasl (`zookeeper.jute`, GetSASLRequest).
    SaslRequest<'a> {
        /// The mechanism's token.
        token: Option<&'a [u8]>,
    }
}

record! {
    /// getEphemerals.
    GetEphemeralsRequest<'a> {
        /// Prefix of the paths wanted; null means all.
        prefix_path: Option<Cow<'a, str>>,
    }
}

/// setWatches and setWatches2: the watches of a client that has changed servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetWatchesRequest<'a> {
    /// The newest zxid that the client has seen.
    pub relative_zxid: i64,
    /// Watches left by getData and by exists on a znode that existed.
    pub data_watches: StringList<'a>,
    /// Watches left by exists on a znode that did not.
    pub exist_watches: StringList<'a>,
    /// Watches left by getChildren.
    pub child_watches: StringList<'a>,
    /// Persistent watches; empty in setWatches, which has no such list.
    pub persistent_watches: StringList<'a>,
    /// Persistent recursive watches; likewise.
    pub persistent_recursive_watches: StringList<'a>,
}

impl<'a> SetWatchesRequest<'a> {
    fn decode_set_watches(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(Self {
            relative_zxid: reader.read_i64()?,
            data_watches: Record::decode(reader)?,
            exist_watches: Record::decode(reader)?,
            child_watches: Record::decode(reader)?,
            persistent_watches: StringList::EMPTY,
            persistent_recursive_watches: StringList::EMPTY,
        })
    }

    fn decode_set_watches2(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let first = Self::decode_set_watches(reader)?;
        Ok(Self {
            persistent_watches: Record::decode(reader)?,
            persistent_recursive_watches: Record::decode(reader)?,
            ..first
        })
    }

    fn encode_set_watches(&self, out: &mut Vec<u8>) {
        jute::put_i64(out, self.relative_zxid);
        self.data_watches.encode(out);
        self.exist_watches.encode(out);
        self.child_watches.encode(out);
    }

    fn encode_set_watches2(&self, out: &mut Vec<u8>) {
        self.encode_set_watches(out);
        self.persistent_watches.encode(out);
        self.persistent_recursive_watches.encode(out);
    }
}

macro_rules! requests {
    ($($(#[$meta:meta])* $op:ident $(($record:ty))?,)*) => {
        /// The body of a request, by opcode.
        ///
        /// Opcodes that no client may send by themselves (check, deleteContainer, createSession, error)
        /// have no variant; see [`OpCode::is_client_request`].
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Request<'a> {
            $($(#[$meta])* $op $(($record))?,)*
            /// setWatches; its persistent lists are empty.
            SetWatches(SetWatchesRequest<'a>),
            /// setWatches2
            SetWatches2(SetWatchesRequest<'a>),
        }

        impl<'a> Request<'a> {
            /// Reads the body of a request with opcode `op`. Trailing bytes are ignored, as ZooKeeper does.
            ///
            /// # Errors
            /// The body is cut short or breaks a rule of the record (ZooKeeper answers both with
            /// MARSHALLINGERROR), or no client may send `op`.
            pub fn decode(op: OpCode, body: &'a [u8]) -> Result<Self, DecodeError> {
                let reader = &mut Reader::new(body);
                match op {
                    $(OpCode::$op => Ok(Self::$op $((<$record as Record>::decode(reader)?))?),)*
                    OpCode::SetWatches => SetWatchesRequest::decode_set_watches(reader).map(Self::SetWatches),
                    OpCode::SetWatches2 => SetWatchesRequest::decode_set_watches2(reader).map(Self::SetWatches2),
                    OpCode::Check | OpCode::DeleteContainer | OpCode::CreateSession | OpCode::Error => {
                        Err(reader.error(Fault::UnexpectedOp(op.to_wire())))
                    }
                }
            }

            /// Appends the body.
            ///
            /// # Panics
            /// A string, buffer or list is longer than jute can express, `i32::MAX`.
            pub fn encode(&self, out: &mut Vec<u8>) {
                match self {
                    $(requests!(@pattern $op record $($record)?) => requests!(@encode record out $($record)?),)*
                    Self::SetWatches(record) => record.encode_set_watches(out),
                    Self::SetWatches2(record) => record.encode_set_watches2(out),
                }
            }

            /// The opcode to write into the request's header.
            #[must_use]
            pub const fn op(&self) -> OpCode {
                match self {
                    $(Self::$op { .. } => OpCode::$op,)*
                    Self::SetWatches(_) => OpCode::SetWatches,
                    Self::SetWatches2(_) => OpCode::SetWatches2,
                }
            }
        }
    };
    (@pattern $op:ident $var:ident $record:ty) => { Self::$op($var) };
    (@pattern $op:ident $var:ident) => { Self::$op };
    (@encode $var:ident $out:ident $record:ty) => { $var.encode($out) };
    (@encode $var:ident $out:ident) => { {} };
}

requests! {
    /// create
    Create(CreateRequest<'a>),
    /// create2
    Create2(CreateRequest<'a>),
    /// createContainer
    CreateContainer(CreateRequest<'a>),
    /// createTTL
    CreateTtl(CreateTtlRequest<'a>),
    /// delete
    Delete(DeleteRequest<'a>),
    /// exists
    Exists(PathWatchRequest<'a>),
    /// getData
    GetData(PathWatchRequest<'a>),
    /// setData
    SetData(SetDataRequest<'a>),
    /// getACL
    GetAcl(PathRequest<'a>),
    /// setACL
    SetAcl(SetAclRequest<'a>),
    /// getChildren
    GetChildren(PathWatchRequest<'a>),
    /// getChildren2
    GetChildren2(PathWatchRequest<'a>),
    /// sync
    Sync(SyncRequest<'a>),
    /// ping
    Ping,
    /// multi
    Multi(MultiRequest<'a>),
    /// multiRead
    MultiRead(MultiReadRequest<'a>),
    /// reconfig
    Reconfig(ReconfigRequest<'a>),
    /// checkWatches
    CheckWatches(WatchesRequest<'a>),
    /// removeWatches
    RemoveWatches(WatchesRequest<'a>),
    /// addWatch
    AddWatch(AddWatchRequest<'a>),
    /// auth
    Auth(AuthRequest<'a>),
    /// sasl
    Sasl(SaslRequest<'a>),
    /// getEphemerals
    GetEphemerals(GetEphemeralsRequest<'a>),
    /// getAllChildrenNumber
    GetAllChildrenNumber(PathRequest<'a>),
    /// whoAmI
    WhoAmI,
    /// closeSession
    CloseSession,
}
