//! A live server for the tests, whichever there is.
//!
//! `RINGKEEPER_TEST_SERVERS=host:port,host:port` names a running ensemble, ringkeeper's or Apache
//! ZooKeeper's. Without it the `ringkeeper` binary of this workspace is started, if it is built (or named
//! by `RINGKEEPER_BIN`). Without either the tests say so, and do nothing.

#![allow(dead_code, reason = "each test binary uses its own part")]

pub(crate) mod proxy;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ringkeeper_client::{Builder, Client, CreateMode, Wait};

/// The servers of one test, and a subtree of its own on them.
pub(crate) struct Servers {
    addresses: String,
    root: String,
    /// Ours to stop.
    _started: Option<Started>,
}

struct Started {
    child: Child,
    _data_dir: tempfile::TempDir,
}

impl Drop for Started {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Servers for a test; `None`, with a word on stderr, if there are none.
pub(crate) fn servers() -> Option<Servers> {
    let (addresses, started) = match std::env::var("RINGKEEPER_TEST_SERVERS") {
        Ok(addresses) => (addresses, None),
        Err(_) => {
            let Some(binary) = binary() else {
                eprintln!("skipped: set RINGKEEPER_TEST_SERVERS, or build the ringkeeper binary");
                return None;
            };
            let (address, started) = start(&binary);
            (address, Some(started))
        }
    };
    let root = format!("/client-test-{}", uuid::Uuid::new_v4().simple());
    let client = Client::connect(&addresses).wait().expect("the server is there");
    client.create(&root, b"", CreateMode::Persistent).wait().expect("the root can be created");
    Some(Servers { addresses, root, _started: started })
}

impl Servers {
    /// The connection string, the test's own subtree as chroot.
    pub(crate) fn connect_string(&self) -> String {
        format!("{}{}", self.addresses, self.root)
    }

    /// The servers without the chroot.
    pub(crate) fn addresses(&self) -> &str {
        &self.addresses
    }

    /// The test's own subtree.
    pub(crate) fn root(&self) -> &str {
        &self.root
    }

    /// A number that `mntr` tells, summed over all servers; `None` if one does not tell it.
    pub(crate) fn metric(&self, name: &str) -> Option<f64> {
        let of = |address: &str| {
            let mut stream = TcpStream::connect(address).expect("the server is there");
            stream.write_all(b"mntr").expect("asked");
            let mut answer = String::new();
            stream.read_to_string(&mut answer).expect("answered");
            let value = |line: &str| line.strip_prefix(name)?.strip_prefix('\t')?.trim().parse::<f64>().ok();
            answer.lines().find_map(value)
        };
        self.addresses.split(',').map(of).sum()
    }

    /// A client whose connection goes through `proxy`.
    pub(crate) fn client_through(&self, proxy: &proxy::Proxy) -> Client {
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

fn binary() -> Option<PathBuf> {
    if let Some(binary) = std::env::var_os("RINGKEEPER_BIN") {
        return Some(binary.into());
    }
    // target/<profile>/deps/<test binary>
    let test = std::env::current_exe().ok()?;
    let binary = test.parent()?.parent()?.join("ringkeeper");
    binary.is_file().then_some(binary)
}

fn start(binary: &std::path::Path) -> (String, Started) {
    let data_dir = tempfile::tempdir().expect("a temporary directory");
    let port = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a free port").port();
    let child = Command::new(binary)
        .arg("server")
        .arg("--data-dir")
        .arg(data_dir.path())
        .arg("--client-port")
        .arg(port.to_string())
        .stdout(Stdio::null())
        .spawn()
        .expect("the server starts");
    (format!("127.0.0.1:{port}"), Started { child, _data_dir: data_dir })
}
