use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use super::holding::Holding;
use super::retried;
use crate::mutation::planted;
use crate::{Client, CreateMode, Error, Result, Watch, path};

/// The znode that tells that the configuration is whole.
const READY: &str = "ready";

/// A configuration of many znodes that changes as a whole, although each is written on its own: the
/// leader takes a `ready` znode away, writes them pipelined, and puts `ready` back; readers read only
/// while it is there (ZooKeeper, USENIX ATC 2010, section 2.3).
///
/// That a reader never sees a half-changed configuration as whole rests on a promise of ZooKeeper: it is
/// told of the deletion of `ready`, which it watches, before it can see what is written after that.
///
/// ```no_run
/// # async fn example(client: ringkeeper_client::Client) -> ringkeeper_client::Result<()> {
/// use ringkeeper_client::recipes::ReadyConfiguration;
///
/// let configuration = ReadyConfiguration::new(&client, "/config");
/// configuration.change(&[("shards", "64"), ("replicas", "3")], None).await?;
/// let (entries, changing) = configuration.read().await?;
/// changing.await?; // until the next change begins
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ReadyConfiguration {
    client: Client,
    path: String,
}

impl ReadyConfiguration {
    /// The configuration whose entries are children of `path`.
    #[must_use]
    pub fn new(client: &Client, path: &str) -> Self {
        Self { client: client.clone(), path: path.to_owned() }
    }

    fn child(&self, name: &str) -> String {
        path::join(&self.path, name)
    }

    /// Changes entries, creating those that are new. One change at a time: that is what a leader is for,
    /// and with its [`Holding`] as `fence` each write is made on condition that it still leads.
    ///
    /// A change that fails leaves the configuration without `ready`, so that nobody takes it for whole:
    /// make it again. Lost connections are no failure; the steps of a change may be repeated.
    ///
    /// # Errors
    /// The session ends, or the server refuses a write. [`Error::Transaction`] with [`Error::NoNode`] at
    /// index 0 if the fence's holder was replaced.
    pub async fn change(&self, entries: &[(&str, impl AsRef<[u8]>)], fence: Option<&Holding>) -> Result<()> {
        self.client.ensure_path(&self.path).await?;
        retried(&self.client, || self.try_change(entries, fence)).await
    }

    async fn try_change(&self, entries: &[(&str, impl AsRef<[u8]>)], fence: Option<&Holding>) -> Result<()> {
        let ready = self.child(READY);
        // All at once; the server executes them in this order.
        let begun = self.fenced(fence).delete(&ready, None).commit();
        let written: Vec<_> = entries
            .iter()
            .map(|(name, data)| self.fenced(fence).set_data(&self.child(name), data, None).commit())
            .collect();
        accept(begun.await, is_missing, fence)?;
        for ((name, data), written) in entries.iter().zip(written) {
            if !accept(written.await, is_missing, fence)? {
                let create = self.fenced(fence).create(&self.child(name), data, CreateMode::Persistent);
                accept(create.commit().await, exists, fence)?;
            }
        }
        // Only now: a write that was refused must not be followed by this.
        let ended = self.fenced(fence).create(&ready, b"", CreateMode::Persistent).commit();
        accept(ended.await, exists, fence).map(drop)
    }

    fn fenced(&self, fence: Option<&Holding>) -> crate::Transaction {
        let transaction = self.client.transaction();
        match fence {
            Some(holding) => transaction.check(holding.path(), None),
            None => transaction,
        }
    }

    /// Waits until the configuration is whole, and reads it; with a watch that fires when the next change
    /// begins.
    ///
    /// # Errors
    /// The session ends, or the server refuses the reads.
    pub async fn read(&self) -> Result<(BTreeMap<String, Vec<u8>>, Watch)> {
        loop {
            let ready = self.child(READY);
            let (stat, mut changing) = retried(&self.client, || self.client.exists_and_watch(&ready)).await?;
            if stat.is_none() {
                changing.await?;
                continue;
            }
            let entries = match self.read_entries().await {
                Err(error) if error.is_connection() => continue,
                entries => entries?,
            };
            // Told before the reads if it came before them.
            let has_changed = poll_fn(|cx| Poll::Ready(Pin::new(&mut changing).poll(cx).is_ready()));
            let has_changed = has_changed.await && !planted!(self.client, ReadHalfChanges);
            if let (Some(entries), false) = (entries, has_changed) {
                return Ok((entries, changing));
            }
        }
    }

    /// `None` if an entry disappears meanwhile.
    async fn read_entries(&self) -> Result<Option<BTreeMap<String, Vec<u8>>>> {
        let (mut names, _) = self.client.get_children(&self.path).await?;
        names.retain(|name| name != READY);
        let replies: Vec<_> = names.iter().map(|name| self.client.get_data(&self.child(name))).collect();
        let mut entries = BTreeMap::new();
        for (name, reply) in names.into_iter().zip(replies) {
            match reply.await {
                Ok((data, _)) => entries.insert(name, data),
                Err(Error::NoNode(_)) => return Ok(None),
                Err(error) => return Err(error),
            };
        }
        Ok(Some(entries))
    }
}

const fn is_missing(error: &Error) -> bool {
    matches!(error, Error::NoNode(_))
}

const fn exists(error: &Error) -> bool {
    matches!(error, Error::NodeExists(_))
}

/// `false` if the operation after the fence failed in the way that is `expected`.
fn accept<T>(outcome: Result<T>, expected: fn(&Error) -> bool, fence: Option<&Holding>) -> Result<bool> {
    let at = usize::from(fence.is_some());
    match outcome {
        Ok(_) => Ok(true),
        Err(Error::Transaction { index, error }) if index == at && expected(&error) => Ok(false),
        Err(error) => Err(error),
    }
}
