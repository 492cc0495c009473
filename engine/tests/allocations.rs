//! How often a write takes memory: for the znode that it changes, and for nothing else.

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;
use ringkeeper_engine::prepare::{Context, Ensemble, Meter, execute};
use ringkeeper_engine::settings::Settings;
use ringkeeper_engine::state::State;
use ringkeeper_engine::txn::{Outcome, Session, Txn, TxnOp, encode_batch, share_batch};
use ringkeeper_engine::zab::ServerSet;
use ringkeeper_wire::{
    AclEntry, CreateRequest, OpCode, Perms, Record, Request, ServerId, SessionId, SetDataRequest, Xid, Zxid,
};
use rkyv::util::AlignedVec;

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

const SESSION: SessionId = SessionId(1);
const WRITES: usize = 1000;

/// Allocations in `work`.
fn allocations<T>(work: impl FnOnce() -> T) -> (T, u64) {
    let before = dhat::HeapStats::get().total_blocks;
    let done = work();
    (done, dhat::HeapStats::get().total_blocks - before)
}

fn with_session() -> State {
    let mut state = State::new(0x5eed);
    let op = TxnOp::CreateSession(Session { timeout_ms: 10_000, password: [0; 16] });
    let outcome = state.apply(&Txn { zxid: Zxid(1), session: SESSION, xid: Xid(0), time_ms: 1, op });
    assert_eq!(outcome, Outcome::SessionCreated);
    state
}

/// The bodies of as many requests as one message of a shard holds, and where each of them lies.
fn bodies(op: OpCode) -> (Bytes, Vec<Range<usize>>) {
    let open = [AclEntry { perms: Perms::ALL, scheme: "world".to_owned(), id: "anyone".to_owned() }];
    let mut bytes = Vec::new();
    let bodies = (0..WRITES).map(|number| {
        let (start, path, data) = (bytes.len(), Cow::Owned(format!("/{number:04}")), Some(&[7; 100][..]));
        if op == OpCode::Create {
            CreateRequest { path, data, acl: Some((&open[..]).into()), flags: 0 }.encode(&mut bytes);
        } else {
            SetDataRequest { path, data, version: -1 }.encode(&mut bytes);
        }
        start..bytes.len()
    });
    let bodies = bodies.collect();
    (bytes.into(), bodies)
}

#[test]
fn a_write_takes_memory_for_its_znode_only() {
    let _profiler = dhat::Profiler::builder().testing().build();
    let (mut leader, mut follower) = (with_session(), with_session());
    let (settings, meter) = (Settings::default(), Meter::new(u64::MAX));
    // A create takes a block for the znode, and the tree grows. A znode that is written for the first time is
    // replaced by one that has room for both times of its Stat, which the next write changes in place.
    for (op, most) in [(OpCode::Create, 1200), (OpCode::SetData, 1000), (OpCode::SetData, 0)] {
        let (source, bodies) = bodies(op);
        let context = Context {
            source: &source,
            session: SESSION,
            local: false,
            identities: &[],
            bounds: None,
            time_ms: 2,
            ensemble: Ensemble { leader: ServerId(1), up_to_date: &ServerSet::EMPTY, committed: Zxid::ZERO },
            settings: &settings,
            short_of_memory: false,
            meter: &meter,
        };
        let mut txns = Vec::with_capacity(WRITES);
        let ((), prepared) = allocations(|| {
            for body in bodies {
                let request = Request::decode(op, &source[body]).expect("just encoded");
                let zxid = Zxid(leader.last_zxid().0 + 1);
                let (txn, outcome) = execute(&mut leader, &context, zxid, Xid(1), &request);
                assert!(matches!(outcome, Outcome::Done(_)), "{outcome:?}");
                txns.push(txn);
            }
        });
        let mut batch = AlignedVec::new();
        encode_batch(&txns, &mut batch);
        let batch = Bytes::from_owner(batch);
        let (txns, read) = allocations(|| share_batch(&batch).expect("just encoded"));
        let ((), applied) = allocations(|| follower.replay(&txns));
        assert!(prepared <= most, "{op:?}: the leader took memory {prepared} times");
        assert_eq!(read, 1, "{op:?}: a follower's list of the transactions of a batch");
        assert!(applied <= most, "{op:?}: a follower took memory {applied} times");
        assert_eq!(leader.digest(), follower.digest());
    }
}
