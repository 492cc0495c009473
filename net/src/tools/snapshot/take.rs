//! `ringkeeper snapshot take`: asks a running server for a snapshot, with SIGUSR1, and waits for it.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::Args;
use ringkeeper_log::folder::{FolderLock, LockError};
use ringkeeper_log::snapshot::{NEW_NAME, file_name, zxid_of};
use ringkeeper_wire::Zxid;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::tools::folder::FolderArgs;
use crate::tools::out::{Out, hex};
use crate::tools::{Finding, ToolError};

/// How often it is looked whether the snapshot is there.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// SIGUSR1 in the masks of `/proc/<pid>/status`, which begin with signal 1.
const USR1_MASK: u64 = 1 << 9;

#[derive(Args)]
pub(crate) struct TakeArgs {
    #[command(flatten)]
    folder: FolderArgs,
    /// How long to wait for it, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    wait: u64,
}

/// A snapshot's file: another one of the same name has another inode or time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct File {
    zxid: Zxid,
    changed: (i64, i64),
    inode: u64,
    bytes: u64,
}

pub(super) fn take(args: &TakeArgs) -> Result<Finding, ToolError> {
    let folder = args.folder.config()?.data_dir;
    let folder = folder.canonicalize().map_err(|_| ToolError::NotOurs(folder))?;
    let pid = holder(&folder)?.ok_or_else(|| {
        ToolError::Refused(format!(
            "no server uses {}: start it, its snapshots are its own work",
            folder.display()
        ))
    })?;
    if !holds(pid, &folder) {
        return Err(ToolError::Refused(format!(
            "the server that uses {} is no process that this one sees with its files (its own number is {pid}): run this \
             in the server's container, as its user or as root",
            folder.display()
        )));
    }
    if !listens(pid) {
        return Err(ToolError::Refused(format!("process {pid} uses {}, and is no server", folder.display())));
    }
    let mut before = newest(&folder)?;
    // One that is being taken already is of an earlier moment.
    let mut to_come = if folder.join(NEW_NAME).exists() { 2 } else { 1 };
    let process = Pid::from_raw(pid).ok_or_else(|| ToolError::NotOurs(folder.clone()))?;
    let failed = |source| ToolError::Refused(format!("signalling process {pid}: {source}"));
    kill_process(process, Signal::USR1).map_err(failed)?;
    let started = Instant::now();
    loop {
        let now = newest(&folder)?;
        if now != before {
            before.clone_from(&now);
            to_come -= 1;
        }
        if let (0, Some(taken)) = (to_come, now) {
            return tell(&taken, args.folder.json);
        }
        if holder(&folder)? != Some(pid) {
            return Err(ToolError::Refused(format!(
                "the server (process {pid}) has ended; its log says why"
            )));
        }
        if started.elapsed() > Duration::from_secs(args.wait) {
            return Err(ToolError::Refused(format!(
                "no snapshot after {} s; the server (process {pid}) may still take it, its log says how far it is",
                args.wait
            )));
        }
        sleep(LOOK_EVERY);
    }
}

fn tell(taken: &File, json: bool) -> Result<Finding, ToolError> {
    let File { zxid, bytes, .. } = *taken;
    let file = file_name(zxid);
    let mut out = Out::new(json);
    out.line(format_args!("{file}: {bytes} bytes, as of zxid {zxid}"))?;
    out.object(|| json!({ "file": file, "zxid": hex(zxid.0), "bytes": bytes }))?;
    out.flush()?;
    Ok(Finding::Sound)
}

/// The process that uses the folder.
fn holder(folder: &Path) -> Result<Option<i32>, ToolError> {
    if !folder.join("lock").exists() {
        return Err(ToolError::NotOurs(folder.to_owned()));
    }
    match FolderLock::take(folder) {
        Ok(_) => Ok(None),
        // Somebody has just taken it and not written down who that is: asked again, it is known.
        Err(LockError::InUse { holder, .. }) => Ok(Some(holder.parse().unwrap_or(0))),
        Err(error) => Err(ToolError::Lock(error)),
    }
}

/// Whether a process has the folder's lock open, or may have: who it is that has files which this one may not
/// see, is not known. In another container the same number is somebody else's.
fn holds(pid: i32, folder: &Path) -> bool {
    let identity = |meta: fs::Metadata| (meta.dev(), meta.ino());
    let Ok(lock) = fs::metadata(folder.join("lock")).map(identity) else { return false };
    let open = match fs::read_dir(format!("/proc/{pid}/fd")) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => return true,
        open => open.into_iter().flatten().flatten(),
    };
    open.filter_map(|entry| fs::metadata(entry.path()).ok()).any(|meta| identity(meta) == lock)
}

/// Whether a process has a handler for SIGUSR1, which ends every other one.
fn listens(pid: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    caught.is_some_and(|mask| mask & USR1_MASK != 0)
}

fn newest(folder: &Path) -> Result<Option<File>, ToolError> {
    let failed = |_| ToolError::NotOurs(folder.to_owned());
    let mut newest = None;
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path: PathBuf = entry.map_err(failed)?.path();
        let zxid = path.file_name().and_then(|name| zxid_of(name.to_str()?));
        // It may be gone already, for a newer one.
        if let (Some(zxid), Ok(meta)) = (zxid, fs::metadata(&path)) {
            let changed = (meta.ctime(), meta.ctime_nsec());
            newest = newest.max(Some(File { zxid, changed, inode: meta.ino(), bytes: meta.size() }));
        }
    }
    Ok(newest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_does_not_have_the_lock_open_is_not_the_server() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let own = i32::try_from(std::process::id()).expect("a pid");
        fs::write(folder.path().join("lock"), b"").expect("written");
        assert!(!holds(own, folder.path()));
        let lock = FolderLock::take(folder.path()).expect("free");
        assert!(holds(own, folder.path()));
        assert!(!holds(0, folder.path()));
        drop(lock);
        assert!(!holds(own, folder.path()));
    }

    #[test]
    fn a_process_without_a_handler_is_not_signalled() {
        assert!(!listens(i32::try_from(std::process::id()).expect("a pid")));
        assert!(!listens(0));
    }
}
