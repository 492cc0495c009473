//! From a path to the 64-bit key that orders the tree.
//!
//! The upper half is a keyed hash of the parent's path, the lower half one of the whole path. So the children
//! of a znode lie side by side, and a look-up costs the same at any depth. Two paths may have the same key,
//! so names and parents are compared, too. The hash is SipHash: clients choose the paths and must not be able
//! to construct collisions.

use siphasher::sip::SipHasher13;
use std::hash::Hasher;

/// Bits of the key that tell the children of one parent apart.
const NAME_BITS: u32 = 32;

/// Splits a path into its parent's path and its last name; `("", "")` for the root, `None` without a slash.
pub(super) fn split(path: &str) -> Option<(&str, &str)> {
    match path.rfind('/')? {
        0 if path.len() == 1 => Some(("", "")),
        0 => Some(("/", &path[1..])),
        slash => Some((&path[..slash], &path[slash + 1..])),
    }
}

/// Writes the path of the child `name` of `parent` into `path`.
pub(super) fn join(parent: &str, name: &str, path: &mut String) {
    path.clear();
    append(parent, name, path);
}

/// Writes the path of the child `name` of `parent` behind what `path` holds.
pub(super) fn append(parent: &str, name: &str, path: &mut String) {
    path.push_str(parent);
    if parent != "/" {
        path.push('/');
    }
    path.push_str(name);
}

/// The keyed hash of one tree.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keys {
    hasher: SipHasher13,
    seed: u64,
    /// Cleared bits force collisions.
    #[cfg(test)]
    mask: u64,
}

impl Keys {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            hasher: SipHasher13::new_with_keys(seed, !seed),
            seed,
            #[cfg(test)]
            mask: u64::MAX,
        }
    }

    /// Keys of which only the bits of `mask` differ.
    #[cfg(test)]
    pub(super) fn degenerate(seed: u64, mask: u64) -> Self {
        Self { mask, ..Self::new(seed) }
    }

    pub(super) const fn seed(&self) -> u64 {
        self.seed
    }

    /// The key of the znode `path`, whose parent's path is `parent` (a prefix of it, or empty).
    pub(super) fn of(&self, path: &str, parent: &str) -> u64 {
        let mut hasher = self.hasher;
        hasher.write(parent.as_bytes());
        let upper = hasher.finish() << NAME_BITS;
        hasher.write(&path.as_bytes()[parent.len()..]);
        self.masked(upper | hasher.finish() >> NAME_BITS)
    }

    /// The smallest key that a child of `parent` can have, and the largest.
    pub(super) fn range(&self, parent: &str) -> (u64, u64) {
        let mut hasher = self.hasher;
        hasher.write(parent.as_bytes());
        let first = self.masked(hasher.finish() << NAME_BITS);
        (first, first | ((1 << NAME_BITS) - 1))
    }

    #[cfg(not(test))]
    const fn masked(&self, key: u64) -> u64 {
        key
    }

    #[cfg(test)]
    const fn masked(&self, key: u64) -> u64 {
        key & self.mask
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_split_at_the_last_slash() {
        assert_eq!(split("/"), Some(("", "")));
        assert_eq!(split("/a"), Some(("/", "a")));
        assert_eq!(split("/a/b"), Some(("/a", "b")));
        assert_eq!(split("/a/"), Some(("/a", "")));
        assert_eq!(split("a"), None);
        assert_eq!(split(""), None);
    }

    #[test]
    fn join_undoes_split() {
        let mut path = String::new();
        for whole in ["/a", "/a/b", "/a/b/c"] {
            let (parent, name) = split(whole).expect("has a slash");
            join(parent, name, &mut path);
            assert_eq!(path, whole);
        }
    }

    #[test]
    fn children_of_one_parent_lie_in_its_range_and_others_do_not() {
        let keys = Keys::new(1);
        let (first, last) = keys.range("/a");
        assert!((first..=last).contains(&keys.of("/a/x", "/a")));
        assert!((first..=last).contains(&keys.of("/a/y", "/a")));
        assert!(!(first..=last).contains(&keys.of("/b/x", "/b")));
    }

    #[test]
    fn another_seed_gives_other_keys() {
        assert_ne!(Keys::new(1).of("/a/x", "/a"), Keys::new(2).of("/a/x", "/a"));
    }
}
