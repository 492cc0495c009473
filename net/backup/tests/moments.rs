//! A state rebuilt from the store is that of the committed order at its moment: random histories, shipped in
//! random pieces, against a map of paths.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use ringkeeper_backup::http::Http;
use ringkeeper_backup::{
    Key, Moment, Part, RebuildError, ShipError, Shipper, Store, StoreSettings, TakenFull, begin_epoch, prune,
    rebuild, verify,
};
use ringkeeper_engine::acl::Acl;
use ringkeeper_engine::snapshot::{Encoder, STATE_VERSION};
use ringkeeper_engine::state::State;
use ringkeeper_engine::txn::{Create, Session, SetData, Txn, TxnOp, Update, encode_batch};
use ringkeeper_frame::{Batch, Checksum, LogPosition};
use ringkeeper_wire::{Epoch, SessionId, Xid, Zxid};
use rkyv::util::AlignedVec;

const ENSEMBLE: u64 = 0xa5;

/// What a client may do next; numbers choose among what there is.
#[derive(Clone, Debug)]
enum Step {
    Open,
    Close(usize),
    Create {
        parent: usize,
        owner: Option<usize>,
    },
    Set(usize, Vec<u8>),
    Delete(usize),
    Fail,
    /// As one multi.
    Two(Vec<u8>),
    /// Another leader.
    Elect,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let data = proptest::collection::vec(any::<u8>(), 0..40);
    let any = any::<usize>;
    let step = prop_oneof![
        1 => Just(Step::Open),
        1 => any().prop_map(Step::Close),
        4 => (any(), proptest::option::of(any())).prop_map(|(parent, owner)| Step::Create { parent, owner }),
        4 => (any(), data.clone()).prop_map(|(which, data)| Step::Set(which, data)),
        2 => any().prop_map(Step::Delete),
        1 => Just(Step::Fail),
        1 => data.prop_map(Step::Two),
        1 => Just(Step::Elect),
    ];
    proptest::collection::vec(step, 1..80)
}

/// What there should be at one zxid.
#[derive(Clone, Debug, Default, PartialEq)]
struct Model {
    /// Data and owner by path.
    znodes: BTreeMap<String, (Vec<u8>, i64)>,
    sessions: BTreeSet<SessionId>,
}

impl Model {
    fn of(state: &State) -> Self {
        let built_in = |path: &String| path == "/" || path.starts_with("/zookeeper");
        let znode = |znode: &ringkeeper_engine::tree::Znode| {
            let owner = znode.meta().stat(0).ephemeral_owner;
            (znode.path(), (znode.data().unwrap_or_default().to_vec(), owner))
        };
        Self {
            znodes: state.tree().nodes().map(znode).filter(|(path, _)| !built_in(path)).collect(),
            sessions: state.sessions().map(|(id, _)| id).collect(),
        }
    }
}

/// An ensemble that orders transactions.
struct Leader {
    model: Model,
    last: Zxid,
    created: i32,
    txns: Vec<Txn>,
    /// What there should be after each transaction.
    models: BTreeMap<Zxid, Model>,
}

impl Leader {
    fn run(steps: &[Step]) -> Self {
        let mut leader = Self {
            model: Model::default(),
            last: Zxid::new(Epoch(1), 0),
            created: 0,
            txns: Vec::new(),
            models: BTreeMap::new(),
        };
        steps.iter().for_each(|step| leader.step(step));
        leader.commit(SessionId(0), TxnOp::Error(ringkeeper_wire::ErrorCode::NoNode));
        leader
    }

