//! `ringkeeper ensemble`: an ensemble on one machine, for trying out. Each server is a process of its own
//! with a `zoo.cfg` and a `myid` in the format of Apache ZooKeeper, so that it can be looked at, killed, and
//! taken over to real machines:
//!
//! ```text
//! D/1/zoo.cfg  D/1/data/myid  D/1/server.log   D/2/...   D/3/...
//! ```
//!
//! The files are made once; later starts use what they say.

mod layout;
mod members;
mod watch;

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use signal_hook::consts::{SIGINT, SIGTERM};

use layout::Layout;
use members::Members;

/// How often the servers are asked how they are.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How often a signal is looked for.
const STEP: Duration = Duration::from_millis(50);

#[derive(Args)]
pub(crate) struct EnsembleArgs {
    /// Number of servers; 2f+1 of them survive f failures [default: 3, or as many as the folder has]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=99))]
    pub(crate) servers: Option<u16>,
    /// Folder for configurations, data and logs; made if it is missing, used again if it is not
    #[arg(short, long, value_name = "FOLDER", default_value = "ringkeeper-ensemble")]
    pub(crate) dir: PathBuf,
    /// First port for clients, the other servers have the next ones; 707 above are those among the servers,
    /// 5000 above those of the admin listeners [default: 2181, or as the folder has it]
    #[arg(short = 'p', long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..=60_000))]
    pub(crate) client_port: Option<u16>,
}

/// Why an ensemble did not start or did not last.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EnsembleError {
    #[error(
        "the folder {folder} cannot be used: {error}; make it writable for this user, or choose another with --dir"
    )]
    Folder { folder: PathBuf, error: io::Error },
    #[error(
        "{folder} holds an ensemble with {found}, not with {wanted}: leave the option out, or choose another folder with --dir"
    )]
    Other { folder: PathBuf, found: String, wanted: String },
    #[error("{0}; correct it, or choose another folder with --dir")]
    Config(#[from] crate::config::ConfigError),
    #[error(
        "{file} names the folder {data_dir}, which is not its own: has it been moved? correct dataDir, or choose another folder with --dir"
    )]
    Moved { file: PathBuf, data_dir: PathBuf },
    #[error(
        "port {port} of server {server} is in use: end what listens there, or choose others with --client-port in another folder"
    )]
    Port { server: u64, port: u16 },
    #[error("server {server} cannot be started: {error}")]
    Spawn { server: u64, error: io::Error },
    #[error("the signal handlers cannot be installed: {0}")]
    Signals(io::Error),
    #[error("every server has ended: their last words are in {0}")]
    AllEnded(String),
    #[error("the process to end with is gone")]
    Orphan,
    #[error("this process cannot be made to end with the one that started it: {0}")]
    ParentSignal(io::Error),
}

/// Runs an ensemble until SIGINT or SIGTERM.
///
/// # Errors
/// It cannot be started, or all its servers ended.
pub(crate) fn run(args: &EnsembleArgs) -> Result<(), EnsembleError> {
    let layout = Layout::open(args)?;
    layout.check_ports()?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(EnsembleError::Signals)?;
    }
    say(&layout.greeting());
    let mut members = Members::start(&layout)?;
    let in_place = io::stdout().is_terminal();
    let mut shown = watch::Shown::default();
    while !stop.load(Ordering::Relaxed) {
        let rows = members.look();
        say(&shown.update(&rows, in_place));
        if members.all_ended() {
            return Err(EnsembleError::AllEnded(layout.logs()));
        }
        let mut waited = Duration::ZERO;
        while waited < LOOK_EVERY && !stop.load(Ordering::Relaxed) {
            std::thread::sleep(STEP);
            waited += STEP;
        }
    }
    say("stopping\n");
    members.stop();
    Ok(())
}

/// Makes this process end when the one that started it does.
///
/// # Errors
/// That one is gone already, or the system refuses.
pub(crate) fn end_with(parent: i32) -> Result<(), EnsembleError> {
    set_parent_process_death_signal(Some(Signal::TERM))
        .map_err(|error| EnsembleError::ParentSignal(error.into()))?;
    // It may have ended before the request was made.
    if getppid().map(Pid::as_raw_pid) == Some(parent) { Ok(()) } else { Err(EnsembleError::Orphan) }
}

/// Also when nobody reads it any more.
fn say(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
