//! The server's folders: locked for this process, and recovered to a state.

use std::error::Error;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use ringkeeper_host::identity::Wanted;
use ringkeeper_host::recovery::{self, Folders, RecoveryError};
use ringkeeper_log::folder::{FolderLock, LockError, UNFINISHED};
use ringkeeper_log::meta::{MetaError, MetaStore};
use ringkeeper_log::storage::{WriteMode, is_no_space};
use ringkeeper_runtime::reactor::storage::RingStorage;
use ringkeeper_wire::ServerId;
use rustix::fs::{Access, access, statvfs};
use rustix::io::Errno;

use super::audit;
use super::identity::IdentityError;
use super::reactor::env::ReactorEnv;
use super::replay::TreeFormat;
use crate::config::{Config, PeerRole};
use crate::tools::{AS_NEW_MEMBER, command_for};

/// Why a folder cannot be used, and what to do.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FolderError {
    #[error("{0}; end that server, or choose another folder with --data-dir")]
    Locked(LockError),
    #[error(
        "an import, restore or export fills the folder {} (process {holder}): start the server when it has ended",
        folder.display()
    )]
    BeingMade { folder: PathBuf, holder: String },
    #[error(
        "{}: an import, restore or export was interrupted here ({UNFINISHED} is there), and what it left is no whole \
         folder: empty the folder, with its log's folder (dataLogDir) if it has one, and do it again. If an older build \
         has served clients from it since, remove {UNFINISHED} alone",
        .0.display()
    )]
    Unfinished(PathBuf),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error(
        "the log's folder {} (dataLogDir) has no log, but {} has one, from before: nothing was changed; move `meta` and \
         all of `log.*` from the second to the first, or, for a server that is to begin anew, away from it",
        log_dir.display(),
        data_dir.display()
    )]
    LogLeftBehind { log_dir: PathBuf, data_dir: PathBuf },
    #[error("the folder {} cannot be used: {source}; {}", folder.display(), room_for(folder))]
    Full { folder: PathBuf, source: io::Error },
    #[error("{}{remedy}", source.about(folder))]
    Unusable { folder: PathBuf, source: Box<RecoveryError>, remedy: String },
}

impl FolderError {
    /// The system refuses.
    fn refused(folder: PathBuf, source: io::Error) -> Self {
        if is_no_space(&source) {
            return Self::Full { folder, source };
        }
        let remedy = remedy_for(&folder, &source).unwrap_or_else(|| {
            "make it writable for this user, or choose another with --data-dir".to_owned()
        });
        let remedy = format!("; {remedy}");
        Self::Unusable { folder, source: Box::new(RecoveryError::Unusable(source)), remedy }
    }
}

/// The server's folders, locked for this process.
pub(crate) struct Folder {
    data_dir: PathBuf,
    log_dir: PathBuf,
    segment_size_bytes: u64,
    write_mode: WriteMode,
    server_id: ServerId,
    /// Whether there are other voters, which have what this server may have lost.
    has_peers: bool,
    /// Held for as long as the process lives.
    _locks: Vec<FolderLock>,
}

/// What the folders held.
pub(crate) type Recovered = recovery::Recovered<ReactorEnv, TreeFormat>;

impl Folder {
    /// Creates missing folders, and locks them.
    ///
    /// # Errors
    /// They cannot be made or written to, another server has them, or they are not whole.
    pub(crate) fn lock(config: &Config) -> Result<Self, FolderError> {
        let mut folders = vec![make(&config.data_dir)?];
        let log_dir = make(config.log_dir())?;
        if !folders.contains(&log_dir) {
            folders.push(log_dir.clone());
        }
        let locks = folders.iter().map(|folder| {
            FolderLock::take_patiently(folder).map_err(|error| match error {
                LockError::Io { folder, source } => FolderError::refused(folder, source),
                LockError::InUse { folder, holder } if is_unfinished(&folder) => {
                    FolderError::BeingMade { folder, holder }
                }
                in_use => FolderError::Locked(in_use),
            })
        });
        let locks = locks.collect::<Result<_, _>>()?;
        check_finished(&folders)?;
        Ok(Self {
            _locks: locks,
            data_dir: folders.swap_remove(0),
            log_dir,
            segment_size_bytes: config.segment_size_bytes,
            write_mode: config.log_write_mode,
            server_id: ServerId(config.server_id()),
            has_peers: has_voting_peers(config),
        })
    }

    /// Folder of the snapshots.
    pub(crate) fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// Folder of the log.
    pub(crate) fn log_dir(&self) -> &Path {
        &self.log_dir
    }

