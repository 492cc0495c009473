//! Strangers: connections to the servers' ports for each other, by someone who does not know their secret.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use futures_lite::future::or;
use futures_lite::{AsyncReadExt, AsyncWriteExt};
use ringkeeper_host::env::{Class, Connection, Env, PeerAddress, Stream};
use ringkeeper_host::links::MAGIC;

use super::violation::{Oracle, Violation};
use super::world::{PEER_PORT, World};
use crate::env::{Machines, SimEnv};

/// Length of a server's hello: all that it may say to a stranger.
const HELLO_BYTES: usize = 56;
/// A stranger that is not turned away leaves after this long.
const PATIENCE: Duration = Duration::from_secs(3);

/// The machine from which strangers come.
pub(super) struct Intruder {
    env: SimEnv,
    /// The first server that has believed one.
    believed: Rc<RefCell<Option<String>>>,
}

impl Intruder {
    /// A program on the machine with this number.
    pub(super) fn new(machines: &Machines, number: usize) -> Self {
        Self { env: machines.begin(number, PEER_PORT).0, believed: Rc::default() }
    }

    /// No stranger was ever taken for a server.
    pub(super) fn check(&self) -> Result<(), Violation> {
        let believed = self.believed.borrow();
        Oracle::Stranger.check(believed.is_none(), || believed.clone().unwrap_or_default())
    }
}

impl World {
    /// A stranger connects to a server, and says what no server says, or what one server says without the
    /// proof that it is that server.
    pub(super) fn intrude(&mut self, index: usize) {
        self.report.strangers += 1;
        let random = &mut self.random;
        let server = self.servers[index].id;
        let pretended = self.servers[random.index(self.servers.len())].id;
        let garbage = |len: usize, random: &mut crate::random::Random| -> Vec<u8> {
            (0..len).map(|_| random.next().to_le_bytes()[0]).collect()
        };
        let mut bytes = MAGIC.to_vec();
        bytes.extend(pretended.0.to_le_bytes());
        bytes.extend(server.0.to_le_bytes());
        match random.below(3) {
            0 => bytes = garbage(random.index(200), random),
            1 => bytes.truncate(random.index(bytes.len())),
            // A hello with its nonce, and a wrong proof.
            _ => bytes.extend(garbage(32 + 32, random)),
        }
        let leaves = random.chance(500);
        let (env, believed) = (self.intruder.env.clone(), Rc::clone(&self.intruder.believed));
        let peer = PeerAddress { id: server, host: Machines::name(index), port: PEER_PORT };
        let visit = async move {
            let heard = visit(&env, &peer, &bytes, leaves).await.unwrap_or_default();
            if heard > HELLO_BYTES {
                let what =
                    format!("server {server} says {heard} bytes to a stranger that has proved nothing");
                believed.borrow_mut().get_or_insert(what);
            }
        };
        self.intruder.env.spawn(Class::Requests, visit).detach();
    }
}

/// Says something to a server; how many bytes the server says before it hangs up, or the stranger does.
async fn visit(env: &SimEnv, peer: &PeerAddress, bytes: &[u8], leaves: bool) -> std::io::Result<usize> {
    let address: Vec<SocketAddr> = env.resolve(peer).await?;
    let stream = env.dial(address[0], PATIENCE).await?;
    let Connection { mut reader, mut writer, .. } = stream.open().await?;
    writer.write_all(bytes).await?;
    if leaves {
        return Ok(0);
    }
    let (mut heard, mut buffer) = (0, [0; 1024]);
    let listen = async {
        while let Ok(len @ 1..) = reader.read(&mut buffer).await {
            heard += len;
        }
    };
    or(listen, env.sleep(PATIENCE)).await;
    Ok(heard)
}
