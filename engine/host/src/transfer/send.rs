//! Sending a snapshot to a peer that is too far behind: the file's own bytes, in pieces, as fast as it writes
//! them.
//!
//! What is under way is bounded ([`Limits::window_bytes`]), so heartbeats and proposals on the same link wait
//! for no more than that, and neither end holds more in memory; and no more is sent in a second than the
//! server writes of its own snapshots. A transfer ends with the connection or the leadership. When the peer
//! asks again it says how much it has, and if the file is still there the transfer goes on from there.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::rc::Rc;
use std::time::Duration;

use futures_lite::future::or;
use ringkeeper_engine::send_window::SendWindow;
use ringkeeper_engine::zab::{Input, LogPosition, Message};
use ringkeeper_log::snapshot::{SnapshotError, Snapshots};
use ringkeeper_wire::{ServerId, Zxid};

use super::Limits;
use super::piece::{self, Piece};
use crate::env::{Class, Env, Task};
use crate::links::TAKES_WIDE_WINDOWS;
use crate::pump::{Frontend, Pump};
use crate::wake::WakeFlag;

/// A transfer ends when the peer writes nothing for this long.
const STALL_MAX: Duration = Duration::from_secs(30);

/// How often the sender checks for the snapshot that it has asked for.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The transfers to peers.
#[derive(Default)]
pub(crate) struct Sending {
    flows: RefCell<BTreeMap<ServerId, Rc<Flow>>>,
    asked: RefCell<VecDeque<(ServerId, Rc<Flow>)>>,
    work: WakeFlag,
    /// The snapshot that each peer was sent whole, or never began to take: a peer that asks again needs
    /// another one.
    sent: RefCell<BTreeMap<ServerId, Zxid>>,
    /// The snapshot of which each peer has a part.
    broken_off: RefCell<BTreeMap<ServerId, Zxid>>,
}

/// One transfer.
#[derive(Default)]
struct Flow {
    /// The snapshot has to end behind this.
    after: Zxid,
    /// The snapshot; zero while none is chosen.
    zxid: Cell<Zxid>,
    /// Bytes that the peer has written; `None` until its first report.
    received: Cell<Option<u64>>,
    cancelled: Cell<bool>,
    news: WakeFlag,
}

impl Sending {
    /// A peer needs a snapshot that ends behind `after`. Ends the peer's current transfer, if any.
    pub(crate) fn ask(&self, to: ServerId, after: Zxid) {
        self.cancel(to);
        let flow = Rc::new(Flow { after, ..Flow::default() });
        self.flows.borrow_mut().insert(to, Rc::clone(&flow));
        self.asked.borrow_mut().push_back((to, flow));
        self.work.raise();
    }

    /// Records that a peer has written this many bytes.
    pub(crate) fn received(&self, from: ServerId, zxid: Zxid, upto: u64) {
        if let Some(flow) = self.flows.borrow().get(&from).filter(|flow| flow.zxid.get() == zxid) {
            flow.received.set(flow.received.get().max(Some(upto)));
            flow.news.raise();
        }
    }

    /// The peer is disconnected: its transfer ends.
    pub(crate) fn cancel(&self, peer: ServerId) {
        if let Some(flow) = self.flows.borrow_mut().remove(&peer) {
            flow.cancelled.set(true);
            flow.news.raise();
        }
    }

    /// Leadership has ended, and all transfers with it.
    pub(crate) fn cancel_all(&self) {
        let peers: Vec<_> = self.flows.borrow().keys().copied().collect();
        peers.into_iter().for_each(|peer| self.cancel(peer));
    }

