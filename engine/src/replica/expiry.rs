//! Session expiry: decided by the leader alone, from the last time each session was heard from.
//!
//! Expiry is rounded up to the next tick, as in ZooKeeper: a session lives for more than its timeout and at
//! most one tick longer, and the sessions of one tick expire together. A session that is touched again within
//! the same tick costs one look-up.
//!
//! Other servers report at intervals which sessions they heard from, so a deadline is extended by one
//! interval: a client may rely on its whole timeout. A server reports at once when a connection ends. What it
//! reports may come late. So a session on another server ends only when that server has answered a heartbeat
//! that was sent when the session's time was over: all that the server had reported before has come by then,
//! since a link keeps the order. When a server is silent or gone, its clients get their whole timeout again
//! (`release_clients_of` of the replica).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use ringkeeper_wire::SessionId;

/// The deadlines of all sessions, in milliseconds on a clock that stands still while this process does: what
/// its clients said meanwhile is heard only afterwards.
#[derive(Debug)]
pub(crate) struct Expiry {
    tick_ms: u64,
    /// How far this clock is behind the monotonic one.
    lost_ms: u64,
    /// The last call of [`Expiry::pass`], on the monotonic clock.
    passed_ms: u64,
    was_paused: bool,
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
    /// When the session is looked at: at a tick, or soon if it was put off.
    at: u64,
    /// How much earlier its time is over.
    early_ms: u32,
    timeout_ms: u32,
}

impl Deadline {
    fn new(at: u64, over_ms: u64, timeout_ms: u32) -> Self {
        Self { at, early_ms: u32::try_from(at - over_ms).unwrap_or(u32::MAX), timeout_ms }
    }

    fn over_ms(&self) -> u64 {
        self.at.saturating_sub(u64::from(self.early_ms))
    }
}

/// What becomes of a session whose time is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Expires,
    /// It may have been heard from: it is looked at again after [`LOOK_AGAIN_MS`].
    Waits,
    /// It and those behind it are looked at next time.
    NextTime,
}

const LOOK_AGAIN_MS: u64 = 100;

/// The longest time between two ticks that counts in full: what a longer one has more is lost.
const STEP_MAX_MS: u64 = 100;

impl Expiry {
    pub(crate) fn new(now_ms: u64, tick_ms: u32, reports_ms: u32) -> Self {
        Self {
            tick_ms: u64::from(tick_ms.max(1)),
            lost_ms: 0,
            passed_ms: now_ms,
            was_paused: false,
            reports_ms: u64::from(reports_ms),
            deadlines: BTreeMap::new(),
            buckets: BTreeMap::new(),
        }
    }

    /// No client is heard until the next tick, so that time is lost.
    pub(crate) const fn note_pause(&mut self) {
        self.was_paused = true;
    }

    /// A tick, before sessions are taken. Returns the time since the last one.
    pub(crate) fn pass(&mut self, now_ms: u64) -> u64 {
        let step_ms = now_ms.saturating_sub(self.passed_ms);
        let counts_ms = if std::mem::take(&mut self.was_paused) { 0 } else { STEP_MAX_MS };
        self.lost_ms += step_ms.saturating_sub(counts_ms);
        self.passed_ms = now_ms;
        step_ms
    }

    /// Starts a session's deadline, or restarts it with another timeout.
    pub(crate) fn track(&mut self, now_ms: u64, session: SessionId, timeout_ms: u32) {
        let over_ms = self.clock(now_ms) + u64::from(timeout_ms) + self.reports_ms;
        let at = (over_ms / self.tick_ms + 1) * self.tick_ms;
        self.put(session, Deadline::new(at, over_ms, timeout_ms));
    }

    /// This clock's time.
    const fn clock(&self, monotonic_ms: u64) -> u64 {
        monotonic_ms.saturating_sub(self.lost_ms)
    }

