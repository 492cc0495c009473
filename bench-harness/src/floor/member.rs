//! The loop of a bare server.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use ringkeeper_runtime::completions::{Completion, Outcome, Outgoing, Ring};
use ringkeeper_testkit::{interrupt, wait_for};
use ringkeeper_wire::frame::{DEFAULT_FRAME_LEN_MAX, next_frame, put_frame};
use rustix::net::{Shutdown, shutdown, sockopt::set_tcp_nodelay};

use super::canned::{Asks, Canned, shake_hands};
use super::log::Log;
use crate::fault::Fault;

/// Operations that are submitted in one kernel entry at most.
const ENTRIES: u32 = 1024;

/// Bytes that are received at once, beside the start of a frame.
const ROOM: usize = 64 << 10;

/// How long a follower waits for its leader to listen.
const LEADER_MAX: Duration = Duration::from_secs(30);

/// What members say to each other: frames that begin with one of these bytes.
const HELLO: u8 = 0;
/// Leader to follower: a batch's number, then its bytes.
const BATCH: u8 = 1;
/// Follower to leader: the number of the last batch that is durable.
const ACK: u8 = 2;
/// Follower to leader: a write of a client.
const FORWARD: u8 = 3;
/// Leader to follower: so many more of its clients' writes are durable at a quorum.
const COMMITTED: u8 = 4;

#[derive(Clone, Copy)]
enum Token {
    Client,
    Peer,
    Receive(u64),
    Send(u64),
    Write,
}

/// A bare server.
pub(super) struct Member {
    ring: Ring<Token>,
    done: Vec<Completion<Token>>,
    address: SocketAddr,
    clients: Rc<OwnedFd>,
    peers: Option<Rc<OwnedFd>>,
    /// By numbers that are never used again.
    connections: HashMap<u64, Connection>,
    next: u64,
    /// Connections with something to send.
    speaking: Vec<u64>,
    log: Option<Log>,
    role: Role,
}

enum Role {
    Leader(Leader),
    Follower {
        leader: u64,
        /// Whose writes are on their way to the leader and back, in their order.
        forwarded: VecDeque<u64>,
        /// What the leader knows to be durable here.
        acknowledged: u64,
    },
}

#[derive(Default)]
struct Leader {
    /// Followers that have not come yet.
    missing: usize,
    /// Batches that are durable at each.
    followers: HashMap<u64, u64>,
    /// Those of the writes that are in no batch yet, and their bytes.
    waiting: Vec<u64>,
    batch: Vec<u8>,
    number: u64,
    /// Batches that are not durable at a quorum yet, the oldest first: whose writes they have.
    under_way: VecDeque<Vec<u64>>,
    committed: u64,
}

struct Connection {
    socket: Rc<OwnedFd>,
    out: Vec<u8>,
    /// What was sent before, to be used again.
    spare: Vec<u8>,
    sending: bool,
    receiving: bool,
    /// It ends when everything is sent.
    ending: bool,
    end: End,
}

/// Who is at the other end.
enum End {
    Client {
        /// `None` before the handshake.
        canned: Option<Canned>,
        /// Replies that have to wait: their bytes, and whether for a quorum or for a reply before them.
        replies: VecDeque<(Vec<u8>, bool)>,
    },
    Member,
}

impl Member {
    /// Member number `own`, from 0, of an ensemble whose members listen there for each other.
    pub(super) fn new(
        address: SocketAddr,
        folder: Option<&Path>,
        members: &[SocketAddr],
        own: usize,
    ) -> Result<Self> {
        let clients = TcpListener::bind(address)?;
        let role = Role::Leader(Leader { missing: members.len().saturating_sub(1), ..Leader::default() });
        let mut member = Self {
            ring: Ring::new(ENTRIES)?,
            done: Vec::new(),
            address: clients.local_addr()?,
            clients: Rc::new(clients.into()),
            peers: None,
            connections: HashMap::new(),
            next: 0,
            speaking: Vec::new(),
            log: folder.map(Log::create).transpose()?,
            role,
        };
        if own > 0 {
            let leader = wait_for("the leader to listen", LEADER_MAX, || {
                interrupt::check()?;
                Ok(TcpStream::connect(members[0]).ok())
            })?;
            let leader = member.welcome(leader.into(), End::Member)?;
            member.say(leader, |out| out.push(HELLO));
            member.role = Role::Follower { leader, forwarded: VecDeque::new(), acknowledged: 0 };
        } else if let [first, _, ..] = members {
            let peers = Rc::new(OwnedFd::from(TcpListener::bind(first)?));
            member.ring.accept(Token::Peer, &peers);
            member.peers = Some(peers);
        }
        let clients = Rc::clone(&member.clients);
        member.ring.accept(Token::Client, &clients);
        Ok(member)
    }

