//! The text that says what a tenant may use.

use std::fmt;

/// What a tenant may use, each with its word in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// Operations a second, on each server; those of a multi count one by one.
    Operations,
    /// Bytes a second of requests, replies and notifications, on each server.
    Bytes,
    /// Watches, on each server.
    Watches,
    /// Sessions, on each server.
    Sessions,
    /// Znodes, in the ensemble.
    Znodes,
    /// Bytes of their data, in the ensemble.
    Data,
}

impl Resource {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Operations, Self::Bytes, Self::Watches, Self::Sessions, Self::Znodes, Self::Data];

    /// Its word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Operations => "ops",
            Self::Bytes => "bytes",
            Self::Watches => "watches",
            Self::Sessions => "sessions",
            Self::Znodes => "znodes",
            Self::Data => "data",
        }
    }

    /// The smallest limit: what is limited to no operation would wait forever.
    const fn min(self) -> u64 {
        match self {
            Self::Operations | Self::Bytes => 1,
            _ => 0,
        }
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

const BURST: &str = "burst";
/// Seconds.
const BURST_DEFAULT: u64 = 1;
const BURST_MAX: u64 = 3_600;
const LIMIT_MAX: u64 = i64::MAX as u64;

/// What a tenant may use: text such as `ops=1000 znodes=5000`. What it does not name is not limited.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TenantLimits {
    limits: [Option<u64>; Resource::ALL.len()],
    burst_s: Option<u64>,
}

impl TenantLimits {
    /// Reads the text.
    ///
    /// # Errors
    /// See [`Fault`].
    pub fn parse(text: &[u8]) -> Result<Self, InvalidLimits> {
        let text = str::from_utf8(text).map_err(|_| Fault::Utf8)?;
        let mut limits = Self::default();
        for (number, word) in (1..).zip(text.split_ascii_whitespace()) {
            limits.add(word).map_err(|fault| InvalidLimits { word: Some(number), fault })?;
        }
        Ok(limits)
    }

    fn add(&mut self, word: &str) -> Result<(), Fault> {
        let (key, value) = word.split_once('=').ok_or(Fault::Form)?;
        let resource = Resource::ALL.into_iter().find(|resource| resource.word() == key);
        let (place, min, max) = match resource {
            Some(resource) => (&mut self.limits[resource as usize], resource.min(), LIMIT_MAX),
            None if key == BURST => (&mut self.burst_s, 1, BURST_MAX),
            None => return Err(Fault::Key),
        };
        let is_number = value.bytes().all(|byte| byte.is_ascii_digit());
        let number = value.parse().ok().filter(|number| is_number && (min..=max).contains(number));
        let number = number.ok_or(Fault::Number { min, max })?;
        if place.replace(number).is_some() { Err(Fault::Twice) } else { Ok(()) }
    }

    /// The limit, if there is one.
    #[must_use]
    pub const fn of(&self, resource: Resource) -> Option<u64> {
        self.limits[resource as usize]
    }

    /// For how many seconds what is allowed each second may be saved up.
    #[must_use]
    pub fn burst_s(&self) -> u64 {
        self.burst_s.unwrap_or(BURST_DEFAULT)
    }
}

impl fmt::Display for TenantLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limits = Resource::ALL.map(|resource| (resource.word(), self.of(resource)));
        let figures = limits.into_iter().chain([(BURST, self.burst_s)]);
        let figures = figures.filter_map(|(word, figure)| Some((word, figure?)));
        for (index, (word, figure)) in figures.enumerate() {
            write!(f, "{}{word}={figure}", if index > 0 { " " } else { "" })?;
        }
        Ok(())
    }
}

/// Limits that cannot be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub struct InvalidLimits {
    /// The word of the text that is wrong, counted from 1.
    pub word: Option<usize>,
    /// What is wrong.
    #[source]
    pub fault: Fault,
}

impl fmt::Display for InvalidLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.word {
            Some(word) => write!(f, "word {word} of the limits: {}", self.fault),
            None => self.fault.fmt(f),
        }
    }
}

impl From<Fault> for InvalidLimits {
    fn from(fault: Fault) -> Self {
        Self { word: None, fault }
    }
}

/// What is wrong with limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// They are not text.
    #[error("the limits are not UTF-8")]
    Utf8,
    /// A word has no value.
    #[error("write a key, = and a number, such as ops=1000; blanks part the words")]
    Form,
    /// There is no such key.
    #[error("the keys are ops, bytes, watches, sessions, znodes, data and burst")]
    Key,
    /// The value is not a number that the key can have.
    #[error("the value is a number from {min} to {max}")]
    Number {
        /// The smallest.
        min: u64,
        /// The largest.
        max: u64,
    },
    /// A word before it has the same key.
    #[error("the key has a value already")]
    Twice,
    /// They are for the root or for the server's own znodes.
    #[error("the root and /zookeeper cannot have limits")]
    Reserved,
    /// They are for a path within a subtree with limits, or around one.
    #[error("no subtree with limits can be within another")]
    Nested,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_read_back() {
        let all = "ops=1000 bytes=1048576 watches=10000 sessions=100 znodes=100000 data=100000000 burst=2";
        for text in [all, "ops=1", "znodes=0 data=0", "burst=3600", ""] {
            assert_eq!(TenantLimits::parse(text.as_bytes()).expect(text).to_string(), text);
        }
        let spaced = TenantLimits::parse(b"\tznodes=5\n  ops=7\r\n").expect("blanks of any kind");
        assert_eq!(spaced.to_string(), "ops=7 znodes=5");
        assert_eq!((spaced.of(Resource::Bytes), spaced.burst_s()), (None, 1));
    }

    #[test]
    fn other_texts_are_refused_with_the_word() {
        let number = |min, max| Fault::Number { min, max };
        for (text, word, fault) in [
            ("ops", 1, Fault::Form),
            ("ops=1,bytes=2", 1, number(1, LIMIT_MAX)),
            ("ops=1 bytes", 2, Fault::Form),
            ("ops=1 Bytes=2", 2, Fault::Key),
            ("count=4", 1, Fault::Key),
            ("ops=0", 1, number(1, LIMIT_MAX)),
            ("ops=-1", 1, number(1, LIMIT_MAX)),
            ("ops=+1", 1, number(1, LIMIT_MAX)),
            ("ops=", 1, number(1, LIMIT_MAX)),
            ("znodes=9223372036854775808", 1, number(0, LIMIT_MAX)),
            ("ops=1 burst=0", 2, number(1, BURST_MAX)),
            ("ops=1 data=2 ops=1", 3, Fault::Twice),
        ] {
            assert_eq!(
                TenantLimits::parse(text.as_bytes()),
                Err(InvalidLimits { word: Some(word), fault }),
                "{text:?}"
            );
        }
        assert_eq!(TenantLimits::parse(b"ops=\xff"), Err(Fault::Utf8.into()));
    }
}
