//! Times in which this server was off the CPU: its process or its host was paused, or busy with others. An
//! executor sees such a time when a timer is late and its thread did not use the CPU meanwhile. A timer
//! that is late since the server itself was busy is no pause.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ringkeeper_engine::slow::Pause;
use ringkeeper_runtime::clock::thread_cpu_time;

use super::clock::Clock;
use super::reactor;

/// How often each executor looks, and so the delay with which it sees a pause.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Shorter ones are not told from the usual lateness of timers.
const PAUSE_MIN: Duration = Duration::from_millis(20);

/// Pauses that are kept.
const KEPT_MAX: usize = 64;

/// A line of the log is written so often at most.
const TOLD_EVERY: Duration = Duration::from_secs(10);

/// The last pauses.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pauses {
    kept: Arc<Mutex<Kept>>,
    /// A pause as long as a slow request is logged; zero: none is.
    slow_request: Duration,
}

#[derive(Debug, Default)]
struct Kept {
    /// Oldest first.
    pauses: VecDeque<Pause>,
    told_at: Option<Duration>,
    /// Those that were as long and not logged since then.
    untold: u64,
}

impl Pauses {
    /// None yet. Those that take as long as a slow request are logged.
    pub(crate) fn new(slow_request_ms: u64) -> Self {
        Self { slow_request: Duration::from_millis(slow_request_ms), ..Self::default() }
    }

    /// Watches this executor, for as long as it runs.
    pub(crate) async fn watch(self, clock: Clock) {
        loop {
            let (began, used) = (clock.elapsed(), thread_cpu_time());
            reactor::sleep(LOOK_EVERY).await;
            let (now, used) = (clock.elapsed(), thread_cpu_time().saturating_sub(used));
            let off_cpu = (now - began).saturating_sub(LOOK_EVERY + used);
            if off_cpu >= PAUSE_MIN {
                let (before, after) = self.add(now - off_cpu, now);
                self.tell(before, after, now);
            }
        }
    }

    /// Adds a pause, of which another executor may have told a part already: how long that part is, and how
    /// long the whole.
    fn add(&self, from: Duration, until: Duration) -> (Duration, Duration) {
        let us = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let mut pause = Pause { from_us: us(from), until_us: us(until) };
        let pauses = &mut self.kept.lock().unwrap_or_else(PoisonError::into_inner).pauses;
        let known = pauses.pop_back_if(|last| last.until_us >= pause.from_us);
        if let Some(last) = known {
            pause.from_us = pause.from_us.min(last.from_us);
            pause.until_us = pause.until_us.max(last.until_us);
        } else if pauses.len() == KEPT_MAX {
            pauses.pop_front();
        }
        pauses.push_back(pause);
        let length = |pause: Pause| Duration::from_micros(pause.until_us - pause.from_us);
        (known.map(length).unwrap_or_default(), length(pause))
    }

    /// Logs a pause once it is found to be as long as a slow request. Returns whether it did.
    fn tell(&self, before: Duration, after: Duration, now: Duration) -> bool {
        if self.slow_request.is_zero() || before >= self.slow_request || after < self.slow_request {
            return false;
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.told_at.is_some_and(|told| now < told + TOLD_EVERY) {
            kept.untold += 1;
            return false;
        }
        kept.told_at = Some(now);
        let (total_ms, untold) = (after.as_millis(), std::mem::take(&mut kept.untold));
        tracing::warn!(code = "RK0212", total_ms, untold, "this server was off the CPU");
        true
    }

    /// The last ones, oldest first.
    pub(crate) fn list(&self) -> Vec<Pause> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).pauses.iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_logged_once_it_is_as_long_as_a_slow_request_and_not_every_one() {
        let pauses = Pauses::new(100);
        let ms = Duration::from_millis;
        let told = [(0, 90, 1000), (90, 130, 1001), (130, 140, 1002), (0, 300, 2000), (0, 200, 11_001)]
            .map(|(before, after, now)| pauses.tell(ms(before), ms(after), ms(now)));
        assert_eq!(told, [false, true, false, false, true]);
        assert!(!Pauses::new(0).tell(ms(0), ms(500), ms(1)), "no request is slow");
    }

    #[test]
    fn a_pause_that_several_executors_see_is_one() {
        let pauses = Pauses::default();
        let ms = Duration::from_millis;
        let told = [(100, 200), (90, 180), (300, 400)].map(|(from, until)| pauses.add(ms(from), ms(until)));
        assert_eq!(told, [(ms(0), ms(100)), (ms(100), ms(110)), (ms(0), ms(100))]);
        let [first, second] = pauses.list()[..] else { panic!("two pauses") };
        assert_eq!((first.from_us, first.until_us, second.from_us), (90_000, 200_000, 300_000));
    }
}
