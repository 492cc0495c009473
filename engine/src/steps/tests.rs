//! The worst requests of every kind that a client may send: how many steps each takes at most before others
//! have their turn. `cargo test -p ringkeeper-engine --lib steps -- --nocapture` shows the table.

use std::borrow::Cow;

use ringkeeper_wire::frame::framed;
use ringkeeper_wire::{
    AclEntry, AclList, AddWatchMode, AddWatchRequest, AuthRequest, CheckRequest, CreateRequest,
    CreateTtlRequest, DeleteRequest, GetEphemeralsRequest, MultiOp, MultiReadOp, OpCode, PathRequest,
    PathWatchRequest, Perms, ReconfigRequest, Record, Request, RequestHeader, SaslRequest, SetAclRequest,
    SetDataRequest, SetWatchesRequest, StringList, SyncRequest, WatcherType, WatchesRequest, Xid,
};

use crate::shard::Settings;
use checks::Server;

#[path = "../../fuzz/checks.rs"]
#[expect(dead_code, reason = "the server alone is used here")]
mod checks;

/// What reads may take at once, and transactions, which are prepared and applied in one piece.
const READ_STEPS_MAX: u64 = 25_000;
const WRITE_STEPS_MAX: u64 = 100_000;

/// What a shell reads from a socket at once.
const READ_BYTES: usize = 64 << 10;

/// Children of a directory, more than are visited at once.
const CHILDREN: usize = 5_000;

/// How many znodes a session owns, as many as it may.
const OWNED: usize = 20_000;

/// Identities of the client, nearly as many as it may have.
const IDENTITIES: usize = 90;

fn frame(request: &Request<'_>) -> Vec<u8> {
    framed(|out| {
        RequestHeader { xid: Xid(1), op: request.op().to_wire() }.encode(out);
        request.encode(out);
    })
}

fn create<'a>(
    path: impl Into<Cow<'a, str>>,
    data: &'a [u8],
    acl: AclList<'a>,
    flags: i32,
) -> CreateRequest<'a> {
    CreateRequest { path: path.into(), data: Some(data), acl: Some(acl), flags }
}

fn read(path: &str) -> PathWatchRequest<'_> {
    PathWatchRequest { path: path.into(), watch: true }
}

fn set(path: &str) -> SetDataRequest<'_> {
    SetDataRequest { path: path.into(), data: Some(b""), version: -1 }
}

/// A server with a directory of very many children, as many ephemerals, and the ACLs and znodes of the
/// requests.
fn server(acl: &[AclEntry], deep: &str) -> Server {
    let mut server = Server::new(Settings::default());
    let open = [AclEntry { perms: Perms::ALL, scheme: "world".to_owned(), id: "anyone".to_owned() }];
    for (path, acl) in [("/big", &open[..]), ("/own", &open), ("/acl", acl), ("/created", &open)] {
        server.steps_of(&frame(&Request::Create(create(path, b"", AclList::from(acl), 0))));
    }
    for (parent, children, flags) in [("/big", CHILDREN, 0), ("/own", OWNED, 1)] {
        let names: Vec<_> = (0..children).map(|number| format!("{parent}/{number:07}")).collect();
        for names in names.chunks(5_000) {
            let op = |name: &'_ String| {
                MultiOp::Create(create(name.clone(), b"", AclList::from(&open[..]), flags))
            };
            let ops: Vec<_> = names.iter().map(op).collect();
            server.steps_of(&frame(&Request::Multi(ops.as_slice().into())));
        }
    }
    for (end, _) in deep.match_indices('/').skip(1).chain([(deep.len(), "")]) {
        server.steps_of(&frame(&Request::Create(create(&deep[..end], b"", AclList::from(&open[..]), 0))));
    }
    for number in 0..IDENTITIES {
        let credentials = format!("user{number}:password");
        let auth = Some(credentials.as_bytes());
        server.steps_of(&frame(&Request::Auth(AuthRequest {
            auth_type: 0,
            scheme: Some("digest".into()),
            auth,
        })));
    }
    server
}

