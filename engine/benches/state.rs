//! What a write costs on the leader: prepare and apply on a state of a million znodes.
//!
//! `cargo bench -p ringkeeper-engine --bench state`. Each line is one case, the best of several rounds; the
//! second figure keeps a clone of the state for every 64 writes, as publishing a batch does, the third one
//! for every write. Run it alone on the machine; its figures are compared by hand, nothing here passes or
//! fails.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::borrow::Cow;
use std::time::Instant;

use bytes::Bytes;
use ringkeeper_engine::limits::{Limit, Limits};
use ringkeeper_engine::prepare::{Context, Ensemble, Meter, execute};
use ringkeeper_engine::settings::Settings;
use ringkeeper_engine::state::State;
use ringkeeper_engine::txn::{Outcome, Session, SetData, Txn, TxnOp, Update, decode_batch, encode_batch};
use ringkeeper_engine::zab::ServerSet;
use ringkeeper_wire::{
    AclEntry, CreateRequest, DeleteRequest, MultiOp, Perms, Request, ServerId, SessionId, SetDataRequest,
    Xid, Zxid,
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ZNODES: usize = 1_000_000;
const OPERATIONS: usize = 20_000;
const ROUNDS: usize = 6;
const SESSION: SessionId = SessionId(1);
static DATA: [u8; 1024] = [7; 1024];

struct Leader {
    state: State,
    settings: Settings,
    meter: Meter,
    open: [AclEntry; 1],
    random: u64,
}

impl Leader {
    fn new() -> Self {
        let mut state = State::new(0x5eed);
        let op = TxnOp::CreateSession(Session { timeout_ms: 10_000, password: [0; 16] });
        state.apply(&Txn { zxid: Zxid(1), session: SESSION, xid: Xid(0), time_ms: 1, op });
        let open = [AclEntry { perms: Perms::ALL, scheme: "world".to_owned(), id: "anyone".to_owned() }];
        let unlimited = [Limit::Ephemerals, Limit::EphemeralBytes];
        let limits = unlimited.into_iter().fold(Limits::default(), |limits, it| limits.with(it, u64::MAX));
        let settings = Settings { limits, ..Settings::default() };
        Self { state, settings, meter: Meter::new(u64::MAX), open, random: 1 }
    }

    fn filled() -> Self {
        let mut leader = Self::new();
        for directory in 0..1000 {
            leader.create(&format!("/directory-{directory:06}"), &[], 0);
        }
        for n in 0..ZNODES {
            leader.create(&path(n), &DATA[..100], 0);
        }
        leader
    }

    fn ask(&mut self, request: &Request<'_>) {
        let context = Context {
            source: &Bytes::from_static(&DATA),
            ensemble: Ensemble { leader: ServerId(1), up_to_date: &ServerSet::EMPTY, committed: Zxid::ZERO },
            session: SESSION,
            local: false,
            identities: &[],
            bounds: None,
            time_ms: 2,
            settings: &self.settings,
            short_of_memory: false,
            meter: &self.meter,
        };
        let zxid = Zxid(self.state.last_zxid().0 + 1);
        let (_, outcome) = execute(&mut self.state, &context, zxid, Xid(1), request);
        assert!(matches!(outcome, Outcome::Done(_) | Outcome::Multi(_)), "{outcome:?}");
    }

    fn create(&mut self, path: &str, data: &[u8], flags: i32) {
        let open = self.open.clone();
        let acl = Some((&open[..]).into());
        self.ask(&Request::Create(CreateRequest { path: Cow::Borrowed(path), data: Some(data), acl, flags }));
    }

    fn set_data(&mut self, path: &str) {
        self.ask(&Request::SetData(set_data(path)));
    }

    fn random_path(&mut self) -> String {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        path(usize::try_from(self.random >> 33).expect("31 bits") % ZNODES)
    }
}

fn path(n: usize) -> String {
    format!("/directory-{:06}/node-{n:08}", n % 1000)
}

fn set_data(path: &str) -> SetDataRequest<'_> {
    SetDataRequest { path: Cow::Borrowed(path), data: Some(&DATA), version: -1 }
}

