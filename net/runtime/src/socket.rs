//! Ports: opened patiently before there is an executor, and at once afterwards.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};

/// How long to wait for a port in use to become free.
const PORT_PATIENCE: Duration = Duration::from_secs(2);

/// Binds a socket that does not listen yet. SO_REUSEPORT stays off, so that a second server on the port is
/// refused; SO_REUSEADDR is on, so that a restart does not wait for old connections to time out.
///
/// The kernel releases the sockets of an io_uring only after the process has ended, so a server that is
/// started right after its predecessor was killed finds the port in use. Therefore a port in use is tried
/// again for a while. Blocks: to be called before this thread has an executor.
///
/// # Errors
/// The port is taken or the address not usable.
pub fn bind(address: SocketAddr) -> io::Result<Socket> {
    let start = Instant::now();
    loop {
        match try_bind(address) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && start.elapsed() < PORT_PATIENCE => {
                std::thread::sleep(Duration::from_millis(10));
            }
            bound => return bound,
        }
    }
}

/// Opens a port at once, or not at all.
///
/// # Errors
/// The port is taken or the address not usable.
pub fn listen(address: SocketAddr, backlog: i32) -> io::Result<Socket> {
    let socket = try_bind(address)?;
    socket.listen(backlog)?;
    Ok(socket)
}

/// As [`bind`], with one attempt: for threads with an executor, whose tasks would all wait.
///
/// # Errors
/// The port is taken or the address not usable.
pub fn try_bind(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.bind(&address.into())?;
    Ok(socket)
}
