//! Sending a snapshot to a peer that is too far behind: the file's own bytes, in pieces, as fast as it writes them.
//!
//! At most [`WINDOW_BYTES`] are under way, so heartbeats and proposals on the same link wait for no more than that, and
//! neither end holds more in memory. A transfer ends with the connection or the leadership, and begins anew when the
//! peer asks again.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::rc::Rc;
use std::time::{Duration, Instant};

use futures_lite::future::or;
use ringkeeper_engine::zab::{Input, LogMark, Message};
use ringkeeper_log::snapshot::{SnapshotError, Snapshots};
use ringkeeper_log::storage::Storage;
use ringkeeper_wire::{ServerId, Zxid};

use super::Trigger;
use super::piece::{self, Piece};
use crate::server::core_host::CoreHost;
use crate::server::peers::PeerHost;
use crate::server::wake::WakeFlag;

/// Bytes sent to a peer that it has not said to have written.
pub(super) const WINDOW_BYTES: u64 = 1 << 20;

/// A peer that writes nothing for this long is given up.
const STALL_MAX: Duration = Duration::from_secs(30);

/// How often it is looked whether a snapshot that was asked for is there.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The peers that are sent a snapshot.
#[derive(Default)]
pub(crate) struct Sending {
    flows: RefCell<BTreeMap<ServerId, Rc<Flow>>>,
    asked: RefCell<VecDeque<(ServerId, Rc<Flow>)>>,
    work: WakeFlag,
    /// What each peer was sent whole, or did not begin to take: when it asks again, that one did not help.
    sent: RefCell<BTreeMap<ServerId, Zxid>>,
}

/// One transfer.
#[derive(Default)]
struct Flow {
    /// Of the snapshot; zero while none is chosen.
    zxid: Cell<Zxid>,
    /// Bytes that the peer has written.
    received: Cell<u64>,
    cancelled: Cell<bool>,
    news: WakeFlag,
}

impl Sending {
    /// A peer needs a snapshot. What it is being sent, if anything, ends.
    pub(crate) fn ask(&self, to: ServerId) {
        self.cancel(to);
        let flow = Rc::new(Flow::default());
        self.flows.borrow_mut().insert(to, Rc::clone(&flow));
        self.asked.borrow_mut().push_back((to, flow));
        self.work.raise();
    }

    /// A peer has written so much.
    pub(crate) fn received(&self, from: ServerId, zxid: Zxid, upto: u64) {
        if let Some(flow) = self.flows.borrow().get(&from).filter(|flow| flow.zxid.get() == zxid) {
            flow.received.set(flow.received.get().max(upto));
            flow.news.raise();
        }
    }

    /// The peer is gone.
    pub(crate) fn cancel(&self, peer: ServerId) {
        if let Some(flow) = self.flows.borrow_mut().remove(&peer) {
            flow.cancelled.set(true);
            flow.news.raise();
        }
    }

    /// This server leads no more.
    pub(crate) fn cancel_all(&self) {
        let peers: Vec<_> = self.flows.borrow().keys().copied().collect();
        peers.into_iter().for_each(|peer| self.cancel(peer));
    }

    /// The oldest snapshot that is being sent: the log has to reach back to it, or it is sent in vain.
    pub(super) fn oldest(&self) -> Option<Zxid> {
        self.flows.borrow().values().map(|flow| flow.zxid.get()).filter(|zxid| *zxid > Zxid::ZERO).min()
    }

    async fn next(&self) -> (ServerId, Rc<Flow>) {
        loop {
            let asked = self.asked.borrow_mut().pop_front();
            match asked {
                Some(asked) => return asked,
                None => poll_fn(|cx| self.work.poll_lower(cx)).await,
            }
        }
    }

    fn finished(&self, to: ServerId, flow: &Rc<Flow>) {
        self.flows.borrow_mut().retain(|peer, other| *peer != to || !Rc::ptr_eq(other, flow));
    }
}

