//! What must hold for every sequence of bytes. Shared by the fuzz targets and by `tests/properties.rs`.

use ringkeeper_wire::frame::{FRAME_HEADER_LEN, begin_frame, end_frame, next_frame};
use ringkeeper_wire::{
    ConnectRequest, ConnectResponse, OpCode, Record, ReplyHeader, Request, RequestHeader, Response,
    WatcherEvent,
};

/// Cutting a stream into frames makes progress, loses nothing, and each frame is framed again the same.
pub(crate) fn frames(mut stream: &[u8]) {
    const LEN_MAX: usize = 1 << 16;
    while let Ok(Some((payload, consumed))) = next_frame(stream, LEN_MAX) {
        assert_eq!(consumed, FRAME_HEADER_LEN + payload.len());
        let mut out = Vec::new();
        let start = begin_frame(&mut out);
        out.extend_from_slice(payload);
        end_frame(&mut out, start).expect("the frame was within the limit");
        assert_eq!(out, stream[..consumed]);
        stream = &stream[consumed..];
    }
}

/// What was read is read again from its own encoding. (The bytes may differ: malformed UTF-8 is replaced.)
/// A macro, since the two readings borrow for different times.
macro_rules! check_record {
    ($record:ident, $bytes:expr) => {
        if let Ok(first) = $record::from_bytes($bytes) {
            let mut encoded = Vec::new();
            first.encode(&mut encoded);
            assert_eq!($record::from_bytes(&encoded).as_ref(), Ok(&first));
        }
    };
}

/// The handshake's records, and the headers.
pub(crate) fn connect(bytes: &[u8]) {
    check_record!(ConnectRequest, bytes);
    check_record!(ConnectResponse, bytes);
    check_record!(RequestHeader, bytes);
    check_record!(ReplyHeader, bytes);
    check_record!(WatcherEvent, bytes);
}

/// A request body behind a byte that chooses its opcode.
pub(crate) fn request(bytes: &[u8]) {
    let Some((op, body)) = choose_op(bytes) else { return };
    let Ok(first) = Request::decode(op, body) else { return };
    let mut encoded = Vec::new();
    first.encode(&mut encoded);
    assert_eq!(Request::decode(op, &encoded).as_ref(), Ok(&first));
}

/// A reply body behind a byte that chooses its opcode.
pub(crate) fn response(bytes: &[u8]) {
    let Some((op, body)) = choose_op(bytes) else { return };
    let Ok(first) = Response::decode(op, body) else { return };
    let mut encoded = Vec::new();
    first.encode(&mut encoded);
    assert_eq!(Response::decode(op, &encoded).as_ref(), Ok(&first));
}

fn choose_op(bytes: &[u8]) -> Option<(OpCode, &[u8])> {
    let (choice, body) = bytes.split_first()?;
    Some((OpCode::ALL[usize::from(*choice) % OpCode::ALL.len()], body))
}