    /// Reads the newest snapshot and replays the log after it. `seed` and `salt` must be unknown to clients.
    /// A server names the role in which it runs on the folder; a tool that only reads does not.
    ///
    /// # Errors
    /// The folder is not what is wanted, its contents are damaged, or the disk fails.
    pub(crate) async fn recover(
        &self,
        env: ReactorEnv,
        seed: u64,
        salt: u64,
        wanted: Option<&Wanted>,
    ) -> Result<Recovered, FolderError> {
        let log = open(&self.log_dir).await?;
        let snapshots =
            if self.data_dir == self.log_dir { log.clone() } else { open(&self.data_dir).await? };
        let has_log = async |folder: &RingStorage| !matches!(MetaStore::peek(folder).await, Ok(None));
        if !has_log(&log).await && has_log(&snapshots).await {
            let (log_dir, data_dir) = (self.log_dir.clone(), self.data_dir.clone());
            return Err(FolderError::LogLeftBehind { log_dir, data_dir });
        }
        let folders = Folders {
            log,
            snapshots,
            wanted,
            server_id: self.server_id,
            salt,
            segment_size_bytes: self.segment_size_bytes,
            write_mode: self.write_mode,
            has_peers: self.has_peers,
        };
        let started = Instant::now();
        let recovered = recovery::open(env, TreeFormat { seed }, folders).await;
        let recovered = recovered.map_err(|error| self.explain(error))?;
        tracing::info!(
            znodes = recovered.state.tree().len(),
            sessions = recovered.state.sessions().len(),
            took_ms = started.elapsed().as_millis(),
            "tree restored"
        );
        Ok(recovered)
    }

    /// Adds what to do.
    fn explain(&self, source: RecoveryError) -> FolderError {
        let folder = self.log_dir.clone();
        let command = |tool| command_for(tool, &self.data_dir, &self.log_dir);
        let repair = command("log repair");
        let remedy = match source {
            RecoveryError::Unusable(source) => return FolderError::refused(folder, source),
            RecoveryError::Mismatch(mismatch) => {
                return IdentityError::new(mismatch, folder, command("folder adopt")).into();
            }
            RecoveryError::Interrupted => format!(": `{repair}` finishes it"),
            RecoveryError::NotOurs(MetaError::ZooKeeperBeside) => {
                "; Apache ZooKeeper was started here by mistake: remove version-2, which is none of this server's data"
                    .into()
            }
            RecoveryError::NotOurs(_) => "; choose another folder with --data-dir".into(),
            RecoveryError::MetaDamaged(_) => {
                "; nothing was changed: restore the folder from a copy, or begin anew in an empty one".into()
            }
            RecoveryError::LogGone if self.has_peers => {
                format!(
                    "; nothing was changed: put the files back (is the disk mounted?), or {AS_NEW_MEMBER}"
                )
            }
            RecoveryError::LogGone => format!(
                "; nothing was changed: put the files back (is the disk mounted?), or see with `{repair}` whether a \
                 snapshot can take its place"
            ),
            RecoveryError::NothingBack => {
                "; start it together with them (what was left is in salvaged.* beside it), \
                                           or begin anew in an empty folder"
                    .into()
            }
            RecoveryError::Log(ref error) => {
                let remedy = io_error(error).and_then(|error| remedy_for(&folder, error));
                format!("; {}", remedy.as_deref().unwrap_or("nothing of it was changed"))
            }
            RecoveryError::Damaged(_) => format!(
                "; nothing of it was changed: `{repair}` shows what can be done about it, and what that loses"
            ),
            RecoveryError::Salvage(_) | RecoveryError::TooNew(_) => String::new(),
            RecoveryError::State(ref error) => {
                let remedy = io_error(error).and_then(|error| remedy_for(&self.data_dir, error));
                let remedy = remedy.unwrap_or_else(|| {
                    format!("`{repair}` shows what can be done about it, and what that loses")
                });
                let remedy = format!("; {remedy}");
                return FolderError::Unusable {
                    folder: self.data_dir.clone(),
                    source: Box::new(source),
                    remedy,
                };
            }
        };
        FolderError::Unusable { folder, source: Box::new(source), remedy }
    }
}

/// Refuses what an import or restore has left that was interrupted.
///
/// # Errors
/// One of the folders is not whole.
pub(crate) fn check_finished(folders: &[impl AsRef<Path>]) -> Result<(), FolderError> {
    let unfinished = folders.iter().map(AsRef::as_ref).find(|folder| is_unfinished(folder));
    unfinished.map_or(Ok(()), |folder| Err(FolderError::Unfinished(folder.to_owned())))
}

fn is_unfinished(folder: &Path) -> bool {
    folder.join(UNFINISHED).exists()
}

