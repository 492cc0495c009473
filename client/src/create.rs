//! What kind of znode to create.

use std::time::Duration;

use ringkeeper_wire as wire;
use ringkeeper_wire::OpCode;

use crate::{Acl, Stat};

/// How long a znode lives, and whether the server completes its name.
///
/// Sequential names get ten digits, the parent's counter, at their end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CreateMode {
    /// Until it is deleted.
    #[default]
    Persistent,
    /// Until its session ends. Has no children.
    Ephemeral,
    /// Until it is deleted; sequential.
    PersistentSequential,
    /// Until its session ends; sequential.
    EphemeralSequential,
    /// Until some time after its last child is deleted. For the parents of locks and the like.
    Container,
    /// Until it was not changed and had no children for so long, in whole milliseconds; the server must
    /// have `extendedTypesEnabled`.
    PersistentWithTtl(Duration),
    /// The same, sequential.
    PersistentSequentialWithTtl(Duration),
}

impl CreateMode {
    /// This mode, with an ACL other than [`Acl::open`].
    #[must_use]
    pub const fn with_acl(self, acl: &Acl) -> CreateOptions<'_> {
        CreateOptions { mode: self, acl: Some(acl) }
    }

    pub(crate) const fn to_wire(self) -> wire::CreateMode {
        match self {
            Self::Persistent => wire::CreateMode::Persistent,
            Self::Ephemeral => wire::CreateMode::Ephemeral,
            Self::PersistentSequential => wire::CreateMode::PersistentSequential,
            Self::EphemeralSequential => wire::CreateMode::EphemeralSequential,
            Self::Container => wire::CreateMode::Container,
            Self::PersistentWithTtl(_) => wire::CreateMode::PersistentWithTtl,
            Self::PersistentSequentialWithTtl(_) => wire::CreateMode::PersistentSequentialWithTtl,
        }
    }

    /// In milliseconds; one that no integer holds becomes one that the server refuses.
    pub(crate) fn ttl_ms(self) -> Option<i64> {
        match self {
            Self::PersistentWithTtl(ttl) | Self::PersistentSequentialWithTtl(ttl) => {
                Some(i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX))
            }
            _ => None,
        }
    }

    pub(crate) const fn op(self) -> OpCode {
        match self {
            Self::Container => OpCode::CreateContainer,
            Self::PersistentWithTtl(_) | Self::PersistentSequentialWithTtl(_) => OpCode::CreateTtl,
            _ => OpCode::Create2,
        }
    }
}

/// Mode and ACL of a znode to create. A bare [`CreateMode`] will do where [`Acl::open`] is wanted.
#[derive(Clone, Copy, Debug, Default)]
pub struct CreateOptions<'a> {
    pub(crate) mode: CreateMode,
    pub(crate) acl: Option<&'a Acl>,
}

impl From<CreateMode> for CreateOptions<'_> {
    fn from(mode: CreateMode) -> Self {
        Self { mode, acl: None }
    }
}

impl<'a> CreateOptions<'a> {
    pub(crate) fn acl(&self) -> wire::AclList<'a> {
        match self.acl {
            Some(acl) => acl,
            None => Acl::open_ref(),
        }
        .to_wire()
    }
}

/// A znode that was created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Created {
    /// Its path; of a sequential one, completed.
    pub path: String,
    /// Its metadata.
    pub stat: Stat,
}