/// Sends snapshots to whom needs one, for as long as the server runs.
pub(crate) async fn send_snapshots<S: Storage>(
    snapshots: Snapshots<S>,
    trigger: Rc<Trigger>,
    core: Rc<CoreHost>,
) {
    loop {
        let (to, flow) = core.sending().next().await;
        let (snapshots, trigger, core) = (snapshots.clone(), Rc::clone(&trigger), Rc::clone(&core));
        glommio::spawn_local(async move {
            let transfer =
                Transfer { snapshots: &snapshots, trigger: &trigger, core: &core, to, flow: &flow };
            if let Err(error) = transfer.run().await {
                tracing::warn!(peer = %to, %error, "a snapshot was not sent");
                // It asks again when it comes back.
                core.peers().disconnect(to);
            }
            core.sending().finished(to, &flow);
        })
        .detach();
    }
}

/// Why a transfer ended before its time.
#[derive(Debug, thiserror::Error)]
enum TransferError {
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    #[error("the peer has written nothing for {} s", STALL_MAX.as_secs())]
    Stalled,
}

struct Transfer<'a, S: Storage> {
    snapshots: &'a Snapshots<S>,
    trigger: &'a Trigger,
    core: &'a CoreHost,
    to: ServerId,
    flow: &'a Rc<Flow>,
}

impl<S: Storage> Transfer<'_, S> {
    async fn run(&self) -> Result<(), TransferError> {
        let Some(last) = self.choose().await? else { return Ok(()) };
        let ended = self.send(last).await;
        let (begun, cancelled) = (self.flow.received.get() > 0, self.flow.cancelled.get());
        if begun && (cancelled || ended.is_err()) {
            // Nothing is wrong with that one: it may come whole the next time.
            self.core.sending().sent.borrow_mut().remove(&self.to);
        }
        ended
    }

    async fn send(&self, last: LogMark) -> Result<(), TransferError> {
        let (to, flow, zxid) = (self.to, self.flow, last.zxid);
        flow.zxid.set(zxid);
        let mut outgoing = self.snapshots.send(zxid.0).await?;
        let total = outgoing.len();
        if flow.cancelled.get() {
            return Ok(());
        }
        tracing::info!(peer = %to, %zxid, bytes = total, "sending a snapshot");
        let started = Instant::now();
        self.core.sending().sent.borrow_mut().insert(to, zxid);
        self.core.input_now(Input::SnapshotReady { peer: to, last });
        while flow.received.get() < total {
            let offset = outgoing.offset();
            if offset < total && offset < flow.received.get() + WINDOW_BYTES {
                let Some(bytes) = outgoing.next().await? else { break };
                let message = piece::encode(&Piece { zxid, offset, total, bytes: &bytes });
                if flow.cancelled.get() {
                    return Ok(());
                }
                self.core.peers().send(to, &Message::SnapshotChunk(message));
            } else if !self.wait().await {
                return if flow.cancelled.get() { Ok(()) } else { Err(TransferError::Stalled) };
            }
        }
        tracing::info!(peer = %to, %zxid, took_ms = started.elapsed().as_millis(), "snapshot sent");
        Ok(())
    }

    /// The newest sound snapshot; a new one if there is none, or if the peer had that one already. `None` when the
    /// transfer is cancelled.
    async fn choose(&self) -> Result<Option<LogMark>, SnapshotError> {
        while !self.flow.cancelled.get() {
            let committed = self.core.with_node(|node| node.zab().committed());
            let had = self.core.sending().sent.borrow().get(&self.to).copied();
            let newest = self.snapshots.list().await?.first().copied().map(Zxid);
            match newest.filter(|newest| Some(*newest) != had || *newest >= committed) {
                Some(newest) => match self.snapshots.open(newest.0).await {
                    Ok(reader) => {
                        let checksum = reader.head().chain.0;
                        return Ok(Some(LogMark { zxid: newest, checksum }));
                    }
                    Err(error) if error.is_damage() => {
                        tracing::error!(%error, "removed: peers cannot be sent it");
                        self.snapshots.remove(newest.0).await?;
                    }
                    Err(error) => return Err(error),
                },
                None => {
                    self.trigger.demand();
                    glommio::timer::sleep(LOOK_EVERY).await;
                }
            }
        }
        Ok(None)
    }

    /// Waits for the peer; false if it is cancelled or stalls.
    async fn wait(&self) -> bool {
        let news = async {
            poll_fn(|cx| self.flow.news.poll_lower(cx)).await;
            !self.flow.cancelled.get()
        };
        or(news, async {
            glommio::timer::sleep(STALL_MAX).await;
            false
        })
        .await
    }
}
