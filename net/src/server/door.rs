//! The way to a shard for connections, those that were accepted and those of the dashboard.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use async_channel::Sender;
use socket2::Socket;

use super::admission::{Admission, Admitted};
use super::tls::PortSecurity;

/// A socket on its way to a shard.
pub(super) struct Accepted {
    pub(super) socket: Socket,
    /// Whose requests come from it.
    pub(super) peer: SocketAddr,
    pub(super) admitted: Admitted,
    pub(super) security: PortSecurity,
}

/// Lets the dashboard's users in as clients, without a port: what they may do is checked where it is for all
/// clients, and the audit log names them and their address.
#[derive(Clone)]
pub(super) struct Door {
    pub(super) admission: Arc<Admission>,
    pub(super) shards: Vec<Sender<Accepted>>,
}

/// Nobody is let in.
#[derive(Debug, thiserror::Error)]
pub(super) enum Closed {
    #[error("{0}")]
    Refused(String),
    #[error("no connection can be made: {0}")]
    Socket(#[from] io::Error),
    #[error("the server is ending")]
    Ending,
}

impl Door {
    /// A connection whose other end is served like a client from `peer`.
    ///
    /// # Errors
    /// Too many connections are open, or the server is ending.
    pub(super) fn enter(&self, peer: SocketAddr) -> Result<UnixStream, Closed> {
        let admitted = self.admission.admit(peer.ip().to_canonical()).map_err(Closed::Refused)?;
        let (ours, theirs) = UnixStream::pair()?;
        let socket = Socket::from(OwnedFd::from(theirs));
        let shard = self.shards.get(admitted.shard()).ok_or(Closed::Ending)?;
        let accepted = Accepted { socket, peer, admitted, security: PortSecurity::Clear };
        shard.try_send(accepted).map_err(|_| Closed::Ending)?;
        Ok(ours)
    }
}
