//! The client port: one task accepts connections and hands each socket to the shard with the fewest
//! connections.

use std::io;
use std::net::SocketAddr;

use ringkeeper_runtime::socket;
use socket2::Socket;

/// A client port that cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BindError {
    /// Another process listens there.
    #[error(
        "{0} is in use: another server listens there; end it, or choose another port with --client-port \
         (clientPort in the configuration file)"
    )]
    InUse(SocketAddr),
    /// The address does not belong to this machine.
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

/// Binds a socket that does not listen yet; see [`socket::bind`].
///
/// # Errors
/// The port is taken or the address not usable.
pub(crate) fn bind(address: SocketAddr) -> Result<Socket, BindError> {
    socket::bind(address).map_err(|error| BindError::new(address, error))
}

/// Opens the port for clients.
///
/// # Errors
/// Another server began to listen meanwhile.
pub(crate) fn listen(socket: &Socket, backlog: u32, address: SocketAddr) -> Result<(), BindError> {
    socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX)).map_err(|error| BindError::new(address, error))
}

/// Another handle of a port, for [`stop_listening`].
///
/// # Errors
/// No file descriptor is free.
pub(crate) fn handle(socket: &Socket, address: SocketAddr) -> Result<Socket, BindError> {
    socket.try_clone().map_err(|error| BindError::Other { address, error })
}

/// Closes a port to new connections at once. Dropping the listener is not enough: a pending accept of
/// io_uring holds the socket, and the kernel releases that only after the process has ended.
pub(crate) fn stop_listening(socket: &Socket) {
    // It fails only if the socket does not listen, which is the wanted result.
    let _ = socket.shutdown(std::net::Shutdown::Both);
}

impl BindError {
    fn new(address: SocketAddr, error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::AddrInUse => Self::InUse(address),
            io::ErrorKind::AddrNotAvailable => Self::NotHere(address),
            io::ErrorKind::PermissionDenied => Self::NotPermitted(address),
            _ => Self::Other { address, error },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_in_use_is_refused_and_named() {
        let any = "127.0.0.1:0".parse().expect("an address");
        let first = bind(any).expect("a free port");
        listen(&first, 1, any).expect("nobody else listens");
        let address = first.local_addr().expect("bound").as_socket().expect("an internet address");
        let error = bind(address).expect_err("taken").to_string();
        assert!(error.starts_with(&format!("{address} is in use")), "{error}");
    }

    #[test]
    fn a_port_that_stopped_listening_is_free_though_its_socket_is_still_there() {
        let any = "127.0.0.1:0".parse().expect("an address");
        let first = bind(any).expect("a free port");
        listen(&first, 1, any).expect("nobody else listens");
        let address = first.local_addr().expect("bound").as_socket().expect("an internet address");
        stop_listening(&handle(&first, address).expect("a file descriptor"));
        let refused = std::net::TcpStream::connect(address).expect_err("nobody listens");
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        let second = bind(address).expect("free");
        listen(&second, 1, address).expect("nobody else listens");
    }

    #[test]
    fn an_address_of_another_machine_is_refused() {
        let error = bind("192.0.2.1:1".parse().expect("an address")).expect_err("not here");
        assert!(matches!(error, BindError::NotHere(_)), "{error}");
    }
}
