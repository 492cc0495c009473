//! Which error comes first (docs/protocol.md, 4.2): each line breaks one rule and every rule
//! after it, so that only the order decides.

use std::borrow::Cow;

use ringkeeper_engine::settings::Settings;
use ringkeeper_wire::{CreateRequest, CreateTtlRequest, ErrorCode, MultiOp, Request, SessionId};

use crate::fixture::*;

/// `/closed` grants nothing, `/closed/leaf` has data, `/open/leaf` and `/ephemeral` exist, `/limited` is
/// full.
fn server() -> Server {
    let mut server = Server::new();
    for path in ["/open", "/open/leaf", "/full", "/full/child", "/closed", "/closed/leaf", "/limited"] {
        server.create(path, 0);
    }
    server.create("/ephemeral", 1);
    for path in ["/zookeeper/quota/limited", "/zookeeper/quota/limited/zookeeper_limits"] {
        server.create(path, 0);
    }
    server.create("/zookeeper/quota/limited/zookeeper_stats", 0);
    let limits = b"count=1,bytes=4=;byteHardLimit=4;countHardLimit=1";
    let outcome = server.ask(&set_data("/zookeeper/quota/limited/zookeeper_limits", limits, -1));
    assert_eq!(code(&outcome), ErrorCode::Ok);
    for path in ["/closed/leaf", "/closed"] {
        assert_eq!(code(&server.ask(&set_acl(path, Some(list(0)), -1))), ErrorCode::Ok);
    }
    server.settings.enforce_quota = true;
    server
}

fn expect(session: SessionId, request: &Request<'_>, expected: ErrorCode) {
    let mut server = server();
    server.session = session;
    let before = contents(&server.state);
    let zxid = server.next_zxid();
    assert_eq!(code(&server.ask(request)), expected, "{request:?}");
    assert_eq!(contents(&server.state), before, "a failed request changes nothing: {request:?}");
    assert_eq!(server.state.last_zxid(), zxid, "and takes a zxid");
}

fn create_as(path: &str, perms: Option<i32>, flags: i32) -> Request<'_> {
    let acl = perms.map(list);
    Request::Create(CreateRequest { path: Cow::Borrowed(path), data: Some(b"data"), acl, flags })
}

#[test]
fn checks_of_create() {
    use ErrorCode::*;
    for (session, path, acl, flags, expected) in [
        (UNKNOWN, "no slash", None, 7, BadArguments),
        (UNKNOWN, "no slash", None, -1, BadArguments),
        (UNKNOWN, "no slash", None, 5, BadArguments),
        (UNKNOWN, "no slash", None, 0, SessionExpired),
        (ALICE, "no slash", None, 0, BadArguments),
        (ALICE, "/nul\0/x", None, 0, BadArguments),
        (ALICE, "/missing//x", None, 0, InvalidAcl),
        (ALICE, "/missing//x", Some(31), 0, NoNode),
        (ALICE, "missing/x", Some(31), 0, NoNode),
        (ALICE, "/closed/", Some(31), 0, NoAuth),
        (ALICE, "/closed/leaf", Some(31), 0, NoAuth),
        (ALICE, "/open/", Some(31), 0, BadArguments),
        (ALICE, "/open/.", Some(31), 0, BadArguments),
        (ALICE, "//open", Some(31), 0, BadArguments),
        (ALICE, "/open/\u{1f600}", Some(31), 0, BadArguments),
        (ALICE, "/open/leaf", Some(31), 0, NodeExists),
        (ALICE, "/", Some(31), 0, NodeExists),
        (ALICE, "/ephemeral/x", Some(31), 0, NoChildrenForEphemerals),
        (ALICE, "/limited/x", Some(31), 0, QuotaExceeded),
        (ALICE, "/open/x", Some(31), 0, Ok),
        (ALICE, "/open/", Some(31), 2, Ok),
    ] {
        let request = create_as(path, acl, flags);
        if expected == Ok {
            assert_eq!(code(&server().ask(&request)), Ok, "{request:?}");
        } else {
            expect(session, &request, expected);
        }
    }
}

#[test]
fn create_ttl_checks_flags_then_feature_then_ttl_then_session() {
    fn ttl(flags: i32, ttl_ms: i64) -> Request<'static> {
        let (path, acl) = (Cow::Borrowed("no slash"), None);
        Request::CreateTtl(CreateTtlRequest { path, data: None, acl, flags, ttl_ms })
    }
    for (flags, ttl_ms, expected) in [
        (7, 0, ErrorCode::BadArguments),
        (5, 0, ErrorCode::BadArguments),
        (5, -1, ErrorCode::BadArguments),
        (5, 0x100_0000_0000, ErrorCode::BadArguments),
        (0, 5, ErrorCode::BadArguments),
        (5, 0xff_ffff_ffff, ErrorCode::SessionExpired),
        (6, 1, ErrorCode::SessionExpired),
    ] {
        expect(UNKNOWN, &ttl(flags, ttl_ms), expected);
    }
    let mut server = server();
    server.settings = Settings { extended_types_enabled: false, ..Settings::default() };
    server.session = UNKNOWN;
    assert_eq!(code(&server.ask(&ttl(5, 0))), ErrorCode::Unimplemented);
    assert_eq!(code(&server.ask(&ttl(7, 0))), ErrorCode::BadArguments);
}

