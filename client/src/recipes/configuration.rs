use super::retried;
use crate::{Client, CreateMode, Error, Result, Stat, Watch};

/// A configuration in one znode, which its readers watch (ZooKeeper, USENIX ATC 2010, section 2.4).
///
/// ```no_run
/// # async fn example(client: ringkeeper_client::Client) -> ringkeeper_client::Result<()> {
/// use ringkeeper_client::recipes::Configuration;
///
/// let mut updates = Configuration::new(&client, "/config").updates();
/// while let Some((text, stat)) = updates.next().await? {
///     println!("version {}: {} bytes", stat.version, text.len());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Configuration {
    client: Client,
    path: String,
}

impl Configuration {
    /// The configuration at `path`.
    #[must_use]
    pub fn new(client: &Client, path: &str) -> Self {
        Self { client: client.clone(), path: path.to_owned() }
    }

    /// The configuration as it is; `None` if there is none.
    ///
    /// # Errors
    /// The session ends, or the server refuses the read.
    pub async fn read(&self) -> Result<Option<(Vec<u8>, Stat)>> {
        match retried(&self.client, || self.client.get_data(&self.path)).await {
            Err(Error::NoNode(_)) => Ok(None),
            outcome => outcome.map(Some),
        }
    }

    /// Writes the configuration, if it has the expected version; `None` expects any, or none at all.
    ///
    /// # Errors
    /// [`Error::BadVersion`] if somebody else has changed it; [`Error::ConnectionLoss`] if nobody knows
    /// whether it is written: read it, and decide.
    pub async fn write(&self, text: impl AsRef<[u8]>, expected: impl Into<Option<i32>>) -> Result<Stat> {
        let (text, expected) = (text.as_ref(), expected.into());
        loop {
            match self.client.set_data(&self.path, text, expected).await {
                Err(Error::NoNode(_)) if expected.is_none() => {
                    self.client.ensure_path(crate::path::parent(&self.path)).await?;
                    match self.client.create(&self.path, text, CreateMode::Persistent).await {
                        Err(Error::NodeExists(_)) => {}
                        outcome => return outcome.map(|created| created.stat),
                    }
                }
                Err(Error::NotSent(_)) => self.client.connected().await?,
                outcome => return outcome,
            }
        }
    }

    /// The configuration as it is, and then each change of it. Changes that follow closely on one another
    /// may come as one.
    #[must_use]
    pub fn updates(&self) -> Updates {
        Updates { configuration: self.clone(), changed: None, seen: None }
    }
}

/// The changes of a [`Configuration`].
pub struct Updates {
    configuration: Configuration,
    changed: Option<Watch>,
    /// What was told last: the zxid of the write, or that there is none.
    seen: Option<Option<ringkeeper_wire::Zxid>>,
}

impl Updates {
    /// Waits for the next: what is there now, the first time; `None` when the znode is deleted. May be
    /// dropped and called again.
    ///
    /// # Errors
    /// The session ends, or the server refuses the read.
    pub async fn next(&mut self) -> Result<Option<(Vec<u8>, Stat)>> {
        loop {
            if let Some(changed) = &mut self.changed {
                changed.await?;
                self.changed = None;
            }
            let current = self.read().await?;
            let zxid = current.as_ref().map(|(_, stat)| stat.mzxid);
            if self.seen.replace(zxid) != Some(zxid) {
                return Ok(current);
            }
        }
    }

    async fn read(&mut self) -> Result<Option<(Vec<u8>, Stat)>> {
        let Configuration { client, path } = &self.configuration;
        loop {
            match retried(client, || client.get_data_and_watch(path)).await {
                Ok((current, changed)) => {
                    self.changed = Some(changed);
                    return Ok(Some(current));
                }
                Err(Error::NoNode(_)) => {}
                Err(error) => return Err(error),
            }
            let (stat, created) = retried(client, || client.exists_and_watch(path)).await?;
            if stat.is_none() {
                self.changed = Some(created);
                return Ok(None);
            }
        }
    }
}
