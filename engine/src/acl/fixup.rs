//! Normalizes and checks the ACL that a client sends.

use std::collections::BTreeSet;

use ringkeeper_wire::{Acl as WireAcl, AclEntry, AclList, Identity};

use super::{Acl, scheme};
use crate::settings::Settings;

/// The ACL is null or empty, or has an invalid entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid ACL")]
pub struct InvalidAcl;

/// Removes repeated entries, replaces `auth` entries by the client's authenticated identities, and validates
/// the rest, in ZooKeeper's order (`PrepRequestProcessor.fixupACL`). Entries of `x509` are valid only where
/// clients can show certificates, those of `sasl` only where users can log in, those of `digest` unless the
/// scheme is switched off.
///
/// # Errors
/// See [`InvalidAcl`].
pub fn fixup(
    list: Option<AclList<'_>>,
    identities: &[Identity],
    settings: &Settings,
) -> Result<Acl, InvalidAcl> {
    let list = list.filter(|list| !list.is_empty()).ok_or(InvalidAcl)?;
    if list.len() == 1 && list.iter().next().is_some_and(|entry| is_open(&entry)) {
        return Ok(Acl::OPEN);
    }
    let (mut seen, mut expanded) = (BTreeSet::new(), BTreeSet::new());
    let mut entries = Vec::new();
    for entry in list {
        if !seen.insert((entry.perms.0, entry.scheme.clone(), entry.id.clone())) {
            continue;
        }
        let entry = kept(entry)?;
        if entry.scheme == scheme::AUTH {
            // The id of an `auth` entry is ignored, so two with the same permissions expand to the same
            // entries.
            if expanded.insert(entry.perms.0) {
                expand(&entry, identities, &mut entries)?;
            }
        } else if scheme::is_enabled(&entry.scheme, &entry.id, settings)
            && scheme::is_valid(&entry.scheme, &entry.id)
        {
            entries.push(entry);
        } else {
            return Err(InvalidAcl);
        }
    }
    Ok(Acl::new(entries))
}

fn is_open(entry: &WireAcl<'_>) -> bool {
    entry.perms == ringkeeper_wire::Perms::ALL
        && entry.scheme.as_deref() == Some(scheme::WORLD)
        && entry.id.as_deref() == Some(scheme::ANYONE)
}

/// Checks that scheme and id are there. The id of an `auth` entry is ignored, so it may be null.
fn kept(entry: WireAcl<'_>) -> Result<AclEntry, InvalidAcl> {
    let scheme = entry.scheme.ok_or(InvalidAcl)?.into_owned();
    let id = match entry.id {
        Some(id) => id.into_owned(),
        None if scheme == scheme::AUTH => String::new(),
        None => return Err(InvalidAcl),
    };
    Ok(AclEntry { perms: entry.perms, scheme, id })
}

fn expand(auth: &AclEntry, identities: &[Identity], entries: &mut Vec<AclEntry>) -> Result<(), InvalidAcl> {
    let before = entries.len();
    let proved = identities.iter().filter(|identity| scheme::is_authenticated(&identity.scheme));
    entries.extend(proved.map(|identity| AclEntry {
        perms: auth.perms,
        scheme: identity.scheme.clone(),
        id: identity.id.clone(),
    }));
    if entries.len() == before { Err(InvalidAcl) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringkeeper_wire::Perms;

    fn entry(perms: i32, scheme: &str, id: &str) -> AclEntry {
        AclEntry { perms: Perms(perms), scheme: scheme.to_owned(), id: id.to_owned() }
    }

    fn fixed(entries: &[AclEntry], identities: &[Identity]) -> Result<Vec<AclEntry>, InvalidAcl> {
        fixup(Some(entries.into()), identities, &Settings::default()).map(|acl| acl.entries().to_vec())
    }

    fn identities() -> [Identity; 3] {
        [("ip", "127.0.0.1"), ("digest", "a:h"), ("sasl", "b")]
            .map(|(scheme, id)| Identity { scheme: scheme.to_owned(), id: id.to_owned() })
    }

    #[test]
    fn null_and_empty_lists_are_invalid() {
        assert_eq!(fixup(None, &[], &Settings::default()), Err(InvalidAcl));
        assert_eq!(fixed(&[], &[]), Err(InvalidAcl));
    }

    #[test]
    fn repeated_entries_are_kept_once_in_order() {
        let (a, b) = (entry(1, "digest", "a:h"), entry(31, "world", "anyone"));
        assert_eq!(fixed(&[a.clone(), b.clone(), a.clone()], &[]), Ok(vec![a, b]));
    }

    #[test]
    fn auth_expands_to_the_proved_identities() {
        let expected = vec![entry(7, "digest", "a:h"), entry(7, "sasl", "b")];
        assert_eq!(fixed(&[entry(7, "auth", "ignored")], &identities()), Ok(expected));
    }

    #[test]
    fn auth_expands_once_for_each_set_of_permissions() {
        let asked =
            [entry(7, "auth", "x"), entry(7, "auth", "y"), entry(1, "auth", "x"), entry(7, "auth", "z")];
        let expected = [(7, "digest", "a:h"), (7, "sasl", "b"), (1, "digest", "a:h"), (1, "sasl", "b")]
            .map(|(perms, scheme, id)| entry(perms, scheme, id));
        assert_eq!(fixed(&asked, &identities()), Ok(expected.to_vec()));
    }

    #[test]
    fn auth_without_a_proved_identity_is_invalid() {
        assert_eq!(fixed(&[entry(7, "auth", "")], &identities()[..1]), Err(InvalidAcl));
    }

    #[test]
    fn entries_of_a_scheme_are_valid_where_clients_can_have_its_identities() {
        let [digest, x509, sasl] = [("digest", "a:h"), ("x509", "CN=a"), ("sasl", "a")];
        let spiffe = ("x509", "spiffe://example.org/a");
        let nowhere = Settings { digest_enabled: false, ..Settings::default() };
        for ((scheme, id), settings) in [
            (digest, Settings::default()),
            (x509, Settings { x509_enabled: true, ..nowhere.clone() }),
            (spiffe, Settings { spiffe_enabled: true, ..nowhere.clone() }),
            (sasl, Settings { sasl_enabled: true, ..nowhere.clone() }),
        ] {
            let list = [entry(1, scheme, id)];
            assert_eq!(fixup(Some(list[..].into()), &[], &nowhere), Err(InvalidAcl));
            let fixed = fixup(Some(list[..].into()), &[], &settings).expect("valid");
            assert_eq!(fixed.entries(), list);
        }
    }

    #[test]
    fn entries_of_unknown_schemes_or_with_malformed_ids_are_invalid() {
        for bad in
            [entry(1, "nope", "x"), entry(1, "digest", "x"), entry(1, "world", "me"), entry(1, "ip", "x")]
        {
            assert_eq!(fixed(&[entry(31, "world", "anyone"), bad], &[]), Err(InvalidAcl));
        }
    }
}
