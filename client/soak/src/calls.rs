//! Every call, by a worker that has a subtree of its own and so knows what is in it. What the error says of a
//! write must be true: executed once, or not at all, and where nobody knows, one of the two.

use std::collections::BTreeSet;
use std::sync::Arc;

use ringkeeper_client::{
    Acl, AddWatchMode, Call, Client, CreateMode, Error, OpResult, Outcome, ReadResult, Result, Wait,
    WatcherType, path,
};

use crate::soak::{Soak, Team};
use crate::worker::Worker;

const DIR: &str = "/calls";

/// One worker.
pub(crate) fn start(soak: &Arc<Soak>, client: &Client, team: &mut Team) -> Result<()> {
    client.ensure_path(DIR).wait()?;
    let mut rounds = 0_u64;
    team.spawn(soak, format!("{DIR}#0"), move |worker| {
        worker.run(|worker| {
            rounds += 1;
            round(worker, rounds)
        });
    });
    Ok(())
}

/// What the worker knows of its subtree.
struct Own {
    top: String,
    version: i32,
    aversion: i32,
    children: BTreeSet<String>,
    ephemerals: BTreeSet<String>,
}

fn round(worker: &mut Worker, number: u64) -> Result<()> {
    worker.at("proves who it is");
    worker.retried(|client| client.add_credential("digest", "calls:secret").wait())?;
    let top = format!("{DIR}/{number}");
    let mut own =
        Own { top, version: 0, aversion: 0, children: BTreeSet::new(), ephemerals: BTreeSet::new() };
    let created = write(worker, "creates its znode", |client| {
        client.create(&own.top, b"0", CreateMode::Persistent).wait().map(drop)
    })?;
    let there = now(worker, |client| client.exists(&own.top).wait())?.is_some();
    if !agrees(worker, "create", created, there) {
        return Ok(());
    }
    let watch = worker.retried(|client| client.watch(&own.top, AddWatchMode::Persistent).wait())?;
    for _ in 0..worker.random(1..30) {
        match worker.random(0..5) {
            0 => set_data(worker, &mut own)?,
            1 => create_child(worker, &mut own)?,
            2 => delete_child(worker, &mut own)?,
            3 => change_as_a_whole(worker, &mut own)?,
            _ => set_acl(worker, &mut own)?,
        }
        compare(worker, &own)?;
        worker.count("writes of every kind, and what they say of themselves");
    }
    worker.at("drops its watch");
    drop(watch);
    // Asked for in the background, and lost with a connection; as the watch is with it.
    match worker.retried(|client| client.remove_watches(&own.top, WatcherType::Any).wait()) {
        Ok(()) | Err(Error::NoWatcher(_)) => {}
        Err(error) => return Err(error),
    }
    match worker.retried(|client| client.check_watches(&own.top, WatcherType::Any).wait()) {
        Err(Error::NoWatcher(_)) => {}
        Err(error) => return Err(error),
        Ok(()) => worker.violation(format_args!("{} is watched after its watches were removed", own.top)),
    }
    clean_up(worker, &own)
}

/// Makes a write: `Some` if its outcome is certain, and whether it was executed.
fn write(worker: &Worker, what: &str, call: impl FnOnce(&Client) -> Result<()>) -> Result<Option<bool>> {
    worker.at(what);
    match call(&worker.client) {
        Ok(()) => Ok(Some(true)),
        Err(error) if error.is_connection() => {
            worker.client.connected().wait()?;
            Ok((error.outcome() == Outcome::NotExecuted).then_some(false))
        }
        Err(error) => Err(error),
    }
}

/// A read of what is true now, also of a write that was on its way when the connection was lost.
fn now<T>(worker: &Worker, read: impl Fn(&Client) -> Result<T>) -> Result<T> {
    worker.retried(|client| {
        client.sync(DIR).wait()?;
        read(client)
    })
}

/// Whether the write was executed, which a read has shown.
fn agrees(worker: &Worker, what: &str, told: Option<bool>, seen: bool) -> bool {
    match told {
        Some(told) if told != seen => {
            worker.violation(format_args!("{what}: executed was told to be {told}, and is {seen}"));
        }
        None => worker.count("writes whose outcome was unknown"),
        _ => {}
    }
    seen
}

fn set_data(worker: &Worker, own: &mut Own) -> Result<()> {
    let Own { top, version, .. } = own;
    let set = write(worker, "sets its data", |client| {
        client.set_data(top, (*version + 1).to_string().as_bytes(), *version).wait().map(drop)
    })?;
    let stat = now(worker, |client| client.get_data(top).wait())?.1;
    if agrees(worker, "set_data", set, stat.version == *version + 1) {
        *version += 1;
    }
    Ok(())
}

fn set_acl(worker: &Worker, own: &mut Own) -> Result<()> {
    let Own { top, aversion, .. } = own;
    let set = write(worker, "sets its access control list", |client| {
        client.set_acl(top, &Acl::creator(), *aversion).wait().map(drop)
    })?;
    let stat = now(worker, |client| client.get_acl(top).wait())?.1;
    if agrees(worker, "set_acl", set, stat.aversion == *aversion + 1) {
        *aversion += 1;
    }
    Ok(())
}

