//! Tenants on a shard: which requests wait, which are refused, and what they are charged.
//!
//! A request belongs to the tenant of the first path that it names. While a token bucket of the tenant is
//! empty, its connections are muted: their input waits, and their sockets are not read. They go on one
//! request each, in the order in which they were muted; a request that has waited for too long is answered
//! with THROTTLEDOP.
//!
//! Pings of a muted client wait unread. So its session counts as heard, and the client is sent replies to pings
//! unasked: kazoo leaves a server that does not answer a ping within half the session timeout, whatever else
//! the server sends. Such a reply has the zxid 0: it does not say that the server has heard anything.
//!
//! Pings, closeSession, auth and sasl never wait. Neither does setWatches, which is charged afterwards: a
//! client that comes back needs all of its watches.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use ringkeeper_wire::{ErrorCode, OpCode, Perms, Request, xid};

use super::latency::{About, Answered};
use super::request::{HEADER_LEN, first_path};
use super::{Shard, Slot, US_PER_MS};
use crate::authorisation::Verdict;
use crate::tenants::{Resource, Tenant, Tenants};

/// Turns of muted connections before all other connections have theirs.
const TURNS_OF_SLICE: usize = 8;

/// What a tenant says to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    Admitted,
    /// It has to be handled again later.
    Muted,
    Refused(ErrorCode),
}

/// The muted connections of each tenant, in the order of their turns.
pub(super) type Muted = BTreeMap<Arc<str>, VecDeque<Slot>>;

impl Shard {
    /// Whether the tenant of a request, if it has one, lets it pass now; then it is charged.
    pub(super) fn admit_request(&mut self, now_us: u64, slot: Slot, op: OpCode, body: &[u8]) -> Admission {
        if self.view.tenants().is_empty() || matches!(op, OpCode::Ping | OpCode::CloseSession) {
            return Admission::Admitted;
        }
        let Ok(request) = Request::decode(op, body) else { return Admission::Admitted };
        let Some(tenant) = first_path(&request, |path| self.tenant_of(slot, path)).flatten() else {
            return Admission::Admitted;
        };
        let must_pass = matches!(op, OpCode::SetWatches | OpCode::SetWatches2);
        if !must_pass && let Some(waits) = self.waits_for(now_us, slot, &tenant) {
            return waits;
        }
        let operations = match &request {
            Request::Multi(ops) => ops.len(),
            Request::MultiRead(ops) => ops.len(),
            _ => 1,
        };
        // Those that are refused are charged, too: to refuse them is work.
        tenant.charge(now_us, operations.max(1) as u64, (HEADER_LEN + body.len()) as u64);
        if self.joins(slot, &tenant) || must_pass {
            Admission::Admitted
        } else {
            tenant.meter().refuse(Resource::Sessions);
            Admission::Refused(ErrorCode::QuotaExceeded)
        }
    }

    /// Charges the reply that was just made.
    pub(super) fn charge_reply(&self, now_us: u64, answered: &Answered<'_>) {
        let tenants = self.view.tenants();
        if tenants.is_empty() {
            return;
        }
        let of = |path: &str| tenants.covering(path).map(Arc::clone);
        let tenant = match answered.about {
            About::Txn(_, path) => path.and_then(of),
            About::Body(body) => {
                let op = OpCode::from_wire(answered.op);
                let request = op.and_then(|op| Request::decode(op, body).ok());
                request.and_then(|request| first_path(&request, of).flatten())
            }
        };
        if let Some(tenant) = tenant {
            tenant.charge(now_us, 0, u64::try_from(self.counters.replies.last).unwrap_or(0));
        }
    }

    /// Who pays for a request. One that a rule forbids is answered at no charge, so nobody uses up what
    /// belongs to others.
    fn tenant_of(&mut self, slot: Slot, path: &str) -> Option<Arc<Tenant>> {
        let tenant = self.view.tenants().covering(path)?;
        let connection = self.connections.get_mut(slot)?;
        let bounds = connection.bounds.bounds(self.view.authorisation(), &connection.identities);
        let is_forbidden =
            bounds.is_some_and(|bounds| bounds.verdict(Perms::ALL, path) == Verdict::Forbidden);
        (!is_forbidden).then(|| Arc::clone(tenant))
    }

    /// Whether the connection's session counts for a tenant, be it another one: that of the first path which
    /// it has used.
    fn joins(&mut self, slot: Slot, tenant: &Arc<Tenant>) -> bool {
        let tenants = self.view.tenants();
        let connection =
            self.connections.get_mut(slot).expect("the connection was looked up in this very call");
        let is_member = connection.membership.as_ref().is_some_and(|membership| {
            let is_of = |tenant: &Arc<Tenant>| membership.is_of(tenant);
            is_of(tenant) || tenants.get(membership.path()).is_some_and(is_of)
        });
        if !is_member {
            connection.membership = tenant.join();
        }
        connection.membership.is_some()
    }

