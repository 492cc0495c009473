//! `ringkeeper export`: a data folder of ours becomes one of Apache ZooKeeper.

use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use clap::Args;
use ringkeeper_apache::session_password;
use ringkeeper_apache::snapshot::{self, Packing, Summary};
use ringkeeper_engine::authorisation::PLACE;
use ringkeeper_engine::quota;
use ringkeeper_engine::state::State;
use ringkeeper_engine::tenants;
use ringkeeper_engine::txn::Session;
use ringkeeper_engine::zab::Epochs;
use ringkeeper_log::meta::MetaStore;
use ringkeeper_runtime::reactor::storage::RingStorage;

use super::draft::{Draft, write_durably};
use super::{MY_ID, MigrateError, random, run, say};
use crate::config::Config;
use crate::server::{Clock, Folder, ReactorEnv, Recovered, check_finished};

/// What Apache ZooKeeper looks for in its folder.
const VERSION: &str = "version-2";
/// Its default of `jute.maxbuffer`, which its servers and clients have each.
const DATA_LEN_MAX: usize = 0xf_ffff;

#[derive(Args)]
pub(crate) struct ExportArgs {
    /// Apache ZooKeeper 3.9 is to start from it
    #[arg(long, required = true)]
    zookeeper: bool,
    /// The data folder of a stopped server
    #[arg(long, value_name = "FOLDER")]
    from: PathBuf,
    /// Its log folder, if it has one
    #[arg(long, value_name = "FOLDER")]
    from_log: Option<PathBuf>,
    /// The folder to make: dataDir of Apache ZooKeeper's zoo.cfg; empty or missing
    #[arg(long, value_name = "FOLDER")]
    to: PathBuf,
}

/// Does what `ringkeeper export` is asked.
///
/// # Errors
/// The source is no sound folder of a stopped server, or the target cannot be made. Nothing is left of the
/// target then.
pub(crate) fn export(args: &ExportArgs) -> Result<(), MigrateError> {
    debug_assert!(args.zookeeper, "the one format that there is has to be named");
    let log = args.from_log.as_deref().unwrap_or(&args.from);
    check_finished(&[&args.from, log])?;
    let server_id = run(server_id(log))?;
    let has_id = args.from.join(MY_ID).exists();
    let config = Config {
        data_dir: args.from.clone(),
        data_log_dir: args.from_log.clone(),
        my_id: Some(server_id),
        ..Config::default()
    };
    let folder = Folder::lock(&config)?;
    let draft = Draft::begin(&args.to, &[&args.from, log], has_id.then_some(server_id))?;
    let recovered = recover(&folder)?;
    let (state, epochs) = (recovered.state, recovered.durable.epochs);
    let inside = draft.path().join(VERSION);
    let failed = |source| MigrateError::Target { folder: args.to.clone(), source };
    let summary = write(&inside, &state, epochs).map_err(failed)?;
    let file = inside.join(snapshot::file_name(state.last_zxid().to_wire()));
    snapshot::read(&file, Packing::Plain)?;
    if has_id {
        write_durably(&draft.path().join(MY_ID), &format!("{server_id}\n")).map_err(failed)?;
    }
    Draft::finish(&mut [draft])?;
    tell(&summary, &state);
    Ok(())
}

/// How much of a state is nothing to Apache ZooKeeper, or needs settings there.
#[derive(Debug, Default, PartialEq, Eq)]
struct Notes {
    rules: usize,
    /// Tenants with limits.
    limits: usize,
    /// Znodes with more data than [`DATA_LEN_MAX`].
    long: usize,
    /// Bytes of data of the longest.
    longest: usize,
    /// Sessions whose password Apache ZooKeeper does not compute.
    sessions: usize,
}

impl Notes {
    fn on(state: &State) -> Self {
        let mut notes = Self::default();
        for znode in state.tree().nodes() {
            let len = znode.data().map_or(0, <[u8]>::len);
            notes.long += usize::from(len > DATA_LEN_MAX);
            notes.longest = notes.longest.max(len);
        }
        notes.rules = state.tree().children(PLACE).count();
        let below = state.tree().descendants(quota::ROOT);
        notes.limits = below.filter(|znode| tenants::limited_by(&znode.path()).is_some()).count();
        let began_here = |(id, session): &(_, &Session)| session.password != session_password(*id);
        notes.sessions = state.sessions().filter(began_here).count();
        notes
    }
}

/// What a stopped server's folder holds.
pub(super) fn recover(folder: &Folder) -> Result<Recovered, MigrateError> {
    let (seed, salt) = (random()?, random()?);
    run(async { folder.recover(ReactorEnv::new(Clock::start()), seed, salt, None).await })
}

/// Whose folder it is.
async fn server_id(folder: &Path) -> Result<u64, MigrateError> {
    // The folder is not made when it is missing, and not written to when it is somebody else's.
    let storage = RingStorage::open_buffered(folder).map_err(|_| MigrateError::NotOurs(folder.to_owned()))?;
    let meta = MetaStore::peek(&storage).await;
    match meta.map_err(|source| MigrateError::Meta { folder: folder.to_owned(), source })? {
        Some(meta) => Ok(meta.server_id.0),
        None => Err(MigrateError::NotOurs(folder.to_owned())),
    }
}

/// Writes what Apache ZooKeeper starts from: a snapshot, and what the server has promised.
fn write(folder: &Path, state: &State, epochs: Epochs) -> io::Result<Summary> {
    fs::create_dir(folder)?;
    let file = File::create_new(folder.join(snapshot::file_name(state.last_zxid().to_wire())))?;
    let summary = snapshot::write(state, BufWriter::new(&file))?;
    file.sync_all()?;
    let current = epochs.current.max(state.last_zxid().epoch());
    let accepted = epochs.accepted.max(current);
    write_durably(&folder.join("currentEpoch"), &current.0.to_string())?;
    write_durably(&folder.join("acceptedEpoch"), &accepted.0.to_string())?;
    File::open(folder)?.sync_all()?;
    Ok(summary)
}

fn tell(summary: &Summary, state: &State) {
    let Summary { znodes, sessions, ttl_znodes } = summary;
    let notes = Notes::on(state);
    if notes.rules > 0 {
        say(format_args!(
            "note: {} rules are in {PLACE}, and Apache ZooKeeper enforces none of them: there, ACLs alone say who may do \
             what, and any client may change these znodes",
            notes.rules
        ));
    }
    if notes.limits > 0 {
        say(format_args!(
            "note: {} tenants have limits, and Apache ZooKeeper enforces none of them",
            notes.limits
        ));
    }
    if notes.long > 0 {
        say(format_args!(
            "note: {} znodes have more data than Apache ZooKeeper's {DATA_LEN_MAX} bytes, the longest of them {}: start it \
             and its clients with a larger -Djute.maxbuffer",
            notes.long, notes.longest
        ));
    }
    if *ttl_znodes > 0 {
        say(format_args!(
            "note: {ttl_znodes} znodes have a time to live: start Apache ZooKeeper with \
             -Dzookeeper.extendedTypesEnabled=true, or it deletes them"
        ));
    }
    if notes.sessions > 0 {
        say(format_args!(
            "note: {} sessions that began here cannot be continued, since Apache ZooKeeper computes their passwords: their \
             ephemerals stay until they expire",
            notes.sessions
        ));
    }
    say(format_args!("exported {znodes} znodes and {sessions} sessions as of zxid {}", state.last_zxid()));
}
