//! multi: several writes, all of them or none; and several reads of one state.

use ringkeeper_wire::{
    CheckRequest, CreateRequest, CreateTtlRequest, DeleteRequest, MultiEntry, MultiOp, MultiReadOp, OpCode,
    PathWatchRequest, SetDataRequest, end_multi,
};

use crate::{Client, CreateOptions, Error, Reply, Result, Stat, decode, path};

/// Several writes, executed in order, all of them or none. From [`Client::transaction`].
///
/// ```no_run
/// # async fn example(client: ringkeeper_client::Client) -> ringkeeper_client::Result<()> {
/// use ringkeeper_client::CreateMode;
///
/// let results = client
///     .transaction()
///     .check("/lock", 0)
///     .set_data("/config", "new", 3)
///     .create("/log/entry-", "config changed", CreateMode::PersistentSequential)
///     .commit()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "nothing happens before `commit`"]
pub struct Transaction {
    client: Client,
    /// The operations, encoded.
    body: Vec<u8>,
    /// What was wrong with the first wrong operation.
    fault: Option<Error>,
    ops: usize,
}

/// What became of one operation of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpResult {
    /// A znode was created.
    Created {
        /// Its path; of a sequential one, completed.
        path: String,
        /// Its metadata.
        stat: Option<Stat>,
    },
    /// A znode was deleted.
    Deleted,
    /// A znode's data was set.
    DataSet(Stat),
    /// A znode had the expected version.
    Checked,
}

impl Transaction {
    pub(crate) const fn new(client: Client) -> Self {
        Self { client, body: Vec::new(), fault: None, ops: 0 }
    }

    /// Number of operations.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.ops
    }

    /// Whether there are no operations.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.ops == 0
    }

    fn add(mut self, valid: Result<()>, op: &MultiOp<'_>) -> Self {
        if let Err(error) = valid {
            let index = self.ops;
            self.fault.get_or_insert_with(|| Error::Transaction { index, error: Box::new(error) });
        }
        op.encode_entry(&mut self.body);
        self.ops += 1;
        self
    }

    /// Creates a znode.
    pub fn create<'a>(
        self,
        path: &str,
        data: impl AsRef<[u8]>,
        options: impl Into<CreateOptions<'a>>,
    ) -> Self {
        let options = options.into();
        let flags = options.mode.to_wire();
        let valid =
            if flags.is_sequential() { path::validate_sequential(path) } else { path::validate(path) };
        let (path, data) = (self.client.server_path(path), Some(data.as_ref()));
        let (acl, flags) = (Some(options.acl()), flags.to_wire());
        let op = match (options.mode.op(), options.mode.ttl_ms()) {
            (_, Some(ttl_ms)) => MultiOp::CreateTtl(CreateTtlRequest { path, data, acl, flags, ttl_ms }),
            (OpCode::CreateContainer, _) => {
                MultiOp::CreateContainer(CreateRequest { path, data, acl, flags })
            }
            _ => MultiOp::Create2(CreateRequest { path, data, acl, flags }),
        };
        self.add(valid, &op)
    }

    /// Deletes a znode, if it has the expected version; `None` expects any.
    pub fn delete(self, path: &str, expected: impl Into<Option<i32>>) -> Self {
        let (valid, version) = (path::validate(path), expected.into().unwrap_or(-1));
        let path = self.client.server_path(path);
        self.add(valid, &MultiOp::Delete(DeleteRequest { path, version }))
    }

    /// Sets a znode's data, if it has the expected version; `None` expects any.
    pub fn set_data(self, path: &str, data: impl AsRef<[u8]>, expected: impl Into<Option<i32>>) -> Self {
        let (valid, version) = (path::validate(path), expected.into().unwrap_or(-1));
        let path = self.client.server_path(path);
        self.add(valid, &MultiOp::SetData(SetDataRequest { path, data: Some(data.as_ref()), version }))
    }

    /// Lets the transaction fail unless the znode has the expected version; `None` expects it to exist.
    pub fn check(self, path: &str, expected: impl Into<Option<i32>>) -> Self {
        let (valid, version) = (path::validate(path), expected.into().unwrap_or(-1));
        let path = self.client.server_path(path);
        self.add(valid, &MultiOp::Check(CheckRequest { path, version }))
    }

    /// Executes the operations: their results in order.
    ///
    /// Fails with [`Error::Transaction`] if one of them fails; then none was executed.
    pub fn commit(mut self) -> Reply<Vec<OpResult>> {
        if let Some(fault) = self.fault {
            return Reply::failed(fault);
        }
        end_multi(&mut self.body);
        self.client.call_multi(OpCode::Multi, decode::transaction, self.body)
    }
}

/// Several reads, answered from one state of the server. From [`Client::reads`].
#[derive(Clone)]
#[must_use = "nothing happens before `commit`"]
pub struct Reads {
    client: Client,
    body: Vec<u8>,
    fault: Option<Error>,
}

/// What one read of [`Reads`] gave.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadResult {
    /// A znode's data and metadata.
    Data(Vec<u8>, Stat),
    /// The names of a znode's children.
    Children(Vec<String>),
}

impl Reads {
    pub(crate) const fn new(client: Client) -> Self {
        Self { client, body: Vec::new(), fault: None }
    }

    fn add(mut self, valid: Result<()>, op: &MultiReadOp<'_>) -> Self {
        if let Err(error) = valid {
            self.fault.get_or_insert(error);
        }
        op.encode_entry(&mut self.body);
        self
    }

    /// Reads a znode's data.
    pub fn get_data(self, path: &str) -> Self {
        let request = PathWatchRequest { path: self.client.server_path(path), watch: false };
        self.add(path::validate(path), &MultiReadOp::GetData(request))
    }

    /// Reads the names of a znode's children.
    pub fn get_children(self, path: &str) -> Self {
        let request = PathWatchRequest { path: self.client.server_path(path), watch: false };
        self.add(path::validate(path), &MultiReadOp::GetChildren(request))
    }

    /// Executes the reads: their results in order, each on its own.
    pub fn commit(mut self) -> Reply<Vec<Result<ReadResult>>> {
        if let Some(fault) = self.fault {
            return Reply::failed(fault);
        }
        end_multi(&mut self.body);
        self.client.call_multi(OpCode::MultiRead, decode::reads, self.body)
    }
}