    /// Whether the request has to wait, or has waited for too long.
    fn waits_for(&mut self, now_us: u64, slot: Slot, tenant: &Tenant) -> Option<Admission> {
        let exhausted = tenant.exhausted(now_us);
        let queue = self.muted.get(tenant.path());
        let others_turn = queue.and_then(VecDeque::front).is_some_and(|&first| first != slot);
        let delay_max_us = self.settings.tenant_delay_max_ms * US_PER_MS;
        let connection = self.connection(slot);
        let waited_us = connection.muted_since_us.map_or(0, |since_us| now_us.saturating_sub(since_us));
        if exhausted.is_none() && !others_turn {
            tenant.meter().delayed(waited_us);
            self.unmute(slot, tenant.path());
            return None;
        }
        if waited_us >= delay_max_us {
            tenant.meter().delayed(waited_us);
            tenant.meter().refuse(exhausted.unwrap_or(Resource::Operations));
            self.unmute(slot, tenant.path());
            return Some(Admission::Refused(ErrorCode::ThrottledOp));
        }
        let connection = self.connection(slot);
        connection.muted_since_us.get_or_insert(now_us);
        if !std::mem::replace(&mut connection.muted, true) {
            self.muted.entry(Arc::clone(tenant.path())).or_default().push_back(slot);
        }
        Some(Admission::Muted)
    }

    /// The connection's request waits no more. If it has another, that one waits behind the others.
    fn unmute(&mut self, slot: Slot, tenant: &Arc<str>) {
        if self.connection(slot).muted && self.muted.get(tenant).and_then(VecDeque::front) == Some(&slot) {
            self.drop_first(tenant);
            self.connection(slot).muted = false;
        }
    }

    /// Gives muted connections their turns: one slice of them. The next slice begins with the tenant after
    /// the one with which this slice ends.
    pub(super) fn resume_muted(&mut self, now_us: u64) {
        let Some(last) = self.resumes_after.take() else { return };
        let after = self.muted.range::<str, _>((Bound::Excluded(&*last), Bound::Unbounded));
        let tenants = after.chain(self.muted.range::<str, _>((Bound::Unbounded, Bound::Included(&*last))));
        let tenants: Vec<Arc<str>> = tenants.map(|(tenant, _)| Arc::clone(tenant)).collect();
        let mut left = TURNS_OF_SLICE;
        for tenant in tenants {
            let mut held_back = 0;
            while held_back < self.muted.get(&tenant).map_or(0, VecDeque::len)
                && let Some(slot) = self.next_turn(now_us, &tenant)
            {
                if left == 0 {
                    self.resumes_after = Some(tenant);
                    return;
                }
                left -= 1;
                self.pump(now_us, slot);
                held_back = if self.is_unused(slot, &tenant) { held_back + 1 } else { 0 };
            }
        }
    }

    /// The connection whose turn it is, if there is anything to have: tokens, the end of its wait, or the end
    /// of the tenant.
    fn next_turn(&mut self, now_us: u64, tenant: &Arc<str>) -> Option<Slot> {
        let exists = self.view.tenants().get(tenant);
        let has_tokens = exists.is_none_or(|tenant| tenant.exhausted(now_us).is_none());
        let max_us = self.settings.tenant_delay_max_ms * US_PER_MS;
        while let Some(&slot) = self.muted.get(tenant).and_then(VecDeque::front) {
            let connection = self.connections.get(slot).filter(|connection| connection.muted);
            let Some(connection) = connection else {
                // It is gone, or has had its turn.
                self.drop_first(tenant);
                continue;
            };
            let waited_us = connection.muted_since_us.map_or(max_us, |since| now_us.saturating_sub(since));
            return (has_tokens || waited_us >= max_us).then_some(slot);
        }
        None
    }

    /// Whether the connection could not use its turn, since something else holds it back. It waits for the
    /// next one.
    fn is_unused(&mut self, slot: Slot, tenant: &Arc<str>) -> bool {
        let Some(queue) = self.muted.get_mut(tenant).filter(|queue| queue.front() == Some(&slot)) else {
            return false;
        };
        let waits = self.connections.get(slot).is_some_and(|connection| connection.muted_since_us.is_some());
        if waits {
            queue.rotate_left(1);
            return true;
        }
        self.drop_first(tenant);
        if let Some(connection) = self.connections.get_mut(slot) {
            connection.muted = false;
        }
        false
    }

    fn drop_first(&mut self, tenant: &Arc<str>) {
        if let Some(queue) = self.muted.get_mut(tenant) {
            queue.pop_front();
            if queue.is_empty() {
                self.muted.remove(tenant);
            }
        }
    }

    /// Muted sessions are alive, as far as anybody can tell: nobody reads their pings. Clients that have read
    /// everything learn that the server is alive.
    pub(super) fn touch_muted(&mut self) {
        let muted: Vec<Slot> = self.muted.values().flatten().copied().collect();
        for slot in muted {
            let Some(connection) = self.connections.get(slot).filter(|connection| connection.muted) else {
                continue;
            };
            let idle = connection.backlog.is_empty() && connection.outbox.is_empty();
            self.touch(slot);
            if idle {
                self.write_reply(slot, xid::PING, 0, ErrorCode::Ok, |_| {});
            }
        }
    }

    /// Has the watches counted anew if the tenants have changed since the last call.
    pub(super) fn take_tenants(&mut self, before: &Tenants) {
        let tenants = self.view.tenants();
        if !tenants.are_same(before) {
            self.watches.set_tenants(tenants.clone());
        }
    }
}
