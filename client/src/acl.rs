//! Who may do what: access control lists.

use std::sync::LazyLock;

use ringkeeper_wire::{AclEntry, AclList, GetAclResponse, Perms};

/// A znode's access control list. Children do not inherit it.
///
/// ```
/// use ringkeeper_client::{Acl, Perms};
///
/// let acl = Acl::new().grant(Perms::ALL, "auth", "").grant(Perms::READ, "world", "anyone");
/// # assert_eq!(acl.entries().count(), 2);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Acl(Vec<AclEntry>);

static OPEN: LazyLock<Acl> = LazyLock::new(Acl::open);

impl Acl {
    /// An empty list, to be completed with [`Acl::grant`]: the server refuses it as it is.
    #[must_use]
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Everybody may do everything: what znodes are created with unless told otherwise.
    #[must_use]
    pub fn open() -> Self {
        Self::new().grant(Perms::ALL, "world", "anyone")
    }

    /// Everybody may read.
    #[must_use]
    pub fn read_only() -> Self {
        Self::new().grant(Perms::READ, "world", "anyone")
    }

    /// Whoever has the identities of this session may do everything. Needs a credential.
    #[must_use]
    pub fn creator() -> Self {
        Self::new().grant(Perms::ALL, "auth", "")
    }

    /// Adds an entry: `id`, in the words of `scheme`, gets `perms`.
    #[must_use]
    pub fn grant(mut self, perms: Perms, scheme: impl Into<String>, id: impl Into<String>) -> Self {
        self.0.push(AclEntry { perms, scheme: scheme.into(), id: id.into() });
        self
    }

    /// The entries in order: permissions, scheme and id.
    pub fn entries(&self) -> impl Iterator<Item = (Perms, &str, &str)> {
        self.0.iter().map(|entry| (entry.perms, entry.scheme.as_str(), entry.id.as_str()))
    }

    /// [`Acl::open`], built once: the default of every create.
    pub(crate) fn open_ref() -> &'static Self {
        &OPEN
    }

    pub(crate) fn to_wire(&self) -> AclList<'_> {
        self.0.as_slice().into()
    }
}

impl From<GetAclResponse<'_>> for Acl {
    fn from(response: GetAclResponse<'_>) -> Self {
        let entries = response.acl.unwrap_or_default().iter();
        Self(
            entries
                .map(|entry| AclEntry {
                    perms: entry.perms,
                    scheme: entry.scheme.unwrap_or_default().into_owned(),
                    id: entry.id.unwrap_or_default().into_owned(),
                })
                .collect(),
        )
    }
}
