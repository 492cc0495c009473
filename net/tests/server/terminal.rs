//! The shell at a terminal: what is typed, and Ctrl-C.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::thread;

use ringkeeper_wire::CreateMode;
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::support::{Client, Server, wait_for};

/// A shell at a terminal of its own. Ended when dropped.
struct Terminal {
    shell: Child,
    keyboard: File,
    screen: Arc<Mutex<String>>,
    /// How much of the screen was expected already.
    seen: usize,
}

impl Terminal {
    /// Starts a shell and waits for its prompt.
    fn open(server: &Server) -> Self {
        let mut terminal = Self::start(&server.address().to_string(), server.folder());
        terminal.expect("> ");
        terminal
    }

    /// Starts a shell.
    fn start(servers: &str, home: &Path) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&master).and_then(|()| unlockpt(&master)).expect("a terminal");
        let name = ptsname(&master, Vec::new()).expect("its name");
        let line = File::options()
            .read(true)
            .write(true)
            .open(OsStr::from_bytes(name.as_bytes()))
            .expect("the other end");
        let clone = || line.try_clone().expect("a descriptor");
        let shell = Command::new(env!("CARGO_BIN_EXE_ringkeeper"))
            .args(["shell", "-s", servers])
            .env("HOME", home)
            .env("TERM", "xterm")
            .stdin(clone())
            .stdout(clone())
            .stderr(line)
            .spawn()
            .expect("the binary was built");
        let keyboard = File::from(master);
        let screen = Arc::new(Mutex::new(String::new()));
        let (mut output, shown) = (keyboard.try_clone().expect("a descriptor"), Arc::clone(&screen));
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            // Ends with the shell.
            while let Ok(read @ 1..) = output.read(&mut buffer) {
                shown.lock().expect("no panic").push_str(&String::from_utf8_lossy(&buffer[..read]));
            }
        });
        Self { shell, keyboard, screen, seen: 0 }
    }

    fn type_in(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).expect("the terminal takes it");
    }

    /// Waits until the screen shows `text`, behind what was expected before.
    fn expect(&mut self, text: &str) {
        self.seen = wait_for(text, || self.find(text));
    }

    fn find(&self, text: &str) -> Option<usize> {
        let screen = self.screen.lock().expect("no panic");
        screen[self.seen..].find(text).map(|at| self.seen + at + text.len())
    }

    fn press_ctrl_c(&self) {
        kill_process(Pid::from_child(&self.shell), Signal::INT).expect("it runs");
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

#[test]
fn a_line_that_arrives_at_once_is_run_at_once() {
    let server = Server::start();
    let mut terminal = Terminal::open(&server);
    terminal.type_in("create /pasted x\n");
    terminal.expect("Created /pasted");
    terminal.type_in("ls /\n");
    terminal.expect("[pasted, zookeeper]");
}

#[test]
fn every_line_of_a_burst_is_run() {
    let server = Server::start();
    let mut terminal = Terminal::open(&server);
    terminal.type_in("create /one x\ncreate /two y\nls /\n");
    terminal.expect("Created /one");
    terminal.expect("Created /two");
    terminal.expect("[one, two, zookeeper]");
}

#[test]
fn every_line_of_a_paste_is_run() {
    let server = Server::start();
    let mut terminal = Terminal::open(&server);
    // A terminal marks what is pasted; the return at its end is typed.
    terminal.type_in("\x1b[200~create /one 'x\ny'\ncreate /two\nls /\x1b[201~\r");
    terminal.expect("Created /one");
    terminal.expect("Created /two");
    terminal.expect("[one, two, zookeeper]");
    terminal.type_in("stat /one\r");
    terminal.expect("dataLength = 3");
}

#[test]
fn a_command_and_a_path_are_completed() {
    let server = Server::start();
    let mut terminal = Terminal::open(&server);
    terminal.type_in("getAllCh\t/zoo\t\r");
    terminal.expect("getAllChildrenNumber /zookeeper");
    terminal.expect("\n2\r\n");
    terminal.type_in("help getEp\t\r");
    terminal.expect("ephemeral znodes");
}

#[test]
fn ctrl_c_ends_the_wait_for_a_server_that_says_nothing() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("its address").to_string();
    let home = tempfile::tempdir().expect("a folder");
    let mut terminal = Terminal::start(&address, home.path());
    // Taken up by nobody, so that the client waits.
    let (_connection, _) = silent.accept().expect("the shell connects");
    terminal.press_ctrl_c();
    assert_eq!(terminal.shell.wait().expect("it ends").code(), Some(130));
}

#[test]
fn ctrl_c_ends_a_command_that_waits_for_the_server() {
    let server = Server::start();
    let mut terminal = Terminal::open(&server);
    terminal.type_in("version\n");
    terminal.expect("ringkeeper shell");
    server.pause().expect("it runs");
    terminal.type_in("get /zookeeper\n");
    // Pressed before the command runs, it does nothing.
    wait_for("the end of the command", || {
        terminal.press_ctrl_c();
        terminal.find("interrupted")
    });
    server.resume().expect("it runs");
    terminal.type_in("ls /\n");
    terminal.expect("[zookeeper]");
}

#[test]
fn ctrl_c_at_a_question_is_a_no() {
    let server = Server::start();
    let mut client = Client::connect(server.address(), 30_000);
    client.create("/a", b"", CreateMode::Persistent);
    client.create("/a/b", b"", CreateMode::Persistent);
    let mut terminal = Terminal::open(&server);
    terminal.type_in("deleteall /a\n");
    terminal.expect("[y/N]");
    terminal.press_ctrl_c();
    terminal.expect("interrupted");
    terminal.type_in("ls /\n");
    terminal.expect("[a, zookeeper]");
}
