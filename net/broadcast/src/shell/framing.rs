//! Batches as frames of the log: the same bytes go to the medium and to the peers.

use ringkeeper_engine::node::Framing;
use ringkeeper_engine::replica::SealedBatch;
use ringkeeper_engine::zab::Batch;
use ringkeeper_log::frame::{self, AlignedBuf, Checksum, Meta};

/// The format of the `log` crate.
pub(crate) struct LogFrames;

impl Framing for LogFrames {
    fn frame(&self, batch: &SealedBatch, previous: u32) -> Batch {
        let meta = Meta { epoch: batch.first.epoch().0, first_zxid: batch.first.0, last_zxid: batch.last.0 };
        let mut bytes = AlignedBuf::new();
        let checksum = frame::encode(meta, &batch.payload, Checksum(previous), &mut bytes)
            .expect("a sealed batch has the zxids of one epoch and far less than 4 GiB");
        Batch::new(batch.first, batch.last, checksum.0, bytes.as_slice().into())
            .expect("a sealed batch has the zxids of one epoch")
    }

    fn payload<'a>(&self, batch: &'a Batch) -> Result<&'a [u8], String> {
        let frame = frame::parse(batch.bytes()).map_err(|error| error.to_string())?;
        let meta = frame.meta();
        if (meta.first_zxid, meta.last_zxid, frame.checksum().0)
            != (batch.first().0, batch.last().0, batch.end().checksum)
        {
            return Err(format!("its frame holds {:#x} to {:#x}", meta.first_zxid, meta.last_zxid));
        }
        Ok(frame.payload())
    }
}
