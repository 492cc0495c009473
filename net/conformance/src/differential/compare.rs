//! Two servers' answers to the same requests, field by field.

use std::collections::BTreeSet;
use std::fmt::Debug;

use ringkeeper_wire::jute::Reader;
use ringkeeper_wire::{
    AclList, ConnectResponse, EventType, MultiResult, OpCode, Record, ReplyHeader, Response, Stat,
    StringList, WatcherEvent, xid,
};

use super::mapping::{HeaderZxid, Mapping};
use super::request::abbreviate;
use ringkeeper_testkit::Received;

/// One field that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Difference {
    /// What was asked: an opcode's name, `event`, `connect` or `sync barrier`.
    pub(super) request: String,
    /// Which part of the answer.
    pub(super) field: String,
    /// What the reference says.
    pub(super) reference: String,
    /// What the subject says.
    pub(super) subject: String,
}

/// Collects the differences of one answer.
pub(super) struct Comparison<'m> {
    mapping: &'m mut Mapping,
    request: String,
    pub(super) differences: Vec<Difference>,
}

impl<'m> Comparison<'m> {
    /// Compares answers to `request`.
    pub(super) const fn new(mapping: &'m mut Mapping, request: String) -> Self {
        Self { mapping, request, differences: Vec::new() }
    }

    /// Notes a difference unless `agree`.
    fn check(&mut self, agree: bool, field: &str, reference: &dyn Debug, subject: &dyn Debug) {
        if !agree {
            self.differences.push(Difference {
                request: self.request.clone(),
                field: field.to_owned(),
                reference: abbreviate(&format!("{reference:?}")),
                subject: abbreviate(&format!("{subject:?}")),
            });
        }
    }

    fn same<T: PartialEq + Debug>(&mut self, field: &str, reference: &T, subject: &T) {
        self.check(reference == subject, field, reference, subject);
    }

    /// Compares two answers, or what came in their place.
    pub(super) fn received(&mut self, op: i32, mode: HeaderZxid, reference: &Received, subject: &Received) {
        match (reference, subject) {
            (Received::Frame(reference), Received::Frame(subject)) => {
                self.frames(op, mode, reference, subject)
            }
            _ => self.check(reference == subject, "answer", &describe(op, reference), &describe(op, subject)),
        }
    }

    fn frames(&mut self, op: i32, mode: HeaderZxid, reference: &[u8], subject: &[u8]) {
        let (mut r, mut s) = (Reader::new(reference), Reader::new(subject));
        let (Ok(r_header), Ok(s_header)) = (ReplyHeader::decode(&mut r), ReplyHeader::decode(&mut s)) else {
            return self.same("frame", &reference, &subject);
        };
        if r_header.xid != s_header.xid {
            let (r, s) = (describe_frame(op, reference), describe_frame(op, subject));
            return self.check(false, "order", &r, &s);
        }
        if r_header.xid == xid::NOTIFICATION {
            self.request = "event".to_owned();
            return self.events((&r_header, &mut r), (&s_header, &mut s));
        }
        let zxids_agree = self.mapping.header(r_header.zxid, s_header.zxid, mode);
        self.check(zxids_agree, "header zxid", &r_header.zxid, &s_header.zxid);
        self.same("err", &r_header.err, &s_header.err);
        if r_header.err == s_header.err {
            self.bodies(op, r.rest(), s.rest());
        }
    }

