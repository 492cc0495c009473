//! Requests whose work grows with what clients have stored: listings, counts, sessions that own very much,
//! multis, storms of syncs and of notifications, and the listings of four-letter words. Each at full rate.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use ringkeeper_wire::OpCode;

use super::Target;
use super::attack::{Attack, multi, session};
use ringkeeper_testkit::{
    Client, Received, create_body, delete_body, exist_watches_body, multi_body, path_body, path_watch_body,
    request_frame, set_data_body, watch_mode_body,
};

/// All of them, by name.
pub(super) const ATTACKS: &[(&str, Attack)] = &[
    ("a subtree counted and listed at full rate", a_subtree_counted_and_listed_at_full_rate),
    ("sessions that own very many ephemerals", sessions_that_own_very_many_ephemerals),
    ("listings of four-letter words", listings_of_four_letter_words),
    ("multis of thousands at full rate", multis_of_thousands_at_full_rate),
    ("multis of ten thousand back to back", multis_of_ten_thousand_back_to_back),
    ("a storm of notifications", a_storm_of_notifications),
    ("300 watchers that never read", watchers_that_never_read),
    ("a storm of syncs", a_storm_of_syncs),
    ("requests of all kinds, mixed at random", requests_mixed_at_random),
];

/// Operations of a multi that prepares an attack.
const BATCH: usize = 1_000;

/// What a znode and what is kept of it may take, bytes.
const ZNODE_BYTES: usize = 600;

/// How long an attack at full rate goes on.
const LASTS: Duration = Duration::from_secs(4);

/// Clients of an attack at full rate.
const CLIENTS: usize = 4;

/// How many of what an attack needs many of: around the number given, by the seed.
fn drawn(target: &Target<'_>, around: usize) -> usize {
    let mut rng = ChaCha8Rng::seed_from_u64(target.options.seed ^ around as u64);
    let around = around / target.options.divisor.max(1);
    rng.random_range(around * 9 / 10..=around).max(1)
}

pub(super) fn make_children(client: &mut Client, parent: &str, count: usize, flags: i32) -> Result<()> {
    for first in (0..count).step_by(BATCH) {
        let paths = (first..count.min(first + BATCH)).map(|number| format!("{parent}/{number:07}"));
        let body = multi(OpCode::Create, paths, |path| create_body(path, b"", flags));
        let reply = client.request(OpCode::Multi, &body)?;
        ensure!(reply.err == 0, "the znodes are not made: {}", reply.err);
    }
    Ok(())
}

pub(super) fn delete_children(client: &mut Client, parent: &str, count: usize) -> Result<()> {
    for first in (0..count).step_by(BATCH) {
        let paths = (first..count.min(first + BATCH)).map(|number| format!("{parent}/{number:07}"));
        client.request(OpCode::Multi, &multi(OpCode::Delete, paths, delete_body))?;
    }
    client.delete(parent)
}

/// Sends `frames` again and again from several sessions, each reading what it is answered, for as long as an
/// attack lasts.
fn at_full_rate(server: SocketAddr, frames: &[Vec<u8>]) -> Result<()> {
    let attackers: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let frames = frames.to_vec();
            thread::spawn(move || -> Result<u64> {
                let mut client = session(server)?;
                let (began, mut answers) = (Instant::now(), 0);
                while began.elapsed() < LASTS {
                    for frame in &frames {
                        client.connection.send(frame)?;
                    }
                    for _ in &frames {
                        match client.connection.receive()? {
                            Received::Frame(_) => answers += 1,
                            other => anyhow::bail!("the connection is {other:?}"),
                        }
                    }
                }
                Ok(answers)
            })
        })
        .collect();
    let mut answers = 0;
    for attacker in attackers {
        answers += attacker.join().map_err(|_| anyhow::anyhow!("a client panicked"))??;
    }
    println!("        {answers} answers");
    Ok(())
}

fn a_subtree_counted_and_listed_at_full_rate(target: &mut Target<'_>, _: u64) -> Result<()> {
    let count = drawn(target, 200_000);
    let mut client = session(target.server)?;
    client.create("/listed", b"", 0)?;
    make_children(&mut client, "/listed", count, 0)?;
    target.allowance = (count * ZNODE_BYTES) as u64;
    let listed = path_watch_body("/listed");
    let both = multi_body([(); 2].map(|()| (OpCode::GetChildren, listed.clone())));
    let mut frames = vec![
        request_frame(1, OpCode::GetChildren.to_wire(), &listed),
        request_frame(2, OpCode::GetChildren2.to_wire(), &listed),
        request_frame(3, OpCode::MultiRead.to_wire(), &both),
    ];
    let counts = (4..64).map(|xid| request_frame(xid, OpCode::GetAllChildrenNumber.to_wire(), &listed));
    frames.extend(counts);
    at_full_rate(target.server, &frames)?;
    delete_children(&mut client, "/listed", count)
}

