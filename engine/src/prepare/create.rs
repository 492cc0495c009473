//! The creating requests: create, create2, createContainer, createTTL, alone and in a multi.

use bytestring::ByteString;
use ringkeeper_wire::{AclList, CreateMode, CreateRequest, CreateTtlRequest, ErrorCode, OpCode, Perms};

use super::{Context, check_limits, check_quota, check_rule, check_session, fixup};
use crate::acl;
use crate::authorisation::{self, InvalidRuleZnode};
use crate::limits::{Limit, Refusal};
use crate::mutation::planted;
use crate::path;
use crate::quota;
use crate::state::State;
use crate::tenants;
use crate::tree::Owner;
use crate::txn::{Create, Update};

/// What a creating request asks for. `'r` is the request, `'b` its bytes.
pub(super) struct Creation<'r, 'b> {
    path: &'r str,
    data: Option<&'b [u8]>,
    acl: Option<AclList<'b>>,
    flags: i32,
    kind: CreateKind,
}

/// The kind of creation by opcode; the flags are apart.
#[derive(Clone, Copy)]
pub(super) enum CreateKind {
    /// create or create2. They do not know containers: that flag makes a persistent znode.
    Plain {
        /// Whether it is create2.
        reply_with_stat: bool,
    },
    /// createContainer, whatever the flags.
    Container,
    /// createTTL.
    Ttl {
        /// As received.
        ttl_ms: i64,
    },
}

impl CreateKind {
    /// In a multi the flags decide the kind of znode, but createContainer makes a container with those of any
    /// other mode, too. The opcode decides the form of the answer; but createTTL whose flags do not name that
    /// kind is answered like create (ZooKeeper's `Op.create`).
    pub(super) fn in_multi(op: OpCode, flags: i32, ttl_ms: Option<i64>) -> Self {
        match (CreateMode::from_wire(flags), ttl_ms) {
            (Some(CreateMode::Container), _) => Self::Container,
            (Some(mode), Some(ttl_ms)) if mode.is_ttl() => Self::Ttl { ttl_ms },
            _ if op == OpCode::CreateContainer => Self::Container,
            _ => Self::Plain { reply_with_stat: op == OpCode::Create2 },
        }
    }

    const fn reply_with_stat(self) -> bool {
        match self {
            Self::Plain { reply_with_stat } => reply_with_stat,
            Self::Container | Self::Ttl { .. } => true,
        }
    }
}

impl<'r, 'b> Creation<'r, 'b> {
    pub(super) fn of(request: &'r CreateRequest<'b>, kind: CreateKind) -> Self {
        let CreateRequest { path, data, acl, flags } = request;
        Self { path, data: *data, acl: *acl, flags: *flags, kind }
    }

    pub(super) fn of_ttl(request: &'r CreateTtlRequest<'b>, kind: CreateKind) -> Self {
        let CreateTtlRequest { path, data, acl, flags, ttl_ms: _ } = request;
        Self { path, data: *data, acl: *acl, flags: *flags, kind }
    }
}

pub(super) fn prepare(
    head: &State,
    context: &Context<'_>,
    creation: &Creation<'_, '_>,
) -> Result<Update, ErrorCode> {
    let mode = CreateMode::from_wire(creation.flags).ok_or(ErrorCode::BadArguments)?;
    let owner = owner(context, mode, creation.kind)?;
    if context.local && matches!(owner, Owner::Session(_)) {
        return Err(ErrorCode::EphemeralOnLocalSession);
    }
    check_session(head, context)?;
    let parent = path::parent_of_unchecked(creation.path).ok_or(ErrorCode::BadArguments)?;
    let acl = fixup(context, creation.acl)?;
    let caller = context.caller();
    let parent = head.reach(parent, Perms::CREATE, caller)?;
    let creations = parent.persisted_cversion();
    let path: ByteString = if mode.is_sequential() {
        path::with_sequence(creation.path, creations).into()
    } else {
        context.share_path(creation.path)
    };
    path::validate(&path).map_err(|_| ErrorCode::BadArguments)?;
    if path == path::FEATURE_LEVEL {
        return Err(ErrorCode::BadArguments);
    }
    caller.check_rules(Perms::CREATE, &path)?;
    if head.znode(&path).is_some() {
        return Err(ErrorCode::NodeExists);
    }
    if matches!(parent.owner(), Owner::Session(_)) {
        return Err(ErrorCode::NoChildrenForEphemerals);
    }
    if context.short_of_memory {
        return Err(context.meter.refuse(Refusal::Memory));
    }
    check_new_rule(head, context, owner, &path, creation.data)?;
    check_limits(head, context, &path, creation.data)?;
    check_owned(head, context, owner, &path)?;
    check_countable(head, context, &path)?;
    let bytes = creation.data.map_or(0, <[u8]>::len);
    check_quota(head, context, &path, 1, || i64::try_from(bytes).unwrap_or(i64::MAX))?;
    Ok(Update::Create(Create {
        path,
        data: creation.data.map(|data| context.share(data)),
        acl,
        raw_owner: owner.to_raw(),
        parent_cversion: creations.wrapping_add(1),
        reply_with_stat: creation.kind.reply_with_stat(),
    }))
}

