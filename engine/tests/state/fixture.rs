//! A state with a session, and short words for requests.

use std::borrow::Cow;

use bytes::Bytes;
use ringkeeper_engine::acl::Caller;
use ringkeeper_engine::authorisation::Bounds;
use ringkeeper_engine::prepare::{
    Context, Ensemble, Meter, execute, prepare, prepare_close_session, prepare_reap,
};
use ringkeeper_engine::settings::Settings;
use ringkeeper_engine::state::State;
use ringkeeper_engine::tenants::{Stored, Tenant};
use ringkeeper_engine::tree::ZnodeMeta;
use ringkeeper_engine::txn::{Effect, Outcome, Session, Txn, TxnOp};
use ringkeeper_engine::zab::ServerSet;
use ringkeeper_wire::{
    AclEntry, AclList, CheckRequest, CreateRequest, CreateTtlRequest, DeleteRequest, ErrorCode, Identity,
    MultiOp, Perms, Request, ServerId, SessionId, SetAclRequest, SetDataRequest, Stat, Xid, Zxid,
};

pub(crate) const ALICE: SessionId = SessionId(0x0100_0000_0000_000a);
pub(crate) const BOB: SessionId = SessionId(0x0100_0000_0000_000b);
pub(crate) const UNKNOWN: SessionId = SessionId(0x0100_0000_0000_00ff);

/// A server that orders requests and applies them at once.
pub(crate) struct Server {
    pub(crate) state: State,
    pub(crate) settings: Settings,
    pub(crate) session: SessionId,
    pub(crate) identities: Vec<Identity>,
    /// The rules that bind the client; see [`Self::act_as`].
    bounds: Option<Bounds>,
    pub(crate) short_of_memory: bool,
    pub(crate) meter: Meter,
    /// Everything that was applied.
    pub(crate) log: Vec<Txn>,
}

impl Server {
    /// With two sessions; requests are of the first.
    pub(crate) fn new() -> Self {
        let mut server = Self {
            state: State::new(1),
            settings: Settings::default(),
            session: ALICE,
            identities: Vec::new(),
            bounds: None,
            short_of_memory: false,
            meter: Meter::new(u64::MAX),
            log: Vec::new(),
        };
        for session in [ALICE, BOB] {
            server.session = session;
            server.commit(TxnOp::CreateSession(Session { timeout_ms: 10_000, password: [7; 16] }));
        }
        server.session = ALICE;
        server
    }

    pub(crate) fn next_zxid(&self) -> Zxid {
        self.state.last_zxid().next().expect("tests are short")
    }

    /// From now on requests are of a client with these identities, under the rules that are there now.
    pub(crate) fn act_as(&mut self, identities: &[Identity]) {
        self.identities = identities.to_vec();
        self.bounds = Bounds::of(self.state.authorisation(), identities);
    }

    /// Time passes with each transaction.
    fn time_ms(&self) -> i64 {
        1_000_000 + i64::try_from(self.log.len()).expect("tests are short") * 10
    }

    /// A transaction of the server itself.
    pub(crate) fn commit(&mut self, op: TxnOp) -> Outcome {
        let txn =
            Txn { zxid: self.next_zxid(), session: self.session, xid: Xid(0), time_ms: self.time_ms(), op };
        let outcome = self.state.apply(&txn);
        self.log.push(txn);
        outcome
    }

    pub(crate) fn ask(&mut self, request: &Request<'_>) -> Outcome {
        let context = Context {
            source: &Bytes::new(),
            ensemble: Ensemble { leader: ServerId(1), up_to_date: &ServerSet::EMPTY, committed: Zxid::ZERO },
            session: self.session,
            local: false,
            identities: &self.identities,
            bounds: self.bounds.as_ref(),
            time_ms: self.time_ms(),
            settings: &self.settings,
            short_of_memory: self.short_of_memory,
            meter: &self.meter,
        };
        let prepared = prepare(&self.state, &context, request);
        let zxid = self.next_zxid();
        let (txn, outcome) = execute(&mut self.state, &context, zxid, Xid(1), request);
        assert_eq!(txn.op, prepared, "both ways to prepare agree");
        self.log.push(txn);
        outcome
    }

    /// The path of a request that must succeed.
    pub(crate) fn create(&mut self, path: &str, flags: i32) -> String {
        let outcome = self.ask(&create(path, flags));
        assert!(matches!(outcome, Outcome::Done(Effect::Created { .. })), "{path}: {outcome:?}");
        self.log.last().expect("just logged").op.updates()[0].path().to_owned()
    }

    pub(crate) fn multi<'a>(&mut self, ops: &'a [MultiOp<'a>]) -> Outcome {
        self.ask(&Request::Multi(ops.into()))
    }

    pub(crate) fn close(&mut self, session: SessionId) -> Outcome {
        self.session = session;
        let outcome = self.commit(prepare_close_session(&self.state, session));
        self.session = ALICE;
        outcome
    }

    /// Whether the cleaner may delete `path`; it does then.
    pub(crate) fn reap(&mut self, path: &str) -> bool {
        prepare_reap(&self.state, path).is_some_and(|op| self.commit(op) != Outcome::Replayed)
    }

