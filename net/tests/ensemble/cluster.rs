//! Ensembles under test.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::ops::Deref;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use ringkeeper_testkit::{self as testkit, Network, Program, Seat, WorkFolder};
use ringkeeper_wire::{Request, SetDataRequest};
use rustix::process::Signal;

use crate::support::{Client, PATIENCE, ServerSpec, wait_for};

/// Long enough for whatever a test does to its servers.
pub(crate) const SESSION_MS: i32 = 30_000;

/// Of every server.
const SETTINGS: &str =
    "tickTime=2000\ninitLimit=10\nsyncLimit=5\nmaxClientCnxns=0\n4lw.commands.whitelist=*\n";

/// An ensemble and its folders: the test kit's, every failure of which ends the test.
pub(crate) struct Ensemble(testkit::Ensemble);

impl Deref for Ensemble {
    type Target = testkit::Ensemble;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Ensemble {
    /// Three servers that serve.
    pub(crate) fn start() -> Self {
        Self::start_with("")
    }

    /// Three servers with further lines in each `zoo.cfg`.
    pub(crate) fn start_with(settings: &str) -> Self {
        Self::prepare(3, settings).started()
    }

    /// As many servers as the network is for, on it.
    pub(crate) fn on(network: &Network) -> Self {
        Self::prepare_on(network, "ringkeeper.trustedNetwork=yes").started()
    }

    /// The same with these lines in each `zoo.cfg`; none runs yet.
    pub(crate) fn prepare_on(network: &Network, settings: &str) -> Self {
        Self::prepare_at(network.seats(), settings)
    }

    /// Starts the servers, and waits until they serve.
    pub(crate) fn started(self) -> Self {
        self.launch().expect("the servers start");
        self.leader();
        self
    }

    /// The folders of an ensemble whose servers are not running yet.
    pub(crate) fn prepare(count: usize, settings: &str) -> Self {
        Self::prepare_at(Seat::on_own_addresses(count), settings)
    }

    /// Three servers that serve, each of which may have so many files open.
    pub(crate) fn start_with_open_files(open_files: u32, settings: &str) -> Self {
        let folder = WorkFolder::new("test", &std::env::temp_dir()).expect("a temporary folder");
        let starter = folder.path().join("ringkeeper");
        let binary = env!("CARGO_BIN_EXE_ringkeeper");
        let script = format!("#!/bin/sh\nulimit -n {open_files}\nexec '{binary}' \"$@\"\n");
        fs::write(&starter, script).expect("written");
        fs::set_permissions(&starter, fs::Permissions::from_mode(0o700)).expect("ours");
        Self::prepare_with(&starter, settings, folder).started()
    }

    /// Three servers, started by a program in `folder` that takes ringkeeper's arguments; none runs yet.
    pub(crate) fn prepare_with(starter: &Path, settings: &str, folder: WorkFolder) -> Self {
        Self::prepare_by(starter, Seat::on_own_addresses(3), settings, folder)
    }

    /// The same in these seats.
    pub(crate) fn prepare_at(seats: Vec<Seat>, settings: &str) -> Self {
        let folder = WorkFolder::new("test", &std::env::temp_dir()).expect("a temporary folder");
        Self::prepare_by(Path::new(env!("CARGO_BIN_EXE_ringkeeper")), seats, settings, folder)
    }

    fn prepare_by(binary: &Path, seats: Vec<Seat>, settings: &str, folder: WorkFolder) -> Self {
        let program = Program::ringkeeper(binary, &[]);
        let settings = format!("{SETTINGS}{settings}");
        let ensemble = testkit::Ensemble::new(&program.expect("built"), seats, &settings, folder);
        Self(ensemble.expect("folders for the servers"))
    }

    /// A second server with the id of this one, on another address and in an empty folder; not started.
    pub(crate) fn twin(&self, server: usize, folder: &Path) -> testkit::Server {
        let mut seats = self.seats().to_vec();
        let ip = testkit::own_address().into();
        seats[server] = Seat { ip, peer_ip: ip, ..seats[server].clone() };
        let program = Program::ringkeeper(Path::new(env!("CARGO_BIN_EXE_ringkeeper")), &[]).expect("built");
        program.server(folder.into(), &seats[server], &seats, SETTINGS).expect("a folder")
    }

    /// All servers but one.
    pub(crate) fn others(&self, server: usize) -> Vec<usize> {
        self.servers().filter(|&other| other != server).collect()
    }

    /// Where a server takes clients.
    pub(crate) fn address(&self, server: usize) -> SocketAddr {
        self.server(server).address()
    }

    /// Where these servers take clients.
    pub(crate) fn addresses_of(&self, servers: &[usize]) -> Vec<SocketAddr> {
        servers.iter().map(|&server| self.address(server)).collect()
    }

    /// Where a server takes peers.
    pub(crate) fn quorum_address(&self, server: usize) -> SocketAddr {
        self.seats()[server].quorum()
    }

    /// Adds a line to one server's configuration, for its next start.
    pub(crate) fn configure(&self, server: usize, line: &str) {
        self.rewrite(server, |text| format!("{line}\n{text}"));
    }

    /// Replaces text in one server's configuration, for its next start.
    pub(crate) fn reconfigure(&self, server: usize, from: &str, to: &str) {
        self.rewrite(server, |text| {
            assert!(text.contains(from), "no {from} in {text}");
            text.replace(from, to)
        });
    }

    fn rewrite(&self, server: usize, change: impl FnOnce(&str) -> String) {
        let path = self.server(server).config();
        let text = fs::read_to_string(&path).expect("read");
        fs::write(&path, change(&text)).expect("written");
    }

    /// A file beside the servers' folders, for nobody else on this machine.
    pub(crate) fn file(&self, name: &str, contents: &str) -> PathBuf {
        let path = self.folder().join(name);
        fs::write(&path, contents).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("ours");
        path
    }

    /// Starts a server, without waiting.
    pub(crate) fn run(&self, server: usize) {
        self.server(server).launch().expect("the server starts");
    }

    /// Stops a server as its operator does, and waits for the end.
    pub(crate) fn stop(&self, server: usize) {
        let ended = self.server(server).stop().expect("it runs");
        assert!(ended.success(), "server {} stops cleanly", server + 1);
    }

    /// A server's configuration.
    pub(crate) fn config(&self, server: usize) -> PathBuf {
        self.server(server).config()
    }

    /// The arguments of a server of this configuration, started by itself.
    pub(crate) fn spec(&self, server: usize) -> ServerSpec {
        ServerSpec::new().with(&["-c", self.config(server).to_str().expect("UTF-8")])
    }

    /// A server's folder of log and snapshots.
    pub(crate) fn data(&self, server: usize) -> PathBuf {
        self.server(server).data()
    }

    /// `kill -9`, and waits for the end.
    pub(crate) fn kill(&self, server: usize) {
        self.server(server).kill();
    }

    /// `kill -9` to all, before the end of any is waited for.
    pub(crate) fn kill_all(&self) {
        self.iter().for_each(|server| server.signal(Signal::KILL).expect("it runs"));
        self.servers().for_each(|server| self.kill(server));
    }

    /// Stops a server as a debugger would, until [`Self::resume`].
    pub(crate) fn pause(&self, server: usize) {
        self.server(server).pause().expect("it runs");
    }

    pub(crate) fn resume(&self, server: usize) {
        self.server(server).resume().expect("it runs");
    }

    /// Waits until all servers that run serve, one of them leading; which one.
    pub(crate) fn leader(&self) -> usize {
        self.0.leader(PATIENCE).expect("a leader and its followers")
    }

    /// Waits until these servers serve, one of them leading; which one.
    pub(crate) fn leader_among(&self, servers: &[usize]) -> usize {
        self.0.leader_among(servers, PATIENCE).expect("a leader and its followers")
    }

    /// A client of one server, with a new session.
    pub(crate) fn connect(&self, server: usize) -> Client {
        wait_for("a session", || Client::try_attach(self.address(server), SESSION_MS, None, 0).ok()?)
    }

    /// The same, and the server has all that was acknowledged to anybody before.
    pub(crate) fn connect_synced(&self, server: usize) -> Client {
        let mut client = self.connect(server);
        client.sync();
        client
    }

    /// All servers have the same tree at the newest zxid whose digest all of them keep, one not before
    /// `zxid`.
    pub(crate) fn assert_equal_trees(&self, zxid: i64) {
        // Every 128th zxid has a digest: the next one has to be written.
        let mut client = self.connect(self.leader());
        let write = Request::SetData(SetDataRequest { path: "/".into(), data: Some(b""), version: -1 });
        (0..130).for_each(|_| _ = client.send(&write));
        (0..130).for_each(|_| assert_eq!(client.reply().expect("a reply").err, 0));
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
        let answer = self.server(server).ask("hash").ok()?;
        let pair = |line: &str| {
            let (zxid, digest) = line.split_once(": ")?;
            Some((u64::from_str_radix(zxid.trim_start_matches("0x"), 16).ok()?, digest.parse().ok()?))
        };
        answer.lines().map(pair).collect()
    }

    /// Removes everything that a server has stored, as if it had a new disk.
    pub(crate) fn wipe(&self, server: usize) {
        for entry in fs::read_dir(self.data(server)).expect("a folder") {
            let path = entry.expect("an entry").path();
            if !path.ends_with("myid") {
                fs::remove_file(path).expect("removed");
            }
        }
    }

    /// Length of a file among a server's data; 0 if it is not there.
    pub(crate) fn data_file_len(&self, server: usize, prefix: &str) -> u64 {
        let files = fs::read_dir(self.data(server)).into_iter().flatten().flatten();
        let mut found = files.filter(|file| file.file_name().to_string_lossy().starts_with(prefix));
        found.next().and_then(|file| file.metadata().ok()).map_or(0, |file| file.len())
    }

    /// How many lines of a server's log have this text.
    pub(crate) fn count_in_log(&self, server: usize, text: &str) -> usize {
        self.server(server).log().lines().filter(|line| line.contains(text)).count()
    }
}

impl Drop for Ensemble {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("logs:\n{}", self.log_tails());
        }
    }
}
