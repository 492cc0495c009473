//! What no kept moment needs is removed.

use crate::catalog::{Catalog, TakenFull};
use crate::store::{Store, StoreError};

/// Removes the states and parts of the log that moments from this time on (milliseconds since the Unix epoch)
/// do not need. Returns the number of objects removed.
///
/// # Errors
/// The store refuses. What is left is whole.
pub async fn prune(store: &Store, from_ms: i64) -> Result<usize, StoreError> {
    let catalog = Catalog::read(store).await?;
    // A moment needs the newest state before it.
    let Some(base) = catalog.fulls.iter().rfind(|full| full.time_ms <= from_ms) else { return Ok(0) };
    let base = base.position;
    let mut removed = 0;
    // Without its last object, a state is none.
    for full in catalog.fulls.iter().filter(|full| full.position.zxid < base.zxid) {
        store.remove(&TakenFull::end_name(full.position)).await?;
        for part in 0..full.parts {
            store.remove(&TakenFull::part_name(full.position, part)).await?;
            removed += 1;
        }
        removed += 1;
    }
    for segment in catalog.segments.iter().filter(|segment| segment.last.zxid <= base.zxid) {
        store.remove(&segment.name()).await?;
        removed += 1;
    }
    Ok(removed)
}
