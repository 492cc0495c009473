//! A sequence of steps, and everything that a disk may do in its course.

use std::fmt;
use std::io;

use futures_lite::future::{block_on, poll_once};
use ringkeeper_log::memory::{CrashMode, Effect, Fault, MemoryDisk, OpKind};
use ringkeeper_log::storage::WriteMode;

use crate::folder::{Failure, Folder, Held, How, Model, Refusal, Step};

/// Steps to be looked at, and the ones that lead there.
pub(crate) struct Sequence {
    pub(crate) name: &'static str,
    pub(crate) before: &'static [Step],
    pub(crate) steps: &'static [Step],
    /// The folder has a reserve.
    pub(crate) reserve: bool,
}

/// What was looked at.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Power losses, and states that they may leave.
    points: u64,
    states: u64,
    /// States after a second power loss, in the middle of a recovery.
    again: u64,
    /// Operations that found the disk full, and how many of them ended the process.
    full: u64,
    full_ended: u64,
    /// Syncs that failed, and states afterwards.
    syncs: u64,
    syncs_states: u64,
    /// Sectors with a flipped bit, and how many of them were refused.
    rotten: u64,
    rotten_refused: u64,
    /// Writes that were lost or landed elsewhere, and how many of them were refused later.
    misplaced: u64,
    misplaced_refused: u64,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} crash states at {} power losses, ", self.states, self.points)?;
        write!(f, "{} more in recovery; ", self.again)?;
        write!(f, "{} full disks ({} ended the process); ", self.full, self.full_ended)?;
        write!(f, "{} failed syncs, {} states; ", self.syncs, self.syncs_states)?;
        write!(f, "{} rotten sectors ({} refused); ", self.rotten, self.rotten_refused)?;
        write!(f, "{} misplaced writes ({} refused)", self.misplaced, self.misplaced_refused)
    }
}

/// How far a sequence has come.
struct Run {
    disk: MemoryDisk,
    folder: Option<Folder>,
    /// What the folder holds after the steps that are done.
    model: Model,
    /// The step that is under way.
    under_way: Option<Step>,
    /// What the folder may hold while it is.
    allowed: Vec<Held>,
}

/// How a run of the steps has ended.
enum End {
    Done,
    Halted,
    /// At this step.
    Failed(usize, Failure),
    Refused,
}

impl Run {
    /// A disk on which the steps before have been carried out.
    fn new(sequence: &Sequence, how: How) -> Self {
        let disk = MemoryDisk::new();
        let model = Model::new();
        let mut run = Self { disk, folder: None, under_way: None, allowed: vec![model.held()], model };
        let starts = matches!(sequence.steps.first(), Some(Step::Start));
        if !starts {
            assert!(matches!(run.go(&[Step::Start], how), End::Done));
        }
        assert!(matches!(run.go(sequence.before, how), End::Done), "a healthy disk");
        run
    }

    fn go(&mut self, steps: &[Step], how: How) -> End {
        for (nth, step) in steps.iter().enumerate() {
            let outcomes = self.model.outcomes(*step);
            self.allowed = outcomes.iter().map(Model::held).collect();
            self.under_way = Some(*step);
            let performed = match (step, &mut self.folder) {
                (Step::Start, folder) => {
                    // Whoever had it open has ended.
                    *folder = None;
                    match block_on(poll_once(Folder::open(&self.disk, how))) {
                        None => None,
                        Some(Ok((opened, held))) => {
                            assert_eq!(held, self.model.held());
                            *folder = Some(opened);
                            Some(Ok(()))
                        }
                        Some(Err(_)) => return End::Refused,
                    }
                }
                (_, Some(folder)) => block_on(poll_once(folder.perform(&self.model, *step))),
                (_, None) => unreachable!("a sequence begins with a start"),
            };
            match performed {
                None => return End::Halted,
                Some(Err(failure)) => return End::Failed(nth, failure),
                Some(Ok(())) => {}
            }
            self.model = outcomes.last().expect("never empty").clone();
            self.allowed = vec![self.model.held()];
            self.under_way = None;
        }
        End::Done
    }

    /// The one of the possible models that was found.
    fn found(&self, held: Held) -> Model {
        let mut models = vec![self.model.clone()];
        models.extend(self.under_way.iter().flat_map(|step| self.model.outcomes(*step)));
        models.into_iter().find(|model| model.held() == held).expect("one of those allowed")
    }
}

fn open(disk: &MemoryDisk, how: How) -> Result<(Folder, Held), Refusal> {
    block_on(Folder::open(disk, how))
}

/// Opens a folder that no disk has damaged, and finds what is allowed.
fn recover(disk: &MemoryDisk, how: How, allowed: &[Held], what: &dyn fmt::Display) -> (Folder, Held) {
    let (folder, held) = open(disk, how).unwrap_or_else(|refusal| panic!("{what}: {refusal}"));
    assert!(allowed.contains(&held), "{what}: found {held:x?}\nallowed {allowed:x?}");
    (folder, held)
}

