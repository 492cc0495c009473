use futures_lite::future::block_on;

use super::*;
use crate::storage::BLOCK_LEN;

async fn file(disk: &MemoryDisk) -> MemoryFile {
    disk.storage().create("a", WriteMode::Synced).await.expect("a healthy disk")
}

async fn write(file: &MemoryFile, block: u64, value: u8) {
    let mut buffer = file.buffer(BLOCK_LEN);
    buffer.fill(value);
    file.write_at(buffer, block * BLOCK).await.expect("it says that it has worked");
}

fn strike(disk: &MemoryDisk, kind: OpKind, effect: Effect) {
    disk.inject(Fault { kind, prefix: String::new(), skip: 0, times: 1, effect });
}

/// The first byte of each block.
fn seen(disk: &MemoryDisk) -> Vec<u8> {
    let contents = disk.contents("a").unwrap_or_default();
    contents.chunks(BLOCK_LEN).map(|block| block[0]).collect()
}

#[test]
fn a_lost_write_leaves_everything_as_it_was() {
    block_on(async {
        let disk = MemoryDisk::new();
        let file = file(&disk).await;
        write(&file, 0, 1).await;
        strike(&disk, OpKind::Write, Effect::Ignore);
        write(&file, 0, 2).await;
        assert_eq!((seen(&disk), disk.struck()), (vec![1], 1));
    });
}

#[test]
fn a_misdirected_write_lands_elsewhere_in_its_file() {
    block_on(async {
        let disk = MemoryDisk::new();
        let file = file(&disk).await;
        for block in 0..4 {
            write(&file, block, 1).await;
        }
        strike(&disk, OpKind::Write, Effect::Misdirect { blocks: 3 });
        write(&file, 2, 2).await;
        assert_eq!(seen(&disk), [1, 2, 1, 1]);
    });
}

#[test]
fn what_a_failed_sync_gave_up_is_never_written() {
    for cached in [true, false] {
        block_on(async {
            let disk = MemoryDisk::new();
            let file = file(&disk).await;
            disk.storage().sync_dir().await.expect("a healthy disk");
            write(&file, 0, 1).await;
            file.datasync().await.expect("a healthy disk");
            write(&file, 0, 2).await;
            strike(&disk, OpKind::Sync, Effect::Drop { cached });
            file.datasync().await.expect_err("it fails");
            file.datasync().await.expect("it says that it has worked");
            assert_eq!(seen(&disk), [if cached { 2 } else { 1 }]);
            write(&file, 1, 3).await;
            file.datasync().await.expect("a healthy disk");
            disk.crash(CrashMode::KeepAll);
            assert_eq!(seen(&disk), [1, 3]);
        });
    }
}

#[test]
fn names_that_were_not_synced_are_lost() {
    block_on(async {
        let disk = MemoryDisk::new();
        let file = file(&disk).await;
        write(&file, 0, 1).await;
        file.datasync().await.expect("a healthy disk");
        let left = disk.fork();
        left.crash(CrashMode::LoseUnsynced);
        assert_eq!(left.names(), Vec::<String>::new());
        disk.storage().rename("a", "b").await.expect("a healthy disk");
        disk.crash_with(|unit| matches!(unit, Unit::Name("a")));
        assert_eq!(disk.names(), ["b"], "the creation and the renaming");
    });
}

#[test]
fn the_end_of_a_process_loses_nothing_and_makes_nothing_durable() {
    block_on(async {
        let disk = MemoryDisk::new();
        let file = file(&disk).await;
        write(&file, 0, 1).await;
        disk.end_process();
        file.datasync().await.expect_err("cut off");
        assert_eq!(seen(&disk), [1]);
        disk.crash(CrashMode::LoseUnsynced);
        assert_eq!(disk.names(), Vec::<String>::new());
    });
}

#[test]
fn an_older_write_does_not_come_back_over_a_newer_one_that_is_durable() {
    block_on(async {
        let disk = MemoryDisk::new();
        let older = file(&disk).await;
        disk.storage().sync_dir().await.expect("a healthy disk");
        let mut buffer = older.buffer(3 * BLOCK_LEN);
        buffer.fill(1);
        older.write_at(buffer, 0).await.expect("a healthy disk");
        let newer = disk.storage().open("a", WriteMode::Through).await.expect("it is there");
        write(&newer, 1, 2).await;
        disk.crash(CrashMode::KeepAll);
        assert_eq!(seen(&disk), [1, 2, 1]);
    });
}
