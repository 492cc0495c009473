//! Writes that happen once although connections break.
//!
//! A write whose reply is lost may or may not have been executed, and for some writes the tree does not
//! show it: the queue's entry is gone, but who took it? So such a write goes into a transaction with a
//! write to a znode that nobody else writes to, the *mark*. Its version is the number of transactions
//! that were executed.

use super::{claim::Claim, retried};
use crate::mutation::planted;
use crate::{Call, Client, Error, OpResult, Result, Transaction, path};

/// What stands behind a recipe's path in the path of its marks.
const DIR_SUFFIX: &str = "__marks__";

/// A mark of one user of a recipe.
#[derive(Debug)]
pub(super) struct Mark {
    claim: Claim,
    path: String,
    version: i32,
    is_made: bool,
}

impl Mark {
    /// A mark beside the znode at `recipe`. Made when it is first used.
    pub(super) fn new(client: &Client, recipe: &str) -> Self {
        let name = client.unique_name().simple().to_string();
        let path = path::join(&format!("{recipe}{DIR_SUFFIX}"), &name);
        Self { claim: Claim::fixed(client, &path, Vec::new()), path, version: 0, is_made: false }
    }

    pub(super) const fn client(&self) -> &Client {
        self.claim.client()
    }

    /// Executes the operations that `add` adds, once: their results, or `None` if they were executed and
    /// the results are lost.
    ///
    /// # Errors
    /// An operation is refused ([`Error::Transaction`]); then none was executed. The session ends; then
    /// [`Error::ConnectionLoss`] tells that they may have been.
    pub(super) async fn commit(
        &mut self,
        add: impl Fn(Transaction) -> Transaction,
    ) -> Result<Option<Vec<OpResult>>> {
        if !self.is_made {
            self.is_made = self.claim.make(&[]).await?;
        }
        let client = self.client().clone();
        loop {
            let transaction = add(client.transaction()).set_data(&self.path, b"", self.version);
            let ops = transaction.len();
            match transaction.commit().await {
                Ok(results) => {
                    self.version += 1;
                    return Ok(Some(results));
                }
                Err(Error::NotSent(_)) => client.connected().await?,
                Err(Error::ConnectionLoss(_)) if planted!(client, RepeatUncertainWrites) => {
                    client.connected().await?;
                }
                Err(Error::ConnectionLoss(_)) if planted!(client, TrustUncertainWrites) => return Ok(None),
                Err(Error::ConnectionLoss(call)) => {
                    // If that cannot be found out any more, neither can what became of the operations.
                    let version =
                        self.read_version(&client).await.map_err(|_| Error::ConnectionLoss(call))?;
                    if version != self.version {
                        self.version = version;
                        return Ok(None);
                    }
                }
                // A commit that was dropped half-way has been executed after all.
                Err(Error::Transaction { index, error })
                    if index + 1 == ops && matches!(*error, Error::BadVersion(_)) =>
                {
                    self.settle().await?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// After a [`Mark::commit`] that was dropped before it was ready: whether it was executed.
    pub(super) async fn settle(&mut self) -> Result<bool> {
        if !self.is_made {
            return Ok(false);
        }
        let version = self.read_version(&self.client().clone()).await?;
        Ok(std::mem::replace(&mut self.version, version) != version)
    }

    async fn read_version(&self, client: &Client) -> Result<i32> {
        let read = retried(client, || async {
            let (synced, stat) = (client.sync(&self.path), client.exists(&self.path));
            synced.await?;
            stat.await
        });
        Ok(read.await?.ok_or_else(|| Error::NoNode(Call::new("exists", &self.path)))?.version)
    }
}