    fn step(&mut self, step: &Step) {
        let pick = |count: usize, number: usize| number.checked_rem(count);
        let sessions: Vec<_> = self.model.sessions.iter().copied().collect();
        let paths: Vec<_> = self.model.znodes.keys().cloned().collect();
        match step {
            Step::Open => {
                let id =
                    SessionId(1 + i64::from(self.last.counter()) + (i64::from(self.last.epoch().0) << 40));
                self.model.sessions.insert(id);
                self.commit(id, TxnOp::CreateSession(Session { timeout_ms: 10_000, password: [3; 16] }));
            }
            Step::Close(which) => {
                let Some(which) = pick(sessions.len(), *which) else { return };
                self.model.sessions.remove(&sessions[which]);
                self.model.znodes.retain(|_, (_, owner)| *owner != sessions[which].0);
                self.commit(sessions[which], TxnOp::CloseSession);
            }
            Step::Create { parent, owner } => {
                let parents = self.model.znodes.iter().filter(|(_, (_, owner))| *owner == 0);
                let mut parents: Vec<_> = parents.map(|(path, _)| path.clone()).collect();
                parents.push(String::new());
                let owner =
                    owner.and_then(|which| Some(sessions[pick(sessions.len(), which)?].0)).unwrap_or(0);
                let parent = &parents[parent % parents.len()];
                let create = self.create(parent, owner, b"new");
                self.commit(SessionId(0), TxnOp::Update(create));
            }
            Step::Set(which, data) => {
                let Some(which) = pick(paths.len(), *which) else { return };
                let set = self.set(&paths[which], data);
                self.commit(SessionId(0), TxnOp::Update(set));
            }
            Step::Delete(which) => {
                let Some(which) = pick(paths.len(), *which) else { return };
                let path = &paths[which];
                let below = format!("{path}/");
                if !paths.iter().any(|other| other.starts_with(&below)) {
                    self.model.znodes.remove(path);
                    self.commit(SessionId(0), TxnOp::Update(Update::Delete(path.as_str().into())));
                }
            }
            Step::Fail => self.commit(SessionId(0), TxnOp::Error(ringkeeper_wire::ErrorCode::BadVersion)),
            Step::Two(data) => {
                let create = self.create("", 0, b"multi");
                let path = create.path().to_owned();
                let set = self.set(&path, data);
                self.commit(SessionId(0), TxnOp::Multi(vec![create, set]));
            }
            Step::Elect => self.last = Zxid::new(Epoch(self.last.epoch().0 + 1), 0),
        }
    }

    fn create(&mut self, parent: &str, owner: i64, data: &[u8]) -> Update {
        self.created += 1;
        let path = format!("{parent}/n{}", self.created);
        self.model.znodes.insert(path.clone(), (data.to_vec(), owner));
        let (acl, parent_cversion) = (Acl::OPEN, self.created);
        let (path, data) = (path.into(), Some(Bytes::copy_from_slice(data)));
        Update::Create(Create { path, data, acl, raw_owner: owner, parent_cversion, reply_with_stat: false })
    }

    fn set(&mut self, path: &str, data: &[u8]) -> Update {
        if let Some((kept, _)) = self.model.znodes.get_mut(path) {
            *kept = data.to_vec();
        }
        Update::SetData(SetData { path: path.into(), data: Some(Bytes::copy_from_slice(data)), version: 1 })
    }

    fn commit(&mut self, session: SessionId, op: TxnOp) {
        self.last = self.last.next().expect("short");
        let time_ms = 1000 + 10 * i64::try_from(self.txns.len()).expect("short");
        self.txns.push(Txn { zxid: self.last, session, xid: Xid(1), time_ms, op });
        self.models.insert(self.last, self.model.clone());
    }

    /// The log, in batches of up to so many transactions; a batch is of one epoch.
    fn batches(&self, most: usize) -> Vec<Batch> {
        let mut batches = Vec::new();
        let mut previous = Checksum::NONE;
        for epoch in self.txns.chunk_by(|a, b| a.zxid.epoch() == b.zxid.epoch()) {
            for txns in epoch.chunks(most) {
                let mut payload = AlignedVec::new();
                encode_batch(txns, &mut payload);
                let batch = Batch::of(txns[0].zxid, txns[txns.len() - 1].zxid, previous, &payload);
                previous = batch.end().checksum;
                batches.push(batch);
            }
        }
        batches
    }
}

fn store(folder: &std::path::Path, key: Option<&Key>) -> Store {
    let name = folder.join("store").to_str().expect("UTF-8").to_owned();
    let http = Http::new(None).expect("no stores");
    Store::open(StoreSettings { name, key: key.cloned(), http }, true).expect("a folder")
}

fn part(after: Zxid, batches: &[Batch], ensemble: u64) -> Part {
    Part { after, batches: batches.to_vec(), committed: Zxid(u64::MAX), ensemble }
}

/// What is known of a state before it is shipped.
fn about(state: &State, position: LogPosition) -> TakenFull {
    let time_ms = state.last_time_ms();
    TakenFull { position, upload: 0, parts: 0, state_version: STATE_VERSION, time_ms, taken_ms: time_ms }
}

