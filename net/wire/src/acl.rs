//! Access control lists on the wire, and the identities of a connection.

use std::borrow::Cow;

use crate::Perms;
use crate::list::{Element, Vector};
use crate::record::record;

record! {
    /// One entry of an access control list, as received (`zookeeper.jute`, ACL and Id). A null scheme or
    /// id is representable: ZooKeeper answers it with INVALIDACL, after checks that come first.
    Acl<'a> {
        /// What the entry permits.
        perms: Perms,
        /// The authentication scheme, such as `world` or `digest`.
        scheme: Option<Cow<'a, str>>,
        /// Who, in the words of the scheme.
        id: Option<Cow<'a, str>>,
    }
}

/// An access control list.
pub type AclList<'a> = Vector<'a, Acl<'a>>;

/// One entry of an access control list, as kept.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AclEntry {
    /// What the entry permits.
    pub perms: Perms,
    /// The authentication scheme.
    pub scheme: String,
    /// Who, in the words of the scheme.
    pub id: String,
}

impl<'a> Element<'a> for Acl<'a> {
    type Owned = AclEntry;

    fn borrowed(owned: &'a AclEntry) -> Self {
        Self {
            perms: owned.perms,
            scheme: Some(Cow::Borrowed(&owned.scheme)),
            id: Some(Cow::Borrowed(&owned.id)),
        }
    }
}

/// Who a connection is, under one scheme (`zookeeper.jute`, Id).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    /// The authentication scheme.
    pub scheme: String,
    /// Who, in the words of the scheme.
    pub id: String,
}

record! {
    /// One identity in the answer to whoAmI (`zookeeper.jute`, ClientInfo).
    ClientInfo<'a> {
        /// The authentication scheme.
        auth_scheme: Cow<'a, str>,
        /// The user; of a digest identity only the part before the colon.
        user: Cow<'a, str>,
    }
}

impl<'a> Element<'a> for ClientInfo<'a> {
    type Owned = Identity;

    fn borrowed(owned: &'a Identity) -> Self {
        Self { auth_scheme: Cow::Borrowed(&owned.scheme), user: Cow::Borrowed(&owned.id) }
    }
}
