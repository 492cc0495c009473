//! Tenants: subtrees with limits (docs/tenants.md, docs/decisions/0048-tenants.md).
//!
//! The limits of `/p` are the text of the znode `/zookeeper/quota/p/ringkeeper_limits` ([`TenantLimits`]), so
//! they are replicated, logged and restored as znodes are. [`Tenants`] has them in a form that is fast to
//! look up, with the number of znodes and bytes of each tenant, which the leader holds against the limits.
//! What a server limits by itself (operations, bytes, watches, sessions) it counts in the tenant's [`Meter`].
//!
//! No tenant lies within another, so a path has at most one.

mod limits;
mod meter;

pub use limits::{Fault, InvalidLimits, Resource, TenantLimits};
pub(crate) use meter::Membership;
pub use meter::{Measured, Meter};

use std::sync::Arc;

use crate::path;
use crate::quota;
use crate::subtrees::Subtrees;
use crate::tree::Tree;

const LIMITS: &str = "/ringkeeper_limits";
const RESERVED: &str = "/zookeeper";

/// The path that the znode `path` sets limits for, if it does: empty for the root.
#[must_use]
pub fn limited_by(path: &str) -> Option<&str> {
    path.strip_prefix(quota::ROOT)?.strip_suffix(LIMITS)
}

/// Where the limits of `path` are.
#[must_use]
pub fn limits_path(path: &str) -> String {
    [quota::ROOT, path, LIMITS].concat()
}

/// A subtree with limits.
#[derive(Debug)]
pub struct Tenant {
    path: Arc<str>,
    limits: TenantLimits,
    meter: Arc<Meter>,
}

impl Tenant {
    /// The top of the subtree.
    #[must_use]
    pub const fn path(&self) -> &Arc<str> {
        &self.path
    }

    /// What it may use.
    #[must_use]
    pub const fn limits(&self) -> &TenantLimits {
        &self.limits
    }

    /// What this server has measured of it.
    #[must_use]
    pub fn meter(&self) -> &Meter {
        &self.meter
    }
}

/// What a tenant has stored: all znodes of its subtree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// Number of znodes, the top included.
    pub znodes: u64,
    /// Bytes of their data.
    pub data: u64,
}

impl Stored {
    const fn plus(self, znodes: i64, data: i64) -> Self {
        Self {
            znodes: self.znodes.saturating_add_signed(znodes),
            data: self.data.saturating_add_signed(data),
        }
    }
}

/// All tenants; a part of the replicated state, but for their meters.
#[derive(Clone, Debug, Default)]
pub struct Tenants {
    by_path: Subtrees<Arc<Tenant>>,
    /// Apart, since it changes with each write.
    stored: Subtrees<Stored>,
}

impl Tenants {
    /// Those in a tree.
    pub(crate) fn of(tree: &Tree) -> Self {
        let mut tenants = Self::default();
        for znode in tree.descendants(quota::ROOT) {
            tenants.put(tree, &znode.path(), znode.data());
        }
        tenants
    }

