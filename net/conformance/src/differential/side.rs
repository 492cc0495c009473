//! One of the two servers, with the same sessions open as on the other.

use std::io;
use std::net::SocketAddr;

use ringkeeper_wire::jute::{self, Reader};
use ringkeeper_wire::{OpCode, Record, ReplyHeader, SessionId, xid};

use super::request::{Outgoing, SymbolicZxid};
use ringkeeper_testkit::{Connection, Received, Session, granted_session, request_frame};

/// A place for a session; the n-th slot plays the same role on both sides.
#[derive(Default)]
pub(super) struct Slot {
    pub(super) connection: Option<Connection>,
    /// The session, with number 0 when the next handshake opens a new one.
    pub(super) session: Session,
}

/// A server and the connections to it.
pub(super) struct Side {
    pub(super) address: SocketAddr,
    pub(super) slots: Vec<Slot>,
}

impl Side {
    /// A side with `slots` sessions yet to be opened.
    pub(super) fn new(address: SocketAddr, slots: usize) -> Self {
        Self { address, slots: (0..slots).map(|_| Slot::default()).collect() }
    }

    /// Sends requests with xids from `first_xid`, all at once.
    pub(super) fn send(
        &mut self,
        slot: usize,
        requests: &[Outgoing],
        first_xid: i32,
        resolve: &dyn Fn(SymbolicZxid) -> i64,
    ) -> io::Result<()> {
        let mut bytes = Vec::new();
        for (xid, request) in (first_xid..).zip(requests) {
            let mut body = request.body.clone();
            if let (Some(zxid), Some(head)) = (request.relative_zxid, body.first_chunk_mut()) {
                *head = resolve(zxid).to_be_bytes();
            }
            bytes.extend_from_slice(&request_frame(wire_xid(request.op, xid), request.op, &body));
        }
        match &mut self.slots[slot].connection {
            Some(connection) => connection.send(&bytes),
            None => Ok(()),
        }
    }

    /// Reads until `replies` replies have come, or will not come; events in between are kept.
    pub(super) fn read_replies(&mut self, slot: usize, replies: usize) -> io::Result<Vec<Received>> {
        let Some(connection) = &mut self.slots[slot].connection else { return Ok(Vec::new()) };
        let mut transcript = Vec::new();
        let mut missing = replies;
        while missing > 0 {
            let received = connection.receive()?;
            let is_frame = matches!(received, Received::Frame(_));
            missing -= usize::from(!is_event(&received));
            transcript.push(received);
            if !is_frame {
                break;
            }
        }
        Ok(transcript)
    }

    /// Sends a sync on every connection: its reply follows every event of what happened before.
    pub(super) fn send_barrier(&mut self, xid: i32) -> io::Result<()> {
        let bytes = barrier_frame(xid);
        for connection in self.slots.iter_mut().filter_map(|slot| slot.connection.as_mut()) {
            connection.send(&bytes)?;
        }
        Ok(())
    }

    /// Opens a connection, sends `bytes`, and returns the answer to the handshake that they begin with.
    /// An earlier connection of the slot is returned, still open.
    pub(super) fn connect(
        &mut self,
        slot: usize,
        bytes: &[u8],
    ) -> io::Result<(Received, Option<Connection>)> {
        let mut connection = Connection::open(self.address)?;
        connection.send(bytes)?;
        let answer = connection.receive()?;
        let slot = &mut self.slots[slot];
        let granted = match &answer {
            Received::Frame(frame) => granted_session(frame),
            _ => None,
        };
        let earlier = slot.connection.take();
        if let Some((session, _)) = granted {
            slot.session = session;
            slot.connection = Some(connection);
            return Ok((answer, earlier));
        }
        slot.connection = earlier;
        Ok((answer, None))
    }
}

/// The request that [`Side::send_barrier`] sends.
pub(super) fn barrier_request() -> Outgoing {
    let mut body = Vec::new();
    jute::put_ustring(&mut body, "/");
    let op = OpCode::Sync.to_wire();
    Outgoing { op, body, relative_zxid: None, path: None, is_write: false, is_alone: false }
}

/// The same as a frame.
pub(super) fn barrier_frame(xid: i32) -> Vec<u8> {
    let Outgoing { op, body, .. } = barrier_request();
    request_frame(xid, op, &body)
}

/// A session that no server has.
pub(super) const fn unknown_session() -> Session {
    Session { id: SessionId(0x0123_4567_89ab_cdef), password: [7; 16] }
}

/// The xid that a client uses for the opcode.
fn wire_xid(op: i32, xid: i32) -> i32 {
    match OpCode::from_wire(op) {
        Some(OpCode::Ping) => xid::PING.0,
        Some(OpCode::Auth) => xid::AUTH.0,
        Some(OpCode::SetWatches | OpCode::SetWatches2) => xid::SET_WATCHES.0,
        _ => xid,
    }
}

/// Whether a frame is a notification.
pub(super) fn is_event(received: &Received) -> bool {
    let Received::Frame(frame) = received else { return false };
    ReplyHeader::decode(&mut Reader::new(frame)).is_ok_and(|header| header.xid == xid::NOTIFICATION)
}
