//! When the machine stood still: a host that runs many virtual machines stops one of them now and then, all
//! its processors at once, for milliseconds. Nothing inside runs meanwhile, and nobody is told; what was due
//! comes late from any server.
//!
//! On each core a thread that comes before everything else there (`SCHED_FIFO`) sleeps and looks how late it
//! wakes. Late on one core says little: the kernel may have been busy on it, for a server even. Late on all
//! of them at the same time is nobody's doing in here.

use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use thread_priority::{
    RealtimeThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy, set_thread_priority_and_policy,
    thread_native_id,
};

use crate::cores;

/// How often a core is looked at. A pause that begins just after a look is seen this much shorter.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// From this on a core was late, and the pause is kept.
const KEPT_FROM: Duration = Duration::from_millis(1);

static CORES: OnceLock<Vec<Core>> = OnceLock::new();

/// The pauses of one core so far.
type Core = Arc<Mutex<Vec<Pause>>>;

/// From when a look was due until it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pause {
    from: Instant,
    to: Instant,
}

impl Pause {
    /// What both have in common, if anything.
    fn and(self, other: Self) -> Option<Self> {
        let both = Self { from: self.from.max(other.from), to: self.to.min(other.to) };
        (both.from < both.to).then_some(both)
    }
}

/// Looks at all cores that this process may run on from now on.
///
/// # Errors
/// Threads may not come before others here (`CAP_SYS_NICE`, `RLIMIT_RTPRIO`).
pub(crate) fn watch() -> Result<()> {
    let mut watched = Vec::new();
    for core in cores::allowed()? {
        let pauses = Core::default();
        let (begun, begins) = mpsc::channel();
        let seen = Arc::clone(&pauses);
        thread::Builder::new().name(format!("pauses-{core}")).spawn(move || look(core, &begun, &seen))?;
        begins.recv().context("the thread that looks at a core")??;
        watched.push(pauses);
    }
    // A second watch would see the same.
    let _ = CORES.set(watched);
    Ok(())
}

/// The longest time between two moments for which all cores stood still together; none if nobody watches.
pub(crate) fn longest(from: Instant, to: Instant) -> Option<Duration> {
    let window = vec![Pause { from, to }];
    let common = CORES
        .get()?
        .iter()
        .fold(window, |common, core| together(&common, &core.lock().unwrap_or_else(PoisonError::into_inner)));
    Some(common.iter().map(|pause| pause.to - pause.from).max().unwrap_or_default())
}

/// What pauses of one core and pauses of another have in common.
fn together(ones: &[Pause], others: &[Pause]) -> Vec<Pause> {
    ones.iter().flat_map(|one| others.iter().filter_map(|other| one.and(*other))).collect()
}

/// Looks at `core` for as long as the process lives.
fn look(core: usize, begun: &Sender<Result<()>>, pauses: &Mutex<Vec<Pause>>) {
    let ahead = cores::keep_to(&[core]).and_then(|()| come_first());
    let goes_on = ahead.is_ok();
    if begun.send(ahead).is_err() || !goes_on {
        return;
    }
    loop {
        let due = Instant::now() + LOOK_EVERY;
        thread::sleep(LOOK_EVERY);
        if let Some(pause) = late(due, Instant::now()) {
            pauses.lock().unwrap_or_else(PoisonError::into_inner).push(pause);
        }
    }
}

/// The pause in which a look that was due at one moment and came at another was late, if it was.
fn late(due: Instant, came: Instant) -> Option<Pause> {
    (came.saturating_duration_since(due) >= KEPT_FROM).then_some(Pause { from: due, to: came })
}

/// Has the calling thread run as soon as it can, whatever else wants its core.
fn come_first() -> Result<()> {
    let policy = ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::Fifo);
    set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, policy)
        .map_err(|error| anyhow!("asking for real-time priority: {error:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_all_cores_sleep_through_together_is_a_pause_of_the_machine() {
        let begin = Instant::now();
        let pause = |from, to| Pause {
            from: begin + Duration::from_millis(from),
            to: begin + Duration::from_millis(to),
        };
        let one = [pause(0, 4), pause(10, 20), pause(30, 32)];
        let other = [pause(4, 8), pause(12, 25), pause(31, 40)];
        assert_eq!(together(&one, &other), [pause(12, 20), pause(31, 32)]);
        assert_eq!(together(&[pause(0, 15)], &together(&one, &other)), [pause(12, 15)]);
        assert_eq!(together(&one, &[]), []);
    }

    #[test]
    fn a_look_that_comes_in_time_is_no_pause() {
        let due = Instant::now();
        assert_eq!(late(due, due), None);
        assert_eq!(late(due, due + KEPT_FROM / 2), None);
        assert_eq!(late(due, due + KEPT_FROM), Some(Pause { from: due, to: due + KEPT_FROM }));
    }

    #[test]
    fn a_pause_counts_as_far_as_it_lies_in_the_window() {
        // Where this user may not have the priority, nothing is watched.
        let watched = watch().is_ok();
        let from = Instant::now();
        let to = from + LOOK_EVERY;
        let all_late = Pause { from: from - LOOK_EVERY * 5, to: to + LOOK_EVERY * 5 };
        for core in CORES.get().into_iter().flatten() {
            core.lock().unwrap_or_else(PoisonError::into_inner).push(all_late);
        }
        assert_eq!(longest(from, to), watched.then_some(LOOK_EVERY));
    }
}
