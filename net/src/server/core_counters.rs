//! What the leader core counts and measures.

use std::collections::{BTreeMap, VecDeque};

use ringkeeper_engine::batches::Batches;
use ringkeeper_engine::findings::{Members, PeerTimes, Recent};
use ringkeeper_engine::message::Published;
use ringkeeper_engine::metrics::{Distribution, Sizes, Totals};
use ringkeeper_engine::replica::Now;
use ringkeeper_engine::slow::Pause;
use ringkeeper_engine::zab::{Batch, Status, SyncPlan};
use ringkeeper_wire::{ServerId, Zxid};

/// Acknowledgements whose times are kept, if they are.
const ACKS_MAX: usize = 4096;

/// Times without a leader that are kept.
const LEADERLESS_MAX: usize = 16;

/// Pings of a learner whose times are kept until they are answered.
const PINGS_MAX: usize = 1024;

/// Statistics of the leader core. Times are microseconds on the server's clock.
#[derive(Debug, Default)]
pub(crate) struct CoreCounters {
    counts: Counts,
    times: CoreTimes,
    batches: Batches,
    /// From a batch's arrival until it was durable here, lately.
    logged: Recent,
    /// On the leader, the learners.
    peers: BTreeMap<ServerId, Peer>,
    /// The last acknowledgements, for traces: who, everything up to where, and when.
    acks: VecDeque<(ServerId, Zxid, u64)>,
    /// What the leader last said is committed.
    leaders_commit: Zxid,
    /// The last times without a leader; the first of them, at the start, is none.
    leaderless: VecDeque<Pause>,
    /// Since when a leader is looked for.
    looking_since_us: Option<u64>,
}

/// What a learner took lately, microseconds.
#[derive(Debug, Default)]
struct Peer {
    acks: Recent,
    round_trips: Recent,
    /// Rounds of pings that are not answered, and when each was sent.
    pings: VecDeque<(u64, u64)>,
}

/// Numbers, small enough for every report.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    leading: bool,
    /// When the server's status changed last, milliseconds.
    pub(crate) status_since_ms: u64,
    /// How often the server began to look for a leader.
    pub(crate) looking: u64,
    /// How often the server handed leadership over.
    pub(crate) handed_over: u64,
    /// Requests taken from the shards.
    pub(crate) requests: u64,
    /// Transactions given to the log.
    pub(crate) appends: u64,
    /// Those of them that this server proposed as the leader.
    pub(crate) proposals: u64,
    /// Sizes of the batches with these since the last `srst`.
    pub(crate) sizes: Sizes,
    /// Transactions committed while it led.
    pub(crate) commits: u64,
    /// Transactions committed while it followed.
    pub(crate) learned_commits: u64,
    /// Learners that were sent what their log lacked.
    pub(crate) diffs: u64,
    /// Learners that were sent a snapshot.
    pub(crate) snapshots: u64,
}

/// Times of stages, microseconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct CoreTimes {
    /// Requests on their way from a shard.
    pub(crate) queued: Distribution,
    /// Number of requests that came at once.
    pub(crate) taken: Totals,
    /// The requests of one pass, to be prepared or passed on.
    pub(crate) prepared: Distribution,
    /// The oldest request of a proposal, until the proposal was made.
    pub(crate) batched: Distribution,
    /// A proposal, until it was committed.
    pub(crate) committed: Distribution,
    /// A proposal, until a learner had acknowledged it.
    pub(crate) acknowledged: BTreeMap<ServerId, Distribution>,
    /// A transaction, from its creation on the leader until its commit here; by the wall clocks of both.
    pub(crate) propagated: Distribution,
    /// From the begin of a search for a leader until this server served.
    pub(crate) elections: Distribution,
    /// Those after which it led.
    pub(crate) own_elections: Distribution,
}

