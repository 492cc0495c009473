//! The judge: collects the committed order from all servers, and checks what must hold for it.

use std::collections::{BTreeMap, HashMap, HashSet};

use ringkeeper_engine::level::FeatureLevel;
use ringkeeper_engine::members::{Members, Membership};
use ringkeeper_engine::message::{Committed, Published};
use ringkeeper_engine::path;
use ringkeeper_engine::state::State;
use ringkeeper_engine::txn::{Effect, Outcome, Txn, TxnOp, Update, decode_batch};
use ringkeeper_engine::zab::{Batch, LogPosition, Quorum, QuorumSystem, ServerSet};
use ringkeeper_log::frame;
use ringkeeper_wire::{Epoch, ErrorCode, ServerId, Zxid};

use super::ask::Ask;
use super::levels::Levels;
use super::model::{Answer, Change, Stamp, Tree};
use super::rules::{self, Who};
use super::violation::{Oracle, Violation};

/// A committed transaction and the world after it.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) zxid: i64,
    txn: Txn,
    pub(crate) tree: Tree,
    pub(crate) changes: Vec<Change>,
    level: FeatureLevel,
}

impl Entry {
    /// The session of the transaction.
    pub(crate) const fn session(&self) -> i64 {
        self.txn.session.0
    }

    /// Whether it changes this znode.
    pub(crate) fn touches(&self, path: &str) -> bool {
        self.changes.iter().any(|change| &*change.path == path)
    }
}

/// A request that a client sent.
#[derive(Debug)]
struct Sent {
    ask: Ask,
    link: u64,
    /// Its number among the writes of its connection.
    number: u64,
    /// It was sent on a connection that had lost its session, so it must not be committed.
    forbidden: bool,
    /// A server has refused it since its disk is full, so it must not be committed.
    refused: bool,
    /// Its place and its answer, once it is committed.
    committed: Option<(i64, Answer)>,
}

/// Checks one run.
#[derive(Debug)]
pub(crate) struct Judge {
    /// Watches that a setWatches sets in one slice.
    pub(crate) watches_of_slice: usize,
    quorum: QuorumSystem,
    pub(crate) levels: Levels,
    history: Vec<Entry>,
    start: Tree,
    digests: BTreeMap<i64, u64>,
    /// Which servers have a batch on their disks.
    durable: BTreeMap<(Zxid, u32), ServerSet>,
    leaders: HashMap<Epoch, (ServerId, u64)>,
    /// The last promise of each server: to which leader, in which of its lives.
    promises: HashMap<ServerId, (Epoch, ServerId, u64)>,
    /// Ends of the committed batches.
    committed: Vec<LogPosition>,
    requests: HashMap<(i64, i32), Sent>,
    /// The clients of the sessions that clients were granted.
    pub(crate) clients: HashMap<i64, Who>,
    /// Sessions that clients were given without a transaction.
    local: HashSet<i64>,
    /// Sessions that a transaction has begun.
    created: HashSet<i64>,
    /// Sessions whose clients know that they have ended.
    ended: HashSet<i64>,
    /// Sessions that the ensemble has ended, and that nobody has looked at since.
    pub(crate) expired: Vec<i64>,
    /// How many writes of a connection are committed.
    committed_of_link: HashMap<u64, u64>,
    /// Some disk was full at some time, so servers may refuse writes.
    pub(crate) was_full: bool,
    pub(crate) refusals: u64,
    /// Folders have lost what was in them, all of it by a copy put back or some of it by damage: servers may
    /// say so.
    pub(crate) has_losses: bool,
    /// Some server was started with another list of voters.
    pub(crate) lists_differ: bool,
    /// The newest zxid that any client has seen.
    pub(crate) seen: i64,
    /// Changes between majorities and groups.
    pub(crate) regroupings: u64,
    pub(crate) writes_checked: u64,
    pub(crate) reads_checked: u64,
    pub(crate) events_checked: u64,
    /// Answers to setWatches with too many possibilities.
    pub(crate) restores_unexplained: u64,
    /// Committed changes of the rules.
    pub(crate) rules_changed: u64,
    /// Replies NOAUTH.
    pub(crate) forbidden: u64,
}

