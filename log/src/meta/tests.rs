use futures_lite::future::{block_on, poll_once};

use super::*;
use crate::memory::{CrashMode, Effect, Fault, MemoryDisk, OpKind};

const SERVER: u64 = 3;

fn accepted(epoch: u32) -> PersistedEpochs {
    PersistedEpochs { accepted_epoch: Epoch(epoch), ..PersistedEpochs::default() }
}

fn open(disk: &MemoryDisk) -> Result<MetaStore<crate::memory::MemoryStorage>, MetaError> {
    block_on(MetaStore::open(disk.storage(), ServerId(SERVER), 99))
}

#[test]
fn epochs_survive_a_crash() {
    let disk = MemoryDisk::new();
    let mut store = open(&disk).expect("an empty folder");
    let promises = PersistedEpochs {
        cluster: 7,
        fork: 8,
        voters: [0b1110, 0, 0, 1 << 63],
        groups: 0,
        several_addresses: true,
        accepted_epoch: Epoch(5),
        current_epoch: Epoch(4),
        initialized: true,
        end_before_damage: Zxid(9),
        leader: Some(ServerId(2)),
        members: [0b110, 0, 0, 9],
        committed: Zxid(0x4_0000_0007),
        former_epoch: Epoch(3),
        former_members: [0b1010, 0, 0, 5],
        lease_ms: 500,
    };
    block_on(store.promise(accepted(5))).expect("a healthy disk");
    block_on(store.promise(promises)).expect("a healthy disk");
    disk.crash(CrashMode::LoseUnsynced);
    let store = open(&disk).expect("a folder of ours");
    let meta = Meta { server_id: ServerId(SERVER), salt: 99, application: 0, promises };
    assert_eq!(*store.meta(), meta);
}

#[test]
fn whose_folder_it_is_survives_a_crash_beside_the_promises() {
    let disk = MemoryDisk::new();
    let mut store = open(&disk).expect("an empty folder");
    block_on(store.promise(accepted(5))).expect("a healthy disk");
    block_on(store.record_owner(2, [0b1110, 0, 0, 0], 6)).expect("a healthy disk");
    disk.crash(CrashMode::LoseUnsynced);
    let store = open(&disk).expect("a folder of ours");
    let promises = PersistedEpochs { voters: [0b1110, 0, 0, 0], groups: 6, ..accepted(5) };
    assert_eq!(*store.meta(), Meta { server_id: ServerId(SERVER), salt: 99, application: 2, promises });
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
                epoch == Epoch(2) || (epoch == Epoch(1) && !done),
                "{epoch:?} after {halt} operations, seed {seed}"
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
    block_on(disk.storage().create("version-2", WriteMode::Synced)).expect("a healthy disk");
    assert!(matches!(open(&disk), Err(MetaError::ZooKeeperBeside)));

    let disk = MemoryDisk::new();
    open(&disk).expect("an empty folder");
    let refused = block_on(MetaStore::open(disk.storage(), ServerId(SERVER + 1), 99)).err();
    assert!(matches!(refused, Some(MetaError::Foreign(ServerId(SERVER)))));
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
        assert_eq!(store.meta().promises.accepted_epoch, Epoch(0));
        assert_eq!(disk.names(), [NAME], "nothing is left of it");
    }
    assert_eq!(open(&disk.fork()).expect("a folder of ours").meta().promises.accepted_epoch, Epoch(0));
    disk.set_capacity_bytes(None);
    block_on(store.promise(accepted(1))).expect("a healthy disk");
    assert_eq!(open(&disk).expect("a folder of ours").meta().promises.accepted_epoch, Epoch(1));
}

