//! Damaged folders: an error that names the place, never a panic, never much memory.

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use ringkeeper_apache::snapshot::{self, Packing};
use ringkeeper_apache::txnlog::TxnLog;
use ringkeeper_apache::{Folder, LoadError, Note, load};

use crate::fixture::Fixture;

fn refusal(folder: &Path) -> LoadError {
    load(&Folder::open(folder, None).expect("a data folder")).expect_err("damaged")
}

#[test]
fn folders_of_somebody_else_are_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let error = Folder::open(&folder.path().join("missing"), None).expect_err("missing").to_string();
    assert!(error.ends_with("missing: there is no such folder"), "{error}");
    let error = Folder::open(folder.path(), None).expect_err("empty").to_string();
    assert!(error.contains("not a data folder of Apache ZooKeeper"), "{error}");
    fs::create_dir(folder.path().join("version-2")).expect("made");
    let error = refusal(folder.path()).to_string();
    assert!(error.ends_with("version-2 holds no snapshot and no log"), "{error}");
}

#[test]
fn logs_without_a_snapshot_have_to_begin_with_the_first_transaction() {
    let fixture = Fixture::unpack("zookeeper-3.9");
    fixture.files("snapshot.").iter().for_each(|file| fs::remove_file(file).expect("removed"));
    let error = refusal(fixture.path()).to_string();
    assert!(error.contains("its logs do not reach back to the first transaction"), "{error}");
}

#[test]
fn damaged_snapshots_alone_are_refused_and_the_newest_is_named() {
    let fixture = Fixture::unpack("zookeeper-3.9");
    let files = fixture.files("snapshot.");
    files.iter().for_each(|file| fs::write(file, b"ZKSN").expect("written"));
    let LoadError::NoSoundSnapshot { count, newest, .. } = refusal(fixture.path()) else {
        panic!("another refusal")
    };
    assert_eq!((count, &newest.file), (2, &files[1]));
    assert!(newest.to_string().ends_with("the file ends too early at byte 4"), "{newest}");
}

#[test]
fn a_changed_transaction_is_an_error_with_its_place() {
    let fixture = Fixture::unpack("zookeeper-3.9");
    let log = fixture.files("log.").pop().expect("there are logs");
    let mut bytes = fs::read(&log).expect("readable");
    // Behind the file's header, and the record's checksum and length.
    bytes[16 + 12 + 20] ^= 1;
    fs::write(&log, bytes).expect("written");
    let LoadError::Read(error) = refusal(fixture.path()) else { panic!("another refusal") };
    assert_eq!((error.file.as_path(), error.offset), (log.as_path(), 16));
    assert!(error.to_string().ends_with("wrong checksum at byte 16"), "{error}");
}

#[test]
fn a_torn_tail_ends_the_log() {
    let fixture = Fixture::unpack("zookeeper-3.9");
    let log = fixture.files("log.").pop().expect("there are logs");
    let bytes = fs::read(&log).expect("readable");
    let mut entries = TxnLog::open(&log).expect("sound");
    let mut count = 0;
    while entries.read().expect("sound").is_some() {
        count += 1;
    }
    let used = bytes.iter().rposition(|&byte| byte != 0).expect("not empty") + 1;
    fs::write(&log, &bytes[..used - 1]).expect("written");
    let loaded = fixture.load();
    let [Note::TornTail { file, .. }] = &loaded.notes[..] else { panic!("{:?}", loaded.notes) };
    assert_eq!(*file, log);
    let mut entries = TxnLog::open(&log).expect("sound");
    let whole = std::iter::from_fn(|| entries.read().expect("torn, not damaged")).count();
    assert_eq!(whole, count - 1);
    fs::write(&log, b"").expect("written");
    let notes = fixture.load().notes;
    // A server may die before it has begun a log.
    assert!(!notes.iter().any(|note| matches!(note, Note::TornTail { .. })), "{notes:?}");
}

#[test]
fn missing_transactions_are_noted() {
    let fixture = Fixture::unpack("zookeeper-3.9-gz");
    let newest = fixture.files("snapshot.").pop().expect("there are two");
    fs::remove_file(newest).expect("removed");
    let logs = fixture.files("log.");
    fs::remove_file(&logs[logs.len() - 2]).expect("removed");
    let loaded = fixture.load();
    assert!(matches!(loaded.gap(), Some(Note::Gap { .. })), "{:?}", loaded.notes);
}

/// Reads bytes as each kind of file.
fn read_as_everything(bytes: &[u8]) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("file");
    fs::write(&file, bytes).expect("written");
    for packing in [Packing::Plain, Packing::Gzip, Packing::Snappy] {
        // Sound or not: it comes back.
        let _ = snapshot::read(&file, packing);
    }
    if let Ok(mut log) = TxnLog::open(&file) {
        while let Ok(Some(_)) = log.read() {}
    }
}

fn sample(name: &str, prefix: &str) -> Vec<u8> {
    let fixture = Fixture::unpack(name);
    fs::read(&fixture.files(prefix)[0]).expect("readable")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_bytes_are_read_without_a_panic(
        head in prop::sample::select(vec![&b""[..], b"ZKSN\0\0\0\x02", b"ZKLG\0\0\0\x02", b"\x1f\x8b\x08"]),
        bytes in prop::collection::vec(any::<u8>(), 0..600),
    ) {
        read_as_everything(&[head, &bytes].concat());
    }

    #[test]
    fn changed_files_are_read_without_a_panic(
        (name, prefix) in prop::sample::select(vec![
            ("zookeeper-3.9", "snapshot."),
            ("zookeeper-3.9", "log."),
            ("zookeeper-3.9-gz", "snapshot."),
            ("zookeeper-3.9-snappy", "snapshot."),
        ]),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = sample(name, prefix);
        for (index, value) in changes {
            let at = index.index(bytes.len());
            bytes[at] = value;
        }
        bytes.truncate(cut.map_or(bytes.len(), |cut| cut.index(bytes.len())));
        read_as_everything(&bytes);
    }

    /// The checksum hides what lies behind it from changes, so it is made to fit.
    #[test]
    fn transactions_of_any_content_are_read_without_a_panic(
        kind in prop::sample::select(vec![1, 2, 5, 7, 13, 14, 15, 16, 19, 20, 21, -1, -10, -11]),
        body in prop::collection::vec(prop::sample::select(vec![0, 1, 2, b'/', b'a', 0xff]), 0..80),
    ) {
        let mut payload = [1_i64.to_be_bytes(), 3_i64.to_be_bytes(), 4_i64.to_be_bytes(), [0; 8]].concat();
        payload.truncate(28);
        payload.extend(i32::to_be_bytes(kind));
        payload.extend(body);
        let mut file = b"ZKLG\0\0\0\x02\0\0\0\0\0\0\0\0".to_vec();
        file.extend(i64::from(simd_adler32::adler32(&payload.as_slice())).to_be_bytes());
        file.extend(u32::try_from(payload.len()).expect("short").to_be_bytes());
        file.extend(payload);
        file.push(b'B');
        read_as_everything(&file);
    }

    #[test]
    fn a_flipped_bit_of_a_snapshot_is_found(index in any::<prop::sample::Index>(), bit in 0..8_u32) {
        let mut bytes = sample("zookeeper-3.8-without-digests", "snapshot.");
        // All but the text behind the seal, which nobody reads.
        let at = index.index(bytes.len() - 5);
        bytes[at] ^= 1 << bit;
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("snapshot.1");
        fs::write(&file, bytes).expect("written");
        let read = snapshot::read(&file, Packing::Plain);
        prop_assert!(read.is_err(), "byte {}", at);
    }
}