impl Judge {
    pub(crate) fn new(configured: Members, ephemerals_max: usize, watches_of_slice: usize) -> Self {
        Self {
            watches_of_slice,
            quorum: configured.quorums(),
            levels: Levels::new(configured),
            expired: Vec::new(),
            regroupings: 0,
            history: Vec::new(),
            start: Tree::new(ephemerals_max),
            digests: BTreeMap::new(),
            durable: BTreeMap::new(),
            leaders: HashMap::new(),
            promises: HashMap::new(),
            committed: Vec::new(),
            requests: HashMap::new(),
            clients: HashMap::new(),
            local: HashSet::new(),
            created: HashSet::new(),
            ended: HashSet::new(),
            committed_of_link: HashMap::new(),
            was_full: false,
            refusals: 0,
            has_losses: false,
            lists_differ: false,
            seen: 0,
            writes_checked: 0,
            reads_checked: 0,
            events_checked: 0,
            restores_unexplained: 0,
            rules_changed: 0,
            forbidden: 0,
        }
    }

    pub(crate) fn leaderships(&self) -> u64 {
        self.leaders.len() as u64
    }

    pub(crate) fn history(&self) -> &[Entry] {
        &self.history
    }

    /// Zxid of the newest committed transaction.
    pub(crate) fn newest(&self) -> i64 {
        self.history.last().map_or(0, |entry| entry.zxid)
    }

    /// The world after everything committed.
    pub(crate) fn tree(&self) -> &Tree {
        self.history.last().map_or(&self.start, |entry| &entry.tree)
    }

    /// The world at a committed zxid.
    pub(crate) fn tree_at(&self, zxid: i64) -> Option<&Tree> {
        if zxid == 0 {
            return Some(&self.start);
        }
        self.index_of(zxid).map(|index| &self.history[index].tree)
    }

    fn index_of(&self, zxid: i64) -> Option<usize> {
        self.history.binary_search_by_key(&zxid, |entry| entry.zxid).ok()
    }

    /// The entries after one zxid, up to another.
    pub(crate) fn between(&self, after: i64, upto: i64) -> &[Entry] {
        let from = self.history.partition_point(|entry| entry.zxid <= after);
        let to = self.history.partition_point(|entry| entry.zxid <= upto);
        self.history.get(from..to).unwrap_or_default()
    }

    // What clients do.

    /// A client is given a new session.
    pub(crate) fn opened(&mut self, session: i64) -> Result<(), Violation> {
        if self.created.contains(&session) {
            return Ok(());
        }
        let fresh = self.local.insert(session);
        Oracle::Session.check(fresh, || format!("session {session:#x} is given to two clients"))
    }

    /// A client is told that its session has ended.
    pub(crate) fn ended(&mut self, session: i64) {
        self.ended.insert(session);
    }

    /// Whether only the server that has made the session knows it.
    pub(crate) fn is_local(&self, session: i64) -> bool {
        self.local.contains(&session) && !self.created.contains(&session)
    }

    pub(crate) fn sent(
        &mut self,
        session: i64,
        xid: i32,
        ask: &Ask,
        link: u64,
        number: u64,
        forbidden: bool,
    ) {
        let sent = Sent { ask: ask.clone(), link, number, forbidden, refused: false, committed: None };
        self.requests.insert((session, xid), sent);
    }

    /// A client reads the answer to a write.
    pub(crate) fn answered(
        &mut self,
        session: i64,
        xid: i32,
        zxid: i64,
        err: i32,
        body: &[u8],
    ) -> Result<(), Violation> {
        self.writes_checked += 1;
        let sent = self.requests.get(&(session, xid));
        let Some((at, answer)) = sent.and_then(|sent| sent.committed.as_ref()) else {
            return Err(Oracle::Durable.broken(format!(
                "write {xid} of session {session:#x} was answered with {zxid:#x} before it was committed"
            )));
        };
        let fits = *at == zxid && answer.err.to_wire() == err && answer.body == body;
        Oracle::Write.check(fits, || {
            format!(
                "write {xid} of session {session:#x} was answered with zxid {zxid:#x}, error {err}, {body:?}; \
                 the model says {at:#x}, {:?}, {:?}",
                answer.err, answer.body
            )
        })
    }

