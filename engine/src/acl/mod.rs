//! Access control lists: who may do what to a znode (docs/protocol.md, 7).
//!
//! An ACL covers its znode alone; children do not inherit it. `scheme` has the meaning of the schemes,
//! `fixup` the normalization of ACLs that clients send, `authenticate` the identities of a client.

mod authenticate;
mod digest;
mod fixup;
mod index;
mod scheme;
mod spiffe;

pub(crate) use authenticate::certified_identities;
pub use authenticate::{AuthFailed, authenticate};
pub use digest::DigestAlgorithm;
pub use fixup::{InvalidAcl, fixup};
pub use scheme::is_sasl_id;
pub(crate) use scheme::{ANYONE, IP, Network, SASL, WORLD, is_valid, parse_address};
pub use spiffe::{is_spiffe_trust_domain, spiffe_trust_domain};

use std::borrow::Cow;
use std::cmp::Ordering;
use std::sync::{Arc, LazyLock};

use index::Index;
use ringkeeper_wire::{AclEntry, ErrorCode, Identity, Perms};

use crate::authorisation::{Bounds, Verdict};
use crate::steps;

/// `world:anyone` with all permissions.
static OPEN_ENTRIES: LazyLock<[AclEntry; 1]> = LazyLock::new(|| {
    [AclEntry { perms: Perms::ALL, scheme: scheme::WORLD.to_owned(), id: scheme::ANYONE.to_owned() }]
});

/// A znode's access control list. Cloning shares it.
///
/// Nearly all znodes are open to everybody; that list costs nothing to hold or to check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acl(Option<Arc<List>>);

#[derive(Debug)]
struct List {
    /// Invariant: neither empty nor [`OPEN_ENTRIES`].
    entries: Vec<AclEntry>,
    index: Option<Index>,
}

impl PartialEq for List {
    fn eq(&self, other: &Self) -> bool {
        self.entries == other.entries
    }
}

impl Eq for List {}

impl Acl {
    /// Everybody may do everything.
    pub const OPEN: Self = Self(None);

    /// An ACL of these entries, in this order. Without entries nothing is checked, as in ZooKeeper: that is
    /// [`Self::OPEN`].
    #[must_use]
    pub fn new(entries: Vec<AclEntry>) -> Self {
        if entries.is_empty() || entries == *OPEN_ENTRIES {
            return Self::OPEN;
        }
        let index = Index::of(&entries);
        Self(Some(Arc::new(List { entries, index })))
    }

    /// Everybody may read, only the superuser may do more: the ACL of the ensemble's configuration.
    #[must_use]
    pub fn read_only() -> Self {
        let anyone = AclEntry { perms: Perms::READ, ..OPEN_ENTRIES[0].clone() };
        Self::new(vec![anyone])
    }

    /// Whether everybody may do everything.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.0.is_none()
    }

    /// Its entries; never empty.
    #[must_use]
    pub fn entries(&self) -> &[AclEntry] {
        self.0.as_ref().map_or(&*OPEN_ENTRIES, |list| &list.entries)
    }

    /// What its entries take in a batch, roughly, in bytes.
    pub(crate) fn len_bytes(&self) -> usize {
        let entries = self.0.as_ref().map_or(&[][..], |list| &list.entries);
        entries.iter().map(|entry| 24 + entry.scheme.len() + entry.id.len()).sum()
    }

    fn grants(&self, wanted: Perms, identities: &[Identity]) -> bool {
        if let Some(List { entries, index: Some(index) }) = self.0.as_deref() {
            return index.grants(entries, wanted, identities);
        }
        steps::count(self.entries().len() * identities.len());
        self.entries()
            .iter()
            .filter(|entry| entry.perms.intersects(wanted))
            .any(|entry| scheme::is_world(entry) || identities.iter().any(|who| scheme::matches(who, entry)))
    }
}

impl Ord for Acl {
    fn cmp(&self, other: &Self) -> Ordering {
        fn key(entry: &AclEntry) -> (i32, &str, &str) {
            (entry.perms.0, &entry.scheme, &entry.id)
        }
        self.entries().iter().map(key).cmp(other.entries().iter().map(key))
    }
}