impl CoreCounters {
    /// Of a server that starts. One of an ensemble looks for a leader first.
    pub(crate) fn new(now_us: u64, has_peers: bool) -> Self {
        let mut counters = Self::default();
        if has_peers {
            counters.changed(now_us, Status::Looking);
        }
        counters
    }

    pub(crate) const fn counts(&self) -> Counts {
        self.counts
    }

    pub(crate) fn times(&self) -> CoreTimes {
        self.times.clone()
    }

    /// Counts requests of a shard that were sent at `sent_us`.
    pub(crate) fn took(&mut self, now_us: u64, sent_us: u64, requests: usize) {
        if requests == 0 {
            // The message has nothing but sessions that were heard from.
            return;
        }
        let requests = requests as u64;
        self.counts.requests += requests;
        self.times.taken.record(requests);
        self.times.queued.record_n(now_us.saturating_sub(sent_us), requests);
        self.batches.took(now_us, sent_us);
    }

    /// Counts the time of a pass in which requests were taken.
    pub(crate) fn prepared(&mut self, began_us: u64, now_us: u64) {
        let took_us = now_us.saturating_sub(began_us);
        self.times.prepared.record(took_us);
        self.batches.prepared(took_us);
    }

    /// Counts a batch that is appended to the log; on a leader it is a proposal.
    pub(crate) fn appended(&mut self, now_us: u64, batch: &Batch) {
        let txns = batch.txns();
        self.counts.appends += txns;
        let times = self.batches.appended(now_us, self.counts.leading, batch);
        if !self.counts.leading {
            return;
        }
        if let Some(requests) = times.requests {
            self.times.batched.record(now_us.saturating_sub(requests.sent_us));
        }
        self.counts.proposals += txns;
        self.counts.sizes.record(batch.bytes().len());
    }

    /// Notes that everything up to `upto` is durable in this server's log.
    pub(crate) fn durable(&mut self, now_us: u64, upto: Zxid) {
        for batch in self.batches.durable(now_us, upto) {
            self.logged.record(now_us, now_us.saturating_sub(batch.appended_us));
        }
    }

    /// Notes a ping of a learner. Another one of the same round does not count.
    pub(crate) fn pinged(&mut self, now_us: u64, learner: ServerId, round: u64) {
        let pings = &mut self.peers.entry(learner).or_default().pings;
        if pings.back().is_none_or(|(last, _)| *last < round) {
            if pings.len() == PINGS_MAX {
                pings.pop_front();
            }
            pings.push_back((round, now_us));
        }
    }

    /// Notes the answer to a ping.
    pub(crate) fn ponged(&mut self, now_us: u64, learner: ServerId, round: u64) {
        let Some(peer) = self.peers.get_mut(&learner) else { return };
        while let Some((of, sent_us)) = peer.pings.pop_front_if(|(of, _)| *of <= round) {
            if of == round {
                peer.round_trips.record(now_us, now_us.saturating_sub(sent_us));
            }
        }
    }

    /// What log and learners took lately.
    pub(crate) fn members(&self, now_us: u64, learners: impl Iterator<Item = ServerId>) -> Members {
        let waits = |since_us: Option<u64>| since_us.map_or(0, |since_us| now_us.saturating_sub(since_us));
        let peer = |server: ServerId| {
            let peer = self.peers.get(&server)?;
            let unanswered_since_us = peer.pings.front().map(|(_, sent_us)| *sent_us);
            Some(PeerTimes {
                server,
                acks: peer.acks.worst(now_us, waits(self.batches.unacknowledged_since_us(server))),
                round_trips: peer.round_trips.worst(now_us, waits(unanswered_since_us)),
            })
        };
        let log = self.logged.worst(now_us, waits(self.batches.undurable_since_us()));
        let leaderless = self.leaderless.iter().copied().collect();
        Members { log, peers: learners.filter_map(peer).collect(), leaderless }
    }

    /// Notes that the leader got writes of another server.
    pub(crate) fn forwarded(&mut self, now_us: u64) {
        self.batches.forwarded(now_us);
    }

