//! Sessions and their ephemeral znodes.

use std::ops::Bound;
use std::sync::Arc;

use equivalent::{Comparable, Equivalent};
use imbl::{OrdMap, OrdSet};
use ringkeeper_wire::SessionId;

use crate::steps;
use crate::txn::Session;

/// All sessions, and their ephemerals in one set. Most sessions have one ephemeral, for which a set of its
/// own would cost more than its content.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sessions {
    by_id: OrdMap<SessionId, Session>,
    ephemerals: OrdSet<Ephemeral>,
    /// Number and size of the ephemerals of each session that has any.
    owned: OrdMap<SessionId, Owned>,
}

/// The number of ephemerals of a session, and the bytes of their paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Owned {
    pub(crate) count: usize,
    pub(crate) bytes: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Ephemeral {
    owner: SessionId,
    path: Arc<str>,
}

/// An [`Ephemeral`] to search for.
struct Wanted<'a>(SessionId, &'a str);

impl Equivalent<Ephemeral> for Wanted<'_> {
    fn equivalent(&self, key: &Ephemeral) -> bool {
        self.compare(key).is_eq()
    }
}

impl Comparable<Ephemeral> for Wanted<'_> {
    fn compare(&self, key: &Ephemeral) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(key.owner, &*key.path))
    }
}

impl Sessions {
    pub(crate) fn get(&self, id: SessionId) -> Option<&Session> {
        self.by_id.get(&id)
    }

    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = (SessionId, &Session)> {
        self.by_id.iter().map(|(&id, session)| (id, session))
    }

    /// The sessions after `after`.
    pub(crate) fn after(&self, after: Option<SessionId>) -> impl Iterator<Item = (SessionId, &Session)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.by_id.range((from, Bound::Unbounded)).map(|(&id, session)| (id, session))
    }

    pub(crate) fn open(&mut self, id: SessionId, session: Session) {
        self.by_id.insert(id, session);
    }

    pub(crate) fn close(&mut self, id: SessionId) {
        self.by_id.remove(&id);
    }

    pub(crate) fn ephemerals(&self, owner: SessionId) -> impl Iterator<Item = &Arc<str>> {
        self.ephemerals_from(owner, "")
    }

    /// The session's ephemerals from the path `first` on, in the order of their paths.
    pub(crate) fn ephemerals_from(&self, owner: SessionId, first: &str) -> impl Iterator<Item = &Arc<str>> {
        self.ephemerals
            .range((Bound::Included(Wanted(owner, first)), Bound::Unbounded))
            .take_while(move |ephemeral| ephemeral.owner == owner)
            .inspect(|_| steps::count(1))
            .map(|ephemeral| &ephemeral.path)
    }

    /// The number and bytes of a session's ephemerals.
    pub(crate) fn owned(&self, owner: SessionId) -> Owned {
        self.owned.get(&owner).copied().unwrap_or_default()
    }

    pub(super) fn ephemeral_count(&self) -> usize {
        self.ephemerals.len()
    }

    pub(super) fn add_ephemeral(&mut self, owner: SessionId, path: &str) {
        let before = self.ephemerals.insert(Ephemeral { owner, path: path.into() });
        if before.is_none() {
            let owned = self.owned.entry(owner).or_default();
            *owned = Owned { count: owned.count + 1, bytes: owned.bytes + path.len() };
        }
    }

    pub(super) fn remove_ephemeral(&mut self, owner: SessionId, path: &str) {
        if self.ephemerals.remove(&Wanted(owner, path)).is_none() {
            return;
        }
        let Owned { count, bytes } = self.owned(owner);
        if count <= 1 {
            self.owned.remove(&owner);
        } else {
            self.owned.insert(owner, Owned { count: count - 1, bytes: bytes - path.len() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ephemerals_are_listed_by_their_session_alone() {
        let mut sessions = Sessions::default();
        for (owner, path) in [(1, "/b"), (2, "/c"), (1, "/a"), (-3, "/d")] {
            sessions.add_ephemeral(SessionId(owner), path);
        }
        let of = |sessions: &Sessions, owner| {
            sessions.ephemerals(SessionId(owner)).map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(of(&sessions, 1), ["/a", "/b"]);
        assert_eq!(of(&sessions, 2), ["/c"]);
        assert_eq!(of(&sessions, -3), ["/d"]);
        assert_eq!(sessions.owned(SessionId(1)), Owned { count: 2, bytes: 4 });
        sessions.remove_ephemeral(SessionId(1), "/a");
        assert_eq!(of(&sessions, 1), ["/b"]);
        assert_eq!(sessions.ephemeral_count(), 3);
        sessions.remove_ephemeral(SessionId(1), "/a");
        sessions.remove_ephemeral(SessionId(1), "/b");
        assert_eq!(sessions.owned(SessionId(1)), Owned::default());
    }
}
