//! Rules of authorisation: requests of bound clients against an oracle that looks at every rule, and who may
//! change rules.

use proptest::prelude::*;
use ringkeeper_engine::authorisation::{Fault, InvalidRule, InvalidRuleZnode, InvalidSubject, PLACE};
use ringkeeper_engine::limits::{Limit, Refusal};
use ringkeeper_engine::settings::Settings;
use ringkeeper_engine::txn::Outcome;
use ringkeeper_wire::{ErrorCode, Identity, Request};

use crate::fixture::*;
use crate::replay::assert_replays;

const READ: i32 = 1;
const WRITE: i32 = 2;
const CREATE: i32 = 4;
const DELETE: i32 = 8;
const ADMIN: i32 = 16;

fn root() -> Identity {
    identity("super", "")
}

fn rule_znode(name: &str) -> String {
    format!("{PLACE}/{name}")
}

/// Writes a rule as the super user does; what the client was comes back afterwards.
fn put_rule(server: &mut Server, name: &str, text: &str) -> Outcome {
    let before = std::mem::replace(&mut server.identities, vec![root()]);
    server.act_as(&[root()]);
    if server.state.znode(PLACE).is_none() {
        server.create(PLACE, 0);
    }
    let path = rule_znode(name);
    let outcome = match server.state.znode(&path) {
        Some(_) => server.ask(&set_data(&path, text.as_bytes(), -1)),
        None => server.ask(&Request::Create(ringkeeper_wire::CreateRequest {
            data: Some(text.as_bytes()),
            ..create_request(&path, 0)
        })),
    };
    server.act_as(&before);
    outcome
}

/// The codes of every request about `path`, with no effect on the state.
fn codes(server: &mut Server, path: &str) -> Vec<(&'static str, ErrorCode)> {
    let of = |result: Result<(), ErrorCode>| result.err().unwrap_or(ErrorCode::Ok);
    let (state, caller) = (server.state.clone(), server.caller());
    let reads = [
        ("exists", of(state.exists(path, caller).map(drop))),
        ("getData", of(state.get_data(path, caller).map(drop))),
        ("getChildren", of(state.get_children(path, caller).map(drop))),
        ("getAllChildrenNumber", of(state.get_all_children_number(path, caller, 100).map(drop))),
        ("getACL", of(state.get_acl(path, caller).map(drop))),
    ];
    let check = [check(path, -1)];
    let writes = [
        ("setData", set_data(path, b"x", -1)),
        ("setACL", set_acl(path, Some(list(31)), -1)),
        ("create", create(path, 0)),
        ("delete", delete(path, -1)),
        ("check", Request::Multi(check[..].into())),
    ];
    let mut codes = reads.to_vec();
    for (name, request) in writes {
        let outcome = server.ask(&request);
        server.log.pop();
        server.state = state.clone();
        let code = match outcome {
            Outcome::MultiFailed(failed) => failed.code,
            Outcome::Multi(_) => ErrorCode::Ok,
            outcome => code(&outcome),
        };
        codes.push((name, code));
    }
    codes
}

/// A rule as the oracle has it: its subject, and each subtree with its access.
type Plain = (&'static str, Vec<(String, &'static str)>);

/// The rules, decided by looking at all of them.
struct Oracle<'a> {
    rules: &'a [Plain],
    identities: &'a [Identity],
}

