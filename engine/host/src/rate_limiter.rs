//! How often others can make the server write a line to its log.

use std::cell::Cell;

/// Lines at once, and after how long each of them comes back.
const LINES_MAX: u64 = 10;
const REFILL_MS: u64 = 1000;

/// A token bucket of log lines: what others do wrong is told, but never faster than an operator can read.
#[derive(Debug)]
pub struct RateLimiter {
    lines: Cell<u64>,
    refilled_ms: Cell<u64>,
    suppressed: Cell<u64>,
}

impl Default for RateLimiter {
    fn default() -> Self {
        Self { lines: Cell::new(LINES_MAX), refilled_ms: Cell::new(0), suppressed: Cell::new(0) }
    }
}

impl RateLimiter {
    /// Whether a line may be written now; says how many were not since the last one.
    #[must_use]
    pub fn admit(&self, now_ms: u64) -> bool {
        let refill = now_ms.saturating_sub(self.refilled_ms.get()) / REFILL_MS;
        if refill > 0 {
            self.lines.set((self.lines.get() + refill).min(LINES_MAX));
            self.refilled_ms.set(self.refilled_ms.get() + refill * REFILL_MS);
        }
        if self.lines.get() == 0 {
            self.suppressed.set(self.suppressed.get() + 1);
            return false;
        }
        self.lines.set(self.lines.get() - 1);
        let suppressed = self.suppressed.replace(0);
        if suppressed > 0 {
            tracing::info!(suppressed, "more of the following kind were not logged");
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
