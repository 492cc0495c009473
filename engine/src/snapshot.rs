//! A state as blocks of bytes, and back: what a snapshot file holds and a server far behind is sent.
//!
//! The blocks are rkyv archives: first [`block::Start`], then the access control lists, the sessions, the znodes in
//! the tree's own order. That order depends on the seed of the tree's hash, which the snapshot has too: so a state is
//! rebuilt by appending at the right end of the tree, and not by a million searches.
//!
//! ```text
//! Arc<State> --Encoder::next--> block, block, ... --Decoder::block--> StateBuilder --Decoder::finish--> State
//! ```
//!
//! A state never changes, so an encoder can take its time: it holds the state and remembers where it is. What is not
//! written (who owns which ephemeral, what is reapable, where quotas are) follows from the znodes.

mod block;
mod decode;
mod encode;

pub use decode::{DecodeError, Decoder};
pub use encode::{Contents, Encoder};

/// Version of the blocks' contents. Another one is not read.
pub const STATE_VERSION: u32 = 1;
