//! `bench-harness floor`: the least that a server can do. It cuts the stream into frames and answers each
//! with canned bytes; no tree, no sessions, no disk. What it costs is what the kernel and the protocol cost
//! on this machine, and no server can cost less.
//!
//! A getData is answered with the value that was written last on the same connection: just enough for
//! `bench-harness ratio` with a znode for each session, whose replies then pass every check.

use std::io;
use std::net::SocketAddr;

use anyhow::{Context, Result};
use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token};
use ringkeeper_testkit::interrupt;
use ringkeeper_wire::frame::{begin_frame, end_frame};
use ringkeeper_wire::{
    ConnectRequest, ConnectResponse, CreateResponse, ErrorCode, GetDataResponse, OpCode, PASSWORD_LEN,
    Record, ReplyHeader, Request, RequestHeader, SessionId, Stat, Xid,
};

use crate::connection::{self, Connection};
use crate::fault::Fault;
use crate::request::Template;

/// Starts the bare responder; a target for `ratio --servers`.
#[derive(Debug, clap::Args)]
pub(crate) struct FloorArgs {
    /// Address to listen on
    #[arg(long, default_value = "127.0.0.1:21810")]
    listen: SocketAddr,
}

const LISTENER: Token = Token(usize::MAX);

/// How often the loop looks for an interrupt.
const WAIT_MAX: std::time::Duration = std::time::Duration::from_millis(100);

/// Runs the subcommand until it is interrupted.
pub(crate) fn run(args: &FloorArgs) -> Result<()> {
    let mut floor = Floor::bind(args.listen).with_context(|| format!("cannot listen on {}", args.listen))?;
    println!("bare responder on {}", args.listen);
    let mut events = Events::with_capacity(1024);
    while interrupt::check().is_ok() {
        floor.turn(&mut events)?;
    }
    Ok(())
}

struct Floor {
    poll: Poll,
    listener: TcpListener,
    /// Indexed by token; places of ended connections are taken again.
    clients: Vec<Option<Client>>,
    scratch: Box<[u8]>,
}

impl Floor {
    fn bind(address: SocketAddr) -> io::Result<Self> {
        let poll = Poll::new()?;
        let mut listener = TcpListener::bind(address)?;
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        Ok(Self { poll, listener, clients: Vec::new(), scratch: connection::scratch() })
    }

    fn turn(&mut self, events: &mut Events) -> Result<()> {
        match self.poll.poll(events, Some(WAIT_MAX)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            polled => polled?,
        }
        for event in &*events {
            if event.token() == LISTENER {
                self.accept()?;
            } else {
                self.serve(event.token().0, event.is_read_closed());
            }
        }
        Ok(())
    }

    fn accept(&mut self) -> Result<()> {
        loop {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error).context("cannot accept connections"),
            };
            stream.set_nodelay(true)?;
            let place = self.clients.iter().position(Option::is_none).unwrap_or(self.clients.len());
            if place == self.clients.len() {
                self.clients.push(None);
            }
            let socket = std::net::TcpStream::from(stream).into();
            let connection = Connection::new(socket, self.poll.registry(), Token(place))?;
            self.clients[place] = Some(Client { connection, canned: None });
        }
    }

    fn serve(&mut self, place: usize, to_end: bool) {
        let Some(client) = self.clients.get_mut(place).and_then(Option::as_mut) else { return };
        // Whatever goes wrong on a connection ends that connection; so does its own end.
        if client.turn(&mut self.scratch, to_end).is_err() {
            self.clients[place] = None;
        }
    }
}

struct Client {
    connection: Connection,
    /// `None` before the handshake.
    canned: Option<Canned>,
}

impl Client {
    fn turn(&mut self, scratch: &mut [u8], to_end: bool) -> Result<(), Fault> {
        let mut out = std::mem::take(self.connection.out());
        let Self { connection, canned } = self;
        let received = connection.receive(scratch, to_end, |payload, _| match canned {
            Some(canned) => canned.answer(payload, &mut out),
            None => {
                *canned = Some(Canned::new());
                shake_hands(payload, &mut out)
            }
        });
        *self.connection.out() = out;
        // Before a closing connection goes, its last reply does.
        self.connection.flush()?;
        received
    }
}

