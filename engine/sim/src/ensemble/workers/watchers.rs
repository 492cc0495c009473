//! Watches: whoever waits for a change is told of it.

use std::cell::Cell;
use std::rc::Rc;

use ringkeeper_client::{AddWatchMode, CreateMode, Error, EventKind, Result};

use super::cast::Role;
use super::desk::Desk;
use super::examiner::Fact;
use crate::random::Random;

/// What is changed and watched: its data, its children, and `end` below it.
pub(super) const WATCHED: &str = "/watched";
const END: &str = "/watched/end";
/// The last data.
const LAST: &[u8] = b"the end";

pub(super) fn watchers(random: &mut Random) -> Vec<Role> {
    let changes = Rc::new(Cell::new(0));
    let mut roles = vec![Role::new("changer", move |desk| change(desk, Rc::clone(&changes)))];
    for _ in 0..random.between(1, 3) {
        roles.push(match random.below(4) {
            0 => Role::new("data watcher", watch_data),
            1 => Role::new("child watcher", watch_children),
            2 => Role::new("exist watcher", watch_existence),
            _ => Role::new("tree watcher", watch_tree),
        });
    }
    roles
}

/// Changes until everything is healed, and then once more, which all watchers wait for.
async fn change(desk: Desk, changes: Rc<Cell<u64>>) -> Result<()> {
    let desk = &desk;
    desk.lay(WATCHED, b"0").await?;
    while !desk.stage.is_healed() {
        let number = changes.replace(changes.get() + 1);
        desk.at(format_args!("makes change {number}"));
        let child = format!("{WATCHED}/{}", desk.below(3));
        let text = number.to_string();
        let changed = match desk.below(4) {
            0 => desk.client.create(&child, text.as_bytes(), CreateMode::Ephemeral).await.map(drop),
            1 => desk.client.delete(&child, None).await,
            // One transaction, several events.
            2 => {
                let transaction = desk.client.transaction().set_data(WATCHED, text.as_bytes(), None);
                let transaction = transaction.create(&child, b"", CreateMode::Persistent);
                transaction.commit().await.map(drop)
            }
            _ => desk.client.set_data(WATCHED, text.as_bytes(), None).await.map(drop),
        };
        match changed {
            Ok(()) | Err(Error::NodeExists(_) | Error::NoNode(_) | Error::Transaction { .. }) => {}
            Err(error) if error.is_connection() => desk.client.connected().await?,
            Err(error) => return Err(error),
        }
        desk.done();
        desk.pause().await;
    }
    desk.at("makes the last changes");
    desk.retried(async |client| client.set_data(WATCHED, LAST, None).await).await?;
    desk.lay(END, b"").await
}

async fn watch_data(desk: Desk) -> Result<()> {
    let mut before = 0;
    loop {
        desk.at("reads the data");
        let read = desk.retried(async |client| client.get_data_and_watch(WATCHED).await).await;
        let ((data, stat), changed) = match read {
            Err(Error::NoNode(_)) => {
                desk.pause().await;
                continue;
            }
            outcome => outcome?,
        };
        let mzxid = stat.mzxid.to_wire();
        desk.state(Fact::ToldOfChange { path: WATCHED, before, after: mzxid });
        before = mzxid;
        desk.done();
        if data == LAST {
            return Ok(());
        }
        desk.at("waits for new data");
        drop(changed.await?);
    }
}

async fn watch_children(desk: Desk) -> Result<()> {
    let mut before = 0;
    loop {
        desk.at("reads the children");
        let read = desk.retried(async |client| client.get_children_and_watch(WATCHED).await).await;
        let ((names, stat), changed) = match read {
            Err(Error::NoNode(_)) => {
                desk.pause().await;
                continue;
            }
            outcome => outcome?,
        };
        let pzxid = stat.pzxid.to_wire();
        desk.state(Fact::ToldOfChange { path: WATCHED, before, after: pzxid });
        before = pzxid;
        desk.done();
        if names.iter().any(|name| name == "end") {
            return Ok(());
        }
        desk.at("waits for other children");
        drop(changed.await?);
    }
}

async fn watch_existence(desk: Desk) -> Result<()> {
    desk.at("waits for the end");
    let (stat, created) = desk.retried(async |client| client.exists_and_watch(END).await).await?;
    if stat.is_none() {
        // It is created once and never deleted: there is nothing else to be told.
        drop(created.await?);
    }
    desk.done();
    Ok(())
}

/// Every event of a subtree, without a gap but where the library says so.
async fn watch_tree(desk: Desk) -> Result<()> {
    desk.at("leaves a watch on the tree");
    let watch = async |client: &ringkeeper_client::Client| {
        client.watch(WATCHED, AddWatchMode::PersistentRecursive).await
    };
    let mut events = desk.retried(watch).await?;
    let worker = desk.worker;
    desk.state(Fact::WatchesTree { worker, from: desk.seen() });
    loop {
        // What happened before the watch, or in a gap, must be read.
        desk.at("looks for the end");
        if desk.retried(async |client| client.exists(END).await).await?.is_some() {
            return Ok(());
        }
        desk.at("waits for an event in the tree");
        let Some(event) = events.next().await else { return Err(Error::Closed) };
        let event = event?;
        desk.done();
        match (event.kind, event.zxid) {
            (EventKind::Restored, _) => desk.state(Fact::Gap { worker }),
            (kind, Some(zxid)) => {
                desk.state(Fact::Saw { worker, kind, path: event.path, zxid: zxid.to_wire() });
            }
            (..) => {
                return Err(Error::InvalidSetting("an event of a persistent watch names its transaction"));
            }
        }
    }
}
