//! The simulated machines that the shipped host runs on: [`Env`] with time, disks and a network from one
//! seed.
//!
//! ```text
//! host, application ── SimEnv ──┬── executor: order of turns, virtual time, timers
//!  (a process, which is paused  ├── machine: clocks that are wrong, a disk whose operations take time
//!   or ends at any await point) └── network: ordered bytes that are late, stall, come in pieces, break
//! ```

mod executor;
mod machine;
mod network;
pub mod strangers;
mod stream;

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use ringkeeper_engine::replica::Now;
use ringkeeper_host::env::{Class, Env, Listener, PeerAddress, Task};
use ringkeeper_host::links::Port;
use ringkeeper_log::memory::MemoryStorage;
use ringkeeper_wire::ServerId;

pub(crate) use executor::{Executor, Process, SimTask};
pub(crate) use machine::{Hardware, Machine};
pub(crate) use network::{LANS, Lan, Network, Quality, SimListener};
pub(crate) use stream::SimStream;

use crate::random::Random;

/// Ends the names of machines in the second network.
const SECOND: &str = "-b";

/// Factor by which turns of background tasks are delayed at most.
const BACKGROUND_SLOWNESS: u64 = 20;

/// All machines of a run, and the networks between them. Machine `n` has the name `machine-n` and the address
/// 10.0.0.`n`, and in the second network `machine-n-b` and 10.1.0.`n`.
pub(crate) struct Machines {
    executor: Executor,
    network: Network,
    machines: Vec<Rc<Machine>>,
}

impl Machines {
    pub(crate) fn new(executor: &Executor, quality: Quality, hardware: &[Hardware]) -> Self {
        let machine = |(number, hardware)| Machine::new(executor, number, hardware);
        Self {
            executor: executor.clone(),
            network: Network::new(executor, quality),
            machines: hardware.iter().copied().enumerate().map(machine).collect(),
        }
    }

    pub(crate) const fn network(&self) -> &Network {
        &self.network
    }

    pub(crate) fn machine(&self, number: usize) -> &Rc<Machine> {
        &self.machines[number]
    }

    /// The name by which a machine is dialed.
    pub(crate) fn name(number: usize) -> String {
        Self::name_in(number, 0)
    }

    /// Its name in one of the networks.
    pub(crate) fn name_in(number: usize, lan: Lan) -> String {
        format!("machine-{number}{}", if lan == 0 { "" } else { SECOND })
    }

    /// The port of the server with the next greater number.
    pub(crate) fn port(number: usize, port: u16, listener: SimListener) -> Port<SimListener> {
        let named = PeerAddress { id: ServerId(number as u64 + 1), host: Self::name(number), port };
        Port { named, address: SocketAddr::new(address(number, 0), port), listener }
    }

    /// Begins a process on a machine, and has it listen on a port.
    pub(crate) fn begin(&self, number: usize, port: u16) -> (SimEnv, SimListener) {
        let machine = Rc::clone(&self.machines[number]);
        let process = machine.begin();
        let listener = self.network.listen((number, 0, port), &process);
        (SimEnv { machine, process, network: self.network.clone() }, listener)
    }

    /// Stops the process on a machine where it is, until then.
    pub(crate) fn pause(&self, number: usize, until_us: u64) {
        if let Some(process) = self.machines[number].process() {
            self.executor.pause(&process, until_us);
        }
    }

    /// Ends the process on a machine, wherever its tasks are. The caller decides what survives on the disk;
    /// the other ends of its connections learn of it after `silence_us`.
    pub(crate) fn end(&self, number: usize, silence_us: u64) {
        let machine = &self.machines[number];
        if let Some(process) = machine.process() {
            self.network.reset(&process, silence_us);
            machine.end();
        }
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        // Events in flight and the network hold each other alive.
        self.network.clear();
        self.executor.clear();
        self.machines.iter().for_each(|machine| drop(machine.end()));
    }
}

/// A machine, as the process on it sees it.
#[derive(Clone)]
pub(crate) struct SimEnv {
    machine: Rc<Machine>,
    process: Rc<Process>,
    network: Network,
}