fn shake_hands(payload: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
    let wanted = ConnectRequest::from_bytes(payload)?;
    let start = begin_frame(out);
    let granted = ConnectResponse {
        protocol_version: 0,
        timeout_ms: wanted.timeout_ms,
        session_id: SessionId(1),
        password: Some(&[0; PASSWORD_LEN]),
        read_only: wanted.read_only,
    };
    granted.encode(out);
    Ok(end_frame(out, start)?)
}

/// Replies that need nothing but the request's xid.
struct Canned {
    empty: Template,
    /// The Stat after a setData.
    stat: Template,
    /// The value written last.
    data: Template,
}

impl Canned {
    fn new() -> Self {
        Self { empty: reply(|_| ()), stat: reply(|_| ()), data: reply(|_| ()) }
    }

    fn answer(&mut self, payload: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
        let RequestHeader { xid: Xid(xid), op } = RequestHeader::from_bytes(payload)?;
        // Everything but a getData carries something to look at, or is rare.
        if op == OpCode::GetData.to_wire() {
            self.data.append(out, xid);
            return Ok(());
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
            Request::CloseSession => {
                self.empty.append(out, xid);
                return Err(Fault::Closed);
            }
            _ => self.empty.append(out, xid),
        }
        Ok(())
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
    Template::new(|out| {
        let start = begin_frame(out);
        ReplyHeader::new(Xid(0), 1, ErrorCode::Ok).encode(out);
        body(out);
        end_frame(out, start).expect("a reply is hardly longer than the request");
    })
}

/// A responder on a port of its own for the rest of the test process.
#[cfg(test)]
pub(crate) fn for_tests() -> SocketAddr {
    let mut floor = Floor::bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("some port is free");
    let address = floor.listener.local_addr().expect("a bound socket has an address");
    std::thread::spawn(move || {
        let mut events = Events::with_capacity(64);
        while floor.turn(&mut events).is_ok() {}
    });
    address
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::creates::Creates;
    use crate::driver::{Schedule, drive};
    use crate::measure::{Load, measure};
    use crate::session::{self, Session};
    use crate::window::Surroundings;

    #[test]
    fn every_create_is_answered_with_its_path() {
        let sessions = Session::open_all(&[for_tests()], 3).unwrap();
        let loaded = sessions.into_iter().map(|session| (session, Creates::new("/p", 1000, 100))).collect();
        let from = Instant::now();
        let schedule =
            Schedule { outstanding: 50, from, to: from + Duration::from_secs(3600), arrivals: None };
        let (sessions, tally) = drive(loaded, schedule, &AtomicU64::new(0)).unwrap();
        assert_eq!(tally.operations, 3000);
        session::close_all(sessions).unwrap();
    }

    #[test]
    fn a_mix_on_own_znodes_passes_every_check_of_a_measurement() {
        let load = Load {
            sessions: 4,
            outstanding: 10,
            threads: 2,
            payload_len: 1024,
            znodes: 4,
            reads_percent: 50,
            per_second: None,
            warmup: Duration::ZERO,
            window: Duration::from_millis(50),
            seed: 1,
        };
        let measured = measure(&[for_tests()], Surroundings::default(), &load);
        assert!(measured.is_ok(), "{measured:?}");
    }

    #[test]
    fn a_wrong_value_fails_the_measurement() {
        // Two znodes on one connection: the responder knows only the value written last.
        let load = Load {
            sessions: 1,
            outstanding: 10,
            threads: 1,
            payload_len: 100,
            znodes: 2,
            reads_percent: 100,
            per_second: None,
            warmup: Duration::ZERO,
            window: Duration::from_secs(3600),
            seed: 1,
        };
        let error = format!("{:#}", measure(&[for_tests()], Surroundings::default(), &load).unwrap_err());
        assert!(error.contains("no whole value of znode 0"), "{error}");
    }
}
