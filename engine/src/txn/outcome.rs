//! Outcomes: the result of applying a transaction, from which replies and watch events are made.

use std::sync::Arc;

use ringkeeper_wire::{ErrorCode, Stat};

use super::{FailedMulti, Txn, Update};
use crate::acl::Acl;

/// The result of applying a transaction. Paths are not repeated: a reply is encoded from
/// [`TxnOp::updates`](super::TxnOp::updates) and [`Outcome::effects`] side by side.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It failed; nothing changed.
    Failed(ErrorCode),
    /// One change.
    Done(Effect),
    /// A multi: one effect an operation.
    Multi(Box<[Effect]>),
    /// A multi that failed; nothing changed.
    MultiFailed(FailedMulti),
    /// The session exists.
    SessionCreated,
    /// The session is gone, and these ephemerals with it, in the order of their paths.
    SessionClosed(Box<[(Arc<str>, Effect)]>),
    /// The state contained the transaction already (a replay): nothing changed, and no client waits.
    Replayed,
}

/// The result of one change, with the ACLs at that moment, which decide who is sent the event.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// A znode was created.
    Created {
        /// Its Stat.
        stat: Stat,
        /// Its ACL.
        acl: Acl,
        /// Its parent's.
        parent_acl: Acl,
    },
    /// A znode was deleted.
    Deleted {
        /// The ACL that it had.
        acl: Acl,
        /// Its parent's.
        parent_acl: Acl,
    },
    /// Data was set.
    DataSet {
        /// The znode's Stat now.
        stat: Stat,
        /// Its ACL.
        acl: Acl,
    },
    /// An ACL was set.
    AclSet {
        /// The znode's Stat now.
        stat: Stat,
    },
    /// Nothing was to be changed.
    Checked,
    /// The change did not fit the state. This cannot happen to a transaction that was prepared on the state.
    Missed(ErrorCode),
}

/// What happened to a znode, for the watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// It was created: its parent's children changed.
    Created,
    /// It was deleted: its parent's children changed.
    Deleted,
    /// Its data was set.
    DataChanged,
}

/// A change that watches can see.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change<'a> {
    /// What happened.
    pub kind: ChangeKind,
    /// To which znode.
    pub path: &'a str,
    /// Its ACL at that moment.
    pub acl: &'a Acl,
    /// Its parent's ACL at that moment; open for [`ChangeKind::DataChanged`], which concerns no parent.
    pub parent_acl: &'a Acl,
}

/// The changes of one transaction in the order in which watches fire. Made by [`Outcome::changes`].
#[derive(Clone, Debug)]
pub struct Changes<'a>(Source<'a>);

#[derive(Clone, Debug)]
enum Source<'a> {
    Updates(std::iter::Zip<std::slice::Iter<'a, Update>, std::slice::Iter<'a, Effect>>),
    Ephemerals(std::slice::Iter<'a, (Arc<str>, Effect)>),
}

impl Outcome {
    /// The changes of `txn` that watches see; `self` is its outcome.
    #[must_use]
    pub fn changes<'a>(&'a self, txn: &'a Txn) -> Changes<'a> {
        Changes(match self {
            Self::SessionClosed(ephemerals) => Source::Ephemerals(ephemerals.iter()),
            _ => Source::Updates(txn.op.updates().iter().zip(self.effects())),
        })
    }

    /// What each operation did: one for each of [`crate::txn::TxnOp::updates`].
    #[must_use]
    pub fn effects(&self) -> &[Effect] {
        match self {
            Self::Done(effect) => std::slice::from_ref(effect),
            Self::Multi(effects) => effects,
            Self::Failed(_)
            | Self::MultiFailed(_)
            | Self::SessionCreated
            | Self::SessionClosed(_)
            | Self::Replayed => &[],
        }
    }
}

impl<'a> Iterator for Source<'a> {
    type Item = (&'a str, &'a Effect);

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::Updates(updates) => updates.next().map(|(update, effect)| (update.path(), effect)),
            Self::Ephemerals(gone) => gone.next().map(|(path, effect)| (&**path, effect)),
        }
    }
}

impl<'a> Iterator for Changes<'a> {
    type Item = Change<'a>;

    fn next(&mut self) -> Option<Change<'a>> {
        loop {
            let (path, effect) = self.0.next()?;
            let (kind, acl, parent_acl) = match effect {
                Effect::Created { acl, parent_acl, .. } => (ChangeKind::Created, acl, parent_acl),
                Effect::Deleted { acl, parent_acl } => (ChangeKind::Deleted, acl, parent_acl),
                Effect::DataSet { acl, .. } => (ChangeKind::DataChanged, acl, &Acl::OPEN),
                Effect::AclSet { .. } | Effect::Checked | Effect::Missed(_) => continue,
            };
            return Some(Change { kind, path, acl, parent_acl });
        }
    }
}
