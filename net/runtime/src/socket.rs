//! Passes sockets from the system to an executor, and between executors.
#![expect(unsafe_code, reason = "descriptors change hands between the system, executors and threads")]

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd};
use std::time::{Duration, Instant};

use glommio::net::{TcpListener, TcpStream};
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

fn try_bind(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.bind(&address.into())?;
    Ok(socket)
}

/// Passes a listening socket to this thread's executor.
#[must_use]
pub fn adopt(socket: Socket) -> TcpListener {
    // SAFETY: the descriptor is a socket, `into_raw_fd` gives up its ownership, and nobody else has it.
    unsafe { TcpListener::from_raw_fd(socket.into_raw_fd()) }
}

/// Passes a connection to this thread's executor.
#[must_use]
pub fn adopt_stream(socket: Socket) -> TcpStream {
    // SAFETY: the descriptor is a connected socket, `into_raw_fd` gives up its ownership, and nobody else has
    // it.
    unsafe { TcpStream::from_raw_fd(socket.into_raw_fd()) }
}

/// Takes a connection from this thread's executor, to pass it to another one. Closed when it is dropped.
///
/// # Errors
/// No file descriptor is free.
pub fn release(stream: TcpStream) -> io::Result<Socket> {
    // SAFETY: the stream lives, and with it its descriptor, until the duplicate is made.
    let borrowed = unsafe { BorrowedFd::borrow_raw(stream.as_raw_fd()) };
    borrowed.try_clone_to_owned().map(Socket::from)
}

/// Resets a connection: unsent data is dropped, and the other end is told. A mere close would keep that data,
/// and the connection, for a client that does not read.
pub fn reset(stream: &TcpStream) {
    // SAFETY: the stream lives, and with it its descriptor, for the length of this call.
    let borrowed = unsafe { BorrowedFd::borrow_raw(stream.as_raw_fd()) };
    // It fails only if the connection has ended, which is the wanted result.
    let _ = rustix::net::connect_unspec(borrowed);
}

/// Closes a connection in both directions, and ends its pending reads.
pub fn shut_down(stream: &TcpStream) {
    // SAFETY: the stream lives, and with it its descriptor, for the length of this call.
    let borrowed = unsafe { BorrowedFd::borrow_raw(stream.as_raw_fd()) };
    // It may be closed already.
    let _ = rustix::net::shutdown(borrowed, rustix::net::Shutdown::Both);
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
