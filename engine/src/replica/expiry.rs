//! Session expiry: decided by the leader alone, from the last time each session was heard from.
//!
//! Expiry is rounded up to the next tick, as in ZooKeeper: a session lives for more than its timeout and at
//! most one tick longer, and the sessions of one tick expire together. A session that is touched again within
//! the same tick costs one look-up.
//!
//! Other servers report at intervals which sessions they heard from, so a deadline is extended by one
//! interval: a client may rely on its whole timeout. A server reports at once when a connection ends. When a
//! server is gone, its clients get their whole timeout again (`server_left` of the replica).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use ringkeeper_wire::SessionId;

/// The deadlines of all sessions, on a monotonic clock in milliseconds.
#[derive(Debug)]
pub(crate) struct Expiry {
    tick_ms: u64,
    /// Time between two reports of other servers.
    reports_ms: u64,
    /// Invariant: `deadlines[s].at == d` exactly when `buckets[d]` contains `s`.
    deadlines: BTreeMap<SessionId, Deadline>,
    buckets: BTreeMap<u64, BTreeSet<SessionId>>,
}

/// A session whose silence this server counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedSession {
    /// The session.
    pub session: SessionId,
    /// When it expires unless it is heard from, milliseconds on the monotonic clock.
    pub expires_ms: u64,
    /// Its timeout in milliseconds.
    pub timeout_ms: u32,
    /// Whether this server alone knows it.
    pub local: bool,
}

#[derive(Clone, Copy, Debug)]
struct Deadline {
    at: u64,
    timeout_ms: u32,
}

impl Expiry {
    pub(crate) fn new(tick_ms: u32, reports_ms: u32) -> Self {
        let (deadlines, buckets) = Default::default();
        Self { tick_ms: u64::from(tick_ms.max(1)), reports_ms: u64::from(reports_ms), deadlines, buckets }
    }

    /// Starts a session's deadline, or restarts it with another timeout.
    pub(crate) fn track(&mut self, now_ms: u64, session: SessionId, timeout_ms: u32) {
        self.forget(session);
        let at = self.end(now_ms, timeout_ms);
        self.deadlines.insert(session, Deadline { at, timeout_ms });
        self.buckets.entry(at).or_default().insert(session);
    }

    /// Extends the deadline of a session that was heard from. Unknown ones have expired or were closed.
    pub(crate) fn touch(&mut self, now_ms: u64, session: SessionId) {
        let Some(deadline) = self.deadlines.get(&session) else { return };
        if self.end(now_ms, deadline.timeout_ms) > deadline.at {
            self.track(now_ms, session, deadline.timeout_ms);
        }
    }

    /// The session is closed.
    pub(crate) fn forget(&mut self, session: SessionId) {
        let Some(deadline) = self.deadlines.remove(&session) else { return };
        if let Some(bucket) = self.buckets.get_mut(&deadline.at) {
            bucket.remove(&session);
            if bucket.is_empty() {
                self.buckets.remove(&deadline.at);
            }
        }
    }

    /// Takes the sessions whose time is over, up to the first one that `take` refuses; they are no longer
    /// tracked. The others stay, and may still be heard from in time.
    pub(crate) fn expired(&mut self, now_ms: u64, mut take: impl FnMut(SessionId) -> bool) -> Vec<SessionId> {
        let mut expired = Vec::new();
        while let Some(mut bucket) = self.buckets.first_entry().filter(|entry| *entry.key() <= now_ms) {
            while let Some(&session) = bucket.get().first() {
                if !take(session) {
                    return expired;
                }
                bucket.get_mut().pop_first();
                self.deadlines.remove(&session);
                expired.push(session);
            }
            bucket.remove();
        }
        expired
    }

    /// Postpones every deadline, so that a pause of this process expires no session.
    pub(crate) fn postpone(&mut self, by_ms: u64) {
        let by_ms = by_ms.next_multiple_of(self.tick_ms);
        let buckets = std::mem::take(&mut self.buckets);
        self.buckets = buckets.into_iter().map(|(at, sessions)| (at + by_ms, sessions)).collect();
        for deadline in self.deadlines.values_mut() {
            deadline.at += by_ms;
        }
    }

