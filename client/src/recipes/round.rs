//! One round of a double barrier: what its two variants have in common.
//!
//! ```text
//! barrier ─┬─ <uuid>   one for each process that has entered and not left (ephemeral)
//!          ├─ <uuid>
//!          └─ ready    there as soon as enough have entered
//! ```
//! A barrier can be used again. Two rules keep a slow process of one round apart from a quick one that is
//! in the next already: who leaves waits only for those of its own round, which it knows, since nobody can
//! return from leaving while its own znode is still there; and nobody returns before `ready` is deleted,
//! so that the next round does not find it.

use super::{claim::Claim, retried};
use crate::mutation::planted;
use crate::{Client, CreateMode, Error, Result, path};

/// A process inside a double barrier. Dropped instead of left, it is gone from the barrier without
/// waiting for the others.
#[derive(Debug)]
#[must_use = "dropped, it is outside the barrier"]
pub struct Participation {
    claim: Claim,
    pub(super) barrier: String,
    /// Of our own znode.
    pub(super) name: String,
}

const READY: &str = "ready";

/// Waits until `size` processes have entered the barrier at `barrier`.
pub(super) async fn enter(client: &Client, barrier: &str, size: usize, id: &str) -> Result<Participation> {
    let name = client.unique_name().simple().to_string();
    let own = path::join(barrier, &name);
    let mut claim = Claim::fixed(client, &own, id.into());
    claim.make(&[]).await?;
    let ready = path::join(barrier, READY);
    let (stat, created) = retried(client, || client.exists_and_watch(&ready)).await?;
    if stat.is_none() {
        if processes(client, barrier).await?.len() >= size {
            match retried(client, || client.create(&ready, b"", CreateMode::Persistent)).await {
                Ok(_) | Err(Error::NodeExists(_)) => {}
                Err(error) => return Err(error),
            }
        } else {
            created.await?;
        }
    }
    Ok(Participation { claim, barrier: barrier.to_owned(), name })
}

/// The names of the processes inside, sorted.
async fn processes(client: &Client, barrier: &str) -> Result<Vec<String>> {
    let (mut children, _) = retried(client, || client.get_children(barrier)).await?;
    children.retain(|name| name != READY);
    children.sort_unstable();
    Ok(children)
}

impl Participation {
    pub(super) const fn client(&self) -> &Client {
        self.claim.client()
    }

    /// The processes inside now, ourselves among them.
    pub(super) async fn round(&self) -> Result<Vec<String>> {
        processes(self.client(), &self.barrier).await
    }

    /// Deletes our own znode.
    pub(super) async fn step_out(self) -> Result<()> {
        self.claim.release().await
    }
}

/// Which processes of a round are still inside, sorted.
pub(super) async fn still_inside(client: &Client, barrier: &str, round: &[String]) -> Result<Vec<String>> {
    let mut inside = processes(client, barrier).await?;
    inside.retain(|name| round.binary_search(name).is_ok());
    Ok(inside)
}

/// The last step of everybody's leaving. The next round cannot be ready before all have left this one, so
/// that this deletes no other's.
pub(super) async fn clear(client: &Client, barrier: &str) -> Result<()> {
    if planted!(client, KeepBarrierReady) {
        return Ok(());
    }
    let ready = path::join(barrier, READY);
    match retried(client, || client.delete(&ready, None)).await {
        Ok(()) | Err(Error::NoNode(_)) => Ok(()),
        Err(error) => Err(error),
    }
}
