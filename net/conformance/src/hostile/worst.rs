//! For each request and each four-letter word, the worst that one client may send once: on a tree with very
//! many children and sessions that own very much, with as long paths, lists and data as are allowed.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ringkeeper_wire::OpCode;

use super::attack::{multi, session};
use super::bystander::Observed;
use super::volume::{ask, delete_children, make_children};
use super::{Target, observed};
use ringkeeper_testkit::{
    Client, Received, acl, create_body, delete_body, exist_watches_body, multi_body, path_body,
    path_watch_body, request_frame, set_data_body, watch_mode_body, watched_body,
};

/// Of each request, so that one that is slow by chance is not mistaken for its worst.
const REPEATS: usize = 3;

/// What was seen of a request.
pub(super) struct Seen {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    /// Until the answer, at worst.
    pub(super) answered: Duration,
    pub(super) bystanders: Observed,
    pub(super) grown_bytes: u64,
}

struct Request {
    op: OpCode,
    name: &'static str,
    what: &'static str,
    body: Vec<u8>,
}

/// Sends all of them, one kind after the other.
pub(super) fn measure(target: &Target<'_>) -> Result<Vec<Seen>> {
    let divisor = target.options.divisor.max(1);
    let (children, owned) = (target.options.children / divisor, 20_000 / divisor);
    let mut owner = session(target.server)?;
    for path in ["/big", "/own", "/acl", "/created"] {
        owner.create(path, b"", 0)?;
    }
    owner.create("/data", &vec![b'x'; 1_000_000], 0)?;
    make_children(&mut owner, "/big", children, 0)?;
    make_children(&mut owner, "/own", owned, 1)?;
    let mut seen = Vec::new();
    for Request { op, name, what, body } in requests() {
        let measured = observed(target, || {
            let mut longest = Duration::ZERO;
            for _ in 0..REPEATS {
                let began = Instant::now();
                owner.connection.send(&request_frame(1, op.to_wire(), &body))?;
                await_reply(&mut owner)?;
                longest = longest.max(began.elapsed());
            }
            Ok(longest)
        });
        let (answered, bystanders, grown_bytes) = measured.with_context(|| format!("{name}: {what}"))?;
        seen.push(Seen { name, what, answered, bystanders, grown_bytes });
    }
    for &(word, what) in WORDS {
        let (answered, bystanders, grown_bytes) = observed(target, || {
            let began = Instant::now();
            ask(target.server, word).join().map_err(|_| anyhow::anyhow!("panicked"))??;
            Ok(began.elapsed())
        })?;
        seen.push(Seen { name: word, what, answered, bystanders, grown_bytes });
    }
    let (answered, bystanders, grown_bytes) = observed(target, || {
        let began = Instant::now();
        owner.close()?;
        Ok(began.elapsed())
    })?;
    let what = "a session that owns 20,000 ephemerals";
    seen.push(Seen { name: "closeSession", what, answered, bystanders, grown_bytes });
    let mut client = session(target.server)?;
    delete_children(&mut client, "/big", children)?;
    for child in client.children("/created", false)? {
        client.delete(&format!("/created/{child}"))?;
    }
    ["/own", "/acl", "/data", "/created"].iter().try_for_each(|path| client.delete(path))?;
    Ok(seen)
}

const WORDS: &[(&str, &str)] = &[
    ("conf", ""),
    ("cons", ""),
    ("crst", ""),
    ("dirs", ""),
    ("dump", "20,000 ephemerals"),
    ("envi", ""),
    ("gtmk", ""),
    ("hash", ""),
    ("isro", ""),
    ("mntr", ""),
    ("ruok", ""),
    ("srvr", ""),
    ("srst", ""),
    ("stat", ""),
    ("wchc", "60,000 watches"),
    ("wchp", "60,000 watches"),
    ("wchs", ""),
];

