//! Sockets of the ports for clients: how they are bound, set and closed.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use ringkeeper_runtime::socket;
use socket2::{Socket, TcpKeepalive};

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

/// The same with one attempt, while the server runs; see [`socket::try_bind`].
///
/// # Errors
/// The port is taken or the address not usable.
pub(crate) fn try_bind(address: SocketAddr) -> Result<Socket, BindError> {
    socket::try_bind(address).map_err(|error| BindError::new(address, error))
}

/// Opens the port for clients.
///
/// # Errors
/// Another server began to listen meanwhile.
pub(crate) fn listen(socket: &Socket, backlog: u32, address: SocketAddr) -> Result<(), BindError> {
    socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX)).map_err(|error| BindError::new(address, error))
}

/// Sets TCP options of a port, which its connections take over: small replies are sent at once, and the
/// system closes a connection whose client is gone, or takes no output for longer than any session lasts.
/// Where the system has none, the end of the session closes it.
pub(crate) fn watch_over(socket: &Socket, silence_max: Duration) {
    let _ = socket.set_tcp_nodelay(true);
    let keepalive = TcpKeepalive::new().with_time(silence_max).with_interval(silence_max / 8);
    let _ = socket.set_tcp_keepalive(&keepalive);
    let silence_max_ms = u32::try_from(silence_max.as_millis()).unwrap_or(u32::MAX);
    let _ = rustix::net::sockopt::set_tcp_user_timeout(socket, silence_max_ms);
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
    use rustix::net::sockopt;

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
    fn connections_take_over_the_options_of_their_port() {
        const SILENCE_MAX: Duration = Duration::from_secs(80);
        let any = "127.0.0.1:0".parse().expect("an address");
        let port = bind(any).expect("a free port");
        watch_over(&port, SILENCE_MAX);
        listen(&port, 1, any).expect("nobody else listens");
        let address = port.local_addr().expect("bound").as_socket().expect("an internet address");
        let _client = std::net::TcpStream::connect(address).expect("it listens");
        let (accepted, _) = port.accept().expect("a connection");
        assert_eq!(sockopt::tcp_nodelay(&accepted), Ok(true));
        assert_eq!(sockopt::socket_keepalive(&accepted), Ok(true));
        assert_eq!(sockopt::tcp_keepidle(&accepted), Ok(SILENCE_MAX));
        assert_eq!(sockopt::tcp_keepintvl(&accepted), Ok(SILENCE_MAX / 8));
        assert_eq!(sockopt::tcp_user_timeout(&accepted), Ok(80_000));
    }

    #[test]
    fn an_address_of_another_machine_is_refused() {
        let error = bind("192.0.2.1:1".parse().expect("an address")).expect_err("not here");
        assert!(matches!(error, BindError::NotHere(_)), "{error}");
    }
}
