//! A live server for the tests, whichever there is.
//!
//! `RINGKEEPER_TEST_SERVERS=host:port,host:port` names a running ensemble, ringkeeper's or Apache
//! ZooKeeper's. Without it the `ringkeeper` binary of this workspace is started, if it is built (or named
//! by `RINGKEEPER_BIN`). Without either the tests say so, and do nothing.

#![allow(dead_code, reason = "each test binary uses its own part")]

pub(crate) mod proxy;

use std::net::ToSocketAddrs;
use std::path::Path;
use std::time::Duration;

use proxy::Proxy;
use ringkeeper_client::{Builder, Client, CreateMode, Wait};
use ringkeeper_testkit::{Ensemble, Program, Seat, WorkFolder, metric, ringkeeper_binary};

/// How long a server may take to serve.
const START_MAX: Duration = Duration::from_secs(60);

/// The servers of one test, and a subtree of its own on them.
pub(crate) struct Servers {
    addresses: String,
    /// The server of the test's clients, any of `addresses`. What one client has written all others read at
    /// once; across servers nobody promises that.
    home: String,
    root: String,
    /// Ours to stop.
    _started: Option<Ensemble>,
}

/// Servers for a test; `None`, with a word on stderr, if there are none.
pub(crate) fn servers() -> Option<Servers> {
    let (addresses, started) = match std::env::var("RINGKEEPER_TEST_SERVERS") {
        Ok(addresses) => (addresses, None),
        Err(_) => {
            let started = start(&ringkeeper_binary()?, "");
            (started.connect_string(), Some(started))
        }
    };
    let root = format!("/client-test-{}", uuid::Uuid::new_v4().simple());
    let all: Vec<&str> = addresses.split(',').collect();
    let home = all[fastrand::usize(..all.len())].to_owned();
    let client = Client::connect(&home).wait().expect("the server is there");
    client.create(&root, b"", CreateMode::Persistent).wait().expect("the root can be created");
    Some(Servers { addresses, home, root, _started: started })
}

impl Servers {
    /// The connection string, the test's own subtree as chroot.
    pub(crate) fn connect_string(&self) -> String {
        format!("{}{}", self.home, self.root)
    }

    /// A proxy in front of the server.
    pub(crate) fn proxy(&self) -> Proxy {
        Proxy::new(&self.home)
    }

    /// The test's own subtree.
    pub(crate) fn root(&self) -> &str {
        &self.root
    }

    /// A number that `mntr` tells, summed over all servers; `None` if one does not tell it.
    pub(crate) fn metric(&self, name: &str) -> Option<f64> {
        let of = |server: &str| metric(server.to_socket_addrs().ok()?.next()?, name);
        self.addresses.split(',').map(of).sum()
    }

    /// A client whose connection goes through `proxy`.
    pub(crate) fn client_through(&self, proxy: &Proxy) -> Client {
        let connect_string = format!("{}{}", proxy.address(), self.root);
        let builder = Client::builder(&connect_string).session_timeout(Duration::from_secs(8));
        builder.connect().wait().expect("a session")
    }

    pub(crate) fn builder(&self) -> Builder {
        Client::builder(&self.connect_string()).session_timeout(Duration::from_secs(4))
    }

    pub(crate) fn client(&self) -> Client {
        self.builder().connect().wait().expect("a session")
    }
}

/// A server of ours with these lines in its configuration.
pub(crate) fn start(binary: &Path, config: &str) -> Ensemble {
    let folder = WorkFolder::new("client-test", &std::env::temp_dir()).expect("a temporary folder");
    let program = Program::ringkeeper(binary, &[]).expect("it is there");
    let started = Ensemble::start(&program, Seat::on_own_addresses(1), config, folder, START_MAX);
    started.expect("the server serves")
}