/// Of each request, the most steps between two turns of others.
#[test]
fn no_request_takes_more_steps_than_its_bound() {
    let entry =
        |number| AclEntry { perms: Perms::READ, scheme: "digest".to_owned(), id: format!("u{number}:h") };
    let listed: Vec<_> = (0..1_000).map(entry).collect();
    let (levels, deep) = ("/a".repeat(500_000), "/d".repeat(1_000));
    let data = vec![0; 1_000_000];
    let open = [AclEntry { perms: Perms::ALL, scheme: "world".to_owned(), id: "anyone".to_owned() }];
    let (open, listed_acl) = (AclList::from(&open[..]), AclList::from(&listed[..]));
    let names: Vec<_> = (0..60_000).map(|number| format!("/w/{number}")).collect();
    let names = StringList::from(names.as_slice());
    let watches = SetWatchesRequest { exist_watches: names, ..SetWatchesRequest::default() };
    let sets = vec![MultiOp::SetData(set("/own")); 10_000];
    let checked = vec![MultiOp::Check(CheckRequest { path: "/own".into(), version: -1 }); 10_000];
    let new = |number| MultiOp::Create(create(format!("/big/new-{number}"), b"", open, 0));
    let creates: Vec<_> = (0..10_000).map(new).collect();
    let mut failing = sets[1..].to_vec();
    failing.push(MultiOp::Check(CheckRequest { path: "/none".into(), version: -1 }));
    let deep_sets = vec![MultiOp::SetData(set(&deep)); 450];
    let of = |path| MultiReadOp::GetData(read(path));
    let (small, missing) = (vec![of("/own"); 10_000], vec![of("/none"); 10_000]);
    let lists = vec![MultiReadOp::GetChildren(read("/big")); 10_000];
    let ttl = CreateTtlRequest {
        path: "/created/".into(),
        data: Some(&data),
        acl: Some(open),
        flags: 6,
        ttl_ms: 60_000,
    };
    let set_acl = SetAclRequest { path: "/created".into(), acl: Some(listed_acl), version: -1 };
    let watch = |path, mode| Request::AddWatch(AddWatchRequest { path, mode });
    let of_watches = WatchesRequest { path: levels.as_str().into(), watcher_type: WatcherType::Any };
    let reconfig = ReconfigRequest {
        joining_servers: Some(levels.as_str().into()),
        leaving_servers: None,
        new_members: None,
        cur_config_id: -1,
    };
    let auth = AuthRequest { auth_type: 0, scheme: Some("digest".into()), auth: Some(&data) };
    let prefix = |prefix: &'static str| GetEphemeralsRequest { prefix_path: Some(prefix.into()) };
    let requests = [
        ("1 MB of data", Request::Create(create("/created/", &data, open, 2))),
        ("1 MB of data", Request::Create2(create("/created/", &data, open, 2))),
        ("1,000 entries", Request::Create(create("/created/", b"", listed_acl, 2))),
        ("1 MB of data", Request::CreateContainer(create("/created/c", &data, open, 4))),
        ("1 MB of data", Request::CreateTtl(ttl)),
        ("500,000 levels", Request::Delete(DeleteRequest { path: levels.as_str().into(), version: -1 })),
        ("500,000 levels", Request::Exists(read(&levels))),
        ("small", Request::GetData(read("/own"))),
        ("1 MB of data", Request::SetData(SetDataRequest { data: Some(&data), ..set("/created") })),
        ("1 MB of data", Request::GetData(read("/created"))),
        ("refused by 1,000 entries", Request::GetData(read("/acl"))),
        ("1,000 entries", Request::GetAcl(PathRequest { path: "/acl".into() })),
        ("1,000 entries", Request::SetAcl(set_acl)),
        ("5,000 children", Request::GetChildren(read("/big"))),
        ("5,000 children", Request::GetChildren2(read("/big"))),
        ("5,000 znodes", Request::GetAllChildrenNumber(PathRequest { path: "/big".into() })),
        ("all of 20,000", Request::GetEphemerals(prefix("/"))),
        ("none of 20,000", Request::GetEphemerals(prefix("/nobody"))),
        ("10,000 setData", Request::Multi(sets.as_slice().into())),
        ("10,000 create", Request::Multi(creates.as_slice().into())),
        ("10,000 checks", Request::Multi(checked.as_slice().into())),
        ("the last of 10,000 fails", Request::Multi(failing.as_slice().into())),
        ("10,000 of a small znode", Request::MultiRead(small.as_slice().into())),
        ("10,000 of none", Request::MultiRead(missing.as_slice().into())),
        ("5,000 children, 10,000 times", Request::MultiRead(lists.as_slice().into())),
        ("500,000 levels", Request::Sync(SyncRequest { path: Some(levels.as_str().into()) })),
        ("60,000 paths", Request::SetWatches(watches.clone())),
        ("60,000 paths", Request::SetWatches2(watches)),
        ("500,000 levels", watch(levels.as_str().into(), AddWatchMode::PersistentRecursive)),
        ("500,000 levels", Request::CheckWatches(of_watches.clone())),
        ("500,000 levels", Request::RemoveWatches(of_watches)),
        ("below a recursive watch", watch("/".into(), AddWatchMode::PersistentRecursive)),
        ("450 setData of 1,000 levels", Request::Multi(deep_sets.as_slice().into())),
        ("", Request::WhoAmI),
        ("", Request::Ping),
        ("1 MB", Request::Reconfig(reconfig)),
        ("1 MB", Request::Auth(auth)),
        ("1 MB", Request::Sasl(SaslRequest { token: Some(&data) })),
        ("20,000 ephemerals", Request::CloseSession),
    ];
    let unseen: Vec<_> = OpCode::ALL
        .iter()
        .filter(|op| op.is_client_request() && requests.iter().all(|(_, request)| request.op() != **op))
        .collect();
    assert!(unseen.is_empty(), "{unseen:?} are measured, too");
    let mut server = server(&listed, &deep);
    let mut beyond = Vec::new();
    for (what, request) in &requests {
        let (op, bytes) = (request.op(), frame(request));
        // As many as one read from the socket brings.
        let many = bytes.repeat(READ_BYTES / bytes.len());
        let (once, often) = match op {
            OpCode::Auth | OpCode::Sasl => (Server::new(Settings::default()).steps_of(&bytes), 0),
            OpCode::CloseSession => (server.steps_of(&bytes), 0),
            _ => (server.steps_of(&bytes), server.steps_of(&many)),
        };
        println!("{op:?}, {what}: {once}, 64 KiB of them {often}");
        let is_transaction = matches!(op, OpCode::Multi | OpCode::CloseSession);
        let steps_max = if is_transaction { WRITE_STEPS_MAX } else { READ_STEPS_MAX };
        if once.max(often) > steps_max {
            beyond.push((op, *what, once, often));
        }
    }
    assert!(beyond.is_empty(), "{beyond:?}");
}
