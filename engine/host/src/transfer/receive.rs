//! Receiving a snapshot from the leader, and putting it in the place of log and state.
//!
//! Its pieces go to a file of their own. When all have come, the file is verified and durable under a name
//! that is not a snapshot's yet; then the log's task resets the log to it, which is the moment that counts,
//! and gives it its name. What came of a transfer that broke off is kept, by a restart of this server as
//! well, and told the leader when it begins to send the same one again.

use bytes::Bytes;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::time::Duration;

use ringkeeper_engine::zab::{Input, LogPosition, Message};
use ringkeeper_log::snapshot::{Head, Incoming, SnapshotError, Snapshots};
use ringkeeper_log::storage::Storage;
use ringkeeper_wire::ServerId;

use super::WINDOW_BYTES_MAX;
use super::piece;
use crate::env::Env;
use crate::log_task::Command;
use crate::pump::{Frontend, Pump};
use crate::wake::WakeFlag;

/// Received bytes that may wait to be written; the leader's window is smaller.
const WAITING_BYTES_MAX: u64 = 2 * WINDOW_BYTES_MAX as u64;

/// Pause after a failed transfer, before the snapshot is asked for again.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// A request of the broadcast to the receiver.
enum Wanted {
    Begin { from: ServerId, last: LogPosition },
    Piece(Bytes),
    Abort,
}

/// The requests of the broadcast, in order.
#[derive(Default)]
pub(crate) struct Receiving {
    wanted: RefCell<VecDeque<Wanted>>,
    waiting_bytes: Cell<u64>,
    work: WakeFlag,
}

impl Receiving {
    /// Begins to receive the snapshot that ends at `last`.
    pub(crate) fn begin(&self, from: ServerId, last: LogPosition) {
        self.push(Wanted::Begin { from, last });
    }

    /// Queues a piece. False if too many bytes wait already: the sender has exceeded its window.
    #[must_use]
    pub(crate) fn piece(&self, bytes: Bytes) -> bool {
        let waiting = self.waiting_bytes.get() + bytes.len() as u64;
        if waiting > WAITING_BYTES_MAX {
            return false;
        }
        self.waiting_bytes.set(waiting);
        self.push(Wanted::Piece(bytes));
        true
    }

    /// Gives up the snapshot.
    pub(crate) fn abort(&self) {
        self.push(Wanted::Abort);
    }

    fn push(&self, wanted: Wanted) {
        self.wanted.borrow_mut().push_back(wanted);
        self.work.raise();
    }

    async fn next(&self) -> Wanted {
        loop {
            let wanted = self.wanted.borrow_mut().pop_front();
            match wanted {
                Some(Wanted::Piece(bytes)) => {
                    self.waiting_bytes.set(self.waiting_bytes.get() - bytes.len() as u64);
                    return Wanted::Piece(bytes);
                }
                Some(wanted) => return wanted,
                None => poll_fn(|cx| self.work.poll_lower(cx)).await,
            }
        }
    }
}

/// A snapshot that is being received.
struct Current<S: Storage> {
    from: ServerId,
    last: LogPosition,
    file: Incoming<S>,
}

/// Why a snapshot was not received.
#[derive(Debug, thiserror::Error)]
enum ReceiveError {
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    #[error("what was sent is no piece of it")]
    Piece,
}

impl ReceiveError {
    /// Whether what came is not what was announced.
    const fn is_mangled(&self) -> bool {
        match self {
            Self::Snapshot(error) => error.is_damage() || matches!(error, SnapshotError::Gap { .. }),
            Self::Piece => true,
        }
    }
}

