//! Sending a snapshot to a peer that is too far behind: the file's own bytes, in pieces, as fast as it writes
//! them.
//!
//! At most [`Limits::window_bytes`] are under way, so heartbeats and proposals on the same link wait for no more than
//! that, and neither end holds more in memory; and no more a second than the server writes of its own
//! snapshots. A transfer ends with the connection or the leadership. When the peer asks again it says how
//! much it has, and if the file is still there the transfer goes on from there.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::rc::Rc;
use std::time::Duration;

use futures_lite::future::or;
use ringkeeper_engine::zab::{Input, LogPosition, Message};
use ringkeeper_log::snapshot::{SnapshotError, Snapshots};
use ringkeeper_wire::{ServerId, Zxid};

use super::Limits;
use super::piece::{self, Piece};
use crate::env::{Class, Env, Task};
use crate::snapshots::SnapshotHost;
use crate::wake::WakeFlag;

/// A peer that writes nothing for this long is given up.
const STALL_MAX: Duration = Duration::from_secs(30);

/// How often it is looked whether a snapshot that was asked for is there.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The peers that are sent a snapshot.
#[derive(Default)]
pub struct Sending {
    flows: RefCell<BTreeMap<ServerId, Rc<Flow>>>,
    asked: RefCell<VecDeque<(ServerId, Rc<Flow>)>>,
    work: WakeFlag,
    /// What each peer was sent whole, or did not begin to take: when it asks again, that one did not help.
    sent: RefCell<BTreeMap<ServerId, Zxid>>,
    /// What each peer has a part of.
    broken_off: RefCell<BTreeMap<ServerId, Zxid>>,
}

/// One transfer.
#[derive(Default)]
struct Flow {
    /// Of the snapshot; zero while none is chosen.
    zxid: Cell<Zxid>,
    /// Bytes that the peer has written; `None` until it says with how many it begins.
    received: Cell<Option<u64>>,
    cancelled: Cell<bool>,
    news: WakeFlag,
}

impl Sending {
    /// A peer needs a snapshot. What it is being sent, if anything, ends.
    pub fn ask(&self, to: ServerId) {
        self.cancel(to);
        let flow = Rc::new(Flow::default());
        self.flows.borrow_mut().insert(to, Rc::clone(&flow));
        self.asked.borrow_mut().push_back((to, flow));
        self.work.raise();
    }

    /// A peer has written so much.
    pub fn received(&self, from: ServerId, zxid: Zxid, upto: u64) {
        if let Some(flow) = self.flows.borrow().get(&from).filter(|flow| flow.zxid.get() == zxid) {
            flow.received.set(flow.received.get().max(Some(upto)));
            flow.news.raise();
        }
    }

    /// The peer is gone.
    pub fn cancel(&self, peer: ServerId) {
        if let Some(flow) = self.flows.borrow_mut().remove(&peer) {
            flow.cancelled.set(true);
            flow.news.raise();
        }
    }

    /// This server leads no more.
    pub fn cancel_all(&self) {
        let peers: Vec<_> = self.flows.borrow().keys().copied().collect();
        peers.into_iter().for_each(|peer| self.cancel(peer));
    }

