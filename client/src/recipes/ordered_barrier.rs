use super::line::wait_until_gone;
use super::round::{self, Participation};
use crate::{Client, Result, path};

/// A double barrier in whose leave phase only the lowest and the highest znode are watched: the lowest
/// process stays until the highest has gone, again and again, and all others wait for the lowest. Each
/// deletion but the last wakes one process at most.
///
/// kazoo's `DoubleBarrier` on the same path is the same barrier. Use as [`super::DoubleBarrier`].
#[derive(Clone, Debug)]
pub struct OrderedBarrier {
    client: Client,
    path: String,
    size: usize,
}

impl OrderedBarrier {
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
        let round = inside.round().await?;
        let own = inside.name.clone();
        let mut inside = Some(inside);
        loop {
            let left = round::still_inside(&self.client, &self.path, &round).await?;
            let (Some(lowest), Some(highest)) = (left.first(), left.last()) else { break };
            if *lowest == own && lowest != highest {
                self.wait_for(highest).await?;
                continue;
            }
            if let Some(inside) = inside.take() {
                inside.step_out().await?;
            }
            if *lowest == own {
                break;
            }
            self.wait_for(lowest).await?;
        }
        // Not taken if our znode was deleted by somebody else.
        drop(inside);
        round::clear(&self.client, &self.path).await
    }

    async fn wait_for(&self, name: &str) -> Result<()> {
        wait_until_gone(&self.client, &path::join(&self.path, name)).await
    }
}
