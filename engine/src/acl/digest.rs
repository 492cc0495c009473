//! The `digest` scheme: a user and the hash of user and password.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest, Sha1};

/// The identity of `user:password`: `user:` and the base64 of the SHA-1 of the whole.
#[must_use]
pub fn digest_id(credentials: &str) -> String {
    let user = credentials.split(':').next().unwrap_or_default();
    let mut id = String::with_capacity(user.len() + 29);
    id.push_str(user);
    id.push(':');
    STANDARD.encode_string(Sha1::digest(credentials), &mut id);
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From ZooKeeper's documentation of `superDigest` and its tests.
    #[test]
    fn digests_are_zookeepers() {
        assert_eq!(digest_id("super:test"), "super:D/InIHSb7yEEbrWz8b9l71RjZJU=");
    }

    #[test]
    fn the_user_ends_at_the_first_colon() {
        assert!(digest_id("a:b:c").starts_with("a:"));
        assert!(digest_id("nobody").starts_with("nobody:"));
    }
}
