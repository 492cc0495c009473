//! Client library and recipes for ringkeeper and Apache ZooKeeper.
//!
//! Works under tokio, smol or no runtime at all: each client has one background thread for its socket,
//! and every call returns a future that is also [waited for](Wait) by a blocking thread.
//!
//! ```no_run
//! # async fn example() -> ringkeeper_client::Result<()> {
//! use ringkeeper_client::{Client, CreateMode};
//!
//! let client = Client::connect("zk1:2181,zk2:2181,zk3:2181/my-app").await?;
//! client.create("/greeting", "hello", CreateMode::Ephemeral).await?;
//! let (data, stat) = client.get_data("/greeting").await?;
//! client.set_data("/greeting", "good bye", stat.version).await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Order and pipelining
//! A call queues its request at once, in the order of the calls, whether or not its future is awaited yet;
//! the server executes requests, and replies arrive, in that order. So requests are pipelined by making
//! the calls before awaiting the first of them:
//!
//! ```no_run
//! # async fn example(client: ringkeeper_client::Client) -> ringkeeper_client::Result<()> {
//! let replies: Vec<_> = (0..1000).map(|n| client.get_data(&format!("/item-{n}"))).collect();
//! for reply in replies {
//!     let (data, stat) = reply.await?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Watches
//! A read may leave a one-shot [`Watch`], a future; [`Client::watch`] leaves a [`PersistentWatch`], a
//! stream. Both live as long as the session, over every change of servers.
//!
//! ```no_run
//! # async fn example(client: ringkeeper_client::Client) -> ringkeeper_client::Result<()> {
//! use ringkeeper_client::{AddWatchMode, EventKind};
//!
//! let ((data, stat), changed) = client.get_data_and_watch("/greeting").await?;
//! println!("{:?}", changed.await?.kind);
//!
//! let mut events = client.watch("/tree", AddWatchMode::PersistentRecursive).await?;
//! while let Some(event) = events.next().await {
//!     let event = event?;
//!     println!("{:?} {}", event.kind, event.path);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # When connections break
//! The client goes to the next server by itself, with its session. What happens to the requests under way is
//! told by their errors: [`Error::ConnectionLoss`] means that nobody knows whether the request was executed,
//! [`Error::NotSent`] that it was not; **nothing is repeated by the client itself**. Of the requests made
//! before the connection broke, a prefix was executed. Requests made without a connection wait for one, for
//! as long as the session is certain to live ([`Client::lease`]). A session that the servers have expired is
//! over ([`Error::SessionExpired`]): make a new client. [`recipes`] do all of this for the common cases.
//!
//! These errors, and those that a server sends, are shown with the [`Call`] that failed:
//! `create /app/leader: no such znode`.
//!
//! # TLS
//! With the feature `tls`, `Builder::tls` encrypts the connections, and the servers prove who they are.
#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod acl;
mod builder;
mod call;
mod client;
mod connect_string;
pub mod core;
mod create;
mod decode;
mod driver;
mod error;
mod event;
#[cfg(feature = "mutations")]
pub mod mutation;
#[cfg(not(feature = "mutations"))]
mod mutation;
pub mod path;
pub mod recipes;
mod stat;
mod transaction;
mod watch;

pub use acl::Acl;
pub use builder::Builder;
pub use call::Call;
pub use client::{Client, Connecting, Reconfiguration};
pub use core::Mechanism;
pub use create::{CreateMode, CreateOptions, Created};
#[cfg(feature = "hosted")]
pub use driver::hosted;
pub use driver::{Reply, StateChanges, Wait};
pub use error::{Error, Outcome, Result};
pub use event::{EventKind, SessionState, WatchEvent};
#[cfg(feature = "tls")]
pub use ringkeeper_tls::{ClientSettings as TlsSettings, Password, StoreKind, StoreSettings};
pub use ringkeeper_wire::{AddWatchMode, Epoch, ErrorCode, Identity, Perms, SessionId, WatcherType, Zxid};
pub use stat::Stat;
pub use transaction::{OpResult, ReadResult, Reads, Transaction};
pub use watch::{PersistentWatch, Watch, WatchReply, WatchedReply};

/// The example of the manual is compiled.
#[cfg(doctest)]
#[doc = include_str!("../../docs/rust-client.md")]
struct Manual;