/// Receives snapshots, for as long as the server runs.
pub(crate) async fn receive_snapshots<E: Env, F: Frontend>(
    pump: Rc<Pump<E, F>>,
    snapshots: Snapshots<E::Storage>,
) {
    let mut current: Option<Current<E::Storage>> = None;
    let mut broken_off: Option<Current<E::Storage>> = None;
    loop {
        let result = match pump.receiving().next().await {
            Wanted::Begin { from, last } => {
                let begun = begin(&snapshots, from, last, broken_off.take()).await;
                begun.inspect(|current| current.tell(&pump)).map(Some)
            }
            Wanted::Piece(bytes) => match current.take() {
                Some(current) => current.piece(&bytes, &pump).await,
                // A piece of a transfer that was given up.
                None => Ok(None),
            },
            // Otherwise the snapshot is being installed, or was answered already.
            Wanted::Abort => {
                if let Some(current) = current.take() {
                    broken_off = Some(current);
                    pump.input(Input::SnapshotAborted);
                }
                Ok(None)
            }
        };
        current = match result {
            Ok(current) => current,
            Err(ReceiveError::Snapshot(error)) if error.is_fatal() => return pump.fail(error.to_string()),
            Err(error) => {
                tracing::error!(code = "RK0320", %error, "a snapshot was not received");
                if error.is_mangled() {
                    pump.frontend().mangled(error.to_string());
                }
                pump.env().sleep(AGAIN_AFTER).await;
                pump.input(Input::SnapshotAborted);
                None
            }
        };
    }
}

/// Begins to receive a snapshot, or continues with a part that is there already.
async fn begin<S: Storage>(
    snapshots: &Snapshots<S>,
    from: ServerId,
    last: LogPosition,
    broken_off: Option<Current<S>>,
) -> Result<Current<S>, ReceiveError> {
    if let Some(part) = broken_off {
        // Another leader's file at the same position has other bytes.
        if (part.from, part.last) == (from, last) {
            tracing::info!(leader = %from, zxid = %last.zxid, have = part.file.len(), "receiving the rest of a snapshot");
            return Ok(part);
        }
        part.file.abandon().await;
    }
    let file = snapshots.receive(from, last).await?;
    match file.len() {
        0 => tracing::info!(leader = %from, zxid = %last.zxid, "receiving a snapshot"),
        have => tracing::info!(leader = %from, zxid = %last.zxid, have, "receiving the rest of a snapshot"),
    }
    Ok(Current { from, last, file })
}

impl<S: Storage> Current<S> {
    /// Reports to the leader how many bytes are written.
    fn tell<E: Env, F: Frontend>(&self, pump: &Pump<E, F>) {
        let (zxid, upto) = (self.last.zxid, self.file.len());
        pump.links().send(self.from, &Message::SnapshotReceived { zxid, upto });
    }

    /// Writes a piece; `None` after the last one.
    async fn piece<E: Env, F: Frontend>(
        mut self,
        message: &[u8],
        pump: &Pump<E, F>,
    ) -> Result<Option<Self>, ReceiveError> {
        let written = match piece::decode(message).filter(|piece| piece.zxid == self.last.zxid) {
            Some(piece) => {
                let written = self.file.piece(piece.offset, piece.bytes).await;
                written.map(|()| piece.total).map_err(ReceiveError::from)
            }
            None => Err(ReceiveError::Piece),
        };
        let total = match written {
            Ok(total) => total,
            Err(error) => {
                self.file.abandon().await;
                return Err(error);
            }
        };
        self.tell(pump);
        if self.file.len() < total {
            return Ok(Some(self));
        }
        let zxid = self.last.zxid;
        let (cluster, version) = (pump.cluster(), Pump::<E, F>::STATE_VERSION);
        let checksum = self.last.checksum;
        let accept = |head: &Head| {
            head.chain == checksum
                && head.state_version == version
                && (cluster == 0 || head.cluster == cluster)
        };
        self.file.finish(zxid, accept).await?;
        tracing::info!(%zxid, bytes = total, "snapshot received");
        pump.log().push(Command::Install { last: self.last });
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_to_be_written_is_bounded() {
        let receiving = Receiving::default();
        let piece: Bytes = vec![0; 256 * 1024].into();
        let taken = (0..1000).take_while(|_| receiving.piece(piece.clone())).count();
        assert_eq!(taken as u64 * piece.len() as u64, WAITING_BYTES_MAX, "then the sender is cut off");
    }
}