    /// A client reads that a write was not carried out since the disk is full.
    /// `alone`: by a server in read-only mode.
    pub(crate) fn refused(&mut self, session: i64, xid: i32, alone: bool) -> Result<(), Violation> {
        self.refusals += u64::from(!alone);
        let Some(sent) = self.requests.get_mut(&(session, xid)).filter(|_| alone || self.was_full) else {
            return Err(Oracle::Write.broken(format!("write {xid} of session {session:#x} was refused")));
        };
        sent.refused = true;
        let committed = &sent.committed;
        Oracle::Write.check(committed.is_none(), || {
            format!("write {xid} of session {session:#x} was refused and is committed: {committed:?}")
        })
    }

    // What servers do.

    /// Records that a batch is durable on a server's disk.
    pub(crate) fn durable(&mut self, server: ServerId, mark: LogPosition) {
        self.durable.entry((mark.zxid, mark.checksum.0)).or_default().insert(server);
    }

    /// A server truncates batches, none of which may be committed.
    pub(crate) fn cut(&mut self, server: ServerId, batches: &[Batch]) -> Result<(), Violation> {
        for batch in batches {
            let zxid = batch.last().to_wire();
            if self.index_of(zxid).is_some() {
                return Err(
                    Oracle::Durable.broken(format!("server {server} cuts off the committed {zxid:#x}"))
                );
            }
            if let Some(holders) = self.durable.get_mut(&(batch.last(), batch.end().checksum.0)) {
                holders.remove(server);
            }
        }
        Ok(())
    }

    /// A snapshot has taken the place of a log.
    pub(crate) fn replaced(
        &mut self,
        server: ServerId,
        batches: &[Batch],
        last: LogPosition,
    ) -> Result<(), Violation> {
        let known = self.index_of(last.zxid.to_wire()).is_some();
        Oracle::Prefix.check(known, || {
            format!("server {server} takes a snapshot at {}, which is not committed", last.zxid)
        })?;
        let kept = batches.partition_point(|batch| batch.last() <= last.zxid);
        self.cut(server, &batches[kept..])
    }

    /// A server begins to lead with this log and state, which must contain everything committed.
    pub(crate) fn leads(
        &mut self,
        server: ServerId,
        life: u64,
        epoch: Epoch,
        last: Zxid,
        log: &[Batch],
    ) -> Result<(), Violation> {
        let leader = *self.leaders.entry(epoch).or_insert((server, life));
        Oracle::OneLeader.check(leader == (server, life), || {
            format!("epoch {} has the leaders {} and {server}", epoch.0, leader.0)
        })?;
        // A leader that learns late of its election need not have what a newer leader has committed since.
        let older = self.committed.partition_point(|mark| mark.zxid.epoch() < epoch);
        let Some(newest) = older.checked_sub(1).map(|index| self.committed[index]) else { return Ok(()) };
        let found = log.get(log.partition_point(|batch| batch.last() < newest.zxid)).map(Batch::end);
        let has = match found {
            Some(end) if log[0].first() <= newest.zxid => end == newest,
            _ => last >= newest.zxid,
        };
        Oracle::Durable
            .check(has, || format!("server {server} leads epoch {} without {newest:?}: {log:?}", epoch.0))
    }

    /// A server promises an epoch to a leader.
    pub(crate) fn promises(
        &mut self,
        server: ServerId,
        life: u64,
        to: ServerId,
        epoch: Epoch,
    ) -> Result<(), Violation> {
        let promise = (epoch, to, life);
        let before = self.promises.insert(server, promise);
        let kept = before.is_none_or(|before| before == promise || before.0 < epoch);
        Oracle::Promise.check(kept, || format!("server {server} promises {promise:?} after {before:?}"))
    }

    /// A server's disk was wiped, and with it the promises.
    pub(crate) fn wiped(&mut self, server: ServerId) {
        self.promises.remove(&server);
    }

