//! Local sessions (`localSessionsEnabled`, docs/decisions/0052-local-sessions.md): a server keeps the
//! sessions of its clients by itself, so that opening, renewing and ending them costs no transaction and no
//! message.
//!
//! Requests of local sessions go their usual ways: reads are answered by the shard, writes are ordered by the
//! leader, who is told that the session is local ([`Submission::local`]). Such a session owns no ephemeral.
//!
//! If local sessions are upgraded (`localSessionsUpgradingEnabled`), the first write that creates an
//! ephemeral makes the session one of the ensemble. Its server forgets it and sends the leader
//! [`Submitted::Upgrade`], then the write. From that moment on the session is not local, whatever becomes of
//! the two: what the client sends next, its close included, and its disconnection and its silence are the
//! leader's business, and reach it in order behind the upgrade. So nothing that happens meanwhile can leave
//! the ephemeral without a session. What a server says of its local sessions holds in the epoch in which it
//! follows: a leader that has begun another one has lost what was asked before. If the leader is lost, the
//! next one has the upgrade in its log, or the session has ended.

use std::collections::BTreeMap;

use ringkeeper_wire::{OpCode, SessionId};

use super::expiry::{Expiry, Verdict};
use super::issuer::{Issued, Issuer};
use super::leading::{CLOSING_STEPS_MAX, body, decode};
use super::{Attachment, Now, Output, Replica, ReplicaSettings, Role};
use crate::message::{Origin, RequestBatch, ShardId, Submission, Submitted, ToShard};
use crate::mutation::planted;
use crate::prepare;

/// From this version of the messages between servers on, a leader takes requests of local sessions, and tells
/// its successor which sessions it has called expired. Versions 9 to 11 do the former alone.
pub const LOCAL_SESSIONS_SINCE: u8 = 12;

/// A server's local sessions.
#[derive(Debug)]
pub(super) struct LocalSessions {
    upgrades: bool,
    issuer: Issuer,
    sessions: BTreeMap<SessionId, LocalSession>,
    expiry: Expiry,
}

#[derive(Debug)]
struct LocalSession {
    password: [u8; 16],
    timeout_ms: u32,
    /// The connection that has the session.
    holder: Option<Origin>,
    /// The connection that is given it once no write is under way: otherwise a write of the connection before
    /// could take effect behind one of this connection.
    returning: Option<Origin>,
    /// Its client has closed it: it ends once no write is under way.
    closes: bool,
    /// Writes that the leader was given and that are not committed here.
    writes: usize,
}

impl LocalSessions {
    pub(super) fn new(settings: &ReplicaSettings) -> Self {
        Self {
            upgrades: settings.local_sessions_upgrading,
            issuer: Issuer::new(settings.server, settings.random_seed, Issued::Local),
            sessions: BTreeMap::new(),
            expiry: Expiry::new(0, settings.tick_ms, settings.reported_within_ms),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.sessions.len()
    }

    pub(super) fn contains(&self, session: SessionId) -> bool {
        self.sessions.contains_key(&session)
    }

    pub(super) const fn expiry(&self) -> &Expiry {
        &self.expiry
    }

    /// All connections are closed, and no write will be answered. The sessions live on.
    pub(super) fn disconnected(&mut self) {
        for session in self.sessions.values_mut() {
            (session.holder, session.returning, session.writes) = (None, None, 0);
        }
    }

    /// Ends them all, none of which has a connection.
    pub(super) fn clear(&mut self) {
        self.sessions.keys().for_each(|session| self.expiry.forget(*session));
        self.sessions.clear();
    }

    /// Time passes in which clients are not heard.
    pub(super) const fn note_pause(&mut self) {
        self.expiry.note_pause();
    }

    /// Whether it is a local session, which was heard from.
    fn touch(&mut self, now: Now, session: SessionId) -> bool {
        self.expiry.touch(now.monotonic_ms, session);
        self.contains(session)
    }

    fn is_held_by(&self, session: SessionId, origin: Origin) -> bool {
        self.sessions.get(&session).is_some_and(|session| session.holder == Some(origin) && !session.closes)
    }

    fn remove(&mut self, session: SessionId) -> Option<LocalSession> {
        self.expiry.forget(session);
        self.sessions.remove(&session)
    }

    /// The sessions that were silent for too long.
    fn expired(&mut self, now: Now) -> Vec<(SessionId, LocalSession)> {
        self.expiry.pass(now.monotonic_ms);
        let mut left = CLOSING_STEPS_MAX;
        let expired = self.expiry.expired(now.monotonic_ms, |_, _| {
            left = left.saturating_sub(1);
            if left > 0 { Verdict::Expires } else { Verdict::NextTime }
        });
        let mut ended = Vec::with_capacity(expired.len());
        for id in expired {
            match self.sessions.get(&id) {
                // Nobody may be told that a session has ended while a write of it may take effect.
                Some(session) if session.writes > 0 => {
                    self.expiry.track(now.monotonic_ms, id, session.timeout_ms)
                }
                _ => ended.extend(self.sessions.remove(&id).map(|session| (id, session))),
            }
        }
        ended
    }
}

/// Whether the request is a write that may create an ephemeral, and says so.
fn asks_for_ephemeral(submission: &Submission, bytes: &[u8]) -> bool {
    let Submitted::Write { op: OpCode::Create | OpCode::Create2 | OpCode::Multi, .. } = submission.what
    else {
        return false;
    };
    let request = body(submission, bytes).and_then(|body| decode(submission, body));
    request.is_some_and(|request| prepare::creates_ephemeral(&request))
}

impl Replica {
    /// Number of sessions that this server alone knows.
    #[must_use]
    pub fn local_session_count(&self) -> usize {
        self.local.as_ref().map_or(0, LocalSessions::len)
    }

