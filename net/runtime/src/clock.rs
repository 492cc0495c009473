//! The only place of the shell that asks for the time.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ringkeeper_engine::replica::Now;
use rustix::time::{ClockId, clock_gettime};

/// Both clocks that the engine is told: a monotonic one for intervals, the wall clock for timestamps.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    started: Instant,
}

impl Clock {
    /// A clock that begins now.
    #[must_use]
    pub fn start() -> Self {
        Self { started: Instant::now() }
    }

    /// Time since the start.
    #[must_use]
    pub fn elapsed(self) -> Duration {
        self.started.elapsed()
    }

    /// Microseconds since the start.
    #[must_use]
    pub fn monotonic_us(self) -> u64 {
        u64::try_from(self.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// Milliseconds since the start.
    #[must_use]
    pub fn monotonic_ms(self) -> u64 {
        self.monotonic_us() / 1000
    }

    /// When it began by the wall clock of now, microseconds since the Unix epoch.
    #[must_use]
    pub fn began_unix_us(self) -> u64 {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(wall.saturating_sub(self.elapsed()).as_micros()).unwrap_or(u64::MAX)
    }

    /// Both times.
    #[must_use]
    pub fn now(self) -> Now {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Now {
            monotonic_ms: self.monotonic_ms(),
            wall_ms: i64::try_from(wall.as_millis()).unwrap_or(i64::MAX),
        }
    }
}

/// CPU time of this thread.
#[must_use]
pub fn thread_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let (seconds, nanoseconds) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Duration::new(seconds.unwrap_or(0), nanoseconds.unwrap_or(0))
}
