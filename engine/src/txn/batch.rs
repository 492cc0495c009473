//! Transactions in one archive: what a frame of the log and a proposal carry.
//!
//! The zxids of a batch are contiguous, so the archive has only the first one.

use ringkeeper_wire::Zxid;
use rkyv::munge::munge;
use rkyv::rancor::{self, Fallible};
use rkyv::ser::{Allocator, Writer};
use rkyv::util::AlignedVec;
use rkyv::vec::{ArchivedVec, VecResolver};
use rkyv::{Archive, Place, Serialize};

use super::{ArchivedTxn, Txn};

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

/// The transactions of a validated archive, read in place.
#[derive(Clone, Copy)]
pub struct TxnBatch<'a>(&'a ArchivedBatch);

impl<'a> TxnBatch<'a> {
    /// Alignment that [`Self::access`] needs, in bytes.
    pub const ALIGNMENT: usize = align_of::<ArchivedBatch>();

    /// Checks an archive and gives access to it in place. `bytes` must be aligned to [`Self::ALIGNMENT`].
    ///
    /// # Errors
    /// See [`BatchError`].
    pub fn access(bytes: &'a [u8]) -> Result<Self, BatchError> {
        let batch = Self(rkyv::access::<ArchivedBatch, rancor::Error>(bytes)?);
        let (first, len) = (batch.first_zxid(), batch.len());
        let last = u32::try_from(len).ok().and_then(|len| first.counter().checked_add(len.saturating_sub(1)));
        if last.is_none() { Err(BatchError::ZxidOverflow { first, len }) } else { Ok(batch) }
    }

    /// Zxid of the first transaction.
    #[must_use]
    pub fn first_zxid(&self) -> Zxid {
        Zxid(self.0.first_zxid.to_native())
    }

    /// Number of transactions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.txns.len()
    }

    /// Whether there is no transaction; no such batch is ever written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The transactions, each copied out of the archive.
    pub fn txns(self) -> impl Iterator<Item = Result<Txn, BatchError>> + use<'a> {
        // Checked in `access`: no zxid of the batch runs over the end of its epoch.
        let first = self.first_zxid().0;
        (0..).zip(self.0.txns.iter()).map(move |(number, archived)| owned(first + number, archived))
    }

    /// [`Self::txns`] as a vector that is allocated once. `collect` into a `Result` would not know the length
    /// and move the transactions as the vector grows.
    fn to_vec(self) -> Result<Vec<Txn>, BatchError> {
        let mut txns = Vec::with_capacity(self.len());
        for txn in self.txns() {
            txns.push(txn?);
        }
        Ok(txns)
    }
}

fn owned(zxid: u64, archived: &ArchivedTxn) -> Result<Txn, BatchError> {
    let txn = rkyv::deserialize::<Txn, rancor::Error>(archived)?;
    Ok(Txn { zxid: Zxid(zxid), ..txn })
}

/// Reads a batch from bytes of any alignment and origin.
///
/// # Errors
/// See [`BatchError`].
pub fn decode_batch(bytes: &[u8]) -> Result<Vec<Txn>, BatchError> {
    if bytes.as_ptr().addr().is_multiple_of(TxnBatch::ALIGNMENT) {
        return TxnBatch::access(bytes)?.to_vec();
    }
    let mut aligned = AlignedVec::<16>::with_capacity(bytes.len());
    aligned.extend_from_slice(bytes);
    TxnBatch::access(&aligned)?.to_vec()
}
