//! What must hold for every sequence of bytes, tried on random ones and on damaged golden vectors. The
//! fuzz targets in `fuzz/` run the same checks for longer.

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use proptest::collection::vec;
use proptest::prelude::*;
use ringkeeper_wire::frame::FRAME_HEADER_LEN;
use ringkeeper_wire::{OpCode, ReplyHeader, RequestHeader};

#[path = "../fuzz/checks.rs"]
mod checks;

/// Every frame of the golden vectors.
static GOLDEN: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/vectors");
    let files = fs::read_dir(folder).expect("vectors").map(|entry| entry.expect("entry").path());
    let text: String = files.map(|path| fs::read_to_string(path).expect("vector") + "\n").collect();
    text.split("\n\n").filter_map(|block| block.lines().last()).filter_map(from_hex).collect()
});

fn from_hex(text: &str) -> Option<Vec<u8>> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok()).collect()
}

/// A golden frame with up to four bytes changed.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let changes = vec((any::<prop::sample::Index>(), any::<u8>()), 0..5);
    (0..GOLDEN.len(), changes).prop_map(|(which, changes)| {
        let mut frame = GOLDEN[which].clone();
        for (at, byte) in changes {
            let at = at.index(frame.len());
            frame[at] = byte;
        }
        frame
    })
}

/// `body` behind the byte that chooses `op`.
fn with_op(op: usize, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![u8::try_from(op).expect("fewer than 256 opcodes")];
    bytes.extend_from_slice(body);
    bytes
}

proptest! {
    #[test]
    fn random_bytes_are_refused_or_survive_a_round_trip(bytes in vec(any::<u8>(), 0..256)) {
        checks::frames(&bytes);
        checks::connect(&bytes);
        checks::request(&bytes);
        checks::response(&bytes);
    }

    #[test]
    fn damaged_conversations_are_refused_or_survive_a_round_trip(frame in damaged()) {
        checks::frames(&frame);
        let payload = &frame[FRAME_HEADER_LEN..];
        checks::connect(payload);
        // Under every opcode: the right one is among them, the wrong ones are damage of another kind.
        for op in 0..OpCode::ALL.len() {
            if let Some(body) = payload.get(RequestHeader::LEN..) {
                checks::request(&with_op(op, body));
            }
            if let Some(body) = payload.get(ReplyHeader::LEN..) {
                checks::response(&with_op(op, body));
            }
        }
    }
}