fn owner(context: &Context<'_>, mode: CreateMode, kind: CreateKind) -> Result<Owner, ErrorCode> {
    if mode.is_ttl() && !context.settings.extended_types_enabled {
        return Err(ErrorCode::Unimplemented);
    }
    match kind {
        CreateKind::Ttl { ttl_ms } => ttl(ttl_ms).filter(|_| mode.is_ttl()).ok_or(ErrorCode::BadArguments),
        CreateKind::Plain { .. } | CreateKind::Container if mode.is_ttl() => Err(ErrorCode::BadArguments),
        CreateKind::Container => Ok(Owner::Container),
        CreateKind::Plain { .. } if planted!(context.settings, DisownEphemerals) => Ok(Owner::None),
        CreateKind::Plain { .. } if mode.is_ephemeral() => Ok(Owner::Session(context.session)),
        CreateKind::Plain { .. } => Ok(Owner::None),
    }
}

/// Whether the new znode, if it is a rule, may be one, and one more.
fn check_new_rule(
    head: &State,
    context: &Context<'_>,
    owner: Owner,
    path: &str,
    data: Option<&[u8]>,
) -> Result<(), ErrorCode> {
    if !authorisation::is_place(path) {
        return Ok(());
    }
    // Before there is any rule, nothing binds those who are no super users.
    if !acl::is_super(context.identities) {
        return Err(ErrorCode::NoAuth);
    }
    check_rule(context, path, data)?;
    if owner != Owner::None {
        return Err(context.meter.refuse(Refusal::Rule(InvalidRuleZnode::NotPersistent)));
    }
    if !context.settings.limits.allow(Limit::Rules, head.authorisation().len() + 1) {
        return Err(context.meter.refuse(Refusal::Limit(Limit::Rules)));
    }
    Ok(())
}

/// Whether the session may own another ephemeral. Bounded, since one transaction deletes all of them.
fn check_owned(head: &State, context: &Context<'_>, owner: Owner, path: &str) -> Result<(), ErrorCode> {
    let Owner::Session(session) = owner else { return Ok(()) };
    let limits = &context.settings.limits;
    let owned = head.sessions.owned(session);
    for (limit, amount) in
        [(Limit::Ephemerals, owned.count + 1), (Limit::EphemeralBytes, owned.bytes + path.len())]
    {
        if !limits.allow(limit, amount) && !planted!(context.settings, IgnoreLimits) {
            return Err(context.meter.refuse(Refusal::Limit(limit)));
        }
    }
    Ok(())
}

/// Whether the use that the znode `path` is to show or to limit may be counted: counting visits every znode
/// of the subtree.
fn check_countable(head: &State, context: &Context<'_>, path: &str) -> Result<(), ErrorCode> {
    let subject = quota::counted_by(path).or_else(|| tenants::limited_by(path));
    let Some(subject) = subject else { return Ok(()) };
    let left = context.meter.countable();
    let visited_max = usize::try_from(left).unwrap_or(usize::MAX);
    let visited = head.tree().descendants(subject).take(visited_max).count();
    context.meter.set_countable(left - u64::try_from(visited).unwrap_or(left));
    // A subject with nothing below it costs nothing.
    if visited < visited_max || head.znode(subject).is_none() {
        Ok(())
    } else {
        Err(context.meter.refuse(Refusal::Limit(Limit::QuotaZnodes)))
    }
}

fn ttl(ttl_ms: i64) -> Option<Owner> {
    let ttl_ms = u64::try_from(ttl_ms).ok()?;
    (1..=Owner::TTL_MAX_MS).contains(&ttl_ms).then_some(Owner::Ttl(ttl_ms))
}
