//! ZooKeeper's client protocol, byte for byte: jute records, framing, opcodes and error codes.
//!
//! Pure: no I/O, no clock, no dependency on the rest of ringkeeper. Decoders borrow payloads from the
//! caller's buffer, encoders append to a buffer that the caller reuses. The authority is Apache ZooKeeper
//! 3.9 (`zookeeper.jute`, `ZooDefs`, `KeeperException`); every record has golden vectors taken from it.
#![forbid(unsafe_code)]

mod code;
mod ids;
mod stat;

pub use code::{CreateMode, ErrorCode, EventType, OpCode, Perms, xid};
pub use ids::{Epoch, ServerId, SessionId, Xid, Zxid};
pub use stat::Stat;