    /// The oldest snapshot that is being sent. The log must reach back to it, or the peer cannot continue
    /// from it.
    #[must_use]
    pub(crate) fn oldest(&self) -> Option<Zxid> {
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
pub(crate) async fn send_snapshots<E: Env, F: Frontend>(
    pump: Rc<Pump<E, F>>,
    snapshots: Snapshots<E::Storage>,
    limits: Limits,
) {
    loop {
        let (to, flow) = pump.sending().next().await;
        let (own, snapshots) = (Rc::clone(&pump), snapshots.clone());
        let send = async move {
            let (pump, snapshots, flow) = (&*own, &snapshots, &flow);
            let transfer = Transfer { pump, snapshots, limits, to, flow };
            if let Err(error) = transfer.run().await {
                tracing::warn!(code = "RK0321", peer = %to, %error, "a snapshot was not sent");
                // The peer asks again when it has reconnected.
                pump.links().disconnect(to);
            }
            pump.sending().finished(to, flow);
        };
        pump.env().spawn(Class::Requests, send).detach();
    }
}

/// Why a transfer ended early.
#[derive(Debug, thiserror::Error)]
enum TransferError {
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    #[error("the peer has written nothing for {} s", STALL_MAX.as_secs())]
    Stalled,
}

struct Transfer<'a, E: Env, F: Frontend> {
    pump: &'a Pump<E, F>,
    snapshots: &'a Snapshots<E::Storage>,
    limits: Limits,
    to: ServerId,
    flow: &'a Rc<Flow>,
}

impl<E: Env, F: Frontend> Transfer<'_, E, F> {
    async fn run(&self) -> Result<(), TransferError> {
        let Some(last) = self.choose().await? else { return Ok(()) };
        let ended = self.send(last).await;
        let begun = self.flow.received.get().is_some_and(|upto| upto > 0);
        let broken_off = begun && (self.flow.cancelled.get() || ended.is_err());
        let sending = self.pump.sending();
        if broken_off {
            // The transfer broke off for another reason than the snapshot, which may be sent again.
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
        let started = self.pump.env().elapsed();
        self.pump.sending().sent.borrow_mut().insert(to, zxid);
        self.pump.input_now(Input::SnapshotReady { peer: to, last });
        let stalled = || if flow.cancelled.get() { Ok(()) } else { Err(TransferError::Stalled) };
        while flow.received.get().is_none() {
            if !self.wait().await {
                return stalled();
            }
        }
        let received = || flow.received.get().unwrap_or_default();
        if received() > 0 {
            tracing::info!(peer = %to, %zxid, from = received(), "the peer has a part of the snapshot");
            outgoing.skip_to(received())?;
        }
        let mut window = self.window();
        while received() < total {
            let offset = outgoing.offset();
            window.acknowledged(received(), self.now_ms());
            if offset < total && window.bytes() < window.size() {
                let began = self.pump.env().elapsed();
                let Some(bytes) = outgoing.next(self.limits.piece_bytes).await? else { break };
                let message = piece::encode(&Piece { zxid, offset, total, bytes: &bytes });
                if flow.cancelled.get() {
                    return Ok(());
                }
                window.sent(offset + bytes.len() as u64, bytes.len(), self.now_ms());
                self.pump.links().send(to, &Message::SnapshotChunk(message));
                let due = Duration::from_nanos(
                    bytes.len() as u64 * 1_000_000_000 / self.limits.bytes_per_second.max(1),
                );
                self.pump
                    .env()
                    .sleep(due.saturating_sub(self.pump.env().elapsed().saturating_sub(began)))
                    .await;
            } else if !self.wait().await {
                return stalled();
            }
        }
        tracing::info!(peer = %to, %zxid, took_ms = self.pump.env().elapsed().saturating_sub(started).as_millis(), "snapshot sent");
        Ok(())
    }

    /// The newest sound snapshot; a newer one if there is none or the peer has had that one. `None` if the
    /// transfer is cancelled.
    async fn choose(&self) -> Result<Option<LogPosition>, SnapshotError> {
        let mut damaged = None;
        while !self.flow.cancelled.get() {
            let committed = self.pump.node().zab().committed();
            let had = self.pump.sending().sent.borrow().get(&self.to).copied();
            // The peer goes on from the snapshot with the log. A repair may have purged that beyond snapshots
            // that are still in the folder.
            let base = self.pump.node().zab().log_base();
            let mut zxids = self.snapshots.list().await?;
            zxids.retain(|zxid| *zxid >= base && *zxid > self.flow.after);
            let broken_off = self.pump.sending().broken_off.borrow().get(&self.to).copied();
            let begun = broken_off.filter(|zxid| zxids.contains(zxid));
            let had = had.filter(|had| begun.is_none() && *had < committed);
            for zxid in begun.into_iter().chain(zxids) {
                match self.snapshots.open(zxid).await {
                    Ok(_) if had == Some(zxid) => break,
                    Ok(reader) => return Ok(Some(LogPosition { zxid, checksum: reader.head().chain })),
                    // It stays until there is another one: the log may begin behind it.
                    Err(error) if error.is_damage() => {
                        if damaged.replace(zxid) != Some(zxid) {
                            tracing::error!(
                                code = "RK0510",
                                %error,
                                "a damaged snapshot cannot be sent to a peer: another one is"
                            );
                        }
                    }
                    Err(error) => return Err(error),
                }
            }
            match damaged {
                // With the same zxid, the new file takes its name.
                Some(_) => self.pump.trigger().demand_new_file(),
                None => self.pump.trigger().demand(),
            }
            self.pump.env().sleep(LOOK_EVERY).await;
        }
        Ok(None)
    }

    /// Bytes that may be under way, by where they end in the file.
    fn window(&self) -> SendWindow<u64> {
        let Limits { window_bytes, window_bytes_max, .. } = self.limits;
        // An older build takes no more than it was always sent.
        let wide = self.pump.links().version(self.to) >= TAKES_WIDE_WINDOWS;
        SendWindow::new(window_bytes, if wide { window_bytes_max } else { window_bytes })
    }

    fn now_ms(&self) -> u64 {
        self.pump.env().now().monotonic_ms
    }

    /// Waits for a report of the peer; false if the transfer is cancelled or the peer stalls.
    async fn wait(&self) -> bool {
        let news = async {
            poll_fn(|cx| self.flow.news.poll_lower(cx)).await;
            !self.flow.cancelled.get()
        };
        or(news, async {
            self.pump.env().sleep(STALL_MAX).await;
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
        (1..=3).for_each(|peer| sending.ask(ServerId(peer), Zxid::ZERO));
        let flows: Vec<_> = sending.flows.borrow().values().cloned().collect();
        let cancelled = || flows.iter().filter(|flow| flow.cancelled.get()).count();
        sending.cancel(ServerId(2));
        assert_eq!(cancelled(), 1);
        sending.ask(ServerId(3), Zxid::ZERO);
        assert_eq!(cancelled(), 2, "who asks again is sent anew");
        sending.cancel_all();
        assert_eq!(cancelled(), 3);
        assert!(sending.flows.borrow().is_empty());
    }
}