/// Ships a state as it is sent, in pieces that fit nothing.
async fn ship_full(shipper: &mut Shipper, state: &Arc<State>, position: LogPosition) {
    let mut encoder = Encoder::with_block_bytes(Arc::clone(state), 300);
    let (mut bytes, mut block) = (Vec::new(), AlignedVec::new());
    while encoder.next(&mut block) {
        bytes.extend_from_slice(&u32::try_from(block.len()).expect("short").to_le_bytes());
        bytes.extend_from_slice(&block);
    }
    let mut pending = shipper.begin_full(ENSEMBLE, about(state, position)).await.expect("begun");
    for piece in bytes.chunks(77) {
        shipper.add_to_full(&mut pending, piece).await.expect("added");
    }
    shipper.finish_full(pending).await.expect("finished");
}

/// A history, how it was cut into batches, and where states were taken.
struct Shipped {
    leader: Leader,
    fulls: Vec<Zxid>,
}

/// Ships a history: `most` transactions a batch, `together` batches a segment, a state at each of `fulls`.
async fn ship(store: Store, steps: &[Step], most: usize, together: usize, fulls: &[usize]) -> Shipped {
    let leader = Leader::run(steps);
    let batches = leader.batches(most);
    let mut shipper = Shipper::open(store).await.expect("open");
    let mut state = State::new(1);
    let fulls: BTreeSet<usize> = fulls.iter().map(|number| number % batches.len()).collect();
    let first = *fulls.first().expect("one at least");
    let (mut taken, mut waiting) = (Vec::new(), Vec::new());
    for (number, batch) in batches.iter().enumerate() {
        let txns = ringkeeper_engine::txn::decode_batch(batch.payload().expect("whole")).expect("whole");
        state.replay(&txns);
        if number > first {
            waiting.push(batch.clone());
        }
        if waiting.len() == together || fulls.contains(&number) {
            if let Some(end) = shipper.end() {
                shipper.ship(&part(end.zxid, &waiting, ENSEMBLE)).await.expect("shipped");
            }
            waiting.clear();
        }
        if fulls.contains(&number) {
            ship_full(&mut shipper, &Arc::new(state.clone()), batch.end()).await;
            taken.push(batch.last());
        }
    }
    let end = shipper.end().expect("there is a state");
    shipper.ship(&part(end.zxid, &waiting, ENSEMBLE)).await.expect("shipped");
    Shipped { leader, fulls: taken }
}

fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(future)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn every_moment_is_that_of_the_committed_order(
        steps in steps(),
        most in 1_usize..6,
        together in 1_usize..5,
        fulls in proptest::collection::vec(any::<usize>(), 1..4),
        moments in proptest::collection::vec(any::<prop::sample::Index>(), 6),
        encrypts in any::<bool>(),
    ) {
        let folder = tempfile::tempdir().expect("a folder");
        let key: Key = "5a".repeat(32).parse().expect("a key");
        let key = encrypts.then_some(&key);
        run(async {
            let Shipped { leader, fulls } = ship(store(folder.path(), key), &steps, most, together, &fulls).await;
            let store = store(folder.path(), key);
            let all: Vec<_> = leader.models.iter().collect();
            for moment in &moments {
                let (zxid, model) = *moment.get(&all);
                let zxid = *zxid;
                let rebuilt = rebuild(&store, Moment::Zxid(zxid)).await;
                if zxid < fulls[0] {
                    let is_early = matches!(rebuilt, Err(RebuildError::TooEarly { oldest, .. }) if oldest == fulls[0]);
                    assert!(is_early, "{rebuilt:?}");
                    continue;
                }
                let rebuilt = rebuilt.expect("a moment of the store");
                assert_eq!(rebuilt.state.last_zxid(), zxid);
                assert_eq!(&Model::of(&rebuilt.state), model, "at {zxid}");
                // A replay of everything from the beginning, for what the model does not know.
                let mut replayed = State::new(9);
                let upto = leader.txns.partition_point(|txn| txn.zxid <= zxid);
                replayed.replay(&leader.txns[..upto]);
                assert_eq!(rebuilt.state.digest(), replayed.digest());
                // The same moment by its time: each transaction has one of its own.
                let time_ms = leader.txns[upto - 1].time_ms;
                let by_time = rebuild(&store, Moment::Time(time_ms)).await.expect("a moment of the store");
                assert_eq!(by_time.state.last_zxid(), zxid);
                // As a restore goes on from there, with sessions and without.
                let epoch = Epoch(rebuilt.greatest.epoch().0 + 1);
                for keeps_sessions in [true, false] {
                    let (mut state, mut model) = (rebuilt.state.clone(), model.clone());
                    begin_epoch(&mut state, epoch, keeps_sessions);
                    if !keeps_sessions {
                        model.sessions.clear();
                        model.znodes.retain(|_, (_, owner)| *owner == 0);
                    }
                    assert_eq!(Model::of(&state), model, "at {zxid}");
                    assert!(state.last_zxid() > leader.last && state.last_zxid().epoch() == epoch);
                }
            }
            let latest = rebuild(&store, Moment::Latest).await.expect("the end");
            assert_eq!((latest.state.last_zxid(), latest.greatest), (leader.last, leader.last));
            let late = rebuild(&store, Moment::Zxid(Zxid(leader.last.0 + 1))).await;
            assert!(matches!(late, Err(RebuildError::TooLate { end, .. }) if end == leader.last), "{late:?}");
            let verified = verify(&store).await.expect("sound");
            assert_eq!((verified.range, &verified.gaps[..]), ((fulls[0], leader.last), &[][..]));
        });
    }
}

