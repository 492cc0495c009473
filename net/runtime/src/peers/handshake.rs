//! The handshake between servers: both prove who they are before any message is read.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use futures_lite::future::or;
use futures_lite::{AsyncReadExt, AsyncWriteExt};
use glommio::net::TcpStream;
use hmac::{Hmac, KeyInit, Mac};
use ringkeeper_wire::ServerId;
use sha2::Sha256;

/// The beginning of a hello. The last byte is the version of all messages between servers: builds with
/// different versions refuse each other.
const MAGIC: &[u8; 8] = b"RKPEER\0\x04";
const NONCE_BYTES: usize = 32;
const HELLO_BYTES: usize = 8 + 8 + 8 + NONCE_BYTES;
const PROOF_BYTES: usize = 32;

/// A connection that is not authenticated within this time is closed.
const PATIENCE: Duration = Duration::from_secs(2);

/// This server's id and the secret.
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
    /// The dialer's side; the dialer sends first.
    pub(super) async fn begin(&self, stream: &mut TcpStream, peer: ServerId) -> io::Result<()> {
        in_time(async {
            let own = self.hello(peer)?;
            stream.write_all(&own.encode()).await?;
            let theirs = read_hello(stream).await?;
            if theirs.from != peer || theirs.to != self.own {
                return Err(io::Error::other(format!(
                    "server {} answers in place of server {peer}",
                    theirs.from
                )));
            }
            self.prove(stream, own, theirs).await?;
            self.check_proof(stream, own, theirs).await
        })
        .await
    }

    /// The listener's side; returns the server that has connected.
    pub(super) async fn answer(&self, stream: &mut TcpStream) -> io::Result<ServerId> {
        in_time(async {
            let theirs = read_hello(stream).await?;
            if theirs.to != self.own {
                return Err(io::Error::other(format!(
                    "server {} takes this for server {}",
                    theirs.from, theirs.to
                )));
            }
            let own = self.hello(theirs.from)?;
            stream.write_all(&own.encode()).await?;
            // The dialer has to prove itself first, so a stranger gets nothing made with the secret.
            self.check_proof(stream, own, theirs).await?;
            self.prove(stream, own, theirs).await?;
            Ok(theirs.from)
        })
        .await
    }

    fn hello(&self, to: ServerId) -> io::Result<Hello> {
        let mut nonce = [0; NONCE_BYTES];
        getrandom::fill(&mut nonce).map_err(io::Error::other)?;
        Ok(Hello { from: self.own, to, nonce })
    }

    async fn prove(&self, stream: &mut TcpStream, own: Hello, theirs: Hello) -> io::Result<()> {
        stream.write_all(&self.proof(own, theirs).finalize().into_bytes()).await
    }

    async fn check_proof(&self, stream: &mut TcpStream, own: Hello, theirs: Hello) -> io::Result<()> {
        let mut proof = [0; PROOF_BYTES];
        let unknown = || {
            let reason = "this server and that one do not share a secret (ringkeeper.peerSecretFile)";
            io::Error::new(io::ErrorKind::PermissionDenied, format!("server {}: {reason}", theirs.from))
        };
        match stream.read_exact(&mut proof).await {
            // A listener that refuses the proof closes the connection.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(unknown()),
            read => read?,
        }
        self.proof(theirs, own).verify_slice(&proof).map_err(|_| unknown())
    }

    /// The proof that `from` sends to `to`. The two directions differ, so a proof cannot be reflected to its
    /// sender.
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

#[cfg(test)]
mod tests {
    use glommio::LocalExecutor;
    use glommio::net::TcpListener;

    use super::*;

    fn server(own: u64, secret: &[u8]) -> Handshake {
        Handshake { own: ServerId(own), secret: secret.into() }
    }

    /// How listener 1 answers a stranger that sends these bytes, then waits (`stay`) or closes.
    fn answer_to(bytes: &[u8], stay: bool) -> io::ErrorKind {
        LocalExecutor::default().run(async {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
            let address = listener.local_addr().expect("bound");
            let stranger = async {
                let mut stream = TcpStream::connect(address).await.expect("connected");
                stream.write_all(bytes).await.expect("sent");
                stay.then_some(stream)
            };
            let answer = async {
                let mut stream = listener.accept().await.expect("accepted");
                server(1, b"s").answer(&mut stream).await.expect_err("a stranger").kind()
            };
            futures_lite::future::zip(stranger, answer).await.1
        })
    }

    /// How a handshake ends for the dialer, who expects server `peer`, and for the listener.
    fn shake(dialer: Handshake, peer: u64, listens: Handshake) -> (io::Result<()>, io::Result<ServerId>) {
        LocalExecutor::default().run(async {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
            let address = listener.local_addr().expect("bound");
            let begin = async {
                let mut stream = TcpStream::connect(address).await.expect("connected");
                dialer.begin(&mut stream, ServerId(peer)).await
            };
            let answer = async {
                let mut stream = listener.accept().await.expect("accepted");
                listens.answer(&mut stream).await
            };
            futures_lite::future::zip(begin, answer).await
        })
    }

    #[test]
    fn servers_that_share_a_secret_come_to_know_each_other() {
        let (dialer, listener) = shake(server(2, b"secret"), 1, server(1, b"secret"));
        dialer.expect("server 1 has shown itself");
        assert_eq!(listener.expect("server 2 has shown itself"), ServerId(2));
    }

    #[test]
    fn another_secret_is_refused_on_both_sides_and_named() {
        let (dialer, listener) = shake(server(2, b"wrong"), 1, server(1, b"right"));
        for error in [dialer.expect_err("refused"), listener.expect_err("refused")] {
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
            assert!(error.to_string().contains("peerSecretFile"), "{error}");
        }
    }

    #[test]
    fn a_server_that_is_not_the_one_dialed_is_refused() {
        let (dialer, listener) = shake(server(2, b""), 3, server(1, b""));
        dialer.expect_err("server 1 is not server 3");
        let error = listener.expect_err("it is not server 3").to_string();
        assert_eq!(error, "server 2 takes this for server 3");
    }

    #[test]
    fn strangers_are_told_apart_by_their_first_bytes_or_run_out_of_time() {
        let mut wrong_version = Hello { from: ServerId(2), to: ServerId(1), nonce: [0; 32] }.encode();
        wrong_version[7] ^= 1;
        assert_eq!(answer_to(&wrong_version, true), io::ErrorKind::InvalidData);
        assert_eq!(answer_to(&[0x55; 500], true), io::ErrorKind::InvalidData);
        assert_eq!(answer_to(b"GET / HTTP/1.1\r\n\r\n", false), io::ErrorKind::UnexpectedEof);
        assert_eq!(answer_to(b"RK", true), io::ErrorKind::TimedOut);
    }
}
