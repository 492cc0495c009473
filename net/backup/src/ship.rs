//! From a running server to the store.

use std::time::Duration;

use ringkeeper_engine::txn;
use ringkeeper_frame::{self as frame, LogPosition};
use ringkeeper_wire::Zxid;

use crate::catalog::{Catalog, Manifest, Segment, TakenFull, found, founded};
use crate::source::{Full, Part, SourceError};
use crate::store::{Store, StoreError};

/// Bytes of a part of a state. Objects are read and written whole.
const PART_BYTES: usize = 8 << 20;

/// Why nothing more is shipped.
#[derive(Debug, thiserror::Error)]
pub enum ShipError {
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The server.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The store is another ensemble's.
    #[error(
        "the store has ensemble {stored:#x}, the server is of ensemble {met:#x}: give each a store of its own, also \
         an ensemble that was restored"
    )]
    OtherEnsemble {
        /// Whose history the store has.
        stored: u64,
        /// The server's.
        met: u64,
    },
    /// The store was there, and is not.
    #[error("the store is empty, and was not before: is its disk mounted, its bucket the same?")]
    Vanished,
    /// The server's history is not the one that was shipped.
    #[error(
        "the server's history has forked from the stored one at zxid {at}: what was acknowledged behind that differs; \
         nothing was written"
    )]
    Forked {
        /// The end of what is stored.
        at: Zxid,
    },
}

/// Ships the history of one ensemble.
pub struct Shipper {
    store: Store,
    ensemble: Option<u64>,
    end: Option<LogPosition>,
    newest_full: Option<TakenFull>,
}

/// A state that is in the store but for its last object.
#[must_use]
pub struct PendingFull {
    full: TakenFull,
    bytes: Vec<u8>,
}

impl Shipper {
    /// Goes on where the store ends.
    ///
    /// # Errors
    /// The store refuses, or has damaged objects.
    pub async fn open(store: Store) -> Result<Self, StoreError> {
        let catalog = Catalog::read(&store).await?;
        let newest_full = catalog.fulls.last().copied();
        Ok(Self { store, ensemble: catalog.ensemble, end: catalog.end(), newest_full })
    }

    /// Where the store ends; nothing in an empty one.
    #[must_use]
    pub fn end(&self) -> Option<LogPosition> {
        self.end
    }

    /// When the newest state was taken, milliseconds since the Unix epoch.
    #[must_use]
    pub fn newest_full_ms(&self) -> Option<i64> {
        self.newest_full.map(|full| full.taken_ms)
    }