    /// Where clients connect.
    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Submits everything that is to be done, waits for something that is done, and works on that.
    pub(super) fn turn(&mut self, limit: Duration) -> Result<()> {
        let mut done = std::mem::take(&mut self.done);
        self.ring.wait(limit, &mut done).context("io_uring")?;
        done.drain(..).try_for_each(|completion| self.complete(completion))?;
        self.done = done;
        self.propose();
        self.acknowledge_and_commit();
        while let Some(number) = self.speaking.pop() {
            self.send(number)?;
        }
        Ok(())
    }

    fn complete(&mut self, (token, outcome): Completion<Token>) -> Result<()> {
        match (token, outcome) {
            (Token::Client | Token::Peer, Ok(Outcome::Accepted(socket, _))) => {
                let peer = matches!(token, Token::Peer);
                let end =
                    if peer { End::Member } else { End::Client { canned: None, replies: VecDeque::new() } };
                // A connection that is gone already is of no interest.
                let _ = self.welcome(socket, end);
                let listener = if peer { self.peers.clone() } else { Some(Rc::clone(&self.clients)) };
                self.ring.accept(token, &listener.context("a listener")?);
                Ok(())
            }
            (Token::Client | Token::Peer, Err(error)) => Err(error).context("cannot accept connections"),
            (Token::Write, outcome) => {
                let Outcome::Written { buffer, bytes } = outcome.context("the log")? else {
                    bail!("no write")
                };
                self.log.as_mut().context("a log")?.written(buffer, bytes)
            }
            (Token::Send(number), outcome) => {
                let Some(connection) = self.connections.get_mut(&number) else { return Ok(()) };
                connection.sending = false;
                if let Ok(Outcome::Sent { buffer: Outgoing::Own(mut buffer), upto }) = outcome {
                    ensure!(
                        upto == buffer.len(),
                        "this kernel sends what a socket has room for: use Linux 5.19 or newer"
                    );
                    buffer.clear();
                    connection.spare = buffer;
                    self.speaking.push(number);
                    Ok(())
                } else {
                    self.end(number)
                }
            }
            (Token::Receive(number), outcome) => {
                if let Some(connection) = self.connections.get_mut(&number) {
                    connection.receiving = false;
                }
                match outcome {
                    Ok(Outcome::Received { buffer, bytes: 1.., more }) => self.heard(number, buffer, more),
                    _ => self.end(number),
                }
            }
            _ => bail!("an operation that was not begun"),
        }
    }

    fn welcome(&mut self, socket: OwnedFd, end: End) -> io::Result<u64> {
        set_tcp_nodelay(&socket, true)?;
        let number = self.next;
        self.next += 1;
        let connection = Connection {
            socket: Rc::new(socket),
            out: Vec::new(),
            spare: Vec::new(),
            sending: false,
            receiving: true,
            ending: false,
            end,
        };
        self.ring.receive(Token::Receive(number), &connection.socket, Vec::with_capacity(ROOM), true);
        self.connections.insert(number, connection);
        Ok(number)
    }

    /// Ends a connection once everything is sent.
    fn end(&mut self, number: u64) -> Result<()> {
        let Some(connection) = self.connections.get_mut(&number) else { return Ok(()) };
        ensure!(matches!(connection.end, End::Client { .. }), "a member is gone");
        connection.ending = true;
        if connection.sending || !connection.out.is_empty() {
            return Ok(());
        }
        // Wakes a receive that is under way; a socket that is not connected any more has none.
        let _ = shutdown(&connection.socket, Shutdown::Both);
        if !connection.receiving {
            self.connections.remove(&number);
        }
        Ok(())
    }

