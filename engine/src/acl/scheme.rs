//! The schemes an ACL entry can have: which ids are valid, and whom they match.

use std::net::{IpAddr, Ipv6Addr};

use ringkeeper_wire::{AclEntry, Identity};

use super::spiffe::spiffe_trust_domain;
use crate::settings::Settings;

pub(crate) const WORLD: &str = "world";
pub(crate) const ANYONE: &str = "anyone";
/// Stands for the identities of the client that sets the ACL; never kept.
pub(super) const AUTH: &str = "auth";
pub(super) const DIGEST: &str = "digest";
pub(crate) const IP: &str = "ip";
/// The subject of the client's certificate, or its SPIFFE id.
pub(super) const X509: &str = "x509";
pub(crate) const SASL: &str = "sasl";
/// The SASL user whom every entry of the scheme `sasl` matches (`SASLAuthenticationProvider`).
const SASL_SUPER: &str = "super";
/// Bypasses every list; cannot be an entry.
pub(super) const SUPER: &str = "super";

pub(super) fn is_world(entry: &AclEntry) -> bool {
    entry.scheme == WORLD && entry.id == ANYONE
}

pub(super) fn is_super(identity: &Identity) -> bool {
    identity.scheme == SUPER
}

/// Whether an identity of `scheme` was proved by a secret, so that `auth` expands to it.
pub(super) fn is_authenticated(scheme: &str) -> bool {
    matches!(scheme, DIGEST | X509 | SASL)
}

/// Whether `who` matches every entry of its scheme.
pub(super) fn matches_all(who: &Identity) -> bool {
    who.scheme == SASL && who.id == SASL_SUPER
}

/// Whether clients of this ensemble can have this identity, as far as that depends on settings.
pub(super) fn is_enabled(scheme: &str, id: &str, settings: &Settings) -> bool {
    match scheme {
        DIGEST => settings.digest_enabled,
        X509 if spiffe_trust_domain(id).is_some() => settings.spiffe_enabled,
        X509 => settings.x509_enabled,
        SASL => settings.sasl_enabled,
        _ => true,
    }
}

/// Whether an entry of `scheme` may have this id.
pub(crate) fn is_valid(scheme: &str, id: &str) -> bool {
    match scheme {
        WORLD => id == ANYONE,
        DIGEST => is_digest_id(id),
        IP => Network::parse(id).is_some(),
        X509 => is_distinguished_name(id) || spiffe_trust_domain(id).is_some(),
        SASL => is_sasl_id(id),
        _ => false,
    }
}

/// Whether the entry applies to the identity `who`.
pub(super) fn matches(who: &Identity, entry: &AclEntry) -> bool {
    if who.scheme != entry.scheme {
        return false;
    }
    match entry.scheme.as_str() {
        DIGEST | X509 | SASL => who.id == entry.id || matches_all(who),
        IP => Network::parse(&entry.id)
            .zip(parse_address(&who.id))
            .is_some_and(|(network, address)| network.contains(address)),
        _ => false,
    }
}

/// Two parts when split at colons, where Java's split drops empty parts from the end.
fn is_digest_id(id: &str) -> bool {
    let id = id.trim_end_matches(':');
    id.matches(':').count() == 1
}

/// The attributes of names that Java knows by a keyword, in upper case.
const KEYWORDS: [&str; 21] = [
    "CN",
    "C",
    "L",
    "S",
    "ST",
    "O",
    "OU",
    "T",
    "IP",
    "STREET",
    "DC",
    "DNQUALIFIER",
    "DNQ",
    "SURNAME",
    "GIVENNAME",
    "INITIALS",
    "GENERATION",
    "EMAIL",
    "EMAILADDRESS",
    "UID",
    "SERIALNUMBER",
];

/// Whether the text is a name such as `CN=client,O=Acme\, Inc.`: attributes between commas, semicolons or
/// plus signs that are neither quoted nor escaped.
fn is_distinguished_name(text: &str) -> bool {
    let (mut quoted, mut escaped) = (false, false);
    let mut attributes = text.split(|c| {
        let separates = !quoted && !escaped && matches!(c, ',' | ';' | '+');
        quoted ^= c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        separates
    });
    text.is_empty() || attributes.all(is_attribute) && !quoted && !escaped
}

fn is_attribute(text: &str) -> bool {
    let Some((kind, _)) = text.split_once('=') else { return false };
    let kind = kind.trim().to_ascii_uppercase();
    let number = |number: &str| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let identifier = kind.strip_prefix("OID.").unwrap_or(&kind);
    let is_identifier = identifier.starts_with(['0', '1', '2']) && identifier.contains('.');
    KEYWORDS.contains(&&*kind) || is_identifier && identifier.split('.').all(number)
}

/// Any text is a user's name, but one with an `@` has to be a Kerberos principal: `name@REALM` or
/// `name/host@REALM`.
pub fn is_sasl_id(id: &str) -> bool {
    let (name, realm) = id.split_once('@').unwrap_or((id, ""));
    !id.contains('@') || (name.matches('/').count() <= 1 && !realm.contains(['@', '/']))
}

/// A network prefix: an address, and how many of its leading bits are compared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Network {
    address: IpAddr,
    bits: u32,
}