fn sessions_that_own_very_many_ephemerals(target: &mut Target<'_>, _: u64) -> Result<()> {
    const OWNERS: usize = 6;
    const SHORT_TIMEOUT_MS: i32 = 4_000;
    let count = drawn(target, 20_000);
    target.allowance = (OWNERS * count * ZNODE_BYTES) as u64;
    let mut witness = session(target.server)?;
    // A recursive watch looks at all ancestors of what is deleted.
    witness.request(OpCode::AddWatch, &watch_mode_body("/none", 1))?;
    let parents: Vec<_> = (0..OWNERS).map(|number| format!("/owned-{number}")).collect();
    let mut owners = Vec::new();
    for parent in &parents {
        witness.create(parent, b"", 0)?;
        let mut owner = Client::connect(target.server, SHORT_TIMEOUT_MS)?;
        make_children(&mut owner, parent, count, 1)?;
        owners.iter_mut().try_for_each(|owner: &mut Client| owner.exists("/", false).map(drop))?;
        owners.push(owner);
    }
    let none = path_body("/nobody");
    let frames: Vec<_> =
        (1..200).map(|xid| request_frame(xid, OpCode::GetEphemerals.to_wire(), &none)).collect();
    for owner in &mut owners {
        owner.connection.send(&frames.concat())?;
        for _ in &frames {
            owner.connection.receive()?;
        }
    }
    // Half of them close, the others are never heard from again and expire together.
    for owner in owners.drain(..OWNERS / 2) {
        owner.close().context("closing a session works whatever it owns")?;
    }
    drop(owners);
    let deadline = Instant::now() + Duration::from_secs(30);
    for (number, parent) in parents.iter().enumerate() {
        while !witness.children(parent, false)?.is_empty() {
            ensure!(number >= OWNERS / 2, "ephemerals outlive a session that was closed");
            ensure!(Instant::now() < deadline, "ephemerals outlive a session that has expired");
            thread::sleep(Duration::from_millis(100));
        }
        witness.delete(parent)?;
    }
    Ok(())
}

fn listings_of_four_letter_words(target: &mut Target<'_>, _: u64) -> Result<()> {
    let count = drawn(target, 200_000);
    let mut client = session(target.server)?;
    let paths: Vec<_> = (0..count).map(|number| format!("/watched/{number:07}")).collect();
    for paths in paths.chunks(50_000) {
        let body = exist_watches_body(paths);
        client.connection.send(&request_frame(-8, OpCode::SetWatches.to_wire(), &body))?;
        client.connection.receive()?;
    }
    client.create("/owned", b"", 0)?;
    make_children(&mut client, "/owned", count / 10, 1)?;
    target.allowance = (count * ZNODE_BYTES) as u64;
    for word in ["wchc", "wchp", "dump", "cons", "stat", "mntr"] {
        let began = Instant::now();
        let askers: Vec<_> = (0..CLIENTS).map(|_| ask(target.server, word)).collect();
        let answers: Vec<_> = askers.into_iter().map(|asker| asker.join()).collect();
        let bytes = answers.into_iter().map(|answer| answer.unwrap_or(Ok(0)).unwrap_or(0)).sum::<usize>();
        println!("        {word}: {bytes} bytes in {:?}", began.elapsed());
        ensure!(bytes > 0, "{word} is not answered");
    }
    client.close()?;
    session(target.server)?.delete("/owned")
}

/// Asks a four-letter word on a connection of its own; gives the length of the answer.
pub(super) fn ask(server: SocketAddr, word: &'static str) -> thread::JoinHandle<Result<usize>> {
    thread::spawn(move || {
        let mut stream = TcpStream::connect(server)?;
        stream.write_all(word.as_bytes())?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        Ok(answer.len())
    })
}

fn multis_of_thousands_at_full_rate(target: &mut Target<'_>, _: u64) -> Result<()> {
    let count = drawn(target, 10_000);
    let mut client = session(target.server)?;
    client.create("/multi", b"", 0)?;
    let paths = || (0..count).map(|_| "/multi".to_owned());
    let body = multi(OpCode::SetData, paths(), |path| set_data_body(path, b"x"));
    let checks = multi(OpCode::Check, paths(), delete_body);
    let frames = [
        request_frame(1, OpCode::Multi.to_wire(), &body),
        request_frame(2, OpCode::Multi.to_wire(), &checks),
    ];
    at_full_rate(target.server, &frames)?;
    client.delete("/multi")
}

/// The most operations that one transaction may have, several such requests of each client at once.
fn multis_of_ten_thousand_back_to_back(target: &mut Target<'_>, _: u64) -> Result<()> {
    const AT_ONCE: i32 = 4;
    const OPERATIONS: usize = 10_000;
    let count = drawn(target, 200_000);
    let mut client = session(target.server)?;
    client.create("/multi", b"", 0)?;
    make_children(&mut client, "/multi", count, 0)?;
    target.allowance = (count * ZNODE_BYTES) as u64;
    let mut rng = ChaCha8Rng::seed_from_u64(target.options.seed);
    let mut frame = |xid| {
        let paths = (0..OPERATIONS).map(|_| format!("/multi/{:07}", rng.random_range(0..count)));
        let body = multi(OpCode::SetData, paths, |path| set_data_body(path, b"x"));
        request_frame(xid, OpCode::Multi.to_wire(), &body)
    };
    let frames: Vec<_> = (1..=AT_ONCE).map(&mut frame).collect();
    at_full_rate(target.server, &frames)?;
    delete_children(&mut client, "/multi", count)
}

