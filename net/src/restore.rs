//! `ringkeeper restore`: folders of a new ensemble, or a subtree, as of a moment that a backup covers.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Parser, ValueEnum};
use jiff::Timestamp;
use ringkeeper_backup::{Moment, Rebuilt, begin_epoch, rebuild, time};
use ringkeeper_engine::state::State;
use ringkeeper_engine::tree::Owner;
use ringkeeper_shell::ShellArgs;
use ringkeeper_wire::{Epoch, Zxid};
use tempfile::NamedTempFile;

use crate::admin::listener::{SourceArgs, runtime};
use crate::backup::{BackupError, StoreArgs, committed};
use crate::migrate::{Members, MigrateError, ensemble_of, write_members};
use crate::tools::portable_object;

#[derive(Args)]
pub(crate) struct RestoreArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// The moment: latest, a zxid such as 0x10000002a, or a time such as 2026-11-24T09:30:00Z
    #[arg(long, value_name = "MOMENT", default_value = "latest", value_parser = moment)]
    at: Moment,
    /// The folder to make: dataDir of the server to be started; empty or missing
    #[arg(long, value_name = "FOLDER", required_unless_present = "path")]
    to: Option<PathBuf>,
    /// Makes the folders of these members at once, each in a folder of its number below --to, such as 1,2,3
    #[arg(long, value_name = "N,N", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(..=255))]
    members: Vec<u64>,
    /// The server's number in its ensemble [default: a server alone]
    #[arg(long, value_name = "N", conflicts_with = "members", value_parser = clap::value_parser!(u64).range(..=255))]
    myid: Option<u64>,
    /// The number of this restore, where each member's machine runs it: the same for all members, and never
    /// used before [default: a random one]
    #[arg(long, value_name = "NUMBER")]
    ensemble: Option<u64>,
    /// What becomes of sessions and their ephemerals
    #[arg(long, value_name = "WHAT", default_value = "drop")]
    sessions: Sessions,
    /// The greatest zxid that clients may have seen, if it is behind the store's end
    #[arg(long, value_name = "ZXID")]
    above: Option<Zxid>,
    #[command(flatten)]
    server: SourceArgs,
    /// Puts back this znode and those below it, but for ephemerals, in a service that runs
    #[arg(long, value_name = "PATH", value_parser = subtree, conflicts_with_all = ["to", "members", "myid", "ensemble", "above"], requires = "into")]
    path: Option<String>,
    /// The service, as host:port,host:port
    #[arg(long, value_name = "SERVERS", requires = "path")]
    into: Option<String>,
    /// Sets the data of znodes that there are; without it nothing is written if the subtree is there
    #[arg(long, requires = "path")]
    overwrite: bool,
    /// A proof of identity for the service, as SCHEME:AUTH, such as digest:user:password; may be repeated
    #[arg(long, value_name = "SCHEME:AUTH", requires = "path")]
    auth: Vec<String>,
    /// A file with USER:PASSWORD for a login by SASL to the service, which its owner alone can read. Without
    /// it, the environment's RINGKEEPER_LOGIN
    #[arg(long, value_name = "FILE", requires = "path")]
    login_file: Option<PathBuf>,
}

/// What becomes of the sessions.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Sessions {
    /// They go on if their clients come back in time
    Keep,
    /// They end, and their ephemerals are deleted
    Drop,
}

