//! A crash at every operation of the disk, with what was not synced lost, kept or torn: after it, every
//! acknowledged frame is there, whole and in order; no frame that was cut off is back; what was under way is
//! there as a prefix or not at all. The same holds for a second crash after the log has gone on.

use futures_lite::future::{block_on, poll_once};
use proptest::prelude::*;
use ringkeeper_log::frame::{AlignedBuf, Checksum, LogPosition, Meta, encode};
use ringkeeper_log::memory::{CrashMode, Effect, Fault, MemoryDisk, MemoryStorage, OpKind, Unit};
use ringkeeper_log::storage::WriteMode;
use ringkeeper_log::wal::{Options, Wal};
use ringkeeper_log::{Identity, Recovered};
use ringkeeper_wire::{Epoch, Zxid};

type Log = Wal<MemoryStorage>;

fn options(write_mode: WriteMode) -> Options {
    let identity = Identity { owner: [7; 32], salt: 0xfeed_beef };
    Options {
        segment_size_bytes: 64 * 1024,
        write_size_bytes_max: 8192,
        write_mode,
        ..Options::new(identity)
    }
}

/// One thing done to a log.
#[derive(Clone, Debug)]
enum Step {
    /// Append frames with payloads of these lengths.
    Append(Vec<usize>),
    /// Cut off this many frames.
    Truncate(usize),
    /// Begin another epoch with the next frame.
    NewEpoch,
    /// Purge what precedes the last frames, this many kept.
    Purge(usize),
    Upkeep,
    Seal,
    /// Empty the log, as after a snapshot was received.
    Reset,
}

/// The frames a log has to hold, oldest first, and where they begin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Model {
    start: LogPosition,
    frames: Vec<LogPosition>,
    new_epoch: bool,
    /// Makes the payloads of two histories differ.
    made: u8,
}

impl Model {
    fn last(&self) -> LogPosition {
        self.frames.last().copied().unwrap_or(self.start)
    }

    fn next_zxid(&self) -> Zxid {
        let last = self.last().zxid;
        if self.new_epoch || last == Zxid::ZERO {
            Zxid::new(Epoch(last.epoch().0 + 1), 1)
        } else {
            Zxid(last.0 + 1)
        }
    }

    /// The next frame of the history, taken into the model.
    fn extend(&mut self, payload_len: usize) -> AlignedBuf {
        let zxid = self.next_zxid();
        let meta = Meta { epoch: zxid.epoch(), first_zxid: zxid, last_zxid: zxid };
        self.made = self.made.wrapping_add(1);
        let mut bytes = AlignedBuf::new();
        let payload = vec![self.made; payload_len];
        let checksum = encode(meta, &payload, self.last().checksum, &mut bytes).expect("fitting zxids");
        self.frames.push(LogPosition { zxid, checksum });
        self.new_epoch = false;
        bytes
    }
}

/// Applies a step to the model and to the log. Returns the states a crash in the middle may leave, the last
/// of them being the state after the step, and whether the log has finished it.
fn perform(wal: &mut Log, model: &Model, step: &Step) -> (Vec<Model>, bool) {
    let mut after = model.clone();
    let mut states = vec![model.clone()];
    let done = match step {
        Step::Append(lens) => {
            let mut frames = Vec::new();
            for len in lens {
                frames.push(after.extend(*len));
                states.push(after.clone());
            }
            block_on(poll_once(wal.append(&frames))).is_some_and(|result| result.is_ok())
        }
        Step::Truncate(count) => {
            after.frames.truncate(after.frames.len().saturating_sub(*count));
            if after.frames.len() < model.frames.len() {
                after.new_epoch = true;
            }
            let zxid = after.last().zxid.max(wal.after_zxid());
            after.frames = model.frames.iter().copied().filter(|frame| frame.zxid <= zxid).collect();
            states.push(after.clone());
            let cut = block_on(poll_once(wal.truncate_after(zxid)));
            cut.is_some_and(|result| result.is_ok())
        }
        Step::NewEpoch => {
            after.new_epoch = true;
            true
        }
        Step::Purge(kept) => {
            let at = model.frames.len().checked_sub(kept + 1);
            if let Some(frame) = at.and_then(|at| model.frames.get(at)) {
                wal.purge_before(frame.zxid);
            }
            true
        }
        Step::Upkeep => {
            let upkeep = wal.upkeep();
            block_on(poll_once(upkeep.settle())).map(|result| result.expect("a healthy disk")).is_some()
        }
        Step::Seal => block_on(poll_once(wal.seal())).map(|result| result.expect("a healthy disk")).is_some(),
        Step::Reset => {
            after.start = LogPosition {
                zxid: Zxid::new(Epoch(model.last().zxid.epoch().0 + 9), 5),
                checksum: Checksum(77),
            };
            after.frames.clear();
            states.push(after.clone());
            let reset = block_on(poll_once(wal.reset(after.start.zxid, after.start.checksum)));
            reset.map(|result| result.expect("a healthy disk")).is_some()
        }
    };
    states.push(after);
    (states, done)
}

