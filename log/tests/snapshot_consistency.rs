//! A crash at every operation of the disk while snapshots are written, kept, purged behind, and received:
//! after it, a sound snapshot is there from which the log goes on without a gap, and it holds what was there
//! before or after the step that was under way.

use futures_lite::future::{block_on, poll_once};
use ringkeeper_log::Identity;
use ringkeeper_log::frame::LogPosition;
use ringkeeper_log::frame::{AlignedBuf, Checksum, Meta, encode};
use ringkeeper_log::memory::{CrashMode, Effect, Fault, MemoryDisk, MemoryStorage, OpKind};
use ringkeeper_log::snapshot::{Contents, Head, SnapshotError, Snapshots};
use ringkeeper_log::wal::{Options, Wal};
use ringkeeper_wire::{ServerId, Zxid};

const RETAINED: usize = 2;

fn options() -> Options {
    let identity = Identity { owner: [7; 32], salt: 0xfeed_beef };
    Options { segment_size_bytes: 64 * 1024, write_size_bytes_max: 8192, ..Options::new(identity) }
}

/// The history of a server: the sum of all payloads stands for its state.
struct Server {
    wal: Wal<MemoryStorage>,
    snapshots: Snapshots<MemoryStorage>,
    sum: u64,
}

fn head(at: LogPosition) -> Head {
    Head { zxid: at.zxid, chain: at.checksum, cluster: 5, state_version: 1 }
}

fn number(payload: &[u8]) -> u64 {
    u64::from_le_bytes(*payload.first_chunk().expect("a number"))
}

impl Server {
    /// What a start does: the newest sound snapshot, and the log after it.
    async fn open(disk: &MemoryDisk) -> Self {
        let opened = Wal::open(disk.storage(), options(), |_| Ok(())).await;
        let (wal, _) = opened.expect("a crash is not corruption");
        let snapshots = Snapshots::new(disk.storage());
        snapshots.settle(wal.base()).await.expect("a healthy disk");
        let (mut sum, mut zxid) = (0, Zxid::ZERO);
        for candidate in snapshots.list().await.expect("a healthy disk") {
            match Self::load(&snapshots, candidate).await {
                Ok(found) => {
                    (sum, zxid) = (found, candidate);
                    break;
                }
                Err(error) => assert!(error.is_damage(), "{error}"),
            }
        }
        assert!(zxid >= wal.base().zxid, "the log begins after {:?}, the state ends at {zxid}", wal.base());
        assert!(zxid <= wal.last().zxid, "the log ends with {:?}, the state at {zxid}", wal.last());
        if zxid < wal.last().zxid {
            let mut reader = wal.read_from(Zxid(zxid.0 + 1)).expect("not purged");
            while let Some(frame) = reader.next().await.expect("sound") {
                assert_eq!(frame.meta().first_zxid, Zxid(zxid.0 + 1));
                zxid = frame.meta().last_zxid;
                sum += number(frame.payload());
            }
        }
        Self { wal, snapshots, sum }
    }

    async fn load(snapshots: &Snapshots<MemoryStorage>, zxid: Zxid) -> Result<u64, SnapshotError> {
        let mut reader = snapshots.open(zxid).await?;
        let mut sum = 0;
        while let Some(block) = reader.next().await? {
            sum += number(block);
        }
        assert_eq!(sum, reader.contents().digest);
        Ok(sum)
    }

    async fn append(&mut self, len: usize) {
        let zxid = Zxid(self.wal.last().zxid.0 + 1);
        let meta = Meta { epoch: zxid.epoch(), first_zxid: zxid, last_zxid: zxid };
        let mut payload = vec![0; len];
        payload[..8].copy_from_slice(&zxid.0.to_le_bytes());
        let mut frame = AlignedBuf::new();
        encode(meta, &payload, self.wal.last().checksum, &mut frame).expect("fitting zxids");
        self.wal.append(&[frame]).await.expect("a healthy disk");
        self.sum += zxid.0;
    }

    /// A snapshot of all of the log, in blocks of which the last is what is missing from the sum.
    async fn snapshot(&self) -> Result<(), SnapshotError> {
        let mut writer = self.snapshots.begin(head(self.wal.last())).await?;
        let parts = [self.sum / 3, 0, self.sum - self.sum / 3];
        for part in parts {
            let mut block = vec![0; 5000];
            block[..8].copy_from_slice(&part.to_le_bytes());
            writer.block(&block).await?;
        }
        writer.finish(Contents { items: 3, digest: self.sum }).await?;
        Ok(())
    }

