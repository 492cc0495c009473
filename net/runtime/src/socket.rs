//! Sockets as the system makes them, and their way to an executor of glommio.
#![expect(unsafe_code, reason = "descriptors change hands between the system and executors")]

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd};
use std::time::{Duration, Instant};

use glommio::net::{TcpListener, TcpStream};
use socket2::{Domain, Protocol, Socket, Type};

use crate::tls::Transport;

/// Connections from other servers that wait to be accepted.
pub(crate) const BACKLOG: i32 = 64;

/// Whether a server may listen at an address for others, and if not, why.
pub(crate) type MayListen = dyn Fn(SocketAddr) -> io::Result<()>;

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

impl Transport for TcpStream {
    fn set_nodelay(&self) -> io::Result<()> {
        Ok(Self::set_nodelay(self, true)?)
    }

    async fn first_byte(&self) -> io::Result<Option<u8>> {
        let mut first = [0];
        let peeked = self.peek(&mut first).await.map_err(io::Error::from)?;
        Ok((peeked > 0).then_some(first[0]))
    }

    fn second(&self) -> io::Result<Self> {
        // SAFETY: the stream lives, and with it its descriptor, until the duplicate is made.
        let borrowed = unsafe { BorrowedFd::borrow_raw(self.as_raw_fd()) };
        let socket = borrowed.try_clone_to_owned().map(Socket::from)?;
        // SAFETY: the descriptor is a connected socket, `into_raw_fd` gives up its ownership, and nobody else
        // has it.
        Ok(unsafe { Self::from_raw_fd(socket.into_raw_fd()) })
    }

    fn shut_down(&self) {
        // SAFETY: the stream lives, and with it its descriptor, for the length of this call.
        let borrowed = unsafe { BorrowedFd::borrow_raw(self.as_raw_fd()) };
        // It may be closed already.
        let _ = rustix::net::shutdown(borrowed, rustix::net::Shutdown::Both);
    }

    fn sleep(time: Duration) -> impl Future<Output = ()> {
        glommio::timer::sleep(time)
    }
}