    /// Works on all whole frames of a connection, and goes on receiving.
    fn heard(&mut self, number: u64, mut buffer: Vec<u8>, more: bool) -> Result<()> {
        let Some(mut connection) = self.connections.remove(&number) else { return Ok(()) };
        let worked = match &mut connection.end {
            End::Client { .. } => self.heard_client(number, &mut connection, &buffer),
            End::Member => self.heard_member(number, &buffer),
        };
        let is_member = matches!(connection.end, End::Member);
        let speaks = !connection.out.is_empty();
        self.connections.insert(number, connection);
        if speaks {
            self.speaking.push(number);
        }
        let used = match worked {
            Ok(used) => used,
            Err(error) if is_member => return Err(error.into()),
            Err(_) => return self.end(number),
        };
        buffer.drain(..used);
        buffer.reserve(ROOM);
        if let Some(connection) = self.connections.get_mut(&number).filter(|connection| !connection.ending) {
            connection.receiving = true;
            self.ring.receive(Token::Receive(number), &connection.socket, buffer, !more);
        }
        Ok(())
    }

    /// Answers, or sends on, what a client asks; how many bytes were worked on.
    fn heard_client(
        &mut self,
        number: u64,
        connection: &mut Connection,
        bytes: &[u8],
    ) -> Result<usize, Fault> {
        let End::Client { canned, replies } = &mut connection.end else { return Err(Fault::Closed) };
        if canned.is_none() && bytes == b"srvr" {
            // As ZooKeeper says it.
            let mode = self.mode().map_or_else(String::new, |mode| format!("Mode: {mode}\n"));
            connection.out.write_all(mode.as_bytes())?;
            return Err(Fault::Closed);
        }
        let mut used = 0;
        while let Some((payload, len)) = next_frame(&bytes[used..], DEFAULT_FRAME_LEN_MAX)? {
            used += len;
            let Some(canned) = canned else {
                shake_hands(payload, &mut connection.out)?;
                *canned = Some(Canned::new());
                continue;
            };
            let before = connection.out.len();
            let asks = canned.answer(payload, &mut connection.out)?;
            let is_written = asks == Asks::Write && self.log.is_some();
            if is_written || !replies.is_empty() {
                replies.push_back((connection.out.split_off(before), is_written));
            } else if asks == Asks::Close {
                return Err(Fault::Closed);
            }
            if is_written {
                self.write(number, payload);
            }
        }
        Ok(used)
    }

