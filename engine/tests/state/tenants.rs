//! Tenants (docs/tenants.md): what the leader refuses, and that every server counts the same.

use proptest::prelude::*;
use ringkeeper_engine::limits::{Limit, Refusal};
use ringkeeper_engine::prepare::Meter;
use ringkeeper_engine::settings::Settings;
use ringkeeper_engine::tenants::{Fault, InvalidLimits, Resource, Stored, limits_path};
use ringkeeper_engine::txn::Outcome;
use ringkeeper_wire::{CreateRequest, ErrorCode, MultiOp, Request};

use crate::fixture::*;
use crate::replay::assert_replays;

fn create_limits<'a>(path: &'a str, text: &'a str) -> Request<'a> {
    Request::Create(CreateRequest { data: Some(text.as_bytes()), ..create_request(path, 0) })
}

/// `/t` with one znode below, both with four bytes of data, has these limits.
fn server(limits: &str) -> Server {
    let mut server = Server::new();
    for path in ["/t", "/t/a", "/zookeeper/quota/t"] {
        server.create(path, 0);
    }
    assert_eq!(code(&server.ask(&create_limits(&limits_path("/t"), limits))), ErrorCode::Ok);
    server
}

fn stored(server: &Server) -> Option<Stored> {
    server.state.tenants().iter().next().map(|(_, stored)| stored)
}

#[test]
fn a_tenant_has_as_many_znodes_and_bytes_as_its_limits_say_without_enforced_quotas() {
    let mut server = server("znodes=4 data=14");
    assert_eq!(stored(&server), Some(Stored { znodes: 2, data: 8 }));
    server.create("/t/b", 0);
    assert_eq!(code(&server.ask(&create("/t/c", 0))), ErrorCode::QuotaExceeded);
    assert_eq!(server.meter.take_refusal(), Some(Refusal::Tenant(Resource::Data)));
    assert_eq!(code(&server.ask(&set_data("/t/b", b"sixsix", -1))), ErrorCode::Ok);
    assert_eq!(code(&server.ask(&set_data("/t/b", b"seven77", -1))), ErrorCode::QuotaExceeded);
    assert_eq!(code(&server.ask(&create_limits("/t/c", ""))), ErrorCode::Ok);
    assert_eq!(code(&server.ask(&create_limits("/t/d", ""))), ErrorCode::QuotaExceeded);
    assert_eq!(server.meter.take_refusal(), Some(Refusal::Tenant(Resource::Znodes)));
    assert_eq!(code(&server.ask(&create("/other", 0))), ErrorCode::Ok);
    assert_eq!(code(&server.ask(&delete("/t/a", -1))), ErrorCode::Ok);
    assert_eq!(code(&server.ask(&create("/t/d", 0))), ErrorCode::Ok);
    assert_eq!(stored(&server), Some(Stored { znodes: 4, data: 14 }));
}

#[test]
fn a_multi_that_goes_beyond_a_limit_in_the_end_does_nothing() {
    let mut server = server("znodes=3");
    let both = ["/t/b", "/t/c"].map(|path| MultiOp::Create(create_request(path, 0)));
    let Outcome::MultiFailed(failed) = server.multi(&both) else { panic!("it is one too many") };
    assert_eq!((failed.failed, failed.code), (1, ErrorCode::QuotaExceeded));
    assert_eq!(stored(&server), Some(Stored { znodes: 2, data: 8 }));
    let in_turn = [
        MultiOp::Delete(ringkeeper_wire::DeleteRequest { path: "/t/a".into(), version: -1 }),
        MultiOp::Create(create_request("/t/b", 0)),
        MultiOp::Create(create_request("/t/c", 0)),
    ];
    assert!(matches!(server.multi(&in_turn), Outcome::Multi(_)));
}

#[test]
fn ephemerals_and_sequential_znodes_count_and_go_with_their_session() {
    let mut server = server("znodes=3");
    server.create("/t/e", 3);
    assert_eq!(code(&server.ask(&create("/t/e", 3))), ErrorCode::QuotaExceeded);
    server.close(ALICE);
    assert_eq!(stored(&server), Some(Stored { znodes: 2, data: 8 }));
}

