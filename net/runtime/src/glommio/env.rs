//! glommio as a runtime, and the host's environment on it.

use std::future::Future;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::time::Duration;

use glommio::net::{TcpListener, TcpStream};
use glommio::{Latency, Shares, TaskQueueHandle};
use ringkeeper_host::env::{Class, Task};
use socket2::Socket;

use super::dma::DmaDiskFile;
use super::tcp::adopt;
use crate::env::MachineEnv;
use crate::runtime::Runtime;

/// CPU shares of [`Class::Background`]; all other tasks together have 1000.
const BACKGROUND_SHARES: usize = 10;

/// The host's environment on glommio.
pub type GlommioEnv = MachineEnv<DmaDiskFile>;

/// The executor of glommio on this thread.
#[derive(Clone)]
pub struct Glommio {
    background: TaskQueueHandle,
}

impl Runtime for Glommio {
    type Tcp = TcpStream;
    type Port = Port;
    type Task = RunningTask;

    fn here() -> Self {
        let shares = Shares::Static(BACKGROUND_SHARES);
        let background = glommio::executor().create_task_queue(shares, Latency::NotImportant, "background");
        Self { background }
    }

    fn spawn(&self, class: Class, task: impl Future<Output = ()> + 'static) -> RunningTask {
        RunningTask(match class {
            Class::Requests => glommio::spawn_local(task),
            Class::Background => glommio::spawn_local_into(task, self.background)
                .expect("the queue was made on this executor and is never removed"),
        })
    }

    fn sleep(time: Duration) -> impl Future<Output = ()> + 'static {
        glommio::timer::sleep(time)
    }

    async fn yield_now() {
        glommio::executor().yield_task_queue_now().await;
    }

    fn yield_if_needed() -> impl Future<Output = ()> + 'static {
        glommio::yield_if_needed()
    }

    async fn unblock<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> T {
        glommio::executor().spawn_blocking(call).await
    }

    async fn connect(address: SocketAddr, patience: Duration) -> io::Result<TcpStream> {
        Ok(TcpStream::connect_timeout(address, patience).await?)
    }

    fn adopt(socket: Socket) -> io::Result<Port> {
        let handle = socket.try_clone()?;
        Ok(Port { listener: adopt(socket), handle })
    }

    async fn accept(port: &Port) -> io::Result<(TcpStream, SocketAddr)> {
        loop {
            let stream = port.listener.accept().await?;
            // A connection that has ended already has no address.
            if let Ok(address) = stream.peer_addr() {
                return Ok((stream, address));
            }
        }
    }

    /// A pending accept of io_uring would hold the socket, and the port with it.
    fn close(port: &Port) {
        // It fails only if the socket does not listen any more, which is the wanted result.
        let _ = port.handle.shutdown(Shutdown::Both);
    }
}

/// A listening socket.
pub struct Port {
    listener: TcpListener,
    handle: Socket,
}

/// A task of this thread's executor.
pub struct RunningTask(glommio::Task<()>);

impl Task for RunningTask {
    fn detach(self) {
        self.0.detach();
    }

    async fn cancel(self) {
        self.0.cancel().await;
    }
}
