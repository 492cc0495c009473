//! The log on files of the machine that runs the tests, on both runtimes.

use std::path::Path;

use glommio::LocalExecutor;
use ringkeeper_host::env::{Class, Env, Task};
use ringkeeper_log::Identity;
use ringkeeper_log::frame::LogPosition;
use ringkeeper_log::frame::{AlignedBuf, Meta, encode};
use ringkeeper_log::meta::{MetaStore, PersistedEpochs};
use ringkeeper_log::storage::WriteMode;
use ringkeeper_log::wal::{Options, Wal};
use ringkeeper_runtime::clock::Clock;
use ringkeeper_runtime::glommio::dma::DmaStorage;
use ringkeeper_runtime::glommio::env::GlommioEnv;
use ringkeeper_runtime::reactor::Executor;
use ringkeeper_runtime::reactor::env::ReactorEnv;
use ringkeeper_runtime::reactor::storage::RingStorage;
use ringkeeper_wire::{Epoch, ServerId, Zxid};

fn options(write_mode: WriteMode) -> Options {
    let identity = Identity { owner: [1; 32], salt: 42 };
    Options { segment_size_bytes: 1024 * 1024, write_mode, ..Options::new(identity) }
}

fn frames(mut after: LogPosition, count: usize, payload_len: usize) -> (Vec<AlignedBuf>, LogPosition) {
    let mut frames = Vec::new();
    for _ in 0..count {
        let zxid = if after.zxid == Zxid::ZERO { Zxid((1 << 32) | 1) } else { Zxid(after.zxid.0 + 1) };
        let mut bytes = AlignedBuf::new();
        let meta = Meta { epoch: Epoch(1), first_zxid: zxid, last_zxid: zxid };
        let checksum =
            encode(meta, &vec![7; payload_len], after.checksum, &mut bytes).expect("fitting zxids");
        frames.push(bytes);
        after = LogPosition { zxid, checksum };
    }
    (frames, after)
}

/// Opens the log, counting what is replayed, with its upkeep running beside it.
async fn open<E: Env>(env: &E, storage: &E::Storage, mode: WriteMode) -> (Wal<E::Storage>, u64, E::Task) {
    let mut replayed = 0;
    let (wal, recovered) = Wal::open(storage.clone(), options(mode), |frame| {
        assert!(frame.payload().iter().all(|byte| *byte == 7));
        replayed += 1;
        Ok(())
    })
    .await
    .expect("a sound log");
    assert_eq!(recovered.frames, replayed);
    let upkeep = wal.upkeep();
    let running = env.spawn(Class::Requests, async move { upkeep.run().await.expect("a working disk") });
    (wal, replayed, running)
}

async fn fill_and_reopen<E: Env>(env: E, storage: E::Storage, mode: WriteMode) {
    let (mut wal, replayed, upkeep) = open(&env, &storage, mode).await;
    assert_eq!(replayed, 0);
    for (count, payload_len) in [(1, 10), (100, 1000), (3, 900_000), (1000, 1024), (1, 0)] {
        let (frames, end) = frames(wal.last(), count, payload_len);
        assert_eq!(wal.append(&frames).await.expect("a working disk"), end);
    }
    let last = wal.last();
    upkeep.cancel().await;
    let (mut wal, replayed, upkeep) = open(&env, &storage, mode).await;
    assert_eq!((wal.last(), replayed), (last, 1105));

    let mut reader = wal.read_from(Zxid((1 << 32) | 500)).expect("not purged");
    let mut read = 0;
    while reader.next().await.expect("sound").is_some() {
        read += 1;
    }
    assert_eq!(read, 606);

    let cut = wal.truncate_after(Zxid((1 << 32) | 50)).await.expect("a boundary");
    let (after_cut, end) = frames(cut, 2, 100);
    wal.append(&after_cut).await.expect("a working disk");
    wal.seal().await.expect("a working disk");
    upkeep.cancel().await;
    wal.upkeep().settle().await.expect("a working disk");
    let (wal, replayed, upkeep) = open(&env, &storage, mode).await;
    assert_eq!((wal.last(), replayed), (end, 52));
    upkeep.cancel().await;
}

fn on_glommio(test: impl AsyncFnOnce(GlommioEnv)) {
    LocalExecutor::default().run(async { test(GlommioEnv::new(Clock::start())).await });
}

fn on_reactor(test: impl AsyncFnOnce(ReactorEnv)) {
    Executor::new("files").expect("io_uring").run(async { test(ReactorEnv::new(Clock::start())).await });
}

fn fill_and_reopen_in(folder: &Path, mode: WriteMode) {
    let folders = ["one", "other"].map(|name| folder.join(name));
    folders.iter().for_each(|folder| std::fs::create_dir(folder).expect("a new folder"));
    let [one, other] = folders;
    on_glommio(async |env| {
        let storage = DmaStorage::open(one).await.expect("a writable folder");
        fill_and_reopen(env, storage, mode).await;
    });
    on_reactor(async |env| {
        let storage = RingStorage::open(other).await.expect("a writable folder");
        fill_and_reopen(env, storage, mode).await;
    });
}

#[test]
fn frames_survive_on_a_real_disk() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    fill_and_reopen_in(folder.path(), WriteMode::Synced);
}

#[test]
fn frames_survive_on_a_real_disk_written_through() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    fill_and_reopen_in(folder.path(), WriteMode::Through);
}

#[test]
fn small_writes_go_through_and_large_ones_are_synced() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    fill_and_reopen_in(folder.path(), WriteMode::Adaptive);
}

#[test]
fn frames_survive_in_a_memory_file_system() {
    let Ok(folder) = tempfile::tempdir_in("/dev/shm") else { return };
    fill_and_reopen_in(folder.path(), WriteMode::Synced);
}

#[test]
fn frames_survive_through_the_page_cache() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let storage = DmaStorage::open_buffered(&folder).expect("a folder");
    assert!(!storage.is_direct());
    on_glommio(async |env| fill_and_reopen(env, storage, WriteMode::Synced).await);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let storage = RingStorage::open_buffered(&folder).expect("a folder");
    assert!(!storage.is_direct());
    on_reactor(async |env| fill_and_reopen(env, storage, WriteMode::Synced).await);
}

#[test]
fn epochs_survive_on_a_real_disk() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let promises = PersistedEpochs {
        cluster: 2,
        accepted_epoch: Epoch(3),
        current_epoch: Epoch(3),
        initialized: true,
        ..PersistedEpochs::default()
    };
    on_reactor(async |_| {
        let storage = RingStorage::open(&folder).await.expect("a writable folder");
        let mut store = MetaStore::open(storage.clone(), ServerId(1), 5).await.expect("an empty folder");
        store.promise(promises).await.expect("a working disk");
        let store = MetaStore::open(storage, ServerId(1), 6).await.expect("a folder of ours");
        assert_eq!((store.meta().promises, store.meta().salt), (promises, 5));
    });
}
