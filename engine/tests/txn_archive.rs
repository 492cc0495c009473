//! The archive of transactions: bytes that outlive the program, and bytes from elsewhere.

use bytes::Bytes;
use bytestring::ByteString;
use proptest::prelude::*;
use ringkeeper_engine::acl::Acl;
use ringkeeper_engine::txn::{
    BatchError, Create, FailedMulti, Session, SetAcl, SetData, Txn, TxnOp, Update, decode_batch,
    encode_batch, share_batch,
};
use ringkeeper_wire::{AclEntry, ErrorCode, Perms, SessionId, Xid, Zxid};
use rkyv::util::AlignedVec;

fn txn(counter: u32, op: TxnOp) -> Txn {
    Txn {
        zxid: Zxid(0x7_0000_0000 + u64::from(counter)),
        session: SessionId(0x0102_0304_0506_0708),
        xid: Xid(-5),
        time_ms: 1_700_000_000_123,
        op,
    }
}

fn some_acl() -> impl Strategy<Value = Acl> {
    let entry = (any::<i32>(), "[a-z]{1,6}", ".{0,9}").prop_map(|(perms, scheme, id)| AclEntry {
        perms: Perms(perms),
        scheme,
        id,
    });
    prop::collection::vec(entry, 0..3).prop_map(Acl::new)
}

fn some_data() -> impl Strategy<Value = Option<Bytes>> {
    prop::option::of(prop::collection::vec(any::<u8>(), 0..50).prop_map(Into::into))
}

fn some_path() -> impl Strategy<Value = ByteString> {
    "/.{0,20}".prop_map(Into::into)
}

fn some_update() -> impl Strategy<Value = Update> {
    prop_oneof![
        (some_path(), some_data(), some_acl(), any::<i64>(), any::<i32>(), any::<bool>()).prop_map(
            |(path, data, acl, raw_owner, parent_cversion, reply_with_stat)| {
                Update::Create(Create { path, data, acl, raw_owner, parent_cversion, reply_with_stat })
            }
        ),
        some_path().prop_map(Update::Delete),
        (some_path(), some_data(), any::<i32>()).prop_map(|(path, data, version)| Update::SetData(SetData {
            path,
            data,
            version
        })),
        (some_path(), some_acl(), any::<i32>()).prop_map(|(path, acl, aversion)| Update::SetAcl(SetAcl {
            path,
            acl,
            aversion
        })),
        some_path().prop_map(Update::Check),
    ]
}

fn some_code() -> impl Strategy<Value = ErrorCode> {
    prop::sample::select(ErrorCode::ALL)
}

fn some_op() -> impl Strategy<Value = TxnOp> {
    prop_oneof![
        4 => some_update().prop_map(TxnOp::Update),
        2 => prop::collection::vec(some_update(), 0..4).prop_map(TxnOp::Multi),
        1 => (any::<u32>(), any::<u32>(), some_code())
            .prop_map(|(ops, failed, code)| TxnOp::FailedMulti(FailedMulti { ops, failed, code })),
        1 => some_code().prop_map(TxnOp::Error),
        1 => (any::<u32>(), any::<[u8; 16]>())
            .prop_map(|(timeout_ms, password)| TxnOp::CreateSession(Session { timeout_ms, password })),
        1 => prop::collection::vec("/.{0,20}".prop_map(Into::into), 0..4).prop_map(TxnOp::CloseSessionListed),
        1 => Just(TxnOp::CloseSession),
        1 => some_update().prop_map(TxnOp::Reconfig),
    ]
}

fn some_batch() -> impl Strategy<Value = Vec<Txn>> {
    prop::collection::vec(some_op(), 1..6).prop_map(|ops| (1..).zip(ops).map(|(n, op)| txn(n, op)).collect())
}

fn encoded(txns: &[Txn]) -> AlignedVec {
    let mut bytes = AlignedVec::new();
    encode_batch(txns, &mut bytes);
    bytes
}