impl Network {
    /// `address` or `address/bits`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let host = Self::of(parse_address(address)?);
        let bits = match bits {
            Some(bits) => {
                int(bits).and_then(|bits| u32::try_from(bits).ok()).filter(|&bits| bits <= host.bits)?
            }
            None => host.bits,
        };
        Some(host.widened(bits))
    }

    /// The network of one address.
    pub(crate) const fn of(address: IpAddr) -> Self {
        let bits = if address.is_ipv4() { 32 } else { 128 };
        Self { address, bits }
    }

    /// The same address in a network of this length, which is not longer than an address.
    pub(crate) const fn widened(self, bits: u32) -> Self {
        Self { bits, ..self }
    }

    pub(crate) const fn bits(&self) -> u32 {
        self.bits
    }

    /// Its first address.
    pub(crate) fn first(&self) -> IpAddr {
        match self.address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32 - self.bits).unwrap_or(0);
                IpAddr::V4((address.to_bits() & mask).into())
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(128 - self.bits).unwrap_or(0);
                IpAddr::V6((address.to_bits() & mask).into())
            }
        }
    }

    pub(super) fn contains(&self, address: IpAddr) -> bool {
        let differing = match (self.address, address) {
            (IpAddr::V4(a), IpAddr::V4(b)) => u128::from(a.to_bits() ^ b.to_bits()) << 96,
            (IpAddr::V6(a), IpAddr::V6(b)) => a.to_bits() ^ b.to_bits(),
            _ => return false,
        };
        differing.leading_zeros() >= self.bits
    }
}

/// Reads an address as ZooKeeper does: no dotted form inside IPv6, no zone; in IPv4 four numbers as Java
/// reads them, with leading zeros.
pub(crate) fn parse_address(text: &str) -> Option<IpAddr> {
    if text.contains(':') {
        return if text.contains('.') { None } else { text.parse::<Ipv6Addr>().ok().map(IpAddr::V6) };
    }
    let octet = |part| int(part).and_then(|octet| u8::try_from(octet).ok());
    let octets: Vec<u8> = text.split('.').map(octet).collect::<Option<_>>()?;
    Some(IpAddr::from(<[u8; 4]>::try_from(octets).ok()?))
}

/// A number as Java's `Integer.parseInt` reads it: like Rust, a sign and leading zeros are taken.
fn int(text: &str) -> Option<i32> {
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringkeeper_wire::Perms;

    fn ip_matches(address: &str, entry: &str) -> bool {
        let who = Identity { scheme: IP.to_owned(), id: address.to_owned() };
        matches(&who, &AclEntry { perms: Perms::ALL, scheme: IP.to_owned(), id: entry.to_owned() })
    }

    #[test]
    fn an_ip_entry_matches_by_prefix_within_its_family() {
        assert!(ip_matches("10.1.2.3", "10.1.2.3"));
        assert!(!ip_matches("10.1.2.3", "10.1.2.4"));
        assert!(ip_matches("10.1.2.3", "10.1.0.0/16"));
        assert!(!ip_matches("10.2.2.3", "10.1.0.0/16"));
        assert!(ip_matches("10.2.2.3", "0.0.0.0/0"));
        assert!(ip_matches("10.0.0.1", "010.0.0.1"), "not octal");
        assert!(ip_matches("10.2.2.3", "+10.0.0.1/+8"));
        assert!(ip_matches("2001:db8::1", "2001:db8::/32"));
        assert!(!ip_matches("2001:db9::1", "2001:db8::/32"));
        assert!(!ip_matches("10.1.2.3", "::/0"));
    }

    #[test]
    fn ip_ids_are_addresses_with_an_optional_length() {
        for id in ["1.2.3.4", "1.2.3.4/0", "1.2.3.4/32", "::1", "fe80::/10", "::/128"] {
            assert!(is_valid(IP, id), "{id}");
        }
        for id in [
            "",
            "1.2.3",
            "1.2.3.4/33",
            "1.2.3.4/-1",
            "1.2.3.4/",
            "1.2.3.4/x",
            "::/129",
            "1.2.3.256",
            "1.2.3.4.",
            "1.2.3.4.5",
            "::ffff:1.2.3.4",
            "host",
        ] {
            assert!(!is_valid(IP, id), "{id}");
        }
    }

    #[test]
    fn x509_ids_are_distinguished_names() {
        for id in ["CN=a", "cn=a, O=Acme\\, Inc.;C=US", "CN=\"a,b\"+OU=c", "2.5.4.5=#130137", "OID.1.2=x", ""]
        {
            assert!(is_valid(X509, id), "{id}");
        }
        for id in
            [" ", "E=a", "3.4=a", "alice", "CN=a,b", "NAME=a", "1.=a", "12=a", "CN=\"a", "CN=a\\", ",CN=a"]
        {
            assert!(!is_valid(X509, id), "{id}");
        }
    }

    #[test]
    fn digest_ids_have_two_parts() {
        for id in ["user:hash", ":hash", "user:hash:"] {
            assert!(is_valid(DIGEST, id), "{id}");
        }
        for id in ["", "user", "user:", ":", "a:b:c"] {
            assert!(!is_valid(DIGEST, id), "{id}");
        }
    }

    #[test]
    fn sasl_ids_are_names_or_principals() {
        for id in ["bob", "", "a/b/c", "bob@REALM", "zk/host@REALM", "@", "bob@"] {
            assert!(is_valid(SASL, id), "{id}");
        }
        for id in ["a@b@c", "a/b/c@REALM", "a@b/c"] {
            assert!(!is_valid(SASL, id), "{id}");
        }
    }

    #[test]
    fn unknown_schemes_super_and_auth_are_not_valid_entries() {
        for scheme in ["", "super", "auth", "nonsense"] {
            assert!(!is_valid(scheme, "id"), "{scheme}");
        }
        assert!(is_valid(WORLD, "anyone"));
        assert!(!is_valid(WORLD, "someone"));
    }
}
