//! A rate limiter for log lines that clients and peers cause.

use std::cell::Cell;

/// By default: lines that may be written at once, and the time after which another one is allowed.
const LINES_MAX: u64 = 10;
const REFILL_MS: u64 = 1000;

/// A token bucket of log lines, so that misbehaving clients and peers cannot fill the log.
#[derive(Debug)]
pub struct RateLimiter {
    lines_max: u64,
    refill_ms: u64,
    lines: Cell<u64>,
    refilled_ms: Cell<u64>,
    suppressed: Cell<u64>,
}

impl Default for RateLimiter {
    fn default() -> Self {
        Self::new(LINES_MAX, REFILL_MS)
    }
}

impl RateLimiter {
    /// Allows `lines_max` lines at once, and another one after each `refill_ms`.
    #[must_use]
    pub const fn new(lines_max: u64, refill_ms: u64) -> Self {
        let (lines, refilled_ms, suppressed) = (Cell::new(lines_max), Cell::new(0), Cell::new(0));
        Self { lines_max, refill_ms, lines, refilled_ms, suppressed }
    }

    /// Whether a line may be written now. Before the first one after a gap, logs how many were suppressed.
    #[must_use]
    pub fn admit(&self, now_ms: u64) -> bool {
        let refill = now_ms.saturating_sub(self.refilled_ms.get()) / self.refill_ms;
        if refill > 0 {
            self.lines.set((self.lines.get() + refill).min(self.lines_max));
            self.refilled_ms.set(self.refilled_ms.get() + refill * self.refill_ms);
        }
        if self.lines.get() == 0 {
            self.suppressed.set(self.suppressed.get() + 1);
            return false;
        }
        self.lines.set(self.lines.get() - 1);
        let suppressed = self.suppressed.replace(0);
        if suppressed > 0 {
            tracing::info!(suppressed, "lines of the following kind were suppressed");
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_lines_is_cut_and_comes_back_with_time() {
        let limiter = RateLimiter::default();
        let admitted = (0..1000).filter(|_| limiter.admit(5000)).count();
        assert_eq!(admitted as u64, LINES_MAX);
        assert!(limiter.admit(6000));
        assert!(!limiter.admit(6000));
    }
}
