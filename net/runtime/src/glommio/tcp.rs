//! Sockets of the system on an executor of glommio.
#![expect(unsafe_code, reason = "descriptors change hands between the system and executors")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd};

use glommio::net::{TcpListener, TcpStream};
use socket2::Socket;

use super::env::Glommio;
use crate::tls::Transport;

/// Passes a listening socket to this thread's executor.
pub(super) fn adopt(socket: Socket) -> TcpListener {
    // SAFETY: the descriptor is a socket, `into_raw_fd` gives up its ownership, and nobody else has it.
    unsafe { TcpListener::from_raw_fd(socket.into_raw_fd()) }
}

impl Transport for TcpStream {
    type Runtime = Glommio;

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
}
