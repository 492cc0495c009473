use futures_lite::future::block_on;

use super::*;
use crate::frame::Checksum;
use crate::frame::LogPosition;
use crate::memory::{CrashMode, MemoryDisk, MemoryStorage};
use crate::storage::Storage;

const HEAD: Head = Head { zxid: Zxid(0x2_0000_0007), chain: Checksum(99), cluster: 5, state_version: 1 };
const LAST: LogPosition = LogPosition { zxid: HEAD.zxid, checksum: HEAD.chain };
const SENDER: ServerId = ServerId(3);
const CONTENTS: Contents = Contents { items: 3, digest: 0xabcd };

fn snapshots(disk: &MemoryDisk) -> Snapshots<MemoryStorage> {
    Snapshots::new(disk.storage())
}

fn payloads() -> Vec<Vec<u8>> {
    [0_usize, 1, 16, 4080, 300_000, 5].iter().map(|&len| (0..=255).cycle().take(len).collect()).collect()
}

async fn write(disk: &MemoryDisk, head: Head, payloads: &[Vec<u8>]) -> u64 {
    fill(snapshots(disk).begin(head).await.expect("a healthy disk"), payloads).await
}

async fn write_compressed(disk: &MemoryDisk, payloads: &[Vec<u8>]) -> u64 {
    fill(snapshots(disk).begin_compressed(HEAD).await.expect("a healthy disk"), payloads).await
}

async fn fill(mut writer: SnapshotWriter<MemoryStorage>, payloads: &[Vec<u8>]) -> u64 {
    for payload in payloads {
        writer.block(payload).await.expect("a healthy disk");
    }
    writer.finish(CONTENTS).await.expect("a healthy disk")
}

async fn read(disk: &MemoryDisk, zxid: Zxid) -> Result<Vec<Vec<u8>>, SnapshotError> {
    let mut reader = snapshots(disk).open(zxid).await?;
    let mut payloads = Vec::new();
    while let Some(payload) = reader.next().await? {
        assert!(payload.is_empty() || payload.as_ptr().addr().is_multiple_of(16));
        payloads.push(payload.to_vec());
    }
    Ok(payloads)
}

#[test]
fn blocks_come_out_as_they_went_in() {
    block_on(async {
        for payloads in [payloads(), Vec::new()] {
            let disk = MemoryDisk::new();
            let len = write(&disk, HEAD, &payloads).await;
            assert_eq!(disk.contents(&file_name(HEAD.zxid)).expect("is there").len() as u64, len);
            let reader = snapshots(&disk).open(HEAD.zxid).await.expect("sound");
            assert_eq!((*reader.head(), reader.contents()), (HEAD, CONTENTS));
            assert_eq!(read(&disk, HEAD.zxid).await.expect("sound"), payloads);
        }
    });
}

#[test]
fn compressed_blocks_come_out_as_they_went_in_and_take_less() {
    block_on(async {
        let (plain, packed) = (MemoryDisk::new(), MemoryDisk::new());
        let mut payloads = payloads();
        // What nothing is gained by is left as it is.
        payloads.push((0..5000_u32).map(|at| crc32c::crc32c(&at.to_le_bytes()).to_le_bytes()[1]).collect());
        let len = write(&plain, HEAD, &payloads).await;
        let packed_len = write_compressed(&packed, &payloads).await;
        assert!(packed_len * 4 < len, "{packed_len} of {len} bytes");
        assert_eq!(read(&packed, HEAD.zxid).await.expect("sound"), payloads);
    });
}

#[test]
fn every_flipped_bit_is_found_in_compressed_snapshots_and_in_others() {
    block_on(async {
        for compressed in [false, true] {
            let disk = MemoryDisk::new();
            let name = file_name(HEAD.zxid);
            let payloads: Vec<_> = [100_usize, 7, 5000].map(|len| vec![0x5a; len]).to_vec();
            let len = if compressed {
                write_compressed(&disk, &payloads).await
            } else {
                write(&disk, HEAD, &payloads).await
            };
            disk.crash(CrashMode::KeepAll);
            for offset in 0..len {
                // One bit of each byte, each of the eight in its turn.
                let mask = 1 << (offset % 8);
                assert!(disk.rot(&name, offset, mask));
                let error = read(&disk, HEAD.zxid).await.expect_err("a flipped bit");
                assert!(error.is_damage(), "offset {offset}, compressed: {compressed}: {error}");
                assert!(disk.rot(&name, offset, mask));
            }
            assert_eq!(read(&disk, HEAD.zxid).await.expect("sound again"), payloads);
        }
    });
}

