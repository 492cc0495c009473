use std::collections::VecDeque;

use super::mark::Mark;
use super::retried;
use crate::{Call, Client, CreateMode, Error, Result, path};

/// Priority of entries for which none is named, as in kazoo. Lower ones are taken first.
const PRIORITY: u16 = 100;

/// A producer/consumer queue: entries of equal priority are taken in the order in which they were put,
/// each by one consumer. Nothing is put or taken twice, or lost, by a connection that breaks; what a
/// consumer has taken when its program fails is gone.
///
/// kazoo's `Queue` on the same path is the same queue. Each user needs a `Queue` of its own.
///
/// ```no_run
/// # async fn example(client: ringkeeper_client::Client) -> ringkeeper_client::Result<()> {
/// use ringkeeper_client::recipes::Queue;
///
/// let mut queue = Queue::new(&client, "/tasks");
/// queue.put("resize image 17").await?;
/// let task = queue.take().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Queue {
    path: String,
    mark: Mark,
    /// Entries seen when the queue was last read, the next one first; some may be gone.
    seen: VecDeque<String>,
    /// The entry of a take that was dropped, perhaps, between the transaction and its reply.
    unsettled: Option<Vec<u8>>,
    /// Entries taken and not yet given to anybody, for the same reason.
    undelivered: VecDeque<Vec<u8>>,
}

impl Queue {
    /// The queue whose entries are children of `path`, which is not the root.
    #[must_use]
    pub fn new(client: &Client, path: &str) -> Self {
        Self {
            path: path.to_owned(),
            mark: Mark::new(client, path),
            seen: VecDeque::new(),
            unsettled: None,
            undelivered: VecDeque::new(),
        }
    }

    /// Puts an entry at the end.
    ///
    /// # Errors
    /// The session ends, or the server refuses the write. [`Error::ConnectionLoss`] if the session ended
    /// before it was known whether the entry is in.
    pub async fn put(&mut self, entry: impl AsRef<[u8]>) -> Result<()> {
        self.put_with_priority(entry, PRIORITY).await
    }

    /// Puts an entry behind those of the same and of lower numbers, from 0 to 999.
    ///
    /// # Errors
    /// As [`Queue::put`], and [`Error::InvalidSetting`].
    pub async fn put_with_priority(&mut self, entry: impl AsRef<[u8]>, priority: u16) -> Result<()> {
        if priority > 999 {
            return Err(Error::InvalidSetting("a priority is at most 999"));
        }
        self.settle().await?;
        let name = path::join(&self.path, &format!("entry-{priority:03}-"));
        loop {
            let put = self.mark.commit(|t| t.create(&name, entry.as_ref(), CreateMode::PersistentSequential));
            match put.await {
                Err(Error::Transaction { index: 0, error }) if matches!(*error, Error::NoNode(_)) => {
                    self.mark.client().ensure_path(&self.path).await?;
                }
                outcome => return outcome.map(drop),
            }
        }
    }

    /// Takes the first entry, waiting for one if need be. Dropped before it is ready, it loses nothing:
    /// an entry that it may have taken is the next take's.
    ///
    /// # Errors
    /// The session ends, or the server refuses. [`Error::ConnectionLoss`] if the session ended before it
    /// was known whether this consumer has taken an entry, which is lost if it has.
    pub async fn take(&mut self) -> Result<Vec<u8>> {
        loop {
            if let Some(entry) = self.take_seen().await? {
                return Ok(entry);
            }
            let client = self.mark.client().clone();
            match retried(&client, || client.get_children_and_watch(&self.path)).await {
                Ok(((names, _), changed)) if names.is_empty() => drop(changed.await?),
                Ok(((names, _), _)) => self.see(names),
                Err(Error::NoNode(_)) => client.ensure_path(&self.path).await?,
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes the first entry, if there is one.
    ///
    /// # Errors
    /// As [`Queue::take`].
    pub async fn try_take(&mut self) -> Result<Option<Vec<u8>>> {
        loop {
            if let Some(entry) = self.take_seen().await? {
                return Ok(Some(entry));
            }
            let client = self.mark.client().clone();
            match retried(&client, || client.get_children(&self.path)).await {
                Ok((names, _)) if names.is_empty() => return Ok(None),
                Ok((names, _)) => self.see(names),
                Err(Error::NoNode(_)) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    /// Number of entries.
    ///
    /// # Errors
    /// The session ends, or the server refuses the read.
    pub async fn len(&self) -> Result<u32> {
        let client = self.mark.client();
        let stat = retried(client, || client.exists(&self.path)).await?;
        Ok(stat.map_or(0, |stat| stat.num_children))
    }

    fn see(&mut self, mut names: Vec<String>) {
        names.sort_unstable();
        self.seen = names.into();
    }

    /// Finds out what became of a take that was dropped. If the session has ended since, nobody knows.
    async fn settle(&mut self) -> Result<()> {
        if self.unsettled.is_some() {
            let was_taken = self
                .mark
                .settle()
                .await
                .map_err(|_| Error::ConnectionLoss(Call::new("transaction", &self.path)))?;
            self.undelivered.extend(self.unsettled.take().filter(|_| was_taken));
        }
        Ok(())
    }

    /// Takes the first entry seen that is still there.
    async fn take_seen(&mut self) -> Result<Option<Vec<u8>>> {
        self.settle().await?;
        if let Some(entry) = self.undelivered.pop_front() {
            return Ok(Some(entry));
        }
        while let Some(name) = self.seen.front() {
            let entry = path::join(&self.path, name);
            let client = self.mark.client().clone();
            let taken = match retried(&client, || client.get_data(&entry)).await {
                Ok((data, stat)) => {
                    self.unsettled = Some(data);
                    let deleted = self.mark.commit(|t| t.delete(&entry, stat.version)).await;
                    let data = self.unsettled.take();
                    match deleted {
                        Ok(_) => data,
                        // Taken by another, or changed under our hands: then it is looked at again.
                        Err(Error::Transaction { index: 0, error }) if matches!(*error, Error::NoNode(_)) => {
                            None
                        }
                        Err(Error::Transaction { index: 0, error })
                            if matches!(*error, Error::BadVersion(_)) =>
                        {
                            continue;
                        }
                        Err(error) => return Err(error),
                    }
                }
                Err(Error::NoNode(_)) => None,
                Err(error) => return Err(error),
            };
            self.seen.pop_front();
            if taken.is_some() {
                return Ok(taken);
            }
        }
        Ok(None)
    }
}
