//! The reactor as a runtime, and the host's environment on it.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use ringkeeper_host::env::{Class, Task};
use socket2::Socket;

use super::executor;
use super::storage::RingFile;
use super::tcp::{TcpListener, TcpStream};
use crate::env::MachineEnv;
use crate::runtime::Runtime;

/// Bytes for a peer that may be copied to wait behind a send under way: many short batches, so that they take
/// one turn.
const ROOM_OF_LINK: usize = 2 << 20;

/// The host's environment on the reactor.
pub type ReactorEnv = MachineEnv<RingFile>;

/// The executor of the reactor on this thread.
#[derive(Clone, Copy)]
pub struct Reactor;

impl Runtime for Reactor {
    type Tcp = TcpStream;
    type Port = TcpListener;
    type Task = RunningTask;

    fn here() -> Self {
        Self
    }

    fn spawn(&self, class: Class, task: impl Future<Output = ()> + 'static) -> RunningTask {
        RunningTask(executor::spawn(class, task))
    }

    fn sleep(time: Duration) -> impl Future<Output = ()> + 'static {
        super::sleep(time)
    }

    fn yield_now() -> impl Future<Output = ()> + 'static {
        executor::yield_now()
    }

    fn yield_if_needed() -> impl Future<Output = ()> + 'static {
        executor::yield_if_needed()
    }

    async fn unblock<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> T {
        executor::unblock(call).await
    }

    async fn connect(address: SocketAddr, patience: Duration) -> io::Result<TcpStream> {
        Ok(TcpStream::with_room(TcpStream::connect(address, patience).await?, ROOM_OF_LINK))
    }

    fn adopt(socket: Socket) -> io::Result<TcpListener> {
        Ok(TcpListener::from(OwnedFd::from(socket)))
    }

    async fn accept(port: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
        loop {
            // A connection of the machine's own has no address, and no peer behind it.
            if let (socket, Some(address)) = port.accept().await? {
                return Ok((TcpStream::with_room(socket, ROOM_OF_LINK), address));
            }
        }
    }

    fn close(port: &TcpListener) {
        port.shut_down();
    }
}

/// A task of this thread's executor.
pub struct RunningTask(executor::Task<()>);

impl Task for RunningTask {
    fn detach(self) {
        self.0.detach();
    }

    async fn cancel(self) {
        self.0.cancel().await;
    }
}
