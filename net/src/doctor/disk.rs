//! The disks of data and log: what they are, how much room they have, how long a write takes until it lasts.

use std::fs::{self, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rustix::fs::{OFlags, major, minor, statfs, statvfs};

use super::Finding;
use crate::config::Config;

const CHECK: &str = "disk";

/// Writes that are timed, each of one block, for as long as `PATIENCE` lasts.
const WRITES: u32 = 200;
const BLOCK_BYTES: usize = 4096;
const PATIENCE: Duration = Duration::from_secs(5);

/// Longer times count as this one.
const LONGEST_US: u64 = 60_000_000;

/// Every hundredth write of a service waits longer than this: its clients notice.
const SLOW_US: u64 = 20_000;

/// No medium is quicker than this unless it only pretends to have written.
const PRETENDED_US: u64 = 15;

/// Segments of the log that have to fit, at least.
const SEGMENTS_MIN: u64 = 8;

/// File systems on which data does not last, or may not, by the numbers that statfs gives them.
const TMPFS: u64 = 0x0102_1994;
const RAMFS: u64 = 0x8584_58f6;
const OVERLAY: u64 = 0x794c_7630;
const NFS: u64 = 0x6969;
const SMB2: u64 = 0xfe53_4d42;
const FUSE: u64 = 0x6573_5546;

pub(super) fn check(config: &Config) -> impl Iterator<Item = Finding> {
    let mut folders = vec![config.data_dir.clone()];
    if config.log_dir() != config.data_dir {
        folders.push(config.log_dir().to_owned());
    }
    let room = config.segment_size_bytes.saturating_mul(SEGMENTS_MIN);
    folders.into_iter().flat_map(move |folder| match existing(&folder) {
        Ok(there) => {
            let findings = [kind(&there), space(&there, room), speed(&there)];
            findings
                .into_iter()
                .map(|finding| finding.unwrap_or_else(|error| unusable(&there, &error)))
                .collect()
        }
        Err(error) => vec![unusable(&folder, &error)],
    })
}

fn unusable(folder: &Path, error: &io::Error) -> Finding {
    let says = format!(
        "{}: {error}; make it writable for this user, or choose another with --data-dir (dataDir, dataLogDir)",
        folder.display()
    );
    Finding::failure(CHECK, says)
}

/// The folder, or the one in which a start would make it.
fn existing(folder: &Path) -> io::Result<PathBuf> {
    let absolute = std::path::absolute(folder)?;
    let there = absolute.ancestors().find(|ancestor| ancestor.exists());
    let there = there.ok_or(io::ErrorKind::NotFound)?;
    if there.is_dir() { Ok(there.to_owned()) } else { Err(io::ErrorKind::NotADirectory.into()) }
}

fn kind(folder: &Path) -> io::Result<Finding> {
    let shown = folder.display();
    #[expect(
        clippy::cast_sign_loss,
        clippy::cast_possible_truncation,
        reason = "a number of 32 bits, sign or not"
    )]
    let magic = u64::from(statfs(folder)?.f_type as u32);
    Ok(match magic {
        TMPFS | RAMFS => Finding::failure(
            CHECK,
            format!(
                "{shown} is in memory: what clients store is lost with the machine; choose a folder on a disk"
            ),
        ),
        OVERLAY => Finding::warning(
            CHECK,
            format!(
                "{shown} is a container's own layer, which goes with the container; mount a volume there"
            ),
        ),
        NFS | SMB2 | FUSE => Finding::warning(
            CHECK,
            format!(
                "{shown} is not on a disk of this machine; each write waits for the network; use a local disk"
            ),
        ),
        _ => Finding::fine(CHECK, format!("{shown} is on {}", device(folder)?)),
    })
}

/// The device of a folder, and whether it has a cache that forgets.
fn device(folder: &Path) -> io::Result<String> {
    let device = fs::metadata(folder)?.dev();
    let name = format!("/sys/dev/block/{}:{}", major(device), minor(device));
    // A partition is a folder inside its disk's.
    let disk = ["queue", "../queue"].iter().find_map(|queue| {
        let cache = fs::read_to_string(format!("{name}/{queue}/write_cache")).ok()?;
        Some(format!("a disk with {} cache", cache.trim()))
    });
    Ok(disk.unwrap_or_else(|| "a file system whose disk is not known".to_owned()))
}

fn space(folder: &Path, needed: u64) -> io::Result<Finding> {
    let space = statvfs(folder)?;
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    let says = format!("{} has {} MiB free", folder.display(), free >> 20);
    Ok(match free < needed {
        true => Finding::failure(
            CHECK,
            format!(
                "{says}, and the log alone needs {} MiB; make room, or choose another disk",
                needed >> 20
            ),
        ),
        false => Finding::fine(CHECK, says),
    })
}

/// Times writes that last when they return.
fn speed(folder: &Path) -> io::Result<Finding> {
    let path = folder.join(format!(".ringkeeper-doctor.{}", std::process::id()));
    let timed = time_writes(&path);
    let removed = fs::remove_file(&path);
    let times = timed?;
    removed?;
    let (half, most) = (times.value_at_quantile(0.5), times.value_at_quantile(0.99));
    let says = format!(
        "{}: a write of 4 KiB lasts after {half} us, 99 % after {most} us at most, {} writes",
        folder.display(),
        times.len()
    );
    Ok(if most > SLOW_US {
        Finding::warning(CHECK, format!("{says}: every write of a client waits for that; use a quicker disk"))
    } else if half < PRETENDED_US {
        let doubt = "no medium is so quick: a power failure may take what was acknowledged; unless the disk has a \
                     battery, see that it does not ignore flushes";
        Finding::warning(CHECK, format!("{says}: {doubt}"))
    } else {
        Finding::fine(CHECK, says)
    })
}

/// Writes as the log does: past the kernel's cache, into a file that has its length already.
fn time_writes(path: &Path) -> io::Result<Histogram<u64>> {
    let block = Block::new(0xa5);
    let open = |direct: OFlags| {
        let flags = (direct | OFlags::DSYNC).bits().cast_signed();
        OpenOptions::new().write(true).create(true).truncate(false).custom_flags(flags).open(path)
    };
    // Not every file system can do without the cache.
    let mut file = open(OFlags::DIRECT).or_else(|_| open(OFlags::empty()))?;
    for _ in 0..WRITES {
        file.write_all(block.bytes())?;
    }
    file.seek(SeekFrom::Start(0))?;
    let mut times = Histogram::new_with_bounds(1, LONGEST_US, 2).map_err(io::Error::other)?;
    let (block, began) = (Block::new(0x5a), Instant::now());
    for _ in 0..WRITES {
        let write_began = Instant::now();
        file.write_all(block.bytes())?;
        times.saturating_record(u64::try_from(write_began.elapsed().as_micros()).unwrap_or(u64::MAX));
        if began.elapsed() > PATIENCE {
            break;
        }
    }
    Ok(times)
}

/// A block at an address that the disk can read from.
struct Block {
    memory: Vec<u8>,
    start: usize,
}

impl Block {
    fn new(byte: u8) -> Self {
        let memory = vec![byte; 2 * BLOCK_BYTES];
        let start = memory.as_ptr().align_offset(BLOCK_BYTES);
        Self { memory, start }
    }

    fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + BLOCK_BYTES]
    }
}