/// Looks at a sequence with all ways of writing, and prints what was looked at.
pub(crate) fn examine(sequence: &Sequence) {
    let mut counts = Counts::default();
    for mode in [WriteMode::Synced, WriteMode::Through, WriteMode::Adaptive] {
        let how = How { mode, reserve: sequence.reserve };
        let examination = Examination { sequence, how };
        examination.power_losses(&mut counts);
        examination.full_disks(&mut counts);
        examination.failed_syncs(&mut counts);
        examination.rot(&mut counts);
        examination.misplaced_writes(&mut counts);
    }
    println!("{}: {counts}", sequence.name);
}

struct Examination<'a> {
    sequence: &'a Sequence,
    how: How,
}

impl Examination<'_> {
    fn begin(&self) -> Run {
        Run::new(self.sequence, self.how)
    }

    fn go(&self, run: &mut Run) -> End {
        run.go(self.sequence.steps, self.how)
    }

    /// The power fails in the middle of every operation, and after the last.
    fn power_losses(&self, counts: &mut Counts) {
        for halt in 0.. {
            let mut run = self.begin();
            run.disk.halt_after_changes(halt);
            let end = self.go(&mut run);
            counts.points += 1;
            let what = format!("{}, {:?}, power loss {halt}", self.sequence.name, self.how.mode);
            run.disk.crash_states(|disk| {
                if tells_apart(disk) {
                    counts.states += 1;
                    counts.again += self.after_power_loss(disk, &run, &what);
                }
            });
            match end {
                End::Done => return,
                End::Halted => {}
                _ => panic!("{what}: a healthy disk"),
            }
        }
    }

    /// One state that a power loss has left: it is recovered, also if the power fails again meanwhile, and
    /// the server goes on. The number of states after the second power loss.
    fn after_power_loss(&self, disk: &MemoryDisk, run: &Run, what: &str) -> u64 {
        let mut again = 0;
        for halt in 0.. {
            let second = disk.fork();
            second.halt_after_changes(halt);
            if block_on(poll_once(Folder::open(&second, self.how))).is_some() {
                break;
            }
            let what = format!("{what}, and again in recovery, at {halt}");
            second.crash_states(|disk| {
                if tells_apart(disk) {
                    again += 1;
                    recover(disk, self.how, &run.allowed, &what);
                }
            });
        }
        let (mut folder, held) = recover(disk, self.how, &run.allowed, &what);
        self.goes_on(disk, &mut folder, run, held, what);
        again
    }

    /// The server goes on from what it has found, and what it has then is there after another power loss.
    fn goes_on(&self, disk: &MemoryDisk, folder: &mut Folder, run: &Run, held: Held, what: &str) {
        let model = run.found(held);
        let step = Step::Append(&[10]);
        let after = model.outcomes(step).last().expect("never empty").held();
        block_on(folder.perform(&model, step)).unwrap_or_else(|error| panic!("{what}, going on: {error:?}"));
        disk.crash(CrashMode::LoseUnsynced);
        recover(disk, self.how, &[after], &format_args!("{what}, and on"));
    }

    /// Every operation that needs room finds none: once, or until the server has noticed.
    fn full_disks(&self, counts: &mut Counts) {
        for kind in [OpKind::Create, OpKind::Allocate, OpKind::Write, OpKind::Rename] {
            for times in [1, u64::MAX] {
                let mut skip = 0;
                while self.full_disk(Fault { kind, prefix: String::new(), skip, times, effect: FULL }, counts)
                {
                    skip += 1;
                    counts.full += 1;
                }
            }
        }
    }

    /// Whether the disk was full at any time.
    fn full_disk(&self, fault: Fault, counts: &mut Counts) -> bool {
        let what = format!("{}, {:?}, {fault:?}", self.sequence.name, self.how.mode);
        let mut run = self.begin();
        run.disk.inject(fault);
        let mut rest = self.sequence.steps;
        let struck = loop {
            match run.go(rest, self.how) {
                End::Done => break run.disk.struck(),
                End::Failed(nth, Failure::Full | Failure::Damaged) => {
                    run.disk.clear_faults();
                    rest = &rest[nth..];
                }
                End::Refused => {
                    counts.full_ended += 1;
                    self.after_end(&run, &what);
                    return true;
                }
                End::Failed(_, Failure::Ends(reason)) => {
                    counts.full_ended += 1;
                    self.after_end(&run, &format!("{what}, {reason}"));
                    return true;
                }
                End::Halted => unreachable!("the power is on"),
            }
        };
        self.after_end(&run, &what);
        struck > 0
    }

    /// The process has ended. What it has promised is there, whether or not the machine goes down as well; so
    /// is what the next process finds and takes for durable. The number of states that were looked at.
    fn after_end(&self, run: &Run, what: &str) -> u64 {
        let disk = run.disk.fork();
        disk.end_process();
        let (_, held) = recover(&disk, self.how, &run.allowed, &format_args!("{what}, restarted"));
        let mut states = 0;
        disk.crash_states(|disk| {
            if tells_apart(disk) {
                states += 1;
                recover(disk, self.how, &[held], &format_args!("{what}, restarted, power loss"));
            }
        });
        run.disk.crash_states(|disk| {
            if tells_apart(disk) {
                states += 1;
                recover(disk, self.how, &run.allowed, &format_args!("{what}, power loss"));
            }
        });
        states
    }

    /// Every sync fails and gives up what it was to write.
    fn failed_syncs(&self, counts: &mut Counts) {
        for kind in [OpKind::Sync, OpKind::SyncDir] {
            for cached in [false, true] {
                for skip in 0.. {
                    // Of a folder it is only known that it has failed.
                    let effect = Effect::Drop { cached };
                    let fault = Fault { kind, prefix: String::new(), skip, times: 1, effect };
                    let what = format!("{}, {:?}, {fault:?}", self.sequence.name, self.how.mode);
                    let mut run = self.begin();
                    run.disk.inject(fault);
                    match self.go(&mut run) {
                        End::Done if run.disk.struck() == 0 => break,
                        End::Refused | End::Failed(_, Failure::Ends(_)) => {}
                        End::Done => panic!("{what}: the process goes on"),
                        End::Failed(_, failure) => panic!("{what}: {failure:?}"),
                        End::Halted => unreachable!("the power is on"),
                    }
                    counts.syncs += 1;
                    counts.syncs_states += self.after_end(&run, &what);
                }
            }
        }
    }

    /// The sequence is done and the log sealed, all of it durable.
    fn settled(&self, run: &mut Run) {
        let end = self.go(run);
        assert!(matches!(end, End::Done));
        assert!(matches!(run.go(&[Step::Seal], self.how), End::Done));
        run.disk.crash(CrashMode::KeepAll);
    }

    /// One bit flips in every sector.
    fn rot(&self, counts: &mut Counts) {
        let mut run = self.begin();
        self.settled(&mut run);
        for name in run.disk.names() {
            let len = run.disk.contents(&name).expect("listed").len() as u64;
            for sector in 0..len / 512 {
                // Beginnings of sectors are where headers lie; the others are drawn from all over them.
                for within in [0, 17, sector * 89 % 512] {
                    let disk = run.disk.fork();
                    assert!(disk.rot(&name, sector * 512 + within, 1 << (sector % 8)));
                    counts.rotten += 1;
                    let what =
                        format!("{}, a bit in {name} at {}", self.sequence.name, sector * 512 + within);
                    if let Err(refusal) = self.sound_or_refused(&disk, &run, &what) {
                        counts.rotten_refused += 1;
                        let refusal = refusal.to_string();
                        assert!(refusal.contains(&name), "{what}: {refusal}");
                        // Whole frames are checked, so the place is where these begin.
                        let place = refusal.split_once("offset ").and_then(|(_, rest)| {
                            rest.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u64>().ok()
                        });
                        let at_or_before = place.is_some_and(|place| place <= sector * 512 + within);
                        assert!(at_or_before || name == "meta", "{what}: {refusal}");
                    }
                }
            }
        }
    }

    /// Opens a damaged folder: it is refused, or holds exactly what it held.
    fn sound_or_refused(&self, disk: &MemoryDisk, run: &Run, what: &str) -> Result<(), Refusal> {
        let (_, held) = open(disk, self.how)?;
        assert!(run.allowed.contains(&held), "{what}: found {held:x?}\nallowed {:x?}", run.allowed);
        Ok(())
    }

    /// Every write is lost, or lands elsewhere in its file.
    fn misplaced_writes(&self, counts: &mut Counts) {
        let effects = [1, 2, 5].map(|blocks| Effect::Misdirect { blocks });
        for effect in [Effect::Ignore].into_iter().chain(effects) {
            for skip in 0.. {
                let fault = Fault { kind: OpKind::Write, prefix: String::new(), skip, times: 1, effect };
                let what = format!("{}, {:?}, {fault:?}", self.sequence.name, self.how.mode);
                let mut run = self.begin();
                run.disk.inject(fault);
                let end = self.go(&mut run);
                if run.disk.struck() == 0 {
                    break;
                }
                counts.misplaced += 1;
                match end {
                    End::Done => {}
                    // Noticed at once.
                    End::Refused | End::Failed(_, Failure::Damaged) => continue,
                    _ => panic!("{what}: noticed late"),
                }
                // Something more is written afterwards, as in every life of a server.
                assert!(matches!(run.go(&[Step::Append(&[10]), Step::Seal], self.how), End::Done));
                run.disk.crash(CrashMode::LoseUnsynced);
                let refused = self.sound_or_refused(&run.disk, &run, &what).is_err();
                counts.misplaced_refused += u64::from(refused);
            }
        }
    }
}

/// Nobody reads the reserve: of the lengths it may have, two are looked at.
fn tells_apart(disk: &MemoryDisk) -> bool {
    disk.contents("reserve").is_none_or(|reserve| reserve.is_empty() || reserve.len() == 64 * 4096)
}

const FULL: Effect = Effect::Fail(io::ErrorKind::StorageFull);