    fn events(
        &mut self,
        reference: (&ReplyHeader, &mut Reader<'_>),
        subject: (&ReplyHeader, &mut Reader<'_>),
    ) {
        let zxids_agree = self.mapping.txn(reference.0.zxid, subject.0.zxid);
        self.check(zxids_agree, "zxid", &reference.0.zxid, &subject.0.zxid);
        let event = |reader: &mut Reader<'_>| WatcherEvent::decode(reader).map(|event| format!("{event:?}"));
        self.same("event", &event(reference.1), &event(subject.1));
    }

    fn bodies(&mut self, op: i32, reference: &[u8], subject: &[u8]) {
        if reference.is_empty() && subject.is_empty() {
            return;
        }
        let decoded = OpCode::from_wire(op).and_then(|op| {
            Some((Response::decode(op, reference).ok()?, Response::decode(op, subject).ok()?))
        });
        let Some((r, s)) = decoded else {
            return self.same("body", &reference, &subject);
        };
        self.responses(&r, &s);
        if self.differences.is_empty() {
            self.same("body length", &reference.len(), &subject.len());
        }
    }

    fn responses<'a>(&mut self, reference: &Response<'a>, subject: &Response<'a>) {
        use Response as R;
        match (reference, subject) {
            (R::Create2(r), R::Create2(s)) => {
                self.same("path", &r.path, &s.path);
                self.stats(&r.stat, &s.stat);
            }
            (R::Stat(r), R::Stat(s)) => self.stats(r, s),
            (R::GetData(r), R::GetData(s)) => {
                self.same("data", &r.data.map(escape), &s.data.map(escape));
                self.stats(&r.stat, &s.stat);
            }
            (R::GetAcl(r), R::GetAcl(s)) => {
                // Who `auth` stands for comes in no particular order.
                let sorted = |acl: &Option<AclList<'a>>| {
                    acl.as_ref()
                        .map(|list| list.iter().map(|entry| format!("{entry:?}")).collect::<BTreeSet<_>>())
                };
                self.same("acl", &sorted(&r.acl), &sorted(&s.acl));
                self.stats(&r.stat, &s.stat);
            }
            (R::GetChildren(r), R::GetChildren(s)) => self.sets("children", &r.children, &s.children),
            (R::GetChildren2(r), R::GetChildren2(s)) => {
                self.sets("children", &r.children, &s.children);
                self.stats(&r.stat, &s.stat);
            }
            (R::GetEphemerals(r), R::GetEphemerals(s)) => {
                self.sets("ephemerals", &r.ephemerals, &s.ephemerals)
            }
            (R::WhoAmI(r), R::WhoAmI(s)) => {
                let identities = |response: &ringkeeper_wire::WhoAmIResponse<'_>| -> BTreeSet<String> {
                    response
                        .client_info
                        .iter()
                        .map(|info| format!("{}:{}", info.auth_scheme, info.user))
                        .collect()
                };
                self.same("identities", &identities(r), &identities(s));
            }
            (R::Multi(r), R::Multi(s)) => {
                self.same("results", &r.len(), &s.len());
                for (index, (r, s)) in r.iter().zip(s.iter()).enumerate() {
                    self.multi_results(index, &r, &s);
                }
            }
            _ => self.same("body", reference, subject),
        }
    }

    fn multi_results<'a>(&mut self, index: usize, reference: &MultiResult<'a>, subject: &MultiResult<'a>) {
        use MultiResult as M;
        match (reference, subject) {
            (M::Created2(r_path, r), M::Created2(s_path, s)) => {
                self.same("path", r_path, s_path);
                self.stats(r, s);
            }
            (M::DataSet(r), M::DataSet(s)) => self.stats(r, s),
            (M::Data(r_data, r), M::Data(s_data, s)) => {
                self.same("data", &r_data.map(escape), &s_data.map(escape));
                self.stats(r, s);
            }
            (M::Children(r), M::Children(s)) => self.sets("children", r, s),
            _ => self.check(reference == subject, "multi result", &(index, reference), &(index, subject)),
        }
    }

    fn sets(&mut self, field: &str, reference: &StringList<'_>, subject: &StringList<'_>) {
        let sorted = |list: &StringList<'_>| {
            let mut items: Vec<String> = list.iter().map(|item| item.into_owned()).collect();
            items.sort_unstable();
            items
        };
        self.same(field, &sorted(reference), &sorted(subject));
    }

    fn stats(&mut self, r: &Stat, s: &Stat) {
        for (field, r, s) in
            [("czxid", r.czxid, s.czxid), ("mzxid", r.mzxid, s.mzxid), ("pzxid", r.pzxid, s.pzxid)]
        {
            let agree = self.mapping.txn(r, s);
            self.check(agree, field, &r, &s);
        }
        let created = self.mapping.time((r.czxid, s.czxid), (r.ctime, s.ctime));
        self.check(created, "ctime", &r.ctime, &s.ctime);
        let modified = self.mapping.time((r.mzxid, s.mzxid), (r.mtime, s.mtime));
        self.check(modified, "mtime", &r.mtime, &s.mtime);
        self.same("version", &r.version, &s.version);
        self.same("cversion", &r.cversion, &s.cversion);
        self.same("aversion", &r.aversion, &s.aversion);
        let owners_agree = self.mapping.session(r.ephemeral_owner, s.ephemeral_owner);
        self.check(owners_agree, "ephemeralOwner", &r.ephemeral_owner, &s.ephemeral_owner);
        self.same("dataLength", &r.data_length, &s.data_length);
        self.same("numChildren", &r.num_children, &s.num_children);
    }

    /// Compares the answers to a handshake.
    pub(super) fn handshakes(&mut self, reference: &Received, subject: &Received) {
        let (Received::Frame(reference), Received::Frame(subject)) = (reference, subject) else {
            let describe = |received: &Received| match received {
                Received::Frame(frame) => format!("{:?}", ConnectResponse::decode(&mut Reader::new(frame))),
                other => format!("{other:?}"),
            };
            return self.check(reference == subject, "answer", &describe(reference), &describe(subject));
        };
        let (Ok(r), Ok(s)) = (
            ConnectResponse::decode(&mut Reader::new(reference)),
            ConnectResponse::decode(&mut Reader::new(subject)),
        ) else {
            return self.same("frame", &reference, &subject);
        };
        self.same("protocolVersion", &r.protocol_version, &s.protocol_version);
        self.same("timeOut", &r.timeout_ms, &s.timeout_ms);
        self.same("readOnly", &r.read_only, &s.read_only);
        self.same("password length", &r.password.map(<[u8]>::len), &s.password.map(<[u8]>::len));
        let sessions_agree = self.mapping.session(r.session_id.0, s.session_id.0);
        self.check(sessions_agree, "sessionId", &r.session_id, &s.session_id);
    }
}

fn escape(data: &[u8]) -> String {
    data.escape_ascii().to_string()
}

/// For people: an answer decoded.
pub(super) fn describe(op: i32, received: &Received) -> String {
    match received {
        Received::Frame(frame) => abbreviate(&describe_frame(op, frame)),
        other => format!("{other:?}"),
    }
}

fn describe_frame(op: i32, frame: &[u8]) -> String {
    let mut reader = Reader::new(frame);
    let Ok(header) = ReplyHeader::decode(&mut reader) else {
        return format!("bytes {}", frame.escape_ascii());
    };
    let head = format!("xid {} zxid {:#x} err {}", header.xid.0, header.zxid, header.err);
    if header.xid == xid::NOTIFICATION {
        let event = WatcherEvent::decode(&mut reader)
            .map(|e| (EventType::from_wire(e.event_type), e.path.into_owned()));
        return format!("{head} event {event:?}");
    }
    let body = reader.rest();
    if body.is_empty() {
        return head;
    }
    match OpCode::from_wire(op).and_then(|op| Response::decode(op, body).ok()) {
        Some(response) => format!("{head} {response:?}"),
        None => format!("{head} body {}", body.escape_ascii()),
    }
}
