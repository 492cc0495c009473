use std::borrow::Cow;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use ringkeeper_wire::{
    AddWatchMode, AddWatchRequest, CreateRequest, CreateTtlRequest, DeleteRequest, GetEphemeralsRequest,
    OpCode, PathRequest, PathWatchRequest, ReconfigRequest, Record, SessionId, SetAclRequest, SetDataRequest,
    SyncRequest, WatcherType, WatchesRequest, Zxid,
};

use crate::core::{Admission, Credential, Millis, SessionTicket, WatchRequest};
use crate::driver::{Asked, Decode, Detached, EventQueue, Shared, Slot, StateChanges, Watcher};
use crate::watch::{PersistentWatch, Watch, WatchReply, WatchedReply};
use crate::{
    Acl, Builder, CreateOptions, Created, Error, Identity, Reads, Reply, Result, SessionState, Stat,
    Transaction, decode, path,
};

/// The znode that holds the ensemble's configuration.
const CONFIG_PATH: &str = "/zookeeper/config";

/// A session with an ensemble: ringkeeper's or Apache ZooKeeper's.
///
/// Cheap to clone; all clones share one session, which is closed when the last is dropped. Every call
/// queues its request at once and returns a [`Reply`]: await it, or [`wait`](crate::Wait::wait) for it.
/// Requests are executed, and their replies arrive, in the order of the calls.
///
/// Each call fails with the errors of its operation, and any may fail with those of the connection and
/// the session: see [`Error`].
#[derive(Clone)]
pub struct Client(Arc<Handle>);

struct Handle {
    shared: Arc<Shared>,
    chroot: String,
    watch_events_max: usize,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("session_id", &self.session_id())
            .field("state", &self.state())
            .field("chroot", &self.0.chroot)
            .finish_non_exhaustive()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.change(|core, now, outcomes| core.close(now, Arc::new(Detached), outcomes));
    }
}

impl Client {
    pub(crate) fn new(shared: Arc<Shared>, chroot: String, watch_events_max: usize) -> Self {
        Self(Arc::new(Handle { shared, chroot, watch_events_max }))
    }

    /// Connects with the default settings. `connect_string` names servers, and optionally a chroot that
    /// stands in front of all paths: `host:port,host:port/chroot`.
    pub fn connect(connect_string: &str) -> Connecting {
        Self::builder(connect_string).connect()
    }

    /// A client with settings of its own.
    pub fn builder(connect_string: &str) -> Builder {
        Builder::new(connect_string)
    }

    /// Where the client stands with its session.
    #[must_use]
    pub fn state(&self) -> SessionState {
        self.0.shared.read(|core, _| core.state())
    }

    /// The changes of [`Client::state`] from now on.
    pub fn state_changes(&self) -> StateChanges {
        self.0.shared.listen()
    }

    /// Ready when a server serves the session.
    ///
    /// # Errors
    /// The session has ended.
    pub async fn connected(&self) -> Result<()> {
        let mut changes = self.state_changes();
        let mut state = self.state();
        loop {
            if state.is_connected() {
                return Ok(());
            }
            if let Some(error) = self.end_reason() {
                return Err(error);
            }
            state = changes.next().await.unwrap_or_else(|| self.state());
        }
    }

    /// Why the session has ended, `None` while it may be alive.
    #[must_use]
    pub fn end_reason(&self) -> Option<Error> {
        self.0.shared.read(|core, _| core.end_reason())
    }

    /// The session's id.
    #[must_use]
    pub fn session_id(&self) -> SessionId {
        self.0.shared.read(|core, _| core.session_id())
    }

    /// What another client needs to take the session over: see [`Builder::resume`]. A secret.
    #[must_use]
    pub fn session_ticket(&self) -> SessionTicket {
        self.0.shared.read(|core, _| core.ticket())
    }

    /// The session timeout that the server has granted.
    #[must_use]
    pub fn session_timeout(&self) -> Duration {
        Duration::from_millis(self.0.shared.read(|core, _| core.session_timeout_ms()))
    }

