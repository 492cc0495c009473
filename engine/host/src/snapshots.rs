//! Snapshots of a server's state: when one is taken, and statistics of them.
//!
//! ```text
//! log task, core --appended--> Trigger --due--> take: state held, blocks written slowly, durable, named
//!                                                 |--> SnapshotTaken to the broadcast
//!                                                 |--> older ones beyond the number to keep are removed
//!                                                 '--> Purge to the log: what is before the oldest one kept
//! ```
//!
//! All of this runs on the core's thread, between its other work, at a limited rate; except for the blocks,
//! which are encoded and compressed aside, one at a time.

mod take;

use std::cell::Cell;
use std::future::poll_fn;
use std::time::Duration;

use ringkeeper_engine::metrics::Totals;
use ringkeeper_engine::snapshot::Encoder;
use ringkeeper_log::frame::AlignedBuf;
use ringkeeper_log::snapshot::Contents;
use ringkeeper_wire::Zxid;

pub(crate) use take::take_snapshots;

use crate::wake::WakeFlag;

/// A held state, encoded block by block into a snapshot.
pub trait Image: Send + 'static {
    /// The summary in the snapshot's footer.
    fn contents(&self) -> Contents;

    /// Replaces the contents of `out` by the next block; false after the last one.
    fn next(&mut self, out: &mut AlignedBuf) -> bool;
}

impl Image for Encoder {
    fn contents(&self) -> Contents {
        let contents = Self::contents(self);
        Contents { items: contents.znodes, digest: contents.digest }
    }

    fn next(&mut self, out: &mut AlignedBuf) -> bool {
        Self::next(self, out)
    }
}

/// When snapshots are taken and how many are kept.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// Transactions between two snapshots, at most.
    pub txns_max: u64,
    /// Bytes of log between two snapshots, at most.
    pub bytes_max: u64,
    /// A snapshot is due only if the log since the last one has this percentage of that snapshot's length.
    pub log_percent: u64,
    /// Snapshots that are kept.
    pub kept: usize,
    /// Bytes that are written a second, at most.
    pub bytes_per_second: u64,
    /// Whether their blocks are compressed.
    pub compressed: bool,
}

/// Below this length a snapshot is taken without regard to `log_percent`: it costs little, and a low limit
/// was set on purpose.
const WAITS_FROM_BYTES: u64 = 16 << 20;

/// Statistics of the snapshots taken so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Taken {
    /// Their durations, microseconds.
    pub times: Totals,
    /// Length of the newest one.
    pub bytes: u64,
    /// Zxid of the newest one.
    pub zxid: Zxid,
}

/// Counts the log since the last snapshot, and decides when the next one is due.
pub struct Trigger {
    policy: Policy,
    txns: Cell<u64>,
    bytes: Cell<u64>,
    /// When the next snapshot is due: at random between half the limit and the limit, as in ZooKeeper, so
    /// that the servers of an ensemble do not write at the same time.
    txns_due: Cell<u64>,
    bytes_due: Cell<u64>,
    /// Least length of the log before a snapshot is due; see [`Trigger::waits_for_log`].
    bytes_min: Cell<u64>,
    due: WakeFlag,
    /// A snapshot is being taken.
    taking: Cell<bool>,
    /// How many were begun.
    begun: Cell<u64>,
    /// The number of the newest one, counted by their beginnings.
    newest: Cell<u64>,
    /// The server needs a snapshot, even if none is due.
    demanded: Cell<bool>,
    /// The operator has asked for a snapshot.
    commanded: Cell<bool>,
    taken: Cell<Taken>,
}

impl Trigger {
    /// The log since the newest snapshot has these transactions and bytes; `random` decides when the first
    /// one is due.
    #[must_use]
    pub fn new(policy: Policy, txns: u64, bytes: u64, random: u64) -> Self {
        let trigger = Self {
            policy,
            txns: Cell::new(0),
            bytes: Cell::new(0),
            txns_due: Cell::new(0),
            bytes_due: Cell::new(0),
            bytes_min: Cell::new(0),
            due: WakeFlag::default(),
            taking: Cell::new(false),
            begun: Cell::new(0),
            newest: Cell::new(0),
            demanded: Cell::new(false),
            commanded: Cell::new(false),
            taken: Cell::default(),
        };
        trigger.begin_anew(random);
        trigger.appended(txns, bytes);
        trigger
    }

    const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Statistics of the snapshots taken so far.
    #[must_use]
    pub fn taken(&self) -> Taken {
        self.taken.get()
    }

    /// How many snapshots were begun.
    pub(crate) fn begun(&self) -> u64 {
        self.begun.get()
    }

    /// The zxid of the newest snapshot, if it was begun after so many.
    pub(crate) fn taken_since(&self, begun: u64) -> Option<Zxid> {
        (self.newest.get() > begun).then(|| self.taken.get().zxid)
    }

    /// Counts an append.
    pub fn appended(&self, txns: u64, bytes: u64) {
        self.txns.set(self.txns.get() + txns);
        self.bytes.set(self.bytes.get() + bytes);
        let limit_reached =
            self.txns.get() >= self.txns_due.get() || self.bytes.get() >= self.bytes_due.get();
        if limit_reached && self.bytes.get() >= self.bytes_min.get() {
            self.due.raise();
        }
    }

