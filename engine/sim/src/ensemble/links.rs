//! Connections between clients and servers.

use ringkeeper_engine::message::ConnId;

use super::client::Heard;
use super::violation::{Oracle, Violation};
use super::world::{Event, FAULTS_UNTIL_US, Outlasting, World};

/// Time after healing until the longest pause, and all that it has delayed, is over.
const SETTLE_US: u64 = 3_000_000;

/// Who is at the near end of a connection to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Party {
    Client(usize),
    Worker(usize),
}

/// A connection of a client or a worker.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) party: Party,
    pub(super) server: usize,
    pub(super) shard: usize,
    pub(super) conn: ConnId,
    /// Life of the server's process.
    pub(super) life: u64,
    pub(super) silent: bool,
    /// The ends that are still open.
    pub(super) client_open: bool,
    pub(super) server_open: bool,
    up_us: u64,
    down_us: u64,
}

impl World {
    /// Connects a client to some server; whether there was one.
    pub(super) fn dial(&mut self, client: usize, impostor: bool) -> bool {
        let server = self.random.index(self.servers.len());
        let Some(link) = self.open(Party::Client(client), server) else { return false };
        let bytes = self.clients[client].greet(self.now_us, link, impostor);
        self.write_to_server(link, bytes);
        true
    }

    /// A connection to a server, if that runs.
    pub(super) fn open(&mut self, party: Party, server: usize) -> Option<u64> {
        let shard = self.random.index(2);
        let paused = self.servers[server].paused_until_us > self.now_us;
        let link = self.next_link;
        if paused {
            return None;
        }
        let conn = self.connection_of(server, shard, link)?;
        self.next_link += 1;
        let life = self.servers[server].life;
        self.links.insert(
            link,
            Link {
                party,
                server,
                shard,
                conn,
                life,
                silent: false,
                client_open: true,
                server_open: true,
                up_us: 0,
                down_us: 0,
            },
        );
        Some(link)
    }

    pub(super) fn client_delay(&mut self) -> u64 {
        self.random.between(self.faults.client_latency_us / 10, self.faults.client_latency_us)
    }

    /// Sends a client's bytes, sometimes in two pieces.
    pub(super) fn write_to_server(&mut self, link: u64, mut bytes: Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        let split = if self.faults.pieces { self.random.index(bytes.len()) } else { 0 };
        if split > 0 {
            let rest = bytes.split_off(split);
            self.send_up(link, bytes);
            self.send_up(link, rest);
        } else {
            self.send_up(link, bytes);
        }
    }

    fn send_up(&mut self, id: u64, bytes: Vec<u8>) {
        let delay = self.client_delay();
        let now_us = self.now_us;
        let Some(link) = self.links.get_mut(&id).filter(|link| !link.silent && link.server_open) else {
            return;
        };
        link.up_us = link.up_us.max(now_us + delay);
        let (at_us, server) = (link.up_us, link.server);
        self.at(at_us - now_us, Event::ToServer { link: id, server, bytes });
    }

    pub(super) fn write_to_client(&mut self, link: u64, bytes: Vec<u8>, close: bool) {
        if !bytes.is_empty() {
            self.send_down(link, bytes);
        }
        if close {
            self.send_down(link, Vec::new());
            if let Some(link) = self.links.get_mut(&link) {
                link.server_open = false;
            }
        }
    }

    pub(super) fn send_down(&mut self, id: u64, bytes: Vec<u8>) {
        let delay = self.client_delay();
        let now_us = self.now_us;
        let Some(link) = self.links.get_mut(&id).filter(|link| !link.silent && link.client_open) else {
            return;
        };
        link.down_us = link.down_us.max(now_us + delay);
        let at_us = link.down_us;
        self.at(at_us - now_us, Event::ToClient { link: id, bytes });
    }

    pub(super) fn deliver_to_server(&mut self, id: u64, server: usize, bytes: Vec<u8>) {
        let Some(link) = self.links.get(&id).filter(|link| link.life == self.servers[server].life) else {
            return;
        };
        if link.silent && !bytes.is_empty() {
            return;
        }
        let (shard, conn) = (link.shard, link.conn);
        if let Some((_, now, process)) = self.servers[server].running() {
            let host = &mut process.shards[shard];
            if bytes.is_empty() {
                host.disconnected(now.monotonic_ms * 1000, conn);
            } else {
                host.receive(now.monotonic_ms * 1000, conn, bytes);
            }
            self.wake_shard(server, shard);
        }
    }

