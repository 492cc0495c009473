//! Open-loop load: requests leave when they are due, whether or not earlier ones are answered, as the
//! requests of many independent clients do. Latency counts from when a request was due, so time that a server
//! keeps everybody waiting counts for everyone who would have come meanwhile (no coordinated omission).

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use anyhow::Result;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use crate::measure::as_f64;

/// The token of the alarm; sessions have small ones.
pub(crate) const ALARM: Token = Token(usize::MAX);

/// From this on, a request left late: the generator was not there when it should have been.
pub(crate) const LATE: Duration = Duration::from_millis(1);

/// How often requests come, alone or in bursts: independently of each other, at an average rate (a Poisson
/// process).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrivals {
    per_second: f64,
    burst: usize,
    seed: u64,
}

impl Arrivals {
    /// # Panics
    /// The rate is not above zero.
    pub(crate) fn new(per_second: f64, seed: u64) -> Self {
        assert!(per_second > 0.0, "{per_second} requests a second");
        Self { per_second, burst: 1, seed }
    }

    /// So many requests come at once, at the same average rate; at least one.
    pub(crate) fn in_bursts(self, burst: usize) -> Self {
        Self { burst: burst.max(1), ..self }
    }

    /// The same rate at other moments, for thread number `thread`.
    pub(crate) const fn of_thread(self, thread: u64) -> Self {
        Self { seed: self.seed.wrapping_add(thread), ..self }
    }
}

/// When the requests of one thread are due.
pub(crate) struct Dues {
    arrivals: Arrivals,
    rng: StdRng,
    next: Instant,
    /// Requests that are due at that moment.
    left: usize,
}

impl Dues {
    /// The first request is due now.
    pub(crate) fn new(arrivals: Arrivals) -> Self {
        let rng = StdRng::seed_from_u64(arrivals.seed);
        Self { arrivals, rng, next: Instant::now(), left: arrivals.burst }
    }

    /// When the next request is due.
    pub(crate) const fn next(&self) -> Instant {
        self.next
    }

    /// When the next request should have left, if that is not after `now`.
    pub(crate) fn take(&mut self, now: Instant) -> Option<Instant> {
        let due = self.next;
        if due > now {
            return None;
        }
        self.left -= 1;
        if self.left == 0 {
            let Arrivals { per_second, burst, .. } = self.arrivals;
            let pause = -(1.0 - self.rng.random::<f64>()).ln() * as_f64(burst as u64) / per_second;
            self.next = due + Duration::from_secs_f64(pause);
            self.left = burst;
        }
        Some(due)
    }
}

/// A timer of the kernel that a poll can wait for: the poll's own time-out counts in milliseconds.
pub(crate) struct Alarm(OwnedFd);

impl Alarm {
    /// One that is not set.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?))
    }

    /// Has it go off at `due`. Setting it again forgets that it went off.
    pub(crate) fn set(&self, due: Instant) -> Result<()> {
        // Zero would disarm the timer.
        let left = due.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1));
        let it_value = Timespec { tv_sec: left.as_secs().try_into()?, tv_nsec: left.subsec_nanos().into() };
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &Itimerspec { it_interval, it_value })?;
        Ok(())
    }
}

impl AsRawFd for Alarm {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// When the requests of one thread are due, and an alarm for the next of them.
pub(crate) struct Agenda {
    /// The session that the next request goes to.
    pub(crate) next_lane: usize,
    dues: Dues,
    alarm: Alarm,
}

impl Agenda {
    /// The first request is due now.
    pub(crate) fn new(arrivals: Arrivals, registry: &Registry) -> Result<Self> {
        let alarm = Alarm::new()?;
        registry.register(&mut SourceFd(&alarm.as_raw_fd()), ALARM, Interest::READABLE)?;
        Ok(Self { next_lane: 0, dues: Dues::new(arrivals), alarm })
    }

    /// When the next request should have left, if that is not after `now`.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<Instant> {
        self.dues.take(now)
    }

    /// Has the poll wake when the next request is due.
    pub(crate) fn set_alarm(&self) -> Result<()> {
        self.alarm.set(self.dues.next())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_come_at_the_rate_asked_for_alone_or_in_bursts() {
        for (burst, seconds) in [(1, 10), (100, 1000)] {
            let mut dues = Dues::new(Arrivals::new(1000.0, 7).in_bursts(burst));
            let end = dues.next() + Duration::from_secs(seconds);
            let (mut last, mut at_once, mut count) = (dues.next(), 0, 0);
            while let Some(due) = dues.take(end) {
                assert!(due >= last, "requests are due in order");
                at_once = if due == last { at_once + 1 } else { 1 };
                assert!(at_once <= burst, "{at_once} at once");
                last = due;
                count += 1;
            }
            let wanted = 1000 * seconds;
            assert!((wanted * 19 / 20..wanted * 21 / 20).contains(&count), "{count}");
        }
    }
}