    /// Asks for a snapshot now, unless one is being taken.
    pub fn demand(&self) {
        if !self.taking.get() {
            self.demanded.set(true);
            self.due.raise();
        }
    }

    /// Asks for a snapshot on the operator's behalf: of what is committed now, even if one exists for the
    /// same zxid or one is being taken.
    pub fn command(&self) {
        self.commanded.set(true);
        self.due.raise();
    }

    /// As [`Self::command`], unless a snapshot is being taken.
    pub(crate) fn demand_new_file(&self) {
        if !self.taking.get() {
            self.command();
        }
    }

    /// Whether a new file was asked for.
    fn take_command(&self) -> bool {
        self.commanded.replace(false)
    }

    /// Waits until a snapshot is due or asked for.
    async fn wait(&self) {
        self.taking.set(false);
        poll_fn(|cx| self.due.poll_lower(cx)).await;
    }

    /// Whether the snapshot that is due should wait for more log, since the newest one has `newest_bytes`.
    ///
    /// The cost of a snapshot grows with the tree; its benefit is to save the replay of the log. With limits
    /// alone, the cost for each transaction would grow with the tree. So the required length of the log grows
    /// with the tree, too. That bounds the bytes written for snapshots by the bytes of the log, and a replay
    /// by a share of the time to read the snapshot.
    fn waits_for_log(&self, newest_bytes: u64) -> bool {
        if self.demanded.get() || self.commanded.get() || newest_bytes < WAITS_FROM_BYTES {
            return false;
        }
        let bytes_min = newest_bytes / 100 * self.policy.log_percent;
        self.bytes_min.set(bytes_min);
        self.bytes.get() < bytes_min
    }

    /// A snapshot begins: counting restarts here.
    fn begin(&self, random: u64) {
        self.taking.set(true);
        self.begun.set(self.begun.get() + 1);
        self.demanded.set(false);
        self.begin_anew(random);
    }

    fn begin_anew(&self, random: u64) {
        let between = |max: u64| max / 2 + 1 + random % (max / 2).max(1);
        self.txns_due.set(between(self.policy.txns_max));
        self.bytes_due.set(between(self.policy.bytes_max));
        self.bytes_min.set(0);
        self.txns.set(0);
        self.bytes.set(0);
        self.due.lower();
    }

    fn note(&self, zxid: Zxid, bytes: u64, took: Duration) {
        let mut times = self.taken.get().times;
        times.record(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        self.taken.set(Taken { times, bytes, zxid });
        self.newest.set(self.begun.get());
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use super::*;

    fn trigger(txns: u64, bytes: u64, random: u64) -> Trigger {
        let policy = Policy {
            txns_max: 100,
            bytes_max: 1000,
            log_percent: 50,
            kept: 3,
            bytes_per_second: 1,
            compressed: false,
        };
        Trigger::new(policy, txns, bytes, random)
    }

    fn is_due(trigger: &Trigger) -> bool {
        trigger.due.poll_lower(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn a_snapshot_is_due_between_half_the_limit_and_the_limit() {
        for random in [0, 7, 49, 50, u64::MAX] {
            let trigger = trigger(0, 0, random);
            (0..50).for_each(|_| trigger.appended(1, 0));
            assert!(!is_due(&trigger), "{random}");
            (0..50).for_each(|_| trigger.appended(1, 0));
            assert!(is_due(&trigger), "{random}");
        }
    }

    /// Bytes of a snapshot that is no longer short.
    const LONG: u64 = 100 << 20;

    #[test]
    fn behind_a_long_snapshot_the_log_grows_to_half_of_it_first() {
        let trigger = trigger(100, 0, 3);
        assert!(is_due(&trigger) && trigger.waits_for_log(LONG));
        trigger.appended(1000, LONG / 2 - 1);
        assert!(!is_due(&trigger));
        trigger.appended(1, 1);
        assert!(is_due(&trigger) && !trigger.waits_for_log(LONG));
        trigger.begin(3);
        trigger.appended(100, 0);
        assert!(is_due(&trigger), "it is asked anew how long the newest one is");
    }

    #[test]
    fn a_short_snapshot_and_one_that_is_wanted_wait_for_no_log() {
        assert!(!trigger(100, 0, 3).waits_for_log(WAITS_FROM_BYTES - 1));
        let trigger = trigger(0, 0, 3);
        trigger.demand();
        assert!(is_due(&trigger) && !trigger.waits_for_log(LONG));
        trigger.begin(3);
        trigger.command();
        assert!(is_due(&trigger) && !trigger.waits_for_log(LONG));
    }

    #[test]
    fn bytes_count_as_well_and_so_does_what_was_there_at_the_start() {
        assert!(is_due(&trigger(100, 0, 3)));
        assert!(is_due(&trigger(0, 1000, 3)));
        let trigger = trigger(0, 0, 0);
        trigger.appended(1, 501);
        assert!(is_due(&trigger));
    }
    #[test]
    fn a_snapshot_that_was_under_way_is_told_from_one_that_was_begun_since() {
        let trigger = trigger(0, 0, 3);
        trigger.begin(3);
        let begun = trigger.begun();
        trigger.note(Zxid(7), 1, Duration::ZERO);
        assert_eq!(trigger.taken_since(begun), None);
        trigger.begin(3);
        trigger.note(Zxid(7), 1, Duration::ZERO);
        assert_eq!(trigger.taken_since(begun), Some(Zxid(7)));
    }
}