/// Nanoseconds an operation, the best round, when a clone is kept for every `keep` operations.
fn best(leader: &mut Leader, keep: usize, mut operation: impl FnMut(&mut Leader, usize)) -> u128 {
    let round = |round: usize| {
        let mut kept = leader.state.clone();
        let start = Instant::now();
        for n in 0..OPERATIONS {
            operation(leader, round * OPERATIONS + n);
            if n % keep == 0 {
                kept = leader.state.clone();
            }
        }
        let nanos = start.elapsed().as_nanos() / OPERATIONS as u128;
        drop(kept);
        nanos
    };
    (0..ROUNDS).map(round).min().expect("at least one round")
}

fn case(leader: &mut Leader, name: &str, mut operation: impl FnMut(&mut Leader, usize)) {
    let mut offset = 0;
    let figures = [usize::MAX, 64, 1].map(|keep| {
        let figure = best(leader, keep, |leader, n| operation(leader, offset + n));
        offset += ROUNDS * OPERATIONS;
        figure
    });
    println!("{name:<28} {:>6} ns {:>6} ns {:>6} ns", figures[0], figures[1], figures[2]);
}

/// What a start does with the log: batches of [`REPLAYED`] setData of 100 B on random znodes, decoded and
/// applied.
fn replay(leader: &mut Leader) {
    const REPLAYED: usize = 200;
    let mut zxid = leader.state.last_zxid().0;
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let mut batches = Vec::new();
        for _ in 0..OPERATIONS * 10 / REPLAYED {
            let txns: Vec<Txn> = (0..REPLAYED)
                .map(|_| {
                    zxid += 1;
                    let set = SetData {
                        path: leader.random_path().into(),
                        data: Some(DATA[..100].into()),
                        version: 1,
                    };
                    let op = TxnOp::Update(Update::SetData(set));
                    Txn { zxid: Zxid(zxid), session: SESSION, xid: Xid(1), time_ms: 3, op }
                })
                .collect();
            let mut archive = rkyv::util::AlignedVec::new();
            encode_batch(&txns, &mut archive);
            batches.push(archive);
        }
        let start = Instant::now();
        for batch in &batches {
            leader.state.replay(&decode_batch(batch).expect("was just encoded"));
        }
        rounds.push(start.elapsed().as_nanos() / (OPERATIONS * 10) as u128);
    }
    let best = rounds.iter().min().expect("at least one round");
    println!("{:<28} {best:>6} ns", "replay of setData 100 B");
}

fn main() {
    let mut leader = Leader::filled();
    println!("{:<28} {:>9} {:>9} {:>9}", "", "no clone", "1 in 64", "each");
    case(&mut leader, "nothing but a random path", |leader, _| {
        std::hint::black_box(leader.random_path());
    });
    replay(&mut leader);
    case(&mut leader, "setData 1 KiB, random", |leader, _| {
        let path = leader.random_path();
        leader.set_data(&path);
    });
    case(&mut leader, "setData 1 KiB, one znode", |leader, _| leader.set_data("/directory-000001"));
    case(&mut leader, "create 1 KiB", |leader, n| leader.create(&format!("/directory-000002/{n}"), &DATA, 0));
    case(&mut leader, "create ephemeral", |leader, n| {
        leader.create(&format!("/directory-000003/{n}"), &[], 1);
    });
    case(&mut leader, "delete ephemeral", |leader, n| {
        let path = Cow::Owned(format!("/directory-000003/{n}"));
        leader.ask(&Request::Delete(DeleteRequest { path, version: -1 }));
    });
    case(&mut leader, "multi of 2 setData", |leader, _| {
        let paths = [leader.random_path(), leader.random_path()];
        let ops = paths.each_ref().map(|path| MultiOp::SetData(set_data(path)));
        leader.ask(&Request::Multi((&ops[..]).into()));
    });
}
