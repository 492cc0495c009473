#[cfg(feature = "hosted")]
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::core::Millis;

/// The one place where the client looks at a clock.
pub(super) enum Clock {
    /// A monotonic one, so that steps of the wall clock change nothing.
    System(Instant),
    /// What the host said last, in milliseconds.
    #[cfg(feature = "hosted")]
    Told(AtomicU64),
}

impl Clock {
    pub(super) fn start() -> Self {
        Self::System(Instant::now())
    }

    pub(super) fn now(&self) -> Millis {
        match self {
            Self::System(start) => Millis(u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX)),
            #[cfg(feature = "hosted")]
            Self::Told(ms) => Millis(ms.load(Ordering::Relaxed)),
        }
    }
}

#[cfg(feature = "hosted")]
impl Clock {
    /// One that goes on when it is told to.
    pub(super) const fn told(now: Millis) -> Self {
        Self::Told(AtomicU64::new(now.0))
    }

    /// It is `now`, unless it is later already.
    pub(super) fn tell(&self, now: Millis) {
        if let Self::Told(ms) = self {
            ms.fetch_max(now.0, Ordering::Relaxed);
        }
    }
}
