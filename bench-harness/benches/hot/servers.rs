//! Batches of writes through the leader core of two servers: from the requests to the published state, log
//! and network left out.
//!
//! A thousand clients create znodes of 100 B, each under a parent of its own, or set such znodes. After every
//! batch the state is published, so that the next batch has to copy what it changes, as it is where replies
//! leave batch by batch.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput};
use ringkeeper_engine::application::{Application, Effect};
use ringkeeper_engine::message::{ConnId, Published, RequestBatch, ShardId, Submission, Submitted, ToShard};
use ringkeeper_engine::replica::{Now, Output, Replica, ReplicaSettings};
use ringkeeper_engine::state::State;
use ringkeeper_log::frame::Checksum;
use ringkeeper_wire::{
    AclEntry, CreateRequest, Epoch, OpCode, Perms, Record, ServerId, SessionId, SetDataRequest, Xid, Zxid,
};

use crate::DATA;

const CLIENTS: usize = 1000;
/// Znodes of each client when a measurement begins.
const ZNODES_EACH: usize = 300;
const NOW: Now = Now { monotonic_ms: 1, wall_ms: 1_700_000_000_000 };

/// `batch/*/leader` and `batch/*/follower`.
pub(crate) fn batches(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("batch");
    group.sample_size(20).measurement_time(Duration::from_secs(2));
    let mut servers = Servers::filled();
    for (name, op) in [("create_100", OpCode::Create), ("set_data_100", OpCode::SetData)] {
        for writes in [7_u64, 50, 170] {
            group.throughput(Throughput::Elements(writes));
            for (server, which) in [("leader", 0), ("follower", 1)] {
                group.bench_function(format!("{name}/{writes}_{server}"), |bencher| {
                    bencher.iter_custom(|batches| (0..batches).map(|_| servers.run(op, writes)[which]).sum());
                });
            }
        }
    }
    group.finish();
}

/// A server as its core sees it, with what its shard holds.
struct Server {
    core: Replica,
    published: Option<Arc<Published>>,
    /// Sessions that began, by the connection that asked.
    attached: Vec<(ConnId, SessionId)>,
}

impl Server {
    fn new(id: u64) -> Self {
        let settings = ReplicaSettings::new(ServerId(id), [7; 32]);
        Self { core: Replica::new(settings, State::new(id)), published: None, attached: Vec::new() }
    }

    fn carry_out(&mut self) {
        for effect in self.core.take_effects() {
            match effect {
                // What was published before is let go of here.
                Effect::Output(Output::AllShards(ToShard::Published(published))) => {
                    self.published = Some(published)
                }
                Effect::Output(Output::Shard(_, ToShard::Attached { conn, session, .. })) => {
                    self.attached.push((conn, session));
                }
                _ => {}
            }
        }
    }
}

/// The requests of a batch.
#[derive(Default)]
struct Requests {
    bodies: Vec<u8>,
    submissions: Vec<Submission>,
}

/// A leader and a follower.
struct Servers {
    leader: Server,
    follower: Server,
    /// Znodes of each client.
    created: Vec<usize>,
    random: u64,
}

impl Servers {
    fn filled() -> Self {
        let (mut leader, mut follower) = (Server::new(1), Server::new(2));
        leader.core.lead(NOW, Epoch(1));
        follower.core.follow();
        let mut servers = Self { leader, follower, created: vec![0; CLIENTS], random: 1 };
        let open = |client| Submission {
            conn: ConnId(client),
            session: SessionId(0),
            local: false,
            what: Submitted::Open { timeout_ms: 10_000 },
        };
        servers
            .commit(Requests { submissions: (0..CLIENTS as u64).map(open).collect(), ..Requests::default() });
        let mut batch = Requests::default();
        servers.submit(&mut batch, 0, OpCode::Create, "/x");
        (0..CLIENTS).for_each(|client| servers.submit(&mut batch, client, OpCode::Create, &parent(client)));
        servers.commit(batch);
        for _ in 0..ZNODES_EACH {
            let mut batch = Requests::default();
            (0..CLIENTS).for_each(|client| servers.create(&mut batch, client));
            servers.commit(batch);
        }
        servers
    }

    /// Time that a batch takes on the leader and on the follower.
    fn run(&mut self, op: OpCode, writes: u64) -> [Duration; 2] {
        let mut batch = Requests::default();
        for _ in 0..writes {
            let client = self.random_below(CLIENTS);
            match op {
                OpCode::Create => self.create(&mut batch, client),
                _ => {
                    let number = self.random_below(self.created[client]);
                    self.submit(&mut batch, client, op, &child(client, number));
                }
            }
        }
        self.commit(batch)
    }

    fn create(&mut self, batch: &mut Requests, client: usize) {
        let path = child(client, self.created[client]);
        self.created[client] += 1;
        self.submit(batch, client, OpCode::Create, &path);
    }

    fn submit(&self, batch: &mut Requests, client: usize, op: OpCode, path: &str) {
        let (path, data) = (Cow::Borrowed(path), Some(&DATA[..100]));
        let start = batch.bodies.len();
        if op == OpCode::Create {
            let open = [AclEntry { perms: Perms::ALL, scheme: "world".to_owned(), id: "anyone".to_owned() }];
            CreateRequest { path, data, acl: Some((&open[..]).into()), flags: 0 }.encode(&mut batch.bodies);
        } else {
            SetDataRequest { path, data, version: -1 }.encode(&mut batch.bodies);
        }
        let (conn, session) = self.leader.attached[client];
        let body = start..batch.bodies.len();
        let what =
            Submitted::Write { xid: Xid(1), op, body, identities: Some([].into()), read_barrier: false };
        batch.submissions.push(Submission { conn, session, local: false, what });
    }

    fn commit(&mut self, Requests { bodies, submissions }: Requests) -> [Duration; 2] {
        let Self { leader, follower, .. } = self;
        let start = Instant::now();
        leader.core.requests(
            NOW,
            ShardId(0),
            RequestBatch { bytes: bodies.into(), submissions, ..RequestBatch::default() },
        );
        let batch = leader.core.next_batch(Zxid::ZERO, Checksum::NONE).expect("there were requests");
        let sealed = Instant::now();
        follower.core.append(&batch).expect("was just encoded");
        let last = batch.last();
        let appended = Instant::now();
        leader.core.commit(NOW, last);
        leader.carry_out();
        let published = Instant::now();
        follower.core.commit(NOW, last);
        follower.carry_out();
        [sealed - start + (published - appended), appended - sealed + published.elapsed()]
    }

    fn random_below(&mut self, bound: usize) -> usize {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.random >> 33).expect("31 bits") % bound
    }
}

fn parent(client: usize) -> String {
    format!("/x/client-{client}")
}

fn child(client: usize, number: usize) -> String {
    format!("/x/client-{client}/{number:010}")
}
