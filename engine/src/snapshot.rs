//! A state as blocks of bytes, and back: what a snapshot file holds and a server far behind is sent.
//!
//! The blocks are rkyv archives: first [`block::Start`], then the access control lists, the sessions, the
//! znodes in the tree's own order. That order depends on the seed of the tree's hash, which the snapshot has
//! too: so a state is rebuilt from left to right, and not by a million searches; the blocks are read on as
//! many cores as there are.
//!
//! ```text
//! Arc<State> --Encoder::next--> block, block, ... --BlockReader::read--> Rows --Decoder::take, finish--> State
//! ```
//!
//! A state never changes, so an encoder can take its time: it holds the state and remembers where it is. What
//! is not written (who owns which ephemeral, what is reapable, where quotas are) follows from the znodes.

mod block;
mod decode;
mod encode;

pub use decode::{BlockReader, DecodeError, Decoder, Rows};
pub use encode::{Contents, Encoder};

/// Version of the blocks' contents. Another one is not read.
pub const STATE_VERSION: u32 = 1;
