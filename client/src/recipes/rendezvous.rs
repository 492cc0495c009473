use super::retried;
use crate::{Call, Client, CreateMode, Error, Result};

/// A meeting point: who knows only its path waits there until somebody leaves a word, such as the address
/// of a master that is not started yet (ZooKeeper, USENIX ATC 2010, section 2.4).
///
/// ```no_run
/// # async fn example(client: ringkeeper_client::Client) -> ringkeeper_client::Result<()> {
/// use ringkeeper_client::{CreateMode, recipes::Rendezvous};
///
/// let meeting = Rendezvous::new(&client, "/jobs/17/master");
/// meeting.announce("host-1:9000", CreateMode::Ephemeral).await?;
/// let address = Rendezvous::new(&client, "/jobs/17/master").meet().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Rendezvous {
    client: Client,
    path: String,
}

impl Rendezvous {
    /// The meeting point at `path`.
    #[must_use]
    pub fn new(client: &Client, path: &str) -> Self {
        Self { client: client.clone(), path: path.to_owned() }
    }

    /// Leaves a word, in place of an earlier one. With [`CreateMode::Ephemeral`] it goes with this
    /// session, which tells those who met here that it is over.
    ///
    /// # Errors
    /// The session ends, or the server refuses the write. [`Error::NodeExists`] if the word is to be
    /// ephemeral and another session's is there.
    pub async fn announce(&self, word: impl AsRef<[u8]>, mode: CreateMode) -> Result<()> {
        let (client, word) = (&self.client, word.as_ref());
        client.ensure_path(crate::path::parent(&self.path)).await?;
        // Announcing the same word twice is the same as once.
        loop {
            match retried(client, || client.create(&self.path, word, mode)).await {
                Err(Error::NodeExists(_)) => {}
                outcome => return outcome.map(drop),
            }
            let Some(stat) = retried(client, || client.exists(&self.path)).await? else { continue };
            if mode == CreateMode::Ephemeral && stat.ephemeral_owner != Some(client.session_id()) {
                return Err(Error::NodeExists(Call::new("create", &self.path)));
            }
            // Only in place of the word that was looked at: the next one may be another session's.
            match retried(client, || client.set_data(&self.path, word, stat.version)).await {
                Err(Error::NoNode(_) | Error::BadVersion(_)) => {}
                outcome => return outcome.map(drop),
            }
        }
    }

    /// Waits for a word.
    ///
    /// # Errors
    /// The session ends, or the server refuses the read.
    pub async fn meet(&self) -> Result<Vec<u8>> {
        loop {
            let (stat, created) = retried(&self.client, || self.client.exists_and_watch(&self.path)).await?;
            if stat.is_none() {
                created.await?;
            }
            match retried(&self.client, || self.client.get_data(&self.path)).await {
                Err(Error::NoNode(_)) => {}
                outcome => return outcome.map(|(word, _)| word),
            }
        }
    }

    /// Ready when the word is taken back, for instance with the session of who left it.
    ///
    /// # Errors
    /// As [`Rendezvous::meet`].
    pub async fn parted(&self) -> Result<()> {
        super::line::wait_until_gone(&self.client, &self.path).await
    }
}
