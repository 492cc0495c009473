//! From a request to a transaction: every check that decides whether a write happens.
//!
//! The leader prepares against the state after all transactions before this one, committed or not. A request
//! that fails becomes a transaction too, see [`TxnOp::Error`]. The order of the checks is part of the
//! protocol (docs/protocol.md, 4.2): clients see only the first that fails.

mod create;
pub(crate) mod reconfig;

use arrayvec::ArrayVec;
use bytes::Bytes;
use bytestring::ByteString;
use ringkeeper_wire::{
    CheckRequest, CreateMode, DeleteRequest, ErrorCode, Identity, MultiOp, MultiRequest, Perms, Request,
    SessionId, SetAclRequest, SetDataRequest, Xid, Zxid,
};
use std::cell::Cell;

use crate::acl::{self, Acl, Caller};
use crate::apply::Stamp;
use crate::authorisation::{self, Bounds};
use crate::limits::{Limit, Refusal};
use crate::path;
use crate::prefetch::PREFETCHED_WRITES;
use crate::quota::{self, Figures};
use crate::settings::Settings;
use crate::state::State;
use crate::tenants;
use crate::tree::{Owner, Znode};
use crate::txn::{Effect, FailedMulti, Outcome, SetAcl, SetData, Txn, TxnOp, Update};
use create::{CreateKind, Creation};
pub use reconfig::Ensemble;

/// The client of a request, and the settings that apply to it.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The bytes that its request was read from: the transaction shares them.
    pub source: &'a Bytes,
    /// The session that asks.
    pub session: SessionId,
    /// Whether the session is local to the server that it came from, so that the state does not have it.
    pub local: bool,
    /// Who its client has proved to be.
    pub identities: &'a [Identity],
    /// The rules of `head` that bind it.
    pub bounds: Option<&'a Bounds>,
    /// The leader's time, milliseconds since the Unix epoch.
    pub time_ms: i64,
    /// What the leader knows of its ensemble.
    pub ensemble: Ensemble<'a>,
    /// What the operator chose.
    pub settings: &'a Settings,
    /// Whether requests that make the tree larger are refused.
    pub short_of_memory: bool,
    /// Counters that span several requests.
    pub meter: &'a Meter,
}

/// A leader's counters that span the requests it prepares.
#[derive(Debug)]
pub struct Meter {
    /// Number of znodes that may still be visited to count quotas.
    countable: Cell<u64>,
    /// Why the last request was refused, until this is taken.
    refused: Cell<Option<Refusal>>,
}

impl Meter {
    /// Allows this many visits of znodes to count quotas.
    #[must_use]
    pub const fn new(countable: u64) -> Self {
        Self { countable: Cell::new(countable), refused: Cell::new(None) }
    }

    /// How many may still be visited.
    #[must_use]
    pub fn countable(&self) -> u64 {
        self.countable.get()
    }

    pub(crate) fn set_countable(&self, countable: u64) {
        self.countable.set(countable);
    }

    /// Records why a request is refused; returns the error code for the client.
    fn refuse(&self, refusal: Refusal) -> ErrorCode {
        self.refused.set(Some(refusal));
        refusal.code()
    }

    /// Takes the reason why the last request was refused.
    pub fn take_refusal(&self) -> Option<Refusal> {
        self.refused.take()
    }
}

impl<'a> Context<'a> {
    /// The client, for ACL checks.
    #[must_use]
    pub const fn caller(&self) -> Caller<'a> {
        Caller { identities: self.identities, skip_acl: self.settings.skip_acl, bounds: self.bounds }
    }

    /// Part of a request, without copying what lies in its bytes.
    fn share(&self, part: &[u8]) -> Bytes {
        let source = self.source.as_ptr_range();
        let part_at = part.as_ptr_range();
        if source.start <= part_at.start && part_at.end <= source.end {
            self.source.slice_ref(part)
        } else {
            Bytes::copy_from_slice(part)
        }
    }

    /// As [`Self::share`], for a path.
    fn share_path(&self, path: &str) -> ByteString {
        ByteString::try_from(self.share(path.as_bytes())).expect("the bytes of a string")
    }
}

