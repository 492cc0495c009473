//! The tap: reads along what the library sends and receives.
//!
//! It turns the library's requests into those of the judge and the model, and has a plain client, which sends
//! nothing, check the replies and events.

use ringkeeper_wire::frame::next_frame;
use ringkeeper_wire::{ConnectRequest, OpCode, Record, RequestHeader};

use super::super::ask::Ask;
use super::super::client::{Client, Heard, Phase};
use super::super::judge::Judge;
use super::super::rules::Who;
use super::super::violation::{Oracle, Violation};

const FRAME_LEN_MAX: usize = 1 << 20;

/// The plain client that doubles one library client.
#[derive(Debug)]
pub(super) struct Tap(Client);

impl Tap {
    pub(super) fn new(number: u64) -> Self {
        Self(Client::new(number, 0, Who::Nobody))
    }

    /// The library sends whole frames on a connection.
    pub(super) fn sent(
        &mut self,
        now_us: u64,
        link: u64,
        bytes: &[u8],
        judge: &mut Judge,
    ) -> Result<(), Violation> {
        let strange = |what: String| Oracle::Fifo.broken(format!("the library sends {what}"));
        let mut rest = bytes;
        while let Some((frame, len)) = next_frame(rest, FRAME_LEN_MAX).map_err(|e| strange(e.to_string()))? {
            rest = &rest[len..];
            if self.0.phase == Phase::Down {
                let request = ConnectRequest::from_bytes(frame).map_err(|e| strange(e.to_string()))?;
                self.0.greeted(now_us, link, &request)?;
                continue;
            }
            let header = RequestHeader::from_bytes(frame).map_err(|e| strange(e.to_string()))?;
            let ask = OpCode::from_wire(header.op)
                .ok_or_else(|| format!("{header:?}"))
                .and_then(|op| Ask::decode(op, &frame[RequestHeader::LEN..]));
            self.0.asked(now_us, header.xid.0, ask.map_err(strange)?, judge)?;
        }
        Oracle::Fifo.check(rest.is_empty(), || format!("the library sends a part of a frame: {rest:?}"))
    }

    /// The library receives bytes.
    pub(super) fn heard(
        &mut self,
        now_us: u64,
        bytes: &[u8],
        judge: &mut Judge,
        settled: bool,
    ) -> Result<Heard, Violation> {
        self.0.hear(now_us, bytes, judge, settled)
    }

    /// The connection is gone.
    pub(super) fn lost(&mut self) {
        self.0.lost();
    }
}
