//! The sessions that leaders have called expired although they did not know them: they may be local to
//! another server, which has not heard of that yet. Their upgrade comes too late, since their clients rely on
//! having no ephemerals any more. A leader that hands over tells its successor, whom the clients' servers go
//! over to with what they have yet to read.

use std::collections::{BTreeSet, VecDeque};

use ringkeeper_wire::SessionId;

/// How many are remembered. An upgrade is too late if its server is slow to find out that a client has gone;
/// meanwhile so many other clients would have to be rejected that this one is forgotten.
const REMEMBERED_MAX: usize = 100_000;

/// How many a successor is told of, so that they take no time of a hand-over: 100 kB.
const TOLD_MAX: usize = 4096;

/// A session and the password that was presented for it: whoever has no password of a session cannot keep it
/// from being upgraded.
pub(super) type Credentials = (SessionId, [u8; 16]);

/// What this server knows of such sessions.
#[derive(Debug, Default)]
pub(super) struct RejectedSessions {
    known: BTreeSet<Credentials>,
    /// The same, oldest first.
    order: VecDeque<Credentials>,
}

impl RejectedSessions {
    pub(super) fn contains(&self, rejected: Credentials) -> bool {
        self.known.contains(&rejected)
    }

    /// The newest of them, for a successor; oldest first.
    pub(super) fn newest(&self) -> impl ExactSizeIterator<Item = &Credentials> {
        self.order.range(self.order.len().saturating_sub(TOLD_MAX)..)
    }

    pub(super) fn insert(&mut self, rejected: Credentials) {
        if !self.known.insert(rejected) {
            return;
        }
        self.order.push_back(rejected);
        if self.order.len() > REMEMBERED_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_remembered_with_their_passwords() {
        let mut rejected = RejectedSessions::default();
        let session = |number: usize| SessionId(i64::try_from(number).expect("small"));
        (0..=REMEMBERED_MAX).for_each(|number| rejected.insert((session(number), [1; 16])));
        rejected.insert((session(1), [1; 16]));
        assert!(!rejected.contains((session(0), [1; 16])), "the oldest is forgotten");
        assert!(rejected.contains((session(1), [1; 16])));
        assert!(!rejected.contains((session(1), [2; 16])));
        assert_eq!(rejected.newest().len(), TOLD_MAX);
        assert_eq!(rejected.newest().last(), Some(&(session(REMEMBERED_MAX), [1; 16])));
    }
}
