//! A change of a watched znode on its way through a shard: from the published transaction to the
//! notifications in the watchers' outputs.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput};
use ringkeeper_engine::authorisation::Authorisation;
use ringkeeper_engine::message::{Committed, ConnId, Published, PublishedGroup, Serving, ShardId, ToShard};
use ringkeeper_engine::shard::{AfterWrite, Settings, Shard};
use ringkeeper_engine::state::State;
use ringkeeper_wire::frame::framed;
use ringkeeper_wire::{
    ConnectRequest, PASSWORD_LEN, PathWatchRequest, Record, Request, RequestHeader, SessionId, Xid,
};

use crate::{Leader, path, set_data};

const NOW_MS: u64 = 1;

/// `watch/trigger/*`.
pub(crate) fn triggers(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("watch");
    for watchers in [1, 1000] {
        group.throughput(Throughput::Elements(watchers));
        group.bench_function(format!("trigger/{watchers}_watchers"), |bencher| {
            let mut watched = Watched::new(watchers);
            bencher.iter_custom(|count| (0..count).map(|_| watched.trigger()).sum());
        });
    }
    group.finish();
}

/// A shard with clients who watch one znode of many.
struct Watched {
    leader: Leader,
    shard: Shard,
    watchers: u64,
    /// A read of the znode that leaves a watch.
    read: Vec<u8>,
    output: Vec<u8>,
}

impl Watched {
    fn new(watchers: u64) -> Self {
        let leader = Leader::filled();
        let mut shard = Shard::new(ShardId(0), Settings::default(), view(&leader.state));
        shard.deliver(NOW_MS, ToShard::Serving(Serving::Yes));
        let read = framed(|out| {
            let request = Request::GetData(PathWatchRequest { path: path(0).into(), watch: true });
            RequestHeader { xid: Xid(1), op: request.op().to_wire() }.encode(out);
            request.encode(out);
        });
        let mut watched = Self { leader, shard, watchers, read, output: Vec::new() };
        (1..=watchers).for_each(|number| watched.open(ConnId(number)));
        watched
    }

    fn open(&mut self, conn: ConnId) {
        let connect = framed(|out| {
            let (timeout_ms, password) = (10_000, Some(&[0; PASSWORD_LEN][..]));
            let (protocol_version, last_zxid_seen, session_id) = (0, 0, SessionId(0));
            let read_only = Some(false);
            let connect = ConnectRequest {
                protocol_version,
                last_zxid_seen,
                timeout_ms,
                session_id,
                password,
                read_only,
            };
            connect.encode(out);
        });
        self.shard.connected(NOW_MS, conn, SocketAddr::from((Ipv4Addr::LOCALHOST, 1)));
        self.shard.received(NOW_MS, conn, &connect);
        self.shard.take_requests();
        let session = SessionId(conn.0.cast_signed());
        let attached = ToShard::Attached { conn, session, password: [0; PASSWORD_LEN], timeout_ms: 10_000 };
        self.shard.deliver(NOW_MS, attached);
        assert!(self.take_output(conn) > 0, "connection {conn:?} is not told of its session");
    }

    /// All clients watch, the znode changes, all of them are told; the time of the latter.
    fn trigger(&mut self) -> Duration {
        for conn in (1..=self.watchers).map(ConnId) {
            let read = std::mem::take(&mut self.read);
            self.shard.received(NOW_MS, conn, &read);
            self.read = read;
            self.take_output(conn);
        }
        let (txn, outcome) = self.leader.commit(&set_data(&path(0)));
        let committed = Committed { txn, outcome, authorisation: Authorisation::default(), origin: None };
        let group = PublishedGroup { txns: vec![committed], view: view(&self.leader.state) };
        let published = ToShard::Published(Arc::new(Published { groups: vec![group] }));
        let start = Instant::now();
        self.shard.deliver(NOW_MS, published);
        assert!(!self.shard.next_slice(NOW_MS), "one event is one slice");
        let mut told = 0;
        while let Some(conn) = self.shard.next_notified() {
            told += u64::from(self.take_output(conn) > 0);
        }
        let elapsed = start.elapsed();
        assert_eq!(told, self.watchers, "some watchers were not told");
        elapsed
    }

    fn take_output(&mut self, conn: ConnId) -> usize {
        let after = self.shard.take_output(conn, &mut self.output);
        assert_eq!(after, AfterWrite::Continue, "{conn:?} is closed");
        self.shard.written(NOW_MS, conn, self.output.len());
        self.output.len()
    }
}

fn view(state: &State) -> Arc<State> {
    Arc::new(state.clone())
}