/// A store with a state and four parts of the log.
async fn short(folder: &std::path::Path) -> (Leader, Vec<Batch>) {
    let steps = vec![Step::Open, Step::Two(vec![1]), Step::Two(vec![2]), Step::Elect, Step::Two(vec![3])];
    let Shipped { leader, .. } = ship(store(folder, None), &steps, 1, 1, &[0]).await;
    let batches = leader.batches(1);
    (leader, batches)
}

#[test]
fn what_does_not_continue_the_store_is_refused_and_nothing_is_written() {
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let (_, batches) = short(folder.path()).await;
        let last = batches.last().expect("some").clone();
        let next = |previous| {
            let mut payload = AlignedVec::new();
            let (session, op) = (SessionId(0), TxnOp::Error(ringkeeper_wire::ErrorCode::NoNode));
            let zxid = last.last().next().expect("short");
            encode_batch(&[Txn { zxid, session, xid: Xid(1), time_ms: 9000, op }], &mut payload);
            Batch::of(zxid, zxid, previous, &payload)
        };
        let mut shipper = Shipper::open(store(folder.path(), None)).await.expect("open");
        assert_eq!(shipper.end(), Some(last.end()), "it goes on where the store ends");
        let other = shipper.ship(&part(last.last(), &[next(last.end().checksum)], 7)).await;
        assert!(matches!(other, Err(ShipError::OtherEnsemble { stored: ENSEMBLE, met: 7 })), "{other:?}");
        let forked = shipper.ship(&part(last.last(), &[next(Checksum(99))], ENSEMBLE)).await;
        assert!(matches!(forked, Err(ShipError::Forked { at }) if at == last.last()), "{forked:?}");
        let again = shipper.ship(&part(last.last(), &batches[1..], ENSEMBLE)).await;
        assert!(matches!(again, Err(ShipError::Forked { .. })), "{again:?}");
        let good = next(last.end().checksum);
        shipper.ship(&part(last.last(), std::slice::from_ref(&good), ENSEMBLE)).await.expect("shipped");
        let shipper = Shipper::open(store(folder.path(), None)).await.expect("open");
        assert_eq!(shipper.end(), Some(good.end()));
    });
}

#[test]
fn a_missing_or_damaged_object_is_told_by_name_and_moments_that_do_not_need_it_are_restored() {
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let (leader, batches) = short(folder.path()).await;
        let log = folder.path().join("store/log");
        let mut files: Vec<_> =
            std::fs::read_dir(&log).expect("a folder").map(|e| e.expect("one").path()).collect();
        files.sort();
        let third = &files[2];
        let bytes = std::fs::read(third).expect("read");
        let mut damaged = bytes.clone();
        *damaged.last_mut().expect("long") ^= 1;
        std::fs::write(third, damaged).expect("written");
        let store = store(folder.path(), None);
        let name = third.file_name().expect("a name").to_string_lossy().into_owned();
        for error in [
            rebuild(&store, Moment::Latest).await.expect_err("damaged").to_string(),
            verify(&store).await.expect_err("damaged").to_string(),
        ] {
            assert!(error.contains(&name) && error.contains("damaged"), "{error}");
        }
        std::fs::remove_file(third).expect("removed");
        let gap = rebuild(&store, Moment::Latest).await;
        assert!(matches!(gap, Err(RebuildError::Gap { after, .. }) if after == batches[2].last()), "{gap:?}");
        let gap = rebuild(&store, Moment::Zxid(batches[3].last())).await;
        assert!(matches!(gap, Err(RebuildError::Gap { .. })), "{gap:?}");
        let before = rebuild(&store, Moment::Zxid(batches[2].last())).await.expect("before the gap");
        assert_eq!(Model::of(&before.state), leader.models[&batches[2].last()]);
        assert_eq!(verify(&store).await.expect("a gap is no damage").gaps.len(), 1);
    });
}

