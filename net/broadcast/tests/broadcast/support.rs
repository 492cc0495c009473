//! A machine that remembers what it was told, and servers around it.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ringkeeper_broadcast::{Broadcast, Config, ProposeError, StateError, StateMachine, Status, Zxid};

/// Nothing here takes this long.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a machine was told.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// Its state: all proposals since the beginning.
    pub(crate) delivered: Vec<(Zxid, Vec<u8>)>,
    /// Zxids of the states it was set to.
    pub(crate) states_set: Vec<Zxid>,
    pub(crate) syncs: Vec<Zxid>,
    pub(crate) statuses: Vec<Status>,
    /// How often it was asked for its state.
    pub(crate) states_got: usize,
}

/// A list of everything delivered.
pub(crate) struct Ledger(pub(crate) Arc<Mutex<Told>>);

impl StateMachine for Ledger {
    fn deliver(&mut self, zxid: Zxid, proposal: &[u8]) {
        let mut told = self.0.lock().expect("no panic");
        let before = told.delivered.last().map_or(Zxid::ZERO, |last| last.0);
        assert!(zxid > before, "{zxid} after {before}");
        told.delivered.push((zxid, proposal.to_vec()));
    }

    fn deliver_sync(&mut self, zxid: Zxid) {
        self.0.lock().expect("no panic").syncs.push(zxid);
    }

    fn status(&mut self, status: Status) {
        self.0.lock().expect("no panic").statuses.push(status);
    }

    fn get_state(&mut self) -> Vec<u8> {
        let mut told = self.0.lock().expect("no panic");
        told.states_got += 1;
        let entry = |(zxid, bytes): &(Zxid, Vec<u8>)| {
            let len = u32::try_from(bytes.len()).expect("short");
            [&zxid.0.to_le_bytes()[..], &len.to_le_bytes(), bytes].concat()
        };
        told.delivered.iter().flat_map(entry).collect()
    }

    fn set_state(&mut self, zxid: Zxid, mut state: &[u8]) -> Result<(), StateError> {
        let mut told = self.0.lock().expect("no panic");
        told.delivered.clear();
        while !state.is_empty() {
            let (id, rest) = state.split_first_chunk().ok_or("no zxid")?;
            let (len, rest) = rest.split_first_chunk().ok_or("no length")?;
            let (bytes, rest) =
                rest.split_at_checked(u32::from_le_bytes(*len) as usize).ok_or("cut short")?;
            told.delivered.push((Zxid(u64::from_le_bytes(*id)), bytes.to_vec()));
            state = rest;
        }
        assert_eq!(told.delivered.last().map(|last| last.0), Some(zxid));
        told.states_set.push(zxid);
        Ok(())
    }
}

/// A running server and what its machine was told.
pub(crate) struct Server {
    pub(crate) broadcast: Broadcast,
    told: Arc<Mutex<Told>>,
}

impl Server {
    pub(crate) fn start(config: Config) -> Self {
        let told = Arc::default();
        let broadcast = Broadcast::start(config, Ledger(Arc::clone(&told))).expect("it starts");
        Self { broadcast, told }
    }

    pub(crate) fn told<T>(&self, look: impl FnOnce(&Told) -> T) -> T {
        look(&self.told.lock().expect("no panic"))
    }

    /// What was delivered, in order.
    pub(crate) fn delivered(&self) -> Vec<(Zxid, Vec<u8>)> {
        self.told(|told| told.delivered.clone())
    }

    /// Proposes until it is delivered; only for a proposal that may be delivered twice.
    pub(crate) fn propose(&self, proposal: &[u8]) -> Zxid {
        wait_for("a proposal is delivered", || self.broadcast.handle().propose(proposal.to_vec()).wait().ok())
    }

    /// Waits until everything acknowledged anywhere is delivered here.
    pub(crate) fn sync(&self) -> Zxid {
        wait_for("a sync is answered", || self.broadcast.handle().sync().wait().ok())
    }

    pub(crate) fn leads(&self) -> bool {
        matches!(self.broadcast.handle().status(), Status::Leading { .. })
    }

    pub(crate) fn serves(&self) -> bool {
        self.broadcast.handle().status() != Status::Looking
    }

    /// Ends it cleanly.
    pub(crate) fn stop(self) {
        self.broadcast.handle().shutdown();
        self.broadcast.join().expect("a clean end");
    }
}

/// Three servers in one folder, each with a port of its own.
pub(crate) struct Ensemble {
    pub(crate) folder: tempfile::TempDir,
    addresses: Vec<String>,
}

impl Ensemble {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        // Held all at once, so that they are different ones.
        let ports: Vec<_> = (0..3).map(|_| TcpListener::bind(own_host()).expect("a free port")).collect();
        let address = |port: &TcpListener| port.local_addr().expect("bound").to_string();
        Self { folder, addresses: ports.iter().map(address).collect() }
    }

    pub(crate) fn data(&self, id: u64) -> PathBuf {
        self.folder.path().join(id.to_string())
    }

    pub(crate) fn config(&self, id: u64) -> Config {
        let config = Config::ensemble(id, self.data(id)).secret("the tests'");
        let members = (1..).zip(&self.addresses);
        members.fold(config, |config, (id, address)| config.member(id, address))
    }

    pub(crate) fn start(&self, id: u64) -> Server {
        Server::start(self.config(id))
    }

    pub(crate) fn start_all(&self) -> Vec<Server> {
        (1..=3).map(|id| self.start(id)).collect()
    }
}

/// A loopback address of this test run alone, with any port.
pub(crate) fn own_host() -> String {
    let [_, b, c, d] = std::process::id().to_be_bytes();
    format!("127.{}.{c}.{}:0", b.max(1), d.clamp(1, 254))
}

/// Waits until `found` finds something.
pub(crate) fn wait_for<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Files of a folder whose names begin so.
pub(crate) fn files(folder: &Path, prefix: &str) -> Vec<String> {
    let names = std::fs::read_dir(folder).expect("a folder");
    let names = names.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with(prefix)).collect()
}

/// Whether an error says that nothing was proposed.
pub(crate) fn nothing_done(error: ProposeError) -> bool {
    matches!(error, ProposeError::NoLeader | ProposeError::Overloaded { .. })
}
