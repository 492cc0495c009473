//! The hot parts of a server, one by one: `family/workload/case`.
//!
//! ```sh
//! cargo bench -p bench-harness --bench hot -- --save-baseline before     # at one commit
//! cargo bench -p bench-harness --bench hot -- --save-baseline after      # at another, on the same machine
//! cargo bench -p bench-harness --bench hot -- --load-baseline after --baseline before
//! ```
//!
//! A figure alone means little; the ratio of two commits on one machine is what counts.
#![expect(missing_docs, reason = "criterion's macros document nothing")]

mod rings;
mod servers;
mod watches;

use std::borrow::Cow;
use std::hint::black_box;
use std::time::{Duration, Instant};

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ringkeeper_engine::prepare::{Context, Ensemble, Meter, execute, prepare};
use ringkeeper_engine::settings::Settings;
use ringkeeper_engine::state::State;
use ringkeeper_engine::txn::{Outcome, Session, Txn, TxnOp, encode_batch};
use ringkeeper_engine::zab::ServerSet;
use ringkeeper_log::Identity;
use ringkeeper_log::frame::LogPosition;
use ringkeeper_log::frame::{AlignedBuf, Meta, encode};
use ringkeeper_log::wal::{Options, Wal};
use ringkeeper_runtime::reactor::Executor;
use ringkeeper_runtime::reactor::storage::RingStorage;
use ringkeeper_wire::frame::{DEFAULT_FRAME_LEN_MAX, begin_frame, end_frame, framed, next_frame};
use ringkeeper_wire::{
    AclEntry, CreateRequest, Epoch, ErrorCode, GetDataResponse, OpCode, Perms, Record, ReplyHeader, Request,
    RequestHeader, ServerId, SessionId, SetDataRequest, Stat, Xid, Zxid,
};
use rkyv::util::AlignedVec;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const SESSION: SessionId = SessionId(1);
static DATA: [u8; 1024] = [7; 1024];
const ZNODES: usize = 100_000;
const DIRECTORIES: usize = 1000;

fn path(number: usize) -> String {
    format!("/directory-{:06}/node-{number:08}", number % DIRECTORIES)
}

/// Paths of the tree in an order that no cache foresees.
fn shuffled_paths() -> Vec<String> {
    // Prime to the number of znodes: each comes once.
    (0..ZNODES).map(|number| path(number * 48_271 % ZNODES)).collect()
}

fn set_data(path: &str) -> Request<'_> {
    Request::SetData(SetDataRequest { path: Cow::Borrowed(path), data: Some(&DATA), version: -1 })
}

/// A leader's state with a session and znodes of 100 B.
struct Leader {
    state: State,
    settings: Settings,
    meter: Meter,
}

impl Leader {
    fn filled() -> Self {
        let mut state = State::new(0x5eed);
        let op = TxnOp::CreateSession(Session { timeout_ms: 10_000, password: [0; 16] });
        state.apply(&Txn { zxid: Zxid(1), session: SESSION, xid: Xid(0), time_ms: 1, op });
        let mut leader = Self { state, settings: Settings::default(), meter: Meter::new(u64::MAX) };
        (0..DIRECTORIES).for_each(|directory| leader.create(&format!("/directory-{directory:06}"), &[]));
        (0..ZNODES).for_each(|number| leader.create(&path(number), &DATA[..100]));
        leader
    }

    fn context<'a>(settings: &'a Settings, meter: &'a Meter) -> Context<'a> {
        static SOURCE: Bytes = Bytes::from_static(&DATA);
        let short_of_memory = false;
        Context {
            source: &SOURCE,
            ensemble: Ensemble { leader: ServerId(1), up_to_date: &ServerSet::EMPTY, committed: Zxid::ZERO },
            session: SESSION,
            local: false,
            identities: &[],
            bounds: None,
            time_ms: 2,
            settings,
            short_of_memory,
            meter,
        }
    }

    fn execute(&mut self, request: &Request<'_>) -> Txn {
        self.commit(request).0
    }

    fn commit(&mut self, request: &Request<'_>) -> (Txn, Outcome) {
        let zxid = Zxid(self.state.last_zxid().0 + 1);
        let (txn, outcome) =
            execute(&mut self.state, &Self::context(&self.settings, &self.meter), zxid, Xid(1), request);
        assert!(matches!(outcome, Outcome::Done(_)), "{outcome:?}");
        (txn, outcome)
    }

    fn create(&mut self, path: &str, data: &[u8]) {
        let open = [AclEntry { perms: Perms::ALL, scheme: "world".to_owned(), id: "anyone".to_owned() }];
        let create = CreateRequest {
            path: Cow::Borrowed(path),
            data: Some(data),
            acl: Some((&open[..]).into()),
            flags: 0,
        };
        self.execute(&Request::Create(create));
    }
}

