//! One flipped bit in each block of everything that a lone server has.

use std::fmt::Write;
use std::rc::Rc;
use std::sync::Arc;

use ringkeeper_engine::acl::Acl;
use ringkeeper_engine::snapshot::Encoder;
use ringkeeper_engine::txn::{Create, Txn, TxnOp, Update, encode_batch};
use ringkeeper_log::error::OpenError;
use ringkeeper_log::frame::{AlignedBuf, Meta as BatchMeta, encode};
use ringkeeper_log::memory::{CrashMode, MemoryDisk, MemoryStorage};
use ringkeeper_log::meta::MetaStore;
use ringkeeper_log::snapshot::{Contents, file_name};
use ringkeeper_log::storage::BLOCK_LEN;
use ringkeeper_log::wal::Options;
use ringkeeper_runtime::reactor::Executor;
use ringkeeper_wire::{Epoch, ServerId, SessionId, Xid, Zxid};
use rkyv::util::AlignedVec;

use super::*;

const SEED: u64 = 7;
const CLUSTER: u64 = 9;
const EPOCH: u32 = 1;

/// What a server starts with, or why it does not.
enum Start {
    Serves { zxid: Zxid, digest: u64 },
    Refuses(String),
}

async fn options(disk: &MemoryDisk) -> Options {
    let meta = MetaStore::open(disk.storage(), ServerId(1), SEED).await.expect("a sound folder");
    Options { segment_size_bytes: 64 * 1024, ..Options::new(meta.meta().identity()) }
}

fn creates(number: u32, last: Zxid) -> Txn {
    let mut path = String::from("/n");
    write!(path, "{number}").expect("a string takes everything");
    let create = Create {
        path: path.into(),
        data: Some(vec![u8::try_from(number % 251).expect("less than 251"); 700].into()),
        acl: Acl::OPEN,
        raw_owner: 0,
        parent_cversion: i32::try_from(number).expect("few"),
        reply_with_stat: false,
    };
    let zxid = if last.0 == 0 { Zxid(u64::from(EPOCH) << 32 | 1) } else { Zxid(last.0 + 1) };
    let op = TxnOp::Update(Update::Create(create));
    Txn { zxid, session: SessionId(1), xid: Xid(1), time_ms: i64::from(number), op }
}

async fn append(wal: &mut Wal<MemoryStorage>, state: &mut State, numbers: std::ops::Range<u32>) {
    let mut txns = Vec::new();
    for number in numbers {
        let txn = creates(number, state.last_zxid());
        state.apply(&txn);
        txns.push(txn);
    }
    let (Some(first), Some(last)) = (txns.first(), txns.last()) else { return };
    let mut payload = AlignedVec::new();
    encode_batch(&txns, &mut payload);
    let meta = BatchMeta { epoch: Epoch(EPOCH), first_zxid: first.zxid, last_zxid: last.zxid };
    let mut frame = AlignedBuf::new();
    encode(meta, &payload, wal.last().checksum, &mut frame).expect("zxids fit");
    wal.append(&[frame]).await.expect("a healthy disk");
}

async fn take(snapshots: &Snapshots<MemoryStorage>, wal: &Wal<MemoryStorage>, state: &State) {
    let last = wal.last();
    let head = Head { zxid: last.zxid, chain: last.checksum, cluster: CLUSTER, state_version: STATE_VERSION };
    let mut encoder = Encoder::new(Arc::new(state.clone()));
    let contents = encoder.contents();
    let mut writer = snapshots.begin(head).await.expect("a healthy disk");
    let mut block = AlignedVec::new();
    while encoder.next(&mut block) {
        writer.block(&block).await.expect("a healthy disk");
    }
    let contents = Contents { items: contents.znodes, digest: contents.digest };
    writer.finish(contents).await.expect("a healthy disk");
}

/// 300 znodes in batches of 1 to 4, two snapshots on the way, stopped cleanly.
async fn served(purged: bool) -> (MemoryDisk, State) {
    let disk = MemoryDisk::new();
    let (mut wal, _) =
        Wal::open(disk.storage(), options(&disk).await, |_| Ok(())).await.expect("an empty folder");
    let snapshots = Snapshots::new(disk.storage());
    let mut state = State::new(SEED);
    let mut number = 0;
    while number < 300 {
        let next = number + 1 + number % 4;
        append(&mut wal, &mut state, number..next).await;
        if (number / 100) != (next / 100) && next < 300 {
            take(&snapshots, &wal, &state).await;
        }
        number = next;
    }
    if purged {
        let oldest = snapshots.list().await.expect("a healthy disk").pop().expect("two");
        assert!(wal.purge_before(oldest) > 0);
        wal.upkeep().settle().await.expect("a healthy disk");
    }
    wal.seal().await.expect("a healthy disk");
    drop(wal);
    disk.crash(CrashMode::LoseUnsynced);
    (disk, state)
}

