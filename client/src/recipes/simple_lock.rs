use super::claim::Claim;
use super::holding::Holding;
use super::line::wait_until_gone;
use crate::{Call, Client, Error, Result};

/// The simple lock: one ephemeral znode, which everybody who waits watches (ZooKeeper, USENIX ATC 2010,
/// section 2.4). All of them are woken when it is released, and whoever is quickest gets it: right for a
/// few contenders, and in no fair order. See [`super::Lock`] for the other kind.
///
/// ```no_run
/// # async fn example(client: ringkeeper_client::Client) -> ringkeeper_client::Result<()> {
/// use ringkeeper_client::recipes::SimpleLock;
///
/// let holding = SimpleLock::new(&client, "/locks/nightly").acquire().await?;
/// holding.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct SimpleLock {
    client: Client,
    path: String,
}

impl SimpleLock {
    /// The lock whose znode is `path`.
    #[must_use]
    pub fn new(client: &Client, path: &str) -> Self {
        Self { client: client.clone(), path: path.to_owned() }
    }

    /// Waits for the lock.
    ///
    /// # Errors
    /// The session ends, or the server refuses to create the znode.
    pub async fn acquire(&self) -> Result<Holding> {
        loop {
            if let Some(holding) = self.try_acquire().await? {
                return Ok(holding);
            }
            wait_until_gone(&self.client, &self.path).await?;
        }
    }

    /// Takes the lock if it is free.
    ///
    /// # Errors
    /// As [`SimpleLock::acquire`].
    pub async fn try_acquire(&self) -> Result<Option<Holding>> {
        let token = self.client.unique_name().simple().to_string().into_bytes();
        let mut claim = Claim::fixed(&self.client, &self.path, token);
        if !claim.make(&[]).await? {
            return Ok(None);
        }
        Holding::new(claim).map(Some).ok_or_else(|| Error::NoNode(Call::new("create", &self.path)))
    }
}
