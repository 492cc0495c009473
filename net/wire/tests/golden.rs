//! Conversations of Apache ZooKeeper with its clients, byte for byte; see `golden/README.md`.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use ringkeeper_wire::frame::{begin_frame, end_frame, next_frame};
use ringkeeper_wire::jute::Reader;
use ringkeeper_wire::{
    ConnectRequest, ConnectResponse, EventType, OpCode, Record, ReplyHeader, Request, RequestHeader,
    Response, WatcherEvent, encode_notification, xid,
};

/// Frames that we read as their receiver does but would write differently: file, direction, reason.
const OTHER_ENCODINGS: [(&str, &str, &str); 3] = [
    ("raw_get_data_trailing", ">", "bytes after the record are ignored"),
    ("raw_set_watches_negative_count", ">", "a count below -1 is an empty vector"),
    ("raw_multi_read_write_inside", "<", "ZooKeeper appends an empty result list to the error"),
];

/// One frame of a conversation.
#[derive(Clone)]
struct Frame {
    file: String,
    from_client: bool,
    kind: String,
    meaning: Vec<String>,
    bytes: Vec<u8>,
}

impl Frame {
    fn parse(file: &str, block: &str) -> Self {
        let lines: Vec<&str> = block.lines().collect();
        let [first, meaning @ .., hex] = lines.as_slice() else { panic!("{file}: short block") };
        let (direction, kind) = first.split_once(' ').expect("direction and kind");
        let bytes =
            (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex"));
        Self {
            file: file.to_owned(),
            from_client: direction == ">",
            kind: kind.to_owned(),
            meaning: meaning.iter().map(ToString::to_string).collect(),
            bytes: bytes.collect(),
        }
    }

    fn payload(&self) -> &[u8] {
        let (payload, consumed) = next_frame(&self.bytes, usize::MAX).expect("frame").expect("whole frame");
        assert_eq!(consumed, self.bytes.len(), "{}", self.file);
        payload
    }

    fn has_other_encoding(&self) -> bool {
        let direction = if self.from_client { ">" } else { "<" };
        OTHER_ENCODINGS.iter().any(|(file, from, _)| *file == self.file && *from == direction)
    }
}

fn frames() -> Vec<Frame> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/vectors");
    let mut paths: Vec<_> =
        fs::read_dir(folder).expect("vectors").map(|entry| entry.expect("entry").path()).collect();
    paths.sort();
    let mut frames = Vec::new();
    for path in paths {
        let name = path.file_stem().expect("stem").to_str().expect("UTF-8").to_owned();
        let text = fs::read_to_string(&path).expect("vector");
        frames.extend(text.split("\n\n").skip(1).map(|block| Frame::parse(&name, block)));
    }
    frames
}

fn op_of(kind: &str) -> Option<OpCode> {
    OpCode::ALL.iter().copied().find(|op| snake_case(&format!("{op:?}")) == kind)
}

fn snake_case(name: &str) -> String {
    let mut out = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.extend(letter.to_lowercase());
    }
    out
}

/// Decodes a payload and encodes it again: what it means, line by line, and the bytes. `None` if refused.
fn round_trip(frame: &Frame, payload: &[u8]) -> Option<(Vec<String>, Vec<u8>)> {
    let mut out = Vec::new();
    let start = begin_frame(&mut out);
    let reader = &mut Reader::new(payload);
    let meaning = match (frame.kind.as_str(), frame.from_client) {
        ("connect", true) => vec![pass(ConnectRequest::decode(reader).ok()?, &mut out)],
        ("connect", false) => vec![pass(ConnectResponse::decode(reader).ok()?, &mut out)],
        ("notification", _) => {
            let header = pass(ReplyHeader::decode(reader).ok()?, &mut out);
            vec![header, pass(WatcherEvent::decode(reader).ok()?, &mut out)]
        }
        (_, true) => {
            let header = RequestHeader::decode(reader).ok()?;
            let request = Request::decode(OpCode::from_wire(header.op)?, reader.rest()).ok()?;
            assert_eq!(request.op().to_wire(), header.op);
            let header = pass(header, &mut out);
            request.encode(&mut out);
            vec![header, format!("{request:?}")]
        }
        (kind, false) => {
            let header = ReplyHeader::decode(reader).ok()?;
            let mut meaning = vec![pass(header, &mut out)];
            if header.err == 0 {
                let response = Response::decode(op_of(kind)?, reader.rest()).ok()?;
                response.encode(&mut out);
                meaning.push(format!("{response:?}"));
            }
            meaning
        }
    };
    end_frame(&mut out, start).expect("frame");
    Some((meaning, out))
}

fn pass<'a>(record: impl Record<'a> + std::fmt::Debug, out: &mut Vec<u8>) -> String {
    record.encode(out);
    format!("{record:?}")
}

#[test]
fn every_frame_means_what_zookeeper_meant_and_encodes_to_the_same_bytes() {
    for frame in frames() {
        let refused = frame.meaning.last().is_some_and(|line| line == "refused");
        match round_trip(&frame, frame.payload()) {
            None => assert!(refused, "{}: could not read {:?}", frame.file, frame.meaning),
            Some(_) if refused => panic!("{}: read what ZooKeeper refuses", frame.file),
            Some((meaning, bytes)) => {
                assert_eq!(meaning, frame.meaning, "{}", frame.file);
                assert_eq!(bytes == frame.bytes, !frame.has_other_encoding(), "{}: {meaning:?}", frame.file);
            }
        }
    }
}

#[test]
fn vectors_cover_every_request_a_client_may_send() {
    let seen: HashSet<_> =
        frames().iter().filter(|frame| frame.from_client).map(|frame| frame.kind.clone()).collect();
    let missing: Vec<_> = OpCode::ALL
        .iter()
        .filter(|op| op.is_client_request() && !seen.contains(&snake_case(&format!("{op:?}"))))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn a_frame_cut_short_is_incomplete_and_its_payload_is_an_error_or_a_shorter_record() {
    for frame in frames() {
        for len in 0..frame.bytes.len() {
            assert_eq!(next_frame(&frame.bytes[..len], usize::MAX), Ok(None), "{}", frame.file);
        }
        let payload = frame.payload();
        let whole = round_trip(&frame, payload);
        for len in 0..payload.len() {
            let Some((meaning, bytes)) = round_trip(&frame, &payload[..len]) else { continue };
            // What is read from a prefix is a record in its own right.
            let again = Frame { bytes, ..frame.clone() };
            assert_eq!(
                round_trip(&again, again.payload()).map(|(meaning, _)| meaning),
                Some(meaning.clone())
            );
            // Only the handshake's last byte and bytes after the record may be missing.
            let allowed = frame.kind == "connect" || frame.has_other_encoding();
            assert!(allowed, "{}: {len} bytes read as {meaning:?}, not {whole:?}", frame.file);
        }
    }
}

#[test]
fn notifications_are_encoded_as_zookeeper_does() {
    let mut count = 0;
    for frame in frames().iter().filter(|frame| frame.kind == "notification") {
        let reader = &mut Reader::new(frame.payload());
        let header = ReplyHeader::decode(reader).expect("header");
        let event = WatcherEvent::decode(reader).expect("event");
        assert_eq!(header.xid, xid::NOTIFICATION);
        let mut out = Vec::new();
        let event_type = EventType::from_wire(event.event_type).expect("event type");
        encode_notification(&mut out, header.zxid, event_type, &event.path);
        assert_eq!(out, frame.bytes);
        count += 1;
    }
    assert!(count > 0);
}