impl Oracle<'_> {
    fn binding(&self) -> Vec<&Plain> {
        let of = |name: &str| self.rules.iter().find(|(subject, _)| *subject == name);
        let own = self.identities.iter().filter_map(|Identity { scheme, id }| match scheme.as_str() {
            "ip" => ["ip:10.1.2.3", "ip:10.1.0.0%2F16", "ip:10.0.0.0%2F8"].into_iter().find_map(of),
            scheme => of(&format!("{scheme}:{id}")),
        });
        let own: Vec<_> = own.collect();
        if own.is_empty() { of("world:anyone").into_iter().collect() } else { own }
    }

    fn access(rule: &Plain, path: &str) -> &'static str {
        let covers =
            |subtree: &str| subtree == "/" || path == subtree || path.starts_with(&format!("{subtree}/"));
        let covering = rule.1.iter().filter(|(subtree, _)| covers(subtree));
        covering.max_by_key(|(subtree, _)| subtree.len()).map_or("none", |(_, access)| access)
    }

    fn leads_on(rule: &Plain, path: &str) -> bool {
        let above = if path == "/" { "/".to_owned() } else { format!("{path}/") };
        rule.1.iter().any(|(subtree, access)| {
            subtree.len() > above.len() && subtree.starts_with(&above) && *access != "none"
        })
    }

    fn forbids(rule: &Plain, wanted: i32, path: &str) -> bool {
        match Self::access(rule, path) {
            "none" => true,
            "read" => wanted & READ == 0,
            _ => false,
        }
    }

    fn is_forbidden(&self, wanted: i32, path: &str) -> bool {
        path.starts_with(PLACE) || self.binding().into_iter().any(|rule| Self::forbids(rule, wanted, path))
    }

    fn check(&self, server: &Server, wanted: i32, path: &str, acl_alone: bool) -> Result<(), ErrorCode> {
        if !acl_alone && self.is_forbidden(wanted, path) {
            return Err(ErrorCode::NoAuth);
        }
        let znode = server.state.znode(path).ok_or(ErrorCode::NoNode)?;
        let granted = self.binding().into_iter().any(|rule| match Self::access(rule, path) {
            "all" => true,
            "read" => wanted & READ != 0,
            _ => false,
        });
        let entries = server.state.acl_of(znode).entries();
        let says_acl = entries.iter().any(|entry| entry.perms.0 & wanted != 0 && entry.scheme == "world");
        if says_acl || granted && !acl_alone { Ok(()) } else { Err(ErrorCode::NoAuth) }
    }

    fn expected(&self, server: &Server, request: &str, path: &str) -> Result<(), ErrorCode> {
        let parent = match path.rfind('/') {
            Some(0) => "/",
            Some(slash) => &path[..slash],
            None => unreachable!("paths have a slash"),
        };
        let check = |wanted, path| self.check(server, wanted, path, false);
        let exists = server.state.znode(path).is_some();
        match request {
            "exists" => {
                let leads_on = |rule| !Self::forbids(rule, READ, path) || Self::leads_on(rule, path);
                let on_the_way = self.is_forbidden(READ, path)
                    && !path.starts_with(PLACE)
                    && self.binding().into_iter().all(leads_on);
                self.check(server, READ, path, on_the_way)
            }
            "getACL" => check(READ | ADMIN, path),
            "setData" => check(WRITE, path),
            "setACL" => check(ADMIN, path),
            "create" => {
                check(CREATE, parent)?;
                match () {
                    () if self.is_forbidden(CREATE, path) => Err(ErrorCode::NoAuth),
                    () if exists => Err(ErrorCode::NodeExists),
                    () => Ok(()),
                }
            }
            "delete" if self.is_forbidden(DELETE, path) => Err(ErrorCode::NoAuth),
            "delete" => {
                check(DELETE, parent)?;
                match server.state.znode(path) {
                    None => Err(ErrorCode::NoNode),
                    Some(znode) if znode.num_children() > 0 => Err(ErrorCode::NotEmpty),
                    Some(_) => Ok(()),
                }
            }
            _ => check(READ, path),
        }
    }
}

const SUBJECTS: [&str; 7] = [
    "sasl:alice",
    "sasl:bob",
    "ip:10.1.2.3",
    "ip:10.1.0.0%2F16",
    "ip:10.0.0.0%2F8",
    "ip:10.2.0.0%2F16",
    "world:anyone",
];

fn some_path() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(vec!["a", "b", "a-"]), 1..4)
        .prop_map(|names| format!("/{}", names.join("/")))
}

fn some_rule() -> impl Strategy<Value = Plain> {
    let path = prop_oneof![1 => Just("/".to_owned()), 6 => some_path()];
    let access = prop::sample::select(vec!["none", "read", "acl", "all"]);
    let subtrees = prop::collection::btree_map(path, access, 1..5);
    (prop::sample::select(SUBJECTS.to_vec()), subtrees)
        .prop_map(|(subject, subtrees)| (subject, subtrees.into_iter().collect()))
}

proptest! {
    #[test]
    fn every_request_is_judged_as_by_looking_at_all_rules(
        znodes in prop::collection::vec((some_path(), 0..32i32), 0..12),
        rules in prop::collection::vec(some_rule(), 1..8),
        who in prop::collection::vec(0..3usize, 0..4),
        paths in prop::collection::vec(some_path(), 1..6),
    ) {
        let mut server = Server::new();
        for (path, perms) in &znodes {
            let _ = server.ask(&create_with(path, *perms));
        }
        let mut known: Vec<Plain> = Vec::new();
        for rule in &rules {
            let text: String = rule.1.iter().map(|(path, access)| format!("{access} {path}\n")).collect();
            let outcome = put_rule(&mut server, rule.0, &text);
            prop_assert!(matches!(outcome, Outcome::Done(_)), "{:?}", outcome);
            known.retain(|other| other.0 != rule.0);
            known.push(rule.clone());
        }
        let all = [identity("ip", "10.1.2.3"), identity("sasl", "alice"), identity("sasl", "bob")];
        let identities: Vec<_> = who.into_iter().map(|index| all[index].clone()).collect();
        server.act_as(&identities);
        let oracle = Oracle { rules: &known, identities: &identities };
        let places = ["/", PLACE, "/zookeeper/authorisation/sasl:alice", "/zookeeper"].map(str::to_owned);
        for path in paths.iter().chain(&places) {
            for (request, code) in codes(&mut server, path) {
                let is_built_in = ["/", "/zookeeper"].contains(&&**path);
                if is_built_in && ["create", "delete"].contains(&request) {
                    continue;
                }
                let expected = oracle.expected(&server, request, path).err().unwrap_or(ErrorCode::Ok);
                prop_assert_eq!(code, expected, "{} {} as {:?} under {:?}", request, path, identities, known);
            }
        }
        assert_replays(&server);
    }
}