fn open(disk: &MemoryDisk, mode: WriteMode) -> (Log, Recovered, Vec<LogPosition>) {
    let mut replayed = Vec::new();
    let opened = block_on(Wal::open(disk.storage(), options(mode), |frame| {
        replayed.push(LogPosition { zxid: frame.meta().last_zxid, checksum: frame.checksum() });
        Ok(())
    }));
    let (wal, recovered) = opened.expect("a crash is not corruption");
    (wal, recovered, replayed)
}

/// The first of `states` that is what was replayed: purging may have taken a part of its beginning.
fn recognize<'a>(states: &'a [Model], recovered: &Recovered, replayed: &[LogPosition]) -> Option<&'a Model> {
    states.iter().find(|state| {
        let rest: Vec<_> =
            state.frames.iter().copied().filter(|frame| frame.zxid > recovered.after.zxid).collect();
        rest == replayed && state.last() == recovered.last
    })
}

fn check_crash(disk: &MemoryDisk, mode: WriteMode, states: &[Model], purged_to: Zxid, what: &str) {
    let (mut wal, recovered, replayed) = open(disk, mode);
    let state = recognize(states, &recovered, &replayed);
    let state = state.unwrap_or_else(|| panic!("{what}: replayed {replayed:x?}\nallowed {states:x?}"));
    assert!(recovered.after.zxid <= purged_to.max(state.start.zxid), "{what}: too much was purged");

    // The log goes on where it is, and what was cut off at the first crash stays away after a second one.
    let mut model = state.clone();
    for step in [Step::Append(vec![10, 9000]), Step::Upkeep, Step::Append(vec![30_000])] {
        let (states, done) = perform(&mut wal, &model, &step);
        assert!(done);
        model = states.last().expect("never empty").clone();
        let disk = disk.fork();
        disk.crash(CrashMode::Tear { seed: 1 });
        let (_, recovered, replayed) = open(&disk, mode);
        assert!(recognize(&[model.clone()], &recovered, &replayed).is_some(), "{what}, then {step:?}");
    }
}

/// Runs the script with a power loss in the middle of operation number `halt`. Returns whether it came to
/// that.
fn run(script: &[Step], mode: WriteMode, halt: u64, seeds: std::ops::Range<u64>) -> bool {
    let disk = MemoryDisk::new();
    disk.halt_after(halt);
    let mut model = Model::default();
    let mut purged_to = Zxid::ZERO;
    let opened = block_on(poll_once(Wal::open(disk.storage(), options(mode), |_| Ok(()))));
    let mut states = vec![model.clone()];
    if let Some(opened) = opened {
        let (mut wal, _) = opened.expect("an empty folder");
        for step in script {
            let (possible, done) = perform(&mut wal, &model, step);
            purged_to = purged_to.max(wal.after_zxid());
            states = possible;
            if !done {
                break;
            }
            model = states.last().expect("never empty").clone();
            states = vec![model.clone()];
        }
    }
    let halted = disk.halted();
    let modes = [CrashMode::LoseUnsynced, CrashMode::KeepAll];
    for crash in modes.into_iter().chain(seeds.map(|seed| CrashMode::Tear { seed })) {
        let disk = disk.fork();
        disk.crash(crash);
        check_crash(&disk, mode, &states, purged_to, &format!("halt {halt}, {crash:?}"));
    }
    halted
}

