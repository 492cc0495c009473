use super::line::wait_until_gone;
use super::round::{self, Participation};
use crate::{Client, Result, path};

/// A double barrier: processes begin a computation together, and end it together (ZooKeeper, USENIX ATC
/// 2010, section 2.4). Who leaves deletes its znode at once, and then waits for that of one other after
/// another to disappear. See [`super::OrderedBarrier`] for the variant with less to watch.
///
/// ```no_run
/// # async fn example(client: ringkeeper_client::Client) -> ringkeeper_client::Result<()> {
/// use ringkeeper_client::recipes::DoubleBarrier;
///
/// let barrier = DoubleBarrier::new(&client, "/jobs/17/map", 8);
/// let inside = barrier.enter("host-1").await?;
/// // compute
/// barrier.leave(inside).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct DoubleBarrier {
    client: Client,
    path: String,
    size: usize,
}

impl DoubleBarrier {
    /// The barrier at `path`, for `size` processes.
    #[must_use]
    pub fn new(client: &Client, path: &str, size: usize) -> Self {
        Self { client: client.clone(), path: path.to_owned(), size }
    }

    /// Enters, and waits until enough processes have. `id` tells others who this is.
    ///
    /// # Errors
    /// The session ends, or the server refuses to create the znode.
    pub async fn enter(&self, id: &str) -> Result<Participation> {
        round::enter(&self.client, &self.path, self.size, id).await
    }

    /// Leaves, and waits until all processes of the round have. One whose session expires has left.
    ///
    /// # Errors
    /// The session ends, or the server refuses to delete the znode.
    pub async fn leave(&self, inside: Participation) -> Result<()> {
        // Before our own znode goes: after that, a quick one may be in the next round already.
        let mut others = inside.round().await?;
        let own = others.binary_search(&inside.name).unwrap_or_else(|at| at);
        // Each begins with the one after itself, so that no deletion wakes them all.
        others.rotate_left(own);
        others.retain(|name| *name != inside.name);
        inside.step_out().await?;
        for name in &others {
            wait_until_gone(&self.client, &path::join(&self.path, name)).await?;
        }
        round::clear(&self.client, &self.path).await
    }
}
