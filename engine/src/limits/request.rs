//! Checks a request against the bounds that depend on nothing but the request and its client.

use std::collections::BTreeSet;

use ringkeeper_wire::{AclList, Identity, MultiOp, Request};

use super::{Limit, Limits};
use crate::acl;

/// Approximate bytes of an update in the log, without its texts and data.
const UPDATE_OVERHEAD_BYTES: usize = 64;

/// Approximate bytes of an ACL entry in the log, without its texts.
const ENTRY_OVERHEAD_BYTES: usize = 24;

impl Limits {
    /// The bound that a write exceeds, if any.
    pub(crate) fn exceeded_by(&self, request: &Request<'_>, identities: &[Identity]) -> Option<Limit> {
        let asked = match request {
            Request::Multi(ops) if !self.allow(Limit::MultiOperations, ops.len()) => {
                return Some(Limit::MultiOperations);
            }
            Request::Multi(ops) => {
                let mut asked = Asked::default();
                ops.iter().for_each(|op| asked.add_op(&op, identities));
                asked
            }
            request => Asked::by(request, identities),
        };
        let amounts = [
            (Limit::AclEntries, asked.acl_entries_max),
            (Limit::AclBytes, asked.acl_bytes_max),
            (Limit::TransactionBytes, asked.txn_bytes),
        ];
        amounts.into_iter().find(|(limit, amount)| !self.allow(*limit, *amount)).map(|(limit, _)| limit)
    }
}

#[derive(Default)]
struct Asked {
    txn_bytes: usize,
    /// Of the longest ACL.
    acl_entries_max: usize,
    acl_bytes_max: usize,
}

impl Asked {
    fn by(request: &Request<'_>, identities: &[Identity]) -> Self {
        let mut asked = Self::default();
        match request {
            Request::Create(create) | Request::Create2(create) | Request::CreateContainer(create) => {
                asked.add(&create.path, create.data, create.acl, identities);
            }
            Request::CreateTtl(create) => asked.add(&create.path, create.data, create.acl, identities),
            Request::SetData(set) => asked.add(&set.path, set.data, None, identities),
            Request::SetAcl(set) => asked.add(&set.path, None, set.acl, identities),
            Request::Delete(delete) => asked.add(&delete.path, None, None, identities),
            _ => {}
        }
        asked
    }

    fn add_op(&mut self, op: &MultiOp<'_>, identities: &[Identity]) {
        match op {
            MultiOp::Create(create) | MultiOp::Create2(create) | MultiOp::CreateContainer(create) => {
                self.add(&create.path, create.data, create.acl, identities);
            }
            MultiOp::CreateTtl(create) => self.add(&create.path, create.data, create.acl, identities),
            MultiOp::SetData(set) => self.add(&set.path, set.data, None, identities),
            MultiOp::Delete(_) | MultiOp::Check(_) => self.add(op.path(), None, None, identities),
        }
    }

    fn add(&mut self, path: &str, data: Option<&[u8]>, acl: Option<AclList<'_>>, identities: &[Identity]) {
        let (entries, bytes) = acl.map_or((0, 0), |acl| expanded(acl, identities));
        self.acl_entries_max = self.acl_entries_max.max(entries);
        self.acl_bytes_max = self.acl_bytes_max.max(bytes);
        let fixed = UPDATE_OVERHEAD_BYTES + entries * ENTRY_OVERHEAD_BYTES;
        self.txn_bytes += fixed + path.len() + data.map_or(0, <[u8]>::len) + bytes;
    }
}

/// Number of entries and bytes of their texts after each `auth` entry is replaced by the identities. Repeated
/// entries count each time.
fn expanded(acl: AclList<'_>, identities: &[Identity]) -> (usize, usize) {
    let (mut entries, mut bytes, mut auth) = (0, 0, BTreeSet::new());
    for entry in acl {
        let (scheme, id) = (entry.scheme.as_deref().unwrap_or(""), entry.id.as_deref().unwrap_or(""));
        if acl::stands_for_identities(scheme) {
            auth.insert(entry.perms.0);
        } else {
            entries += 1;
            bytes += scheme.len() + id.len();
        }
    }
    if auth.is_empty() {
        return (entries, bytes);
    }
    for Identity { scheme, id } in identities.iter().filter(|identity| acl::is_proved(identity)) {
        entries += auth.len();
        bytes += auth.len() * (scheme.len() + id.len());
    }
    (entries, bytes)
}