fn wire(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("wire");
    let frame = framed(|out| {
        RequestHeader { xid: Xid(7), op: OpCode::SetData.to_wire() }.encode(out);
        set_data(&path(4711)).encode(out);
    });
    group.bench_function("decode/set_data_1k", |bencher| {
        bencher.iter(|| {
            let (payload, _) =
                next_frame(black_box(&frame), DEFAULT_FRAME_LEN_MAX).expect("whole").expect("whole");
            let header = RequestHeader::from_bytes(payload).expect("a header");
            let body = payload.get(RequestHeader::LEN..).expect("a body");
            SetDataRequest::from_bytes(body)
                .map(|request| (header.xid, request.path.len()))
                .expect("a request")
        });
    });
    let mut out = Vec::with_capacity(4096);
    group.bench_function("encode/get_data_1k", |bencher| {
        bencher.iter(|| {
            out.clear();
            let start = begin_frame(&mut out);
            ReplyHeader::new(Xid(7), 9, ErrorCode::Ok).encode(&mut out);
            GetDataResponse { data: Some(black_box(&DATA)), stat: Stat::default() }.encode(&mut out);
            end_frame(&mut out, start).expect("a short frame");
            out.len()
        });
    });
    group.finish();
}

fn tree(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("tree");
    let leader = Leader::filled();
    let paths = shuffled_paths();
    let mut next = paths.iter().cycle();
    group.bench_function("read/100k_znodes_random", |bencher| {
        bencher
            .iter(|| leader.state.znode(next.next().expect("a cycle")).expect("it is there").num_children());
    });
    group.bench_function("read/100k_znodes_one", |bencher| {
        bencher.iter(|| leader.state.znode(black_box(&paths[0])).expect("it is there").num_children());
    });
    group.finish();
}

fn writes(criterion: &mut Criterion) {
    let mut leader = Leader::filled();
    let paths = shuffled_paths();
    let mut next = paths.iter().cycle();
    let context = Leader::context(&leader.settings, &leader.meter);
    criterion.bench_function("prepare/set_data_1k/100k_znodes_random", |bencher| {
        bencher.iter(|| prepare(&leader.state, &context, &set_data(next.next().expect("a cycle"))));
    });
    criterion.bench_function("apply/set_data_1k/100k_znodes_random", |bencher| {
        bencher.iter_custom(|count| {
            // What comes first makes the transactions, the other state applies them, as a follower does.
            let mut follower = leader.state.clone();
            let txns: Vec<Txn> =
                (0..count).map(|_| leader.execute(&set_data(next.next().expect("a cycle")))).collect();
            let start = Instant::now();
            txns.iter().for_each(|txn| drop(black_box(follower.apply(txn))));
            start.elapsed()
        });
    });
}

fn batches(criterion: &mut Criterion) {
    let mut leader = Leader::filled();
    for count in [1, 64] {
        let paths = shuffled_paths();
        let txns: Vec<Txn> = paths.iter().take(count).map(|path| leader.execute(&set_data(path))).collect();
        let mut group = criterion.benchmark_group("batch");
        group.throughput(Throughput::Elements(count as u64));
        let mut archive = AlignedVec::new();
        group.bench_function(format!("encode/{count}_set_data_1k"), |bencher| {
            bencher.iter(|| {
                archive.clear();
                encode_batch(black_box(&txns), &mut archive);
            });
        });
        let mut frame = AlignedBuf::new();
        let meta = Meta {
            epoch: Epoch(1),
            first_zxid: Zxid((1 << 32) | 1),
            last_zxid: Zxid((1 << 32) | count as u64),
        };
        group.bench_function(format!("frame_and_crc/{count}_set_data_1k"), |bencher| {
            bencher.iter(|| encode(meta, black_box(&archive), LogPosition::default().checksum, &mut frame));
        });
        group.finish();
    }
}

fn log(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("log");
    group.sample_size(10).measurement_time(Duration::from_secs(3));
    for count in [1_u64, 64] {
        group.throughput(Throughput::Elements(count));
        group.bench_function(format!("append/{count}_records_1k"), |bencher| {
            bencher.iter_custom(|commits| appends(commits, count));
        });
    }
    group.finish();
}

/// Durable appends in the current folder's file system, one after the other.
fn appends(commits: u64, records: u64) -> Duration {
    Executor::new("log").expect("io_uring is available").run(async move {
        let folder = tempfile::tempdir_in(".").expect("a writable folder");
        let storage = RingStorage::open(folder.path()).await.expect("a writable folder");
        let options = Options::new(Identity { owner: [0; 32], salt: 1 });
        let (mut wal, _) = Wal::open(storage, options, |_| Ok(())).await.expect("an empty folder");
        let payload = vec![7; usize::try_from(records).expect("few") * DATA.len()];
        let mut last = LogPosition { zxid: Zxid(1 << 32), ..LogPosition::default() };
        let mut elapsed = Duration::ZERO;
        for _ in 0..commits {
            let (first_zxid, last_zxid) = (Zxid(last.zxid.0 + 1), Zxid(last.zxid.0 + records));
            let meta = Meta { epoch: Epoch(1), first_zxid, last_zxid };
            let mut frame = AlignedBuf::new();
            let checksum = encode(meta, &payload, last.checksum, &mut frame).expect("fitting zxids");
            last = LogPosition { zxid: meta.last_zxid, checksum };
            let start = Instant::now();
            wal.append(&[frame]).await.expect("a working disk");
            elapsed += start.elapsed();
        }
        elapsed
    })
}

criterion_group!(
    benches,
    wire,
    tree,
    writes,
    watches::triggers,
    batches,
    servers::batches,
    rings::round_trips,
    log
);
criterion_main!(benches);
