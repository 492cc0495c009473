//! What reads see: lookups with the checks of their requests, in ZooKeeper's order: the znode first, then the
//! ACL. The rules that bind the client come before both: where it may do nothing, it does not learn either
//! whether a znode exists.
//!
//! Paths are not validated; one that no znode can have is simply missing. That includes the empty path, in
//! which ZooKeeper sees the root.

use std::borrow::Cow;

use ringkeeper_wire::{AclEntry, ErrorCode, Perms, SessionId, Stat};

use crate::acl::Caller;
use crate::authorisation::Verdict;
use crate::path;
use crate::state::State;
use crate::tree::{Children, Znode};

/// A znode's children.
#[derive(Clone, Copy)]
pub struct Listing<'a> {
    state: &'a State,
    path: &'a str,
    parent: &'a Znode,
}

impl<'a> Listing<'a> {
    /// Number of children.
    #[must_use]
    pub fn len(&self) -> usize {
        self.parent.num_children() as usize
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Their names, in no particular order.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &'a str> + use<'a> {
        Names { children: self.state.tree().children(self.path), left: self.len() }
    }

    /// The Stat of the znode itself.
    #[must_use]
    pub fn stat(&self) -> Stat {
        self.parent.stat()
    }
}

/// The answer to getAllChildrenNumber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// Number of znodes; a lower bound if the visits were used up.
    pub number: i32,
    /// Number of znodes visited.
    pub visits: usize,
}

/// The tree counts children apart from keeping them, so that their number is known before they are visited.
struct Names<'a> {
    children: Children<'a>,
    left: usize,
}

impl<'a> Iterator for Names<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let (name, _) = self.children.next()?;
        self.left -= 1;
        Some(name)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Names<'_> {}

impl State {
    /// exists.
    ///
    /// # Errors
    /// NONODE or NOAUTH. A watch is left on NONODE too.
    pub fn exists(&self, path: &str, caller: Caller<'_>) -> Result<Stat, ErrorCode> {
        let verdict = caller.bounds.map_or(Verdict::AsAclSays, |bounds| bounds.verdict_on_stat(path));
        Ok(self.find(path, Perms::READ, caller, verdict)?.stat())
    }

    /// getData, also in a multiRead. `None` is null data.
    ///
    /// # Errors
    /// NONODE or NOAUTH.
    pub fn get_data(&self, path: &str, caller: Caller<'_>) -> Result<(Option<&[u8]>, Stat), ErrorCode> {
        let znode = self.readable(path, caller)?;
        Ok((znode.data(), znode.stat()))
    }

    /// getChildren and getChildren2, also in a multiRead.
    ///
    /// # Errors
    /// NONODE or NOAUTH.
    pub fn get_children<'a>(&'a self, path: &'a str, caller: Caller<'_>) -> Result<Listing<'a>, ErrorCode> {
        Ok(Listing { state: self, path, parent: self.readable(path, caller)? })
    }

    /// getACL. Whoever has not ADMIN does not see the digests of others.
    ///
    /// # Errors
    /// NONODE, or NOAUTH without READ and ADMIN.
    pub fn get_acl(&self, path: &str, caller: Caller<'_>) -> Result<(Cow<'_, [AclEntry]>, Stat), ErrorCode> {
        let znode = self.reach(path, Perms(Perms::READ.0 | Perms::ADMIN.0), caller)?;
        let entries = caller.view(path, self.acl_of(znode)).ok_or(ErrorCode::NoAuth)?;
        Ok((entries, znode.stat()))
    }

    /// getEphemerals: the session's own, by a plain prefix of their paths; null, blank and "/" mean all.
    pub fn get_ephemerals(&self, session: SessionId, prefix: Option<&str>) -> impl Iterator<Item = &str> {
        // Java's idea of blank: every control character is.
        let trimmed = |prefix: &str| prefix.trim_matches(|c: char| c <= ' ').to_owned();
        let prefix = prefix.filter(|prefix| !matches!(&*trimmed(prefix), "" | path::ROOT));
        let prefix = prefix.unwrap_or_default();
        // In the order of their paths, those with a prefix follow each other.
        let from = self.sessions.ephemerals_from(session, prefix).map(|path| &**path);
        from.take_while(move |path: &&str| path.starts_with(prefix))
    }

    /// getAllChildrenNumber: counts everything below `path`. Visits all of that, except for the root, but at
    /// most one znode more than `visits_max`.
    ///
    /// # Errors
    /// NONODE or NOAUTH.
    pub fn get_all_children_number(
        &self,
        path: &str,
        caller: Caller<'_>,
        visits_max: usize,
    ) -> Result<Counted, ErrorCode> {
        self.readable(path, caller)?;
        let (count, visits) = match path {
            path::ROOT => (self.tree().len() - 1, 0),
            path => {
                let visits = self.tree().descendants(path).take(visits_max.saturating_add(1)).count();
                (visits, visits)
            }
        };
        Ok(Counted { number: i32::try_from(count).unwrap_or(i32::MAX), visits })
    }

    /// How many znodes [`Self::get_ephemerals`] visits.
    #[must_use]
    pub fn owned_ephemerals(&self, session: SessionId) -> usize {
        self.sessions.owned(session).count
    }

    fn readable(&self, path: &str, caller: Caller<'_>) -> Result<&Znode, ErrorCode> {
        self.reach(path, Perms::READ, caller)
    }

    /// The znode `path`, with which the caller may do any of `wanted`.
    pub(crate) fn reach(&self, path: &str, wanted: Perms, caller: Caller<'_>) -> Result<&Znode, ErrorCode> {
        self.find(path, wanted, caller, caller.verdict(wanted, path))
    }

    fn find(
        &self,
        path: &str,
        wanted: Perms,
        caller: Caller<'_>,
        verdict: Verdict,
    ) -> Result<&Znode, ErrorCode> {
        if verdict == Verdict::Forbidden {
            return Err(caller.bounds.map_or(ErrorCode::NoAuth, |bounds| bounds.refuse(wanted, path)));
        }
        let znode = self.znode(path).ok_or(ErrorCode::NoNode)?;
        let may = verdict.resolve(|| caller.is_granted(wanted, self.acl_of(znode)));
        if may { Ok(znode) } else { Err(ErrorCode::NoAuth) }
    }
}
