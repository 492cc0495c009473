//! Creates by synchronous clients: puts of new keys.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::Result;
use prost::bytes::Bytes;
use tokio::task::{JoinHandle, spawn_local};

use super::load::{self, Link, Shared, User};
use crate::measure::{Measurement, fresh_root};
use crate::payload;
use crate::window::Surroundings;

/// `clients` connections, each putting new keys one after the other; if `delete`, each is deleted while the
/// next one is put. Only the puts count.
pub(crate) fn create(
    members: &[SocketAddr],
    around: Surroundings<'_>,
    (clients, payload_len, delete): (usize, usize, bool),
    lengths: (Duration, Duration),
) -> Result<Measurement> {
    let root = fresh_root();
    let parents = (0..clients).map(|number| Parent { path: format!("{root}/{number:05}") }).collect();
    let hands = load::connect(members, parents, 1)?;
    let measured = load::run(hands, lengths, None, around, |shared, tasks, links| {
        for link in links {
            tasks.spawn_local(keep_creating(Rc::clone(shared), link, payload_len, delete));
        }
    })?;
    load::sweep(members, &root)?;
    Ok(measured)
}

/// What a client's keys are below.
struct Parent {
    path: String,
}

impl User for Parent {
    fn layout(&self) -> Vec<(Bytes, Bytes)> {
        vec![(self.path.clone().into(), Bytes::new())]
    }

    fn laid_out(&mut self, _: &[i64]) {}
}

async fn keep_creating(
    shared: Rc<Shared>,
    Link { client, user: parent }: Link<Parent>,
    payload_len: usize,
    delete: bool,
) -> Result<()> {
    let mut value = payload::first(0, payload_len);
    let mut deleting: Option<JoinHandle<Result<i64>>> = None;
    let mut number = 0_u64;
    while !shared.is_over() {
        let key: Bytes = format!("{}/n{number:07}", parent.path).into();
        payload::stamp(&mut value, number);
        let sent = Instant::now();
        client.put(key.clone(), Bytes::copy_from_slice(&value)).await?;
        shared.answered(sent);
        number += 1;
        if delete {
            if let Some(before) = deleting.take() {
                before.await??;
            }
            let client = client.clone();
            deleting = Some(spawn_local(async move { client.delete(key).await }));
        }
    }
    match deleting {
        None => Ok(()),
        Some(last) => last.await?.map(drop),
    }
}