/// The address of a machine in a network.
fn address(number: usize, lan: Lan) -> IpAddr {
    let byte = |number: usize| u8::try_from(number).expect("few machines, fewer networks");
    Ipv4Addr::new(10, byte(lan), 0, byte(number)).into()
}

/// The machine with an address, and the network that the address belongs to.
fn machine_at(address: SocketAddr) -> Option<(usize, Lan)> {
    let IpAddr::V4(address) = address.ip() else { return None };
    let [10, lan, 0, number] = address.octets() else { return None };
    Some((number.into(), lan.into()))
}

impl SimEnv {
    /// The folder of this process.
    pub(crate) fn storage(&self) -> MemoryStorage {
        self.machine.disk().storage()
    }

    fn executor(&self) -> &Executor {
        &self.machine.executor
    }
}

impl Env for SimEnv {
    type Storage = MemoryStorage;
    type Stream = SimStream;
    type Listener = SimListener;
    type Task = SimTask;

    fn now(&self) -> Now {
        self.machine.now()
    }

    fn elapsed(&self) -> Duration {
        Duration::from_micros(self.machine.elapsed_us())
    }

    fn random(&self) -> u64 {
        self.executor().draw(Random::next)
    }

    fn sleep(&self, time: Duration) -> impl Future<Output = ()> + 'static {
        let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.executor().sleep_us(self.machine.real_us(us))
    }

    fn yield_now(&self) -> impl Future<Output = ()> + 'static {
        self.executor().sleep_behind_ready()
    }

    fn yield_if_needed(&self) -> impl Future<Output = ()> + 'static {
        let needed = self.executor().draw(|random| random.chance(100));
        let sleep = needed.then(|| self.executor().sleep_behind_ready());
        async move {
            if let Some(sleep) = sleep {
                sleep.await;
            }
        }
    }

    fn aside<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> impl Future<Output = T> + 'static {
        std::future::ready(work())
    }

    fn spawn(&self, class: Class, task: impl Future<Output = ()> + 'static) -> SimTask {
        let slowness = if class == Class::Background { BACKGROUND_SLOWNESS } else { 1 };
        self.executor().spawn(&self.process, slowness, task)
    }

    async fn resolve(&self, peer: &PeerAddress) -> io::Result<Vec<SocketAddr>> {
        let unknown = || io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        let name = peer.host.strip_prefix("machine-").ok_or_else(unknown)?;
        let (number, lan) = name.strip_suffix(SECOND).map_or((name, 0), |number| (number, 1));
        let number = number.parse().map_err(|_| unknown())?;
        Ok(vec![SocketAddr::new(address(number, lan), peer.port)])
    }

    async fn dial(&self, address: SocketAddr, patience: Duration) -> io::Result<SimStream> {
        let (to, lan) = machine_at(address).ok_or(io::ErrorKind::AddrNotAvailable)?;
        let us = u64::try_from(patience.as_micros()).unwrap_or(u64::MAX);
        let patience_us = self.machine.real_us(us);
        self.network.dial(self.machine.number, &self.process, (to, lan, address.port()), patience_us).await
    }

    fn listen(&self, address: SocketAddr) -> io::Result<SimListener> {
        let (number, lan) = machine_at(address).ok_or(io::ErrorKind::AddrNotAvailable)?;
        if number != self.machine.number || self.network.is_down(number, lan) {
            return Err(io::ErrorKind::AddrNotAvailable.into());
        }
        let at = (number, lan, address.port());
        if self.network.is_taken(at) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        Ok(self.network.listen(at, &self.process))
    }
}

impl Task for SimTask {
    fn detach(self) {
        Self::detach(self);
    }

    async fn cancel(self) {
        drop(self);
    }
}

impl Listener for SimListener {
    type Stream = SimStream;

    async fn accept(&self) -> io::Result<(SimStream, SocketAddr)> {
        let (stream, (from, lan)) = self.next().await;
        Ok((stream, SocketAddr::new(address(from, lan), 0)))
    }
}

#[cfg(test)]
mod tests;