    /// Whether new sessions are local.
    pub(super) const fn opens_locally(&self) -> bool {
        self.local.is_some() && self.local_in.is_some() && !matches!(self.role, Role::Looking)
    }

    /// Handles the requests that concern local sessions, and leaves those that the leader has to see.
    pub(super) fn keep_local(&mut self, now: Now, shard: ShardId, batch: &mut RequestBatch) {
        if !self.opens_locally() {
            return;
        }
        let Some(local) = &mut self.local else { return };
        batch.touched.retain(|session| !local.touch(now, *session));
        for mut submission in std::mem::take(&mut batch.submissions) {
            let (session, origin) = (submission.session, Origin { shard, conn: submission.conn });
            let Some(local) = &mut self.local else { return };
            match &submission.what {
                Submitted::Open { timeout_ms } => {
                    self.open_local(now, origin, *timeout_ms);
                    continue;
                }
                Submitted::Reattach { password, timeout_ms } if local.contains(session) => {
                    self.reattach_local(now, origin, session, *password, *timeout_ms);
                    continue;
                }
                Submitted::Detach if local.contains(session) => {
                    self.detach_local(session, origin);
                    continue;
                }
                _ if !local.is_held_by(session, origin) => {}
                Submitted::Write { op: OpCode::CloseSession, .. } => {
                    self.close_local(now, session);
                    continue;
                }
                Submitted::Write { .. }
                    if local.upgrades && asks_for_ephemeral(&submission, &batch.bytes) =>
                {
                    batch.submissions.extend(self.upgrade_local(session, origin));
                }
                Submitted::Write { .. } => {
                    submission.local = true;
                    if let Some(session) = local.sessions.get_mut(&session) {
                        session.writes += 1;
                    }
                }
                Submitted::Sync => submission.local = true,
                _ => {}
            }
            batch.submissions.push(submission);
        }
    }

    fn open_local(&mut self, now: Now, origin: Origin, timeout_ms: u32) {
        // The connection is closed without a reply, so that the client tries again later.
        if !self.admits_session(SessionId(0)) {
            return self.output(Output::Shard(origin.shard, ToShard::Evict { conn: origin.conn }));
        }
        let state = self.pipeline.head();
        let Some(local) = &mut self.local else { return };
        let sessions = &local.sessions;
        let taken = |session| state.session(session).is_some() || sessions.contains_key(&session);
        let (session, password) = local.issuer.issue(taken);
        let opened =
            LocalSession { password, timeout_ms, holder: None, returning: None, closes: false, writes: 0 };
        local.sessions.insert(session, opened);
        self.attach_local(now, origin, session);
    }

    pub(super) fn reattach_local(
        &mut self,
        now: Now,
        origin: Origin,
        session: SessionId,
        password: [u8; 16],
        timeout_ms: u32,
    ) {
        let Some(known) = self.local.as_mut().and_then(|local| local.sessions.get_mut(&session)) else {
            return;
        };
        let wrong = known.password != password && !planted!(self.settings.requests, AcceptAnyPassword);
        if wrong || known.closes {
            return self.output(Output::Shard(origin.shard, ToShard::Rejected { conn: origin.conn }));
        }
        known.timeout_ms = timeout_ms;
        let previous = [known.holder.take(), known.returning.replace(origin)];
        let writes = known.writes;
        previous.into_iter().flatten().for_each(|previous| self.evict_local(session, previous));
        if writes == 0 {
            self.settle_local(now, session);
        }
    }

