//! The handshake between servers: both prove who they are before any message is read.

use std::io;
use std::time::Duration;

use futures_lite::future::or;
use futures_lite::{AsyncReadExt, AsyncWriteExt};
use hmac::{Hmac, KeyInit, Mac};
use ringkeeper_log::mutation::planted;
use ringkeeper_wire::ServerId;
use sha2::Sha256;

use super::Connection;
use crate::env::{Env, Stream};

/// The beginning of a hello. The last byte is the version of all messages between servers: builds with
/// different versions refuse each other.
pub const MAGIC: &[u8; 8] = b"RKPEER\0\x04";
const NONCE_BYTES: usize = 32;
const HELLO_BYTES: usize = 8 + 8 + 8 + NONCE_BYTES;
const PROOF_BYTES: usize = 32;

/// A connection that is not authenticated within this time is closed.
const PATIENCE: Duration = Duration::from_secs(2);

/// This server's id and the secret.
pub(super) struct Handshake<'a, E> {
    pub(super) env: &'a E,
    pub(super) own: ServerId,
    pub(super) secret: &'a [u8],
}

#[derive(Clone, Copy)]
struct Hello {
    from: ServerId,
    to: ServerId,
    nonce: [u8; NONCE_BYTES],
}

impl<E: Env> Handshake<'_, E> {
    /// The dialer's side; the dialer sends first.
    pub(super) async fn begin(
        &self,
        connection: &mut Connection<impl Stream>,
        peer: ServerId,
    ) -> io::Result<()> {
        self.in_time(async {
            let own = self.hello(peer);
            connection.writer.write_all(&own.encode()).await?;
            let theirs = read_hello(connection).await?;
            if theirs.from != peer || theirs.to != self.own {
                return Err(io::Error::other(format!(
                    "server {} answers in place of server {peer}",
                    theirs.from
                )));
            }
            self.prove(connection, own, theirs).await?;
            self.check_proof(connection, own, theirs).await
        })
        .await
    }

    /// The listener's side; returns the server that has connected.
    pub(super) async fn answer(&self, connection: &mut Connection<impl Stream>) -> io::Result<ServerId> {
        self.in_time(async {
            let theirs = read_hello(connection).await?;
            if theirs.to != self.own {
                return Err(io::Error::other(format!(
                    "server {} takes this for server {}",
                    theirs.from, theirs.to
                )));
            }
            let own = self.hello(theirs.from);
            connection.writer.write_all(&own.encode()).await?;
            // The dialer has to prove itself first, so a stranger gets nothing made with the secret.
            self.check_proof(connection, own, theirs).await?;
            self.prove(connection, own, theirs).await?;
            Ok(theirs.from)
        })
        .await
    }

    fn hello(&self, to: ServerId) -> Hello {
        let mut nonce = [0; NONCE_BYTES];
        nonce.as_chunks_mut().0.iter_mut().for_each(|part| *part = self.env.random().to_le_bytes());
        Hello { from: self.own, to, nonce }
    }

    async fn prove(
        &self,
        connection: &mut Connection<impl Stream>,
        own: Hello,
        theirs: Hello,
    ) -> io::Result<()> {
        connection.writer.write_all(&self.proof(own, theirs).finalize().into_bytes()).await
    }

    async fn check_proof(
        &self,
        connection: &mut Connection<impl Stream>,
        own: Hello,
        theirs: Hello,
    ) -> io::Result<()> {
        let mut proof = [0; PROOF_BYTES];
        let unknown = || {
            let reason = "this server and that one do not share a secret (ringkeeper.peerSecretFile)";
            io::Error::new(io::ErrorKind::PermissionDenied, format!("server {}: {reason}", theirs.from))
        };
        match connection.reader.read_exact(&mut proof).await {
            // A listener that refuses the proof closes the connection.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(unknown()),
            read => read?,
        }
        if planted!(AcceptAnyProof) {
            return Ok(());
        }
        self.proof(theirs, own).verify_slice(&proof).map_err(|_| unknown())
    }

    /// The proof that `from` sends to `to`. The two directions differ, so a proof cannot be reflected to its
    /// sender.
    fn proof(&self, from: Hello, to: Hello) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(self.secret).expect("HMAC takes keys of any length");
        mac.update(&from.encode());
        mac.update(&to.encode());
        mac
    }

    async fn in_time<T>(&self, handshake: impl Future<Output = io::Result<T>>) -> io::Result<T> {
        or(handshake, async {
            self.env.sleep(PATIENCE).await;
            Err(io::Error::new(io::ErrorKind::TimedOut, "no introduction in time"))
        })
        .await
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

async fn read_hello(connection: &mut Connection<impl Stream>) -> io::Result<Hello> {
    let mut bytes = [0; HELLO_BYTES];
    connection.reader.read_exact(&mut bytes).await?;
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