impl PartialOrd for Acl {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Which entries the given one belongs to, if no client can have an identity that matches it: its scheme, or
/// `digest` with ids that were made with another hash.
#[must_use]
pub fn unsatisfiable(entry: &AclEntry, algorithm: DigestAlgorithm) -> Option<String> {
    match entry.scheme.as_str() {
        scheme::DIGEST if algorithm.can_make(&entry.id) => None,
        scheme::DIGEST => Some(format!("{}, not made with {algorithm}", scheme::DIGEST)),
        scheme::WORLD | scheme::IP => None,
        scheme if scheme::is_authenticated(scheme) => None,
        scheme => Some(scheme.to_owned()),
    }
}

/// Whether an entry of this scheme stands for all authenticated identities of the client that sets the ACL.
pub(crate) fn stands_for_identities(scheme: &str) -> bool {
    scheme == scheme::AUTH
}

/// Whether an `auth` entry stands for this identity, too: it was proved by a secret.
pub(crate) fn is_proved(identity: &Identity) -> bool {
    scheme::is_authenticated(&identity.scheme)
}

/// The name of an identity: the user of a digest without the hash of the password; the superuser has none.
pub(crate) fn user(identity: &Identity) -> &str {
    match identity.scheme.as_str() {
        scheme::DIGEST => identity.id.split(':').next().unwrap_or_default(),
        "super" => "",
        _ => &identity.id,
    }
}

/// The identity that bypasses all ACLs.
pub(crate) fn superuser() -> Identity {
    Identity { scheme: scheme::SUPER.to_owned(), id: String::new() }
}

/// Whether a client with these identities bypasses all ACLs.
#[must_use]
pub fn is_super(identities: &[Identity]) -> bool {
    identities.iter().any(scheme::is_super)
}

/// The identity of a user who has logged in by SASL.
pub(crate) fn sasl_identity(user: String) -> Identity {
    Identity { scheme: scheme::SASL.to_owned(), id: user }
}

/// The client whose request is checked against the rules that bind it, and against an ACL.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    /// Its authenticated identities.
    pub identities: &'a [Identity],
    /// Whether every ACL passes, see [`crate::settings::Settings::skip_acl`]. Rules hold all the same.
    pub skip_acl: bool,
    /// The rules that bind it; `None` if nothing does.
    pub bounds: Option<&'a Bounds>,
}

impl Caller<'_> {
    /// What the rules say to any of `wanted` at `path`.
    #[must_use]
    pub fn verdict(&self, wanted: Perms, path: &str) -> Verdict {
        self.bounds.map_or(Verdict::AsAclSays, |bounds| bounds.verdict(wanted, path))
    }

    /// Whether the rules let it do any of `wanted` at `path`.
    ///
    /// # Errors
    /// They forbid it: NOAUTH.
    pub(crate) fn check_rules(&self, wanted: Perms, path: &str) -> Result<(), ErrorCode> {
        match self.bounds {
            Some(bounds) if bounds.verdict(wanted, path) == Verdict::Forbidden => {
                Err(bounds.refuse(wanted, path))
            }
            _ => Ok(()),
        }
    }

    /// Whether any of `wanted` may be done at `path` to a znode with this ACL.
    #[must_use]
    pub fn may(&self, wanted: Perms, path: &str, acl: &Acl) -> bool {
        self.verdict(wanted, path).resolve(|| self.is_granted(wanted, acl))
    }

    /// Whether `acl` grants any of `wanted`.
    pub(crate) fn is_granted(&self, wanted: Perms, acl: &Acl) -> bool {
        acl.is_open() || self.skip_acl || is_super(self.identities) || acl.grants(wanted, self.identities)
    }

    /// What getACL shows of the ACL of `path`: without ADMIN, the secrets of `digest` entries are hidden.
    /// `None` if neither READ nor ADMIN is granted.
    #[must_use]
    pub fn view<'l>(&self, path: &str, acl: &'l Acl) -> Option<Cow<'l, [AclEntry]>> {
        if self.may(Perms::ADMIN, path, acl) {
            Some(Cow::Borrowed(acl.entries()))
        } else if self.may(Perms::READ, path, acl) {
            steps::count(acl.entries().len());
            Some(acl.entries().iter().map(redacted).collect())
        } else {
            None
        }
    }
}

