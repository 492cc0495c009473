//! The attacks.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rand::{Rng, RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use ringkeeper_wire::{OpCode, jute};

use super::Target;
use super::volume::{delete_children, make_children};
use ringkeeper_testkit::{
    Client, Connection, Received, Session, connect_frame, create_body, delete_body, frame, multi_body,
    parse_reply, path_watch_body, request_frame, watch_mode_body,
};

/// An attack; the number is the server's resident memory before it, in bytes.
pub(super) type Attack = fn(&mut Target<'_>, u64) -> Result<()>;

/// All of them, by name.
pub(super) const ATTACKS: &[(&str, Attack)] = &[
    ("bad lengths before the handshake", bad_lengths_before_the_handshake),
    ("bad lengths in a session", bad_lengths_in_a_session),
    ("one byte over the frame limit", one_byte_over_the_frame_limit),
    ("unknown opcodes", unknown_opcodes),
    ("requests cut short", requests_cut_short),
    ("random frames", random_frames),
    ("random bytes", random_bytes),
    ("invalid UTF-8", invalid_utf8),
    ("claims of endless lists", claims_of_endless_lists),
    ("half-sent frames held open", half_sent_frames_held_open),
    ("idle connections", idle_connections),
    ("connections that come and go", connections_that_come_and_go),
    ("a client that never reads", a_client_that_never_reads),
    ("a path of many levels", a_path_of_many_levels),
    ("a directory listed by a slow client", a_directory_listed_by_a_slow_client),
];

/// The longest frame that a server takes by default, in bytes.
pub(super) const FRAME_MAX: i32 = 0xf_ffff;
const BAD_LENGTHS: &[i32] = &[-1, i32::MIN, i32::MIN + 1, FRAME_MAX + 1, 1 << 24, i32::MAX, -2];
const TIMEOUT_MS: i32 = 30_000;

pub(super) fn session(server: SocketAddr) -> Result<Client> {
    Client::connect(server, TIMEOUT_MS)
}

fn expect_closed(connection: &mut Connection, what: &str) -> Result<()> {
    loop {
        match connection.receive()? {
            Received::Closed => return Ok(()),
            Received::Frame(_) => {}
            Received::Silent => anyhow::bail!("{what}: the connection stays open"),
        }
    }
}

fn bad_lengths_before_the_handshake(target: &mut Target<'_>, _: u64) -> Result<()> {
    for length in BAD_LENGTHS {
        let mut connection = Connection::open(target.server)?;
        connection.send(&length.to_be_bytes())?;
        expect_closed(&mut connection, &format!("length {length}"))?;
    }
    Ok(())
}

fn bad_lengths_in_a_session(target: &mut Target<'_>, _: u64) -> Result<()> {
    for length in BAD_LENGTHS {
        let mut client = session(target.server)?;
        client.connection.send(&length.to_be_bytes())?;
        expect_closed(&mut client.connection, &format!("length {length}"))?;
    }
    Ok(())
}

fn one_byte_over_the_frame_limit(target: &mut Target<'_>, _: u64) -> Result<()> {
    const HEAD: usize = 8;
    let limit = usize::try_from(FRAME_MAX).expect("positive");
    let overhead = HEAD + create_body("/limit", b"", 0).len();
    let mut client = session(target.server)?;
    client.create("/limit", &vec![b'x'; limit - overhead], 0).context("a frame of exactly the limit")?;
    client.delete("/limit")?;
    let over = create_body("/limit", &vec![b'x'; limit - overhead + 1], 0);
    client.connection.send(&request_frame(1_000, OpCode::Create.to_wire(), &over))?;
    expect_closed(&mut client.connection, "a frame over the limit")?;
    ensure!(session(target.server)?.get("/limit", false)?.is_none(), "a frame over the limit was executed");
    Ok(())
}

fn unknown_opcodes(target: &mut Target<'_>, _: u64) -> Result<()> {
    for op in [0, 10, 23, 99, 108, 1000, -2, -9, -12, i32::MIN, i32::MAX] {
        let mut client = session(target.server)?;
        client.connection.send(&request_frame(1, op, &[0; 16]))?;
        expect_closed(&mut client.connection, &format!("opcode {op}"))?;
    }
    Ok(())
}

/// Every request type cut at every length, on sessions that go on.
fn requests_cut_short(target: &mut Target<'_>, _: u64) -> Result<()> {
    let whole = create_body("/cut/short", b"data", 0);
    for op in OpCode::ALL.iter().filter(|op| op.is_client_request() && !closes(**op)) {
        let mut client = session(target.server)?;
        for len in 0..whole.len() {
            if client.request(*op, &whole[..len]).is_err() {
                client = session(target.server)?;
            }
        }
    }
    Ok(())
}

fn closes(op: OpCode) -> bool {
    matches!(
        op,
        OpCode::CloseSession
            | OpCode::Auth
            | OpCode::Sasl
            | OpCode::SetWatches
            | OpCode::SetWatches2
            | OpCode::Ping
    )
}

fn random_frames(target: &mut Target<'_>, _: u64) -> Result<()> {
    let mut rng = ChaCha8Rng::seed_from_u64(target.options.seed);
    for _ in 0..2_000 {
        let mut client = session(target.server)?;
        let mut payload = vec![0; rng.random_range(0..200)];
        rng.fill_bytes(&mut payload);
        if let (true, Some(op)) = (rng.random(), payload.get_mut(4..8)) {
            let known = OpCode::ALL[rng.random_range(0..OpCode::ALL.len())];
            op.copy_from_slice(&known.to_wire().to_be_bytes());
        }
        client.connection.send(&frame(&payload))?;
    }
    Ok(())
}

fn random_bytes(target: &mut Target<'_>, _: u64) -> Result<()> {
    let mut rng = ChaCha8Rng::seed_from_u64(target.options.seed + 1);
    for _ in 0..500 {
        let mut bytes = vec![0; rng.random_range(1..10_000)];
        rng.fill_bytes(&mut bytes);
        Connection::open(target.server)?.send(&bytes)?;
        session(target.server)?.connection.send(&bytes)?;
    }
    Ok(())
}

fn invalid_utf8(target: &mut Target<'_>, _: u64) -> Result<()> {
    let mut client = session(target.server)?;
    for op in [
        OpCode::Create,
        OpCode::GetData,
        OpCode::Delete,
        OpCode::Sync,
        OpCode::AddWatch,
        OpCode::GetEphemerals,
    ] {
        for bytes in [&b"/\xff\xfe"[..], b"/\xc3", b"/\xed\xa0\x80", b"/a\xf0\x9f", b"\xff", b"/\xc0\xaf"] {
            let mut body = create_body("", b"", 0).split_off(4);
            let mut path = Vec::new();
            jute::put_buffer(&mut path, Some(bytes));
            path.append(&mut body);
            client.request(op, &path).with_context(|| format!("{op:?} of {}", bytes.escape_ascii()))?;
        }
    }
    Ok(())
}

/// Counts and lengths that promise far more than the frame holds.
fn claims_of_endless_lists(target: &mut Target<'_>, _: u64) -> Result<()> {
    for count in [i32::MAX, 1 << 30, 100_000_000, FRAME_MAX] {
        let mut client = session(target.server)?;
        let mut watches = vec![0; 8];
        for _ in 0..3 {
            jute::put_i32(&mut watches, count);
        }
        client.connection.send(&request_frame(1, OpCode::SetWatches.to_wire(), &watches))?;
        let mut acl = Vec::new();
        jute::put_ustring(&mut acl, "/endless");
        jute::put_buffer(&mut acl, None);
        jute::put_i32(&mut acl, count);
        client.connection.send(&request_frame(2, OpCode::Create.to_wire(), &acl))?;
        let mut path = Vec::new();
        jute::put_i32(&mut path, count);
        client.connection.send(&request_frame(3, OpCode::GetData.to_wire(), &path))?;
        // One byte for each operation would make a list of a million of them.
        let body = vec![0; 900_000];
        client.connection.send(&request_frame(4, OpCode::Multi.to_wire(), &body))?;
    }
    Ok(())
}

/// Frames that announce the most that is allowed, and end half-way.
fn half_sent_frames_held_open(target: &mut Target<'_>, before: u64) -> Result<()> {
    const HALF: usize = 100_000;
    const CONNECTIONS: usize = 500;
    let mut held = Vec::new();
    for number in 0..CONNECTIONS {
        let mut connection = if number % 2 == 0 {
            Connection::open(target.server)?
        } else {
            session(target.server)?.connection
        };
        connection.send(&FRAME_MAX.to_be_bytes())?;
        connection.send(&[0; HALF])?;
        held.push(connection);
    }
    thread::sleep(Duration::from_secs(1));
    target.expect_served().context("while they are held")?;
    target.expect_memory_bounded(before)
}

fn idle_connections(target: &mut Target<'_>, before: u64) -> Result<()> {
    let count = target.options.connections;
    let mut held = Vec::new();
    for number in 0..count {
        if number % 2 == 0 {
            held.push(Connection::open(target.server)?);
        } else {
            held.push(session(target.server)?.connection);
        }
    }
    target.expect_served().with_context(|| format!("beside {count} idle connections"))?;
    target.expect_memory_bounded(before)
}

fn connections_that_come_and_go(target: &mut Target<'_>, _: u64) -> Result<()> {
    for _ in 0..3_000 {
        Connection::open(target.server)?;
    }
    let handshake = connect_frame(&Session::default().connect_request(TIMEOUT_MS, 0));
    for _ in 0..1_000 {
        Connection::open(target.server)?.send(&handshake)?;
    }
    Ok(())
}

/// Replies of a megabyte that nobody takes: the server must stop reading, not collect them.
fn a_client_that_never_reads(target: &mut Target<'_>, before: u64) -> Result<()> {
    const SIZE: usize = 900_000;
    let mut client = session(target.server)?;
    client.create("/big", &vec![b'x'; SIZE], 0)?;
    let request = request_frame(1, OpCode::GetData.to_wire(), &path_watch_body("/big"));
    let deadline = Instant::now() + Duration::from_secs(10);
    client.connection.set_patience(Duration::from_secs(2))?;
    for _ in 0..20_000 {
        // A server that no longer reads makes this fail, which is what it should do.
        if Instant::now() > deadline || client.connection.send(&request).is_err() {
            break;
        }
    }
    thread::sleep(Duration::from_secs(3));
    target.expect_served().context("while the client does not read")?;
    target.expect_memory_bounded(before)?;
    drop(client);
    session(target.server)?.delete("/big")
}

/// Requests about a path as long as a frame, then a real one made level by level, watched from the root.
fn a_path_of_many_levels(target: &mut Target<'_>, _: u64) -> Result<()> {
    const LONGEST: usize = 500_000;
    let mut client = session(target.server)?;
    let endless = "/a".repeat(LONGEST / 2);
    for op in
        [OpCode::GetData, OpCode::Exists, OpCode::GetChildren2, OpCode::GetAcl, OpCode::GetAllChildrenNumber]
    {
        client
            .request(op, &path_watch_body(&endless))
            .with_context(|| format!("{op:?} of an endless path"))?;
    }
    client.request(OpCode::Create, &create_body(&endless, b"", 0)).context("create of an endless path")?;
    client.request(OpCode::Delete, &delete_body(&endless)).context("delete of an endless path")?;
    client.request(OpCode::AddWatch, &watch_mode_body("/", 1))?;
    let levels = target.options.levels;
    // A server may keep every znode's whole path.
    target.allowance = u64::try_from(levels * levels * 2)?;
    let mut path = String::with_capacity(2 * levels);
    for level in 0..levels {
        path.push_str("/d");
        client.create(&path, b"", 0).with_context(|| format!("level {level}"))?;
    }
    target.expect_served().context("beside a deep path")?;
    let reply = client.request(OpCode::GetAllChildrenNumber, &path_watch_body("/d"))?;
    ensure!(reply.err == 0, "getAllChildrenNumber: error {}", reply.err);
    for level in (0..levels).rev() {
        client.delete(&path).with_context(|| format!("level {level}"))?;
        path.truncate(path.len() - 2);
    }
    Ok(())
}

/// A reply of many megabytes, asked for many times, taken a little at a time.
fn a_directory_listed_by_a_slow_client(target: &mut Target<'_>, _: u64) -> Result<()> {
    const NODE_BYTES: u64 = 500;
    const LISTINGS: usize = 200;
    let children = target.options.children;
    let mut client = session(target.server)?;
    client.create("/million", b"", 0)?;
    make_children(&mut client, "/million", children, 0)?;
    target.allowance = u64::try_from(children)? * NODE_BYTES;
    let before = super::resident_bytes(&target.pids);
    let mut slow = session(target.server)?;
    let list = request_frame(1, OpCode::GetChildren.to_wire(), &path_watch_body("/million"));
    for _ in 0..LISTINGS {
        slow.connection.send(&list)?;
    }
    for _ in 0..3 {
        let received = slow.connection.receive().context("a listing")?;
        let reply = parse_reply(&received)?;
        ensure!(reply.is_some_and(|reply| reply.err == 0), "the listing is refused");
        thread::sleep(Duration::from_secs(1));
        target.expect_served().context("beside a slow client")?;
        target.expect_memory_bounded(before)?;
    }
    drop(slow);
    delete_children(&mut client, "/million", children)
}

pub(super) fn multi(
    op: OpCode,
    paths: impl Iterator<Item = String>,
    body: impl Fn(&str) -> Vec<u8>,
) -> Vec<u8> {
    multi_body(paths.map(|path| (op, body(&path))))
}
