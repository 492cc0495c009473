//! Messages between a learner and its leader, beside those of the broadcast.
//!
//! ```text
//! to the leader    1 | entries                    proposals made at the learner
//!                  2 | number u64                 a sync asked for at the learner
//! to a learner     1 | number u64 | zxid u64      the sync is done once this is delivered
//! ```

use ringkeeper_wire::Zxid;

const PROPOSALS: u8 = 1;
const SYNC: u8 = 2;
const SYNCED: u8 = 1;

/// From a learner to its leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ToLeader<'a> {
    /// Entries, see [`crate::entry`].
    Proposals(&'a [u8]),
    Sync {
        number: u64,
    },
}

/// From the leader to a learner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ToLearner {
    /// Everything committed when the sync was asked for ends at `upto`.
    Synced { number: u64, upto: Zxid },
}

/// Bytes that are no such message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a message that this version does not know, of {0} bytes")]
pub(crate) struct Unknown(usize);

impl<'a> ToLeader<'a> {
    pub(crate) fn encode(&self) -> Vec<u8> {
        match *self {
            Self::Proposals(entries) => [&[PROPOSALS], entries].concat(),
            Self::Sync { number } => [&[SYNC][..], &number.to_le_bytes()].concat(),
        }
    }

    pub(crate) fn decode(bytes: &'a [u8]) -> Result<Self, Unknown> {
        let unknown = Unknown(bytes.len());
        match bytes.split_first() {
            Some((&PROPOSALS, entries)) => Ok(Self::Proposals(entries)),
            Some((&SYNC, rest)) => {
                let [number] = numbers(rest).ok_or(unknown)?;
                Ok(Self::Sync { number })
            }
            _ => Err(unknown),
        }
    }
}

impl ToLearner {
    pub(crate) fn encode(self) -> Vec<u8> {
        let Self::Synced { number, upto } = self;
        [&[SYNCED][..], &number.to_le_bytes(), &upto.0.to_le_bytes()].concat()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Unknown> {
        let unknown = Unknown(bytes.len());
        let Some((&SYNCED, rest)) = bytes.split_first() else { return Err(unknown) };
        let [number, upto] = numbers(rest).ok_or(unknown)?;
        Ok(Self::Synced { number, upto: Zxid(upto) })
    }
}

/// Exactly so many numbers.
fn numbers<const N: usize>(bytes: &[u8]) -> Option<[u64; N]> {
    let (chunks, rest) = bytes.as_chunks();
    let numbers: [[u8; 8]; N] = chunks.try_into().ok()?;
    rest.is_empty().then(|| numbers.map(u64::from_le_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_read_as_they_were_written() {
        for message in [ToLeader::Proposals(b"entries"), ToLeader::Sync { number: 7 }] {
            assert_eq!(ToLeader::decode(&message.encode()), Ok(message));
        }
        let synced = ToLearner::Synced { number: 3, upto: Zxid(5) };
        assert_eq!(ToLearner::decode(&synced.encode()), Ok(synced));
    }

    #[test]
    fn what_is_no_message_is_refused() {
        for bytes in [&[][..], &[0], &[9, 1], &[SYNC, 1, 2], &[SYNC, 0, 0, 0, 0, 0, 0, 0, 0, 0]] {
            assert!(ToLeader::decode(bytes).is_err(), "{bytes:?}");
        }
        assert!(ToLearner::decode(&[SYNCED; 16]).is_err());
    }
}