fn redacted(entry: &AclEntry) -> AclEntry {
    let mut entry = entry.clone();
    if entry.scheme == scheme::DIGEST
        && let Some(colon) = entry.id.find(':')
    {
        entry.id.truncate(colon);
        entry.id.push_str(":x");
    }
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(perms: Perms, scheme: &str, id: &str) -> AclEntry {
        AclEntry { perms, scheme: scheme.to_owned(), id: id.to_owned() }
    }

    fn identity(scheme: &str, id: &str) -> Identity {
        Identity { scheme: scheme.to_owned(), id: id.to_owned() }
    }

    fn may(identities: &[Identity], wanted: Perms, acl: &Acl) -> bool {
        Caller { identities, skip_acl: false, bounds: None }.may(wanted, "/a", acl)
    }

    #[test]
    fn world_grants_its_permissions_to_everybody() {
        let acl = Acl::new(vec![entry(Perms::READ, "world", "anyone")]);
        assert!(may(&[], Perms::READ, &acl));
        assert!(!may(&[], Perms::WRITE, &acl));
        assert!(may(&[], Perms::WRITE, &Acl::OPEN));
    }

    #[test]
    fn an_entry_needs_an_identity_of_its_own_scheme() {
        let acl = Acl::new(vec![entry(Perms::ALL, "digest", "a:hash")]);
        assert!(may(&[identity("digest", "a:hash")], Perms::ADMIN, &acl));
        assert!(!may(&[identity("digest", "b:hash")], Perms::ADMIN, &acl));
        assert!(!may(&[identity("ip", "a:hash")], Perms::ADMIN, &acl));
    }

    #[test]
    fn permissions_are_not_added_up_over_entries_of_others() {
        let acl = Acl::new(vec![entry(Perms::READ, "digest", "a:h"), entry(Perms::WRITE, "digest", "b:h")]);
        assert!(!may(&[identity("digest", "a:h")], Perms::WRITE, &acl));
        assert!(may(&[identity("digest", "a:h"), identity("digest", "b:h")], Perms::WRITE, &acl));
    }

    #[test]
    fn a_long_list_grants_what_its_entries_grant_one_by_one() {
        let texts = ["digest", "ip", "world", "sasl"];
        let entries: Vec<_> = (0..200)
            .map(|n| match texts[n % 4] {
                "ip" => entry(Perms(1 << (n % 5)), "ip", &format!("10.{}.0.0/{}", n % 7, 8 + n % 20)),
                "world" if n > 190 => entry(Perms::READ, "world", "anyone"),
                "world" => entry(Perms::READ, "digest", &format!("w{}:h", n % 9)),
                scheme => entry(Perms(1 << (n % 5)), scheme, &format!("user{}:h", n % 11)),
            })
            .collect();
        let callers: Vec<_> = (0..12)
            .map(|n| [identity("digest", &format!("user{n}:h")), identity("ip", &format!("10.{n}.0.9"))])
            .collect();
        for len in [17, 60, 199, 200] {
            let long = Acl::new(entries[..len].to_vec());
            for (caller, wanted) in
                callers.iter().flat_map(|caller| (0..6).map(move |n| (caller, Perms(1 << n))))
            {
                let one_by_one =
                    entries[..len].iter().any(|entry| may(caller, wanted, &Acl::new(vec![entry.clone()])));
                assert_eq!(may(caller, wanted, &long), one_by_one, "{len} entries, {caller:?}, {wanted:?}");
            }
        }
    }

    #[test]
    fn super_and_skip_acl_pass_every_check() {
        let acl = Acl::new(vec![entry(Perms(0), "world", "anyone")]);
        assert!(may(&[identity("super", "")], Perms::ADMIN, &acl));
        assert!(Caller { identities: &[], skip_acl: true, bounds: None }.may(Perms::ADMIN, "/a", &acl));
        assert!(!may(&[], Perms::ADMIN, &acl));
    }

    #[test]
    fn the_sasl_user_super_matches_every_entry_of_the_scheme() {
        let entries = |len| -> Vec<_> {
            (0..len).map(|n| entry(Perms(1 << (n % 3)), "sasl", &format!("user{n}"))).collect()
        };
        for len in [3, 40] {
            let acl = Acl::new(entries(len));
            assert!(may(&[identity("sasl", "super")], Perms::CREATE, &acl), "{len}");
            assert!(!may(&[identity("sasl", "super")], Perms::ADMIN, &acl), "{len}");
            assert!(!may(&[identity("digest", "super")], Perms::CREATE, &acl), "{len}");
        }
    }

    #[test]
    fn get_acl_hides_digests_from_those_without_admin() {
        let acl =
            Acl::new(vec![entry(Perms::ALL, "digest", "a:secret"), entry(Perms::READ, "world", "anyone")]);
        let reader = Caller { identities: &[], skip_acl: false, bounds: None };
        assert_eq!(reader.view("/a", &acl).expect("may read")[0].id, "a:x");
        let admin = [identity("digest", "a:secret")];
        let admin = Caller { identities: &admin, ..reader };
        assert_eq!(&*admin.view("/a", &acl).expect("may read"), acl.entries());
    }

    #[test]
    fn get_acl_needs_read_or_admin() {
        let acl = Acl::new(vec![entry(Perms::WRITE, "world", "anyone")]);
        assert_eq!(Caller { identities: &[], skip_acl: false, bounds: None }.view("/a", &acl), None);
    }

    #[test]
    fn the_open_list_is_one_value() {
        assert!(Acl::new(Acl::OPEN.entries().to_vec()).is_open());
        assert!(!Acl::new(vec![entry(Perms::READ, "world", "anyone")]).is_open());
    }
}