    /// A server begins to serve from `state`, whose transactions are in `log`. Returns how many are committed
    /// there.
    pub(crate) fn serves(
        &mut self,
        server: ServerId,
        state: &State,
        log: &[Batch],
    ) -> Result<usize, Violation> {
        let zxid = state.last_zxid().to_wire();
        for batch in log {
            if batch.last().to_wire() <= self.newest() || batch.last().to_wire() > zxid {
                continue;
            }
            let payload =
                frame::parse(batch.bytes()).map_err(|error| Oracle::Log.broken(error.to_string()))?;
            let txns =
                decode_batch(payload.payload()).map_err(|error| Oracle::Log.broken(error.to_string()))?;
            for txn in txns {
                self.extend(server, &txn, log)?;
            }
        }
        let known = zxid == 0 || self.index_of(zxid).is_some();
        Oracle::Prefix
            .check(known, || format!("server {server} serves {zxid:#x}, which is not committed"))?;
        self.compare(server, state)?;
        Ok(self.index_of(zxid).map_or(0, |index| index + 1))
    }

    /// A server publishes what follows its `position`; returns the new one.
    pub(crate) fn published(
        &mut self,
        server: ServerId,
        position: usize,
        published: &Published,
        log: &[Batch],
    ) -> Result<usize, Violation> {
        let mut position = position;
        for group in &published.groups {
            for committed in &group.txns {
                match self.history.get(position) {
                    Some(entry) => Oracle::Prefix.check(entry.txn == committed.txn, || {
                        format!("server {server} publishes {:?} in place of {:?}", committed.txn, entry.txn)
                    })?,
                    None => {
                        self.extend(server, &committed.txn, log)?;
                        self.check_outcome(server, committed)?;
                    }
                }
                position += 1;
            }
            self.compare(server, &group.view)?;
        }
        Ok(position)
    }

    fn compare(&mut self, server: ServerId, state: &State) -> Result<(), Violation> {
        let zxid = state.last_zxid().to_wire();
        let digest = *self.digests.entry(zxid).or_insert_with(|| state.digest());
        Oracle::Tree.check(digest == state.digest(), || {
            format!("server {server} has digest {:#x} at {zxid:#x}, another has {digest:#x}", state.digest())
        })?;
        let Some(tree) = self.tree_at(zxid) else {
            return Err(Oracle::Prefix.broken(format!("server {server} is at {zxid:#x}")));
        };
        // Besides the model's znodes there are those of the config, the quotas, and perhaps the level.
        let others = 2 + usize::from(state.znode(path::FEATURE_LEVEL).is_some());
        let (found, model) = (state.tree().len(), tree.znodes.len() + others);
        Oracle::Tree.check(found == model, || {
            format!("server {server} has {found} znodes at {zxid:#x}, the model {model}")
        })?;
        if let Some(what) = rules::difference(tree, state) {
            return Err(Oracle::Rules.broken(format!("server {server} at {zxid:#x}: {what}")));
        }
        let level = self.index_of(zxid).map_or_else(FeatureLevel::default, |index| self.history[index].level);
        Oracle::Level.check(state.feature_level() == level, || {
            format!("server {server} has the level {} at {zxid:#x}, the log {level}", state.feature_level())
        })
    }

    /// Compares a state with the model, znode by znode.
    pub(crate) fn compare_all(&self, server: ServerId, state: &State) -> Result<(), Violation> {
        let zxid = state.last_zxid().to_wire();
        let Some(tree) = self.tree_at(zxid) else {
            return Err(Oracle::Prefix.broken(format!("server {server} is at {zxid:#x}")));
        };
        for (path, znode) in tree.znodes.iter().filter(|(path, _)| !matches!(&***path, "/" | "/zookeeper")) {
            let found =
                state.znode(path).map(|found| (found.stat(), found.data().unwrap_or_default().to_vec()));
            let expected = Some((znode.stat(), znode.data.to_vec()));
            Oracle::Tree.check(found == expected, || {
                format!("server {server} has {found:?} as {path} at {zxid:#x}, the model {expected:?}")
            })?;
        }
        let sessions: Vec<i64> = state.sessions().map(|(session, _)| session.0).collect();
        let expected: Vec<i64> = tree.sessions.iter().copied().collect();
        Oracle::Tree.check(sessions == expected, || {
            format!("server {server} has the sessions {sessions:x?} at {zxid:#x}, the model {expected:x?}")
        })
    }