proptest! {
    #[test]
    fn a_batch_survives_its_archive(batch in some_batch()) {
        prop_assert_eq!(decode_batch(&encoded(&batch)).expect("well formed"), batch);
    }

    #[test]
    fn an_archive_is_read_at_any_alignment(batch in some_batch(), shift in 1..16usize) {
        let mut shifted = AlignedVec::<16>::new();
        shifted.resize(shift, 0);
        shifted.extend_from_slice(&encoded(&batch));
        prop_assert_eq!(&decode_batch(&shifted[shift..]).expect("well formed"), &batch);
        prop_assert_eq!(share_batch(&Bytes::from_owner(shifted).slice(shift..)).expect("well formed"), batch);
    }

    #[test]
    fn arbitrary_bytes_are_refused_or_read_but_never_trusted(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
    ) {
        let _ = decode_batch(&bytes);
    }

    #[test]
    fn a_damaged_archive_is_refused_or_read_as_something_else(
        batch in some_batch(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = encoded(&batch);
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let _ = decode_batch(&bytes);
        let _ = decode_batch(&bytes[..cut.index(bytes.len())]);
    }
}

#[test]
fn an_archive_is_the_same_behind_other_bytes() {
    let batch = vec![txn(1, TxnOp::CloseSessionListed(vec!["/long/path".into()]))];
    let mut bytes = AlignedVec::new();
    bytes.extend_from_slice(&[7; 64]);
    encode_batch(&batch, &mut bytes);
    assert_eq!(&bytes[..64], [7; 64]);
    assert_eq!(&bytes[64..], &*encoded(&batch));
}

#[test]
fn a_batch_cannot_run_over_the_end_of_its_epoch() {
    let mut bytes = encoded(&[txn(1, TxnOp::Multi(vec![])), txn(2, TxnOp::Multi(vec![]))]);
    let first = Zxid(0x7_0000_0001).0.to_le_bytes();
    let at = bytes.windows(8).position(|window| window == first).expect("the first zxid is in the archive");
    bytes[at..at + 4].fill(0xff);
    assert!(matches!(decode_batch(&bytes), Err(BatchError::ZxidOverflow { len: 2, .. })));
}

/// Counting the zxids of a batch from a range without an end went one too far, and overflowed here. Found by
/// fuzzing.
#[test]
fn a_batch_may_have_the_greatest_of_all_zxids() {
    let batch = [Txn { zxid: Zxid(u64::MAX), ..txn(1, TxnOp::CloseSession) }];
    assert_eq!(decode_batch(&encoded(&batch)).expect("well formed"), batch);
}

#[test]
fn paths_and_data_share_the_bytes_of_an_aligned_archive() {
    let bytes = Bytes::from_owner(encoded(&specimens()));
    let txns = share_batch(&bytes).expect("well formed");
    assert_eq!(txns, specimens());
    let TxnOp::Update(Update::Create(create)) = &txns[0].op else { panic!("{txns:?}") };
    for part in [create.path.as_bytes(), create.data.as_ref().expect("some")] {
        assert!(bytes.as_ptr_range().contains(&part.as_ptr()));
    }
}

/// Every kind of transaction, with values that show where they lie.
fn specimens() -> Vec<Txn> {
    let acl = Acl::new(vec![AclEntry {
        perms: Perms(31),
        scheme: "digest".to_owned(),
        id: "user:hash".to_owned(),
    }]);
    let create = Update::Create(Create {
        path: "/path/of/create".into(),
        data: Some(b"data of create"[..].into()),
        acl: acl.clone(),
        raw_owner: 0x1112_1314_1516_1718,
        parent_cversion: 0x2122_2324,
        reply_with_stat: true,
    });
    let set_data = Update::SetData(SetData { path: "/set/data".into(), data: None, version: 0x3132_3334 });
    let set_acl = Update::SetAcl(SetAcl { path: "/set/acl".into(), acl: Acl::OPEN, aversion: 0x4142_4344 });
    let ops = [
        TxnOp::Update(create.clone()),
        TxnOp::Update(set_acl),
        TxnOp::Multi(vec![
            create,
            set_data.clone(),
            Update::Delete("/delete".into()),
            Update::Check("/check".into()),
        ]),
        TxnOp::FailedMulti(FailedMulti { ops: 3, failed: 1, code: ErrorCode::BadVersion }),
        TxnOp::Error(ErrorCode::NodeExists),
        TxnOp::CreateSession(Session { timeout_ms: 0x5152_5354, password: *b"sixteen byte pwd" }),
        TxnOp::CloseSessionListed(vec!["/ephemeral".into()]),
        TxnOp::Reconfig(set_data),
    ];
    (1..).zip(ops).map(|(n, op)| txn(n, op)).collect()
}

#[test]
fn a_closed_session_has_no_more_in_the_archive_than_its_number() {
    let close = [txn(1, TxnOp::CloseSession)];
    let encoded = encoded(&close);
    let golden = include_bytes!("golden/close_session.bin");
    let written = concat!(env!("CARGO_TARGET_TMPDIR"), "/close_session.bin");
    std::fs::write(written, &encoded).expect("a folder for tests");
    assert_eq!(decode_batch(golden).expect("well formed"), close);
    assert!(&*encoded == golden, "the archive has changed: see {written}");
}

/// Logs written by this version must be read by all later ones: if this fails, the log's format version
/// changes, and the old bytes stay here as a file that must still be read.
#[test]
fn the_archive_is_the_one_on_disk() {
    let golden = include_bytes!("golden/txn_batch_v1.bin");
    let encoded = encoded(&specimens());
    // For a new format version: the bytes that become its golden file.
    let written = concat!(env!("CARGO_TARGET_TMPDIR"), "/txn_batch.bin");
    std::fs::write(written, &encoded).expect("a folder for tests");
    assert_eq!(decode_batch(golden).expect("well formed"), specimens());
    assert!(&*encoded == golden, "the archive has changed: see {written}");
}
