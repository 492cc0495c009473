//! Batches as frames of the log: the same bytes go to the medium and to the peers.

use ringkeeper_engine::node::Framing;
use ringkeeper_engine::replica::SealedBatch;
use ringkeeper_engine::zab::Batch;
use ringkeeper_log::frame::{self, AlignedBuf, Checksum, Meta};
use ringkeeper_wire::Zxid;

/// The format of the `log` crate.
#[derive(Clone, Copy, Debug)]
pub struct LogFrames;

impl Framing for LogFrames {
    fn frame(&self, batch: &SealedBatch, previous: u32) -> Batch {
        frame(batch.first, batch.last, &batch.payload, previous)
    }

    fn payload<'a>(&self, batch: &'a Batch) -> Result<&'a [u8], String> {
        payload(batch)
    }
}

/// The batch of the transactions `first..=last`, which continues the frame with checksum `previous` (0: none).
///
/// # Panics
/// When the zxids are not a range of one epoch, or the payload has 4 GiB or more.
#[must_use]
pub fn frame(first: Zxid, last: Zxid, payload: &[u8], previous: u32) -> Batch {
    let meta = Meta { epoch: first.epoch().0, first_zxid: first.0, last_zxid: last.0 };
    let mut bytes = AlignedBuf::new();
    let checksum = frame::encode(meta, payload, Checksum(previous), &mut bytes)
        .expect("a sealed batch has the zxids of one epoch and far less than 4 GiB");
    Batch::new(first, last, checksum.0, bytes.as_slice().into())
        .expect("a sealed batch has the zxids of one epoch")
}

/// What [`frame`] was given, checked, since it may come from the network.
///
/// # Errors
/// The bytes are no frame, or not this batch's.
pub fn payload(batch: &Batch) -> Result<&[u8], String> {
    let frame = frame::parse(batch.bytes()).map_err(|error| error.to_string())?;
    let meta = frame.meta();
    if (meta.first_zxid, meta.last_zxid, frame.checksum().0)
        != (batch.first().0, batch.last().0, batch.end().checksum)
    {
        return Err(format!("its frame holds {:#x} to {:#x}", meta.first_zxid, meta.last_zxid));
    }
    Ok(frame.payload())
}
