//! Kerberos between servers: who a peer is by its ticket, and a secret for each connection, from which the
//! handshake goes on as with a shared one.
//!
//! ```text
//! dialer -> listener   { length u32, token }    the ticket
//! listener -> dialer   { length u32, token }    what only the owner of the service's keys can answer;
//!                                               nothing if the ticket is refused
//! ```
//!
//! A ticket says who its owner is, and not that the owner is a member. So a peer's principal has to be of
//! this server's realm and have the peer's host in the list of members as its second component. Its first
//! component has to be the one of this server, where this server has tickets, too: another service of the
//! same machine is no member.

use std::io;
use std::rc::Rc;

use futures_lite::future::BoxedLocal;
use futures_lite::{AsyncReadExt, AsyncWriteExt};

use crate::env::{Connection, Stream};

/// Longest token. A ticket of Active Directory lists the groups of its owner, up to 64 KiB.
const TOKEN_BYTES_MAX: u32 = 128 << 10;

/// A secret that the two ends of a connection have in common.
pub type Key = [u8; 32];

/// How Kerberos is spoken between servers. Calls may wait for a KDC or a file, never on this thread.
#[derive(Clone)]
pub struct Kerberos {
    /// Gets tickets for those whom this server dials. Without it, they are proved a secret.
    pub initiator: Option<Rc<dyn Initiator>>,
    /// Takes the tickets of those who dial. Without it, they have to prove a secret.
    pub acceptor: Option<Rc<dyn Acceptor>>,
    /// The realm of all servers.
    pub realm: String,
    /// The first component of the servers' principals, if it is known.
    pub service: Option<String>,
}

/// Gets tickets.
pub trait Initiator {
    /// Begins an exchange with the server on `host`: the token to send to it, and what takes its answer.
    ///
    /// # Errors
    /// No ticket is to be had. The next exchange tries again.
    fn begin(&self, host: &str) -> BoxedLocal<io::Result<Ticket>>;
}

/// A token that shows who this server is, for one connection.
pub struct Ticket {
    /// The token.
    pub token: Vec<u8>,
    /// Takes the answer; nothing is a refusal. It fails unless the other end is the server that was meant.
    pub finish: Box<dyn FnOnce(Vec<u8>) -> BoxedLocal<io::Result<Key>>>,
}

/// Takes tickets.
pub trait Acceptor {
    /// Finds out whose ticket this is.
    ///
    /// # Errors
    /// It is none for this server, or not valid.
    fn accept(&self, token: Vec<u8>) -> BoxedLocal<io::Result<Accepted>>;
}

/// A ticket that was accepted.
pub struct Accepted {
    /// Its owner, with the realm.
    pub principal: String,
    /// The answer.
    pub token: Vec<u8>,
    /// The secret.
    pub key: Key,
}

impl Kerberos {
    /// The host of the server with this principal; `None` if it is not one of a server.
    pub(super) fn host_of<'a>(&self, principal: &'a str) -> Option<&'a str> {
        let (name, realm) = principal.rsplit_once('@')?;
        let (service, host) = name.split_once('/')?;
        let is_server = realm == self.realm && self.service.as_ref().is_none_or(|own| own == service);
        // A separator inside of a component is written with a backslash.
        (is_server && !host.is_empty() && !name.contains(['\\', '@']) && !host.contains('/')).then_some(host)
    }
}

pub(super) async fn send_token(connection: &mut Connection<impl Stream>, token: &[u8]) -> io::Result<()> {
    let length = u32::try_from(token.len()).ok().filter(|length| *length <= TOKEN_BYTES_MAX);
    let length = length.ok_or_else(|| io::Error::other("a token of Kerberos is longer than may be"))?;
    connection.writer.write_all(&length.to_le_bytes()).await?;
    connection.writer.write_all(token).await?;
    connection.writer.flush().await
}

pub(super) async fn read_token(connection: &mut Connection<impl Stream>) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    connection.reader.read_exact(&mut length).await?;
    let length = u32::from_le_bytes(length);
    if length > TOKEN_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "not a token of Kerberos"));
    }
    let mut token = vec![0; length as usize];
    connection.reader.read_exact(&mut token).await?;
    Ok(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_principal_of_a_server_has_this_servers_service_and_realm_and_a_host() {
        let kerberos = |service: Option<&str>| Kerberos {
            initiator: None,
            acceptor: None,
            realm: "R".to_owned(),
            service: service.map(ToOwned::to_owned),
        };
        let own = kerberos(Some("zk"));
        assert_eq!(own.host_of("zk/zoo1@R"), Some("zoo1"));
        for principal in [
            "zk@R",
            "zk/@R",
            "zk/zoo1",
            "zk/zoo1@S",
            "HTTP/zoo1@R",
            "zk/a/zoo1@R",
            "zk\\/a/zoo1@R",
            "zk/zoo1\\@R@R",
        ] {
            assert_eq!(own.host_of(principal), None, "{principal}");
        }
        assert_eq!(kerberos(None).host_of("HTTP/zoo1@R"), Some("zoo1"));
    }
}