    /// The sessions behind `after` in the order of their ids; `local` says what they all are.
    pub(crate) fn listed(
        &self,
        after: Option<SessionId>,
        local: bool,
    ) -> impl Iterator<Item = ListedSession> + '_ {
        let behind = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let listed = self.deadlines.range(behind);
        listed.map(move |(&session, &Deadline { at, timeout_ms })| ListedSession {
            session,
            expires_ms: at,
            timeout_ms,
            local,
        })
    }

    /// The deadline of a session that is heard from now.
    fn end(&self, now_ms: u64, timeout_ms: u32) -> u64 {
        let at = now_ms + u64::from(timeout_ms) + self.reports_ms;
        (at / self.tick_ms + 1) * self.tick_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: SessionId = SessionId(1);
    const B: SessionId = SessionId(2);

    #[test]
    fn a_session_expires_after_its_timeout_and_at_most_a_tick_later() {
        let mut expiry = Expiry::new(2000, 0);
        expiry.track(100, A, 4000);
        assert_eq!(expiry.expired(5999, |_| true), vec![]);
        assert_eq!(expiry.expired(6000, |_| true), vec![A]);
        assert_eq!(expiry.expired(60_000, |_| true), vec![]);
    }

    #[test]
    fn a_touch_gives_the_whole_timeout_again() {
        let mut expiry = Expiry::new(1000, 0);
        expiry.track(0, A, 4000);
        expiry.track(0, B, 4000);
        expiry.touch(4500, A);
        assert_eq!(expiry.expired(5000, |_| true), vec![B]);
        assert_eq!(expiry.expired(8999, |_| true), vec![]);
        assert_eq!(expiry.expired(9000, |_| true), vec![A]);
    }

    #[test]
    fn a_session_has_the_time_between_two_reports_on_top() {
        let mut expiry = Expiry::new(1000, 500);
        // Heard from until 499 by a server that reported at 0.
        expiry.track(0, A, 4600);
        assert_eq!(expiry.expired(499 + 4600, |_| true), vec![]);
        assert_eq!(expiry.expired(6000, |_| true), vec![A]);
    }

    #[test]
    fn sessions_are_listed_in_parts() {
        let mut expiry = Expiry::new(1000, 0);
        [A, B].into_iter().for_each(|session| expiry.track(0, session, 4000));
        let listed =
            |session| Some(ListedSession { session, expires_ms: 5000, timeout_ms: 4000, local: true });
        assert_eq!(expiry.listed(None, true).next(), listed(A));
        assert_eq!(expiry.listed(Some(A), true).next(), listed(B));
        assert_eq!(expiry.listed(Some(B), true).next(), None);
    }

    #[test]
    fn a_forgotten_session_never_expires_and_cannot_be_touched_back() {
        let mut expiry = Expiry::new(1000, 0);
        expiry.track(0, A, 4000);
        expiry.forget(A);
        expiry.touch(100, A);
        assert_eq!(expiry.expired(u64::MAX, |_| true), vec![]);
    }

    #[test]
    fn a_pause_of_the_server_is_held_against_no_session() {
        let mut expiry = Expiry::new(1000, 0);
        expiry.track(0, A, 4000);
        expiry.postpone(2500);
        assert_eq!(expiry.expired(7999, |_| true), vec![]);
        assert_eq!(expiry.expired(8000, |_| true), vec![A]);
    }

    #[test]
    fn expired_sessions_that_are_not_taken_are_taken_later_unless_they_were_heard_from() {
        let mut expiry = Expiry::new(1000, 0);
        let sessions = [1, 2, 3].map(SessionId);
        sessions.iter().for_each(|session| expiry.track(0, *session, 4000));
        let mut left = 1;
        let taken = expiry.expired(6000, |_| std::mem::replace(&mut left, 0) > 0);
        assert_eq!(taken, sessions[..1]);
        expiry.touch(6000, sessions[1]);
        assert_eq!(expiry.expired(6000, |_| true), sessions[2..]);
        assert_eq!(expiry.expired(11_000, |_| true), sessions[1..2]);
    }
}
