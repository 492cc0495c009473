//! Well-formed requests that ask for as much as they can, with ordinary sessions and no special rights.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ringkeeper_wire::{ErrorCode, OpCode, jute};

use super::Target;
use super::attack::{Attack, multi, session};
use super::volume::{delete_children, make_children};
use ringkeeper_testkit::{
    Client, Received, acl, create_body, delete_body, exist_watches_body, multi_body, path_body,
    path_watch_body, request_frame,
};

/// All of them, by name.
pub(super) const ATTACKS: &[(&str, Attack)] = &[
    ("a session that owns a gigabyte of paths", a_session_that_owns_a_gigabyte_of_paths),
    ("identities by the megabyte", identities_by_the_megabyte),
    ("an ACL that says auth 460 times", an_acl_that_says_auth_460_times),
    ("an ACL of 20,000 entries", an_acl_of_20000_entries),
    ("long ACLs checked in long multis", long_acls_checked_in_long_multis),
    ("one large znode read 1,500 times at once", one_large_znode_read_1500_times_at_once),
    ("a subtree counted again and again", a_subtree_counted_again_and_again),
    ("a multi of as many operations as fit", a_multi_of_as_many_operations_as_fit),
    ("960,000 watches that go at once", many_watches_that_go_at_once),
    ("clients that ask and never read", clients_that_ask_and_never_read),
];

/// Room for the rest of a frame of [`super::attack::FRAME_MAX`] bytes.
const FRAME_ROOM: usize = 1_040_000;

fn a_session_that_owns_a_gigabyte_of_paths(target: &mut Target<'_>, _: u64) -> Result<()> {
    const EPHEMERALS: usize = 1_045;
    let mut client = session(target.server)?;
    let mut refused = 0;
    for number in 0..EPHEMERALS {
        let path = format!("/{number:06}{}", "e".repeat(FRAME_ROOM));
        let reply = client.request(OpCode::Create, &create_body(&path, b"", 1))?;
        refused += usize::from(reply.err == ErrorCode::QuotaExceeded.to_wire());
    }
    println!("        {refused} of {EPHEMERALS} ephemerals refused");
    client.close().context("closing a session works whatever it owns")
}

fn identities_by_the_megabyte(target: &mut Target<'_>, _: u64) -> Result<()> {
    let mut client = session(target.server)?;
    let accepted = (0..250).take_while(|number| add_auth(&mut client, *number, 10_000).is_ok()).count();
    println!("        {accepted} of 250 identities of 10 KB accepted");
    ensure!(accepted < 250, "2.5 MB of identities are kept for one connection");
    Ok(())
}

fn an_acl_that_says_auth_460_times(target: &mut Target<'_>, _: u64) -> Result<()> {
    let mut client = session(target.server)?;
    for number in 0..6 {
        add_auth(&mut client, number, 10_000)?;
    }
    let entries: Vec<_> = (0..460).map(|number| (1 + number % 31, "auth", number.to_string())).collect();
    let reply = client.request(OpCode::Create, &create_with("/auth", &entries))?;
    ensure!(reply.err == ErrorCode::InvalidAcl.to_wire(), "answered {}", reply.err);
    Ok(())
}

fn an_acl_of_20000_entries(target: &mut Target<'_>, _: u64) -> Result<()> {
    let mut client = session(target.server)?;
    let entries: Vec<_> = (0..20_000).map(|number| (31, "ip", address(number))).collect();
    let reply = client.request(OpCode::Create, &create_with("/entries", &entries))?;
    ensure!(reply.err == ErrorCode::InvalidAcl.to_wire(), "answered {}", reply.err);
    Ok(())
}

/// As many entries and identities as are allowed, and as many checks.
fn long_acls_checked_in_long_multis(target: &mut Target<'_>, _: u64) -> Result<()> {
    let mut client = session(target.server)?;
    for number in 0..99 {
        add_auth(&mut client, number, 100)?;
    }
    let mut entries: Vec<_> = (0..999).map(|number| (31, "digest", format!("nobody{number}:hash"))).collect();
    entries.push((31, "world", "anyone".to_owned()));
    for number in 0..20 {
        entries[number].2 = format!("other{number}:hash");
        let reply = client.request(OpCode::Create, &create_with(&format!("/long-{number}"), &entries))?;
        ensure!(reply.err == 0, "create answered {}", reply.err);
    }
    let paths = || (0..10_000).map(|number| format!("/long-{}", number % 20));
    for _ in 0..10 {
        let reply = client.request(OpCode::Multi, &multi(OpCode::Check, paths(), delete_body))?;
        ensure!(reply.err == 0, "the checks answered {}", reply.err);
    }
    (0..20).try_for_each(|number| client.delete(&format!("/long-{number}")))
}