    fn attach_local(&mut self, now: Now, origin: Origin, session: SessionId) {
        let Some(local) = &mut self.local else { return };
        let Some(known) = local.sessions.get_mut(&session) else { return };
        known.holder = Some(origin);
        local.expiry.track(now.monotonic_ms, session, known.timeout_ms);
        let Origin { shard, conn } = origin;
        let LocalSession { password, timeout_ms, .. } = *known;
        self.tell_local_shard(shard, ToShard::Attached { conn, session, password, timeout_ms });
    }

    /// The connection is gone. The writes that it waits for are counted on.
    pub(super) fn detach_local(&mut self, session: SessionId, origin: Origin) {
        let Some(known) = self.local.as_mut().and_then(|local| local.sessions.get_mut(&session)) else {
            return;
        };
        if known.holder == Some(origin) {
            known.holder = None;
            self.attached.remove(&session);
        }
    }

    /// The client has been told that its session is closed, by a server without a leader.
    pub(super) fn forget_local(&mut self, session: SessionId, origin: Origin) {
        if let Some(local) = self.local.as_mut().filter(|local| local.is_held_by(session, origin)) {
            local.remove(session);
            self.attached.remove(&session);
        }
    }

    fn close_local(&mut self, now: Now, session: SessionId) {
        let Some(known) = self.local.as_mut().and_then(|local| local.sessions.get_mut(&session)) else {
            return;
        };
        known.closes = true;
        if known.writes == 0 {
            self.settle_local(now, session);
        }
    }

    /// The session becomes one of the ensemble: what to ask the leader for, before the write that needs it.
    fn upgrade_local(&mut self, session: SessionId, origin: Origin) -> Option<Submission> {
        let local = self.local.as_mut()?;
        let LocalSession { password, timeout_ms, .. } = *local.sessions.get(&session)?;
        if !planted!(self.settings.requests, KeepUpgradedLocally) {
            local.remove(session);
        }
        let what = Submitted::Upgrade { password, timeout_ms };
        Some(Submission { conn: origin.conn, session, local: false, what })
    }

    /// A transaction of the session is committed here; while it is local, that is one of its writes.
    pub(super) fn local_write_committed(&mut self, now: Now, session: SessionId) {
        let Some(known) = self.local.as_mut().and_then(|local| local.sessions.get_mut(&session)) else {
            return;
        };
        known.writes = known.writes.saturating_sub(1);
        if known.writes == 0 {
            self.settle_local(now, session);
        }
    }

    /// No write of the session is under way: it ends, or is attached, if that was asked for.
    fn settle_local(&mut self, now: Now, session: SessionId) {
        let Some(local) = &mut self.local else { return };
        let Some(known) = local.sessions.get_mut(&session) else { return };
        if known.closes {
            let holder = known.holder;
            local.remove(session);
            if let Some(Origin { shard, conn }) = holder {
                self.attached.remove(&session);
                self.output(Output::Shard(shard, ToShard::Closed { conn }));
            }
        } else if let Some(returning) = known.returning.take() {
            self.attach_local(now, returning, session);
        }
    }

    fn evict_local(&mut self, session: SessionId, origin: Origin) {
        if self.attached.get(&session).is_some_and(|attachment| attachment.origin == origin) {
            self.attached.remove(&session);
        }
        self.output(Output::Shard(origin.shard, ToShard::Evict { conn: origin.conn }));
    }

    /// Time has passed: local sessions expire. Not while there is no leader: clients are not heard then, and
    /// that time is held against no session.
    pub(super) fn tick_local(&mut self, now: Now) {
        if matches!(self.role, Role::Looking) {
            return;
        }
        let Some(local) = &mut self.local else { return };
        let ended = local.expired(now);
        self.expired_sessions += ended.len() as u64;
        for (session, LocalSession { holder, returning, .. }) in ended {
            [holder, returning].into_iter().flatten().for_each(|origin| self.evict_local(session, origin));
        }
    }

    /// The clients that a new leader has to know: those with sessions of the ensemble.
    pub(super) fn clients_of_ensemble(&self) -> Vec<(SessionId, Origin)> {
        let of_ensemble = |session| !self.local.as_ref().is_some_and(|local| local.contains(session));
        let attached = self.attached.iter().map(|(session, Attachment { origin, .. })| (*session, *origin));
        attached.filter(|(session, _)| of_ensemble(*session)).collect()
    }
}

#[cfg(test)]
mod tests;
