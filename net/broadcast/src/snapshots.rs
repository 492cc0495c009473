//! The machine's state as a snapshot.

use ringkeeper_host::snapshots::Image;
use ringkeeper_log::frame::AlignedBuf;
use ringkeeper_log::snapshot::Contents;

/// Bytes of one block of a snapshot's file.
const BLOCK_BYTES: usize = 256 << 10;

/// Version of what the blocks hold: this library's, apart from the server's own snapshots.
pub(crate) const STATE_VERSION: u32 = 0x4250_0001;

/// A machine's state, divided into the blocks of a snapshot.
pub(crate) struct MachineImage {
    state: Vec<u8>,
    written: usize,
}

impl MachineImage {
    pub(crate) const fn new(state: Vec<u8>) -> Self {
        Self { state, written: 0 }
    }
}

impl Image for MachineImage {
    fn contents(&self) -> Contents {
        Contents { items: self.state.len() as u64, digest: 0 }
    }

    fn next(&mut self, out: &mut AlignedBuf) -> bool {
        let rest = &self.state[self.written..];
        let block = &rest[..rest.len().min(BLOCK_BYTES)];
        out.clear();
        out.extend_from_slice(block);
        self.written += block.len();
        !block.is_empty()
    }
}
