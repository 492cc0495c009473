use futures_lite::future::{block_on, poll_once};

use super::*;
use crate::memory::{CrashMode, Effect, Fault, MemoryDisk, OpKind};

const SERVER: u64 = 3;

fn accepted(epoch: u32) -> Promises {
    Promises { accepted_epoch: epoch, ..Promises::default() }
}

fn open(disk: &MemoryDisk) -> Result<MetaStore<crate::memory::MemoryStorage>, MetaError> {
    block_on(MetaStore::open(disk.storage(), SERVER, 99))
}

#[test]
fn epochs_survive_a_crash() {
    let disk = MemoryDisk::new();
    let mut store = open(&disk).expect("an empty folder");
    let promises = Promises { cluster: 7, accepted_epoch: 5, current_epoch: 4, initialized: true, claim: 9 };
    block_on(store.promise(accepted(5))).expect("a healthy disk");
    block_on(store.promise(promises)).expect("a healthy disk");
    disk.crash(CrashMode::LoseUnsynced);
    let store = open(&disk).expect("a folder of ours");
    assert_eq!(*store.meta(), Meta { server_id: SERVER, salt: 99, promises });
}

#[test]
fn a_crash_at_any_step_leaves_the_old_epoch_or_the_new_one() {
    for halt in 0.. {
        let disk = MemoryDisk::new();
        let mut store = open(&disk).expect("an empty folder");
        block_on(store.promise(accepted(1))).expect("a healthy disk");
        disk.halt_after(halt);
        let done = block_on(poll_once(store.promise(accepted(2)))).is_some();
        for seed in 0..20 {
            let disk = disk.fork();
            disk.crash(CrashMode::Tear { seed });
            let epoch = open(&disk).expect("a folder of ours").meta().promises.accepted_epoch;
            assert!(
                epoch == 2 || (epoch == 1 && !done),
                "epoch {epoch} after {halt} operations, seed {seed}"
            );
        }
        if done {
            assert!(halt >= 4, "writing, syncing, renaming and syncing the folder are four operations");
            return;
        }
    }
}

#[test]
fn folders_of_others_are_refused_by_name() {
    let disk = MemoryDisk::new();
    block_on(disk.storage().create("version-2", WriteMode::Synced)).expect("a healthy disk");
    assert!(matches!(open(&disk), Err(MetaError::ZooKeeper)));

    let disk = MemoryDisk::new();
    open(&disk).expect("an empty folder");
    let refused = block_on(MetaStore::open(disk.storage(), SERVER + 1, 99)).err();
    assert!(matches!(refused, Some(MetaError::Foreign(SERVER))));
}

#[test]
fn a_log_without_its_meta_file_is_refused() {
    let disk = MemoryDisk::new();
    block_on(disk.storage().create("log.0000000000000001", WriteMode::Synced)).expect("a healthy disk");
    assert!(matches!(open(&disk), Err(MetaError::Missing { .. })));
}

#[test]
fn one_damaged_copy_is_restored_from_the_other() {
    for damaged in [0, BLOCK_LEN as u64] {
        let disk = MemoryDisk::new();
        let meta = *open(&disk).expect("an empty folder").meta();
        let written = disk.contents(NAME);
        assert!(disk.rot(NAME, damaged + 13, 1));
        assert_eq!(*open(&disk).expect("a folder of ours").meta(), meta);
        disk.crash(CrashMode::LoseUnsynced);
        assert_eq!(disk.contents(NAME), written);
    }
}

#[test]
fn two_damaged_copies_are_refused() {
    let disk = MemoryDisk::new();
    open(&disk).expect("an empty folder");
    assert!(disk.rot(NAME, 13, 1));
    assert!(disk.rot(NAME, BLOCK_LEN as u64 + 13, 1));
    assert!(matches!(open(&disk), Err(MetaError::Corrupt)));
}

#[test]
fn a_promise_that_finds_no_room_is_not_made_and_can_be_made_later() {
    let disk = MemoryDisk::new();
    let mut store = open(&disk).expect("an empty folder");
    for room in [0, BLOCK_LEN as u64] {
        disk.set_capacity_bytes(Some(disk.used_bytes() + room));
        let refused = block_on(store.promise(accepted(1))).expect_err("there is no room");
        assert!(refused.is_no_space(), "{refused}");
        assert_eq!(store.meta().promises.accepted_epoch, 0);
        assert_eq!(disk.names(), [NAME], "nothing is left of it");
    }
    assert_eq!(open(&disk.fork()).expect("a folder of ours").meta().promises.accepted_epoch, 0);
    disk.set_capacity_bytes(None);
    block_on(store.promise(accepted(1))).expect("a healthy disk");
    assert_eq!(open(&disk).expect("a folder of ours").meta().promises.accepted_epoch, 1);
}

#[test]
fn a_failed_write_is_final() {
    let disk = MemoryDisk::new();
    let mut store = open(&disk).expect("an empty folder");
    let effect = Effect::Fail(io::ErrorKind::Other);
    disk.inject(Fault { kind: OpKind::Sync, prefix: NEW_NAME.into(), skip: 0, times: 1, effect });
    assert!(block_on(store.promise(accepted(1))).is_err());
    assert!(block_on(store.promise(accepted(1))).is_err());
    assert_eq!(store.meta().promises.accepted_epoch, 0);
}

#[test]
fn peeking_tells_whose_folder_it_is_and_makes_none() {
    let disk = MemoryDisk::new();
    let peek = || block_on(MetaStore::peek(&disk.storage())).expect("a healthy disk");
    assert_eq!(peek(), None);
    assert_eq!(peek(), None, "the first look has made nothing");
    let store = open(&disk).expect("an empty folder");
    assert_eq!(peek(), Some(*store.meta()));
}
