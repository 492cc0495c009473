//! Batches as frames of the log: the same bytes go to the medium and to the peers.

use ringkeeper_engine::node::Framing;
use ringkeeper_engine::replica::SealedBatch;
use ringkeeper_engine::zab::Batch;
use ringkeeper_log::frame::{self, AlignedBuf, Checksum, Meta};
use ringkeeper_wire::Zxid;

/// The format of the `log` crate.
#[derive(Debug, Default)]
pub struct LogFrames {
    /// What frames are made in: in fresh memory, a large one would spend more on the memory than on the frame.
    buffer: AlignedBuf,
}

/// What the buffer keeps for the next frames: enough for the usual ones.
const BUFFER_BYTES_KEPT: usize = 4 << 20;

impl Framing for LogFrames {
    fn frame(&mut self, batch: &SealedBatch<'_>, previous: u32) -> Batch {
        self.batch(batch.first, batch.last, batch.payload, previous)
    }

    fn payload<'a>(&self, batch: &'a Batch) -> Result<&'a [u8], String> {
        payload(batch)
    }
}

impl LogFrames {
    /// The batch of the transactions `first..=last`, which continues the frame with checksum `previous` (0: none).
    ///
    /// # Panics
    /// When the zxids are not a range of one epoch, or the payload has 4 GiB or more.
    pub fn batch(&mut self, first: Zxid, last: Zxid, payload: &[u8], previous: u32) -> Batch {
        let meta = Meta { epoch: first.epoch().0, first_zxid: first.0, last_zxid: last.0 };
        let checksum = frame::encode(meta, payload, Checksum(previous), &mut self.buffer)
            .expect("a sealed batch has the zxids of one epoch and far less than 4 GiB");
        let batch = Batch::new(first, last, checksum.0, self.buffer.as_slice().into())
            .expect("a sealed batch has the zxids of one epoch");
        if self.buffer.capacity() > BUFFER_BYTES_KEPT {
            self.buffer = AlignedBuf::new();
        }
        batch
    }
}

/// What [`LogFrames::batch`] was given, checked, since it may come from the network.
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
