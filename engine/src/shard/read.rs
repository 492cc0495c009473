//! Reads: answered from the shard's view, encoded straight into the connection's output.

use ringkeeper_wire::frame::{begin_frame, end_frame};
use ringkeeper_wire::{
    AclList, AddWatchResponse, ClientInfo, ErrorCode, GetAllChildrenNumberResponse, GetDataResponse,
    Identity, MultiEntry, MultiHeader, MultiReadOp, MultiReadRequest, MultiResult, OpCode, PathWatchRequest,
    Perms, Record, ReplyHeader, Request, SessionId, Stat, Xid, end_multi, jute, xid,
};

use super::connection::Phase;
use super::latency::{About, Answered, Arrival};
use super::{CloseReason, Effect, Shard, Slot};
use crate::acl::{self, Caller};
use crate::authorisation::{Bounds, Verdict};
use crate::limits::Limit;
use crate::mutation::planted;
use crate::settings::Settings;
use crate::state::State;
use crate::watch::{Modes, WatchTable};

/// A read to be executed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Read {
    pub(super) xid: Xid,
    pub(super) op: OpCode,
    /// How many of the connection's identities were known when it was received.
    pub(super) identities: usize,
    pub(super) arrival: Arrival,
    /// When its turn came, microseconds.
    pub(super) began_us: u64,
}

impl Read {
    /// It is answered, under this xid.
    pub(super) fn answered(self, xid: Xid, body: &[u8]) -> Answered<'_> {
        let Self { op, arrival, began_us, .. } = self;
        let (op, body_len, about) = (op.to_wire(), body.len(), About::Body(body));
        Answered { xid, op, arrival, began_us, body_len, about }
    }
}

impl Shard {
    /// Executes a read on the current view. False if it is not complete: it continues in the next slice, or
    /// beside the shard.
    pub(super) fn execute(&mut self, now_us: u64, slot: Slot, read: Read, body: &[u8]) -> bool {
        let zxid = self.zxid_for(slot);
        let reply_xid = if read.op == OpCode::Ping { xid::PING } else { read.xid };
        let request = Request::decode(read.op, body);
        if let Ok(Request::SetWatches(watches) | Request::SetWatches2(watches)) = &request {
            if !self.set_watches(slot, watches) {
                self.go_on_later(slot);
                return false;
            }
            if self.connection(slot).phase == Phase::Closed {
                return true;
            }
        }
        let connection =
            self.connections.get_mut(slot).expect("the connection was looked up in this very call");
        let identities = &connection.identities[..read.identities];
        let bounds = if planted!(self.settings.rules, KeepBounds) && connection.bounds.last().is_some() {
            connection.bounds.last()
        } else {
            connection.bounds.bounds(self.view.authorisation(), identities)
        };
        let bounds = bounds.map(|bounds| &**bounds);
        let mut reader = Reader {
            view: &self.view,
            watches: Some((&mut self.watches, slot)),
            session: connection.session,
            caller: Caller { identities, skip_acl: self.settings.rules.skip_acl, bounds },
            rules: &self.settings.rules,
            visits: Visits::Bounded(
                self.visits_left.max(SMALL_READ_VISITS.min(self.settings.slice_visits_max)),
            ),
            exceeded: None,
        };
        let out = connection.outbox.buffer(&mut self.spares);
        let before = out.len();
        let written = encode_reply(out, reply_xid, zxid, |out| match &request {
            Ok(request) => reader.answer(request, out),
            Err(_) => Err(ErrorCode::MarshallingError),
        });
        let (exceeded, visits) = (reader.exceeded, reader.visits);
        let forbidden = bounds.and_then(Bounds::take_refusal);
        match visits {
            Visits::Spent => {
                out.truncate(before);
                self.visits_left = 0;
                self.read_beside(slot, read, body);
                return false;
            }
            Visits::Bounded(left) => self.visits_left = self.visits_left.min(left),
            Visits::Unbounded => {}
        }
        self.wrote(slot, before);
        if let Some(limit) = exceeded {
            self.note_limit(slot, limit);
        }
        if let Some(rule) = forbidden {
            let conn = self.connection(slot).id;
            self.counters.forbidden += 1;
            self.effects.push_back(Effect::Forbidden { conn, rule });
        }
        match written {
            Some(len) => {
                self.count_reply(now_us, slot, read.answered(reply_xid, body));
                let hint = &mut self.connection(slot).reply_len_hint;
                *hint = u32::try_from(len).unwrap_or(u32::MAX).max(*hint - *hint / 8);
            }
            // A frame cannot be that long, and no error code says so.
            None => self.abort(slot, Some(CloseReason::ReplyTooLong)),
        }
        true
    }

