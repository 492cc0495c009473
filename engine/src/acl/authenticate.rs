//! Authentication by auth packets.

use ringkeeper_wire::{Identity, decode_utf8};

use super::scheme;
use crate::settings::Settings;

/// The credentials were refused, or the scheme has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("authentication failed")]
pub struct AuthFailed;

/// The identities that an auth packet adds to those of its connection; `digest` takes `user:password`. An
/// `ip` packet is accepted and adds none, since the address is known from the connection.
///
/// # Errors
/// The scheme is another one, or `digest` where it is switched off, or its credentials are null. No password
/// is checked here: an identity is a claim, which only an ACL can match.
pub fn authenticate(
    scheme: &str,
    data: Option<&[u8]>,
    settings: &Settings,
) -> Result<Vec<Identity>, AuthFailed> {
    match scheme {
        scheme::DIGEST if settings.digest_enabled => Ok(digest_identities(data.ok_or(AuthFailed)?, settings)),
        scheme::IP => Ok(Vec::new()),
        _ => Err(AuthFailed),
    }
}

fn digest_identities(data: &[u8], settings: &Settings) -> Vec<Identity> {
    let id = settings.digest_algorithm.id(&decode_utf8(data));
    let is_super = settings.super_digest.as_ref() == Some(&id);
    let superuser = is_super.then(super::superuser);
    superuser.into_iter().chain([Identity { scheme: scheme::DIGEST.to_owned(), id }]).collect()
}

/// The identities of a client whose certificate has this subject or SPIFFE id.
pub(crate) fn certified_identities(id: String, settings: &Settings) -> Vec<Identity> {
    let is_super = settings.super_subject.as_ref() == Some(&id);
    let superuser = is_super.then(|| Identity { scheme: scheme::SUPER.to_owned(), id: id.clone() });
    superuser.into_iter().chain([Identity { scheme: scheme::X509.to_owned(), id }]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acl::DigestAlgorithm;

    #[test]
    fn a_digest_packet_makes_a_digest_identity() {
        let identities = authenticate("digest", Some(b"super:test"), &Settings::default());
        let id = "super:D/InIHSb7yEEbrWz8b9l71RjZJU=".to_owned();
        assert_eq!(identities, Ok(vec![Identity { scheme: "digest".to_owned(), id }]));
    }

    #[test]
    fn ids_are_made_with_the_chosen_hash() {
        let digest_algorithm = DigestAlgorithm::named("SHA-256").expect("known");
        let super_digest = Some("super:wjySwxg860UATFtciuZ1lpzrCHrPeov6SPu/ZD56uig=".to_owned());
        let settings = Settings { digest_algorithm, super_digest, ..Settings::default() };
        let identities = authenticate("digest", Some(b"super:test"), &settings).expect("digest is known");
        assert_eq!(identities.first(), Some(&crate::acl::superuser()));
    }

    #[test]
    fn the_super_digest_makes_the_superuser_too() {
        let super_digest = Some(DigestAlgorithm::default().id("super:test"));
        let settings = Settings { super_digest, ..Settings::default() };
        let schemes = |data: &[u8]| {
            let identities = authenticate("digest", Some(data), &settings).expect("digest is known");
            identities.into_iter().map(|identity| identity.scheme).collect::<Vec<_>>()
        };
        assert_eq!(schemes(b"super:test"), ["super", "digest"]);
        assert_eq!(schemes(b"super:guess"), ["digest"]);
    }

    #[test]
    fn the_super_subject_makes_the_superuser_too() {
        let settings = Settings { super_subject: Some("CN=root".to_owned()), ..Settings::default() };
        let schemes = |subject: &str| {
            let identities = certified_identities(subject.to_owned(), &settings);
            identities.into_iter().map(|identity| identity.scheme).collect::<Vec<_>>()
        };
        assert_eq!(schemes("CN=root"), ["super", "x509"]);
        assert_eq!(schemes("CN=Root"), ["x509"]);
    }

    #[test]
    fn only_a_digest_needs_data() {
        assert_eq!(authenticate("ip", None, &Settings::default()), Ok(Vec::new()));
        assert_eq!(authenticate("digest", None, &Settings::default()), Err(AuthFailed));
    }

    #[test]
    fn digests_are_refused_where_the_scheme_is_switched_off() {
        let super_digest = Some(DigestAlgorithm::default().id("super:test"));
        let settings = Settings { digest_enabled: false, super_digest, ..Settings::default() };
        assert_eq!(authenticate("digest", Some(b"super:test"), &settings), Err(AuthFailed));
        assert_eq!(authenticate("ip", None, &settings), Ok(Vec::new()));
    }

    #[test]
    fn unknown_schemes_are_refused() {
        for scheme in ["", "auth", "world", "super", "sasl"] {
            assert_eq!(authenticate(scheme, Some(b""), &Settings::default()), Err(AuthFailed), "{scheme}");
        }
    }
}
