//! The client port: bound once, accepted on by one task, sockets handed to the shard with the fewest connections.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{FromRawFd, IntoRawFd};

use glommio::net::TcpListener;
use socket2::{Domain, Protocol, Socket, Type};

/// A client port that cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BindError {
    /// Another process listens there.
    #[error(
        "{0} is in use: another server listens there; end it, or choose another port with --client-port \
         (clientPort in the configuration file)"
    )]
    InUse(SocketAddr),
    /// The address is none of this machine's.
    #[error("{0} is not an address of this machine: choose one with --client-address (clientPortAddress)")]
    NotHere(SocketAddr),
    /// Ports under 1024 need a privilege.
    #[error("no permission to listen on {0}: choose a port from 1024 up, or grant CAP_NET_BIND_SERVICE")]
    NotPermitted(SocketAddr),
    /// Anything else.
    #[error("cannot listen on {address}: {error}")]
    Other {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        error: io::Error,
    },
}

/// Binds a listening socket. SO_REUSEPORT stays off, so that a second server on the port is refused; SO_REUSEADDR
/// is on, so that a restart need not wait for old connections to time out.
///
/// # Errors
/// The port is taken or the address not usable.
pub(crate) fn bind(address: SocketAddr, backlog: u32) -> Result<Socket, BindError> {
    let open = || {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM.cloexec(), Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        if address.is_ipv6() {
            socket.set_only_v6(false)?;
        }
        socket.bind(&address.into())?;
        socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
        Ok(socket)
    };
    open().map_err(|error: io::Error| match error.kind() {
        io::ErrorKind::AddrInUse => BindError::InUse(address),
        io::ErrorKind::AddrNotAvailable => BindError::NotHere(address),
        io::ErrorKind::PermissionDenied => BindError::NotPermitted(address),
        _ => BindError::Other { address, error },
    })
}

/// Hands a bound socket to this thread's executor.
pub(crate) fn adopt(socket: Socket) -> TcpListener {
    // SAFETY: the descriptor is a listening socket, `into_raw_fd` gives up its ownership, and nobody else has it.
    unsafe { TcpListener::from_raw_fd(socket.into_raw_fd()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_in_use_is_refused_and_named() {
        let first = bind("127.0.0.1:0".parse().expect("an address"), 1).expect("a free port");
        let address = first.local_addr().expect("bound").as_socket().expect("an internet address");
        let error = bind(address, 1).expect_err("taken").to_string();
        assert!(error.starts_with(&format!("{address} is in use")), "{error}");
    }

    #[test]
    fn an_address_of_another_machine_is_refused() {
        let error = bind("192.0.2.1:1".parse().expect("an address"), 1).expect_err("not here");
        assert!(matches!(error, BindError::NotHere(_)), "{error}");
    }
}