    fn mode(&self) -> Option<&'static str> {
        match &self.role {
            Role::Leader(Leader { missing: 1.., .. }) => None,
            Role::Leader(leader) => Some(if leader.followers.is_empty() { "standalone" } else { "leader" }),
            Role::Follower { .. } => Some("follower"),
        }
    }

    /// Has a client's write made durable.
    fn write(&mut self, client: u64, payload: &[u8]) {
        match &mut self.role {
            Role::Leader(leader) => leader.take(client, payload),
            Role::Follower { leader, forwarded, .. } => {
                forwarded.push_back(client);
                let leader = *leader;
                self.say(leader, |out| {
                    out.push(FORWARD);
                    out.extend_from_slice(payload);
                });
            }
        }
    }

    /// Works on what another member says; how many bytes that was.
    fn heard_member(&mut self, number: u64, bytes: &[u8]) -> Result<usize, Fault> {
        let mut used = 0;
        while let Some((payload, len)) = next_frame(&bytes[used..], usize::MAX)? {
            used += len;
            let (kind, body) = payload.split_first().ok_or(Fault::Closed)?;
            match (*kind, &mut self.role, body.split_first_chunk()) {
                (HELLO, Role::Leader(leader), _) => {
                    leader.missing = leader.missing.saturating_sub(1);
                    leader.followers.insert(number, 0);
                }
                (ACK, Role::Leader(leader), Some((durable, _))) => {
                    leader.followers.insert(number, u64::from_be_bytes(*durable));
                }
                (FORWARD, Role::Leader(leader), _) => leader.take(number, body),
                (BATCH, Role::Follower { .. }, Some((batch, bytes))) => {
                    self.log.as_mut().ok_or(Fault::Closed)?.append(u64::from_be_bytes(*batch), bytes);
                }
                (COMMITTED, Role::Follower { forwarded, .. }, Some((count, _))) => {
                    let count = usize::try_from(u64::from_be_bytes(*count)).unwrap_or(usize::MAX);
                    let clients: Vec<_> = forwarded.drain(..count.min(forwarded.len())).collect();
                    clients.into_iter().for_each(|client| self.answer(client));
                }
                _ => return Err(Fault::Closed),
            }
        }
        Ok(used)
    }

    /// Has what waits written and sent to all, if the log is idle.
    fn propose(&mut self) {
        let Some(log) = &mut self.log else { return };
        if let Role::Leader(leader) = &mut self.role
            && log.is_idle()
            && !leader.waiting.is_empty()
        {
            leader.number += 1;
            let (number, batch) = (leader.number, std::mem::take(&mut leader.batch));
            leader.under_way.push_back(std::mem::take(&mut leader.waiting));
            let followers: Vec<_> = leader.followers.keys().copied().collect();
            log.append(number, &batch);
            for follower in followers {
                self.say(follower, |out| {
                    out.push(BATCH);
                    out.extend_from_slice(&number.to_be_bytes());
                    out.extend_from_slice(&batch);
                });
            }
        }
        if let Some(log) = &mut self.log {
            log.flush(&mut self.ring, Token::Write);
        }
    }

    /// A follower says what is durable; a leader has what is durable at a quorum answered.
    fn acknowledge_and_commit(&mut self) {
        let Some(durable) = self.log.as_ref().map(Log::durable) else { return };
        let (to, kind, number) = match &mut self.role {
            Role::Follower { leader, acknowledged, .. } if *acknowledged < durable => {
                *acknowledged = durable;
                (*leader, ACK, durable)
            }
            Role::Follower { .. } => return,
            Role::Leader(leader) => {
                let committed = leader.commit(durable);
                let mut counts = BTreeMap::<u64, u64>::new();
                for origin in committed {
                    match self.connections.get(&origin).map(|connection| &connection.end) {
                        Some(End::Member) => *counts.entry(origin).or_default() += 1,
                        _ => self.answer(origin),
                    }
                }
                counts.into_iter().for_each(|(follower, count)| self.tell(follower, COMMITTED, count));
                return;
            }
        };
        self.tell(to, kind, number);
    }

    /// Answers the oldest write of a client, and the reads that waited behind it.
    fn answer(&mut self, client: u64) {
        let Some(connection) = self.connections.get_mut(&client) else { return };
        let End::Client { replies, .. } = &mut connection.end else { return };
        let mut next = replies.pop_front();
        while let Some((reply, _)) = next {
            connection.out.extend(reply);
            next = replies.pop_front_if(|(_, is_written)| !*is_written);
        }
        self.speaking.push(client);
    }

    fn tell(&mut self, member: u64, kind: u8, number: u64) {
        self.say(member, |out| {
            out.push(kind);
            out.extend_from_slice(&number.to_be_bytes());
        });
    }

    /// Says something to another member.
    fn say(&mut self, member: u64, message: impl FnOnce(&mut Vec<u8>)) {
        let Some(connection) = self.connections.get_mut(&member) else { return };
        put_frame(&mut connection.out, message);
        self.speaking.push(member);
    }

    fn send(&mut self, number: u64) -> Result<()> {
        let Some(connection) = self.connections.get_mut(&number) else { return Ok(()) };
        if connection.sending {
            return Ok(());
        }
        if connection.out.is_empty() {
            return if connection.ending { self.end(number) } else { Ok(()) };
        }
        let bytes = std::mem::replace(&mut connection.out, std::mem::take(&mut connection.spare));
        connection.sending = true;
        self.ring.send(Token::Send(number), &connection.socket, Outgoing::Own(bytes), 0, false);
        Ok(())
    }
}

impl Leader {
    /// A write, of a client or of a follower, is to be a part of the next batch.
    fn take(&mut self, origin: u64, payload: &[u8]) {
        self.waiting.push(origin);
        self.batch.extend_from_slice(payload);
    }

    /// Whose writes a quorum has, now that it is known what the leader itself has.
    fn commit(&mut self, own: u64) -> Vec<u64> {
        let mut durable: Vec<_> = self.followers.values().copied().chain([own]).collect();
        durable.sort_unstable_by(|one, other| other.cmp(one));
        let at_quorum = durable[durable.len() / 2];
        let mut origins = Vec::new();
        while self.committed < at_quorum {
            self.committed += 1;
            origins.extend(self.under_way.pop_front().expect("a batch that was proposed"));
        }
        origins
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_committed_when_a_quorum_has_it() {
        let mut leader = Leader { followers: [(7, 0), (8, 0)].into(), ..Leader::default() };
        leader.under_way = [vec![1, 2], vec![3]].into();
        assert_eq!(leader.commit(1), [0; 0]);
        leader.followers.insert(8, 2);
        assert_eq!(leader.commit(1), [1, 2]);
        assert_eq!(leader.commit(2), [3]);
    }
}