/// The transaction that `request` becomes on top of `head`. Requests that are not writes become
/// [`ErrorCode::Unimplemented`].
#[must_use]
pub fn prepare(head: &State, context: &Context<'_>, request: &Request<'_>) -> TxnOp {
    if let Some(limit) = context.settings.limits.exceeded_by(request, context.identities) {
        return TxnOp::Error(context.meter.refuse(Refusal::Limit(limit)));
    }
    match request {
        Request::Multi(ops) => {
            let zxid = Zxid(head.last_zxid().0.saturating_add(1));
            match run_multi(&mut head.clone(), Stamp { zxid, time_ms: context.time_ms }, context, *ops) {
                Ok((updates, _)) => TxnOp::Multi(updates),
                Err(failed) => TxnOp::FailedMulti(failed),
            }
        }
        Request::CloseSession => prepare_close_session(head, context.session),
        Request::Reconfig(request) => {
            let zxid = Zxid(head.last_zxid().0.saturating_add(1));
            let update = reconfig::prepare(head, context, request, zxid);
            update.map_or_else(TxnOp::Error, TxnOp::Reconfig)
        }
        request => prepare_update(head, context, request).map_or_else(TxnOp::Error, TxnOp::Update),
    }
}

/// Prepares `request` on `head` and applies the result. For a multi both happen in one pass.
///
/// # Panics
/// `zxid` is not after the last of `head`.
pub fn execute(
    head: &mut State,
    context: &Context<'_>,
    zxid: Zxid,
    xid: Xid,
    request: &Request<'_>,
) -> (Txn, Outcome) {
    assert!(zxid > head.last_zxid(), "{zxid} comes after {}", head.last_zxid());
    let txn = |op| Txn { zxid, session: context.session, xid, time_ms: context.time_ms, op };
    let within_limits = || context.settings.limits.exceeded_by(request, context.identities).is_none();
    let ops = match request {
        Request::Multi(ops) if within_limits() => *ops,
        _ => {
            let txn = txn(prepare(head, context, request));
            let outcome = head.apply(&txn);
            return (txn, outcome);
        }
    };
    let stamp = Stamp { zxid, time_ms: context.time_ms };
    let before = head.clone();
    let (op, outcome) = match run_multi(head, stamp, context, ops) {
        Ok((updates, effects)) => (TxnOp::Multi(updates), Outcome::Multi(effects.into())),
        Err(failed) => {
            *head = before;
            (TxnOp::FailedMulti(failed), Outcome::MultiFailed(failed))
        }
    };
    head.advance(stamp);
    (txn(op), outcome)
}

/// Whether the request, or an operation of it, asks for an ephemeral znode.
#[must_use]
pub fn creates_ephemeral(request: &Request<'_>) -> bool {
    let is_ephemeral = |flags| CreateMode::from_wire(flags).is_some_and(CreateMode::is_ephemeral);
    match request {
        Request::Create(create) | Request::Create2(create) => is_ephemeral(create.flags),
        Request::Multi(ops) => ops.iter().any(|op| match op {
            MultiOp::Create(create) | MultiOp::Create2(create) => is_ephemeral(create.flags),
            _ => false,
        }),
        _ => false,
    }
}

/// The transaction that ends a session, whether its client asks or it has expired.
#[must_use]
pub fn prepare_close_session(head: &State, session: SessionId) -> TxnOp {
    if head.session(session).is_none() {
        return TxnOp::Error(ErrorCode::SessionExpired);
    }
    TxnOp::CloseSession
}

/// The transaction that deletes a container or TTL znode that is due; `None` if the znode has become another
/// kind or has children.
#[must_use]
pub fn prepare_reap(head: &State, path: &str) -> Option<TxnOp> {
    let znode = head.znode(path)?;
    let reapable = matches!(znode.owner(), Owner::Container | Owner::Ttl(_)) && znode.num_children() == 0;
    reapable.then(|| TxnOp::Update(Update::Delete(path.into())))
}

/// Prepares each operation on the effects of those before it. After an error `scratch` is invalid.
fn run_multi(
    scratch: &mut State,
    stamp: Stamp,
    context: &Context<'_>,
    ops: MultiRequest<'_>,
) -> Result<(Vec<Update>, Vec<Effect>), FailedMulti> {
    let count = |n: usize| u32::try_from(n).expect("a frame's length is an i32");
    let (mut updates, mut effects) = (Vec::with_capacity(ops.len()), Vec::with_capacity(ops.len()));
    let mut rest = ops.iter();
    while rest.len() > 0 {
        let group: ArrayVec<_, PREFETCHED_WRITES> = rest.by_ref().take(PREFETCHED_WRITES).collect();
        scratch.prefetch_operations(&group);
        for op in &group {
            let fail = |code| FailedMulti { ops: count(ops.len()), failed: count(updates.len()), code };
            let update = prepare_multi_op(scratch, context, op).map_err(fail)?;
            effects.push(scratch.update(stamp, &update));
            updates.push(update);
        }
    }
    Ok((updates, effects))
}