#[test]
fn a_file_that_was_cut_short_is_found() {
    block_on(async {
        let disk = MemoryDisk::new();
        write(&disk, HEAD, &payloads()).await;
        let whole = disk.contents(&file_name(HEAD.zxid)).expect("is there");
        for blocks in 0..whole.len() / 4096 {
            let cut = MemoryDisk::new();
            let mut incoming = snapshots(&cut).receive(SENDER, LAST).await.expect("a healthy disk");
            incoming.piece(0, &whole[..blocks * 4096]).await.expect("a healthy disk");
            let error = incoming.finish(HEAD.zxid, |_| true).await.expect_err("cut short");
            assert!(error.is_damage(), "{blocks} blocks: {error}");
            assert_eq!(cut.storage().list().await.expect("a healthy disk"), Vec::<String>::new());
        }
    });
}

#[test]
fn lengths_that_are_too_great_take_no_memory() {
    block_on(async {
        let footer = layout::Footer {
            zxid: HEAD.zxid,
            blocks: u32::MAX,
            index_at: 4096,
            contents: CONTENTS,
            header_checksum: HEAD.encode(false).1,
            index_checksum: 0,
        };
        let mut bytes = HEAD.encode(false).0.to_vec();
        bytes.resize(2 * 4096 - layout::FOOTER_LEN, 0);
        bytes.extend_from_slice(&footer.encode());
        let disk = MemoryDisk::new();
        let mut incoming = snapshots(&disk).receive(SENDER, LAST).await.expect("a healthy disk");
        incoming.piece(0, &bytes).await.expect("a healthy disk");
        let error = incoming.finish(HEAD.zxid, |_| true).await.expect_err("an index of 64 GiB");
        assert!(error.to_string().contains("the index does not end at the footer"), "{error}");
    });
}

#[test]
fn what_is_sent_is_what_is_received() {
    block_on(async {
        let (from, to) = (MemoryDisk::new(), MemoryDisk::new());
        write(&from, HEAD, &payloads()).await;
        let mut outgoing = snapshots(&from).send(HEAD.zxid).await.expect("is there");
        let mut incoming = snapshots(&to).receive(SENDER, LAST).await.expect("a healthy disk");
        let len = outgoing.len();
        loop {
            let offset = outgoing.offset();
            let Some(piece) = outgoing.next(256 * 1024).await.expect("a healthy disk") else { break };
            assert!(incoming.piece(offset + 4096, &piece).await.is_err(), "a hole");
            incoming.piece(offset, &piece).await.expect("a healthy disk");
        }
        assert_eq!(incoming.len(), len);
        assert_eq!(incoming.finish(HEAD.zxid, |head| head.cluster == 5).await.expect("sound"), HEAD);
        let store = snapshots(&to);
        assert_eq!(store.list().await.expect("a healthy disk"), []);
        store.settle(LogPosition { zxid: HEAD.zxid, checksum: HEAD.chain }).await.expect("a healthy disk");
        assert_eq!(read(&to, HEAD.zxid).await.expect("sound"), payloads());
    });
}

#[test]
fn the_oldest_go_first_and_the_newest_are_kept() {
    block_on(async {
        let disk = MemoryDisk::new();
        for zxid in [9, 3, 7, 5].map(Zxid) {
            write(&disk, Head { zxid, ..HEAD }, &[]).await;
        }
        let store = snapshots(&disk);
        assert_eq!(store.list().await.expect("a healthy disk"), [9, 7, 5, 3].map(Zxid));
        assert_eq!(store.retain(5).await.expect("a healthy disk"), None);
        assert_eq!(store.retain(2).await.expect("a healthy disk"), Some(Zxid(7)));
        assert_eq!(store.list().await.expect("a healthy disk"), [9, 7].map(Zxid));
        assert_eq!(
            store.retain(0).await.expect("a healthy disk"),
            Some(Zxid(9)),
            "the newest is never removed"
        );
    });
}

#[test]
fn a_snapshot_that_somebody_else_has_removed_is_removed() {
    block_on(async {
        let disk = MemoryDisk::new();
        write(&disk, HEAD, &payloads()).await;
        for _ in 0..2 {
            snapshots(&disk).remove(HEAD.zxid).await.expect("a healthy disk");
            assert_eq!(snapshots(&disk).list().await.expect("a healthy disk"), []);
        }
    });
}