fn one_large_znode_read_1500_times_at_once(target: &mut Target<'_>, _: u64) -> Result<()> {
    let mut client = session(target.server)?;
    client.create("/large", &vec![b'x'; 1_000_000], 0)?;
    let body = multi_body((0..1_500).map(|_| (OpCode::GetData, path_watch_body("/large"))));
    for _ in 0..20 {
        let reply = client.request(OpCode::MultiRead, &body)?;
        ensure!(reply.err == ErrorCode::BadArguments.to_wire(), "answered {}", reply.err);
    }
    client.delete("/large")
}

fn a_subtree_counted_again_and_again(target: &mut Target<'_>, _: u64) -> Result<()> {
    const ZNODES: usize = 60_000;
    const STATS: &str = "/zookeeper/quota/counted/zookeeper_stats";
    let mut client = session(target.server)?;
    client.create("/counted", b"", 0)?;
    client.create("/zookeeper/quota/counted", b"", 0)?;
    make_children(&mut client, "/counted", ZNODES, 0)?;
    let both = || [(OpCode::Create, create_body(STATS, b"", 0)), (OpCode::Delete, delete_body(STATS))];
    let body = multi_body((0..770).flat_map(|_| both()));
    for _ in 0..20 {
        client.request(OpCode::Multi, &body)?;
    }
    delete_children(&mut client, "/counted", ZNODES)
}

fn a_multi_of_as_many_operations_as_fit(target: &mut Target<'_>, _: u64) -> Result<()> {
    let mut client = session(target.server)?;
    for count in [10_000, 40_000] {
        let paths = (0..count).map(|_| "/".to_owned());
        let reply = client.request(OpCode::Multi, &multi(OpCode::Check, paths, delete_body))?;
        let expected = if count == 10_000 { 0 } else { ErrorCode::BadArguments.to_wire() };
        ensure!(reply.err == expected, "{count} operations answered {}", reply.err);
    }
    Ok(())
}

fn many_watches_that_go_at_once(target: &mut Target<'_>, _: u64) -> Result<()> {
    const FRAMES: usize = 16;
    const PER_FRAME: usize = 60_000;
    const BYTES: u64 = 200;
    let mut client = session(target.server)?;
    for number in 0..FRAMES {
        let paths = (0..PER_FRAME).map(|path| format!("/w/{:07}", number * PER_FRAME + path));
        let body = exist_watches_body(&paths.collect::<Vec<_>>());
        client.connection.send(&request_frame(-8, OpCode::SetWatches.to_wire(), &body))?;
        expect_frame(&mut client)?;
    }
    target.allowance = u64::try_from(FRAMES * PER_FRAME)? * BYTES;
    drop(client);
    thread::sleep(Duration::from_secs(3));
    target.expect_served()
}

fn clients_that_ask_and_never_read(target: &mut Target<'_>, before: u64) -> Result<()> {
    const CLIENTS: usize = 100;
    let mut owner = session(target.server)?;
    owner.create("/unread", &vec![b'x'; 900_000], 0)?;
    let request = request_frame(1, OpCode::GetData.to_wire(), &path_watch_body("/unread"));
    let mut held = Vec::new();
    for _ in 0..CLIENTS {
        let mut client = session(target.server)?;
        client.connection.send(&request.repeat(200))?;
        client.connection.send(&request_frame(2, OpCode::CloseSession.to_wire(), &[]))?;
        held.push(client);
    }
    thread::sleep(Duration::from_secs(3));
    target.expect_served().context("while they do not read")?;
    target.expect_memory_bounded(before)?;
    drop(held);
    owner.delete("/unread")
}

/// Credentials whose user has so many bytes.
fn add_auth(client: &mut Client, number: usize, bytes: usize) -> Result<()> {
    client.authenticate("digest", format!("{number}{}:p", "u".repeat(bytes)).as_bytes())
}

fn expect_frame(client: &mut Client) -> Result<Vec<u8>> {
    match client.connection.receive()? {
        Received::Frame(frame) => Ok(frame),
        other => anyhow::bail!("the connection is {other:?}"),
    }
}

fn create_with(path: &str, entries: &[(i32, &str, String)]) -> Vec<u8> {
    let mut body = path_body(path);
    jute::put_buffer(&mut body, None);
    body.extend(acl(entries));
    jute::put_i32(&mut body, 0);
    body
}

fn address(number: i32) -> String {
    format!("10.{}.{}.{}", number >> 16, (number >> 8) & 255, number & 255)
}
