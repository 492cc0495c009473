//! A server that is ended and started again on one folder, whose contents can be put aside and taken back.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ringkeeper_testkit::{Ensemble, Server, interrupt, metric};

use super::super::bench::Settings;
use crate::page_cache::PageCache;
use crate::server_cpu::ServerProcesses;
use crate::session::Session;
use crate::system::System;

/// How long a start may take.
const START_MAX: Duration = Duration::from_secs(600);

/// Pause between two attempts to get an answer: what a start is measured to.
const RETRY_PAUSE: Duration = Duration::from_millis(1);

/// A server alone, and its folder.
pub(super) struct Host {
    system: System,
    ensemble: Ensemble,
    page_cache: PageCache,
}

impl Host {
    /// A server that does not run yet, on an empty folder.
    pub(super) fn new(system: &System, settings: &Settings, page_cache: PageCache) -> Result<Self> {
        let ensemble = system.ensemble(1, &settings.work_dir, settings.port)?;
        Ok(Self { system: system.clone(), ensemble, page_cache })
    }

    pub(super) const fn system(&self) -> &System {
        &self.system
    }

    fn server(&self) -> &Server {
        self.ensemble.server(0)
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.server().address()
    }

    /// Starts the server with a snapshot every `snap_count` transactions or so, and waits for a session. The
    /// time that took, and the session.
    pub(super) fn start(&self, snap_count: u32) -> Result<(Duration, Session)> {
        self.start_with(snap_count, "")
    }

    /// The same with more lines of `zoo.cfg`.
    pub(super) fn start_with(&self, snap_count: u32, more: &str) -> Result<(Duration, Session)> {
        // However long the last snapshot is, the count decides; ZooKeeper knows no such setting, and takes no
        // notice.
        let settings = format!(
            "snapCount={snap_count}\nringkeeper.snapshotLogPercent=0\n4lw.commands.whitelist=mntr\n{more}"
        );
        let (server, seats) = (self.server(), self.ensemble.seats());
        self.system.configure(server.folder(), &seats[0], seats, &settings)?;
        let started = Instant::now();
        server.launch()?;
        loop {
            if let Some(status) = server.ended() {
                bail!("the process ended with {status}");
            }
            match Session::open(self.address()) {
                Ok(session) => return Ok((started.elapsed(), session)),
                Err(error) if started.elapsed() > START_MAX => {
                    return Err(error)
                        .with_context(|| format!("no session within {} s", START_MAX.as_secs()));
                }
                Err(_) => interrupt::sleep_until(Instant::now() + RETRY_PAUSE, || false)?,
            }
        }
    }

    /// `kill -9`: nothing is tidied up, the log is what it was.
    pub(super) fn kill(&self) {
        self.server().kill();
    }

    /// The running process.
    pub(super) fn processes(&self) -> Result<ServerProcesses> {
        ServerProcesses::of(&self.ensemble)
    }

    /// Names of the whole snapshots that the folder has.
    pub(super) fn snapshots(&self) -> Result<BTreeSet<String>> {
        let mut names = BTreeSet::new();
        for folder in [self.data(), self.data().join("version-2")] {
            let Ok(entries) = fs::read_dir(folder) else { continue };
            for entry in entries {
                let name = entry?.file_name().to_string_lossy().into_owned();
                let zxid = name.strip_prefix("snapshot.").unwrap_or_default();
                if !zxid.is_empty() && zxid.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                    names.insert(name);
                }
            }
        }
        Ok(names)
    }

    /// A figure that the running server shows in the answer to `mntr`.
    pub(super) fn metric(&self, name: &str) -> Result<f64> {
        metric(self.address(), name).with_context(|| format!("mntr has no {name}"))
    }

    /// Where the server keeps log and snapshots.
    pub(super) fn data(&self) -> PathBuf {
        self.server().data()
    }

    /// Puts the contents of the folder aside under `name`. The server must not run.
    pub(super) fn save(&self, name: &str) -> Result<()> {
        copy_folder(&self.data(), &self.ensemble.folder().join(name))
    }

    /// Takes back what was put aside, in the place of what there is.
    pub(super) fn restore(&self, name: &str) -> Result<()> {
        fs::remove_dir_all(self.data())?;
        copy_folder(&self.ensemble.folder().join(name), &self.data())
    }

    /// Empties the page cache, where the machine's first attempt has shown that it can be done.
    pub(super) fn cool_down(&self) -> Result<()> {
        self.page_cache.drop_again()
    }

    /// The end of the server's output, to go with an error.
    pub(super) fn log_tail(&self) -> String {
        self.server().log_tail()
    }
}

/// Copies a folder of files and folders, durably, so that no writing back disturbs what is measured next.
fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), &target)?;
            File::open(&target)?.sync_all()?;
        }
    }
    Ok(())
}
