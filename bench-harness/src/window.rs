//! A window of load: threads that generate it, and what is looked at from its beginning to its end.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use ringkeeper_testkit::interrupt;

use crate::cores;
use crate::driver::Schedule;
use crate::generators::Generators;
use crate::machine::{Machine, MachineUse};
use crate::measure::{Measurement, as_f64};
use crate::server_cpu::ServerProcesses;
use crate::session::{self, Session};

/// How often a spectator is told the rate.
const TOLD_EVERY: Duration = Duration::from_millis(500);

/// Somebody who watches while a window lasts.
pub(crate) trait Spectator {
    /// So much of something is done, and it goes on at this rate just now.
    fn told(&self, of: &str, so_far: u64, per_second: f64);
}

/// Tells a spectator now and then how much of something is done, and how fast it goes on.
pub(crate) struct Rate<'s> {
    spectator: Option<&'s dyn Spectator>,
    of: &'static str,
    /// When the spectator was told last, and how much was done then.
    at: Instant,
    told: u64,
}

impl<'s> Rate<'s> {
    /// Of what has not begun yet.
    pub(crate) fn new(spectator: Option<&'s dyn Spectator>, of: &'static str) -> Self {
        Self { spectator, of, at: Instant::now(), told: 0 }
    }

    /// So much is done by now. To be called often.
    pub(crate) fn look(&mut self, so_far: u64) {
        let elapsed = self.at.elapsed();
        if elapsed < TOLD_EVERY {
            return;
        }
        if let Some(spectator) = self.spectator {
            let per_second = as_f64(so_far.saturating_sub(self.told)) / elapsed.as_secs_f64();
            spectator.told(self.of, so_far, per_second);
        }
        (self.at, self.told) = (Instant::now(), so_far);
    }
}

/// Who stands around a load.
#[derive(Clone, Copy, Default)]
pub(crate) struct Surroundings<'s> {
    /// The servers, where they can be seen.
    pub(crate) processes: Option<&'s ServerProcesses>,
    /// Generators of load on other machines, whose windows are the same.
    pub(crate) generators: Option<&'s Generators>,
    pub(crate) spectator: Option<&'s dyn Spectator>,
}

impl<'s> Surroundings<'s> {
    /// Nobody but who watches.
    pub(crate) const fn spectator(spectator: &'s dyn Spectator) -> Self {
        Self { processes: None, generators: None, spectator: Some(spectator) }
    }

    /// A number of this generator's own, to be mixed into what decides by chance.
    pub(crate) fn seed(&self) -> u64 {
        self.generators.map_or(0, Generators::seed)
    }

    /// Waits until all generators are here.
    pub(crate) fn begin_together(&self) -> Result<()> {
        self.begin_with(&mut [])
    }

    /// The same, keeping `sessions` alive meanwhile.
    pub(crate) fn begin_with(&self, sessions: &mut [Session]) -> Result<()> {
        let Some(generators) = self.generators else { return Ok(()) };
        let mut pinged = Instant::now();
        generators.begin_together(|| {
            if pinged.elapsed() >= session::IDLE_MAX {
                session::ping_all(sessions)?;
                pinged = Instant::now();
            }
            Ok(())
        })
    }

    /// What all generators have measured; of one that keeps no results, what it has measured itself.
    pub(crate) fn end_together(&self, own: Measurement) -> Result<Measurement> {
        match self.generators {
            None => Ok(own),
            Some(generators) => generators.end_together(own),
        }
    }
}

/// What the servers and the machine did inside the window.
pub(crate) struct Seen {
    /// User and system time.
    pub(crate) server_cpu: Option<Duration>,
    pub(crate) machine: MachineUse,
}