    /// Notes what the leader says is committed.
    pub(crate) fn learns_commit(&mut self, commit: Zxid) {
        self.leaders_commit = self.leaders_commit.max(commit);
    }

    /// What the leader last said is committed; zero on the leader.
    pub(crate) const fn leaders_commit(&self) -> Zxid {
        self.leaders_commit
    }

    /// Whether this server leads.
    pub(crate) const fn leads(&self) -> bool {
        self.counts.leading
    }

    /// Keeps the time of an acknowledgement.
    pub(crate) fn keep_ack(&mut self, now_us: u64, learner: ServerId, upto: Zxid) {
        if self.acks.len() == ACKS_MAX {
            self.acks.pop_front();
        }
        self.acks.push_back((learner, upto, now_us));
    }

    /// The acknowledgements of everything up to `last`, which was proposed then: the first of each peer.
    pub(crate) fn acks_of(&self, last: Zxid, proposed_us: u64) -> Vec<(ServerId, u64)> {
        let mut firsts: Vec<(ServerId, u64)> = Vec::new();
        for &(peer, upto, at_us) in &self.acks {
            if upto >= last && at_us >= proposed_us && firsts.iter().all(|(known, _)| *known != peer) {
                firsts.push((peer, at_us));
            }
        }
        firsts
    }

    /// Counts the acknowledgement of all transactions up to `upto` by a learner.
    pub(crate) fn acknowledged(&mut self, now_us: u64, learner: ServerId, upto: Zxid) {
        for batch in self.batches.acknowledge(learner, upto).filter(|batch| batch.leads) {
            let times = self.times.acknowledged.entry(learner).or_default();
            let took_us = now_us.saturating_sub(batch.appended_us);
            times.record_n(took_us, batch.txns());
            self.peers.entry(learner).or_default().acks.record(now_us, took_us);
        }
    }

    /// The times of the last batches.
    pub(crate) const fn batches(&self) -> &Batches {
        &self.batches
    }

    /// Counts the begin of a learner's synchronization.
    pub(crate) const fn synchronizes(&mut self, plan: SyncPlan) {
        match plan {
            SyncPlan::Diff => self.counts.diffs += 1,
            SyncPlan::Snapshot(_) => self.counts.snapshots += 1,
            SyncPlan::Truncate(_) => {}
        }
    }

    /// Counts what is committed and now published.
    pub(crate) fn published(&mut self, now_us: u64, now: Now, published: &Published) {
        let Some(last) = published.groups.last().and_then(|group| group.txns.last()) else { return };
        let txns = published.groups.iter().map(|group| group.txns.len() as u64).sum();
        let counter = match self.counts.leading {
            true => &mut self.counts.commits,
            false => &mut self.counts.learned_commits,
        };
        *counter += txns;
        let age_ms = u64::try_from(now.wall_ms.saturating_sub(last.txn.time_ms)).unwrap_or(0);
        self.times.propagated.record_n(age_ms * 1000, txns);
        for batch in self.batches.commit(now_us, last.zxid()).filter(|batch| batch.leads) {
            self.times.committed.record_n(now_us.saturating_sub(batch.appended_us), batch.txns());
        }
    }

    /// Records a change of the server's status.
    pub(crate) fn changed(&mut self, now_us: u64, status: Status) {
        self.counts.status_since_ms = now_us / 1000;
        self.counts.leading = matches!(status, Status::Leading { .. });
        self.batches.forget();
        self.acks.clear();
        self.peers.clear();
        self.leaders_commit = Zxid::ZERO;
        if status == Status::Looking {
            self.counts.looking += 1;
            self.looking_since_us = Some(now_us);
        } else if let Some(since_us) = self.looking_since_us.take() {
            let took_us = now_us.saturating_sub(since_us);
            if self.times.elections.totals().count > 0 {
                if self.leaderless.len() == LEADERLESS_MAX {
                    self.leaderless.pop_front();
                }
                self.leaderless.push_back(Pause { from_us: since_us, until_us: now_us });
            }
            self.times.elections.record(took_us);
            if self.counts.leading {
                self.times.own_elections.record(took_us);
            }
        }
    }