/// What to do about what the system says of a folder or of a file in it, if that is known.
fn remedy_for(folder: &Path, error: &io::Error) -> Option<String> {
    let shown = folder.display();
    match error.kind() {
        ErrorKind::ReadOnlyFilesystem => Some(
            "it is read-only for this process: mount it writable, or, if systemd keeps the service out, name it there \
             (`systemctl edit ringkeeper`, ReadWritePaths=)"
                .to_owned(),
        ),
        ErrorKind::PermissionDenied => {
            let closed = closed_in(folder)?;
            let user = audit::user_name();
            Some(format!("{} is closed to this user: `chown -R {user} {shown}`", closed.display()))
        }
        ErrorKind::AlreadyExists if !folder.exists() => {
            let target = std::fs::read_link(folder).ok()?;
            Some(format!("it is a link to {}, which is not there: is its disk mounted?", target.display()))
        }
        ErrorKind::FileTooLarge => Some(
            "raise the limit on the length of files (`ulimit -f`, LimitFSIZE= of the service), or have shorter ones \
             (preAllocSize)"
                .to_owned(),
        ),
        _ if error.raw_os_error() == Some(Errno::MFILE.raw_os_error()) => {
            Some("raise the limit of open files (`ulimit -n`, LimitNOFILE= of the service)".to_owned())
        }
        _ => None,
    }
}

/// A file in a folder that this user may not read or write.
fn closed_in(folder: &Path) -> Option<PathBuf> {
    let mut files = std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    files.find(|file| access(file, Access::READ_OK | Access::WRITE_OK) == Err(Errno::ACCESS))
}

/// What makes room on a full disk.
fn room_for(folder: &Path) -> &'static str {
    // The folder may be what there was no room for.
    let disk = folder.ancestors().find_map(|folder| statvfs(folder).ok());
    match disk {
        Some(disk) if disk.f_files > 0 && disk.f_favail == 0 => {
            "no inodes are left on its disk: remove files there, or give it a file system with more inodes"
        }
        _ => "make room on its disk",
    }
}

/// The system's answer that an error comes from.
fn io_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a io::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        let shared = error.downcast_ref::<Arc<io::Error>>().map(|error| &**error);
        if let Some(found) = error.downcast_ref().or(shared) {
            return Some(found);
        }
        next = error.source();
    }
    None
}

/// Whether there are voters besides this server.
fn has_voting_peers(config: &Config) -> bool {
    let own = config.server_id();
    config.servers.iter().any(|server| server.role == PeerRole::Participant && server.id != own)
}

async fn open(folder: &Path) -> Result<RingStorage, FolderError> {
    let opened = RingStorage::open(folder).await;
    opened.map_err(|source| FolderError::refused(folder.to_owned(), source))
}

fn make(folder: &Path) -> Result<PathBuf, FolderError> {
    std::fs::create_dir_all(folder)
        .and_then(|()| folder.canonicalize())
        .map_err(|source| FolderError::refused(folder.to_owned(), source))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use ringkeeper_host::restore::RestoreError;
    use ringkeeper_log::error::ReadError;

    use super::*;

    #[test]
    fn what_the_system_refuses_is_told_with_what_to_do_about_it() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let told = |kind: ErrorKind| FolderError::refused(folder.path().into(), kind.into()).to_string();
        assert!(told(ErrorKind::ReadOnlyFilesystem).contains("ReadWritePaths="));
        // Nothing in it is closed.
        assert!(told(ErrorKind::PermissionDenied).ends_with("or choose another with --data-dir"));
        assert!(told(ErrorKind::StorageFull).ends_with("; make room on its disk"));
    }

    #[test]
    fn a_link_to_a_folder_that_is_not_there_is_told_with_its_target() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let link = folder.path().join("data");
        symlink("/no/such/folder", &link).expect("made");
        let told = make(&link).expect_err("nowhere").to_string();
        assert!(told.contains("a link to /no/such/folder, which is not there"), "{told}");
    }

    #[test]
    fn a_snapshot_that_the_system_does_not_open_is_no_damage() {
        let folder = Path::new("/data");
        let source = Arc::new(io::Error::from_raw_os_error(Errno::MFILE.raw_os_error()));
        let error = RestoreError::Read(ReadError::Io { file: "log.1".to_owned(), offset: 0, source });
        let remedy = io_error(&error).and_then(|error| remedy_for(folder, error));
        assert!(remedy.is_some_and(|remedy| remedy.contains("LimitNOFILE=")));
        let error = RestoreError::Foreign { file: "snapshot.1".to_owned() };
        assert!(io_error(&error).is_none());
    }
}