fn create_child(worker: &mut Worker, own: &mut Own) -> Result<()> {
    let mode = worker.choose(&[
        CreateMode::Persistent,
        CreateMode::Ephemeral,
        CreateMode::PersistentSequential,
        CreateMode::EphemeralSequential,
    ]);
    let prefix = format!("{}-", worker.random(0..u64::MAX));
    let asked = path::join(&own.top, &prefix);
    let created =
        write(worker, "creates a child", |client| client.create(&asked, b"", mode).wait().map(drop))?;
    let (names, _) = now(worker, |client| client.get_children(&own.top).wait())?;
    let mut found = names.into_iter().filter(|name| name.starts_with(&prefix));
    let child = found.next();
    if let Some(other) = found.next() {
        worker.violation(format_args!("one create has made {child:?} and {other}"));
    }
    agrees(worker, "create", created, child.is_some());
    let is_ephemeral = matches!(mode, CreateMode::Ephemeral | CreateMode::EphemeralSequential);
    if let Some(child) = child {
        if is_ephemeral {
            own.ephemerals.insert(path::join(&own.top, &child));
        }
        own.children.insert(child);
    }
    Ok(())
}

fn delete_child(worker: &Worker, own: &mut Own) -> Result<()> {
    let Some(child) = own.children.first().cloned() else { return Ok(()) };
    let child_path = path::join(&own.top, &child);
    let deleted = write(worker, "deletes a child", |client| client.delete(&child_path, 0).wait())?;
    let gone = now(worker, |client| client.exists(&child_path).wait())?.is_none();
    if agrees(worker, "delete", deleted, gone) {
        own.children.remove(&child);
        own.ephemerals.remove(&child_path);
    }
    Ok(())
}

/// Both or none, and a transaction with a check that fails is none.
fn change_as_a_whole(worker: &mut Worker, own: &mut Own) -> Result<()> {
    let child = format!("t{}", worker.random(0..u64::MAX));
    let child_path = path::join(&own.top, &child);
    let is_wrong = worker.random(0..4) == 0;
    let expected = if is_wrong { own.version + 7 } else { own.version };
    let committed = write(worker, "commits a transaction", |client| {
        let transaction = client.transaction().create(&child_path, b"", CreateMode::Persistent);
        let transaction = transaction.check(&own.top, expected).set_data(&own.top, b"whole", None);
        match transaction.commit().wait() {
            Ok(results) => {
                if !matches!(results[..], [OpResult::Created { .. }, OpResult::Checked, OpResult::DataSet(_)])
                {
                    worker.violation(format_args!("a transaction has answered {results:?}"));
                }
                Ok(())
            }
            // As it should be: it changes nothing.
            Err(Error::Transaction { index: 1, error })
                if is_wrong && matches!(*error, Error::BadVersion(_)) =>
            {
                Err(Error::NotSent(Call::new("transaction", &own.top)))
            }
            Err(error) => Err(error),
        }
    })?;
    let reads = |client: &Client| client.reads().get_data(&own.top).get_data(&child_path).commit().wait();
    let results = now(worker, reads)?;
    let [Ok(ReadResult::Data(_, stat)), child_read] = &results[..] else {
        worker.violation(format_args!("reads of one state have answered {results:?}"));
        return Ok(());
    };
    let (is_set, is_created) = (stat.version == own.version + 1, child_read.is_ok());
    if is_set != is_created {
        worker.violation(format_args!("half a transaction: {results:?}, version was {}", own.version));
    }
    if agrees(worker, "transaction", committed, is_set) {
        own.version += 1;
        own.children.insert(child);
    }
    Ok(())
}

/// Every read must show what is known.
fn compare(worker: &Worker, own: &Own) -> Result<()> {
    worker.at("reads what it knows");
    let before = worker.client.last_zxid();
    let (mut names, stat) = worker.retried(|client| client.get_children(&own.top).wait())?;
    names.sort_unstable();
    let ephemerals = worker.retried(|client| client.get_ephemerals(&own.top).wait())?;
    let ephemerals: BTreeSet<_> = ephemerals.into_iter().collect();
    let descendants = worker.retried(|client| client.count_descendants(&own.top).wait())?;
    let seen = (stat.version, stat.aversion, descendants as usize, stat.num_children as usize);
    let known = (own.version, own.aversion, own.children.len(), own.children.len());
    if seen != known || !names.iter().eq(&own.children) || ephemerals != own.ephemerals {
        worker.violation(format_args!(
            "{}: read are {seen:?}, {names:?}, {ephemerals:?}; known are {known:?}, {:?}, {:?}",
            own.top, own.children, own.ephemerals
        ));
    }
    match worker.retried(|client| client.delete(&own.top, own.version + 1).wait()) {
        Err(Error::BadVersion(_) | Error::NotEmpty(_)) => {}
        Err(error) => return Err(error),
        Ok(()) => worker.violation(format_args!("{} was deleted by another version", own.top)),
    }
    match worker.retried(|client| client.check_watches(&own.top, WatcherType::Any).wait()) {
        Err(Error::NoWatcher(_)) => worker.violation(format_args!("{} is not watched any more", own.top)),
        outcome => outcome?,
    }
    let identities = worker.retried(|client| client.who_am_i().wait())?;
    if !identities.iter().any(|identity| identity.scheme == "digest") {
        worker.violation(format_args!("the credential was forgotten: {identities:?}"));
    }
    worker.retried(|client| client.get_config().wait())?;
    if worker.client.last_zxid() < before {
        worker.violation(format_args!("{} was seen before {}", before, worker.client.last_zxid()));
    }
    Ok(())
}

fn clean_up(worker: &Worker, own: &Own) -> Result<()> {
    worker.at("cleans up");
    let delete = |path: &str| {
        worker.retried(|client| match client.delete(path, None).wait() {
            // The second time, perhaps.
            Err(Error::NoNode(_)) => Ok(()),
            outcome => outcome,
        })
    };
    own.children.iter().try_for_each(|child| delete(&path::join(&own.top, child)))?;
    delete(&own.top)
}
