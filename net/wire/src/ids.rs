//! Typed identifiers. The wire's signedness is settled here: ZooKeeper writes all of them as signed
//! big-endian integers, and compares zxids as signed values.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

/// A transaction id: epoch (high 32 bits) and counter (low 32 bits). Counter 0 begins an epoch and never
/// names a transaction (Zab, DSN 2011).
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Zxid(pub u64);

impl Zxid {
    /// Before every transaction.
    pub const ZERO: Self = Self(0);

    /// The zxid of `counter` in `epoch`.
    #[must_use]
    pub const fn new(epoch: Epoch, counter: u32) -> Self {
        Self(((epoch.0 as u64) << 32) | counter as u64)
    }

    /// The leadership in which the transaction was proposed.
    #[must_use]
    pub const fn epoch(self) -> Epoch {
        Epoch((self.0 >> 32) as u32)
    }

    /// Position inside the epoch; the first transaction has 1.
    #[must_use]
    pub const fn counter(self) -> u32 {
        (self.0 & 0xffff_ffff) as u32
    }

    /// The next zxid of the same epoch, or `None` when its counter is used up.
    #[must_use]
    pub const fn next(self) -> Option<Self> {
        if self.counter() == u32::MAX { None } else { Some(Self(self.0 + 1)) }
    }

    /// As the wire writes it.
    #[must_use]
    pub const fn to_wire(self) -> i64 {
        self.0.cast_signed()
    }

    /// As the wire writes it; a negative number (sent by no correct client) stays as large as it looks
    /// unsigned, so that it is ahead of every server.
    #[must_use]
    pub const fn from_wire(value: i64) -> Self {
        Self(value.cast_unsigned())
    }
}

impl fmt::Display for Zxid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:x}", self.0)
    }
}

/// It is no zxid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a zxid, such as 0x100000001: {0}")]
pub struct ZxidError(#[from] ParseIntError);

/// As users write it: hexadecimal with `0x`, as it is printed, or decimal.
impl FromStr for Zxid {
    type Err = ZxidError;

    fn from_str(text: &str) -> Result<Self, ZxidError> {
        let number = match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => text.parse(),
        };
        Ok(Self(number?))
    }
}

impl fmt::Debug for Zxid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The number of a leadership; grows with every election that succeeds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u32);

/// A server's number in the ensemble: `myid`, 1 to 254 (one byte of every session id).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId(pub u64);

impl fmt::Display for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A session's number; its top byte is the server that created it. 0 means "no session yet".
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub i64);

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:x}", self.0)
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A client's number for one of its requests. Negative ones are special, see [`crate::xid`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Xid(pub i32);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zxids_are_read_as_they_are_printed_or_in_decimal() {
        assert_eq!("0x100000001".parse(), Ok(Zxid(0x1_0000_0001)));
        assert_eq!("17".parse(), Ok(Zxid(17)));
        assert!("0xg".parse::<Zxid>().is_err() && "-1".parse::<Zxid>().is_err());
    }
}
