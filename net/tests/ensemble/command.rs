//! `ringkeeper ensemble`.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use ringkeeper_wire::CreateMode;
use rustix::process::{Pid, Signal, kill_process};

use crate::cluster::SESSION_MS;
use crate::support::{Client, get, wait_for};

struct Running {
    child: Child,
    /// What it printed until it showed a leader and two followers.
    text: String,
    addresses: Vec<SocketAddr>,
}

/// Starts three servers and waits until the table shows who leads.
fn start(folder: &Path, arguments: &[&str]) -> Running {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringkeeper"));
    command.arg("ensemble").arg("--dir").arg(folder).args(arguments);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let mut running = Running { child, text: String::new(), addresses: Vec::new() };
    let mut parts = (0, 0);
    while parts != (1, 2) {
        let line = lines.next().expect("a leader before the end").expect("text");
        if line.starts_with("server ") {
            parts = (0, 0);
        }
        parts.0 += usize::from(line.contains(" leader "));
        parts.1 += usize::from(line.contains(" follower "));
        if let Some(string) = line.strip_prefix("connection string: ") {
            running.addresses =
                string.split(',').map(|address| address.parse().expect("an address")).collect();
        }
        running.text += &(line + "\n");
    }
    // What it prints from now on is nobody's business.
    std::thread::spawn(move || lines.for_each(drop));
    running
}

impl Running {
    fn client(&self, server: usize) -> Client {
        let address = self.addresses[server];
        Client::try_attach(address, SESSION_MS, None, 0).expect("reached").expect("a session")
    }

    fn assert_all_gone(&self) {
        for address in &self.addresses {
            wait_for("the servers' end", || TcpListener::bind(address).ok());
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn an_ensemble_serves_ends_in_order_and_comes_back_with_its_data() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut running = start(folder.path(), &["--servers", "3", "--client-port", "26100"]);
    assert_eq!(running.addresses.len(), 3, "{}", running.text);
    running.client(2).create("/kept", b"", CreateMode::Persistent);
    for address in &running.addresses {
        let admin = SocketAddr::new(address.ip(), address.port() + 5000);
        assert_eq!(get(admin, "/readyz").status, 200, "{}", running.text);
    }
    kill_process(Pid::from_child(&running.child), Signal::INT).expect("signalled");
    assert!(running.child.wait().expect("ended").success());
    running.assert_all_gone();

    let again = start(folder.path(), &[]);
    assert_eq!(again.addresses, running.addresses);
    let mut client = again.client(0);
    client.sync();
    assert!(client.exists("/kept", false));
}

#[test]
fn the_servers_end_with_the_process_that_started_them_even_if_it_is_killed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut running = start(folder.path(), &["--client-port", "26110"]);
    running.child.kill().expect("killed");
    running.child.wait().expect("ended");
    running.assert_all_gone();
}

#[test]
fn what_keeps_an_ensemble_from_starting_is_one_sentence() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let _taken = TcpListener::bind("127.0.0.1:26122").expect("free");
    let refused = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringkeeper"));
        let output = command.arg("ensemble").args(arguments).output().expect("run");
        assert!(!output.status.success());
        String::from_utf8(output.stderr).expect("text")
    };
    let dir = folder.path().to_str().expect("UTF-8");
    let error = refused(&["--dir", dir, "--client-port", "26120"]);
    assert!(error.starts_with("ringkeeper: port 26122 of server 3 is in use"), "{error}");
    let error = refused(&["--dir", dir, "--servers", "5"]);
    assert!(error.contains("holds an ensemble with 3 servers, not with 5"), "{error}");
    let error = refused(&["--dir", "/dev/null/nowhere"]);
    assert!(error.contains("the folder /dev/null/nowhere cannot be used"), "{error}");
}