    /// The change of status that follows is the end of a hand-over.
    pub(crate) fn hands_over(&mut self) {
        self.counts.handed_over += u64::from(self.counts.leading);
    }

    /// Resets the sizes of proposals, not their number.
    pub(crate) fn reset_proposals(&mut self) {
        self.counts.sizes = Sizes::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringkeeper_engine::zab::Checksum;
    use ringkeeper_log::frame;
    use ringkeeper_wire::Epoch;

    fn batch(counter: u32, bytes: usize) -> Batch {
        let zxid = Zxid::new(Epoch(1), counter);
        let mut frame = frame::begin(bytes);
        frame.extend_from_slice(&vec![0; bytes]);
        Batch::seal(zxid, zxid, Checksum::NONE, frame)
    }

    #[test]
    fn only_a_leaders_batches_are_proposals() {
        let mut counters = CoreCounters::default();
        counters.appended(0, &batch(1, 10));
        assert_eq!((counters.counts().proposals, counters.counts().appends), (0, 1));
        counters.changed(7_000, Status::Leading { epoch: Epoch(1) });
        (2..).zip([30, 10, 20]).for_each(|(counter, bytes)| counters.appended(0, &batch(counter, bytes)));
        let [small, middle, large] =
            [10, 20, 30].map(|bytes| i64::try_from(batch(1, bytes).bytes().len()).expect("a short batch"));
        assert_eq!(counters.counts().sizes, Sizes { last: middle, min: small, max: large });
        counters.reset_proposals();
        assert_eq!(counters.counts().sizes, Sizes { last: -1, min: -1, max: -1 });
        assert_eq!((counters.counts().proposals, counters.counts().status_since_ms), (3, 7));
    }

    #[test]
    fn an_election_lasts_from_the_begin_of_the_search_until_there_is_a_leader() {
        let mut counters = CoreCounters::new(5, true);
        counters.changed(25, Status::Leading { epoch: Epoch(1) });
        assert_eq!(counters.times().elections.totals(), Totals { count: 1, sum: 20, min: 20, max: 20 });
        assert_eq!(counters.counts().looking, 1);
    }

    #[test]
    fn the_answer_to_a_ping_may_come_after_the_next_one() {
        let mut counters = CoreCounters::default();
        let peer = ServerId(2);
        (1..=4).for_each(|round| counters.pinged(round * 10_000, peer, round));
        counters.pinged(50_000, peer, 4);
        (1..=3).for_each(|round| counters.ponged(round * 10_000 + 25_000, peer, round));
        let told = |counters: &CoreCounters, now_us| {
            let members = counters.members(now_us, [peer, ServerId(3)].into_iter());
            let [one] = members.peers[..] else { panic!("one peer is known") };
            (one.round_trips.count, one.round_trips.waiting_us)
        };
        assert_eq!(told(&counters, 60_000), (3, 20_000));
        counters.ponged(60_000, peer, 4);
        assert_eq!(told(&counters, 70_000), (4, 0));
    }

    #[test]
    fn each_peers_first_acknowledgement_of_a_batch_is_told() {
        let zxid = |counter| Zxid::new(Epoch(1), counter);
        let mut counters = CoreCounters::default();
        let acks = [(10, 2, 4), (20, 3, 5), (25, 2, 5), (30, 3, 6), (40, 2, 6)];
        acks.iter().for_each(|&(at_us, peer, upto)| counters.keep_ack(at_us, ServerId(peer), zxid(upto)));
        assert_eq!(counters.acks_of(zxid(5), 15), [(ServerId(3), 20), (ServerId(2), 25)]);
        assert_eq!(counters.acks_of(zxid(7), 15), []);
    }
}