#[test]
fn an_auditor_reads_everything_and_changes_nothing() {
    let mut server = Server::new();
    server.ask(&create_with("/secret", 0));
    server.create("/open", 0);
    put_rule(&mut server, "sasl:auditor", "read /");
    server.act_as(&[identity("sasl", "auditor")]);
    for path in ["/secret", "/open"] {
        for (request, code) in codes(&mut server, path) {
            let is_write = ["setData", "setACL", "create", "delete"].contains(&request);
            assert_eq!(code, if is_write { ErrorCode::NoAuth } else { ErrorCode::Ok }, "{request} {path}");
        }
    }
}

#[test]
fn a_tenant_sees_nothing_outside_and_the_way_to_its_subtree() {
    let mut server = Server::new();
    for path in ["/tenants", "/tenants/a", "/tenants/a/x", "/tenants/b", "/open"] {
        server.create(path, 0);
    }
    put_rule(&mut server, "sasl:a", "acl /tenants/a");
    server.act_as(&[identity("sasl", "a")]);
    for path in ["/open", "/missing", "/tenants/b", "/tenants/missing", PLACE] {
        let codes = codes(&mut server, path);
        assert!(codes.iter().all(|(_, code)| *code == ErrorCode::NoAuth), "{path}: {codes:?}");
    }
    assert!(server.state.get_data("/zookeeper/config", server.caller()).is_err());
    for path in ["/", "/tenants"] {
        assert!(server.state.exists(path, server.caller()).is_ok(), "{path}");
        assert!(server.state.get_children(path, server.caller()).is_err(), "{path}");
    }
    assert_eq!(code(&server.ask(&delete("/tenants/a/x", -1))), ErrorCode::Ok);
    assert_eq!(code(&server.ask(&delete("/tenants/a", -1))), ErrorCode::NoAuth, "its parent is outside");
    let multi = [check("/tenants/a", -1), check("/tenants/b", -1)];
    let Outcome::MultiFailed(failed) = server.multi(&multi) else { panic!("refused") };
    assert_eq!((failed.failed, failed.code), (1, ErrorCode::NoAuth));
}

#[test]
fn another_identity_never_frees_a_client() {
    let mut server = Server::new();
    for path in ["/a", "/b"] {
        server.create(path, 0);
    }
    put_rule(&mut server, "sasl:a", "acl /a");
    put_rule(&mut server, "digest:auditor:h", "read /");
    put_rule(&mut server, "world:anyone", "all /");
    let may = |server: &Server, path| server.state.get_data(path, server.caller()).is_ok();
    let (a, stranger, auditor) =
        (identity("sasl", "a"), identity("digest", "x:h"), identity("digest", "auditor:h"));
    for others in [vec![], vec![stranger.clone()], vec![stranger.clone(), auditor.clone()]] {
        server.act_as(&[vec![a.clone()], others].concat());
        assert_eq!((may(&server, "/a"), may(&server, "/b")), (true, false), "{:?}", server.identities);
    }
    server.act_as(&[a, auditor]);
    assert_eq!(code(&server.ask(&set_data("/a", b"", -1))), ErrorCode::NoAuth, "auditors change nothing");
    server.act_as(&[stranger]);
    assert!(may(&server, "/b"), "world:anyone is for those without a rule");
}

#[test]
fn super_users_alone_see_and_change_rules_and_no_rule_binds_them() {
    let mut server = Server::new();
    server.settings = Settings { skip_acl: true, ..Settings::default() };
    for flags in [0, 1] {
        assert_eq!(code(&server.ask(&create(PLACE, flags))), ErrorCode::NoAuth, "before there is any rule");
    }
    put_rule(&mut server, "world:anyone", "all /");
    put_rule(&mut server, "super:", "none /");
    for path in [PLACE.to_owned(), rule_znode("world:anyone"), rule_znode("sasl:new")] {
        let codes = codes(&mut server, &path);
        assert!(codes.iter().all(|(_, code)| *code == ErrorCode::NoAuth), "{path}: {codes:?}");
    }
    put_rule(&mut server, "world:anyone", "none /");
    server.act_as(&[root(), identity("sasl", "a")]);
    assert!(server.state.get_data(&rule_znode("world:anyone"), server.caller()).is_ok());
    assert_eq!(code(&server.ask(&create("/a", 0))), ErrorCode::Ok);
    for path in [rule_znode("world:anyone"), PLACE.to_owned()] {
        assert_eq!(code(&server.ask(&delete(&path, -1))), ErrorCode::Ok);
    }
    server.act_as(&[]);
    assert!(server.state.get_data("/a", server.caller()).is_ok(), "without rules nobody is bound");
    assert_replays(&server);
}

