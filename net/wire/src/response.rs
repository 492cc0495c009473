//! Reply bodies (docs/protocol.md, 3.1; field order from `zookeeper.jute`). A body follows the
//! [`crate::ReplyHeader`] only when its `err` is 0.

use std::borrow::Cow;

use crate::acl::ClientInfo;
use crate::jute::{self, DecodeError, Fault, Reader};
use crate::list::Vector;
use crate::multi::MultiResponse;
use crate::record::record;
use crate::{AclList, OpCode, Record, Stat, StringList};

record! {
    /// create.
    CreateResponse<'a> {
        /// The path created, completed by the counter if sequential.
        path: Cow<'a, str>,
    }
}

record! {
    /// create2, createContainer and createTTL.
    Create2Response<'a> {
        /// The path created, completed by the counter if sequential.
        path: Cow<'a, str>,
        /// Its Stat.
        stat: Stat,
    }
}

/// getData, and reconfig with the new configuration as data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GetDataResponse<'a> {
    /// The znode's data; null and empty are different.
    pub data: Option<&'a [u8]>,
    /// Its Stat.
    pub stat: Stat,
}

impl<'a> Record<'a> for GetDataResponse<'a> {
    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(Self { data: reader.read_buffer()?, stat: Stat::decode(reader)? })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        // The most frequent reply: one growth of the buffer at most.
        out.reserve(4 + self.data.map_or(0, <[u8]>::len) + Stat::LEN);
        jute::put_buffer(out, self.data);
        self.stat.encode(out);
    }
}

record! {
    /// getACL.
    GetAclResponse<'a> {
        /// The znode's access control list.
        acl: Option<AclList<'a>>,
        /// Its Stat.
        stat: Stat,
    }
}

record! {
    /// getChildren. To encode from something else than a slice, see [`jute::put_ustrings`].
    GetChildrenResponse<'a> {
        /// Names of the children, without the parent's path, in no particular order.
        children: StringList<'a>,
    }
}

record! {
    /// getChildren2.
    GetChildren2Response<'a> {
        /// Names of the children.
        children: StringList<'a>,
        /// The parent's Stat.
        stat: Stat,
    }
}

record! {
    /// sync.
    SyncResponse<'a> {
        /// The request's path.
        path: Option<Cow<'a, str>>,
    }
}

record! {
    /// sasl.
    SetSaslResponse<'a> {
        /// The mechanism's token.
        token: Option<&'a [u8]>,
    }
}

record! {
    /// addWatch, whose body repeats the header's error (ErrorResponse).
    AddWatchResponse {
        /// Always 0.
        err: i32,
    }
}

record! {
    /// getEphemerals.
    GetEphemeralsResponse<'a> {
        /// Paths of the session's ephemerals.
        ephemerals: StringList<'a>,
    }
}

record! {
    /// getAllChildrenNumber.
    GetAllChildrenNumberResponse {
        /// Number of descendants.
        total_number: i32,
    }
}

record! {
    /// whoAmI.
    WhoAmIResponse<'a> {
        /// The connection's identities.
        client_info: Vector<'a, ClientInfo<'a>>,
    }
}

macro_rules! responses {
    ($($(#[$meta:meta])* $variant:ident($record:ty) = $($op:ident)|+,)*) => {
        /// The body of a reply without error, as a client reads it.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Response<'a> {
            $($(#[$meta])* $variant($record),)*
            /// The reply is its header alone.
            Empty,
        }

        impl<'a> Response<'a> {
            /// Reads the body of the reply to a request with opcode `op`.
            ///
            /// # Errors
            /// The body is cut short or breaks a rule of the record, or no client may send `op`.
            pub fn decode(op: OpCode, body: &'a [u8]) -> Result<Self, DecodeError> {
                let reader = &mut Reader::new(body);
                match op {
                    $($(OpCode::$op)|+ => <$record as Record>::decode(reader).map(Self::$variant),)*
                    OpCode::Delete | OpCode::Ping | OpCode::CheckWatches | OpCode::RemoveWatches | OpCode::Auth
                    | OpCode::SetWatches | OpCode::SetWatches2 | OpCode::CloseSession => Ok(Self::Empty),
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
                    $(Self::$variant(record) => record.encode(out),)*
                    Self::Empty => {}
                }
            }
        }
    };
}

responses! {
    /// create
    Create(CreateResponse<'a>) = Create,
    /// create2, createContainer and createTTL
    Create2(Create2Response<'a>) = Create2 | CreateContainer | CreateTtl,
    /// exists, setData and setACL
    Stat(Stat) = Exists | SetData | SetAcl,
    /// getData and reconfig
    GetData(GetDataResponse<'a>) = GetData | Reconfig,
    /// getACL
    GetAcl(GetAclResponse<'a>) = GetAcl,
    /// getChildren
    GetChildren(GetChildrenResponse<'a>) = GetChildren,
    /// getChildren2
    GetChildren2(GetChildren2Response<'a>) = GetChildren2,
    /// sync
    Sync(SyncResponse<'a>) = Sync,
    /// multi and multiRead
    Multi(MultiResponse<'a>) = Multi | MultiRead,
    /// addWatch
    AddWatch(AddWatchResponse) = AddWatch,
    /// sasl
    Sasl(SetSaslResponse<'a>) = Sasl,
    /// getEphemerals
    GetEphemerals(GetEphemeralsResponse<'a>) = GetEphemerals,
    /// getAllChildrenNumber
    GetAllChildrenNumber(GetAllChildrenNumberResponse) = GetAllChildrenNumber,
    /// whoAmI
    WhoAmI(WhoAmIResponse<'a>) = WhoAmI,
}
