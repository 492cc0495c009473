//! TLS on the ports for clients: a handshake beside the shard, then a connection whose records the shard
//! seals and opens itself.

mod acceptor;
mod expiry;
mod stream;

use std::cell::RefCell;
use std::net::SocketAddr;
use std::sync::Arc;

use ringkeeper_runtime::reactor::tcp::TcpStream;
use ringkeeper_runtime::tls::begins_handshake;
use ringkeeper_tls::Party;

use acceptor::PATIENCE;
pub(crate) use acceptor::{HandshakeError, TlsAcceptor};
pub(crate) use expiry::{Found, OwnCertificates, State};
pub(crate) use stream::Stream;

/// How the clients of a port speak.
#[derive(Clone)]
pub(crate) enum PortSecurity {
    /// In the clear.
    Clear,
    /// With TLS.
    Tls(Arc<TlsAcceptor>),
    /// Some with TLS, others in the clear (`client.portUnification`).
    Either(Arc<TlsAcceptor>),
}

impl PortSecurity {
    /// Does what comes before the first request. Returns the connection, and the id of the client's
    /// certificate if it has shown one. Bytes are read through `buffer`, which is borrowed only
    /// while there are some.
    ///
    /// # Errors
    /// The handshake failed.
    pub(crate) async fn open(
        &self,
        tcp: TcpStream,
        peer: SocketAddr,
        buffer: &RefCell<Box<[u8]>>,
    ) -> Result<(Stream, Option<String>), HandshakeError> {
        let tls = match self {
            Self::Clear => return Ok((Stream::Plain(tcp), None)),
            Self::Tls(tls) => tls,
            Self::Either(tls) => {
                if !begins_handshake(&tcp, Party::Client, PATIENCE).await? {
                    return Ok((Stream::Plain(tcp), None));
                }
                tls
            }
        };
        let (connection, id) = tls.accept(tcp, peer, buffer).await?;
        Ok((Stream::Tls(Box::new(connection)), id))
    }
}