#[test]
fn skip_acl_does_not_switch_rules_off() {
    let mut server = Server::new();
    server.settings = Settings { skip_acl: true, ..Settings::default() };
    server.ask(&create_with("/a", 0));
    server.create("/b", 0);
    put_rule(&mut server, "world:anyone", "acl /a");
    server.act_as(&[]);
    assert!(server.state.get_data("/a", server.caller()).is_ok());
    assert!(server.state.get_data("/b", server.caller()).is_err());
}

#[test]
fn what_is_no_rule_is_refused_and_the_operator_told_why() {
    let mut server = Server::new();
    put_rule(&mut server, "sasl:a", "acl /a");
    let text = |line, fault| Refusal::Rule(InvalidRuleZnode::Text(InvalidRule { line, fault }));
    for (name, data, refusal) in [
        ("sasl:a", "acl /a\nread", text(2, Fault::Form)),
        ("sasl:b", "", text(1, Fault::Form)),
        ("alice", "acl /a", Refusal::Rule(InvalidRuleZnode::Name(InvalidSubject))),
        ("sasl:%61", "acl /a", Refusal::Rule(InvalidRuleZnode::Name(InvalidSubject))),
    ] {
        assert_eq!(code(&put_rule(&mut server, name, data)), ErrorCode::BadArguments, "{name} {data}");
        assert_eq!(server.meter.take_refusal(), Some(refusal));
    }
    server.act_as(&[root()]);
    for (path, flags) in [("sasl:b", 1), ("sasl:b", 0), ("sasl:a/below", 0)] {
        let path = rule_znode(path);
        assert_eq!(code(&server.ask(&create(&path, flags))), ErrorCode::BadArguments, "{path}");
    }
    assert_eq!(server.state.authorisation().len(), 1);
}

#[test]
fn rules_are_bounded_in_number_and_length() {
    let mut server = Server::new();
    let limits = server.settings.limits.clone().with(Limit::Rules, 1).with(Limit::RuleBytes, 10);
    server.settings = Settings { limits, ..Settings::default() };
    put_rule(&mut server, "sasl:a", "acl /a");
    assert_eq!(code(&put_rule(&mut server, "sasl:b", "acl /a")), ErrorCode::QuotaExceeded);
    assert_eq!(server.meter.take_refusal(), Some(Refusal::Limit(Limit::Rules)));
    assert_eq!(code(&put_rule(&mut server, "sasl:a", "acl /a2345678")), ErrorCode::BadArguments);
    assert_eq!(server.meter.take_refusal(), Some(Refusal::Limit(Limit::RuleBytes)));
}

#[test]
fn ten_thousand_rules_and_long_paths_are_judged_as_one_rule_and_short_ones() {
    let mut server = Server::new();
    let long = "/long".repeat(1_000);
    for number in 0..10_000 {
        put_rule(&mut server, &format!("sasl:user{number}"), &format!("acl /tenants/{number}\nread {long}"));
    }
    server.act_as(&[identity("ip", "10.0.0.1"), identity("sasl", "user77")]);
    let forbidden = |path: &str| server.state.get_data(path, server.caller()) == Err(ErrorCode::NoAuth);
    assert!(forbidden("/tenants/78") && !forbidden("/tenants/77"));
    assert!(!forbidden(&long) && forbidden(&long[..long.len() - 1]));
}

#[test]
fn a_rule_that_comes_from_elsewhere_and_is_none_binds_nobody() {
    let mut server = Server::new();
    server.create("/a", 0);
    put_rule(&mut server, "sasl:a", "none /");
    for data in ["none", "none /"] {
        let set = ringkeeper_engine::txn::SetData {
            path: rule_znode("sasl:a").into(),
            data: Some(data.as_bytes().into()),
            version: 1,
        };
        server.commit(ringkeeper_engine::txn::TxnOp::Update(ringkeeper_engine::txn::Update::SetData(set)));
        server.act_as(&[identity("sasl", "a")]);
        assert_eq!(server.state.get_data("/a", server.caller()).is_ok(), data == "none");
    }
    assert_replays(&server);
}