fn requests() -> Vec<Request> {
    let long = "/a".repeat(500_000);
    let request = |op, name, what, body| Request { op, name, what, body };
    // Sequential ones, so that each of the repetitions creates.
    let create = |flags| create_body("/created/", &vec![b'x'; 1_000_000], flags);
    let with_ttl = [create(6), 60_000_i64.to_be_bytes().to_vec()].concat();
    let ten_thousand = |path: &str| vec![path.to_owned(); 10_000].into_iter();
    let sets = multi(OpCode::SetData, ten_thousand("/own"), |path| set_data_body(path, b""));
    let checks = multi(OpCode::Check, ten_thousand("/own"), delete_body);
    vec![
        request(OpCode::Create, "create", "1 MB of data", create(2)),
        request(OpCode::Create2, "create2", "1 MB of data", create(2)),
        request(OpCode::CreateContainer, "createContainer", "1 MB of data", create(4)),
        request(OpCode::CreateTtl, "createTTL", "1 MB of data", with_ttl),
        request(OpCode::Delete, "delete", "a path of 500,000 levels", delete_body(&long)),
        request(OpCode::Exists, "exists", "a path of 500,000 levels, watched", watched_body(&long)),
        request(OpCode::GetData, "getData", "1 MB of data", watched_body("/data")),
        request(OpCode::SetData, "setData", "1 MB of data", set_data_body("/data", &vec![b'y'; 1_000_000])),
        request(OpCode::GetAcl, "getACL", "an ACL of 1,000 entries", path_body("/acl")),
        request(OpCode::SetAcl, "setACL", "an ACL of 1,000 entries", set_acl("/acl")),
        request(OpCode::GetChildren, "getChildren", "of the largest znode", watched_body("/big")),
        request(OpCode::GetChildren2, "getChildren2", "of the largest znode", watched_body("/big")),
        request(
            OpCode::GetAllChildrenNumber,
            "getAllChildrenNumber",
            "of the largest znode",
            path_body("/big"),
        ),
        request(OpCode::GetEphemerals, "getEphemerals", "none of 20,000 matches", path_body("/nobody")),
        request(OpCode::GetEphemerals, "getEphemerals", "all of 20,000 match", path_body("/own")),
        request(OpCode::Multi, "multi", "10,000 setData", sets),
        request(OpCode::Multi, "multi", "10,000 checks", checks),
        request(OpCode::MultiRead, "multiRead", "8 times 1 MB", reads("/data", OpCode::GetData, 8)),
        request(
            OpCode::MultiRead,
            "multiRead",
            "the largest znode, 10,000 times",
            reads("/big", OpCode::GetChildren, 10_000),
        ),
        request(OpCode::Sync, "sync", "a path of 500,000 levels", path_body(&long)),
        request(OpCode::SetWatches, "setWatches", "60,000 paths", set_watches(60_000)),
        request(
            OpCode::SetWatches2,
            "setWatches2",
            "60,000 paths",
            [set_watches(60_000), vec![0; 8]].concat(),
        ),
        request(
            OpCode::AddWatch,
            "addWatch",
            "recursive, a path of 500,000 levels",
            watch_mode_body(&long, 1),
        ),
        request(OpCode::CheckWatches, "checkWatches", "a path of 500,000 levels", watch_mode_body(&long, 1)),
        request(
            OpCode::RemoveWatches,
            "removeWatches",
            "a path of 500,000 levels",
            watch_mode_body(&long, 1),
        ),
        request(OpCode::WhoAmI, "whoAmI", "", Vec::new()),
        request(OpCode::Ping, "ping", "", Vec::new()),
    ]
}

/// The next frame that is no notification.
fn await_reply(client: &mut Client) -> Result<()> {
    loop {
        match client.connection.receive()? {
            Received::Frame(frame) if frame.starts_with(&(-1_i32).to_be_bytes()) => {}
            Received::Frame(_) => return Ok(()),
            other => anyhow::bail!("the connection is {other:?}"),
        }
    }
}

fn set_watches(count: usize) -> Vec<u8> {
    let paths: Vec<_> = (0..count).map(|number| format!("/w/{number:07}")).collect();
    exist_watches_body(&paths)
}

fn set_acl(path: &str) -> Vec<u8> {
    let mut entries: Vec<_> = (0..999).map(|number| (31, "digest", format!("nobody{number}:hash"))).collect();
    entries.push((31, "world", "anyone".to_owned()));
    let version = (-1_i32).to_be_bytes();
    [&path_body(path)[..], &acl(&entries), &version].concat()
}

fn reads(path: &str, op: OpCode, count: usize) -> Vec<u8> {
    multi_body((0..count).map(|_| (op, path_watch_body(path))))
}
