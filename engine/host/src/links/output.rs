//! The output queue of a link: frames in one buffer, and long payloads as they are.

use std::collections::VecDeque;

use bytes::Bytes;
use ringkeeper_engine::zab::Message;
use ringkeeper_log::mutation::planted;

use super::frames;
use super::seal::{SEAL_BYTES, Seal};

/// A payload of at least this many bytes is written by a call of its own, which need not copy it.
const SHARED_BYTES_MIN: usize = 64 * 1024;

/// Capacity of the frame buffer that is kept for later frames.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// Messages in the order of writing.
#[derive(Default)]
pub(super) struct Output {
    pieces: VecDeque<Piece>,
    /// Bytes of all pieces.
    bytes: usize,
    /// An empty buffer, kept for later frames.
    spare: Vec<u8>,
    /// What frames are sealed with, if they are.
    seal: Option<Seal>,
}

/// Bytes to be written with one call.
#[derive(Debug)]
pub(super) enum Piece {
    /// Frames. The payload of the last one may be the next piece.
    Frames(Vec<u8>),
    /// The payload of a frame.
    Payload(Bytes),
}

impl Output {
    /// Bytes that wait.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Seals all frames from now on.
    pub(super) fn seal_with(&mut self, seal: Option<Seal>) {
        self.seal = seal;
    }

    /// Adds a message at the end.
    pub(super) fn push(&mut self, message: &Message) {
        if !matches!(self.pieces.back(), Some(Piece::Frames(_))) {
            self.pieces.push_back(Piece::Frames(std::mem::take(&mut self.spare)));
        }
        let Some(Piece::Frames(out)) = self.pieces.back_mut() else { unreachable!("it was just pushed") };
        let before = out.len();
        let mut shared = None;
        // Each link encrypts a copy of its own.
        let shared_min = if self.seal.is_some() { usize::MAX } else { SHARED_BYTES_MIN };
        let seal_len = if self.seal.is_some() { SEAL_BYTES } else { 0 };
        frames::append(out, |out| match message.encode_header(out) {
            None => seal_len,
            Some(payload) if payload.len() < shared_min => {
                out.extend_from_slice(payload);
                seal_len
            }
            Some(payload) => shared.insert(payload.clone()).len(),
        });
        if let Some(seal) = &mut self.seal {
            let seal = seal.close(&mut out[before + frames::LENGTH_BYTES..]);
            out.extend_from_slice(&seal);
        }
        if planted!(ReorderMessages) && shared.is_none() {
            out.rotate_left(before);
        }
        self.bytes += out.len() - before;
        if let Some(payload) = shared {
            self.bytes += payload.len();
            self.pieces.push_back(Piece::Payload(payload));
        }
    }

    /// Adds a frame without a message: a sign of life.
    pub(super) fn push_sign(&mut self) {
        let mut out = std::mem::take(&mut self.spare);
        let seal = self.seal.as_mut().map(|seal| seal.close(&mut []));
        frames::append(&mut out, |out| {
            out.extend(seal.into_iter().flatten());
            0
        });
        self.bytes += out.len();
        self.pieces.push_back(Piece::Frames(out));
    }

    /// Takes the next piece to write; [`Self::written`] must be called when it is written.
    pub(super) fn pop(&mut self) -> Option<Piece> {
        self.pieces.pop_front()
    }

    /// Whether more waits behind the pieces that were taken.
    pub(super) fn has_more(&self) -> bool {
        !self.pieces.is_empty()
    }

    /// A piece is written.
    pub(super) fn written(&mut self, piece: Piece) {
        self.bytes -= piece.bytes().len();
        if let Piece::Frames(mut buffer) = piece {
            buffer.clear();
            buffer.shrink_to(KEPT_BYTES_MAX);
            self.spare = buffer;
        }
    }
}

impl Piece {
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Frames(bytes) => bytes,
            Self::Payload(bytes) => bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use ringkeeper_wire::Epoch;

    use super::*;

    #[test]
    fn messages_come_out_whole_and_in_order_whether_they_are_copied_or_shared() {
        for sealed in [false, true] {
            messages_come_out(sealed);
        }
    }

    fn messages_come_out(sealed: bool) {
        let seal = || sealed.then(|| Seal::new(&[7; 32]));
        let payloads =
            [0, 5, SHARED_BYTES_MIN - 1, SHARED_BYTES_MIN, 3, 2 * SHARED_BYTES_MIN, SHARED_BYTES_MIN];
        let messages: Vec<Message> = (1_u8..)
            .zip(payloads)
            .flat_map(|(n, len)| [Message::Forward(vec![n; len].into()), Message::NewEpoch(Epoch(n.into()))])
            .collect();
        let mut output = Output::default();
        output.seal_with(seal());
        let mut seal = seal();
        let mut reader = frames::FrameReader::new();
        let mut received = Vec::new();
        // All at once, then one at a time: the spare buffer is that of the messages before.
        for group in [&messages[..], &messages[..5], &messages[5..6], &messages[6..]] {
            group.iter().for_each(|message| output.push(message));
            let waiting = output.bytes();
            let mut written = 0;
            while let Some(piece) = output.pop() {
                written += piece.bytes().len();
                let mut rest = piece.bytes();
                while !rest.is_empty() {
                    let room = reader.room();
                    let (now, later) = rest.split_at(rest.len().min(room.len()));
                    room[..now.len()].copy_from_slice(now);
                    reader.received(now.len());
                    rest = later;
                    while let Some(frame) = reader.next().expect("frames") {
                        let frame = match &mut seal {
                            None => frame,
                            Some(seal) => seal.open(frame).expect("its seal"),
                        };
                        received.push(Message::decode(frame).expect("a message"));
                    }
                }
                output.written(piece);
            }
            assert_eq!((waiting, output.bytes()), (written, 0));
        }
        assert!(received == [&messages[..], &messages[..]].concat());
    }

    #[test]
    fn a_long_payload_is_not_copied() {
        let payload: Bytes = vec![7; SHARED_BYTES_MIN].into();
        let mut output = Output::default();
        output.push(&Message::Forward(payload.clone()));
        output.pop().expect("what stands before the payload");
        let piece = output.pop().expect("the payload");
        assert!(std::ptr::eq(piece.bytes(), &*payload));
    }
}
