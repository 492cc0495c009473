//! Peers prove who they are before a byte of theirs is believed.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use futures_lite::future::or;
use futures_lite::{AsyncReadExt, AsyncWriteExt};
use glommio::net::TcpStream;
use hmac::{Hmac, KeyInit, Mac};
use ringkeeper_wire::ServerId;
use sha2::Sha256;

const MAGIC: &[u8; 8] = b"RKPEER\0\x01";
const NONCE_BYTES: usize = 32;
const HELLO_BYTES: usize = 8 + 8 + 8 + NONCE_BYTES;
const PROOF_BYTES: usize = 32;

/// Whoever has not introduced himself by then is cut off.
const PATIENCE: Duration = Duration::from_secs(2);

/// What this server brings to a handshake.
pub(super) struct Handshake {
    pub(super) own: ServerId,
    pub(super) secret: Rc<[u8]>,
}

#[derive(Clone, Copy)]
struct Hello {
    from: ServerId,
    to: ServerId,
    nonce: [u8; NONCE_BYTES],
}

impl Handshake {
    /// The dialer's side: it speaks first.
    pub(super) async fn begin(&self, stream: &mut TcpStream, peer: ServerId) -> io::Result<()> {
        in_time(async {
            let own = self.hello(peer)?;
            stream.write_all(&own.encode()).await?;
            let theirs = read_hello(stream).await?;
            if theirs.from != peer || theirs.to != self.own {
                return Err(io::Error::other(format!("server {} answers in place of server {peer}", theirs.from)));
            }
            self.exchange_proofs(stream, own, theirs).await
        })
        .await
    }

    /// The listener's side: who has connected?
    pub(super) async fn answer(&self, stream: &mut TcpStream) -> io::Result<ServerId> {
        in_time(async {
            let theirs = read_hello(stream).await?;
            if theirs.to != self.own {
                return Err(io::Error::other(format!("server {} takes this for server {}", theirs.from, theirs.to)));
            }
            let own = self.hello(theirs.from)?;
            stream.write_all(&own.encode()).await?;
            self.exchange_proofs(stream, own, theirs).await?;
            Ok(theirs.from)
        })
        .await
    }

    fn hello(&self, to: ServerId) -> io::Result<Hello> {
        let mut nonce = [0; NONCE_BYTES];
        getrandom::fill(&mut nonce).map_err(io::Error::other)?;
        Ok(Hello { from: self.own, to, nonce })
    }

    async fn exchange_proofs(&self, stream: &mut TcpStream, own: Hello, theirs: Hello) -> io::Result<()> {
        let proof = self.proof(own, theirs).finalize().into_bytes();
        stream.write_all(&proof).await?;
        let mut proof = [0; PROOF_BYTES];
        stream.read_exact(&mut proof).await?;
        self.proof(theirs, own).verify_slice(&proof).map_err(|_| {
            io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!("server {} does not know this ensemble's secret (ringkeeper.peerSecretFile)", theirs.from),
            )
        })
    }

    /// What `from` has to show `to`: each side's differs, so that none can be sent back to where it came from.
    fn proof(&self, from: Hello, to: Hello) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.secret).expect("HMAC takes keys of any length");
        mac.update(&from.encode());
        mac.update(&to.encode());
        mac
    }
}

impl Hello {
    fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..16].copy_from_slice(&self.from.0.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.to.0.to_le_bytes());
        bytes[24..].copy_from_slice(&self.nonce);
        bytes
    }
}

async fn read_hello(stream: &mut TcpStream) -> io::Result<Hello> {
    let mut bytes = [0; HELLO_BYTES];
    stream.read_exact(&mut bytes).await?;
    let number = |at: usize| {
        let mut number = [0; 8];
        number.copy_from_slice(&bytes[at..at + 8]);
        ServerId(u64::from_le_bytes(number))
    };
    if bytes[..8] != *MAGIC {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "not a ringkeeper server of this version"));
    }
    let mut nonce = [0; NONCE_BYTES];
    nonce.copy_from_slice(&bytes[24..]);
    Ok(Hello { from: number(8), to: number(16), nonce })
}

async fn in_time<T>(handshake: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    or(handshake, async {
        glommio::timer::sleep(PATIENCE).await;
        Err(io::Error::new(io::ErrorKind::TimedOut, "no introduction in time"))
    })
    .await
}