fn prepare_multi_op(head: &State, context: &Context<'_>, op: &MultiOp<'_>) -> Result<Update, ErrorCode> {
    match op {
        MultiOp::Create(request) | MultiOp::Create2(request) | MultiOp::CreateContainer(request) => {
            let kind = CreateKind::in_multi(op.op(), request.flags, None);
            create::prepare(head, context, &Creation::of(request, kind))
        }
        MultiOp::CreateTtl(request) => {
            let kind = CreateKind::in_multi(op.op(), request.flags, Some(request.ttl_ms));
            create::prepare(head, context, &Creation::of_ttl(request, kind))
        }
        MultiOp::Delete(request) => prepare_delete(head, context, request),
        MultiOp::SetData(request) => prepare_set_data(head, context, request),
        MultiOp::Check(request) => prepare_check(head, context, request),
    }
}

fn prepare_update(head: &State, context: &Context<'_>, request: &Request<'_>) -> Result<Update, ErrorCode> {
    match request {
        Request::Create(request) => {
            let kind = CreateKind::Plain { reply_with_stat: false };
            create::prepare(head, context, &Creation::of(request, kind))
        }
        Request::Create2(request) => {
            let kind = CreateKind::Plain { reply_with_stat: true };
            create::prepare(head, context, &Creation::of(request, kind))
        }
        Request::CreateContainer(request) => {
            create::prepare(head, context, &Creation::of(request, CreateKind::Container))
        }
        Request::CreateTtl(request) => {
            let kind = CreateKind::Ttl { ttl_ms: request.ttl_ms };
            create::prepare(head, context, &Creation::of_ttl(request, kind))
        }
        Request::Delete(request) => prepare_delete(head, context, request),
        Request::SetData(request) => prepare_set_data(head, context, request),
        Request::SetAcl(request) => prepare_set_acl(head, context, request),
        _ => Err(ErrorCode::Unimplemented),
    }
}

fn prepare_delete(
    head: &State,
    context: &Context<'_>,
    request: &DeleteRequest<'_>,
) -> Result<Update, ErrorCode> {
    let path = &*request.path;
    check_session(head, context)?;
    let parent = path::parent_of_unchecked(path).ok_or(ErrorCode::BadArguments)?;
    if path::RESERVED.contains(&path) || path == path::FEATURE_LEVEL {
        return Err(ErrorCode::BadArguments);
    }
    let caller = context.caller();
    // A rule may say something else for the znode than for its parent: both have to permit it.
    caller.check_rules(Perms::DELETE, path)?;
    head.reach(parent, Perms::DELETE, caller)?;
    let znode = head.znode(path).ok_or(ErrorCode::NoNode)?;
    check_version(znode.stat().version, request.version)?;
    if znode.num_children() > 0 {
        return Err(ErrorCode::NotEmpty);
    }
    Ok(Update::Delete(context.share_path(path)))
}

fn prepare_set_data(
    head: &State,
    context: &Context<'_>,
    request: &SetDataRequest<'_>,
) -> Result<Update, ErrorCode> {
    let path = &*request.path;
    check_session(head, context)?;
    if path == path::FEATURE_LEVEL {
        return Err(ErrorCode::BadArguments);
    }
    let znode = reach(head, context, Perms::WRITE, path)?;
    if path == path::CONFIG && head.membership().is_some() {
        // What it says is in force: reconfig changes it.
        return Err(ErrorCode::BadArguments);
    }
    check_rule(context, path, request.data)?;
    check_limits(head, context, path, request.data)?;
    let len = |data: Option<&[u8]>| i64::try_from(data.map_or(0, <[u8]>::len)).unwrap_or(i64::MAX);
    if context.short_of_memory && len(request.data) > len(znode.data()) {
        return Err(context.meter.refuse(Refusal::Memory));
    }
    check_quota(head, context, path, 0, || len(request.data) - len(znode.data()))?;
    let version = check_version(znode.stat().version, request.version)?;
    Ok(Update::SetData(SetData {
        path: context.share_path(path),
        data: request.data.map(|data| context.share(data)),
        version,
    }))
}

