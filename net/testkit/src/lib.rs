//! What tests and measurements share: a client that speaks ZooKeeper's protocol byte for byte, and a launcher
//! of servers of ringkeeper, Apache ZooKeeper and etcd, alone and in ensembles.
//!
//! Everything blocks, and everything that waits ends early when the program is [interrupted](interrupt).
#![forbid(unsafe_code)]

mod bodies;
mod certificates;
mod client;
mod connection;
mod ensemble;
pub mod interrupt;
mod network;
mod program;
mod relay;
mod seat;
mod server;
mod socket;
mod tls_files;
mod words;
mod work_folder;

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

pub use bodies::{
    acl, create_body, delete_body, exist_watches_body, multi_body, path_body, path_watch_body, set_data_body,
    watch_mode_body, watched_body,
};
pub use certificates::{Authority, Credentials};
pub use client::{Client, Event, Node, Reply, parse_reply};
pub use connection::{
    Connection, OPEN_ACL, Received, Session, append_request, connect_frame, frame, granted_session,
    request_frame,
};
pub use ensemble::Ensemble;
pub use network::{Cut, Network, Place};
pub use program::Program;
pub use seat::{Seat, own_address};
pub use server::{ModeOf, Server};
pub use socket::Socket;
pub use tls_files::{SERVER_NAME, TlsFiles};
pub use words::{ask, metric, mode, mode_on};
pub use work_folder::WorkFolder;

/// Between two looks at something that is waited for.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Waits until `look` finds something.
///
/// # Errors
/// `look` fails, it finds nothing within `limit`, or the program is interrupted. `what` names what was waited
/// for.
pub fn wait_for<T>(what: &str, limit: Duration, mut look: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let deadline = Instant::now() + limit;
    loop {
        interrupt::check()?;
        if let Some(found) = look()? {
            return Ok(found);
        }
        if Instant::now() > deadline {
            bail!("{what}: not within {} s", limit.as_secs());
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// The server's binary: the one that `RINGKEEPER_BIN` names, or the one that was built beside this program or
/// this test. `None`, with a note on stderr, if there is none.
#[must_use]
pub fn ringkeeper_binary() -> Option<PathBuf> {
    let named = std::env::var_os("RINGKEEPER_BIN").map(PathBuf::from);
    let own = std::env::current_exe().ok();
    // target/<profile>/<program>, or target/<profile>/deps/<test>
    let folders = own.iter().flat_map(|own| own.ancestors().skip(1).take(2));
    let built = folders.map(|folder| folder.join("ringkeeper")).find(|binary| binary.is_file());
    let found = named.or(built);
    if found.is_none() {
        eprintln!("skipped: build the ringkeeper binary, or name it by RINGKEEPER_BIN");
    }
    found
}
