//! The `digest` scheme: a user and the hash of user and password.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use md5::Md5;
use sha1::{Digest, Sha1};
use sha2::{Sha224, Sha256, Sha384, Sha512, Sha512_224, Sha512_256};
use sha3::{Sha3_224, Sha3_256, Sha3_384, Sha3_512};

/// The hash in the ids of the scheme `digest` (`DigestAuthenticationProvider.digestAlg`). It has to be the
/// same on all servers of an ensemble: an id made with one does not match an id made with another.
#[derive(Clone, Copy)]
pub struct DigestAlgorithm {
    name: &'static str,
    hash: fn(&[u8]) -> Vec<u8>,
}

/// All of them, by Java's names.
const ALGORITHMS: [DigestAlgorithm; 13] = [
    DigestAlgorithm::of::<Sha1>("SHA-1"),
    DigestAlgorithm::of::<Sha1>("SHA"),
    DigestAlgorithm::of::<Sha224>("SHA-224"),
    DigestAlgorithm::of::<Sha256>("SHA-256"),
    DigestAlgorithm::of::<Sha384>("SHA-384"),
    DigestAlgorithm::of::<Sha512>("SHA-512"),
    DigestAlgorithm::of::<Sha512_224>("SHA-512/224"),
    DigestAlgorithm::of::<Sha512_256>("SHA-512/256"),
    DigestAlgorithm::of::<Sha3_224>("SHA3-224"),
    DigestAlgorithm::of::<Sha3_256>("SHA3-256"),
    DigestAlgorithm::of::<Sha3_384>("SHA3-384"),
    DigestAlgorithm::of::<Sha3_512>("SHA3-512"),
    DigestAlgorithm::of::<Md5>("MD5"),
];

impl DigestAlgorithm {
    const fn of<D: Digest>(name: &'static str) -> Self {
        Self { name, hash: |bytes| D::digest(bytes).to_vec() }
    }

    /// The algorithm of this name, in any case, with hyphens or without, as Java takes it.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let plain = |name: &str| name.replace('-', "").to_ascii_uppercase();
        ALGORITHMS.into_iter().find(|algorithm| plain(algorithm.name) == plain(name))
    }

    /// The names of all, separated by commas.
    #[must_use]
    pub fn names() -> String {
        ALGORITHMS.map(|algorithm| algorithm.name).join(", ")
    }

    /// The identity of `user:password`: `user:` and the base64 of the hash of the whole.
    #[must_use]
    pub fn id(self, credentials: &str) -> String {
        let user = credentials.split(':').next().unwrap_or_default();
        format!("{user}:{}", STANDARD.encode((self.hash)(credentials.as_bytes())))
    }

    /// Whether an id can have been made with it: hashes of other lengths match no password.
    #[must_use]
    pub fn can_make(self, id: &str) -> bool {
        let hash = id.split_once(':').and_then(|(_, hash)| STANDARD.decode(hash).ok());
        hash.is_some_and(|hash| hash.len() == (self.hash)(b"").len())
    }
}

impl Default for DigestAlgorithm {
    fn default() -> Self {
        ALGORITHMS[0]
    }
}

impl PartialEq for DigestAlgorithm {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for DigestAlgorithm {}

impl fmt::Debug for DigestAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl fmt::Display for DigestAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> DigestAlgorithm {
        DigestAlgorithm::named(name).expect(name)
    }

    /// From ZooKeeper's documentation of `superDigest`, and from its tests.
    #[test]
    fn digests_are_zookeepers() {
        for (algorithm, id) in [
            ("SHA1", "super:D/InIHSb7yEEbrWz8b9l71RjZJU="),
            ("sha-256", "super:wjySwxg860UATFtciuZ1lpzrCHrPeov6SPu/ZD56uig="),
            ("SHA3-256", "super:cRy/KPYuDpW/dtsepniTMpuiuupnWgdU9txltIfv3hA="),
        ] {
            assert_eq!(named(algorithm).id("super:test"), id, "{algorithm}");
        }
        assert_eq!((named("SHA1"), named("SHA256")), (DigestAlgorithm::default(), named("SHA-256")));
        assert_eq!(DigestAlgorithm::named("MD2"), None);
    }

    #[test]
    fn the_user_ends_at_the_first_colon() {
        assert!(DigestAlgorithm::default().id("a:b:c").starts_with("a:"));
        assert!(DigestAlgorithm::default().id("nobody").starts_with("nobody:"));
    }

    #[test]
    fn an_id_made_with_a_hash_of_another_length_is_known_as_such() {
        for maker in ALGORITHMS {
            let id = maker.id("u:p");
            for algorithm in ALGORITHMS {
                let same_len = algorithm.id("u:p").len() == id.len();
                assert_eq!(algorithm.can_make(&id), same_len, "{id} of {maker} by {algorithm}");
            }
        }
        for id in ["", "user", "user:", "user:x", "user:not base64 at all"] {
            assert!(!DigestAlgorithm::default().can_make(id), "{id}");
        }
    }
}
