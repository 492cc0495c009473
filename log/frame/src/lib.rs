//! The unit of replication, shared by the decisions of `engine` and the files of `log`.
//!
//! A leader encodes a batch of transactions once, as a frame ([`Batch::seal`]). The same bytes are sent to
//! the learners and appended to every server's log. A [`Batch`] is a validated frame; a [`LogPosition`] is a
//! place between two frames.
#![forbid(unsafe_code)]

mod batch;
mod frame;
pub mod layout;
mod mutations;
mod position;

pub use batch::{Batch, BatchError, aligned};
pub use frame::{
    AlignedBuf, Checksum, EncodeError, FRAME_ALIGN, Frame, FrameError, HEADER_LEN, Meta, VERSION, begin,
    complete, encode, encoded_len, follows, parse, parse_trusted,
};
pub use position::LogPosition;
