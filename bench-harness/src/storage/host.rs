//! A server that is ended and started again on one folder, whose contents can be put aside and taken back.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::compare::System;
use crate::interrupt;
use crate::page_cache::PageCache;
use crate::server_cpu::ServerProcesses;
use crate::session::Session;
use crate::work_folder::WorkFolder;

/// How long a start may take.
const START_MAX: Duration = Duration::from_secs(600);

/// Pause between two attempts to get an answer: what a start is measured to.
const RETRY_PAUSE: Duration = Duration::from_millis(1);

const ANSWER_MAX: Duration = Duration::from_secs(5);

const LOG_NAME: &str = "server.log";

const LOG_LINES_SHOWN: usize = 20;

/// A server and its folder. Dropping it kills the process and removes the folder.
pub(super) struct Host {
    system: System,
    address: SocketAddr,
    child: Option<Child>,
    folder: WorkFolder,
    page_cache: PageCache,
}

impl Host {
    /// A server that does not run yet, on an empty folder inside `work_dir`.
    pub(super) fn new(
        system: &System,
        work_dir: &Path,
        port: Option<u16>,
        page_cache: PageCache,
    ) -> Result<Self> {
        let wanted = SocketAddr::from((Ipv4Addr::LOCALHOST, port.unwrap_or(0)));
        let listener =
            TcpListener::bind(wanted).with_context(|| format!("port {} is in use", wanted.port()))?;
        let folder = WorkFolder::new("storage", work_dir)?;
        let address = listener.local_addr()?;
        Ok(Self { system: system.clone(), address, child: None, folder, page_cache })
    }

    pub(super) const fn system(&self) -> &System {
        &self.system
    }

    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Starts the server with a snapshot every `snap_count` transactions or so, and waits for a session. The time
    /// that took, and the session.
    pub(super) fn start(&mut self, snap_count: u32) -> Result<(Duration, Session)> {
        self.start_with(snap_count, &[])
    }

    /// The same with more settings of `zoo.cfg`.
    pub(super) fn start_with(
        &mut self,
        snap_count: u32,
        more: &[(&str, String)],
    ) -> Result<(Duration, Session)> {
        let mut settings = vec![
            ("snapCount", snap_count.to_string()),
            // However long the last one is; ZooKeeper knows no such setting, and takes no notice.
            ("ringkeeper.snapshotLogPercent", "0".to_owned()),
            ("4lw.commands.whitelist", "mntr".to_owned()),
        ];
        settings.extend_from_slice(more);
        let mut command = self.system.command_with(self.folder.path(), self.address, &settings)?;
        let log = File::create(self.folder.path().join(LOG_NAME))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0);
        let started = Instant::now();
        let child = command.spawn().with_context(|| format!("cannot start {}", self.system.name()))?;
        let child = self.child.insert(child);
        loop {
            if let Some(status) = child.try_wait()? {
                bail!("the process ended with {status}");
            }
            match Session::open(self.address) {
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
    pub(super) fn kill(&mut self) -> Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    /// The running process.
    pub(super) fn processes(&self) -> Result<ServerProcesses> {
        let child = self.child.as_ref().context("the server does not run")?;
        ServerProcesses::of_pids(&[i32::try_from(child.id())?])
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

    /// A figure that the running server shows in the answer to `mntr`; its name there has `zk_` in front.
    pub(super) fn metric(&self, name: &str) -> Result<f64> {
        let mut stream = TcpStream::connect_timeout(&self.address, ANSWER_MAX)?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        stream.write_all(b"mntr")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let mut figures = answer.lines().filter_map(|line| line.strip_prefix("zk_")?.split_once('\t'));
        let value = figures.find(|(figure, _)| *figure == name);
        value.and_then(|(_, value)| value.trim().parse().ok()).with_context(|| format!("mntr has no {name}"))
    }

    /// Where the server keeps log and snapshots.
    pub(super) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Puts the contents of the folder aside under `name`. The server must not run.
    pub(super) fn save(&self, name: &str) -> Result<()> {
        copy_folder(&self.data(), &self.folder.path().join(name))
    }

    /// Takes back what was put aside, in the place of what there is.
    pub(super) fn restore(&self, name: &str) -> Result<()> {
        fs::remove_dir_all(self.data())?;
        copy_folder(&self.folder.path().join(name), &self.data())
    }

    /// Empties the page cache, where the machine's first attempt has shown that it can be done.
    pub(super) fn cool_down(&self) -> Result<()> {
        self.page_cache.drop_again()
    }

    /// The end of the server's output, to go with an error.
    pub(super) fn log_tail(&self) -> String {
        let log = fs::read(self.folder.path().join(LOG_NAME)).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n")
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // Fails only if it has ended already and been waited for.
        let _ = self.kill();
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