    pub(crate) fn stat(&self, path: &str) -> Stat {
        self.state.znode(path).expect(path).stat()
    }

    pub(crate) fn data(&self, path: &str) -> Option<&[u8]> {
        self.state.znode(path).expect(path).data()
    }

    pub(crate) fn caller(&self) -> Caller<'_> {
        Caller {
            identities: &self.identities,
            skip_acl: self.settings.skip_acl,
            bounds: self.bounds.as_ref(),
        }
    }
}

pub(crate) fn code(outcome: &Outcome) -> ErrorCode {
    match outcome {
        Outcome::Failed(code) => *code,
        Outcome::Done(_) | Outcome::SessionClosed(_) => ErrorCode::Ok,
        outcome => panic!("no single code: {outcome:?}"),
    }
}

pub(crate) fn entry(perms: i32, scheme: &str, id: &str) -> AclEntry {
    AclEntry { perms: Perms(perms), scheme: scheme.to_owned(), id: id.to_owned() }
}

pub(crate) fn identity(scheme: &str, id: &str) -> Identity {
    Identity { scheme: scheme.to_owned(), id: id.to_owned() }
}

/// Lists that tests use, kept for the requests that borrow them.
pub(crate) fn list<'a>(perms: i32) -> AclList<'a> {
    AclList::from(&*Vec::<AclEntry>::leak(vec![entry(perms, "world", "anyone")]))
}

pub(crate) fn create_request(path: &str, flags: i32) -> CreateRequest<'_> {
    CreateRequest { path: Cow::Borrowed(path), data: Some(b"data"), acl: Some(list(31)), flags }
}

pub(crate) fn create(path: &str, flags: i32) -> Request<'_> {
    Request::Create(create_request(path, flags))
}

pub(crate) fn create_with(path: &str, perms: i32) -> Request<'_> {
    Request::Create(CreateRequest { acl: Some(list(perms)), ..create_request(path, 0) })
}

pub(crate) fn create_ttl(path: &str, flags: i32, ttl_ms: i64) -> Request<'_> {
    let CreateRequest { path, data, acl, flags } = create_request(path, flags);
    Request::CreateTtl(CreateTtlRequest { path, data, acl, flags, ttl_ms })
}

pub(crate) fn delete(path: &str, version: i32) -> Request<'_> {
    Request::Delete(DeleteRequest { path: Cow::Borrowed(path), version })
}

pub(crate) fn set_data_request<'a>(path: &'a str, data: &'a [u8], version: i32) -> SetDataRequest<'a> {
    SetDataRequest { path: Cow::Borrowed(path), data: Some(data), version }
}

pub(crate) fn set_data<'a>(path: &'a str, data: &'a [u8], version: i32) -> Request<'a> {
    Request::SetData(set_data_request(path, data, version))
}

pub(crate) fn set_acl<'a>(path: &'a str, acl: Option<AclList<'a>>, version: i32) -> Request<'a> {
    Request::SetAcl(SetAclRequest { path: Cow::Borrowed(path), acl, version })
}

pub(crate) fn check(path: &str, version: i32) -> MultiOp<'_> {
    MultiOp::Check(CheckRequest { path: Cow::Borrowed(path), version })
}

/// Every znode with all that a client could ever learn of it, and its ACL.
pub(crate) type Contents = Vec<(String, ZnodeMeta, Option<Vec<u8>>, Vec<AclEntry>)>;

/// In the order of paths; ACL ids, which are a server's own, are left out.
pub(crate) fn contents(state: &State) -> Contents {
    let mut contents: Contents = state
        .tree()
        .nodes()
        .map(|znode| {
            let meta = ZnodeMeta { acl: ringkeeper_engine::tree::AclId::OPEN, ..znode.meta() };
            let acl = state.acl_of(znode).entries().to_vec();
            (znode.path(), meta, znode.data().map(<[u8]>::to_vec), acl)
        })
        .collect();
    contents.sort_by(|a, b| a.0.cmp(&b.0));
    contents
}

/// Asserts that two states hold the same.
pub(crate) fn assert_same(a: &State, b: &State) {
    assert_eq!(contents(a), contents(b));
    assert_eq!(a.digest(), b.digest());
    assert_eq!(a.last_zxid(), b.last_zxid());
    assert_eq!(a.last_time_ms(), b.last_time_ms());
    assert!(a.sessions().eq(b.sessions()));
    for (session, _) in a.sessions() {
        assert!(a.ephemerals(session).eq(b.ephemerals(session)));
    }
    assert_eq!(a.ephemeral_count(), b.ephemeral_count());
    assert_eq!(a.acl_count(), b.acl_count());
    assert_eq!(a.authorisation(), b.authorisation());
    let tenants = |state: &State| {
        let tenant = |(tenant, stored): (&Tenant, Stored)| {
            (tenant.path().to_string(), tenant.limits().clone(), stored)
        };
        state.tenants().iter().map(tenant).collect::<Vec<_>>()
    };
    assert_eq!(tenants(a), tenants(b));
    let reapable = |state: &State| state.reapable(None).map(|(path, _)| path.to_owned()).collect::<Vec<_>>();
    assert_eq!(reapable(a), reapable(b));
}
