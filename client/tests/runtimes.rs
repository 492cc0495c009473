//! The same program under tokio, under smol, and without a runtime.

mod support;

use ringkeeper_client::recipes::Lock;
use ringkeeper_client::{AddWatchMode, Builder, Client, CreateMode, Error, EventKind, Result, Wait};
use support::servers;

/// A connection, pipelined requests, a one-shot watch, a stream, a wait between two sessions, an end.
async fn program(builder: Builder, dir: &'static str) -> Result<Vec<u8>> {
    let (client, other) = (builder.clone().connect().await?, builder.connect().await?);
    client.create(dir, b"", CreateMode::Persistent).await?;
    let mut events = client.watch(dir, AddWatchMode::Persistent).await?;
    let (_, changed) = client.get_data_and_watch(dir).await?;
    let writes: Vec<_> = (0..100_u8).map(|n| other.set_data(dir, [n], i32::from(n))).collect();
    for write in writes {
        write.await?;
    }
    assert_eq!(changed.await?.kind, EventKind::DataChanged);
    for _ in 0..100 {
        assert_eq!(events.next().await.expect("the session lives")?.kind, EventKind::DataChanged);
    }
    let path = format!("{dir}/lock");
    let holding = Lock::new(&client, &path).acquire().await?;
    let theirs = Lock::new(&other, &path);
    assert!(theirs.try_acquire().await?.is_none());
    holding.release().await?;
    theirs.acquire().await?.release().await?;
    client.sync(dir).await?;
    let (data, _) = client.get_data(dir).await?;
    other.close().await?;
    client.close().await?;
    assert_eq!(client.exists(dir).await, Err(Error::Closed));
    Ok(data)
}

#[test]
fn it_runs_under_tokio_on_one_thread() {
    let Some(servers) = servers() else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    assert_eq!(runtime.block_on(program(servers.builder(), "/tokio-1")), Ok(vec![99]));
}

#[test]
fn it_runs_under_tokio_in_tasks_that_move_between_threads() {
    let Some(servers) = servers() else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().expect("a runtime");
    let tasks =
        ["/tokio-2", "/tokio-3", "/tokio-4"].map(|dir| runtime.spawn(program(servers.builder(), dir)));
    for task in tasks {
        assert_eq!(runtime.block_on(task).expect("no panic"), Ok(vec![99]));
    }
}

#[test]
fn it_runs_under_smol() {
    let Some(servers) = servers() else { return };
    let task = smol::spawn(program(servers.builder(), "/smol-1"));
    assert_eq!(smol::block_on(program(servers.builder(), "/smol-2")), Ok(vec![99]));
    assert_eq!(smol::block_on(task), Ok(vec![99]));
}

#[test]
fn it_runs_without_a_runtime() {
    let Some(servers) = servers() else { return };
    assert_eq!(program(servers.builder(), "/none-1").wait(), Ok(vec![99]));
}

#[test]
fn each_call_is_waited_for_without_a_runtime() {
    let Some(servers) = servers() else { return };
    let client: Client = servers.builder().connect().wait().expect("a session");
    client.create("/none-2", b"x", CreateMode::Persistent).wait().expect("created");
    let mut events = client.watch("/none-2", AddWatchMode::Persistent).wait().expect("watched");
    client.delete("/none-2", 0).wait().expect("deleted");
    assert_eq!(events.next().wait().expect("the session lives").expect("an event").kind, EventKind::Deleted);
    client.close().wait().expect("closed");
}
