//! The owner of a znode, encoded in the `ephemeralOwner` field of ZooKeeper's persisted Stat.

use ringkeeper_wire::SessionId;

/// Container znodes carry this owner.
const CONTAINER: i64 = i64::MIN;
/// Top byte of an extended owner; the next two bytes name the feature, of which 0 is TTL.
const EXTENDED: u64 = 0xff00_0000_0000_0000;
/// Top byte and feature together.
const FEATURE_MASK: u64 = 0xffff_ff00_0000_0000;

/// What keeps a znode alive, and what ends it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Owner {
    /// A persistent znode: lives until it is deleted.
    #[default]
    None,
    /// An ephemeral znode: ends with its session.
    Session(SessionId),
    /// A container: may be removed after its last child.
    Container,
    /// May be removed when childless and not set for this many milliseconds (40 bits).
    Ttl(u64),
}

impl Owner {
    /// The longest TTL that fits, in milliseconds.
    pub const TTL_MAX_MS: u64 = !FEATURE_MASK;

    /// As ZooKeeper persists it (`EphemeralType`): 0, the session, or a tagged number.
    ///
    /// A TTL above [`Self::TTL_MAX_MS`] is cut to 40 bits; requests are checked before they get here.
    #[must_use]
    pub const fn to_raw(self) -> i64 {
        match self {
            Self::None => 0,
            Self::Session(session) => session.0,
            Self::Container => CONTAINER,
            Self::Ttl(ms) => (EXTENDED | (ms & Self::TTL_MAX_MS)).cast_signed(),
        }
    }

    /// Decodes the persisted form. An extended owner with an unknown feature is read as a session, as by
    /// servers without extended types.
    #[must_use]
    pub const fn from_raw(raw: i64) -> Self {
        match raw {
            0 => Self::None,
            CONTAINER => Self::Container,
            _ if raw.cast_unsigned() & FEATURE_MASK == EXTENDED => {
                Self::Ttl(raw.cast_unsigned() & Self::TTL_MAX_MS)
            }
            _ => Self::Session(SessionId(raw)),
        }
    }

    /// `ephemeralOwner` as clients see it: 0 for everything but ephemerals.
    #[must_use]
    pub const fn visible(self) -> i64 {
        match self {
            Self::Session(session) => session.0,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_survive_their_persisted_form() {
        for owner in [
            Owner::None,
            Owner::Session(SessionId(0x0100_0000_0000_0001)),
            Owner::Container,
            Owner::Ttl(1),
            Owner::Ttl(Owner::TTL_MAX_MS),
        ] {
            assert_eq!(Owner::from_raw(owner.to_raw()), owner);
        }
    }

    #[test]
    fn only_ephemerals_show_an_owner_to_clients() {
        assert_eq!(Owner::Container.visible(), 0);
        assert_eq!(Owner::Ttl(5).visible(), 0);
        assert_eq!(Owner::Session(SessionId(9)).visible(), 9);
    }

    #[test]
    fn persisted_forms_are_zookeepers() {
        assert_eq!(Owner::Container.to_raw().cast_unsigned(), 0x8000_0000_0000_0000);
        assert_eq!(Owner::Ttl(0x1234).to_raw().cast_unsigned(), 0xff00_0000_0000_1234);
    }
}