    /// The newest transaction that a reply has shown.
    #[must_use]
    pub fn last_zxid(&self) -> Zxid {
        self.0.shared.read(|core, _| core.last_zxid())
    }

    /// For how long the servers are certain to keep the session, even if the connection breaks now: the
    /// timeout, less the age of the last answered request. Zero when that time is over, and when the
    /// session has ended.
    ///
    /// Two rare cases break this, for a client that reaches no other server meanwhile. Its server is an
    /// observer that learns from a follower, and the observer's messages come to the follower late while the
    /// follower's come in time. Or its server stood still until the leader had given it up, and answers once
    /// more before it hears of that.
    #[must_use]
    pub fn lease(&self) -> Duration {
        let lease = |core: &crate::core::Core<_>, now: Millis| match core.state().is_ended() {
            true => 0,
            false => core.lease_until().0.saturating_sub(now.0),
        };
        Duration::from_millis(self.0.shared.read(lease))
    }

    /// Creates a znode: its path and metadata. `data` is bytes or text: `"text"`, `b"bytes"`, a `String`,
    /// a `Vec<u8>`.
    pub fn create<'a>(
        &self,
        path: &str,
        data: impl AsRef<[u8]>,
        options: impl Into<CreateOptions<'a>>,
    ) -> Reply<Created> {
        let options = options.into();
        let mode = options.mode.to_wire();
        let valid = if mode.is_sequential() { path::validate_sequential(path) } else { path::validate(path) };
        if let Err(error) = valid {
            return Reply::failed(error);
        }
        let path = self.server_path(path);
        let (acl, flags, data) = (Some(options.acl()), mode.to_wire(), Some(data.as_ref()));
        self.call(options.mode.op(), decode::created, None, |out| match options.mode.ttl_ms() {
            Some(ttl_ms) => CreateTtlRequest { path, data, acl, flags, ttl_ms }.encode(out),
            None => CreateRequest { path, data, acl, flags }.encode(out),
        })
    }

    /// Deletes a znode, if it has the expected version; `None` expects any.
    pub fn delete(&self, path: &str, expected: impl Into<Option<i32>>) -> Reply<()> {
        let version = expected.into().unwrap_or(-1);
        self.call_at(path, OpCode::Delete, decode::nothing, |path, out| {
            DeleteRequest { path, version }.encode(out);
        })
    }

    /// A znode's metadata, `None` if it does not exist.
    pub fn exists(&self, path: &str) -> Reply<Option<Stat>> {
        self.call_at(path, OpCode::Exists, decode::exists, encode_read(false))
    }

    /// As [`Client::exists`], and a watch on its creation, deletion and data.
    pub fn exists_and_watch(&self, path: &str) -> WatchedReply<Option<Stat>> {
        self.call_and_watch(path, OpCode::Exists, decode::exists)
    }

    /// A znode's data and metadata. Null data, which only some clients write, reads as empty.
    pub fn get_data(&self, path: &str) -> Reply<(Vec<u8>, Stat)> {
        self.call_at(path, OpCode::GetData, decode::data, encode_read(false))
    }

    /// As [`Client::get_data`], and a watch on its data and deletion.
    pub fn get_data_and_watch(&self, path: &str) -> WatchedReply<(Vec<u8>, Stat)> {
        self.call_and_watch(path, OpCode::GetData, decode::data)
    }

    /// Sets a znode's data, if it has the expected version (`None` expects any): its new metadata.
    pub fn set_data(
        &self,
        path: &str,
        data: impl AsRef<[u8]>,
        expected: impl Into<Option<i32>>,
    ) -> Reply<Stat> {
        let (data, version) = (Some(data.as_ref()), expected.into().unwrap_or(-1));
        self.call_at(path, OpCode::SetData, decode::stat, |path, out| {
            SetDataRequest { path, data, version }.encode(out);
        })
    }

    /// The names of a znode's children, in no particular order, and its metadata.
    pub fn get_children(&self, path: &str) -> Reply<(Vec<String>, Stat)> {
        self.call_at(path, OpCode::GetChildren2, decode::children, encode_read(false))
    }

    /// As [`Client::get_children`], and a watch on the creation and deletion of children, and its own
    /// deletion.
    pub fn get_children_and_watch(&self, path: &str) -> WatchedReply<(Vec<String>, Stat)> {
        self.call_and_watch(path, OpCode::GetChildren2, decode::children)
    }

    /// A znode's access control list and metadata.
    pub fn get_acl(&self, path: &str) -> Reply<(Acl, Stat)> {
        self.call_at(path, OpCode::GetAcl, decode::acl, |path, out| PathRequest { path }.encode(out))
    }

    /// Sets a znode's access control list, if that has the expected version ([`Stat::aversion`]; `None`
    /// expects any): its new metadata.
    pub fn set_acl(&self, path: &str, acl: &Acl, expected: impl Into<Option<i32>>) -> Reply<Stat> {
        let version = expected.into().unwrap_or(-1);
        self.call_at(path, OpCode::SetAcl, decode::stat, |path, out| {
            SetAclRequest { path, acl: Some(acl.to_wire()), version }.encode(out);
        })
    }

    /// Lets the server catch up with the leader: a read after it sees everything that was committed
    /// before it.
    pub fn sync(&self, path: &str) -> Reply<()> {
        self.call_at(path, OpCode::Sync, decode::nothing, |path, out| {
            SyncRequest { path: Some(path) }.encode(out)
        })
    }

    /// Several writes, all of them or none.
    pub fn transaction(&self) -> Transaction {
        Transaction::new(self.clone())
    }

    /// Several reads of one state.
    pub fn reads(&self) -> Reads {
        Reads::new(self.clone())
    }

    /// A persistent watch: a stream of what happens to a znode, which need not exist, or with
    /// [`AddWatchMode::PersistentRecursive`] to its whole subtree.
    pub fn watch(&self, path: &str, mode: AddWatchMode) -> WatchReply {
        let shared = &self.0.shared;
        let queue = self.event_queue();
        let request = match self.watch_request(path, &queue, Some(mode)) {
            Ok(request) => request,
            Err(error) => return WatchReply::new(Reply::failed(error), None),
        };
        let (id, path) = (request.id, request.path.clone());
        let reply = self.call(OpCode::AddWatch, decode::nothing, Some(request), |out| {
            AddWatchRequest { path: path.as_str().into(), mode }.encode(out);
        });
        WatchReply::new(reply, Some(PersistentWatch::new(Arc::clone(shared), id, path, queue, mode)))
    }

    /// Removes the watches of a kind on a path from the server, for all clones of this client; those who
    /// wait for them are not told.
    pub fn remove_watches(&self, path: &str, watcher_type: WatcherType) -> Reply<()> {
        self.call_at(path, OpCode::RemoveWatches, decode::nothing, |path, out| {
            WatchesRequest { path, watcher_type }.encode(out);
        })
    }

    /// Fails with [`Error::NoWatcher`] if the server has no watch of a kind on a path for this session.
    pub fn check_watches(&self, path: &str, watcher_type: WatcherType) -> Reply<()> {
        self.call_at(path, OpCode::CheckWatches, decode::nothing, |path, out| {
            WatchesRequest { path, watcher_type }.encode(out);
        })
    }

    /// The paths of this session's ephemeral znodes that begin with `prefix`.
    pub fn get_ephemerals(&self, prefix: &str) -> Reply<Vec<String>> {
        self.call_at(prefix, OpCode::GetEphemerals, decode::ephemerals, |path, out| {
            GetEphemeralsRequest { prefix_path: Some(path) }.encode(out);
        })
    }

    /// The number of a znode's descendants, at any depth.
    pub fn count_descendants(&self, path: &str) -> Reply<u32> {
        self.call_at(path, OpCode::GetAllChildrenNumber, decode::descendants, |path, out| {
            PathRequest { path }.encode(out);
        })
    }

    /// The session's identities.
    pub fn who_am_i(&self) -> Reply<Vec<Identity>> {
        self.call(OpCode::WhoAmI, decode::identities, None, |_| {})
    }

    /// The ensemble's configuration, as text, and its metadata.
    pub fn get_config(&self) -> Reply<(Vec<u8>, Stat)> {
        // Without the chroot, below which it is not.
        self.call(OpCode::GetData, decode::data, None, |out| {
            PathWatchRequest { path: CONFIG_PATH.into(), watch: false }.encode(out);
        })
    }

    /// Changes the ensemble's members: the new configuration and its metadata. See [`Reconfiguration`].
    pub fn reconfigure(&self, change: &Reconfiguration<'_>) -> Reply<(Vec<u8>, Stat)> {
        self.call(OpCode::Reconfig, decode::data, None, |out| {
            ReconfigRequest {
                joining_servers: change.joining.map(Into::into),
                leaving_servers: change.leaving.map(Into::into),
                new_members: change.members.map(Into::into),
                cur_config_id: change.expected_version.unwrap_or(-1),
            }
            .encode(out);
        })
    }

    /// Shows a further proof of identity, on this connection and every later one. A credential that the
    /// server refuses ends the session with [`Error::AuthFailed`].
    pub fn add_credential(&self, scheme: impl Into<String>, auth: impl Into<Vec<u8>>) -> Reply<()> {
        let credential = Credential { scheme: scheme.into(), auth: auth.into() };
        let shared = &self.0.shared;
        Reply::new(shared, Slot::new(decode::nothing, Asked::default()), |slot| {
            shared.change(|core, _, _| match core.add_credential(credential, slot) {
                Ok(()) => Ok(Admission::Queued),
                Err((_, error)) => Err(error),
            })
        })
    }

    /// Closes the session, for all clones: its ephemeral znodes go at once. Requests made before are
    /// answered first.
    pub fn close(&self) -> Reply<()> {
        let shared = &self.0.shared;
        Reply::new(shared, Slot::new(decode::nothing, Asked::default()), |slot| {
            shared.change(|core, now, outcomes| core.close(now, slot, outcomes));
            Ok(Admission::Queued)
        })
    }

    /// Creates a znode and whichever of its ancestors do not exist, all persistent and empty.
    ///
    /// # Errors
    /// As [`Client::create`], except that a znode which exists is no error. Repeated after a lost
    /// connection, since creating it twice is the same as once.
    pub async fn ensure_path(&self, path: &str) -> Result<()> {
        path::validate(path)?;
        if path == "/" {
            return Ok(());
        }
        let mut missing = vec![path];
        while let Some(path) = missing.last().copied() {
            match self.create(path, b"", crate::CreateMode::Persistent).await {
                Ok(_) | Err(Error::NodeExists(_)) => drop(missing.pop()),
                Err(Error::NoNode(_)) if path::parent(path) != "/" => missing.push(path::parent(path)),
                Err(error) if error.is_connection() => self.connected().await?,
                // Where nothing may be created, what exists is good enough.
                Err(Error::NoAuth(_)) if self.exists(path).await?.is_some() => drop(missing.pop()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    pub(crate) fn server_path<'a>(&self, path: &'a str) -> Cow<'a, str> {
        path::to_server(&self.0.chroot, path)
    }

    /// Runs a future on the driver thread, whether or not the caller goes on: see [`Shared::spawn`].
    pub(crate) fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        self.0.shared.spawn(future);
    }

    /// A word that no other client uses.
    pub(crate) fn unique_name(&self) -> uuid::Uuid {
        self.0.shared.unique_name()
    }

    /// The planted fault.
    #[cfg(feature = "mutations")]
    pub(crate) fn mutation(&self) -> crate::mutation::Mutation {
        self.0.shared.read(|core, _| core.mutation())
    }

    /// Queues a request whose body `encode` appends.
    pub(crate) fn call<T: Send + 'static>(
        &self,
        op: OpCode,
        decode: Decode<T>,
        watch: Option<WatchRequest<Watcher>>,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> Reply<T> {
        let shared = &self.0.shared;
        let asked = Asked { chroot_len: self.0.chroot.len(), ops: Vec::new() };
        Reply::new(shared, Slot::new(decode, asked), |slot| shared.submit(op, slot, watch, encode))
    }

    /// Queues a request whose body is `ops`, a sequence that [`ringkeeper_wire::end_multi`] has ended.
    pub(crate) fn call_multi<T: Send + 'static>(
        &self,
        op: OpCode,
        decode: Decode<T>,
        ops: Vec<u8>,
    ) -> Reply<T> {
        let shared = &self.0.shared;
        Reply::new(shared, Slot::new(decode, Asked { chroot_len: self.0.chroot.len(), ops }), |slot| {
            let asking = Arc::clone(&slot);
            shared.submit(op, slot, None, |out| out.extend_from_slice(&asking.asked.ops))
        })
    }

    fn call_at<T: Send + 'static>(
        &self,
        path: &str,
        op: OpCode,
        decode: Decode<T>,
        encode: impl FnOnce(Cow<'_, str>, &mut Vec<u8>),
    ) -> Reply<T> {
        match path::validate(path) {
            Ok(()) => self.call(op, decode, None, |out| encode(self.server_path(path), out)),
            Err(error) => Reply::failed(error),
        }
    }

    fn call_and_watch<T: Send + 'static>(
        &self,
        path: &str,
        op: OpCode,
        decode: Decode<T>,
    ) -> WatchedReply<T> {
        let queue = self.event_queue();
        let request = match self.watch_request(path, &queue, None) {
            Ok(request) => request,
            Err(error) => return WatchedReply::new(Reply::failed(error), None),
        };
        let (id, path) = (request.id, request.path.clone());
        let reply = self.call(op, decode, Some(request), |out| encode_read(true)(path.as_str().into(), out));
        let watch = Watch::new(Arc::clone(&self.0.shared), id, path, queue);
        WatchedReply::new(reply, Some(watch))
    }

    fn event_queue(&self) -> Watcher {
        Arc::new(EventQueue::new(self.0.chroot.len(), self.0.watch_events_max))
    }

    fn watch_request(
        &self,
        path: &str,
        queue: &Watcher,
        mode: Option<AddWatchMode>,
    ) -> Result<WatchRequest<Watcher>> {
        path::validate(path)?;
        let id = self.0.shared.note(crate::core::Core::new_watch_id);
        Ok(WatchRequest { id, path: self.server_path(path).into_owned(), watcher: Arc::clone(queue), mode })
    }
}

/// The body of the four reads that may leave a watch.
fn encode_read(watch: bool) -> impl FnOnce(Cow<'_, str>, &mut Vec<u8>) {
    move |path, out| PathWatchRequest { path, watch }.encode(out)
}

/// A change of the ensemble's members: either servers that join and leave, or all members anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reconfiguration<'a> {
    /// Servers to add or change: `server.id=host:port:port;port`, separated by commas.
    pub joining: Option<&'a str>,
    /// Ids of servers to remove, separated by commas.
    pub leaving: Option<&'a str>,
    /// All members, instead of the two above.
    pub members: Option<&'a str>,
    /// The version that the configuration must have; `None` expects any.
    pub expected_version: Option<i64>,
}

/// A client on its way to its first server. From [`Client::connect`].
#[must_use = "the client is in here"]
pub struct Connecting(Pin<Box<dyn Future<Output = Result<Client>> + Send>>);

impl Connecting {
    pub(crate) fn new(client: Result<Client>) -> Self {
        Self(Box::pin(async {
            let client = client?;
            client.connected().await?;
            Ok(client)
        }))
    }
}

impl Future for Connecting {
    type Output = Result<Client>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx)
    }
}
