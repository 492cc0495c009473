//! Whom a rule binds, and the name of the rule's znode.

use std::fmt::Write;
use std::net::IpAddr;

use ringkeeper_wire::Identity;

use crate::acl::Network;
use crate::{acl, path};

/// Whom a rule binds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// `world:anyone`: clients whom no other rule binds.
    Others,
    /// The clients with an address in a network, of which the address is the first.
    Network(IpAddr, u32),
    /// The clients with exactly this identity, by scheme and id.
    Identity(String, String),
}

impl Subject {
    /// The subject of `scheme:id`, such as `sasl:alice` or `ip:10.0.0.0/8`. Each has one text: a network is
    /// written with its first address, a single address without a length.
    ///
    /// # Errors
    /// There is no such scheme, it has no such ids, or the text is not the one of the subject.
    pub fn parse(text: &str) -> Result<Self, InvalidSubject> {
        let (scheme, id) = text.split_once(':').ok_or(InvalidSubject)?;
        if !acl::is_valid(scheme, id) {
            return Err(InvalidSubject);
        }
        let subject = match scheme {
            acl::WORLD => Self::Others,
            acl::IP => Self::network(Network::parse(id).ok_or(InvalidSubject)?),
            _ => Self::Identity(scheme.to_owned(), id.to_owned()),
        };
        if subject.to_string() == text { Ok(subject) } else { Err(InvalidSubject) }
    }

    /// The subject of the rule with a znode of this name, see [`Self::name`].
    ///
    /// # Errors
    /// As for [`Self::parse`]; or another name is the subject's.
    pub fn of_name(name: &str) -> Result<Self, InvalidSubject> {
        let subject = Self::parse(&decoded(name).ok_or(InvalidSubject)?)?;
        if subject.name() == name { Ok(subject) } else { Err(InvalidSubject) }
    }

    /// The name of the rule's znode: the subject's text, where each byte that a name cannot have, and the
    /// percent sign, is `%` and two hexadecimal digits.
    #[must_use]
    pub fn name(&self) -> String {
        let mut name = String::new();
        for char in self.to_string().chars() {
            if char == '%' || char == '/' || !path::is_allowed(char) {
                let mut bytes = [0; 4];
                for byte in char.encode_utf8(&mut bytes).bytes() {
                    write!(name, "%{byte:02X}").expect("writing to a String does not fail");
                }
            } else {
                name.push(char);
            }
        }
        name
    }

    /// The subjects that an identity can be bound as, the nearest first: an address is in a network of each
    /// length.
    pub(super) fn of(identity: &Identity) -> impl Iterator<Item = Self> + use<> {
        let address = (identity.scheme == acl::IP).then(|| acl::parse_address(&identity.id)).flatten();
        let networks = address
            .map(Network::of)
            .into_iter()
            .flat_map(|host| (0..=host.bits()).rev().map(move |bits| Self::network(host.widened(bits))));
        let itself = Self::Identity(identity.scheme.clone(), identity.id.clone());
        networks.chain(address.is_none().then_some(itself))
    }

    /// Whether the identity can be bound as this subject.
    #[must_use]
    pub fn has(&self, identity: &Identity) -> bool {
        Self::of(identity).any(|subject| subject == *self)
    }

    fn network(network: Network) -> Self {
        Self::Network(network.first(), network.bits())
    }
}

impl std::fmt::Display for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Others => write!(f, "{}:{}", acl::WORLD, acl::ANYONE),
            Self::Network(address, bits) if *bits == Network::of(*address).bits() => {
                write!(f, "{}:{address}", acl::IP)
            }
            Self::Network(address, bits) => write!(f, "{}:{address}/{bits}", acl::IP),
            Self::Identity(scheme, id) => write!(f, "{scheme}:{id}"),
        }
    }
}

/// A text that is not the one of a subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not an identity: write sasl:NAME, x509:SUBJECT, digest:USER:HASH, ip:ADDRESS, ip:ADDRESS/BITS with the \
     network's first address, or world:anyone for those whom no other rule binds; in the name of a znode, a \
     slash is %2F and a percent sign %25"
)]
pub struct InvalidSubject;

fn decoded(name: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = match (first, tail) {
            (b'%', [high, low, tail @ ..]) => {
                let digit =
                    |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
                bytes.push(digit(high)? << 4 | digit(low)?);
                tail
            }
            (b'%', _) => return None,
            _ => {
                bytes.push(*first);
                tail
            }
        };
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_subject_has_one_text_and_one_name() {
        for (text, name) in [
            ("sasl:alice", "sasl:alice"),
            ("sasl:zk/host@REALM", "sasl:zk%2Fhost@REALM"),
            ("x509:CN=100%,O=a b", "x509:CN=100%25,O=a b"),
            ("digest:u:a+b/c=", "digest:u:a+b%2Fc="),
            ("ip:10.0.0.0/8", "ip:10.0.0.0%2F8"),
            ("ip:10.0.0.1", "ip:10.0.0.1"),
            ("ip:2001:db8::/32", "ip:2001:db8::%2F32"),
            ("world:anyone", "world:anyone"),
        ] {
            let subject = Subject::parse(text).expect(text);
            assert_eq!((subject.to_string(), subject.name()), (text.to_owned(), name.to_owned()));
            assert_eq!(Subject::of_name(name), Ok(subject));
        }
    }

    #[test]
    fn other_texts_and_names_are_refused() {
        for text in [
            "",
            "alice",
            "super:",
            "auth:",
            "nobody:a",
            "world:all",
            "digest:alice",
            "ip:10.1.0.0/8",
            "ip:10.0.0.1/32",
            "ip:010.0.0.1",
            "ip:host",
            "x509:alice",
        ] {
            assert_eq!(Subject::parse(text), Err(InvalidSubject), "{text}");
        }
        for name in ["sasl%3Aalice", "sasl:%61", "sasl:a%2fb", "sasl:%", "sasl:%2", "sasl:%zz", "sasl:%FF"] {
            assert_eq!(Subject::of_name(name), Err(InvalidSubject), "{name}");
        }
    }

    proptest! {
        #[test]
        fn names_are_valid_and_read_back(id in any::<String>()) {
            let subject = Subject::Identity("sasl".to_owned(), id);
            prop_assert_eq!(path::validate(&format!("/{}", subject.name())), Ok(()));
            let read = Subject::of_name(&subject.name());
            match subject.to_string().strip_prefix("sasl:").is_some_and(acl::is_sasl_id) {
                true => prop_assert_eq!(read, Ok(subject)),
                false => prop_assert_eq!(read, Err(InvalidSubject)),
            }
        }
    }

    #[test]
    fn an_address_is_bound_by_the_smallest_network_first() {
        let identity = Identity { scheme: "ip".to_owned(), id: "10.1.2.3".to_owned() };
        let texts: Vec<_> = Subject::of(&identity).map(|subject| subject.to_string()).collect();
        assert_eq!(texts.len(), 33);
        assert_eq!((&*texts[0], &*texts[16], &*texts[32]), ("ip:10.1.2.3", "ip:10.1.0.0/16", "ip:0.0.0.0/0"));
    }
}