/// Runs every piece of `work` on a thread of its own, on a core of its own where there are enough of them.
/// Each adds to the counter that it is given how many replies have come.
pub(crate) fn on_threads<T: Send, W: FnOnce(&AtomicU64) -> Result<T> + Send>(
    work: Vec<W>,
    schedule: Schedule,
    around: Surroundings<'_>,
) -> Result<(Vec<T>, Seen)> {
    let counters: Vec<AtomicU64> = work.iter().map(|_| AtomicU64::new(0)).collect();
    let cpu_time = || around.processes.map(ServerProcesses::cpu_time).transpose();
    thread::scope(|scope| {
        let workers: Vec<_> = work
            .into_iter()
            .zip(&counters)
            .enumerate()
            .map(|(index, (work, counter))| {
                scope.spawn(move || {
                    cores::take(index);
                    work(counter)
                })
            })
            .collect();
        let ended = || workers.iter().any(thread::ScopedJoinHandle::is_finished);
        let mut meter = Meter::new(&counters, around);
        meter.watch_until(schedule.from, ended)?;
        let (cpu_at_from, machine_at_from) = (cpu_time()?, Machine::now(around.processes));
        meter.watch_until(schedule.to, ended)?;
        let (cpu_at_to, machine_at_to) = (cpu_time()?, Machine::now(around.processes));
        let all_ended = || workers.iter().all(thread::ScopedJoinHandle::is_finished);
        while !all_ended() {
            // What is outstanding is awaited, which may take another while.
            meter.watch_until(Instant::now() + TOLD_EVERY, all_ended)?;
        }
        let join = |worker: thread::ScopedJoinHandle<'_, Result<T>>| {
            worker.join().map_err(|_| anyhow!("a load thread panicked"))?
        };
        let done = workers.into_iter().map(join).collect::<Result<_>>()?;
        let server_cpu = cpu_at_to.zip(cpu_at_from).map(|(to, from)| to.saturating_sub(from));
        Ok((done, Seen { server_cpu, machine: machine_at_to.since(&machine_at_from) }))
    })
}

/// Replies a second, of all threads, for a spectator.
pub(crate) struct Meter<'c> {
    counters: &'c [AtomicU64],
    rate: Rate<'c>,
    generators: Option<&'c Generators>,
}

impl<'c> Meter<'c> {
    /// One that adds up these.
    pub(crate) fn new(counters: &'c [AtomicU64], around: Surroundings<'c>) -> Self {
        let rate = Rate::new(around.spectator, "operations");
        Self { counters, rate, generators: around.generators }
    }

    /// Waits until `deadline`, or until `ended` says that there is nothing to wait for.
    ///
    /// # Errors
    /// The user has asked to stop.
    pub(crate) fn watch_until(&mut self, deadline: Instant, ended: impl Fn() -> bool) -> Result<()> {
        while Instant::now() < deadline && !ended() {
            interrupt::sleep_until(deadline.min(self.rate.at + TOLD_EVERY), &ended)?;
            self.rate.look(self.counters.iter().map(|counter| counter.load(Ordering::Relaxed)).sum());
            self.generators.map_or(Ok(()), Generators::keep_alive)?;
        }
        interrupt::check()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    struct Listener(RefCell<Vec<f64>>);

    impl Spectator for Listener {
        fn told(&self, _: &str, _: u64, per_second: f64) {
            self.0.borrow_mut().push(per_second);
        }
    }

    #[test]
    fn a_spectator_hears_the_rate_of_all_threads_while_the_window_lasts() {
        let listener = Listener(RefCell::default());
        let around = Surroundings { spectator: Some(&listener), ..Surroundings::default() };
        let now = Instant::now();
        let schedule = Schedule { outstanding: 1, from: now, to: now + TOLD_EVERY * 3, arrivals: None };
        let work = |replies: &AtomicU64| {
            replies.store(1_000_000, Ordering::Relaxed);
            interrupt::sleep_until(schedule.to, || false)
        };
        on_threads(vec![work, work], schedule, around).unwrap();
        let rates = listener.0.into_inner();
        assert!(rates.len() >= 2, "{rates:?}");
        assert!(rates[0] > 0.0 && rates[1] == 0.0, "{rates:?}");
    }
}
