use std::ops::Deref;

use super::holding::Holding;
use super::line::Class;
use super::retried;
use super::rw_lock::RwLock;
use crate::{Client, Error, Result};

/// What is written into a holder's znode to ask for the lock.
const REQUEST: &[u8] = b"unlock";
/// The same in Curator's words.
const REQUEST_OF_CURATOR: &[u8] = b"__REVOKE__";

/// A read/write lock whose holders can be asked to give it up (ZooKeeper's recipes, "Revocable Shared
/// Locks"): a request is the word `unlock` in the holder's znode, which the holder watches.
///
/// ```no_run
/// # async fn example(client: ringkeeper_client::Client) -> ringkeeper_client::Result<()> {
/// use ringkeeper_client::recipes::RevocableLock;
///
/// let lock = RevocableLock::new(&client, "/locks/cache");
/// let holding = lock.read().await?;
/// holding.revoked().await?; // until somebody calls `lock.write_revoking()`
/// holding.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RevocableLock(RwLock);

/// A [`Holding`] whose holder can be asked to give it up.
#[derive(Debug)]
#[must_use = "dropped, it is given up"]
pub struct Revocable(Holding);

impl RevocableLock {
    /// The lock at `path`; see [`RwLock`] for its znodes.
    #[must_use]
    pub fn new(client: &Client, path: &str) -> Self {
        Self(RwLock::new(client, path))
    }

    /// Waits for the lock, for reading.
    ///
    /// # Errors
    /// As [`RwLock::read`].
    pub async fn read(&self) -> Result<Revocable> {
        self.0.read().await.map(Revocable)
    }

    /// Waits for the lock, for writing.
    ///
    /// # Errors
    /// As [`RwLock::read`].
    pub async fn write(&self) -> Result<Revocable> {
        self.0.write().await.map(Revocable)
    }

    /// Waits for the lock, for writing, and asks everybody before us to give it up.
    ///
    /// # Errors
    /// As [`RwLock::read`]; and the server refuses to write into a holder's znode.
    pub async fn write_revoking(&self) -> Result<Revocable> {
        self.0.line().enter_asking(Class::Writer, REQUEST).await.map(Revocable)
    }

    /// Asks everybody who holds the lock or waits for it to give it up.
    ///
    /// # Errors
    /// The session ends, or the server refuses to write into a holder's znode.
    pub async fn revoke(&self) -> Result<()> {
        let line = self.0.line();
        for (path, _) in line.contenders(Class::Writer).await? {
            line.ask(&path, REQUEST).await?;
        }
        Ok(())
    }
}

impl Revocable {
    /// Ready when somebody asks for the lock, or when it is lost already.
    ///
    /// # Errors
    /// The session ends, or the server refuses to read the holder's znode.
    pub async fn revoked(&self) -> Result<()> {
        loop {
            let client = self.client();
            match retried(client, || client.get_data_and_watch(self.path())).await {
                Ok(((data, _), _)) if data == REQUEST || data == REQUEST_OF_CURATOR => return Ok(()),
                Ok((_, changed)) => drop(changed.await?),
                Err(Error::NoNode(_)) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Gives the lock up.
    ///
    /// # Errors
    /// As [`Holding::release`].
    pub async fn release(self) -> Result<()> {
        self.0.release().await
    }
}

impl Deref for Revocable {
    type Target = Holding;

    fn deref(&self) -> &Holding {
        &self.0
    }
}
