//! What no kept moment needs is removed.

use crate::catalog::{Catalog, Kind};
use crate::store::{Store, StoreError};

/// Removes the states, whole or not, and parts of the log that moments from this time on (milliseconds since
/// the Unix epoch) do not need. Returns the number of objects removed.
///
/// # Errors
/// The store refuses. What is left is whole.
pub async fn prune(store: &Store, from_ms: i64) -> Result<usize, StoreError> {
    let catalog = Catalog::read(store).await?;
    // A moment needs the newest state before it.
    let Some(base) = catalog.fulls.iter().rfind(|full| full.time_ms <= from_ms) else { return Ok(0) };
    let base = base.position.zxid;
    let mut unneeded: Vec<(bool, String)> = Vec::new();
    for name in store.list().await? {
        match Kind::of(&name) {
            Some(Kind::FullEnd(at) | Kind::FullPart(at)) if at.zxid < base => {}
            Some(Kind::Segment(segment)) if segment.last.zxid <= base => {}
            _ => continue,
        }
        unneeded.push((!matches!(Kind::of(&name), Some(Kind::FullEnd(_))), name));
    }
    // Without its last object, a state is none: those go first.
    unneeded.sort_unstable();
    for (_, name) in &unneeded {
        store.remove(name).await?;
    }
    Ok(unneeded.len())
}
