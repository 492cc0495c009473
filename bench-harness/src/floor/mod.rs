//! `bench-harness floor`: the least that a server can do, alone or as one of an ensemble. It cuts the stream
//! into frames and answers each with canned bytes; no tree, no sessions, no elections. What it costs is what
//! the kernel and the protocol cost on this machine, and no server can cost less.
//!
//! ```text
//! client --write--> leader: log, and two sends in the same kernel entry --> followers: log
//!        <--reply-- when a quorum has it durably          <---- ack -----
//! ```
//!
//! A write has the hops that ZooKeeper's has: what a client asks of a follower goes to the leader and back.
//! What comes while a log is busy is written together after that. Reads are answered where they are asked.
//!
//! A getData is answered with the value that was written last on the same connection: just enough for the
//! loads of `bench-harness paper --floor`, whose replies then pass every check.

mod canned;
mod log;
mod member;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ringkeeper_testkit::interrupt;

use self::member::Member;

/// Starts the bare responder, as `paper --floor` does.
#[derive(Debug, clap::Args)]
pub(crate) struct FloorArgs {
    /// Address to listen on
    #[arg(long, default_value = "127.0.0.1:21810")]
    listen: SocketAddr,
    /// Folder for a log; without one, writes are answered at once
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Where all members of an ensemble listen for each other, the leader first [default: it is alone]
    #[arg(long, value_delimiter = ',', requires = "folder")]
    members: Vec<SocketAddr>,
    /// Which of them this one is, from 1
    #[arg(long, default_value = "1")]
    id: usize,
}

/// How often the loop looks for an interrupt.
const WAIT_MAX: Duration = Duration::from_millis(100);

/// Runs the subcommand until it is interrupted.
pub(crate) fn run(args: &FloorArgs) -> Result<()> {
    let FloorArgs { listen, folder, members, id } = args;
    ensure!((1..=members.len().max(1)).contains(id), "--id {id} is none of the members");
    let mut member = Member::new(*listen, folder.as_deref(), members, id - 1)
        .with_context(|| format!("cannot serve on {listen}"))?;
    println!("bare responder on {}", member.address());
    while interrupt::check().is_ok() {
        member.turn(WAIT_MAX)?;
    }
    Ok(())
}

/// A responder on a port of its own for the rest of the test process.
#[cfg(test)]
pub(crate) fn for_tests() -> SocketAddr {
    let (sender, receiver) = std::sync::mpsc::channel();
    // The ring belongs to its thread.
    std::thread::spawn(move || {
        let mut member = Member::new(([127, 0, 0, 1], 0).into(), None, &[], 0).expect("some port is free");
        sender.send(member.address()).expect("the test waits");
        while member.turn(WAIT_MAX).is_ok() {}
    });
    receiver.recv().expect("a responder")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;
    use std::time::{Duration, Instant};

    use ringkeeper_testkit::Seat;

    use super::*;
    use crate::creates::Creates;
    use crate::driver::{Schedule, drive};
    use crate::measure::{Load, measure};
    use crate::session::{self, Session};
    use crate::window::Surroundings;

    #[test]
    fn every_create_is_answered_with_its_path() {
        let sessions = Session::open_all(&[for_tests()], 3).unwrap();
        let loaded = sessions.into_iter().map(|session| (session, Creates::new("/p", 1000, 100))).collect();
        let from = Instant::now();
        let schedule =
            Schedule { outstanding: 50, from, to: from + Duration::from_secs(3600), arrivals: None };
        let (sessions, tally) = drive(loaded, schedule, &AtomicU64::new(0)).unwrap();
        assert_eq!(tally.operations, 3000);
        session::close_all(sessions).unwrap();
    }

    #[test]
    fn a_mix_on_own_znodes_passes_every_check_of_a_measurement() {
        let load = Load {
            sessions: 4,
            outstanding: 10,
            threads: 2,
            payload_len: 1024,
            znodes: 4,
            reads_percent: 50,
            per_second: None,
            burst: 1,
            warmup: Duration::ZERO,
            window: Duration::from_millis(50),
            seed: 1,
        };
        let measured = measure(&[for_tests()], Surroundings::default(), &load);
        assert!(measured.is_ok(), "{measured:?}");
    }

    #[test]
    fn three_members_answer_what_clients_of_all_of_them_write_and_read() {
        let folder = tempfile::tempdir().unwrap();
        let seats = Seat::on_own_addresses(3);
        let members: Vec<_> = seats.iter().map(Seat::quorum).collect();
        for (own, seat) in seats.iter().enumerate() {
            let (members, address) = (members.clone(), seat.client());
            let folder = folder.path().join(own.to_string());
            std::fs::create_dir(&folder).unwrap();
            std::thread::spawn(move || {
                let mut member = Member::new(address, Some(&folder), &members, own).unwrap();
                while member.turn(WAIT_MAX).is_ok() {}
            });
        }
        let servers: Vec<_> = seats.iter().map(Seat::client).collect();
        for (server, mode) in servers.iter().zip(["leader", "follower", "follower"]) {
            let limit = Duration::from_secs(30);
            let is_there = || Ok(ringkeeper_testkit::mode(*server).filter(|found| found == mode));
            ringkeeper_testkit::wait_for(mode, limit, is_there).unwrap();
        }
        let load = Load {
            sessions: 6,
            outstanding: 10,
            threads: 2,
            payload_len: 1024,
            znodes: 6,
            reads_percent: 50,
            per_second: None,
            burst: 1,
            warmup: Duration::ZERO,
            window: Duration::from_millis(200),
            seed: 1,
        };
        let measured = measure(&servers, Surroundings::default(), &load);
        assert!(measured.is_ok(), "{measured:?}");
    }

    #[test]
    fn a_wrong_value_fails_the_measurement() {
        // Two znodes on one connection: the responder knows only the value written last.
        let load = Load {
            sessions: 1,
            outstanding: 10,
            threads: 1,
            payload_len: 100,
            znodes: 2,
            reads_percent: 100,
            per_second: None,
            burst: 1,
            warmup: Duration::ZERO,
            window: Duration::from_secs(3600),
            seed: 1,
        };
        let error = format!("{:#}", measure(&[for_tests()], Surroundings::default(), &load).unwrap_err());
        assert!(error.contains("no whole value of znode 0"), "{error}");
    }
}