    /// Appends a transaction to the committed order, after checking it.
    fn extend(&mut self, server: ServerId, txn: &Txn, log: &[Batch]) -> Result<(), Violation> {
        let zxid = txn.zxid.to_wire();
        let newest = self.history.last();
        Oracle::Prefix.check(zxid > self.newest(), || {
            format!("server {server} goes on with {zxid:#x} after {:#x}", self.newest())
        })?;
        Oracle::Time.check(newest.is_none_or(|entry| entry.txn.time_ms <= txn.time_ms), || {
            format!("{txn:?} is earlier than {newest:?}")
        })?;
        self.check_durable(server, txn.zxid, log)?;
        if let TxnOp::Reconfig(Update::SetData(set)) = &txn.op
            && let Some(members) = Membership::read(set.data.as_deref().unwrap_or_default(), txn.zxid, None)
        {
            // A change needs quorums before and after.
            self.levels.reconfigured(members.members)?;
            let after = members.quorums.voters;
            self.regroupings += u64::from((self.quorum.groups() == 0) != (after.groups() == 0));
            self.quorum = after;
            self.check_durable(server, txn.zxid, log)?;
        }
        let mut tree = self.tree().clone();
        let changes = self.apply(&mut tree, txn)?;
        self.rules_changed += u64::from(changes.iter().any(|change| rules::is_place(&change.path)));
        let level = self.levels.now();
        self.history.push(Entry { zxid, txn: txn.clone(), tree, changes, level });
        Ok(())
    }

    fn check_durable(&mut self, server: ServerId, zxid: Zxid, log: &[Batch]) -> Result<(), Violation> {
        let batch = log.get(log.partition_point(|batch| batch.last() < zxid));
        let mark = batch.filter(|batch| batch.first() <= zxid).map(Batch::end);
        let holders = mark.and_then(|mark| self.durable.get(&(mark.zxid, mark.checksum.0)));
        let holders = holders.copied().unwrap_or_default();
        Oracle::Durable.check(self.quorum.is_quorum(&holders), || {
            format!("server {server} counts {zxid} as committed, durable only on {holders:?}")
        })?;
        self.committed.extend(mark.filter(|mark| self.committed.last() != Some(mark)));
        Ok(())
    }

    fn apply(&mut self, tree: &mut Tree, txn: &Txn) -> Result<Vec<Change>, Violation> {
        let session = txn.session.0;
        let who = self.clients.get(&session).copied().unwrap_or_default();
        let is_local = self.is_local(session);
        let stamp = Stamp { session, is_local, zxid: txn.zxid.to_wire(), time_ms: txn.time_ms, who };
        match &txn.op {
            TxnOp::CreateSession(_) => {
                // Its client counts on its ephemerals being gone, so there must not be any from now on.
                Oracle::Ephemeral.check(!self.ended.contains(&txn.session.0), || {
                    format!("session {} is upgraded, and its client knows that it has ended", txn.session)
                })?;
                let fresh = self.created.insert(txn.session.0);
                Oracle::Session.check(fresh, || format!("session {} is created again", txn.session))?;
                tree.sessions.insert(txn.session.0);
                Ok(Vec::new())
            }
            TxnOp::Reconfig(_) => Ok(Vec::new()),
            TxnOp::Update(update) if txn.session.0 == 0 && update.path() == path::FEATURE_LEVEL => {
                self.levels.changed(update).map(|()| Vec::new())
            }
            op => {
                let key = (txn.session.0, txn.xid.0);
                let asked = self.take_place(txn)?;
                if closes_session(op) {
                    let closed = Answer { err: ErrorCode::Ok, body: Vec::new(), stats: Vec::new() };
                    self.settle(key, stamp.zxid, closed);
                    return Ok(tree.close(stamp));
                }
                let Some(ask) = asked else {
                    return Err(Oracle::SessionOrder.broken(format!("nobody asked for {txn:?}")));
                };
                let (answer, changes) = match &ask {
                    Ask::Close => (
                        Answer { err: ErrorCode::SessionExpired, body: Vec::new(), stats: Vec::new() },
                        Vec::new(),
                    ),
                    ask => tree.write(stamp, ask),
                };
                let fits = match op {
                    TxnOp::Error(code) => *code == answer.err,
                    TxnOp::FailedMulti(_) => matches!(ask, Ask::Multi(_)) && answer.stats.is_empty(),
                    _ => answer.err == ErrorCode::Ok,
                };
                Oracle::Write.check(fits, || format!("{ask:?} became {txn:?}, the model says {answer:?}"))?;
                self.settle(key, stamp.zxid, answer);
                Ok(changes)
            }
        }
    }

