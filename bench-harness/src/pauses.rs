//! When the machine stood still: a host that runs many virtual machines stops one of them now and then, all its processors
//! at once, for milliseconds. Nothing inside runs meanwhile, and nobody is told; what was due comes late from any server.
//!
//! On each core a thread that comes before everything else there (`SCHED_FIFO`) sleeps and looks how late it wakes. Late
//! on one core says little: the kernel may have been busy on it, for a server even. Late on all of them at the same time
//! is nobody's doing in here.

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
        let now = Instant::now();
        if now.saturating_duration_since(due) >= KEPT_FROM {
            pauses.lock().unwrap_or_else(PoisonError::into_inner).push(Pause { from: due, to: now });
        }
    }
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
    fn a_core_that_is_watched_tells_when_it_was_late() {
        // Where this user may not have it, there is nothing to see.
        if watch().is_err() {
            return;
        }
        let from = Instant::now();
        thread::sleep(LOOK_EVERY * 20);
        let to = Instant::now();
        let longest = longest(from, to).expect("somebody watches");
        assert!(longest <= to - from, "{longest:?}");
        let lates: usize = CORES.get().map_or(0, |cores| {
            cores.iter().map(|core| core.lock().unwrap_or_else(PoisonError::into_inner).len()).sum()
        });
        assert!(lates < 1000, "{lates} in {:?}: a look that is in time is no pause", to - from);
    }
}