/// Why nothing was restored: one sentence for the user.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RestoreError {
    #[error(transparent)]
    Backup(#[from] BackupError),
    #[error(transparent)]
    Folder(#[from] MigrateError),
    #[error("{0} is not there at that moment")]
    NoNode(String),
    #[error(
        "the new ensemble would have the number of the one that was backed up, and its members would mix two \
         histories: choose another --ensemble"
    )]
    SameEnsemble,
    #[error("--members names server {0} twice: name each member once")]
    Twice(u64),
    #[error("no random numbers: {0}")]
    Random(#[from] getrandom::Error),
    #[error(transparent)]
    Io(#[from] io::Error),
}

fn moment(text: &str) -> Result<Moment, String> {
    if text == "latest" {
        return Ok(Moment::Latest);
    }
    if let Ok(zxid) = text.parse() {
        return Ok(Moment::Zxid(zxid));
    }
    let time = text.parse::<Timestamp>().map(|time| Moment::Time(time.as_millisecond()));
    time.map_err(|_| {
        format!("{text}: not latest, nor a zxid such as 0x10000002a, nor a time such as 2026-11-24T09:30:00Z")
    })
}

fn subtree(path: &str) -> Result<String, String> {
    match path.len() > 1 && path.starts_with('/') && !path.ends_with('/') {
        true => Ok(path.to_owned()),
        false => Err("the path of a znode below / is wanted".to_owned()),
    }
}

/// Does what `ringkeeper restore` is asked.
///
/// # Errors
/// One sentence for the user. Nothing was written then, unless a subtree was put back in part.
pub(crate) fn run(args: RestoreArgs) -> Result<ExitCode, RestoreError> {
    if let Some((_, id)) = (0..).zip(&args.members).find(|(at, id)| args.members[..*at].contains(id)) {
        return Err(RestoreError::Twice(*id));
    }
    let runtime = runtime()?;
    let store = args.store.open()?;
    let rebuilt = runtime.block_on(rebuild(&store, args.at)).map_err(BackupError::from)?;
    if let (Some(path), Some(into)) = (&args.path, &args.into) {
        return args.put_back(&rebuilt.state, path, into);
    }
    let mut above = rebuilt.greatest.max(args.above.unwrap_or_default());
    // One that still runs knows what clients may have seen.
    if args.server.is_named() {
        let source = args.server.source().map_err(BackupError::from)?;
        above = above.max(runtime.block_on(committed(&source)).map_err(BackupError::from)?);
    }
    args.make_folders(rebuilt, above)
}

impl RestoreArgs {
    fn make_folders(&self, rebuilt: Rebuilt, above: Zxid) -> Result<ExitCode, RestoreError> {
        let Rebuilt { mut state, ensemble: before, full, txns, .. } = rebuilt;
        let (at, time_ms) = (state.last_zxid(), state.last_time_ms());
        let (sessions, ephemerals) = (state.sessions().len(), state.ephemeral_count());
        let epoch = Epoch(above.epoch().0.saturating_add(1));
        begin_epoch(&mut state, epoch, self.sessions == Sessions::Keep);
        let chosen = self.ensemble.map_or_else(getrandom::u64, Ok)?;
        let ensemble = ensemble_of(chosen, &state);
        if ensemble == before {
            return Err(RestoreError::SameEnsemble);
        }
        let to = self.to.clone().unwrap_or_default();
        let members: Members = match self.members.is_empty() {
            true => vec![(self.myid, to)],
            false => self.members.iter().map(|id| (Some(*id), to.join(id.to_string()))).collect(),
        };
        let state = Arc::new(state);
        write_members(&members, &state, ensemble, Path::new(self.store.name()))?;
        let mut out = io::stdout().lock();
        writeln!(
            out,
            "restored {} znodes as of zxid {at} of {} from {} (the state of {full} and {txns} transactions)",
            state.tree().len(),
            time(time_ms),
            self.store.name(),
        )?;
        match self.sessions {
            Sessions::Keep => writeln!(out, "kept {sessions} sessions with {ephemerals} ephemerals")?,
            Sessions::Drop => {
                writeln!(out, "ended {sessions} sessions, deleted their {ephemerals} ephemerals")?
            }
        }
        writeln!(out, "the ensemble goes on behind zxid {}; restore {chosen}", state.last_zxid(),)?;
        if self.ensemble.is_none() && self.myid.is_some() {
            writeln!(out, "the other members: the same command with --ensemble {chosen} and their --myid")?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Writes the subtree as the shell exports it, and has the shell import it.
    fn put_back(&self, state: &State, path: &str, into: &str) -> Result<ExitCode, RestoreError> {
        let top = state.znode(path).ok_or_else(|| RestoreError::NoNode(path.to_owned()))?;
        let file = NamedTempFile::new()?;
        let mut out = BufWriter::new(File::create(file.path())?);
        let below = state.tree().descendants(path);
        for znode in std::iter::once(top).chain(below) {
            if !matches!(znode.owner(), Owner::Session(_)) {
                let object = portable_object(state, znode, path);
                writeln!(out, "{object}")?;
            }
        }
        out.flush()?;
        let mut words = vec!["shell".to_owned(), "--servers".to_owned(), into.to_owned()];
        words.extend(self.auth.iter().flat_map(|auth| ["--auth".to_owned(), auth.clone()]));
        let login = self.login_file.as_ref().map(|file| file.to_string_lossy().into_owned());
        words.extend(login.into_iter().flat_map(|file| ["--login-file".to_owned(), file]));
        words.push("import".to_owned());
        words.extend(self.overwrite.then(|| "--force".to_owned()));
        words.extend([path.to_owned(), file.path().to_string_lossy().into_owned()]);
        Ok(ringkeeper_shell::run(Shell::parse_from(words).shell))
    }
}

/// The shell's command line.
#[derive(Parser)]
struct Shell {
    #[command(flatten)]
    shell: ShellArgs,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_the_latest_a_zxid_or_a_time() {
        assert_eq!(moment("latest"), Ok(Moment::Latest));
        assert_eq!(moment("0x10000002a"), Ok(Moment::Zxid(Zxid(0x1_0000_002a))));
        assert_eq!(moment("1970-01-01T00:00:02.5Z"), Ok(Moment::Time(2500)));
        for text in ["", "now", "0xg", "2026-11-24"] {
            assert!(moment(text).is_err(), "{text}");
        }
    }
}