    fn put(&mut self, session: SessionId, deadline: Deadline) {
        self.forget(session);
        self.deadlines.insert(session, deadline);
        self.buckets.entry(deadline.at).or_default().insert(session);
    }

    /// Extends the deadline of a session that was heard from. Unknown ones have expired or were closed.
    pub(crate) fn touch(&mut self, now_ms: u64, session: SessionId) {
        let until_ms = self.clock(now_ms) + self.reports_ms;
        let Some(deadline) = self.deadlines.get_mut(&session) else { return };
        let Deadline { at, timeout_ms, .. } = *deadline;
        let over_ms = until_ms + u64::from(timeout_ms);
        if over_ms >= at {
            self.track(now_ms, session, timeout_ms);
        } else if over_ms > deadline.over_ms() {
            *deadline = Deadline::new(at, over_ms, timeout_ms);
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

    /// Takes the sessions whose time is over and that `judge` lets expire; they are no longer tracked. The
    /// others stay, and may still be heard from in time. `judge` is told since when the time is over, on the
    /// monotonic clock.
    pub(crate) fn expired(
        &mut self,
        now_ms: u64,
        mut judge: impl FnMut(SessionId, u64) -> Verdict,
    ) -> Vec<SessionId> {
        let (clock_ms, mut expired) = (self.clock(now_ms), Vec::new());
        while let Some((_, due)) = self.buckets.first_key_value().filter(|(at, _)| **at <= clock_ms)
            && let Some(&session) = due.first()
            && let Some(deadline) = self.deadlines.get(&session)
        {
            let (over_ms, timeout_ms) = (deadline.over_ms(), deadline.timeout_ms);
            match judge(session, over_ms + self.lost_ms) {
                Verdict::Expires => {
                    self.forget(session);
                    expired.push(session);
                }
                Verdict::Waits => {
                    self.put(session, Deadline::new(clock_ms + LOOK_AGAIN_MS, over_ms, timeout_ms));
                }
                Verdict::NextTime => break,
            }
        }
        expired
    }

    /// The sessions behind `after` in the order of their ids; `local` says what they all are.
    pub(crate) fn listed(
        &self,
        after: Option<SessionId>,
        local: bool,
    ) -> impl Iterator<Item = ListedSession> + '_ {
        let behind = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let listed = self.deadlines.range(behind);
        listed.map(move |(&session, &Deadline { at, timeout_ms, .. })| ListedSession {
            session,
            expires_ms: at + self.lost_ms,
            timeout_ms,
            local,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: SessionId = SessionId(1);
    const B: SessionId = SessionId(2);
    const ALL: fn(SessionId, u64) -> Verdict = |_, _| Verdict::Expires;

    #[test]
    fn a_session_expires_after_its_timeout_and_at_most_a_tick_later() {
        let mut expiry = Expiry::new(0, 2000, 0);
        expiry.track(100, A, 4000);
        assert_eq!(expiry.expired(5999, ALL), vec![]);
        assert_eq!(expiry.expired(6000, ALL), vec![A]);
        assert_eq!(expiry.expired(60_000, ALL), vec![]);
    }

    #[test]
    fn a_touch_gives_the_whole_timeout_again() {
        let mut expiry = Expiry::new(0, 1000, 0);
        expiry.track(0, A, 4000);
        expiry.track(0, B, 4000);
        expiry.touch(4500, A);
        assert_eq!(expiry.expired(5000, ALL), vec![B]);
        assert_eq!(expiry.expired(8999, ALL), vec![]);
        assert_eq!(expiry.expired(9000, ALL), vec![A]);
    }

    #[test]
    fn a_session_has_the_time_between_two_reports_on_top() {
        let mut expiry = Expiry::new(0, 1000, 500);
        // Heard from until 499 by a server that reported at 0.
        expiry.track(0, A, 4600);
        assert_eq!(expiry.expired(499 + 4600, ALL), vec![]);
        assert_eq!(expiry.expired(6000, ALL), vec![A]);
    }

    #[test]
    fn sessions_are_listed_in_parts() {
        let mut expiry = Expiry::new(0, 1000, 0);
        [A, B].into_iter().for_each(|session| expiry.track(0, session, 4000));
        let listed =
            |session| Some(ListedSession { session, expires_ms: 5000, timeout_ms: 4000, local: true });
        assert_eq!(expiry.listed(None, true).next(), listed(A));
        assert_eq!(expiry.listed(Some(A), true).next(), listed(B));
        assert_eq!(expiry.listed(Some(B), true).next(), None);
    }

    #[test]
    fn a_forgotten_session_never_expires_and_cannot_be_touched_back() {
        let mut expiry = Expiry::new(0, 1000, 0);
        expiry.track(0, A, 4000);
        expiry.forget(A);
        expiry.touch(100, A);
        assert_eq!(expiry.expired(u64::MAX, ALL), vec![]);
    }

    #[test]
    fn a_pause_of_the_server_is_held_against_no_session() {
        let mut expiry = Expiry::new(0, 1000, 0);
        expiry.track(0, A, 4000);
        expiry.note_pause();
        assert_eq!(expiry.pass(2500), 2500);
        let mut over = None;
        let look = |_, over_ms| {
            over = Some(over_ms);
            Verdict::Expires
        };
        assert_eq!(expiry.expired(7499, ALL), vec![]);
        assert_eq!(expiry.expired(7500, look), vec![A]);
        assert_eq!(over, Some(6500));
    }

    #[test]
    fn stalls_again_and_again_delay_the_end_of_a_session_by_no_more_than_they_took() {
        let mut expiry = Expiry::new(0, 2000, 0);
        expiry.track(0, A, 4000);
        let ticks = (0..).flat_map(|round| (0..30).map(move |tick| round * 2000 + tick * 50));
        let mut ticks = ticks.take_while(|tick| *tick < 60_000);
        let ended = ticks.find(|tick| {
            expiry.pass(*tick);
            expiry.expired(*tick, ALL) == [A]
        });
        // Three stalls of 550 ms, of which 100 count: on its clock it is 6,000.
        assert_eq!(ended, Some(7350));
    }

    #[test]
    fn expired_sessions_that_are_not_taken_are_taken_later_unless_they_were_heard_from() {
        let mut expiry = Expiry::new(0, 1000, 0);
        let sessions = [1, 2, 3].map(SessionId);
        sessions.iter().for_each(|session| expiry.track(0, *session, 4000));
        let mut left = 1;
        let taken = expiry.expired(6000, |_, _| match std::mem::replace(&mut left, 0) {
            0 => Verdict::NextTime,
            _ => Verdict::Expires,
        });
        assert_eq!(taken, sessions[..1]);
        expiry.touch(6000, sessions[1]);
        assert_eq!(expiry.expired(6000, ALL), sessions[2..]);
        assert_eq!(expiry.expired(11_000, ALL), sessions[1..2]);
    }

    #[test]
    fn a_session_that_may_have_been_heard_from_is_looked_at_again_and_holds_up_no_other() {
        let mut expiry = Expiry::new(0, 1000, 0);
        expiry.track(0, A, 4000);
        expiry.touch(700, A);
        expiry.track(500, B, 4000);
        let mut look = |now_ms| {
            let mut over = None;
            let expired = expiry.expired(now_ms, |session, over_ms| match session {
                A => {
                    over = Some(over_ms);
                    Verdict::Waits
                }
                _ => Verdict::Expires,
            });
            (expired, over)
        };
        assert_eq!(look(5000), (vec![B], Some(4700)), "counted from the last touch within the tick");
        assert_eq!(look(5050), (vec![], None));
        assert_eq!(look(5100), (vec![], Some(4700)));
        expiry.touch(5150, A);
        assert_eq!(expiry.expired(9999, ALL), vec![]);
        assert_eq!(expiry.expired(10_000, ALL), vec![A]);
    }
}
