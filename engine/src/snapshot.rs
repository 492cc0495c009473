//! A state as blocks of bytes, and back: the contents of a snapshot, on disk or sent to a learner.
//!
//! The blocks are rkyv archives: first [`block::Start`], then the ACLs, the sessions, and the znodes in the
//! tree's own order. That order depends on the seed of the tree's hash, which the snapshot contains. So the
//! tree is rebuilt from left to right without a search for each znode, and blocks can be read on several
//! cores.
//!
//! ```text
//! Arc<State> --Encoder::next--> blocks --BlockReader::read--> Rows --Decoder::take, finish--> State
//! ```
//!
//! A state never changes, so an encoder may take its time: it holds what is still to be written, and no more
//! ([`Encoder`]). Tables that follow from the znodes (owners of ephemerals, reapable znodes, quotas) are not
//! written.

mod block;
mod decode;
mod encode;

pub use decode::{BlockReader, DecodeError, Decoder, Rows};
pub use encode::{Contents, Encoder};

/// Version of the blocks' contents; blocks of another version are refused.
pub const STATE_VERSION: u32 = 1;
