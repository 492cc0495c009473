//! Transactions in one archive: what a frame of the log and a proposal carry.
//!
//! The zxids of a batch are contiguous, so the archive has only the first one.

use bytes::Bytes;
use ringkeeper_wire::Zxid;
use rkyv::api::deserialize_using;
use rkyv::munge::munge;
use rkyv::rancor::{self, Fallible};
use rkyv::ser::{Allocator, Writer};
use rkyv::util::AlignedVec;
use rkyv::vec::{ArchivedVec, VecResolver};
use rkyv::{Archive, Place, Serialize};

use super::{Txn, archive};

/// Why bytes are not a batch.
#[derive(Debug, thiserror::Error)]
pub enum BatchError {
    /// They are not an archive of this version.
    #[error("malformed transaction batch: {0}")]
    Malformed(#[from] rancor::Error),
    /// The zxids run over the end of their epoch.
    #[error("a batch of {len} transactions cannot begin at zxid {first}")]
    ZxidOverflow {
        /// Zxid of the first transaction.
        first: Zxid,
        /// Number of transactions.
        len: usize,
    },
}

/// The archived batch.
#[derive(Archive)]
#[expect(dead_code, reason = "names the fields of the archived form")]
struct Batch {
    first_zxid: u64,
    txns: Vec<Txn>,
}

/// A batch to be archived, from transactions in any storage.
struct Source<I> {
    first_zxid: u64,
    txns: I,
}

impl<'a, I: ExactSizeIterator<Item = &'a Txn>> Archive for Source<I> {
    type Archived = ArchivedBatch;
    type Resolver = VecResolver;

    fn resolve(&self, resolver: VecResolver, out: Place<ArchivedBatch>) {
        munge!(let ArchivedBatch { first_zxid, txns } = out);
        self.first_zxid.resolve((), first_zxid);
        ArchivedVec::resolve_from_len(self.txns.len(), resolver, txns);
    }
}

impl<'a, I, S> Serialize<S> for Source<I>
where
    I: ExactSizeIterator<Item = &'a Txn> + Clone,
    S: Fallible<Error: rancor::Source> + Allocator + Writer + ?Sized,
{
    fn serialize(&self, serializer: &mut S) -> Result<VecResolver, S::Error> {
        ArchivedVec::serialize_from_iter::<Txn, _, S>(self.txns.clone(), serializer)
    }
}

/// Writes the archive of `txns` behind what `out` holds. Deterministic: equal transactions give equal bytes.
///
/// # Panics
/// There is no transaction, their zxids are not contiguous, or the archive exceeds 2 GiB.
pub fn encode_batch<'a, I>(txns: I, out: &mut AlignedVec)
where
    I: IntoIterator<Item = &'a Txn, IntoIter: ExactSizeIterator + Clone>,
{
    let txns = txns.into_iter();
    let first_zxid = txns.clone().next().expect("a batch has a transaction").zxid.0;
    for (number, txn) in (0..).zip(txns.clone()) {
        assert_eq!(Zxid(first_zxid + number), txn.zxid, "zxids of a batch are contiguous");
    }
    let before = std::mem::take(out);
    let archived = rkyv::api::high::to_bytes_in::<_, rancor::Error>(&Source { first_zxid, txns }, before);
    *out = archived.expect("a batch fits an archive");
}

/// Reads a batch from bytes of any alignment and origin. They are copied once; the transactions share the copy.
///
/// # Errors
/// See [`BatchError`].
pub fn decode_batch(bytes: &[u8]) -> Result<Vec<Txn>, BatchError> {
    let mut aligned = AlignedVec::<{ align_of::<ArchivedBatch>() }>::with_capacity(bytes.len());
    aligned.extend_from_slice(bytes);
    decode(&Bytes::from_owner(aligned))
}

/// As [`decode_batch`], sharing `bytes` if they are aligned for an archive, as those of a frame are.
///
/// # Errors
/// See [`BatchError`].
pub fn share_batch(bytes: &Bytes) -> Result<Vec<Txn>, BatchError> {
    let is_aligned = bytes.as_ptr().addr().is_multiple_of(align_of::<ArchivedBatch>());
    if is_aligned { decode(bytes) } else { decode_batch(bytes) }
}

fn decode(bytes: &Bytes) -> Result<Vec<Txn>, BatchError> {
    let batch = rkyv::access::<ArchivedBatch, rancor::Error>(bytes)?;
    let (first, len) = (Zxid(batch.first_zxid.to_native()), batch.txns.len());
    let last = u32::try_from(len).ok().and_then(|len| first.counter().checked_add(len.saturating_sub(1)));
    if last.is_none() {
        return Err(BatchError::ZxidOverflow { first, len });
    }
    // Allocated once: `collect` into a `Result` would not know the length, and move the transactions.
    let mut txns = Vec::with_capacity(len);
    for (zxid, archived) in (first.0..=u64::MAX).zip(batch.txns.iter()) {
        let txn = deserialize_using::<Txn, _, rancor::Error>(archived, &mut archive::Whole(bytes))?;
        txns.push(Txn { zxid: Zxid(zxid), ..txn });
    }
    Ok(txns)
}
