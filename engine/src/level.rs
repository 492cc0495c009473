//! The feature level of an ensemble: what its servers may use of each other, since all members know it.
//!
//! The level stands in the replicated state, in the znode [`path::FEATURE_LEVEL`]. The leader raises it by a
//! transaction when all members are connected and can do more; an operator lowers it, and holds it there, by
//! another one. So it does not depend on who is connected at the moment, and a server that was away learns it
//! from the log. `replica/level.rs` has the leader's part; the links refuse peers that cannot do the level.

use std::fmt;
use std::str::FromStr;

use crate::members::Members;
use crate::path;

/// A feature that all members have to know before one of them uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// Voters stand in groups.
    Groups,
    /// Members have several addresses.
    SeveralAddresses,
}

/// For each level from 1 on: the first version of the servers' messages that knows it, and what it allows.
const LEVELS: [(u8, Feature); 2] = [(9, Feature::Groups), (10, Feature::SeveralAddresses)];

/// How much of [`Feature`] may be used. Each level includes those below it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Level(pub u8);

impl Level {
    /// The one that this build can do, and those below it.
    #[expect(clippy::cast_possible_truncation, reason = "two")]
    pub const NEWEST: Self = Self(LEVELS.len() as u8);

    /// What a server can do that speaks this version of the messages.
    #[must_use]
    pub fn of_version(version: u8) -> Self {
        let known = levels().filter(|(_, known_from, _)| version >= *known_from);
        known.last().map_or(Self(0), |(level, ..)| level)
    }

    /// The newest version of the messages of which all are known at this level and below.
    #[must_use]
    pub fn last_version(self) -> u8 {
        let next = levels().find(|(level, ..)| *level > self);
        next.map_or(u8::MAX, |(_, known_from, _)| known_from - 1)
    }

    /// The lowest level at which these may be the members.
    #[must_use]
    pub fn needed_by(members: &Members) -> Self {
        let used = levels().filter(|(.., feature)| feature.is_used_by(members));
        used.last().map_or(Self(0), |(level, ..)| level)
    }

    /// What this level allows for the first time.
    #[must_use]
    pub fn feature(self) -> Option<Feature> {
        levels().find(|(level, ..)| *level == self).map(|(.., feature)| feature)
    }
}

fn levels() -> impl Iterator<Item = (Level, u8, Feature)> {
    (1..).zip(LEVELS).map(|(level, (known_from, feature))| (Level(level), known_from, feature))
}

impl Feature {
    fn is_used_by(self, members: &Members) -> bool {
        match self {
            Self::Groups => members.are_grouped(),
            Self::SeveralAddresses => members.has_several_addresses(),
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Groups => "voters in groups",
            Self::SeveralAddresses => "members with several addresses",
        })
    }
}

/// What [`path::FEATURE_LEVEL`] says; without the znode, level 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FeatureLevel {
    /// The level.
    pub level: Level,
    /// An operator wants it to stay: the leader does not raise it.
    pub held: bool,
}

impl FeatureLevel {
    /// Of data that say nothing known: above all levels, so that no server goes on with them.
    const UNKNOWN: Self = Self { level: Level(u8::MAX), held: true };

    pub(crate) fn read(data: Option<&[u8]>) -> Self {
        let text = str::from_utf8(data.unwrap_or_default());
        text.ok().and_then(|text| text.parse().ok()).unwrap_or(Self::UNKNOWN)
    }

    /// Whether a server can go on that can do levels up to `newest`.
    ///
    /// # Errors
    /// It cannot.
    pub fn check(self, newest: Level) -> Result<(), TooHigh> {
        if self.level <= newest { Ok(()) } else { Err(TooHigh { level: self.level, newest }) }
    }
}

impl FromStr for FeatureLevel {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (level, held) = text.strip_suffix(" held").map_or((text, false), |level| (level, true));
        Ok(Self { level: Level(level.parse().map_err(drop)?), held })
    }
}

impl fmt::Display for FeatureLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.level, if self.held { " held" } else { "" })
    }
}

/// A server cannot do what the ensemble may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the ensemble has feature level {level} ({path}), and this build can do levels up to {newest}: start a newer build \
     here, or have the level lowered first (ringkeeper admin feature-level --lower {newest})",
    path = path::FEATURE_LEVEL
)]
pub struct TooHigh {
    level: Level,
    newest: Level,
}

/// What an operator asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LevelChange {
    /// The level is to be this one, and to stay so.
    Lower(Level),
    /// The leader may raise it again.
    Raise,
}

/// Why the level is not lowered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotLowered {
    /// It is lower already.
    #[error("the feature level is {now}, so it cannot be lowered to {wanted}")]
    IsLower {
        /// The level.
        now: Level,
        /// What was asked for.
        wanted: Level,
    },
    /// The members use what the lower level does not allow.
    #[error(
        "there are {}, which need feature level {needed}, and none may be left at level {wanted}: change the members first \
         (reconfig)",
        .needed.feature().map_or_else(String::new, |feature| feature.to_string())
    )]
    InUse {
        /// The level that the members need.
        needed: Level,
        /// What was asked for.
        wanted: Level,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_of_the_messages_can_do_a_level_from_the_one_that_brought_it_on() {
        let levels = [7, 8, 9, 10, 11].map(|version| Level::of_version(version).0);
        assert_eq!(levels, [0, 0, 1, 2, 2]);
        assert_eq!([0, 1].map(|level| Level(level).last_version()), [8, 9]);
    }

    #[test]
    fn what_the_znode_says_is_read_back_and_anything_else_is_above_all_levels() {
        for text in ["0", "2", "1 held"] {
            assert_eq!(FeatureLevel::read(Some(text.as_bytes())).to_string(), text);
        }
        for text in ["", "held", "1  held", "-1", "256", "two"] {
            assert!(FeatureLevel::read(Some(text.as_bytes())).check(Level::NEWEST).is_err(), "{text:?}");
        }
    }

    #[test]
    fn members_need_the_level_of_the_newest_feature_that_they_use() {
        for (members, level) in [
            ("server.1=a:1:2,server.2=b:1:2", 0),
            ("server.1=a:1:2,server.2=b:1:2,group.1=1:2", 1),
            ("server.1=a:1:2|c:1:2,server.2=b:1:2", 2),
            ("server.1=a:1:2|c:1:2,server.2=b:1:2,group.1=1:2", 2),
        ] {
            let (members, _) = Members::parse(members).expect("valid");
            assert_eq!(Level::needed_by(&members), Level(level), "{members:?}");
        }
    }
}