async fn start(disk: &MemoryDisk) -> Start {
    let snapshots = Snapshots::new(disk.storage());
    let (wal, _) = match Wal::open(disk.storage(), options(disk).await, |_| Ok(())).await {
        Ok(opened) => opened,
        Err(error @ OpenError::Corrupt(_)) => return Start::Refuses(error.to_string()),
        Err(error) => panic!("{error}"),
    };
    snapshots.settle(wal.base()).await.expect("a healthy disk");
    let env = ReactorEnv::new(Clock::start());
    match restore::restore(&env, &TreeFormat { seed: SEED }, &snapshots, &wal, CLUSTER).await {
        Ok(restored) => Start::Serves { zxid: restored.state.last_zxid(), digest: restored.state.digest() },
        Err(error) => Start::Refuses(error.to_string()),
    }
}

/// What became of the runs with one flipped bit each.
#[derive(Debug, Default)]
struct Runs {
    unharmed: u32,
    passed_over: u32,
    refused: u32,
}

async fn flip_each_block(purged: bool) -> Runs {
    let (disk, state) = served(purged).await;
    let mut names = disk.storage().list().await.expect("a healthy disk");
    names.retain(|name| name.starts_with("log.") || name.starts_with("snapshot."));
    names.sort_unstable();
    let mut runs = Runs::default();
    for name in names {
        let blocks = disk.contents(&name).expect("listed").len() / BLOCK_LEN;
        for block in 0..blocks {
            // Another byte and another bit in each block; what is in front, too, where headers are.
            for at in [block * 1031 % BLOCK_LEN, block * 11 % 64] {
                let harmed = disk.fork();
                assert!(harmed.rot(&name, (block * BLOCK_LEN + at) as u64, 1 << (block % 8)));
                run(&harmed, &name, &state, &mut runs).await;
            }
        }
    }
    runs
}

async fn run(harmed: &MemoryDisk, name: &str, state: &State, runs: &mut Runs) {
    match start(harmed).await {
        Start::Serves { zxid, digest } => {
            assert_eq!((zxid, digest), (state.last_zxid(), state.digest()), "{name}: something is lost");
            let is_there = harmed.contents(name).is_some();
            *(if is_there { &mut runs.unharmed } else { &mut runs.passed_over }) += 1;
        }
        Start::Refuses(why) => {
            assert!(why.contains(name) && why.contains("at offset"), "{name}: {why}");
            runs.refused += 1;
        }
    }
}

fn on_an_executor<T: 'static>(test: impl Future<Output = T> + 'static) -> T {
    Executor::new("test").expect("io_uring").run(test)
}

#[test]
fn a_flipped_bit_in_any_block_of_a_lone_server_loses_nothing_or_is_refused_by_its_place() {
    let runs = on_an_executor(flip_each_block(false));
    println!("log from its beginning and two snapshots: {runs:?}");
    assert!(runs.refused > 50 && runs.passed_over > 50, "{runs:?}");
}

#[test]
fn the_same_holds_for_a_log_that_was_purged() {
    let runs = on_an_executor(flip_each_block(true));
    println!("purged log and two snapshots: {runs:?}");
    assert!(runs.refused > 50 && runs.passed_over > 50, "{runs:?}");
}

#[test]
fn without_a_sound_snapshot_a_purged_log_is_refused_by_the_place_of_the_damage() {
    on_an_executor(async {
        let (disk, _) = served(true).await;
        let snapshots = Rc::new(Snapshots::new(disk.storage()));
        for zxid in snapshots.list().await.expect("a healthy disk") {
            assert!(disk.rot(&file_name(zxid), 2 * BLOCK_LEN as u64 + 5, 1));
        }
        let newest = file_name(snapshots.list().await.expect("a healthy disk")[0]);
        let Start::Refuses(why) = start(&disk).await else { panic!("there is no state") };
        assert!(why.contains(&newest) && why.contains("at offset"), "{why}");
        assert_eq!(snapshots.list().await.expect("a healthy disk").len(), 2, "nothing is removed");
    });
}
