//! Sockets from the system's hands into an executor's, and between executors.
#![expect(unsafe_code, reason = "descriptors change hands between the system, executors and threads")]

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd};
use std::time::{Duration, Instant};

use glommio::net::{TcpListener, TcpStream};
use socket2::{Domain, Protocol, Socket, Type};

/// For how long a port that is in use may become free.
const PORT_PATIENCE: Duration = Duration::from_secs(2);

/// Binds a socket, which does not listen yet. SO_REUSEPORT stays off, so that a second server on the port is
/// refused; SO_REUSEADDR is on, so that a restart need not wait for old connections to time out.
///
/// The kernel takes io_uring apart only after the process is gone, and the sockets with it: a server that is
/// started the moment its predecessor was killed still finds the port in use. So it waits a little before it
/// believes that. To be called before there is an executor on this thread.
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

fn try_bind(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.bind(&address.into())?;
    Ok(socket)
}

/// Hands a listening socket to this thread's executor.
#[must_use]
pub fn adopt(socket: Socket) -> TcpListener {
    // SAFETY: the descriptor is a socket, `into_raw_fd` gives up its ownership, and nobody else has it.
    unsafe { TcpListener::from_raw_fd(socket.into_raw_fd()) }
}

/// Hands a connection to this thread's executor.
#[must_use]
pub fn adopt_stream(socket: Socket) -> TcpStream {
    // SAFETY: the descriptor is a connected socket, `into_raw_fd` gives up its ownership, and nobody else has
    // it.
    unsafe { TcpStream::from_raw_fd(socket.into_raw_fd()) }
}

/// Takes a connection off this thread's executor, for another one. Closed when it is dropped.
///
/// # Errors
/// No file descriptor is free.
pub fn release(stream: TcpStream) -> io::Result<Socket> {
    // SAFETY: the stream lives, and with it its descriptor, until the duplicate is made.
    let borrowed = unsafe { BorrowedFd::borrow_raw(stream.as_raw_fd()) };
    borrowed.try_clone_to_owned().map(Socket::from)
}

/// Ends a connection at once: what the system has not sent yet is dropped, and the other end hears of it by a
/// reset. Closing alone would keep the bytes for a client that does not take them, and the connection with
/// them.
pub fn reset(stream: &TcpStream) {
    // SAFETY: the stream lives, and with it its descriptor, for the length of this call.
    let borrowed = unsafe { BorrowedFd::borrow_raw(stream.as_raw_fd()) };
    // It fails only if the connection is gone, which is what is wanted.
    let _ = rustix::net::connect_unspec(borrowed);
}

/// A second handle of a connection, so that one task can read and another write.
///
/// # Errors
/// No file descriptor is free.
pub fn second(stream: &TcpStream) -> io::Result<TcpStream> {
    // SAFETY: the stream lives, and with it its descriptor, until the duplicate is made.
    let borrowed = unsafe { BorrowedFd::borrow_raw(stream.as_raw_fd()) };
    borrowed.try_clone_to_owned().map(|fd| adopt_stream(Socket::from(fd)))
}