    /// The oldest snapshot that is being sent: the log has to reach back to it, or it is sent in vain.
    #[must_use]
    pub fn oldest(&self) -> Option<Zxid> {
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
pub async fn send_snapshots<E: Env>(
    env: E,
    snapshots: Snapshots<E::Storage>,
    limits: Limits,
    core: Rc<impl SnapshotHost>,
) {
    loop {
        let (to, flow) = core.sending().next().await;
        let (own, snapshots, core) = (env.clone(), snapshots.clone(), Rc::clone(&core));
        let send = async move {
            let (env, snapshots, flow) = (&own, &snapshots, &flow);
            let transfer = Transfer { env, snapshots, limits, core: &*core, to, flow };
            if let Err(error) = transfer.run().await {
                tracing::warn!(peer = %to, %error, "a snapshot was not sent");
                // It asks again when it comes back.
                core.disconnect(to);
            }
            core.sending().finished(to, flow);
        };
        env.spawn(Class::Requests, send).detach();
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

struct Transfer<'a, E: Env, H> {
    env: &'a E,
    snapshots: &'a Snapshots<E::Storage>,
    limits: Limits,
    core: &'a H,
    to: ServerId,
    flow: &'a Rc<Flow>,
}

impl<E: Env, H: SnapshotHost> Transfer<'_, E, H> {
    async fn run(&self) -> Result<(), TransferError> {
        let Some(last) = self.choose().await? else { return Ok(()) };
        let ended = self.send(last).await;
        let begun = self.flow.received.get().is_some_and(|upto| upto > 0);
        let broken_off = begun && (self.flow.cancelled.get() || ended.is_err());
        let sending = self.core.sending();
        if broken_off {
            // Nothing is wrong with that one: it may come whole the next time.
            sending.sent.borrow_mut().remove(&self.to);
            sending.broken_off.borrow_mut().insert(self.to, last.zxid);
        } else {
            sending.broken_off.borrow_mut().remove(&self.to);
        }
        ended
    }

    async fn send(&self, last: LogPosition) -> Result<(), TransferError> {
        let (to, flow, zxid) = (self.to, self.flow, last.zxid);
        flow.zxid.set(zxid);
        let mut outgoing = self.snapshots.send(zxid).await?;
        let total = outgoing.len();
        if flow.cancelled.get() {
            return Ok(());
        }
        tracing::info!(peer = %to, %zxid, bytes = total, "sending a snapshot");
        let started = self.env.elapsed();
        self.core.sending().sent.borrow_mut().insert(to, zxid);
        self.core.input_now(Input::SnapshotReady { peer: to, last });
        let stalled = || if flow.cancelled.get() { Ok(()) } else { Err(TransferError::Stalled) };
        while flow.received.get().is_none() {
            if !self.wait().await {
                return stalled();
            }
        }
        let received = || flow.received.get().unwrap_or_default();
        if received() > 0 {
            tracing::info!(peer = %to, %zxid, from = received(), "the peer has a part of it");
            outgoing.skip_to(received())?;
        }
        while received() < total {
            let offset = outgoing.offset();
            if offset < total && offset < received() + self.limits.window_bytes {
                let began = self.env.elapsed();
                let Some(bytes) = outgoing.next(self.limits.piece_bytes).await? else { break };
                let message = piece::encode(&Piece { zxid, offset, total, bytes: &bytes });
                if flow.cancelled.get() {
                    return Ok(());
                }
                self.core.send(to, &Message::SnapshotChunk(message));
                let due = Duration::from_nanos(
                    bytes.len() as u64 * 1_000_000_000 / self.limits.bytes_per_second.max(1),
                );
                self.env.sleep(due.saturating_sub(self.env.elapsed().saturating_sub(began))).await;
            } else if !self.wait().await {
                return stalled();
            }
        }
        tracing::info!(peer = %to, %zxid, took_ms = self.env.elapsed().saturating_sub(started).as_millis(), "snapshot sent");
        Ok(())
    }

    /// The newest sound snapshot; a new one if there is none, or if the peer had that one already. `None`
    /// when the transfer is cancelled.
    async fn choose(&self) -> Result<Option<LogPosition>, SnapshotError> {
        while !self.flow.cancelled.get() {
            let committed = self.core.committed();
            let had = self.core.sending().sent.borrow().get(&self.to).copied();
            let zxids = self.snapshots.list().await?;
            let broken_off = self.core.sending().broken_off.borrow().get(&self.to).copied();
            // The log reaches back to each one that is kept.
            let begun = broken_off.filter(|zxid| zxids.contains(zxid));
            let newest = zxids.first().copied();
            let newest = newest.filter(|newest| Some(*newest) != had || *newest >= committed);
            match begun.or(newest) {
                Some(newest) => match self.snapshots.open(newest).await {
                    Ok(reader) => {
                        let checksum = reader.head().chain;
                        return Ok(Some(LogPosition { zxid: newest, checksum }));
                    }
                    Err(error) if error.is_damage() => {
                        tracing::error!(%error, "removed: peers cannot be sent it");
                        self.snapshots.remove(newest).await?;
                    }
                    Err(error) => return Err(error),
                },
                None => {
                    self.core.trigger().demand();
                    self.env.sleep(LOOK_EVERY).await;
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
            self.env.sleep(STALL_MAX).await;
            false
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transfers_end_with_the_connection_or_the_leadership() {
        let sending = Sending::default();
        (1..=3).for_each(|peer| sending.ask(ServerId(peer)));
        let flows: Vec<_> = sending.flows.borrow().values().cloned().collect();
        let cancelled = || flows.iter().filter(|flow| flow.cancelled.get()).count();
        sending.cancel(ServerId(2));
        assert_eq!(cancelled(), 1);
        sending.ask(ServerId(3));
        assert_eq!(cancelled(), 2, "who asks again is sent anew");
        sending.cancel_all();
        assert_eq!(cancelled(), 3);
        assert!(sending.flows.borrow().is_empty());
    }
}