#[test]
fn checks_of_delete() {
    use ErrorCode::*;
    for (session, path, version, expected) in [
        (UNKNOWN, "no slash", 9, SessionExpired),
        (ALICE, "no slash", 9, BadArguments),
        (ALICE, "", 9, BadArguments),
        (ALICE, "/a\0/b", 9, BadArguments),
        (ALICE, "/", 9, BadArguments),
        (ALICE, "/zookeeper", 9, BadArguments),
        (ALICE, "/zookeeper/quota", 9, BadArguments),
        (ALICE, "/zookeeper/config", 9, BadArguments),
        (ALICE, "/missing/x", 9, NoNode),
        (ALICE, "/closed/missing", 9, NoAuth),
        (ALICE, "/closed/leaf", 9, NoAuth),
        (ALICE, "/open/missing", 9, NoNode),
        (ALICE, "/open/", 9, NoNode),
        (ALICE, "/full", 9, BadVersion),
        (ALICE, "/full", 0, NotEmpty),
    ] {
        expect(session, &delete(path, version), expected);
    }
    assert_eq!(code(&server().ask(&delete("/open/leaf", 0))), Ok);
}

#[test]
fn checks_of_set_data() {
    use ErrorCode::*;
    for (session, path, data, version, expected) in [
        (UNKNOWN, "no slash", "longer", 9, SessionExpired),
        (ALICE, "", "longer", 9, BadArguments),
        (ALICE, "/open/", "longer", 9, BadArguments),
        (ALICE, "/missing", "longer", 9, NoNode),
        (ALICE, "/closed/leaf", "longer", 9, NoAuth),
        (ALICE, "/zookeeper/config", "longer", 9, NoAuth),
        (ALICE, "/limited", "longer", 9, QuotaExceeded),
        (ALICE, "/limited", "less", 9, BadVersion),
    ] {
        expect(session, &set_data(path, data.as_bytes(), version), expected);
    }
    assert_eq!(code(&server().ask(&set_data("/limited", b"less", 0))), Ok);
}

#[test]
fn checks_of_set_acl() {
    use ErrorCode::*;
    for (session, path, perms, version, expected) in [
        (UNKNOWN, "no slash", None, 9, SessionExpired),
        (ALICE, "/open/", None, 9, BadArguments),
        (ALICE, "/missing", None, 9, InvalidAcl),
        (ALICE, "/missing", Some(31), 9, NoNode),
        (ALICE, "/closed", Some(31), 9, NoAuth),
        (ALICE, "/open", Some(31), 9, BadVersion),
    ] {
        expect(session, &set_acl(path, perms.map(list), version), expected);
    }
    assert_eq!(code(&server().ask(&set_acl("/", Some(list(31)), 0))), Ok);
}

#[test]
fn checks_of_check() {
    use ErrorCode::*;
    for (session, path, version, expected) in [
        (UNKNOWN, "no slash", 9, SessionExpired),
        (ALICE, "/open/", 9, BadArguments),
        (ALICE, "/missing", 9, NoNode),
        (ALICE, "/closed/leaf", 9, NoAuth),
        (ALICE, "/open", 9, BadVersion),
        (ALICE, "/open", 0, Ok),
        (ALICE, "/open", -1, Ok),
    ] {
        let mut server = server();
        server.session = session;
        let outcome = server.multi(&[check(path, version)]);
        let got = match outcome {
            ringkeeper_engine::txn::Outcome::MultiFailed(failed) => failed.code,
            _ => Ok,
        };
        assert_eq!(got, expected, "{path:?} at {version}");
    }
}

#[test]
fn requests_that_are_no_writes_are_unimplemented() {
    expect(ALICE, &Request::Ping, ErrorCode::Unimplemented);
    expect(ALICE, &Request::WhoAmI, ErrorCode::Unimplemented);
}

#[test]
fn in_a_multi_flags_and_create_container_each_make_a_container() {
    use ringkeeper_engine::tree::Owner;
    use ringkeeper_engine::txn::{TxnOp, Update};
    fn owner(server: &Server, path: &str) -> Owner {
        server.state.znode(path).expect("created").owner()
    }
    let mut server = server();
    server.multi(&[MultiOp::Create(create_request("/open/c", 4))]);
    assert_eq!(owner(&server, "/open/c"), Owner::Container);
    for flags in 0..5 {
        server.multi(&[MultiOp::CreateContainer(create_request("/open/p", flags))]);
        let TxnOp::Multi(updates) = &server.log.last().expect("logged").op else { panic!("no multi") };
        let [Update::Create(create)] = &updates[..] else { panic!("{updates:?}") };
        let path = create.path.clone();
        assert!(create.reply_with_stat, "flags {flags}");
        assert_eq!(owner(&server, &path), Owner::Container, "flags {flags}");
        server.ask(&delete(&path, -1));
    }
    server.create("/open/plain", 4);
    assert_eq!(owner(&server, "/open/plain"), Owner::None);
}
