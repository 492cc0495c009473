//! The encoding of proposals: in the payload of a frame, and on the way from a follower to its leader.
//!
//! ```text
//! payload   magic "RKBP", then entries
//! entry     origin u64 | number u64 | length u32 | proposal        (little endian)
//! ```
//!
//! Each start of a server draws an origin, so that the server recognizes its own proposals among those
//! delivered, and does not take one from before a restart for its own. The entries of a frame have
//! consecutive zxids.

/// The beginning of a payload, so that another service's log is not taken for this library's.
const MAGIC: [u8; 4] = *b"RKBP";

/// Bytes of an entry before its proposal.
const HEAD_LEN: usize = 8 + 8 + 4;

/// A proposal, and the server and number that identify its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    /// The server's start in which it was proposed.
    pub(crate) origin: u64,
    /// Its number there.
    pub(crate) number: u64,
    pub(crate) proposal: &'a [u8],
}

/// Why bytes are no entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EntryError {
    #[error("not a batch of this library: it begins with {0:02x?}")]
    Magic([u8; 4]),
    #[error("proposals cut short")]
    CutShort,
    #[error("{entries} proposals in a batch of {zxids} zxids")]
    Count { entries: u64, zxids: u64 },
}

/// Encoded entries, to be sent or logged together.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    bytes: Vec<u8>,
    count: u32,
}

impl Entries {
    pub(crate) fn push(&mut self, entry: Entry<'_>) {
        let len = u32::try_from(entry.proposal.len()).expect("proposals are bounded far below 4 GiB");
        self.bytes.extend_from_slice(&entry.origin.to_le_bytes());
        self.bytes.extend_from_slice(&entry.number.to_le_bytes());
        self.bytes.extend_from_slice(&len.to_le_bytes());
        self.bytes.extend_from_slice(entry.proposal);
        self.count += 1;
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(crate) const fn count(&self) -> u32 {
        self.count
    }

    /// Whether another proposal of this length would keep the total within `bytes_max`.
    pub(crate) const fn has_room(&self, proposal_len: usize, bytes_max: usize) -> bool {
        self.is_empty() || self.bytes.len() + HEAD_LEN + proposal_len <= bytes_max
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The payload of a frame.
    pub(crate) fn payload(&self) -> Vec<u8> {
        [&MAGIC[..], &self.bytes].concat()
    }
}

/// Reads entries.
pub(crate) fn read(mut bytes: &[u8]) -> impl Iterator<Item = Result<Entry<'_>, EntryError>> {
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let Some((entry, rest)) = split(bytes) else {
            bytes = &[];
            return Some(Err(EntryError::CutShort));
        };
        bytes = rest;
        Some(Ok(entry))
    })
}

fn split(bytes: &[u8]) -> Option<(Entry<'_>, &[u8])> {
    let (origin, rest) = bytes.split_first_chunk()?;
    let (number, rest) = rest.split_first_chunk()?;
    let (len, rest) = rest.split_first_chunk()?;
    let len = usize::try_from(u32::from_le_bytes(*len)).ok()?;
    let (proposal, rest) = rest.split_at_checked(len)?;
    let (origin, number) = (u64::from_le_bytes(*origin), u64::from_le_bytes(*number));
    Some((Entry { origin, number, proposal }, rest))
}

/// The entries of a frame's payload, whose number must be that of the frame's zxids.
pub(crate) fn read_payload(
    payload: &[u8],
    zxids: u64,
) -> Result<impl Iterator<Item = Entry<'_>>, EntryError> {
    let (magic, bytes) = payload.split_first_chunk().ok_or(EntryError::CutShort)?;
    if *magic != MAGIC {
        return Err(EntryError::Magic(*magic));
    }
    let mut entries = 0;
    for entry in read(bytes) {
        entry?;
        entries += 1;
    }
    if entries != zxids {
        return Err(EntryError::Count { entries, zxids });
    }
    Ok(read(bytes).filter_map(Result::ok))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries() -> Entries {
        let mut entries = Entries::default();
        for (number, proposal) in [(1, &b"one"[..]), (2, b""), (3, &[7; 300])] {
            entries.push(Entry { origin: 9, number, proposal });
        }
        entries
    }

    #[test]
    fn entries_come_out_as_they_went_in() {
        let payload = entries().payload();
        let read: Vec<_> = read_payload(&payload, 3).expect("three").collect();
        assert_eq!(read[0], Entry { origin: 9, number: 1, proposal: b"one" });
        assert_eq!(read[1], Entry { origin: 9, number: 2, proposal: b"" });
        assert_eq!(read[2].proposal, [7; 300]);
    }

    #[test]
    fn every_cut_is_seen() {
        let payload = entries().payload();
        for cut in 0..payload.len() {
            assert!(read_payload(&payload[..cut], 3).is_err(), "cut to {cut} bytes");
        }
        assert_eq!(read_payload(&payload, 4).err(), Some(EntryError::Count { entries: 3, zxids: 4 }));
    }

    #[test]
    fn another_services_batch_is_refused() {
        let mut payload = entries().payload();
        payload[0] ^= 1;
        assert!(matches!(read_payload(&payload, 3).err(), Some(EntryError::Magic(_))));
    }

    #[test]
    fn a_batch_takes_at_least_one_proposal_however_long() {
        let mut entries = Entries::default();
        assert!(entries.has_room(1000, 10));
        entries.push(Entry { origin: 1, number: 1, proposal: b"x" });
        assert!(!entries.has_room(0, 30));
        assert!(entries.has_room(0, 41));
    }
}
