//! `append/records_1k/BATCH`: durable appends of batches of 1 KiB records, against the least the machine can
//! do: one thread that writes the same bytes with pwrite, O_DIRECT, into a file filled with zeros, and calls
//! fdatasync.
//!
//! The ways take turns, [`TURN`] commits each, so that a noisy machine treats them alike (single commits in
//! turn would not: one flush of the device's cache spares the next one work). Columns: microseconds of the
//! baseline, then each way as a multiple of it (10th and 50th percentile), and its CPU time for a commit.
//!
//! `cargo bench -p ringkeeper-runtime` works in the current folder's file system.

use std::fs::{File, OpenOptions};
use std::future::Future;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use ringkeeper_log::Identity;
use ringkeeper_log::frame::LogPosition;
use ringkeeper_log::frame::{AlignedBuf, Meta, encode};
use ringkeeper_log::storage::{BLOCK_LEN, WriteMode};
use ringkeeper_log::wal::{Options, Wal};
use ringkeeper_runtime::reactor::Executor;
use ringkeeper_runtime::reactor::storage::RingStorage;
use ringkeeper_wire::{Epoch, Zxid};
use rkyv::util::AlignedVec;
use rustix::fs::OFlags;
use rustix::time::{ClockId, clock_gettime};

const RECORD_LEN: usize = 1024;
/// Records in a batch, and how many batches are measured.
const CASES: [(usize, usize); 4] = [(1, 1000), (10, 1000), (100, 500), (1000, 100)];

/// Commits in a row of the same way.
const TURN: usize = 20;

/// Zeros written before the baseline starts.
const RAW_FILE_LEN: usize = 256 * 1024 * 1024;

fn main() {
    Executor::new("log").expect("io_uring is available").run(async {
        let folder = tempfile::tempdir_in(".").expect("a writable folder");
        println!(
            "batch  baseline us p10/p50 (cpu)    fdatasync p10/p50 (cpu us)    O_DSYNC p10/p50 (cpu us)"
        );
        for (batch, commits) in CASES {
            measure(folder.path(), batch, commits).await;
        }
    });
}

async fn measure(folder: &Path, batch: usize, commits: usize) {
    let mut raw = Raw::new(&folder.join(format!("raw{batch}")));
    let mut synced = Log::new(&folder.join(format!("synced{batch}")), WriteMode::Synced).await;
    let mut through = Log::new(&folder.join(format!("through{batch}")), WriteMode::Through).await;
    let mut costs = [Costs::default(), Costs::default(), Costs::default()];
    for _ in 0..commits / TURN {
        for _ in 0..TURN {
            costs[0].add(async { raw.commit(batch) }).await;
        }
        for (log, costs) in [&mut synced, &mut through].into_iter().zip(&mut costs[1..]) {
            for _ in 0..TURN {
                let frame = log.frame(batch);
                costs.add(log.wal.append(&[frame])).await;
            }
        }
        // Outside of the measured time, as beside a log of a real server.
        synced.wal.upkeep().settle().await.expect("a working disk");
        through.wal.upkeep().settle().await.expect("a working disk");
    }
    let [base, synced, through] = costs.map(Costs::summary);
    let against = |cost: Summary| {
        format!("{:5.2} /{:5.2} ({:6.1})", cost.p10 / base.p10, cost.p50 / base.p50, cost.cpu)
    };
    let baseline = format!("{:7.1} /{:7.1} ({:6.1})", base.p10, base.p50, base.cpu);
    println!("{batch:5}  {baseline}     {}        {}", against(synced), against(through));
}

/// What commits took.
#[derive(Default)]
struct Costs {
    times: Vec<Duration>,
    cpu: Duration,
}

#[derive(Clone, Copy)]
struct Summary {
    p10: f64,
    p50: f64,
    cpu: f64,
}

impl Costs {
    async fn add<T>(&mut self, commit: impl Future<Output = T>) {
        let (start, cpu) = (Instant::now(), cpu_time());
        commit.await;
        self.times.push(start.elapsed());
        self.cpu += cpu_time().saturating_sub(cpu);
    }

    /// In microseconds.
    fn summary(mut self) -> Summary {
        self.times.sort_unstable();
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        let at = |percent: usize| micros(self.times[self.times.len() * percent / 100]);
        let cpu = self.cpu / u32::try_from(self.times.len()).expect("few commits");
        Summary { p10: at(10), p50: at(50), cpu: micros(cpu) }
    }
}

/// Of all threads of this process.
fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).expect("less than a second"))
}

/// The baseline.
struct Raw {
    file: File,
    bytes: AlignedVec<BLOCK_LEN>,
    offset: u64,
}

impl Raw {
    fn new(path: &Path) -> Self {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).custom_flags(OFlags::DIRECT.bits().cast_signed());
        let file = options.open(path).expect("a file system with direct I/O");
        let mut zeros = AlignedVec::<BLOCK_LEN>::new();
        zeros.resize(1 << 20, 0);
        for at in 0..RAW_FILE_LEN >> 20 {
            file.write_all_at(&zeros, (at as u64) << 20).expect("room for the file");
        }
        file.sync_all().expect("a working disk");
        Self { file, bytes: AlignedVec::new(), offset: 0 }
    }

    fn commit(&mut self, batch: usize) {
        let len = (batch * RECORD_LEN + 128).next_multiple_of(BLOCK_LEN);
        if self.offset + len as u64 > RAW_FILE_LEN as u64 {
            self.offset = 0;
        }
        self.bytes.resize(len, 7);
        self.file.write_all_at(&self.bytes, self.offset).expect("a working disk");
        self.file.sync_data().expect("a working disk");
        self.offset += len as u64;
    }
}

struct Log {
    wal: Wal<RingStorage>,
    next: LogPosition,
    payload: Vec<u8>,
}

impl Log {
    async fn new(folder: &Path, write_mode: WriteMode) -> Self {
        std::fs::create_dir(folder).expect("a writable folder");
        let storage = RingStorage::open(folder).await.expect("a writable folder");
        let options = Options { write_mode, ..Options::new(Identity { owner: [0; 32], salt: 1 }) };
        let (wal, _) = Wal::open(storage, options, |_| Ok(())).await.expect("an empty folder");
        Self { wal, next: LogPosition::default(), payload: Vec::new() }
    }

    /// A frame with the next batch; encoding it is the leader's work and not measured here.
    fn frame(&mut self, batch: usize) -> AlignedBuf {
        let first_zxid = Zxid(self.next.zxid.0.max(1 << 32) + 1);
        let last_zxid = Zxid(first_zxid.0 + batch as u64 - 1);
        self.payload.resize(batch * RECORD_LEN, 7);
        let mut frame = AlignedBuf::new();
        let meta = Meta { epoch: Epoch(1), first_zxid, last_zxid };
        let checksum = encode(meta, &self.payload, self.next.checksum, &mut frame).expect("fitting zxids");
        self.next = LogPosition { zxid: last_zxid, checksum };
        frame
    }
}
