//! Ensembles under test.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::support::{Client, own_address, wait_for};

const CLIENT_PORT: u16 = 26_181;
const QUORUM_PORT: u16 = 26_288;

/// A server that is stopped or cut off answers no word: it is not waited for.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// Long enough for whatever a test does to its servers.
pub(crate) const SESSION_MS: i32 = 30_000;

/// Lines of each server's log that a failed test shows.
const LINES_SHOWN: usize = 60;

/// An ensemble and its folders. Its processes are killed, by their ids, when it is dropped.
pub(crate) struct Ensemble {
    folder: TempDir,
    members: Vec<Member>,
}

struct Member {
    address: IpAddr,
    folder: PathBuf,
    /// What is put before the command, for a server in a place of its own.
    within: Vec<OsString>,
    child: RefCell<Option<Child>>,
}

impl Ensemble {
    /// Three servers that serve.
    pub(crate) fn start() -> Self {
        Self::start_with("")
    }

    /// Three servers with further lines in each `zoo.cfg`.
    pub(crate) fn start_with(settings: &str) -> Self {
        let mut ensemble = Self::prepare(3, settings);
        ensemble.servers().for_each(|server| ensemble.run(server));
        ensemble.leader();
        ensemble
    }

    /// The folders of an ensemble whose servers are not running yet.
    pub(crate) fn prepare(count: usize, settings: &str) -> Self {
        Self::prepare_at((0..count).map(|_| (IpAddr::from(own_address()), Vec::new())).collect(), settings)
    }

    /// As [`Self::prepare`], for servers with these addresses and what is put before their commands.
    pub(crate) fn prepare_at(places: Vec<(IpAddr, Vec<OsString>)>, settings: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut servers = String::new();
        for (id, (address, _)) in (1..).zip(&places) {
            writeln!(servers, "server.{id}={address}:{QUORUM_PORT}:26388").expect("a string");
        }
        let member = |(id, (address, within)): (u64, (IpAddr, Vec<OsString>))| {
            let folder = folder.path().join(id.to_string());
            let data = folder.join("data");
            fs::create_dir_all(&data).expect("a folder");
            fs::write(data.join("myid"), format!("{id}\n")).expect("written");
            let config = format!(
                "tickTime=2000\ninitLimit=10\nsyncLimit=5\ndataDir={}\nclientPort={CLIENT_PORT}\n\
                 clientPortAddress={address}\nmaxClientCnxns=0\n4lw.commands.whitelist=*\n{settings}\n{servers}",
                data.display()
            );
            fs::write(folder.join("zoo.cfg"), config).expect("written");
            Member { address, folder, within, child: RefCell::default() }
        };
        let members = (1..).zip(places).map(member).collect();
        Self { members, folder }
    }

    pub(crate) fn servers(&self) -> std::ops::Range<usize> {
        0..self.members.len()
    }

    /// All servers but one.
    pub(crate) fn others(&self, server: usize) -> Vec<usize> {
        self.servers().filter(|&other| other != server).collect()
    }

