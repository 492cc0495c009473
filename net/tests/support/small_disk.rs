//! A small file system of its own, which a test can fill up.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use tempfile::TempDir;

/// What a real file system of it has room for is a little less.
const BYTES: u64 = 24 << 20;

/// A file system in a file (ext4, on a loop device), or in memory where that cannot be had.
pub(crate) struct SmallDisk {
    at: PathBuf,
    /// Where the file is.
    _image: TempDir,
}

impl SmallDisk {
    /// Mounts it at a folder; `None`, and the reason printed, where none may be mounted.
    pub(crate) fn mount(at: &Path) -> Option<Self> {
        let image = tempfile::tempdir().expect("a temporary folder");
        let at = at.to_owned();
        if mount_image(&image.path().join("image"), &at) {
            return Some(Self { at, _image: image });
        }
        let options = CString::new(format!("size={BYTES}")).expect("no zero");
        match mount("none", &at, "tmpfs", MountFlags::empty(), Some(options.as_c_str())) {
            Ok(()) => Some(Self { at, _image: image }),
            Err(error) => {
                eprintln!("skipped: a file system cannot be mounted here: {error}");
                None
            }
        }
    }

    /// Where it is mounted.
    pub(crate) fn path(&self) -> &Path {
        &self.at
    }

    /// Uses up all the room that is left.
    pub(crate) fn fill(&self) {
        let mut file = File::create(self.filler()).expect("a file");
        while file.write_all(&[1; 4096]).is_ok() {}
    }

    /// Gives back the room that [`Self::fill`] has taken.
    pub(crate) fn make_room(&self) {
        fs::remove_file(self.filler()).expect("removed");
    }

    fn filler(&self) -> PathBuf {
        self.at.join("filler")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = unmount(&self.at, UnmountFlags::DETACH);
    }
}

fn mount_image(image: &Path, at: &Path) -> bool {
    let made = File::create(image).and_then(|file| file.set_len(BYTES));
    let runs = |command: &mut Command| command.output().is_ok_and(|output| output.status.success());
    made.is_ok()
        && runs(Command::new("mkfs.ext4").args(["-q", "-F", "-m", "0"]).arg(image))
        && runs(Command::new("mount").args(["-o", "loop"]).args([image, at]))
}
