//! ZooKeeper's client protocol, byte for byte: jute records, framing, opcodes and error codes.
//!
//! Pure: no I/O, no clock, no dependency on the rest of ringkeeper. Decoders borrow payloads from the
//! caller's buffer, encoders append to a buffer that the caller reuses. The authority is Apache ZooKeeper
//! 3.9 (`zookeeper.jute`, `ZooDefs`, `KeeperException`); every record has golden vectors taken from it.
#![forbid(unsafe_code)]

mod acl;
mod code;
mod connect;
pub mod digest_md5;
pub mod frame;
mod header;
mod ids;
pub mod jute;
mod list;
mod multi;
mod record;
mod request;
mod response;
pub mod scram;
mod stat;
mod text;

pub use acl::{Acl, AclEntry, AclList, ClientInfo, Identity};
pub use code::{AddWatchMode, CreateMode, ErrorCode, EventType, OpCode, Perms, WatcherType, xid};
pub use connect::{ConnectRequest, ConnectResponse, EXTENDED_PROTOCOL, PASSWORD_LEN};
pub use header::{
    CATCH_UP_ZXID, ReplyHeader, RequestHeader, SYNC_CONNECTED, WatcherEvent, encode_notification,
};
pub use ids::{Epoch, ServerId, SessionId, Xid, Zxid};
pub use jute::{DecodeError, Fault};
pub use list::{Counted, Element, List, ListIter, StringList, Vector};
pub use multi::{
    Closed, MultiEntry, MultiHeader, MultiOp, MultiReadOp, MultiReadRequest, MultiRequest, MultiResponse,
    MultiResult, end_multi,
};
pub use record::Record;
pub use request::{
    AddWatchRequest, AuthRequest, CheckRequest, CreateRequest, CreateTtlRequest, DeleteRequest,
    GetEphemeralsRequest, PathRequest, PathWatchRequest, ReconfigRequest, Request, SaslRequest,
    SetAclRequest, SetDataRequest, SetWatchesRequest, SyncRequest, WatchesRequest,
};
pub use response::{
    AddWatchResponse, Create2Response, CreateResponse, GetAclResponse, GetAllChildrenNumberResponse,
    GetChildren2Response, GetChildrenResponse, GetDataResponse, GetEphemeralsResponse, Response,
    SetSaslResponse, SyncResponse, WhoAmIResponse,
};
pub use stat::Stat;
pub use text::decode_utf8;
