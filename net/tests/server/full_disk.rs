//! A disk that is full stops writes and nothing else, and having room again is all that it takes to go on.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use ringkeeper_wire::{CreateMode, ErrorCode, Request, SetDataRequest};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use tempfile::TempDir;

use crate::support::{Client, Server, wait_for};

const TIMEOUT_MS: i32 = 30_000;
const DISK_BYTES: usize = 16 << 20;

/// A small file system of its own.
struct SmallDisk {
    folder: TempDir,
}

impl SmallDisk {
    /// `None`, and the reason printed, where none may be mounted.
    fn mount() -> Option<Self> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let options = std::ffi::CString::new(format!("size={DISK_BYTES}")).expect("no zero");
        match mount("none", folder.path(), "tmpfs", MountFlags::empty(), Some(options.as_c_str())) {
            Ok(()) => Some(Self { folder }),
            Err(error) => {
                eprintln!("skipped: a file system cannot be mounted here: {error}");
                None
            }
        }
    }

    fn data_dir(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Fills up what is left; where.
    fn fill(&self) -> PathBuf {
        let path = self.folder.path().join("filler");
        let mut file = File::create(&path).expect("a file");
        while file.write_all(&[1; 4096]).is_ok() {}
        path
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = unmount(self.folder.path(), UnmountFlags::DETACH);
    }
}

fn has_input(client: &mut Client) -> bool {
    let stream = client.stream();
    stream.set_nonblocking(true).expect("set");
    let has_input = stream.peek(&mut [0]).is_ok_and(|bytes| bytes > 0);
    stream.set_nonblocking(false).expect("set");
    has_input
}

fn start(data_dir: &Path) -> Server {
    let data_dir = data_dir.to_str().expect("text");
    Server::start_with(&["-d", data_dir, "-o", "preAllocSize=1024", "-o", "jute.maxbuffer=200000"])
}

fn set(number: u64) -> Vec<u8> {
    let mut data = vec![7; 100_000];
    data[..8].copy_from_slice(&number.to_le_bytes());
    data
}

/// Writes until the disk has no room for the next one; how many were sent, and how many of them acknowledged.
fn write_until_full(server: &Server, client: &mut Client) -> (u64, u64) {
    let (mut sent, mut acknowledged) = (0, 0);
    loop {
        sent += 1;
        let data = set(sent);
        client.send(&Request::SetData(SetDataRequest { path: "/n".into(), data: Some(&data), version: -1 }));
        let full = wait_for("an answer or a full disk", || {
            if server.metric("zk_disk_full") != 0.0 {
                return Some(true);
            }
            has_input(client).then_some(false)
        });
        if full {
            return (sent, acknowledged);
        }
        assert_eq!(client.reply().expect("a reply").error, 0);
        acknowledged = sent;
    }
}

#[test]
fn a_full_disk_refuses_writes_keeps_reads_and_goes_on_when_there_is_room() {
    let Some(disk) = SmallDisk::mount() else { return };
    let mut server = start(&disk.data_dir());
    let mut writer = Client::connect(server.address(), TIMEOUT_MS);
    let mut other = Client::connect(server.address(), TIMEOUT_MS);
    writer.create("/n", b"", CreateMode::Persistent);
    let filler = disk.fill();
    let (sent, acknowledged) = write_until_full(&server, &mut writer);
    assert_eq!(sent, acknowledged + 1, "one is on its way");
    let refused =
        other.call(&Request::SetData(SetDataRequest { path: "/n".into(), data: Some(b"x"), version: -1 }));
    assert_eq!(refused.error, ErrorCode::NotReadOnly.to_wire());
    assert_eq!(other.get("/n", false), Some(if acknowledged == 0 { Vec::new() } else { set(acknowledged) }));
    assert!(server.log().contains("the disk is full"), "{}", server.log());

    fs::remove_file(filler).expect("removed");
    assert_eq!(writer.reply().expect("a reply").error, 0, "what was on its way arrives");
    wait_for("writes", || (server.metric("zk_disk_full") == 0.0).then_some(()));
    other.create("/after", b"", CreateMode::Persistent);
    server.kill();
    let server = server.restart();
    let mut client = Client::connect(server.address(), TIMEOUT_MS);
    assert_eq!(client.get("/n", false), Some(set(sent)));
    assert!(client.exists("/after", false));
}

#[test]
fn a_server_with_a_full_disk_stops_cleanly_and_has_what_it_acknowledged() {
    let Some(disk) = SmallDisk::mount() else { return };
    let mut server = start(&disk.data_dir());
    let mut writer = Client::connect(server.address(), TIMEOUT_MS);
    writer.create("/n", b"", CreateMode::Persistent);
    let filler = disk.fill();
    let (_, acknowledged) = write_until_full(&server, &mut writer);
    server.terminate();
    assert!(server.wait().success());
    fs::remove_file(filler).expect("removed");
    let server = server.restart();
    let mut client = Client::connect(server.address(), TIMEOUT_MS);
    assert_eq!(client.get("/n", false), Some(if acknowledged == 0 { Vec::new() } else { set(acknowledged) }));
}
