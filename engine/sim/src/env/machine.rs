//! A machine: its disk, its clocks, and the program that runs on it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use ringkeeper_engine::replica::Now;
use ringkeeper_log::memory::{MemoryDisk, OpKind};

use super::executor::{Executor, Process};

/// Wall clocks begin here, milliseconds since the Unix epoch.
const WALL_START_MS: i64 = 1_700_000_000_000;
/// An operation that does not wait for the medium takes less than this.
const CACHED_US: u64 = 30;

/// A machine, which outlives the processes on it.
pub(crate) struct Machine {
    /// Its number in the network.
    pub(super) number: usize,
    pub(super) executor: Executor,
    disk: RefCell<MemoryDisk>,
    /// Error of its wall clock, milliseconds.
    clock_error_ms: Cell<i64>,
    /// How fast its clocks run, per mille.
    clock_rate: u64,
    /// The longest time that the medium takes.
    medium_us: Cell<u64>,
    /// Writes wait for the medium, not only syncs.
    writes_through: bool,
    process: RefCell<Option<Rc<Process>>>,
}

/// Properties of a machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hardware {
    /// Error of its wall clock, milliseconds.
    pub(crate) clock_error_ms: i64,
    /// How fast its clocks run, per mille.
    pub(crate) clock_rate: u64,
    /// The longest time that the medium takes.
    pub(crate) medium_us: u64,
    /// Writes wait for the medium, not only syncs.
    pub(crate) writes_through: bool,
}

impl Machine {
    pub(super) fn new(executor: &Executor, number: usize, hardware: Hardware) -> Rc<Self> {
        Rc::new(Self {
            number,
            executor: executor.clone(),
            disk: RefCell::new(MemoryDisk::new()),
            clock_error_ms: Cell::new(hardware.clock_error_ms),
            clock_rate: hardware.clock_rate,
            medium_us: Cell::new(hardware.medium_us),
            writes_through: hardware.writes_through,
            process: RefCell::new(None),
        })
    }

    pub(crate) fn disk(&self) -> MemoryDisk {
        self.disk.borrow().clone()
    }

    /// Puts another disk in. For a machine on which nothing runs.
    pub(crate) fn replace_disk(&self, disk: MemoryDisk) {
        self.disk.replace(disk);
    }

    /// How long the medium takes from now on, at most.
    pub(crate) fn set_medium_us(&self, medium_us: u64) {
        self.medium_us.set(medium_us);
    }

    /// The wall clock is set.
    pub(crate) fn jump_clock(&self, by_ms: i64) {
        self.clock_error_ms.set(self.clock_error_ms.get() + by_ms);
    }

    pub(crate) fn now(&self) -> Now {
        let monotonic_ms = self.elapsed_us() / 1000;
        Now { monotonic_ms, wall_ms: WALL_START_MS + monotonic_ms.cast_signed() + self.clock_error_ms.get() }
    }

    /// Time since the beginning of the run on its own monotonic clock.
    pub(super) fn elapsed_us(&self) -> u64 {
        self.executor.now_us() * self.clock_rate / 1000
    }

    /// The real duration of `us` on its clock.
    pub(super) const fn real_us(&self, us: u64) -> u64 {
        us.saturating_mul(1000).div_ceil(self.clock_rate)
    }

    /// The program that runs on it.
    pub(crate) fn process(&self) -> Option<Rc<Process>> {
        self.process.borrow().clone()
    }

    /// A new process on it, of whose disk operations each takes its time.
    pub(super) fn begin(self: &Rc<Self>) -> Rc<Process> {
        let disk = self.disk();
        disk.hold(true);
        let machine = Rc::clone(self);
        let process = self.executor.begin(move || machine.time_operations(&disk));
        let before = self.process.replace(Some(Rc::clone(&process)));
        assert!(before.is_none(), "machine {} runs a process already", self.number);
        process
    }

    pub(super) fn end(&self) -> Option<Rc<Process>> {
        let process = self.process.take()?;
        self.executor.end(&process);
        Some(process)
    }

    fn time_operations(&self, disk: &MemoryDisk) {
        for (operation, kind) in disk.take_newly_held() {
            let delay_us = self.operation_us(kind);
            let disk = disk.clone();
            self.executor.call_after(delay_us, move || disk.release(operation));
        }
    }

    fn operation_us(&self, kind: OpKind) -> u64 {
        let forced = match kind {
            OpKind::Sync | OpKind::SyncDir => true,
            OpKind::Write => self.writes_through,
            _ => false,
        };
        let max = self.medium_us.get();
        self.executor.draw(|random| match forced {
            true => random.between(max / 10, max),
            false => random.below(CACHED_US),
        })
    }
}
