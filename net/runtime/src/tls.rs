//! TLS on this executor's connections: handshakes, whose cryptography threads of their own do, since one
//! signature takes longer than an executor may be held; then records, which the executor seals and opens
//! itself.

mod connection;
mod peer;
mod transport;

use std::cell::RefCell;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_lite::AsyncWriteExt;
use futures_lite::future::or;
use ringkeeper_tls::rustls::{self, Connection};
use ringkeeper_tls::{Error, Party, Stores};

use crate::helper::Helper;
use crate::runtime::Runtime;
pub use connection::TlsConnection;
pub use peer::{PeerStream, PeerTls};
pub use transport::Transport;

/// Bytes of a handshake that are read at once.
const READ_BYTES: usize = 8 * 1024;

/// The first byte of a handshake's first record.
pub const HANDSHAKE_RECORD: u8 = 22;

/// How often the files of stores are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Why the server does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A store cannot be used.
    #[error(transparent)]
    Settings(#[from] Error),
    /// The system refuses another thread.
    #[error("the threads for TLS handshakes cannot start: {0}")]
    Thread(#[from] io::Error),
}

/// Why a connection is closed at its handshake.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// One end refuses the other: what is wrong and, where the operator can do something about it, what.
    #[error("{0}")]
    Refused(String),
    /// The other end did not finish it.
    #[error("the {0} closed the connection in the handshake")]
    Closed(Party),
    /// It took too long.
    #[error("the handshake took more than {} s", .0.as_secs_f32())]
    Timeout(Duration),
    /// The socket failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// What it means that stores were read again.
#[must_use]
pub fn reloaded(party: Party) -> String {
    format!("new TLS handshakes with {party}s use the keys and certificates that were changed")
}

/// Does a handshake that has begun, within `patience`. The other end has been told if it is refused. Bytes
/// are read through `buffer`, which is borrowed only while there are some.
///
/// # Errors
/// An end is refused, went away or was too slow.
pub async fn handshake<T: Transport>(
    session: Result<Connection, rustls::Error>,
    tcp: T,
    party: Party,
    helper: &Helper,
    buffer: &RefCell<Box<[u8]>>,
    patience: Duration,
) -> Result<TlsConnection<T>, HandshakeError> {
    let refused = |error| HandshakeError::Refused(party.explain(&error));
    let session = session.map(Box::new).map_err(refused)?;
    in_time::<T, _>(patience, async {
        let (mut session, mut tcp) = (session, tcp);
        tcp.write_all(&output(&mut session)).await?;
        while session.is_handshaking() {
            let received = poll_fn(|cx| {
                let mut buffer = buffer.borrow_mut();
                let read = Pin::new(&mut tcp).poll_read(cx, &mut buffer[..READ_BYTES]);
                read.map_ok(|bytes| buffer[..bytes].to_vec())
            });
            let received = received.await?;
            if received.is_empty() {
                return Err(HandshakeError::Closed(party));
            }
            let stepped = helper.run(move || step(session, &received)).await;
            let (outcome, reply);
            (session, outcome, reply) = stepped.ok_or(HandshakeError::Closed(party))?;
            let sent = tcp.write_all(&reply).await;
            if let Err(error) = outcome {
                let _ = tcp.close().await;
                return Err(refused(error));
            }
            sent?;
        }
        Ok(TlsConnection::new(tcp, session, party))
    })
    .await
}

/// Whether a connection begins with a TLS handshake. Waits for its first byte, which stays to be read.
///
/// # Errors
/// Nothing comes within `patience`.
pub async fn begins_handshake<T: Transport>(
    tcp: &T,
    party: Party,
    patience: Duration,
) -> Result<bool, HandshakeError> {
    in_time::<T, _>(patience, async {
        let first = tcp.first_byte().await?.ok_or(HandshakeError::Closed(party))?;
        Ok(first == HANDSHAKE_RECORD)
    })
    .await
}

/// Reads stores again whenever a file of theirs has changed, for as long as the server runs, and logs what
/// that means. Stores that cannot be used are logged, and the last ones stay.
pub async fn reload<R, C, E>(stores: Arc<Stores<C, E>>, meaning: String, helper: Helper)
where
    R: Runtime,
    C: Send + Sync + 'static,
    E: fmt::Display + Send + 'static,
{
    loop {
        R::sleep(LOOK_EVERY).await;
        let changed = Arc::clone(&stores);
        match helper.run(move || changed.reload_changed()).await {
            Some(Ok(true)) => tracing::info!("{meaning}"),
            Some(Err(error)) => {
                tracing::warn!(
                    code = "RK0106",
                    %error,
                    "a changed file cannot be used, what was read last stays"
                )
            }
            Some(Ok(false)) | None => {}
        }
    }
}

async fn in_time<T: Transport, O>(
    patience: Duration,
    step: impl Future<Output = Result<O, HandshakeError>>,
) -> Result<O, HandshakeError> {
    or(step, async {
        T::Runtime::sleep(patience).await;
        Err(HandshakeError::Timeout(patience))
    })
    .await
}

/// Lets the session have what was received. Returns it with the outcome, and the bytes to be sent.
fn step(
    mut session: Box<Connection>,
    mut received: &[u8],
) -> (Box<Connection>, Result<(), rustls::Error>, Vec<u8>) {
    let mut outcome = Ok(());
    while !received.is_empty() && outcome.is_ok() {
        outcome = match session.read_tls(&mut received) {
            Ok(_) => session.process_new_packets().map(drop),
            Err(error) => Err(rustls::Error::General(error.to_string())),
        };
    }
    let reply = output(&mut session);
    (session, outcome, reply)
}

/// What the session has to send.
fn output(session: &mut Connection) -> Vec<u8> {
    let mut bytes = Vec::new();
    while session.wants_write() && session.write_tls(&mut bytes).is_ok() {}
    bytes
}