#[test]
fn texts_that_say_no_limits_are_refused_with_a_reason() {
    let mut server = server("znodes=4");
    let path = limits_path("/t");
    assert_eq!(code(&server.ask(&set_data(&path, b"znodes=4 ops=many", -1))), ErrorCode::BadArguments);
    let fault = Fault::Number { min: 1, max: i64::MAX.unsigned_abs() };
    let refusal = Refusal::TenantLimits(InvalidLimits { word: Some(2), fault });
    assert_eq!(server.meter.take_refusal(), Some(refusal));
    assert_eq!(
        refusal.to_string(),
        "these limits cannot be set: word 2 of the limits: \
         the value is a number from 1 to 9223372036854775807"
    );
    server.create("/zookeeper/quota/t/a", 0);
    assert_eq!(code(&server.ask(&create_limits(&limits_path("/t/a"), ""))), ErrorCode::BadArguments);
    assert_eq!(server.meter.take_refusal(), Some(Refusal::TenantLimits(Fault::Nested.into())));
    assert_eq!(code(&server.ask(&create_limits(&limits_path(""), ""))), ErrorCode::BadArguments);
    assert_eq!(server.meter.take_refusal(), Some(Refusal::TenantLimits(Fault::Reserved.into())));
    assert_eq!(code(&server.ask(&set_data(&path, b"", -1))), ErrorCode::Ok);
    assert_eq!(server.state.tenants().len(), 1);
    assert_eq!(code(&server.ask(&delete(&path, -1))), ErrorCode::Ok);
    assert!(server.state.tenants().is_empty());
}

#[test]
fn there_are_only_so_many_tenants_and_to_count_one_is_bounded() {
    let mut server = server("");
    let limits = Settings::default().limits.with(Limit::Tenants, 1);
    server.settings = Settings { limits, ..Settings::default() };
    server.create("/zookeeper/quota/u", 0);
    let path = limits_path("/u");
    assert_eq!(code(&server.ask(&create_limits(&path, ""))), ErrorCode::QuotaExceeded);
    assert_eq!(server.meter.take_refusal(), Some(Refusal::Limit(Limit::Tenants)));
    assert_eq!(code(&server.ask(&set_data(&limits_path("/t"), b"ops=5", -1))), ErrorCode::Ok);
    server.settings = Settings::default();
    for path in ["/u", "/u/a", "/u/b"] {
        server.create(path, 0);
    }
    server.meter = Meter::new(2);
    assert_eq!(code(&server.ask(&create_limits(&path, ""))), ErrorCode::QuotaExceeded);
    assert_eq!(server.meter.take_refusal(), Some(Refusal::Limit(Limit::QuotaZnodes)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn what_is_counted_is_what_is_there_on_every_server(
        steps in prop::collection::vec((0..6, 0..8_usize, 0..9_usize), 1..60),
    ) {
        let paths = ["/t", "/t/a", "/t/b", "/t/a/c", "/u", "/u/a", "/t-", "/t/a/c/d"];
        let mut server = Server::new();
        for path in ["/zookeeper/quota/t", "/zookeeper/quota/u"] {
            server.create(path, 0);
        }
        for (what, place, size) in steps {
            let data = [7; 9];
            let limits = limits_path(["/t", "/u"][place % 2]);
            match what {
                0 => server.ask(&create_limits(&limits, "znodes=4 data=20")),
                1 => server.ask(&delete(&limits, -1)),
                2 => server.ask(&delete(paths[place], -1)),
                3 => server.ask(&set_data(paths[place], &data[..size], -1)),
                _ => server.ask(&create(paths[place], i32::from(what == 4))),
            };
        }
        for (tenant, stored) in server.state.tenants().iter() {
            let path = &**tenant.path();
            let tree = server.state.tree();
            let znodes: Vec<_> = tree.get(path).into_iter().chain(tree.descendants(path)).collect();
            let data = znodes.iter().map(|znode| znode.data().map_or(0, <[u8]>::len)).sum::<usize>() as u64;
            prop_assert_eq!(stored, Stored { znodes: znodes.len() as u64, data });
        }
        assert_replays(&server);
    }
}