    async fn purge(&mut self) {
        let oldest = self.snapshots.retain(RETAINED).await.expect("a healthy disk");
        self.wal.purge_before(oldest.unwrap_or(Zxid::ZERO));
        self.wal.upkeep().settle().await.expect("a healthy disk");
    }

    /// Takes the snapshot of another server in place of everything.
    async fn install(&mut self, bytes: &[u8], at: LogPosition, sum: u64) {
        let mut incoming = self.snapshots.receive(ServerId(9), at).await.expect("a healthy disk");
        for (number, piece) in (0..).zip(bytes.chunks(8192)) {
            incoming.piece(number * 8192, piece).await.expect("a healthy disk");
        }
        let found = incoming.finish(at.zxid, |head| head.chain == at.checksum).await.expect("sound");
        assert_eq!(found, head(at));
        self.wal.reset(at.zxid, at.checksum).await.expect("a healthy disk");
        self.snapshots.install(at.zxid).await.expect("a healthy disk");
        self.wal.upkeep().settle().await.expect("a healthy disk");
        self.sum = sum;
    }
}

/// Another server's snapshot: its bytes, where it ends and what it holds.
fn foreign(zxid: u64) -> (Vec<u8>, LogPosition, u64) {
    let disk = MemoryDisk::new();
    let at = LogPosition { zxid: Zxid(zxid), checksum: Checksum(77) };
    let sum = 1_000_000 + zxid;
    block_on(async {
        let mut writer = Snapshots::new(disk.storage()).begin(head(at)).await.expect("a healthy disk");
        writer.block(&sum.to_le_bytes()).await.expect("a healthy disk");
        writer.finish(Contents { items: 1, digest: sum }).await.expect("a healthy disk");
    });
    let name = disk.contents(&ringkeeper_log::snapshot::file_name(Zxid(zxid))).expect("is there");
    (name, at, sum)
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Append(usize),
    Snapshot,
    Purge,
    /// Receive a snapshot that ends at this zxid, which may be before the log's end: the rest was never
    /// committed.
    Install(u64),
}

const SCRIPT: &[Step] = &[
    Step::Append(100),
    Step::Append(40_000),
    Step::Snapshot,
    Step::Append(30_000),
    Step::Append(30_000),
    Step::Snapshot,
    Step::Append(50_000),
    Step::Purge,
    Step::Append(50_000),
    Step::Snapshot,
    Step::Purge,
    Step::Append(9000),
    Step::Append(9000),
    // What the snapshots hold is committed, so no other one ends before them; the log may go on after it.
    Step::Install(7),
    Step::Append(10),
    Step::Append(50_000),
    Step::Snapshot,
    Step::Install(100),
    Step::Append(20_000),
    Step::Append(50_000),
    Step::Snapshot,
    Step::Purge,
];

async fn perform(server: &mut Server, step: Step) {
    match step {
        Step::Append(len) => server.append(len).await,
        Step::Snapshot => server.snapshot().await.expect("a healthy disk"),
        Step::Purge => server.purge().await,
        Step::Install(zxid) => {
            let (bytes, at, sum) = foreign(zxid);
            server.install(&bytes, at, sum).await;
        }
    }
}

/// The sum and the end of the log after each step, the beginning first.
fn expected() -> Vec<(u64, Zxid)> {
    let disk = MemoryDisk::new();
    block_on(async {
        let mut server = Server::open(&disk).await;
        let mut states = vec![(0, Zxid::ZERO)];
        for step in SCRIPT {
            perform(&mut server, *step).await;
            states.push((server.sum, server.wal.last().zxid));
        }
        states
    })
}

