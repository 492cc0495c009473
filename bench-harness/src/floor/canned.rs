//! Replies that need no tree and no sessions.

use ringkeeper_wire::frame::put_frame;
use ringkeeper_wire::{
    ConnectRequest, ConnectResponse, CreateResponse, ErrorCode, GetDataResponse, OpCode, PASSWORD_LEN,
    Record, ReplyHeader, Request, RequestHeader, SessionId, Stat, Xid,
};

use crate::fault::Fault;
use crate::request::Template;

/// What a request asks of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asks {
    /// An answer.
    Read,
    /// An answer when it is durable.
    Write,
    /// An answer, and no more of the connection.
    Close,
}

pub(super) fn shake_hands(payload: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
    let wanted = ConnectRequest::from_bytes(payload)?;
    let granted = ConnectResponse {
        protocol_version: 0,
        timeout_ms: wanted.timeout_ms,
        session_id: SessionId(1),
        password: Some(&[0; PASSWORD_LEN]),
        read_only: wanted.read_only,
    };
    put_frame(out, |out| granted.encode(out));
    Ok(())
}

/// Replies that need nothing but the request's xid.
pub(super) struct Canned {
    empty: Template,
    /// The Stat after a setData.
    stat: Template,
    /// The value written last.
    data: Template,
}

impl Canned {
    pub(super) fn new() -> Self {
        Self { empty: reply(|_| ()), stat: reply(|_| ()), data: reply(|_| ()) }
    }

    /// Appends the reply to a request.
    pub(super) fn answer(&mut self, payload: &[u8], out: &mut Vec<u8>) -> Result<Asks, Fault> {
        let RequestHeader { xid: Xid(xid), op } = RequestHeader::from_bytes(payload)?;
        // Everything but a getData carries something to look at, or is rare.
        if op == OpCode::GetData.to_wire() {
            self.data.append(out, xid);
            return Ok(Asks::Read);
        }
        let op = OpCode::from_wire(op).ok_or(Fault::Closed)?;
        match Request::decode(op, &payload[REQUEST_HEADER_LEN..])? {
            Request::SetData(set_data) => {
                self.remember(set_data.data);
                self.stat.append(out, xid);
            }
            Request::Create(create) => {
                self.remember(create.data);
                let path = create.path;
                reply(|out| CreateResponse { path }.encode(out)).append(out, xid);
            }
            request => {
                self.empty.append(out, xid);
                return Ok(match request {
                    Request::Delete(_) => Asks::Write,
                    Request::CloseSession => Asks::Close,
                    _ => Asks::Read,
                });
            }
        }
        Ok(Asks::Write)
    }

    fn remember(&mut self, data: Option<&[u8]>) {
        let data_length = i32::try_from(data.map_or(0, <[u8]>::len)).expect("frames are shorter");
        let stat = Stat { data_length, ..Stat::default() };
        self.stat = reply(|out| stat.encode(out));
        self.data = reply(|out| GetDataResponse { data, stat }.encode(out));
    }
}

const REQUEST_HEADER_LEN: usize = 8;

/// A successful reply with the body that `body` appends. Requests and replies begin with the xid alike.
fn reply(body: impl FnOnce(&mut Vec<u8>)) -> Template {
    let reply = |out: &mut Vec<u8>| {
        ReplyHeader::new(Xid(0), 1, ErrorCode::Ok).encode(out);
        body(out);
    };
    Template::new(|out| put_frame(out, reply))
}