    /// Where a server takes clients.
    pub(crate) fn address(&self, server: usize) -> SocketAddr {
        (self.members[server].address, CLIENT_PORT).into()
    }

    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.servers().map(|server| self.address(server)).collect()
    }

    /// Where a server takes peers.
    pub(crate) fn quorum_address(&self, server: usize) -> SocketAddr {
        (self.members[server].address, QUORUM_PORT).into()
    }

    /// Adds a line to one server's configuration, for its next start.
    pub(crate) fn configure(&self, server: usize, line: &str) {
        let path = self.members[server].folder.join("zoo.cfg");
        let text = fs::read_to_string(&path).expect("read");
        fs::write(&path, format!("{line}\n{text}")).expect("written");
    }

    /// Replaces text in one server's configuration, for its next start.
    pub(crate) fn reconfigure(&self, server: usize, from: &str, to: &str) {
        let path = self.members[server].folder.join("zoo.cfg");
        let text = fs::read_to_string(&path).expect("read");
        assert!(text.contains(from), "no {from} in {text}");
        fs::write(&path, text.replace(from, to)).expect("written");
    }

    /// A file beside the servers' folders.
    pub(crate) fn file(&self, name: &str, contents: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, contents).expect("written");
        path
    }

    /// Starts a server, without waiting.
    pub(crate) fn run(&mut self, server: usize) {
        let member = &mut self.members[server];
        assert!(member.child.get_mut().is_none(), "server {server} runs already");
        let log =
            File::options().create(true).append(true).open(member.folder.join("log")).expect("a log file");
        let binary = OsString::from(env!("CARGO_BIN_EXE_ringkeeper"));
        let words: Vec<_> = member.within.iter().chain([&binary]).collect();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).arg("-c").arg(member.folder.join("zoo.cfg"));
        command.current_dir(&member.folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        *member.child.get_mut() = Some(command.spawn().expect("the server starts"));
    }

    /// Stops a server as its operator does, and waits for the end.
    pub(crate) fn stop(&mut self, server: usize) {
        self.signal(server, Signal::TERM);
        let ended = self.members[server].child.get_mut().take().map(|mut child| child.wait().expect("ends"));
        assert!(ended.is_some_and(|status| status.success()), "server {} stops cleanly", server + 1);
    }

    /// A server's folder of log and snapshots.
    pub(crate) fn data(&self, server: usize) -> PathBuf {
        self.members[server].folder.join("data")
    }

    /// `kill -9`, and waits for the end.
    pub(crate) fn kill(&mut self, server: usize) {
        self.members[server].kill();
    }

    /// `kill -9` to all, before the end of any is waited for.
    pub(crate) fn kill_all(&mut self) {
        self.servers().for_each(|server| self.signal(server, Signal::KILL));
        self.members.iter_mut().for_each(Member::kill);
    }

    /// Stops a server as a debugger would, until [`Self::resume`].
    pub(crate) fn pause(&self, server: usize) {
        self.signal(server, Signal::STOP);
    }

    pub(crate) fn resume(&self, server: usize) {
        self.signal(server, Signal::CONT);
    }

    fn assert_lives(&self, server: usize) {
        let mut child = self.members[server].child.borrow_mut();
        let ended = child.as_mut().and_then(|child| child.try_wait().expect("known"));
        assert_eq!(ended, None, "server {} has ended by itself", server + 1);
    }

    fn signal(&self, server: usize, signal: Signal) {
        let child = self.members[server].child.borrow();
        kill_process(Pid::from_child(child.as_ref().expect("running")), signal).expect("signalled");
    }

    /// The answer to a four-letter word, if there is one.
    pub(crate) fn ask(&self, server: usize, word: &str) -> io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&self.address(server), ANSWER_MAX)?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        stream.write_all(word.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    /// What a server says it is, if it serves.
    pub(crate) fn mode(&self, server: usize) -> Option<String> {
        let answer = self.ask(server, "srvr").ok()?;
        answer.lines().find_map(|line| line.strip_prefix("Mode: ")).map(str::to_owned)
    }

    /// Waits until all servers that run serve, one of them leading; which one.
    pub(crate) fn leader(&self) -> usize {
        let running: Vec<_> =
            self.servers().filter(|&server| self.members[server].child.borrow().is_some()).collect();
        self.leader_among(&running)
    }

    /// Waits until these servers serve, one of them leading; which one.
    pub(crate) fn leader_among(&self, servers: &[usize]) -> usize {
        wait_for("a leader and its followers", || {
            servers.iter().for_each(|&server| self.assert_lives(server));
            let modes: Option<Vec<_>> = servers.iter().map(|&server| self.mode(server)).collect();
            let modes = modes?;
            let leaders = modes.iter().filter(|mode| *mode == "leader").count();
            let followers = modes.iter().filter(|mode| *mode == "follower").count();
            let leader = modes.iter().position(|mode| mode == "leader")?;
            (leaders == 1 && followers == servers.len() - 1).then_some(servers[leader])
        })
    }

    /// A client of one server, with a new session.
    pub(crate) fn connect(&self, server: usize) -> Client {
        wait_for("a session", || Client::try_attach(self.address(server), SESSION_MS, None, 0).ok()?)
    }

    /// All servers have the same tree at the newest zxid whose digest all of them keep, one not before `zxid`.
    pub(crate) fn assert_equal_trees(&self, zxid: i64) {
        // Every 128th zxid has a digest: the next one has to be written.
        let mut client = self.connect(self.leader());
        (0..130).for_each(|_| client.set("/", b""));
        self.assert_digests_agree(zxid);
    }

    /// All servers have, or get, the same digest at a zxid not before `zxid`.
    pub(crate) fn assert_digests_agree(&self, zxid: i64) {
        let zxid = u64::try_from(zxid).expect("a zxid");
        let (at, digests) = wait_for("digests of one zxid on all servers", || {
            let known: Option<Vec<_>> = self.servers().map(|server| self.digests(server)).collect();
            let known = known?;
            let on_all = |at: &u64| known.iter().all(|digests| digests.contains_key(at));
            let at = *known[0].keys().rev().find(|at| on_all(at))?;
            (at >= zxid).then(|| (at, known.iter().map(|digests| digests[&at]).collect::<Vec<_>>()))
        });
        assert!(digests.iter().all(|digest| *digest == digests[0]), "digests at {at:#x}: {digests:?}");
    }

    fn digests(&self, server: usize) -> Option<BTreeMap<u64, u64>> {
        let answer = self.ask(server, "hash").ok()?;
        let pair = |line: &str| {
            let (zxid, digest) = line.split_once(": ")?;
            Some((u64::from_str_radix(zxid.trim_start_matches("0x"), 16).ok()?, digest.parse().ok()?))
        };
        answer.lines().map(pair).collect()
    }

    /// Removes everything that a server has stored, as if it had a new disk.
    pub(crate) fn wipe(&self, server: usize) {
        let data = self.members[server].folder.join("data");
        for entry in fs::read_dir(&data).expect("a folder") {
            let path = entry.expect("an entry").path();
            if !path.ends_with("myid") {
                fs::remove_file(path).expect("removed");
            }
        }
    }

    /// Length of a file among a server's data; 0 if it is not there.
    pub(crate) fn data_file_len(&self, server: usize, name: &str) -> u64 {
        fs::metadata(self.members[server].folder.join("data").join(name)).map_or(0, |file| file.len())
    }

    /// How many lines of a server's log have this text.
    pub(crate) fn count_in_log(&self, server: usize, text: &str) -> usize {
        self.log(server).lines().filter(|line| line.contains(text)).count()
    }

    /// Everything that a server has logged.
    pub(crate) fn log(&self, server: usize) -> String {
        fs::read_to_string(self.members[server].folder.join("log")).unwrap_or_default()
    }
}

impl Member {
    fn kill(&mut self) {
        if let Some(mut child) = self.child.get_mut().take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Ensemble {
    fn drop(&mut self) {
        self.members.iter_mut().for_each(Member::kill);
        if std::thread::panicking() {
            for server in self.servers() {
                let log = self.log(server);
                let lines: Vec<_> = log.lines().collect();
                let from = lines.len().saturating_sub(LINES_SHOWN);
                eprintln!("log of server {}:\n{}", server + 1, lines[from..].join("\n"));
            }
        }
    }
}