    pub(super) fn deliver_to_client(&mut self, id: u64, bytes: &[u8]) -> Result<(), Violation> {
        let Some(link) = self.links.get_mut(&id).filter(|link| link.client_open && !link.silent) else {
            return Ok(());
        };
        let (server, conn) = (link.server, link.conn);
        let client = match link.party {
            Party::Client(client) => client,
            Party::Worker(worker) => {
                link.client_open &= !bytes.is_empty();
                return self.deliver_to_worker(worker, id, bytes);
            }
        };
        if bytes.is_empty() {
            link.client_open = false;
            self.ghosts.retain(|(_, ghost)| *ghost != id);
            if self.clients[client].link == id {
                self.clients[client].lost();
            }
            return Ok(());
        }
        if self.clients[client].link != id {
            return Ok(());
        }
        let (now_us, settled) = (self.now_us, self.is_settled());
        let process = self.servers[server].process.as_ref();
        self.clients[client].sees_whole_log = process.is_none_or(|process| !process.has_served());
        let was_read_only = self.clients[client].has_read_only_session();
        let session = self.clients[client].session.map_or(0, |session| session.id);
        let keeps = session >> 56 == server as i64 + 1 && self.judge.is_local(session);
        match self.clients[client].hear(now_us, bytes, &mut self.judge, settled)? {
            Heard::Nothing => {}
            Heard::Attached => self.attached(client),
            Heard::Expired => {
                let process = self.servers[server].process.as_ref();
                let alone = process.is_some_and(|process| process.has_rejected_alone(conn));
                Oracle::Session.check(was_read_only || keeps || !alone, || {
                    format!("server {server} has no leader and calls session {session:#x} ended")
                })?;
                self.report.sessions_expired += 1;
                if self.judge.is_local(session) {
                    // On its own server it may live on, and is none of this client's any more.
                    let ghosts = self.ghosts.iter().filter(|(of, _)| *of == client);
                    let ghosts: Vec<u64> = ghosts.map(|(_, ghost)| *ghost).collect();
                    ghosts.into_iter().for_each(|ghost| self.hang_up(ghost, true));
                }
            }
            Heard::Closed => {
                // A client that asks to close its session before that comes back, since writes are needed
                // until another server leads.
                if self.healed && self.outlasting == Outlasting::Over {
                    self.finished[client] = Some(false);
                }
            }
        }
        if self.clients[client].link != id {
            self.hang_up(id, true);
        }
        Ok(())
    }

    /// Before that, a leader may still tell a client what it could not commit.
    pub(super) const fn is_settled(&self) -> bool {
        self.now_us > FAULTS_UNTIL_US + SETTLE_US
    }

    fn attached(&mut self, client: usize) {
        let asks = self.clients[client].introduction();
        if !asks.is_empty() {
            let mut bytes = Vec::new();
            let now_us = self.now_us;
            for ask in asks {
                self.clients[client].ask(now_us, ask, &mut self.judge, &mut bytes);
            }
            let link = self.clients[client].link;
            self.write_to_server(link, bytes);
        }
    }

    /// The client closes its end; the server hears of it, unless the network is silent.
    pub(super) fn hang_up(&mut self, id: u64, heard: bool) {
        let Some(link) = self.links.get_mut(&id) else { return };
        if !std::mem::replace(&mut link.client_open, false) {
            return;
        }
        self.ghosts.retain(|(_, ghost)| *ghost != id);
        if heard {
            self.send_up(id, Vec::new());
        }
    }

    /// A process ends: its clients see their connections reset.
    pub(super) fn reset_links(&mut self, server: usize) {
        let of_server: Vec<u64> = self
            .links
            .iter()
            .filter(|(_, link)| link.server == server && link.server_open)
            .map(|(id, _)| *id)
            .collect();
        for id in of_server {
            self.send_down(id, Vec::new());
            if let Some(link) = self.links.get_mut(&id) {
                link.server_open = false;
            }
        }
    }
}
