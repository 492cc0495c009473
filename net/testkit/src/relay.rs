//! A relay for the packets of a network among servers that are far apart: each packet takes so long.
//!
//! The kernel's own delay (netem) is missing from many kernels. So each server's interface is one of VXLAN,
//! whose packets go to this relay, and on to the server that has the address in their frame.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::net::sockopt::set_socket_recv_buffer_size_force;

/// Where VXLAN is received.
pub(crate) const PORT: u16 = 4789;

/// In front of a frame of Ethernet, which begins with the addresses of its receiver and its sender.
const VXLAN_HEADER_BYTES: usize = 8;
const MAC_BYTES: usize = 6;

/// Where the type of what a frame carries stands, and the type of IPv4, which follows it.
const TYPE_AT: usize = 12;
const IPV4: [u8; 2] = [8, 0];
const IP_AT: usize = TYPE_AT + 2;
const PROTOCOL_AT: usize = 9;
const ADDRESSES_AT: usize = 12;
const TCP: u8 = 6;
const TCP_CHECKSUM_AT: usize = 16;

/// How often the relay looks whether it is to end.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Bytes that may wait to be read: what a long line holds.
const BUFFER_BYTES: usize = 64 << 20;

/// A packet that is on its way, and when it arrives.
type OnTheWay = (Instant, SocketAddr, Vec<u8>);

/// Ends with this.
pub(crate) struct Relay {
    ends: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<()>>,
}

impl Relay {
    /// Relays at this address between these servers.
    pub(crate) fn start(at: Ipv4Addr, servers: Vec<Ipv4Addr>, delay: Duration) -> Result<Self> {
        let socket = Arc::new(UdpSocket::bind((at, PORT)).context("no port for a relay")?);
        socket.set_read_timeout(Some(LOOK_EVERY))?;
        set_socket_recv_buffer_size_force(&socket, BUFFER_BYTES)?;
        let ends = Arc::new(AtomicBool::new(false));
        let (sender, receiver) = mpsc::channel();
        let (receives, sends) = ((Arc::clone(&socket), Arc::clone(&ends)), socket);
        let receiving = spawn(move || receive(&receives.0, &receives.1, &servers, delay, &sender));
        let sending = spawn(move || send(&sends, &receiver));
        Ok(Self { ends, tasks: vec![receiving, sending] })
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        // A relay that has failed has lost packets, which the test that used it has seen.
        self.tasks.drain(..).for_each(|task| drop(task.join()));
    }
}

/// Takes packets until the relay ends, and learns which frames are whose.
fn receive(
    socket: &UdpSocket,
    ends: &AtomicBool,
    servers: &[Ipv4Addr],
    delay: Duration,
    sender: &Sender<OnTheWay>,
) {
    let mut owners = BTreeMap::<[u8; MAC_BYTES], Ipv4Addr>::new();
    let mut buffer = [0; 1 << 16];
    while !ends.load(Ordering::Relaxed) {
        let Ok((len, SocketAddr::V4(from))) = socket.recv_from(&mut buffer) else { continue };
        let packet = &mut buffer[..len];
        if let Some(frame) = packet.get_mut(VXLAN_HEADER_BYTES..) {
            finish_checksum(frame);
        }
        let addresses = packet.get(VXLAN_HEADER_BYTES..).unwrap_or_default().as_chunks().0;
        let [to, own, ..] = addresses else { continue };
        owners.insert(*own, *from.ip());
        let to: BTreeSet<_> = match owners.get(to) {
            Some(owner) => [*owner].into(),
            None => servers.iter().copied().filter(|server| server != from.ip()).collect(),
        };
        for server in to {
            // Nobody waits for packets any more: the relay ends.
            let _ = sender.send((Instant::now() + delay, (server, PORT).into(), packet.to_vec()));
        }
    }
}

/// Puts the checksum of TCP where the sender's kernel has left that to a network card.
fn finish_checksum(frame: &mut [u8]) {
    let Some((head, packet)) = frame.split_at_mut_checked(IP_AT) else { return };
    if head[TYPE_AT..] != IPV4 || packet.get(PROTOCOL_AT) != Some(&TCP) {
        return;
    }
    let (header_bytes, total_bytes) = (usize::from(packet[0] & 15) * 4, u16_at(packet, 2).into());
    let Some(ip) = packet.get_mut(..total_bytes).filter(|ip| ip.len() >= header_bytes + TCP_CHECKSUM_AT + 2)
    else {
        return;
    };
    let (header, segment) = ip.split_at_mut(header_bytes);
    segment[TCP_CHECKSUM_AT..][..2].fill(0);
    let words = |bytes: &[u8]| -> u64 {
        let (pairs, last) = bytes.as_chunks();
        let last = last.first().map_or(0, |byte| u64::from(*byte) << 8);
        pairs.iter().map(|pair| u64::from(u16::from_be_bytes(*pair))).sum::<u64>() + last
    };
    let mut sum =
        words(&header[ADDRESSES_AT..][..8]) + u64::from(TCP) + segment.len() as u64 + words(segment);
    while sum >> 16 > 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let checksum = !u16::try_from(sum).expect("folded");
    segment[TCP_CHECKSUM_AT..][..2].copy_from_slice(&checksum.to_be_bytes());
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Sends what arrives, until nobody receives any more.
fn send(socket: &UdpSocket, receiver: &Receiver<OnTheWay>) {
    for (at, to, packet) in receiver {
        sleep(at.saturating_duration_since(Instant::now()));
        // As on any network: whoever is gone gets nothing.
        let _ = socket.send_to(&packet, to);
    }
}
