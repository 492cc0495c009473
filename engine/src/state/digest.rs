//! A fingerprint of the tree that every change updates.
//!
//! It is the wrapping sum of two hashes a znode: one of the path with the metadata, one of the path with the
//! data. A sum does not depend on an order, and since the two are apart, a change of a parent's Stat need not
//! hash the parent's data. It finds replicas that differ by a defect; it is no defence against forgery.

use xxhash_rust::xxh3::xxh3_64;

use crate::tree::ZnodeMeta;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Digest(u64);

/// The hash of a path, with which all terms of its znode begin.
#[derive(Clone, Copy)]
pub(crate) struct PathHash(u64);

impl PathHash {
    pub(crate) fn of(path: &str) -> Self {
        Self(xxh3_64(path.as_bytes()))
    }

    /// The metadata's part; `acl` is the list's fingerprint, since ids differ between servers.
    pub(crate) fn meta_term(self, meta: &ZnodeMeta, acl: u64) -> u64 {
        let words = [
            self.0,
            meta.czxid.0,
            meta.mzxid.0,
            meta.pzxid.0,
            meta.ctime.cast_unsigned(),
            meta.mtime.cast_unsigned(),
            u64::from(meta.version.cast_unsigned()) << 32 | u64::from(meta.cversion.cast_unsigned()),
            u64::from(meta.aversion.cast_unsigned()) << 32 | u64::from(meta.num_children),
            meta.raw_owner.cast_unsigned(),
            acl,
        ];
        hash_words(words)
    }

    /// The data's part.
    pub(crate) fn data_term(self, data: Option<&[u8]>) -> u64 {
        match data {
            Some(data) => hash_words([self.0, 1, xxh3_64(data)]),
            None => hash_words([self.0, 0, 0]),
        }
    }
}

fn hash_words<const N: usize>(words: [u64; N]) -> u64 {
    let bytes = words.map(u64::to_le_bytes);
    xxh3_64(bytes.as_flattened())
}

impl Digest {
    pub(crate) const fn value(self) -> u64 {
        self.0
    }

    pub(crate) const fn add(&mut self, term: u64) {
        self.0 = self.0.wrapping_add(term);
    }

    /// Adds all terms of another sum.
    pub(crate) const fn join(&mut self, other: Self) {
        self.add(other.0);
    }

    pub(crate) const fn subtract(&mut self, term: u64) {
        self.0 = self.0.wrapping_sub(term);
    }
}
