//! Connections between servers.

use std::collections::VecDeque;

use ringkeeper_engine::zab::Message;

/// One direction of a pair of servers.
#[derive(Debug, Default)]
pub(crate) struct Direction {
    /// Number of the connection that the receiver listens to; `None` while there is none.
    pub(crate) connection: Option<u64>,
    /// Nothing passes; the sender does not notice.
    pub(crate) blocked: bool,
    /// What was sent while blocked: retransmitted when the block ends, lost with the connection.
    pub(crate) stalled: VecDeque<Message>,
    /// The last message arrives then; the next one arrives later.
    pub(crate) busy_until_us: u64,
}

/// All directions among `servers` servers.
#[derive(Debug)]
pub(crate) struct Network {
    servers: usize,
    directions: Vec<Direction>,
    pub(crate) connections: u64,
}

impl Network {
    pub(crate) fn new(servers: usize) -> Self {
        let directions = (0..servers * servers).map(|_| Direction::default()).collect();
        Self { servers, directions, connections: 0 }
    }

    pub(crate) fn direction(&mut self, from: usize, to: usize) -> &mut Direction {
        &mut self.directions[from * self.servers + to]
    }

    pub(crate) fn is_blocked(&mut self, a: usize, b: usize) -> bool {
        self.direction(a, b).blocked || self.direction(b, a).blocked
    }
}
