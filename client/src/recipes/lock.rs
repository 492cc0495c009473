//! Locks. Whose turn it is is decided in `line`, whether it is still held in `holding`.

use super::holding::Holding;
use super::line::{Class, Line, NodeNames};
use crate::{Client, Result};

/// A lock without herd effect: contenders stand in a line, and each is woken by the one before it alone
/// (ZooKeeper, USENIX ATC 2010, section 2.4).
///
/// kazoo's `Lock` on the same path is the same lock; with [`NodeNames::Curator`], so is Curator's
/// `InterProcessMutex`. Not reentrant.
///
/// ```no_run
/// # async fn example(client: ringkeeper_client::Client) -> ringkeeper_client::Result<()> {
/// use ringkeeper_client::recipes::Lock;
///
/// let lock = Lock::new(&client, "/locks/printer").with_id("host-1");
/// let holding = lock.acquire().await?;
/// println!("printing, fenced by {}", holding.fencing_token());
/// holding.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Lock(Line);

impl Lock {
    /// The lock at `path`, whose children are the contenders. Created when it is first acquired.
    #[must_use]
    pub fn new(client: &Client, path: &str) -> Self {
        Self(Line::new(client, path))
    }

    /// Names this contender, for [`Lock::contenders`].
    #[must_use]
    pub fn with_id(mut self, id: &str) -> Self {
        self.0.set_data(id.into());
        self
    }

    /// Names the znodes otherwise.
    #[must_use]
    pub const fn with_names(mut self, names: NodeNames) -> Self {
        self.0.set_names(names);
        self
    }

    /// Waits for the lock. Dropped before it is ready, it leaves the line.
    ///
    /// # Errors
    /// The session ends, or the server refuses to create the znode.
    pub async fn acquire(&self) -> Result<Holding> {
        self.0.enter(Class::Exclusive).await
    }

    /// Takes the lock if it is free.
    ///
    /// # Errors
    /// As [`Lock::acquire`].
    pub async fn try_acquire(&self) -> Result<Option<Holding>> {
        self.0.try_enter(Class::Exclusive).await
    }

    /// The names of the contenders, the holder first.
    ///
    /// # Errors
    /// The session ends, or the server refuses the reads.
    pub async fn contenders(&self) -> Result<Vec<Vec<u8>>> {
        Ok(self.0.contenders(Class::Exclusive).await?.into_iter().map(|(_, id)| id).collect())
    }
}
