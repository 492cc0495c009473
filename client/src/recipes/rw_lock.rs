use super::holding::Holding;
use super::line::{Class, Line, NodeNames};
use crate::{Client, Result};

/// A read/write lock: several readers or one writer, in the order of their coming, without herd effect
/// among writers (ZooKeeper, USENIX ATC 2010, section 2.4).
///
/// kazoo's `ReadLock` and `WriteLock` on the same path are the same lock; with [`NodeNames::Curator`], so
/// is Curator's `InterProcessReadWriteLock`.
///
/// ```no_run
/// # async fn example(client: ringkeeper_client::Client) -> ringkeeper_client::Result<()> {
/// use ringkeeper_client::recipes::RwLock;
///
/// let lock = RwLock::new(&client, "/locks/table");
/// let reading = lock.read().await?;
/// reading.release().await?;
/// let writing = lock.write().await?;
/// writing.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RwLock(Line);

impl RwLock {
    /// The lock at `path`, whose children are the contenders. Created when it is first acquired.
    #[must_use]
    pub fn new(client: &Client, path: &str) -> Self {
        Self(Line::new(client, path))
    }

    /// Names this contender, for [`RwLock::contenders`].
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

    pub(super) const fn line(&self) -> &Line {
        &self.0
    }

    /// Waits until no writer is before us.
    ///
    /// # Errors
    /// The session ends, or the server refuses to create the znode.
    pub async fn read(&self) -> Result<Holding> {
        self.0.enter(Class::Reader).await
    }

    /// Waits until nobody is before us.
    ///
    /// # Errors
    /// As [`RwLock::read`].
    pub async fn write(&self) -> Result<Holding> {
        self.0.enter(Class::Writer).await
    }

    /// Takes the lock for reading, if no writer is before us.
    ///
    /// # Errors
    /// As [`RwLock::read`].
    pub async fn try_read(&self) -> Result<Option<Holding>> {
        self.0.try_enter(Class::Reader).await
    }

    /// Takes the lock for writing, if nobody is before us.
    ///
    /// # Errors
    /// As [`RwLock::read`].
    pub async fn try_write(&self) -> Result<Option<Holding>> {
        self.0.try_enter(Class::Writer).await
    }

    /// The names of the contenders, readers and writers, in the order of their coming.
    ///
    /// # Errors
    /// The session ends, or the server refuses the reads.
    pub async fn contenders(&self) -> Result<Vec<Vec<u8>>> {
        Ok(self.0.contenders(Class::Writer).await?.into_iter().map(|(_, id)| id).collect())
    }
}