#[test]
fn names_of_other_files_are_no_snapshots() {
    assert_eq!(zxid_of("snapshot.0000000200000007"), Some(Zxid(0x2_0000_0007)));
    for name in ["snapshot.new", "snapshot.7", "snapshot.+000000200000007", "log.0000000200000007"] {
        assert_eq!(zxid_of(name), None, "{name}");
    }
}

/// Receives what is missing of a snapshot and comes before `until`, in pieces of a block; where that began.
async fn receive_until(disk: &MemoryDisk, bytes: &[u8], until: usize) -> (usize, Incoming<MemoryStorage>) {
    let mut incoming = snapshots(disk).receive(SENDER, LAST).await.expect("a healthy disk");
    let begun = usize::try_from(incoming.len()).expect("short");
    for offset in (begun..until).step_by(4096) {
        incoming.piece(offset as u64, &bytes[offset..offset + 4096]).await.expect("a healthy disk");
    }
    (begun, incoming)
}

/// It was removed by a start, and the transfer began anew: who was restarted again and again never had it.
#[test]
fn a_transfer_that_a_restart_broke_off_goes_on_behind_what_is_sound() {
    block_on(async {
        let sender = MemoryDisk::new();
        write(&sender, HEAD, &payloads()).await;
        let bytes = sender.contents(&file_name(HEAD.zxid)).expect("is there");
        let end_of_block = 4096 + 5 * 16 + 32 + 4080 + 300_000;
        for (until, kept) in
            [(4096, 4096), (8192, 4096), (12_288, 8192), (bytes.len(), end_of_block / 4096 * 4096)]
        {
            for damaged in [false, true] {
                let disk = MemoryDisk::new();
                receive_until(&disk, &bytes, until).await;
                disk.crash(CrashMode::KeepAll);
                snapshots(&disk).settle(LogPosition::default()).await.expect("a healthy disk");
                let part = part_name(HEAD.zxid, SENDER);
                if damaged && until > 8192 {
                    assert!(disk.rot(&part, 4096 + 20, 1));
                }
                let (begun, incoming) = receive_until(&disk, &bytes, bytes.len()).await;
                let expected = if damaged && until > 8192 { 4096 } else { kept };
                assert_eq!(begun, expected, "of {until} bytes, damaged: {damaged}");
                incoming.finish(HEAD.zxid, |_| true).await.expect("sound");
                snapshots(&disk).install(HEAD.zxid).await.expect("a healthy disk");
                assert_eq!(read(&disk, HEAD.zxid).await.expect("sound"), payloads());
            }
        }
    });
}

#[test]
fn a_part_of_another_snapshot_or_of_another_server_is_not_gone_on_with() {
    block_on(async {
        let sender = MemoryDisk::new();
        write(&sender, HEAD, &payloads()).await;
        let bytes = sender.contents(&file_name(HEAD.zxid)).expect("is there");
        let later = LogPosition { zxid: Zxid(HEAD.zxid.0 + 1), ..LAST };
        let other = LogPosition { checksum: Checksum(98), ..LAST };
        for (from, last) in [(SENDER, later), (SENDER, other), (ServerId(4), LAST)] {
            let disk = MemoryDisk::new();
            receive_until(&disk, &bytes, 8192).await;
            assert!(snapshots(&disk).receive(from, last).await.expect("a healthy disk").is_empty());
            let names = disk.storage().list().await.expect("a healthy disk");
            assert_eq!(names, [part_name(last.zxid, from)]);
        }
    });
}

#[test]
fn a_part_goes_when_a_snapshot_or_the_log_is_past_it() {
    block_on(async {
        let bytes = HEAD.encode(false).0;
        for settles in [true, false] {
            let disk = MemoryDisk::new();
            receive_until(&disk, &bytes, 4096).await;
            if settles {
                snapshots(&disk).settle(LAST).await.expect("a healthy disk");
            } else {
                write(&disk, Head { zxid: Zxid(HEAD.zxid.0 + 1), ..HEAD }, &[]).await;
                snapshots(&disk).retain(1).await.expect("a healthy disk");
            }
            let names = disk.storage().list().await.expect("a healthy disk");
            assert!(!names.iter().any(|name| name.starts_with(PART)), "{names:?}");
        }
    });
}
