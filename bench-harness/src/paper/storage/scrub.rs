//! How fast a server reads its files again to find damage, beside what the disk gives a plain reader of the
//! same files.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ringkeeper_testkit::interrupt;
use rustix::fs::OFlags;

use super::super::bench::Figure;
use super::host::Host;
use super::{LONG_LOG, NO_SNAPSHOTS, Shape};
use crate::measure::as_f64;
use crate::progress::Progress;
use crate::window::Rate;

/// From the start of the server to its first pass.
const AFTER: Duration = Duration::from_secs(1);

/// As much as the setting takes: no limit on any disk.
const KB_PER_SECOND: u64 = 1 << 32;

/// Pause between two looks at how far the pass is; what its length is exact to.
const LOOK_EVERY: Duration = Duration::from_millis(2);

const PASS_MAX: Duration = Duration::from_secs(600);

/// What is read from the disk at once, as `dd iflag=direct bs=8M` does: enough for the kernel to have many
/// requests under way, which is what a disk is fast with.
const READ_LEN: usize = 8 << 20;

/// Where reads past the page cache may begin, in memory and in a file.
const ALIGNMENT: usize = 4096;

const MB: f64 = 1e6;

/// One pass without a limit over the folder with the longest log, then the same files read one after the
/// other past the page cache. Nothing where the system has no scrub.
pub(super) fn scrub(host: &Host, _: Shape, progress: &Progress) -> Result<Vec<Figure<'static>>> {
    if !host.system().is_ringkeeper() {
        return Ok(Vec::new());
    }
    host.restore(LONG_LOG)?;
    host.cool_down()?;
    let pass = pass(host, &mut Rate::new(Some(progress), "bytes"))?;
    host.kill();
    host.cool_down()?;
    let disk = read_folder(&host.data(), &mut Rate::new(Some(progress), "bytes"))?;
    Ok(vec![
        ("scrub without a limit", "MB/s", pass.read.rate()),
        ("the same files read by 8 MiB past the page cache", "MB/s", disk.rate()),
        ("scrub / such reads", "", pass.read.rate() / disk.rate()),
        ("CPU time of a scrub", "s/GB", pass.cpu.as_secs_f64() * 1e3 / pass.read.megabytes()),
        ("read by a scrub", "MB", pass.read.megabytes()),
    ])
}

/// So many bytes in such a time.
struct Reading {
    bytes: f64,
    elapsed: Duration,
}

impl Reading {
    fn megabytes(&self) -> f64 {
        self.bytes / MB
    }

    /// Megabytes a second.
    fn rate(&self) -> f64 {
        self.megabytes() / self.elapsed.as_secs_f64()
    }
}

struct Pass {
    read: Reading,
    cpu: Duration,
}

/// The server's first pass, from the first look that finds it going on to the first that finds it over.
fn pass(host: &Host, rate: &mut Rate<'_>) -> Result<Pass> {
    let settings = format!(
        "ringkeeper.scrubKbPerSecond={KB_PER_SECOND}\nringkeeper.scrubIntervalSeconds={}\n",
        AFTER.as_secs()
    );
    drop(host.start_with(NO_SNAPSHOTS, &settings)?);
    let deadline = Instant::now() + PASS_MAX;
    let look = || -> Result<(Instant, f64)> {
        interrupt::sleep_until(Instant::now() + LOOK_EVERY, || false)?;
        ensure!(Instant::now() < deadline, "no pass of the scrub within {} s", PASS_MAX.as_secs());
        Ok((Instant::now(), host.metric("zk_scrubbed_bytes")?))
    };
    let (began, already) = loop {
        let seen = look()?;
        if seen.1 > 0.0 {
            break seen;
        }
    };
    ensure!(
        host.metric("zk_scrub_passes")? < 1.0,
        "the pass was over at the first look: give it more --tree-znodes"
    );
    let processes = host.processes()?;
    let cpu_before = processes.cpu_time()?;
    while host.metric("zk_scrub_passes")? < 1.0 {
        rate.look(whole(look()?.1));
    }
    let (elapsed, bytes) = (began.elapsed(), host.metric("zk_scrubbed_bytes")? - already);
    Ok(Pass { read: Reading { bytes, elapsed }, cpu: processes.cpu_time()?.saturating_sub(cpu_before) })
}

/// A figure that is a whole number.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bytes on a disk")]
fn whole(figure: f64) -> u64 {
    figure as u64
}

/// Every file of a folder and those below it, one after the other.
fn read_folder(folder: &Path, rate: &mut Rate<'_>) -> Result<Reading> {
    let mut buffer = vec![0; READ_LEN + ALIGNMENT];
    let start = buffer.as_ptr().align_offset(ALIGNMENT);
    let (mut bytes, mut elapsed) = (0, Duration::ZERO);
    for file in files(folder)? {
        let context = || format!("reading {} past the page cache", file.display());
        let (read, took) = read_file(&file, &mut buffer[start..start + READ_LEN]).with_context(context)?;
        bytes += read;
        elapsed += took;
        rate.look(bytes);
        interrupt::check()?;
    }
    Ok(Reading { bytes: as_f64(bytes), elapsed })
}

fn read_file(path: &Path, buffer: &mut [u8]) -> io::Result<(u64, Duration)> {
    let flags = i32::try_from(OFlags::DIRECT.bits()).map_err(io::Error::other)?;
    let mut file = File::options().read(true).custom_flags(flags).open(path)?;
    let (started, mut bytes) = (Instant::now(), 0);
    loop {
        let read = file.read(buffer)?;
        bytes += read as u64;
        // The end of a file is the only place where a read is short, and nothing aligned comes after it.
        if read < buffer.len() {
            return Ok((bytes, started.elapsed()));
        }
    }
}

fn files(folder: &Path) -> Result<Vec<std::path::PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            files.extend(self::files(&entry.path())?);
        } else {
            files.push(entry.path());
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_of_every_file_is_read_past_the_page_cache() {
        // Beside the sources: a temporary folder may be on a file system that knows no such reads.
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        fs::create_dir(folder.path().join("below")).unwrap();
        fs::write(folder.path().join("one"), vec![1; READ_LEN + 5]).unwrap();
        fs::write(folder.path().join("below/two"), vec![2; 7]).unwrap();
        fs::write(folder.path().join("empty"), "").unwrap();
        let read = read_folder(folder.path(), &mut Rate::new(None, "bytes")).unwrap();
        assert_eq!(read.bytes, as_f64(READ_LEN as u64 + 5 + 7));
    }
}
