//! Times in which this server was off the CPU: its process or its host was paused, or busy with others. An
//! executor sees such a time when a timer is late and its thread did not use the CPU meanwhile. A timer
//! that is late since the server itself was busy is no pause.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ringkeeper_engine::slow::Pause;
use ringkeeper_runtime::clock::thread_cpu_time;

use super::clock::Clock;

/// How often each executor looks, and so the delay with which it sees a pause.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Shorter ones are not told from the usual lateness of timers.
const PAUSE_MIN: Duration = Duration::from_millis(20);

/// Pauses that are kept.
const KEPT_MAX: usize = 64;

/// The last pauses, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pauses(Arc<Mutex<VecDeque<Pause>>>);

impl Pauses {
    /// Watches this executor, for as long as it runs.
    pub(crate) async fn watch(self, clock: Clock) {
        loop {
            let (began, used) = (clock.elapsed(), thread_cpu_time());
            glommio::timer::sleep(LOOK_EVERY).await;
            let (now, used) = (clock.elapsed(), thread_cpu_time().saturating_sub(used));
            let off_cpu = (now - began).saturating_sub(LOOK_EVERY + used);
            if off_cpu >= PAUSE_MIN {
                self.add(now - off_cpu, now);
            }
        }
    }

    /// Adds a pause, of which another executor may have told already.
    fn add(&self, from: Duration, until: Duration) {
        let us = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let mut pause = Pause { from_us: us(from), until_us: us(until) };
        let mut pauses = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = pauses.pop_back_if(|last| last.until_us >= pause.from_us) {
            pause.from_us = pause.from_us.min(last.from_us);
            pause.until_us = pause.until_us.max(last.until_us);
        } else if pauses.len() == KEPT_MAX {
            pauses.pop_front();
        }
        pauses.push_back(pause);
    }

    /// The last ones.
    pub(crate) fn list(&self) -> Vec<Pause> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_that_several_executors_see_is_one() {
        let pauses = Pauses::default();
        let ms = Duration::from_millis;
        pauses.add(ms(100), ms(200));
        pauses.add(ms(90), ms(180));
        pauses.add(ms(300), ms(400));
        let [first, second] = pauses.list()[..] else { panic!("two pauses") };
        assert_eq!((first.from_us, first.until_us, second.from_us), (90_000, 200_000, 300_000));
    }
}