fn prepare_set_acl(
    head: &State,
    context: &Context<'_>,
    request: &SetAclRequest<'_>,
) -> Result<Update, ErrorCode> {
    let path = &*request.path;
    check_session(head, context)?;
    path::validate(path).map_err(|_| ErrorCode::BadArguments)?;
    let acl = fixup(context, request.acl)?;
    let znode = head.reach(path, Perms::ADMIN, context.caller())?;
    let aversion = check_version(znode.stat().aversion, request.version)?;
    Ok(Update::SetAcl(SetAcl { path: context.share_path(path), acl, aversion }))
}

fn prepare_check(
    head: &State,
    context: &Context<'_>,
    request: &CheckRequest<'_>,
) -> Result<Update, ErrorCode> {
    let path = &*request.path;
    check_session(head, context)?;
    let znode = reach(head, context, Perms::READ, path)?;
    check_version(znode.stat().version, request.version)?;
    Ok(Update::Check(context.share_path(path)))
}

fn check_session(head: &State, context: &Context<'_>) -> Result<(), ErrorCode> {
    if context.local || head.session(context.session).is_some() {
        Ok(())
    } else {
        Err(ErrorCode::SessionExpired)
    }
}

fn reach<'s>(
    head: &'s State,
    context: &Context<'_>,
    wanted: Perms,
    path: &str,
) -> Result<&'s Znode, ErrorCode> {
    path::validate(path).map_err(|_| ErrorCode::BadArguments)?;
    head.reach(path, wanted, context.caller())
}

/// Whether a znode may have these data: those of rules are rules, so that no mistake binds or frees anybody.
fn check_rule(context: &Context<'_>, path: &str, data: Option<&[u8]>) -> Result<(), ErrorCode> {
    if !authorisation::is_place(path) {
        return Ok(());
    }
    let data = data.unwrap_or_default();
    if !context.settings.limits.allow(Limit::RuleBytes, data.len()) {
        return Err(context.meter.refuse(Refusal::Limit(Limit::RuleBytes)));
    }
    let rule = authorisation::parse(path, data);
    rule.map(drop).map_err(|error| context.meter.refuse(Refusal::Rule(error)))
}

/// Whether a znode may have these data: those that limit a tenant say so in a form that is understood.
fn check_limits(
    head: &State,
    context: &Context<'_>,
    path: &str,
    data: Option<&[u8]>,
) -> Result<(), ErrorCode> {
    let Some(subject) = tenants::limited_by(path) else { return Ok(()) };
    let tenants = head.tenants();
    let checked = tenants.check(subject, data.unwrap_or_default());
    checked.map_err(|error| context.meter.refuse(Refusal::TenantLimits(error)))?;
    let number = tenants.len() + usize::from(tenants.get(subject).is_none());
    if context.settings.limits.allow(Limit::Tenants, number) {
        Ok(())
    } else {
        Err(context.meter.refuse(Refusal::Limit(Limit::Tenants)))
    }
}

fn fixup(context: &Context<'_>, list: Option<ringkeeper_wire::AclList<'_>>) -> Result<Acl, ErrorCode> {
    acl::fixup(list, context.identities, context.settings).map_err(|_| ErrorCode::InvalidAcl)
}

/// The version after this one, if it is the expected one; -1 expects any.
const fn check_version(current: i32, expected: i32) -> Result<i32, ErrorCode> {
    if expected == -1 || expected == current {
        Ok(current.wrapping_add(1))
    } else {
        Err(ErrorCode::BadVersion)
    }
}

/// Checks the tenant and the quota that apply to `path` for this many more znodes and bytes.
fn check_quota(
    head: &State,
    context: &Context<'_>,
    path: &str,
    count: i64,
    bytes: impl FnOnce() -> i64,
) -> Result<(), ErrorCode> {
    let (has_tenants, enforce_quota) = (!head.tenants().is_empty(), context.settings.enforce_quota);
    if !has_tenants && !enforce_quota {
        return Ok(());
    }
    let bytes = bytes();
    if let Some(resource) = head.tenants().forbid(path, count, bytes) {
        return Err(context.meter.refuse(Refusal::Tenant(resource)));
    }
    if !enforce_quota {
        return Ok(());
    }
    let Some(subject) = head.quotas.covering(path) else { return Ok(()) };
    let Some(limits) = head.znode(&quota::limits_path(subject)) else { return Ok(()) };
    let limits = limits.data().and_then(Figures::parse).ok_or(ErrorCode::MarshallingError)?;
    let used = head.znode(&quota::stats_path(subject));
    match used.and_then(|used| Figures::parse(used.data().unwrap_or_default())) {
        Some(used) if limits.forbid(used, count, bytes) => Err(ErrorCode::QuotaExceeded),
        _ => Ok(()),
    }
}
