use std::time::Instant;

use crate::core::Millis;

/// The one place where the client looks at a clock: a monotonic one, so that steps of the wall clock
/// change nothing.
pub(super) struct Clock(Instant);

impl Clock {
    pub(super) fn start() -> Self {
        Self(Instant::now())
    }

    pub(super) fn now(&self) -> Millis {
        Millis(u64::try_from(self.0.elapsed().as_millis()).unwrap_or(u64::MAX))
    }
}