    /// Appends a reply whose body cannot fail.
    pub(super) fn write_reply(
        &mut self,
        slot: Slot,
        xid: Xid,
        zxid: i64,
        code: ErrorCode,
        body: impl FnOnce(&mut Vec<u8>),
    ) {
        let out = self.output(slot);
        let before = out.len();
        let written = encode_reply(out, xid, zxid, |out| {
            if code == ErrorCode::Ok {
                body(out);
                Ok(())
            } else {
                Err(code)
            }
        });
        self.wrote(slot, before);
        if written.is_none() {
            self.abort(slot, Some(CloseReason::ReplyTooLong));
        }
    }
}

/// Appends a reply. If `body` fails, the reply is its header with the error. Returns the length of the frame;
/// `None`, with nothing appended, if the frame would exceed 2 GiB.
pub(super) fn encode_reply(
    out: &mut Vec<u8>,
    xid: Xid,
    zxid: i64,
    body: impl FnOnce(&mut Vec<u8>) -> Result<(), ErrorCode>,
) -> Option<usize> {
    let start = begin_frame(out);
    let header_start = out.len();
    ReplyHeader::new(xid, zxid, ErrorCode::Ok).encode(out);
    if let Err(code) = body(out) {
        out.truncate(header_start);
        ReplyHeader::new(xid, zxid, code).encode(out);
    }
    end_frame(out, start).ok()?;
    Some(out.len() - start)
}

/// A read that visits at most this many znodes never waits for longer ones.
const SMALL_READ_VISITS: usize = 64;

/// Copying this many bytes for a multiRead counts as a visit of one more znode.
const BYTES_OF_A_VISIT: usize = 1024;

/// The limit on the znodes that a read may visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Visits {
    /// This many more.
    Bounded(usize),
    /// No more: the read has to be executed beside the shard.
    Spent,
    /// No limit.
    Unbounded,
}

/// What a read can access, and the table for its watch.
pub(super) struct Reader<'a> {
    pub(super) view: &'a State,
    /// The watch table and the connection; `None` if the watch was set before.
    pub(super) watches: Option<(&'a mut WatchTable, Slot)>,
    pub(super) session: SessionId,
    pub(super) caller: Caller<'a>,
    pub(super) rules: &'a Settings,
    pub(super) visits: Visits,
    /// The bound that the reply would exceed.
    pub(super) exceeded: Option<Limit>,
}

