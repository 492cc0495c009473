//! Locks, read/write locks and elections, and what their holders do: they count in a znode that is protected
//! by nothing else.

use ringkeeper_client::recipes::{Election, Holding, Lock, Loss, RwLock};
use ringkeeper_client::{Error, Result};

use super::cast::Role;
use super::desk::Desk;
use super::examiner::{Fact, Kind};
use crate::random::Random;

pub(super) fn locks(random: &mut Random) -> Vec<Role> {
    (0..random.between(2, 4)).map(|_| Role::new("lock", lock)).collect()
}

pub(super) fn elections(random: &mut Random) -> Vec<Role> {
    (0..random.between(2, 3)).map(|_| Role::new("election", elect)).collect()
}

pub(super) fn rw_locks(random: &mut Random) -> Vec<Role> {
    (0..random.between(2, 4)).map(|_| Role::new("read/write lock", read_or_write)).collect()
}

const LOCK: &str = "/lock";
const ELECTION: &str = "/election";
const TABLE: &str = "/table";

/// The protected znode of a line.
pub(super) fn fence(line: &str) -> String {
    format!("{line}-fence")
}

async fn lock(desk: Desk) -> Result<()> {
    let desk = &desk;
    let lock = Lock::new(&desk.client, LOCK);
    desk.lay(&fence(LOCK), b"0 0").await?;
    desk.rounds(async || {
        desk.at("waits for the lock");
        let holding = if desk.chance(150) {
            lock.try_acquire().await?
        } else {
            desk.patiently(lock.acquire()).await.transpose()?
        };
        let Some(holding) = holding else { return Ok(()) };
        hold(desk, LOCK, Kind::Alone, holding).await
    })
    .await
}

async fn elect(desk: Desk) -> Result<()> {
    let desk = &desk;
    let election = Election::new(&desk.client, ELECTION, "candidate");
    desk.lay(&fence(ELECTION), b"0 0").await?;
    desk.rounds(async || {
        desk.at("stands for election");
        let Some(leadership) = desk.patiently(election.lead()).await.transpose()? else { return Ok(()) };
        hold(desk, ELECTION, Kind::Alone, leadership).await
    })
    .await
}

async fn read_or_write(desk: Desk) -> Result<()> {
    let desk = &desk;
    let lock = RwLock::new(&desk.client, TABLE);
    desk.lay(&fence(TABLE), b"0 0").await?;
    desk.rounds(async || {
        if desk.chance(600) {
            desk.at("waits to read");
            let Some(holding) = desk.patiently(lock.read()).await.transpose()? else { return Ok(()) };
            hold(desk, TABLE, Kind::Reader, holding).await
        } else {
            desk.at("waits to write");
            let Some(holding) = desk.patiently(lock.write()).await.transpose()? else { return Ok(()) };
            hold(desk, TABLE, Kind::Alone, holding).await
        }
    })
    .await
}

/// Holds something for a while, and gives it up in one way or another.
async fn hold(desk: &Desk, line: &str, kind: Kind, holding: Holding) -> Result<()> {
    let token = holding.fencing_token().to_wire();
    desk.state(Fact::Holds {
        line: line.to_owned(),
        node: holding.path().to_owned(),
        kind,
        token,
        seen: desk.seen(),
    });
    desk.at(format_args!("holds {} with {token:#x}", holding.path()));
    let certain = desk.stage.believe(line, holding.path(), kind, desk);
    for _ in 0..desk.below(4) {
        let lost = match kind {
            Kind::Alone => !step(desk, &fence(line), &holding, token).await?,
            Kind::Reader => !rest(desk, &fence(line), &holding).await?,
        };
        if lost {
            desk.at(format_args!("waits to be told that {} is lost", holding.path()));
            holding.lost().await;
            return Ok(());
        }
        let us = desk.below(15_000);
        // A holder stops when it is told to.
        if desk.within(us, holding.lost()).await.is_some() {
            return Ok(());
        }
    }
    drop(certain);
    if desk.chance(150) {
        // Deposed: the holder must hear of it.
        let deleted = desk.retried(async |client| client.delete(holding.path(), None).await).await;
        if !matches!(deleted, Ok(()) | Err(Error::NoNode(_))) {
            return deleted;
        }
        desk.at(format_args!("waits to be told that {} was taken away", holding.path()));
        return match holding.lost().await {
            Loss::SessionEnded(error) => Err(error),
            _ => Ok(()),
        };
    }
    if desk.chance(300) {
        // Given up in the background.
        drop(holding);
        return Ok(());
    }
    desk.at(format_args!("releases {}", holding.path()));
    holding.release().await
}

/// Counts once, on condition that its own znode is there; `false` if it is not.
async fn step(desk: &Desk, fence: &str, holding: &Holding, token: i64) -> Result<bool> {
    let data = desk.retried(async |client| {
        let (synced, data) = (client.sync(fence), client.get_data(fence));
        synced.await?;
        data.await
    });
    let (data, _) = data.await?;
    let text = String::from_utf8_lossy(&data);
    let count: u64 = text.split(' ').next().and_then(|count| count.parse().ok()).unwrap_or_default();
    let next = format!("{} {token}", count + 1);
    let transaction = desk.client.transaction().check(holding.path(), None);
    match transaction.set_data(fence, next.as_bytes(), None).commit().await {
        Ok(_) => Ok(true),
        Err(Error::Transaction { index: 0, error }) if matches!(*error, Error::NoNode(_)) => Ok(false),
        // Done or not: the next one reads it.
        Err(error) if error.is_connection() => desk.client.connected().await.map(|()| true),
        Err(error) => Err(error),
    }
}

/// Reads twice, as a reader may expect to: nobody writes meanwhile. `false` if its own znode is gone.
async fn rest(desk: &Desk, fence: &str, holding: &Holding) -> Result<bool> {
    let version = async || desk.retried(async |client| Ok(client.get_data(fence).await?.1.version)).await;
    let before = version().await?;
    desk.pause().await;
    let after = version().await?;
    let own = desk.retried(async |client| client.exists(holding.path()).await).await?;
    let still_held = own.is_some();
    if still_held {
        desk.state(Fact::Rested { node: holding.path().to_owned(), before, after });
    }
    Ok(still_held)
}