fn a_storm_of_notifications(target: &mut Target<'_>, _: u64) -> Result<()> {
    let count = drawn(target, 5_000);
    let mut client = session(target.server)?;
    client.create("/storm", b"", 0)?;
    let mut watchers = Vec::new();
    for _ in 0..50 {
        let mut watcher = session(target.server)?;
        watcher.request(OpCode::AddWatch, &watch_mode_body("/storm", 0))?;
        watchers.push(watcher);
    }
    let paths = (0..count).map(|_| "/storm".to_owned());
    let body = multi(OpCode::SetData, paths, |path| set_data_body(path, b""));
    for _ in 0..20 {
        client.request(OpCode::Multi, &body)?;
    }
    drop(watchers);
    client.delete("/storm")
}

/// Long notifications, so that what the kernel takes for each connection is soon full.
fn watchers_that_never_read(target: &mut Target<'_>, before: u64) -> Result<()> {
    const WATCHERS: usize = 300;
    const PATH_BYTES: usize = 1_000;
    const CHANGES: usize = 900;
    const MULTIS: usize = 15;
    let path = format!("/{}", "w".repeat(PATH_BYTES));
    let mut client = session(target.server)?;
    client.create(&path, b"", 0)?;
    let mut watchers = Vec::new();
    for _ in 0..WATCHERS / target.options.divisor.max(1) {
        let mut watcher = session(target.server)?;
        watcher.request(OpCode::AddWatch, &watch_mode_body(&path, 0))?;
        watchers.push(watcher);
    }
    let body = multi(OpCode::SetData, (0..CHANGES).map(|_| path.clone()), |path| set_data_body(path, b""));
    for _ in 0..MULTIS {
        client.request(OpCode::Multi, &body)?;
        target.expect_memory_bounded(before)?;
    }
    drop(watchers);
    client.delete(&path)
}

fn a_storm_of_syncs(target: &mut Target<'_>, _: u64) -> Result<()> {
    let path = path_body("/");
    let frames: Vec<_> = (0..500).map(|xid| request_frame(xid, OpCode::Sync.to_wire(), &path)).collect();
    at_full_rate(target.server, &frames)
}

/// Well-formed requests of every kind that does not end the session, each with as much as its kind takes.
fn requests_mixed_at_random(target: &mut Target<'_>, _: u64) -> Result<()> {
    let count = drawn(target, 50_000);
    let mut client = session(target.server)?;
    client.create("/mixed", b"", 0)?;
    make_children(&mut client, "/mixed", count, 0)?;
    target.allowance = (count * ZNODE_BYTES) as u64 + (64 << 20);
    let mut rng = ChaCha8Rng::seed_from_u64(target.options.seed);
    for _ in 0..3 {
        let frames: Vec<_> = (1..40).map(|xid| random_request(&mut rng, xid, count)).collect();
        at_full_rate(target.server, &frames)?;
    }
    delete_children(&mut client, "/mixed", count)
}

fn random_request(rng: &mut ChaCha8Rng, xid: i32, children: usize) -> Vec<u8> {
    let child = format!("/mixed/{:07}", rng.random_range(0..children));
    let path = if rng.random() { "/mixed" } else { &child };
    let paths = |rng: &mut ChaCha8Rng| {
        let count = rng.random_range(1..3_000);
        (0..count).map(|_| format!("/mixed/{:07}", rng.random_range(0..children))).collect::<Vec<_>>()
    };
    let (op, body) = match rng.random_range(0..12) {
        0 => (OpCode::GetChildren, path_watch_body("/mixed")),
        1 => (OpCode::GetAllChildrenNumber, path_watch_body("/mixed")),
        2 => (OpCode::GetData, path_watch_body(path)),
        3 => (OpCode::Multi, multi(OpCode::Check, paths(rng).into_iter(), delete_body)),
        4 => {
            let data = vec![b'x'; rng.random_range(0..100)];
            (OpCode::Multi, multi(OpCode::SetData, paths(rng).into_iter(), |path| set_data_body(path, &data)))
        }
        5 => (OpCode::SetData, set_data_body(path, &vec![b'x'; rng.random_range(0..500_000)])),
        6 => {
            let reads = paths(rng).into_iter().map(|path| (OpCode::GetData, path_watch_body(&path)));
            (OpCode::MultiRead, multi_body(reads))
        }
        7 => (OpCode::GetEphemerals, path_body("/nobody")),
        8 => (OpCode::Exists, path_watch_body(&"/x".repeat(rng.random_range(1..100_000)))),
        9 => (OpCode::Sync, path_body(path)),
        10 => (OpCode::Create, create_body(&child, &vec![b'x'; rng.random_range(0..100_000)], 1)),
        _ => (OpCode::GetAcl, path_watch_body(path)),
    };
    request_frame(xid, op.to_wire(), &body)
}