    /// Whether another state is due: the newest one is as old as `every` (`now_ms` is milliseconds since the
    /// Unix epoch), and the log in the store goes on behind it. Where nothing was committed, another
    /// one would be the same.
    #[must_use]
    pub fn is_full_due(&self, now_ms: i64, every: Duration) -> bool {
        self.newest_full.is_none_or(|full| {
            let age_ms = now_ms.saturating_sub(full.taken_ms).max(0).unsigned_abs();
            Duration::from_millis(age_ms) >= every
                && self.end.is_some_and(|end| end.zxid > full.position.zxid)
        })
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Checks whose history this is, and names it in an empty store.
    async fn settle(&mut self, met: u64) -> Result<(), ShipError> {
        match founded(&self.store).await? {
            Some(Manifest { ensemble: stored, .. }) if stored != met => {
                return Err(ShipError::OtherEnsemble { stored, met });
            }
            Some(Manifest { is_newest: true, .. }) => {}
            // A disk that is not mounted is an empty folder.
            None if self.ensemble.is_some() => return Err(ShipError::Vanished),
            _ => found(&self.store, met).await?,
        }
        self.ensemble = Some(met);
        Ok(())
    }

    /// Writes a state but for its last object, for which [`Self::finish_full`] waits until the log reaches
    /// the state.
    ///
    /// # Errors
    /// See [`ShipError`].
    pub async fn take_full(&mut self, mut full: Full, now_ms: i64) -> Result<PendingFull, ShipError> {
        let mut pending = self.begin_full(full.ensemble, full.about(now_ms)).await?;
        while let Some(bytes) = full.next().await? {
            self.add_to_full(&mut pending, &bytes).await?;
        }
        self.write_part(&mut pending).await?;
        Ok(pending)
    }

    /// Begins a state that comes in pieces. Its parts have names of their own, so none that is stored is
    /// written over.
    ///
    /// # Errors
    /// See [`ShipError`].
    pub async fn begin_full(&mut self, ensemble: u64, full: TakenFull) -> Result<PendingFull, ShipError> {
        self.settle(ensemble).await?;
        let upload = getrandom::u64().map_err(StoreError::from)?.max(1);
        Ok(PendingFull { full: TakenFull { upload, ..full }, bytes: Vec::new() })
    }

    /// Adds a piece.
    ///
    /// # Errors
    /// The store refuses.
    pub async fn add_to_full(&self, pending: &mut PendingFull, bytes: &[u8]) -> Result<(), StoreError> {
        pending.bytes.extend_from_slice(bytes);
        if pending.bytes.len() >= PART_BYTES { self.write_part(pending).await } else { Ok(()) }
    }

    async fn write_part(&self, pending: &mut PendingFull) -> Result<(), StoreError> {
        if pending.bytes.is_empty() {
            return Ok(());
        }
        let full = &mut pending.full;
        self.store.put(&full.part_name(full.parts), &pending.bytes).await?;
        full.parts += 1;
        pending.bytes.clear();
        Ok(())
    }

    /// Whether the log in the store reaches a state, or does not continue to it.
    #[must_use]
    pub fn reaches(&self, pending: &PendingFull) -> bool {
        self.end.is_none_or(|end| end.zxid >= pending.full.position.zxid)
    }

    /// Completes a state. The store goes on from there if it ends before.
    ///
    /// # Errors
    /// The store refuses.
    pub async fn finish_full(&mut self, mut pending: PendingFull) -> Result<Zxid, StoreError> {
        self.write_part(&mut pending).await?;
        let PendingFull { full, .. } = pending;
        let about = full.about().to_string();
        self.store.put(&TakenFull::end_name(full.position), about.as_bytes()).await?;
        if self.end.is_none_or(|end| end.zxid < full.position.zxid) {
            self.end = Some(full.position);
        }
        self.newest_full = Some(full);
        Ok(full.position.zxid)
    }

    /// Writes a part of the log, which has to continue the store. Returns the time of its last transaction,
    /// milliseconds since the Unix epoch.
    ///
    /// # Errors
    /// See [`ShipError`]. Nothing is written if the part does not continue the store.
    ///
    /// # Panics
    /// There is no state in the store.
    pub async fn ship(&mut self, part: &Part) -> Result<Option<i64>, ShipError> {
        let met = part.ensemble;
        if let Some(stored) = self.ensemble.filter(|stored| *stored != met) {
            return Err(ShipError::OtherEnsemble { stored, met });
        }
        let after = self.end.expect("a state is shipped first");
        let (Some(first), Some(last)) = (part.batches.first(), part.batches.last()) else { return Ok(None) };
        self.settle(met).await?;
        let forked = || ShipError::Forked { at: after.zxid };
        let head = frame::parse(first.bytes()).map_err(|_| forked())?;
        if head.previous() != after.checksum || !frame::follows(after.zxid, first.first()) {
            return Err(forked());
        }
        let segment = Segment { after, last: last.end() };
        let bytes: Vec<&[u8]> = part.batches.iter().map(|batch| &batch.bytes()[..]).collect();
        self.store.put(&segment.name(), &bytes.concat()).await?;
        self.end = Some(segment.last);
        let txns = last.payload().ok().and_then(|payload| txn::decode_batch(payload).ok());
        Ok(txns.and_then(|txns| txns.last().map(|txn| txn.time_ms)))
    }
}

impl Full {
    fn about(&self, taken_ms: i64) -> TakenFull {
        let Self { position, state_version, time_ms, .. } = self;
        TakenFull {
            position: *position,
            upload: 0,
            parts: 0,
            state_version: *state_version,
            time_ms: *time_ms,
            taken_ms,
        }
    }
}
