//! What the loads ask of a member, and what must be true of every answer.

use anyhow::{Context, Result, ensure};
use prost::bytes::Bytes;

use super::client::{Client, Method};
use super::message::{
    DeleteRangeRequest, DeleteRangeResponse, Header, KeyValue, PutRequest, PutResponse, RangeRequest,
    RangeResponse,
};

/// An answer, and the revision of the store that it is of.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct At<T> {
    pub(super) revision: i64,
    pub(super) answer: T,
}

impl Client {
    /// Puts a key; the revision that it has from now on.
    pub(super) async fn put(&self, key: Bytes, value: Bytes) -> Result<i64> {
        let answer: PutResponse = self.call(Method::Put, &PutRequest { key, value }).await?;
        revision(answer.header.as_ref())
    }

    /// What the member has under a key.
    pub(super) async fn get(&self, key: &Bytes) -> Result<At<Option<KeyValue>>> {
        let At { revision, answer } = self.range(&RangeRequest::of_key(key.clone())).await?;
        let mut found = answer.into_iter();
        let one = found.next();
        ensure!(found.next().is_none(), "several values of one key");
        ensure!(
            one.as_ref().is_none_or(|one| one.key == key),
            "the value of another key than {key:?}: {:?}",
            one.map(|one| one.key)
        );
        Ok(At { revision, answer: one })
    }

    /// The keys that the member has below `root`, without their values.
    pub(super) async fn list(&self, root: &str) -> Result<At<Vec<Bytes>>> {
        let (key, range_end) = below(root);
        let asked = RangeRequest { key, range_end, serializable: true, keys_only: true };
        let At { revision, answer } = self.range(&asked).await?;
        Ok(At { revision, answer: answer.into_iter().map(|found| found.key).collect() })
    }

    async fn range(&self, asked: &RangeRequest) -> Result<At<Vec<KeyValue>>> {
        let answer: RangeResponse = self.call(Method::Range, asked).await?;
        ensure!(!answer.more, "a range that is not whole");
        Ok(At { revision: revision(answer.header.as_ref())?, answer: answer.kvs })
    }

    /// Deletes a key that is there; the revision from which on it is gone.
    pub(super) async fn delete(&self, key: Bytes) -> Result<i64> {
        let At { revision, answer } = self.delete_range((key, Bytes::new())).await?;
        ensure!(answer == 1, "{answer} keys deleted instead of one");
        Ok(revision)
    }

    /// Deletes everything below `root`.
    pub(super) async fn sweep(&self, root: &str) -> Result<()> {
        self.delete_range(below(root)).await.map(drop)
    }

    async fn delete_range(&self, (key, range_end): (Bytes, Bytes)) -> Result<At<i64>> {
        let request = DeleteRangeRequest { key, range_end };
        let answer: DeleteRangeResponse = self.call(Method::DeleteRange, &request).await?;
        Ok(At { revision: revision(answer.header.as_ref())?, answer: answer.deleted })
    }
}

/// All keys that begin with `root` and a slash: behind `/` comes `0`.
fn below(root: &str) -> (Bytes, Bytes) {
    (format!("{root}/").into(), format!("{root}0").into())
}

/// The revision of an answer.
pub(super) fn revision(header: Option<&Header>) -> Result<i64> {
    let revision = header.context("an answer without a header")?.revision;
    ensure!(revision > 0, "revision {revision}, which no store has");
    Ok(revision)
}
