//! etcd beside the others: puts and ranges through its own gRPC API, on as many connections with as many requests
//! outstanding as the others have sessions.
//!
//! What is alike and what is not:
//! - A put is durable on a quorum before it is answered, as a write of ZooKeeper's is (etcd forces its log by default).
//! - A serializable range is answered by the member that is asked from what it has, as a read of ZooKeeper's is.
//! - Requests of one connection are independent of each other: etcd may answer them in any order, where ZooKeeper keeps
//!   the order of a session. So a value that was read is checked to be whole, of its key, and one that was sent; which
//!   one of those it is nobody can say.

mod client;
mod load;
mod message;

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::runtime::Runtime;
use tokio::task::LocalSet;

use self::client::{Client, Method};
pub(crate) use self::load::{create, measure};
use self::message::{StatusRequest, StatusResponse};

/// How the experiments use it, for readers of their results.
pub(crate) const ABOUT: &str = "etcd: puts and serializable ranges (answered by the member asked, as ZooKeeper's reads are) through its \
    gRPC API, a connection for each session; a create is a put of a new key, a delete a DeleteRange of it. etcd does not keep the \
    order of requests, so of a value read it is checked that it is whole, of its key, and was sent.";

/// How long a member may take to say what it is.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// `leader` or `follower`, as the others name it.
pub(crate) fn mode(member: SocketAddr) -> Result<&'static str> {
    let asked = async {
        let client = Client::connect(member).await?;
        client.call::<_, StatusResponse>(Method::Status, &StatusRequest {}).await
    };
    // A time-out begins where the runtime is.
    let in_time = async { tokio::time::timeout(ANSWER_MAX, asked).await };
    let status = LocalSet::new().block_on(&runtime()?, in_time).context("no answer in time")??;
    let own = status.header.context("a status without a header")?.member_id;
    match status.leader {
        0 => anyhow::bail!("it knows of no leader"),
        leader if leader == own => Ok("leader"),
        _ => Ok("follower"),
    }
}

/// A runtime that has the calling thread and no other.
fn runtime() -> Result<Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().context("a runtime")
}