    /// Whether there is no tenant.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_path.is_empty()
    }

    /// Number of tenants.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_path.len()
    }

    /// The tenant that `path` belongs to.
    #[must_use]
    pub fn covering(&self, path: &str) -> Option<&Arc<Tenant>> {
        self.by_path.covering(path).map(|(_, tenant)| tenant)
    }

    /// The tenant at the top `path`.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<&Arc<Tenant>> {
        self.by_path.get(path)
    }

    /// All of them with what they have stored, by path.
    pub fn iter(&self) -> impl Iterator<Item = (&Tenant, Stored)> {
        self.by_path.iter().zip(self.stored.iter()).map(|((_, tenant), (_, stored))| (&**tenant, *stored))
    }

    /// Whether neither tenants nor limits have changed between the two.
    pub(crate) fn are_same(&self, other: &Self) -> bool {
        self.by_path.is_same(&other.by_path)
    }

    /// Whether a client may write these data to a znode with limits.
    ///
    /// # Errors
    /// See [`Fault`].
    pub fn check(&self, subject: &str, data: &[u8]) -> Result<(), InvalidLimits> {
        if subject.is_empty() || path::is_self_or_ancestor(RESERVED, subject) {
            return Err(Fault::Reserved.into());
        }
        let around = self.by_path.covering(subject).is_some_and(|(around, _)| around != subject);
        if around || self.by_path.below(subject).next().is_some() {
            return Err(Fault::Nested.into());
        }
        TenantLimits::parse(data).map(drop)
    }

    /// Records the data of a new or changed znode. Data that are no limits limit nothing; a client's write of
    /// such is refused, so they come from elsewhere.
    pub(crate) fn put(&mut self, tree: &Tree, path: &str, data: Option<&[u8]>) {
        let Some(subject) = limited_by(path).filter(|subject| !subject.is_empty()) else { return };
        let Ok(limits) = TenantLimits::parse(data.unwrap_or_default()) else { return self.forget(subject) };
        let known = self.get(subject);
        let meter = known.map_or_else(Arc::default, |tenant| Arc::clone(&tenant.meter));
        if known.is_none() {
            let znodes = tree.get(subject).into_iter().chain(tree.descendants(subject));
            let stored = znodes.fold(Stored::default(), |stored, znode| Stored {
                znodes: stored.znodes + 1,
                data: stored.data + znode.data().map_or(0, <[u8]>::len) as u64,
            });
            self.stored.insert(subject, stored);
        }
        self.by_path.insert(subject, Arc::new(Tenant { path: subject.into(), limits, meter }));
    }

    /// Records the deletion of a znode.
    pub(crate) fn remove(&mut self, path: &str) {
        if let Some(subject) = limited_by(path) {
            self.forget(subject);
        }
    }

    fn forget(&mut self, subject: &str) {
        self.by_path.remove(subject);
        self.stored.remove(subject);
    }

    /// Adds to what the tenant of `path` has stored.
    pub(crate) fn charge(&mut self, path: &str, znodes: i64, data: i64) {
        let Some((subject, _)) = self.by_path.covering(path) else { return };
        if let Some(stored) = self.stored.get_mut(subject) {
            *stored = stored.plus(znodes, data);
        }
    }

    /// The limit that forbids the tenant of `path` this many znodes and bytes more; counts the refusal. What
    /// does not grow is never forbidden.
    pub(crate) fn forbid(&self, path: &str, znodes: i64, data: i64) -> Option<Resource> {
        let (subject, tenant) = self.by_path.covering(path)?;
        let then = self.stored.get(subject).copied().unwrap_or_default().plus(znodes, data);
        let exceeds = |more: i64, then: u64, resource: Resource| {
            more > 0 && tenant.limits.of(resource).is_some_and(|limit| then > limit)
        };
        let refused = [(znodes, then.znodes, Resource::Znodes), (data, then.data, Resource::Data)]
            .into_iter()
            .find_map(|(more, then, resource)| exceeds(more, then, resource).then_some(resource))?;
        tenant.meter.refuse(refused);
        Some(refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree's tenants after a znode with limits was created.
    fn tenants(limits: &[(&str, &str)]) -> Tenants {
        let mut tenants = Tenants::default();
        for (path, text) in limits {
            tenants.put(&Tree::new(1), &limits_path(path), Some(text.as_bytes()));
        }
        tenants
    }

    #[test]
    fn a_path_belongs_to_the_tenant_above_it() {
        let tenants = tenants(&[("/t/a", "ops=1"), ("/t/b", "")]);
        for (path, tenant) in [
            ("/t/a", Some("/t/a")),
            ("/t/a/x/y", Some("/t/a")),
            ("/t/b/x", Some("/t/b")),
            ("/t", None),
            ("/t/ab", None),
            ("/zookeeper/quota/t/a", None),
        ] {
            assert_eq!(tenants.covering(path).map(|tenant| &**tenant.path()), tenant, "{path}");
        }
    }

    #[test]
    fn the_limits_count_to_the_last_znode_and_byte() {
        let mut tenants = tenants(&[("/t", "znodes=3 data=10")]);
        tenants.charge("/t", 1, 4);
        tenants.charge("/t/x", 1, 0);
        tenants.charge("/other", 1, 100);
        assert_eq!(tenants.forbid("/t/y", 1, 6), None);
        assert_eq!(tenants.forbid("/t/y", 1, 7), Some(Resource::Data));
        tenants.charge("/t/y", 1, 6);
        assert_eq!(tenants.forbid("/t/z", 1, 0), Some(Resource::Znodes));
        assert_eq!(tenants.forbid("/t/y", 0, 1), Some(Resource::Data));
        assert_eq!(tenants.forbid("/t/y", 0, 0), None);
        assert_eq!(tenants.forbid("/other/y", 1, 100), None);
        // Smaller limits delete nothing, and what shrinks is allowed.
        tenants.put(&Tree::new(1), &limits_path("/t"), Some(b"znodes=1 data=1"));
        assert_eq!(tenants.forbid("/t/y", 0, -1), None);
        tenants.charge("/t/y", -1, -6);
        let (tenant, stored) = tenants.iter().next().expect("there is one");
        assert_eq!(stored, Stored { znodes: 2, data: 4 });
        let measured = tenant.meter().measured();
        assert_eq!(Resource::ALL.map(|resource| measured.refused(resource)), [0, 0, 0, 0, 1, 2]);
    }

    #[test]
    fn no_tenant_lies_within_another_or_is_the_servers_own() {
        let tenants = tenants(&[("/t/a", "ops=1")]);
        let fault = |subject: &str| tenants.check(subject, b"ops=2").map_err(|error| error.fault);
        assert_eq!(fault("/t/a/b"), Err(Fault::Nested));
        assert_eq!(fault("/t"), Err(Fault::Nested));
        for subject in ["", "/zookeeper", "/zookeeper/quota"] {
            assert_eq!(fault(subject), Err(Fault::Reserved), "{subject}");
        }
        for subject in ["/t/a", "/t/ab", "/zookeepers"] {
            assert_eq!(fault(subject), Ok(()), "{subject}");
        }
    }

    #[test]
    fn changed_limits_keep_the_meter() {
        let mut tenants = tenants(&[("/t", "ops=1")]);
        let before = tenants.clone();
        tenants.charge("/t", 1, 0);
        assert!(tenants.are_same(&before));
        tenants.put(&Tree::new(1), &limits_path("/t"), Some(b"ops=2"));
        assert!(!tenants.are_same(&before));
        let meter = |tenants: &Tenants| Arc::clone(&tenants.get("/t").expect("a tenant").meter);
        assert!(Arc::ptr_eq(&meter(&tenants), &meter(&before)));
        tenants.remove(&limits_path("/t"));
        assert!(tenants.is_empty());
    }
}