    /// Finds the request of a committed transaction. It must have been sent once, after all before it, on the
    /// connection that has the session.
    fn take_place(&mut self, txn: &Txn) -> Result<Option<Ask>, Violation> {
        let expired = (closes_session(&txn.op) || matches!(txn.op, TxnOp::Error(_))) && txn.xid.0 == 0;
        if expired {
            self.expired.push(txn.session.0);
            return Ok(Some(Ask::Close));
        }
        let Some(sent) = self.requests.get(&(txn.session.0, txn.xid.0)) else { return Ok(None) };
        Oracle::SessionOrder.check(sent.committed.is_none(), || format!("committed twice: {txn:?}"))?;
        Oracle::Session.check(!sent.forbidden, || {
            format!("committed from a connection that had lost its session: {txn:?}")
        })?;
        Oracle::Write.check(!sent.refused, || format!("committed after it was refused: {txn:?}"))?;
        let before = self.committed_of_link.entry(sent.link).or_default();
        // A server whose disk is full skips writes. If such a write gets another reply than a refusal, the
        // reply is found to be wrong when the client reads it.
        let in_order = *before == sent.number || (self.was_full && *before < sent.number);
        Oracle::SessionOrder.check(in_order, || {
            format!(
                "{} writes of this connection are committed before its number {}: {txn:?}",
                before, sent.number
            )
        })?;
        *before = sent.number + 1;
        Ok(Some(sent.ask.clone()))
    }

    fn settle(&mut self, key: (i64, i32), zxid: i64, answer: Answer) {
        if let Some(sent) = self.requests.get_mut(&key) {
            sent.committed = Some((zxid, answer));
        }
    }

    /// Compares a transaction's outcome in the engine with the model's, even if no client gets a reply.
    fn check_outcome(&self, server: ServerId, committed: &Committed) -> Result<(), Violation> {
        if let (Outcome::SessionClosed(gone), Some(entry)) = (&committed.outcome, self.history.last()) {
            let owned = entry.changes.iter().map(|change| &change.path);
            Oracle::Ephemeral.check(owned.eq(gone.iter().map(|(path, _)| path)), || {
                format!(
                    "server {server}: {} ends with {gone:?}, and owned {:?}",
                    committed.txn.session, entry.changes
                )
            })?;
        }
        let key = (committed.txn.session.0, committed.txn.xid.0);
        let Some((_, answer)) = self.requests.get(&key).and_then(|sent| sent.committed.as_ref()) else {
            return Ok(());
        };
        if matches!(committed.outcome, Outcome::SessionClosed(_) | Outcome::SessionCreated) {
            return Ok(());
        }
        let missed = committed.outcome.effects().iter().any(|effect| matches!(effect, Effect::Missed(_)));
        let set = committed.outcome.effects().iter().filter_map(|effect| match effect {
            Effect::DataSet { stat, .. } => Some(*stat),
            _ => None,
        });
        let fits = !missed && set.clone().all(|stat| answer.stats.contains(&stat));
        Oracle::Write.check(fits, || {
            format!(
                "server {server} made {:?} of {:?}, the model {answer:?}",
                committed.outcome, committed.txn
            )
        })
    }
}

const fn closes_session(op: &TxnOp) -> bool {
    matches!(op, TxnOp::CloseSession | TxnOp::CloseSessionListed(_))
}