/// Runs the script with a power loss in operation number `halt`; whether it came to that.
fn run(states: &[(u64, Zxid)], halt: u64) -> bool {
    let disk = MemoryDisk::new();
    disk.halt_after(halt);
    let mut done = 0;
    if let Some(mut server) = block_on(poll_once(Server::open(&disk))) {
        for step in SCRIPT {
            if block_on(poll_once(perform(&mut server, *step))).is_none() {
                break;
            }
            done += 1;
        }
    }
    let halted = disk.halted();
    let modes = [CrashMode::LoseUnsynced, CrashMode::KeepAll];
    for crash in modes.into_iter().chain((0..6).map(|seed| CrashMode::Tear { seed })) {
        let disk = disk.fork();
        disk.crash(crash);
        let what = format!("halt {halt}, {crash:?}, in {:?}", SCRIPT.get(done));
        block_on(async {
            let server = Server::open(&disk).await;
            let found = (server.sum, server.wal.last().zxid);
            let allowed = &states[done..states.len().min(done + 2)];
            assert!(allowed.contains(&found), "{what}: {found:?}, allowed {allowed:?}");
        });
        // Nothing of what recovery did depends on its coming to an end.
        let second = disk.fork();
        second.halt_after(3);
        let _ = block_on(poll_once(Server::open(&second)));
        second.crash(CrashMode::Tear { seed: 9 });
        let server = block_on(Server::open(&second));
        assert!(states[done..].contains(&(server.sum, server.wal.last().zxid)), "{what}, and again");
        // The server goes on.
        let mut server = block_on(Server::open(&disk));
        let before = server.sum;
        block_on(async {
            server.append(60_000).await;
            server.snapshot().await.expect("a healthy disk");
            server.purge().await;
        });
        let sum = server.sum;
        assert!(sum > before);
        disk.crash(CrashMode::LoseUnsynced);
        assert_eq!(block_on(Server::open(&disk)).sum, sum, "{what}, and on");
    }
    halted
}

#[test]
fn a_crash_at_any_operation_leaves_a_snapshot_and_the_log_after_it() {
    let states = expected();
    let mut halt = 0;
    while run(&states, halt) {
        halt += 1;
    }
    println!("{} crash states", 3 * 8 * (halt + 1));
    assert!(halt > 100, "only {halt} operations");
}

#[test]
fn the_log_reaches_back_to_the_oldest_snapshot_kept() {
    block_on(async {
        let disk = MemoryDisk::new();
        let mut server = Server::open(&disk).await;
        for _ in 0..6 {
            server.append(60_000).await;
            server.append(60_000).await;
            server.snapshot().await.expect("a healthy disk");
            server.purge().await;
        }
        assert!(server.wal.base().zxid > Zxid::ZERO, "something was purged");
        let (sum, newest) = (server.sum, server.wal.last().zxid);
        drop(server);
        disk.crash(CrashMode::KeepAll);
        assert!(disk.rot(&ringkeeper_log::snapshot::file_name(newest), 5000, 1));
        assert_eq!(Server::open(&disk).await.sum, sum, "from the older one");
    });
}

#[test]
fn a_full_disk_leaves_no_part_of_a_snapshot_and_the_log_is_as_it_was() {
    block_on(async {
        let disk = MemoryDisk::new();
        let mut server = Server::open(&disk).await;
        server.append(100).await;
        disk.set_capacity_bytes(Some(70_000));
        let mut writer = server.snapshots.begin(head(server.wal.last())).await.expect("room for a name");
        let failed = writer.block(&vec![1; 300_000]).await.expect_err("no room");
        assert!(matches!(failed, SnapshotError::NoSpace { .. }), "{failed}");
        writer.abandon().await;
        disk.set_capacity_bytes(None);
        server.snapshot().await.expect("room again");
        assert_eq!(server.snapshots.list().await.expect("a healthy disk").len(), 1);
    });
}

#[test]
#[should_panic(expected = "the log ends with")]
fn the_check_notices_a_disk_that_lies_about_a_sync() {
    let states = expected();
    let disk = MemoryDisk::new();
    block_on(async {
        let mut server = Server::open(&disk).await;
        disk.inject(Fault {
            kind: OpKind::Sync,
            prefix: "log".into(),
            skip: 1,
            times: u64::MAX,
            effect: Effect::Ignore,
        });
        for step in &SCRIPT[..5] {
            perform(&mut server, *step).await;
        }
        disk.crash(CrashMode::LoseUnsynced);
        let server = Server::open(&disk).await;
        let found = (server.sum, server.wal.last().zxid);
        assert!(states[5..6].contains(&found), "{found:?}, allowed {:?}", states[5]);
    });
}