#[test]
fn a_failed_write_is_final() {
    let disk = MemoryDisk::new();
    let mut store = open(&disk).expect("an empty folder");
    let effect = Effect::Fail(io::ErrorKind::Other);
    disk.inject(Fault { kind: OpKind::Sync, prefix: NEW_NAME.into(), skip: 0, times: 1, effect });
    assert!(block_on(store.promise(accepted(1))).is_err());
    assert!(block_on(store.promise(accepted(1))).is_err());
    assert_eq!(store.meta().promises.accepted_epoch, Epoch(0));
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

/// The file of a server alone, as the builds wrote it that knew nothing of voters.
#[test]
fn a_folder_of_version_1_is_read_and_written_as_one_of_today() {
    let golden: [u8; 64] = [
        0x52, 0x4b, 0x4d, 0x45, 0x76, 0x6a, 0xba, 0x51, 0x01, 0x00, 0x40, 0x00, 0x01, 0x00, 0x00,
        0x00, //
        0x01, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0xdc, 0x86, 0x36, 0x63, 0x96, 0x06, 0x09,
        0x13, //
        0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x44, 0xea, 0x60, 0x41, 0xac, 0xb2, 0xbb,
        0x10, //
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    ];
    let mut blocks = vec![0; COPIES * BLOCK_LEN];
    (0..COPIES).for_each(|copy| put(&mut blocks, copy * BLOCK_LEN, golden));
    let disk = MemoryDisk::new();
    block_on(async {
        let file = disk.storage().create(NAME, WriteMode::Synced).await.expect("a healthy disk");
        let mut buffer = file.buffer(blocks.len());
        let bytes: &mut [u8] = buffer.as_mut();
        bytes.copy_from_slice(&blocks);
        file.write_at(buffer, 0).await.expect("written");
        file.datasync().await.expect("synced");
    });
    let mut store = block_on(MetaStore::open(disk.storage(), ServerId(1), 0)).expect("a folder of ours");
    let promises = PersistedEpochs {
        cluster: 0x1309_0696_6336_86dc,
        accepted_epoch: Epoch(1),
        current_epoch: Epoch(1),
        initialized: true,
        ..PersistedEpochs::default()
    };
    assert_eq!(
        *store.meta(),
        Meta { server_id: ServerId(1), salt: 0x10bb_b2ac_4160_ea44, application: 0, promises }
    );
    let promises = PersistedEpochs { voters: [0b10, 0, 0, 0], ..promises };
    block_on(store.promise(promises)).expect("a healthy disk");
    let store = block_on(MetaStore::open(disk.storage(), ServerId(1), 0)).expect("a folder of ours");
    assert_eq!(store.meta().promises, promises);
}

#[test]
fn a_folder_of_version_2_says_nothing_of_what_came_after_it() {
    let voters = [0b1110, 0, 0, 1];
    let promises =
        PersistedEpochs { voters, accepted_epoch: Epoch(4), initialized: true, ..PersistedEpochs::default() };
    let meta = Meta { server_id: ServerId(3), salt: 7, application: 0, promises };
    let mut bytes = [0; BLOCK_LEN];
    put(&mut bytes, 0, meta.encode());
    bytes[LEN_OF_VERSION_2..].fill(0);
    put(&mut bytes, VERSION_AT, 2u16.to_le_bytes());
    put(&mut bytes, LEN_AT, 96u16.to_le_bytes());
    let checksum = crc32c::crc32c(&bytes[COVERED_AT..LEN_OF_VERSION_2]);
    put(&mut bytes, CHECKSUM_AT, checksum.to_le_bytes());
    assert_eq!(Meta::decode(&bytes).expect("of version 2"), meta);
}

/// Each build before knows one less of these versions: it goes on with a folder that has nothing it does not
/// know, and refuses the others.
#[test]
fn a_folder_is_of_the_version_of_what_there_is_about_its_members() {
    let disk = MemoryDisk::new();
    let mut store = open(&disk).expect("an empty folder");
    let without = Meta { promises: accepted(5), ..*store.meta() };
    for (groups, several_addresses) in [(0, false), (6, false), (6, true), (0, true), (0, false)] {
        let promises = PersistedEpochs { groups, several_addresses, ..without.promises };
        block_on(store.promise(promises)).expect("a healthy disk");
        assert_eq!(open(&disk).expect("a folder of ours").meta().promises, promises);
        let bytes = Meta { promises, ..without }.encode();
        let (version, len) = match (groups, several_addresses) {
            (0, false) => (4, 184),
            (_, false) => (5, 192),
            (_, true) => (6, 192),
        };
        assert_eq!((u16_at(&bytes, VERSION_AT), usize::from(u16_at(&bytes, LEN_AT))), (version, len));
        assert_eq!(u32_at(&bytes, CHECKSUM_AT), crc32c::crc32c(&bytes[COVERED_AT..len]));
        assert!(bytes[len..].iter().all(|byte| *byte == 0), "the file is as before behind its end");
    }
}

#[test]
fn a_later_version_is_named() {
    let disk = MemoryDisk::new();
    let meta = *open(&disk).expect("an empty folder").meta();
    let mut bytes = [0; BLOCK_LEN];
    put(&mut bytes, 0, meta.encode());
    put(&mut bytes, VERSION_AT, 4u16.to_le_bytes());
    put(&mut bytes, LEN_AT, 160u16.to_le_bytes());
    let checksum = crc32c::crc32c(&bytes[COVERED_AT..160]);
    put(&mut bytes, CHECKSUM_AT, checksum.to_le_bytes());
    assert!(matches!(Meta::decode(&bytes), Err(MetaError::Version(4))));
}