impl Reader<'_> {
    pub(super) fn answer(&mut self, request: &Request<'_>, out: &mut Vec<u8>) -> Result<(), ErrorCode> {
        match request {
            Request::GetData(request) => self.get_data(request, out)?,
            Request::Exists(request) => self.exists(request)?.encode(out),
            Request::GetChildren(request) => {
                self.get_children(request, out)?;
            }
            Request::GetChildren2(request) => self.get_children(request, out)?.encode(out),
            Request::GetAcl(request) => {
                let (entries, stat) = self.view.get_acl(&request.path, self.caller)?;
                AclList::from(&*entries).encode(out);
                stat.encode(out);
            }
            Request::GetEphemerals(request) => {
                self.visit(self.view.owned_ephemerals(self.session))?;
                let prefix = request.prefix_path.as_deref();
                let paths = self.view.get_ephemerals(self.session, prefix);
                // The rules may have changed since they were created.
                let paths: Vec<&str> = paths
                    .filter(|path| self.caller.verdict(Perms::READ, path) != Verdict::Forbidden)
                    .collect();
                jute::put_ustrings(out, paths);
            }
            Request::GetAllChildrenNumber(request) => {
                let visits_max = if let Visits::Bounded(left) = self.visits { left } else { usize::MAX };
                let counted = self.view.get_all_children_number(&request.path, self.caller, visits_max)?;
                self.visit(counted.visits)?;
                let total_number = counted.number;
                GetAllChildrenNumberResponse { total_number }.encode(out);
            }
            Request::MultiRead(request) => self.multi_read(request, out)?,
            Request::WhoAmI => who_am_i(self.caller.identities, out),
            Request::AddWatch(request) => {
                self.leave_watch(&request.path, request.mode.into())?;
                AddWatchResponse { err: 0 }.encode(out);
            }
            Request::CheckWatches(request) => {
                let Some((watches, slot)) = &self.watches else { return Ok(()) };
                let found = watches.contains(*slot, &request.path, request.watcher_type.into());
                found.then_some(()).ok_or(ErrorCode::NoWatcher)?;
            }
            Request::RemoveWatches(request) => {
                let Some((watches, slot)) = &mut self.watches else { return Ok(()) };
                let removed = watches.remove(*slot, &request.path, request.watcher_type.into());
                removed.then_some(()).ok_or(ErrorCode::NoWatcher)?;
            }
            // setWatches was executed before the reply was begun, since its events precede the reply.
            Request::SetWatches(_) | Request::SetWatches2(_) | Request::Ping => {}
            _ => unreachable!("only reads are executed here"),
        }
        Ok(())
    }

    fn get_data(&mut self, request: &PathWatchRequest<'_>, out: &mut Vec<u8>) -> Result<(), ErrorCode> {
        let (data, stat) = self.view.get_data(&request.path, self.caller)?;
        self.watch(request, Modes::DATA)?;
        GetDataResponse { data, stat }.encode(out);
        Ok(())
    }

    fn exists(&mut self, request: &PathWatchRequest<'_>) -> Result<Stat, ErrorCode> {
        if request.path.contains('\0') {
            return Err(ErrorCode::BadArguments);
        }
        let result = self.view.exists(&request.path, self.caller);
        let forgotten = planted!(self.rules, ForgetExistWatches) && result.is_err();
        if !matches!(result, Err(ErrorCode::NoAuth)) && !forgotten {
            self.watch(request, Modes::DATA)?;
        }
        result
    }

    fn get_children(&mut self, request: &PathWatchRequest<'_>, out: &mut Vec<u8>) -> Result<Stat, ErrorCode> {
        let listing = self.view.get_children(&request.path, self.caller)?;
        self.watch(request, Modes::CHILD)?;
        self.visit(listing.len())?;
        jute::put_ustrings(out, listing.names());
        Ok(listing.stat())
    }

    fn watch(&mut self, request: &PathWatchRequest<'_>, modes: Modes) -> Result<(), ErrorCode> {
        if request.watch { self.leave_watch(&request.path, modes) } else { Ok(()) }
    }

    fn leave_watch(&mut self, path: &str, modes: Modes) -> Result<(), ErrorCode> {
        let Some((watches, slot)) = &mut self.watches else { return Ok(()) };
        if let Some(tenant) = watches.tenant_of(path)
            && !watches.contains(*slot, path, Modes::ALL)
            && !tenant.has_room_for_watch()
        {
            return Err(ErrorCode::QuotaExceeded);
        }
        let left = watches.add_within(&self.rules.limits, *slot, path, modes);
        left.map_err(|limit| {
            self.exceeded = Some(limit);
            limit.code()
        })
    }

    /// Bounded, since a short request can ask for the same large znode again and again.
    fn multi_read(&mut self, request: &MultiReadRequest<'_>, out: &mut Vec<u8>) -> Result<(), ErrorCode> {
        self.within(Limit::MultiOperations, request.len())?;
        let start = out.len();
        for op in *request {
            self.visit(1)?;
            match op {
                MultiReadOp::GetData(read) => self.multi_get_data(&read.path, out)?,
                MultiReadOp::GetChildren(read) => self.multi_get_children(&read.path, out)?,
            }
            self.within(Limit::MultiReadBytes, out.len() - start)?;
        }
        end_multi(out);
        Ok(())
    }

    fn within(&mut self, limit: Limit, amount: usize) -> Result<(), ErrorCode> {
        if self.rules.limits.allow(limit, amount) {
            return Ok(());
        }
        self.exceeded = Some(limit);
        Err(limit.code())
    }

    fn multi_get_data(&mut self, path: &str, out: &mut Vec<u8>) -> Result<(), ErrorCode> {
        match self.view.get_data(path, self.caller) {
            Ok((data, stat)) => {
                self.visit(data.map_or(0, <[u8]>::len) / BYTES_OF_A_VISIT)?;
                MultiResult::Data(data, stat).encode_entry(out);
            }
            Err(code) => MultiResult::Error(code.to_wire()).encode_entry(out),
        }
        Ok(())
    }

    fn multi_get_children(&mut self, path: &str, out: &mut Vec<u8>) -> Result<(), ErrorCode> {
        match self.view.get_children(path, self.caller) {
            Ok(listing) => {
                self.visit(listing.len())?;
                MultiHeader { op: OpCode::GetChildren.to_wire(), done: false, err: 0 }.encode(out);
                jute::put_ustrings(out, listing.names());
            }
            Err(code) => MultiResult::Error(code.to_wire()).encode_entry(out),
        }
        Ok(())
    }

    /// Whether this many znodes may be visited now. If not, the reply is discarded, and the read is executed
    /// beside the shard.
    fn visit(&mut self, znodes: usize) -> Result<(), ErrorCode> {
        match self.visits {
            Visits::Unbounded => return Ok(()),
            Visits::Bounded(left) if znodes <= left => {
                self.visits = Visits::Bounded(left - znodes);
                return Ok(());
            }
            Visits::Bounded(_) => self.visits = Visits::Spent,
            Visits::Spent => {}
        }
        Err(ErrorCode::RuntimeInconsistency)
    }
}

/// The identities as ZooKeeper shows them.
fn who_am_i(identities: &[Identity], out: &mut Vec<u8>) {
    jute::put_len(out, identities.len());
    for identity in identities {
        let user = acl::user(identity);
        ClientInfo { auth_scheme: (&identity.scheme).into(), user: user.into() }.encode(out);
    }
}