#[test]
fn a_store_that_has_vanished_is_not_begun_anew() {
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let (_, batches) = short(folder.path()).await;
        let mut shipper = Shipper::open(store(folder.path(), None)).await.expect("open");
        let kept = folder.path().join("store");
        std::fs::rename(&kept, folder.path().join("away")).expect("renamed");
        let gone = shipper.ship(&part(Zxid(0), &batches[..1], ENSEMBLE)).await;
        assert!(matches!(gone, Err(ShipError::Vanished)), "{gone:?}");
        assert!(!kept.join("log").exists());
    });
}

#[test]
fn a_state_in_the_store_stays_whole_while_others_are_shipped_as_of_the_same_moment() {
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        // One begins before the store has a state, another one when it has.
        let early = Shipper::open(store(folder.path(), None)).await.expect("open");
        let (leader, batches) = short(folder.path()).await;
        let late = Shipper::open(store(folder.path(), None)).await.expect("open");
        let mut state = State::new(2);
        state.replay(&leader.txns[..1]);
        for mut shipper in [early, late] {
            let about = about(&state, batches[0].end());
            let mut unfinished = shipper.begin_full(ENSEMBLE, about).await.expect("begun");
            shipper.add_to_full(&mut unfinished, &vec![7; 9 << 20]).await.expect("added");
            let rebuilt = rebuild(&store(folder.path(), None), Moment::Latest).await.expect("whole");
            assert_eq!(Model::of(&rebuilt.state), leader.models[&leader.last]);
        }
    });
}

#[test]
fn another_state_is_due_when_the_newest_one_is_old_and_something_was_committed() {
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let leader = Leader::run(&[Step::Open, Step::Two(vec![1])]);
        let batches = leader.batches(1);
        let mut state = State::new(1);
        state.replay(&leader.txns[..1]);
        let (taken_ms, every) = (state.last_time_ms(), Duration::from_secs(60));
        let mut shipper = Shipper::open(store(folder.path(), None)).await.expect("open");
        assert!(shipper.is_full_due(taken_ms, every), "there is none");
        ship_full(&mut shipper, &Arc::new(state), batches[0].end()).await;
        assert!(!shipper.is_full_due(taken_ms + 60_000, every), "nothing was committed");
        let end = batches[0].last();
        shipper.ship(&part(end, &batches[1..2], ENSEMBLE)).await.expect("shipped");
        assert!(!shipper.is_full_due(taken_ms + 59_999, every), "it is not old");
        assert!(shipper.is_full_due(taken_ms + 60_000, every));
        let shipper = Shipper::open(store(folder.path(), None)).await.expect("open");
        assert!(shipper.is_full_due(taken_ms + 60_000, every), "and so for another one");
    });
}

#[test]
fn what_is_kept_is_whole_after_old_moments_were_removed() {
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let steps: Vec<_> = (0..30).map(|number| Step::Two(vec![number])).collect();
        let Shipped { leader, fulls } = ship(store(folder.path(), None), &steps, 1, 2, &[0, 10, 20]).await;
        let store = store(folder.path(), None);
        let from = &leader.txns[15];
        assert!(prune(&store, from.time_ms).await.expect("removed") > 0);
        assert_eq!(prune(&store, from.time_ms).await.expect("nothing more"), 0);
        let verified = verify(&store).await.expect("sound");
        assert_eq!((verified.range, verified.fulls), ((fulls[1], leader.last), 2));
        let rebuilt = rebuild(&store, Moment::Time(from.time_ms)).await.expect("kept");
        assert_eq!(Model::of(&rebuilt.state), leader.models[&from.zxid]);
        let gone = rebuild(&store, Moment::Zxid(leader.txns[5].zxid)).await;
        assert!(matches!(gone, Err(RebuildError::TooEarly { .. })), "{gone:?}");
    });
}