fn thorough_script() -> Vec<Step> {
    vec![
        Step::Append(vec![100]),
        Step::Append(vec![5000, 10, 7000, 3000]),
        Step::Upkeep,
        Step::Append(vec![20_000, 20_000, 10, 15_000]),
        Step::Truncate(2),
        Step::Append(vec![4000, 4000, 4000]),
        Step::Seal,
        Step::Upkeep,
        Step::Append(vec![50_000, 10, 10]),
        Step::Purge(4),
        Step::Upkeep,
        Step::Truncate(100),
        Step::Append(vec![1, 2, 3]),
        Step::NewEpoch,
        Step::Append(vec![9000]),
        // Longer than a segment.
        Step::Append(vec![10, 100_000, 10]),
        Step::Reset,
        Step::Append(vec![10, 12_000]),
        Step::Upkeep,
    ]
}

#[test]
fn a_crash_at_any_operation_of_a_long_script_loses_nothing_acknowledged() {
    let script = thorough_script();
    for mode in [WriteMode::Synced, WriteMode::Through, WriteMode::Adaptive] {
        let mut halt = 0;
        while run(&script, mode, halt, 0..6) {
            halt += 1;
        }
        assert!(halt > 60, "only {halt} operations");
    }
}

#[test]
fn every_subset_of_the_blocks_of_an_unfinished_append_is_a_torn_tail() {
    // Three groups, since the frames together are longer than one write may be, and a frame that takes two
    // writes.
    let mode = WriteMode::Synced;
    let lens = [9000, 8000, 7000, 100];
    let disk = MemoryDisk::new();
    let (mut wal, ..) = open(&disk, mode);
    let mut model = Model::default();
    let (states, _) = perform(&mut wal, &model, &Step::Append(vec![700]));
    model = states.last().expect("never empty").clone();
    disk.halt_after(4);
    let (states, done) = perform(&mut wal, &model, &Step::Append(lens.to_vec()));
    assert!(!done);
    let mut blocks = std::collections::BTreeSet::new();
    disk.fork().crash_with(|unit| {
        if let Unit::Sector { offset, .. } = unit {
            blocks.insert(offset / 4096);
        }
        false
    });
    let blocks: Vec<u64> = blocks.into_iter().collect();
    assert_eq!(blocks.len(), 7, "{blocks:?}");
    for subset in 0..1_u32 << blocks.len() {
        let disk = disk.fork();
        disk.crash_with(|unit| match unit {
            Unit::Sector { offset, .. } => blocks
                .iter()
                .position(|block| *block == offset / 4096)
                .is_some_and(|nth| subset >> nth & 1 == 1),
            Unit::Length { .. } | Unit::Name(_) => true,
        });
        check_crash(&disk, mode, &states, Zxid::ZERO, &format!("blocks {subset:b}"));
    }
}

#[test]
#[should_panic(expected = "a lying disk: replayed")]
fn the_check_notices_a_disk_that_lies_about_a_sync() {
    let mode = WriteMode::Synced;
    let disk = MemoryDisk::new();
    let (mut wal, ..) = open(&disk, mode);
    disk.inject(Fault {
        kind: OpKind::Sync,
        prefix: "log".into(),
        skip: 0,
        times: 1,
        effect: Effect::Ignore,
    });
    let (states, done) = perform(&mut wal, &Model::default(), &Step::Append(vec![100]));
    assert!(done);
    disk.crash(CrashMode::LoseUnsynced);
    check_crash(&disk, mode, &states[states.len() - 1..], Zxid::ZERO, "a lying disk");
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => prop::collection::vec(prop_oneof![3 => 0..200_usize, 2 => 200..9000_usize, 1 => 9000..60_000_usize], 1..5)
            .prop_map(Step::Append),
        2 => (0..6_usize).prop_map(Step::Truncate),
        1 => Just(Step::NewEpoch),
        1 => (0..8_usize).prop_map(Step::Purge),
        2 => Just(Step::Upkeep),
        1 => Just(Step::Seal),
        1 => Just(Step::Reset),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::default())]

    #[test]
    fn a_crash_at_any_time_of_any_script_loses_nothing_acknowledged(
        script in prop::collection::vec(any_step(), 1..16),
        halt in 0..150_u64,
        seed in any::<u32>(),
        mode in prop::sample::select(vec![WriteMode::Synced, WriteMode::Through, WriteMode::Adaptive]),
    ) {
        let seed = u64::from(seed);
        run(&script, mode, halt, seed..seed + 3);
    }
}
