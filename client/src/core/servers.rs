//! In which order servers are tried, and with what pauses.

/// Pause after the first round of failures, in milliseconds, before jitter.
const PAUSE_MIN_MS: u64 = 50;
/// Longest pause, in milliseconds, before jitter.
const PAUSE_MAX_MS: u64 = 1_000;

/// A shuffled circle of servers. Shuffling spreads the clients of an ensemble; going round in one order
/// spreads those of a server that went down.
pub(super) struct Servers {
    order: Vec<usize>,
    next: usize,
    /// Dials since the last server that answered.
    failures: usize,
    rng: fastrand::Rng,
}

impl Servers {
    pub(super) fn new(count: usize, seed: u64) -> Self {
        assert!(count > 0, "a client needs a server");
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut order: Vec<usize> = (0..count).collect();
        rng.shuffle(&mut order);
        Self { order, next: 0, failures: 0, rng }
    }

    pub(super) const fn len(&self) -> usize {
        self.order.len()
    }

    /// The server to try.
    pub(super) fn current(&self) -> usize {
        self.order[self.next]
    }

    /// The one `steps` after it.
    pub(super) fn following(&self, steps: usize) -> usize {
        self.order[(self.next + steps) % self.order.len()]
    }

    /// Goes on to the next.
    pub(super) fn advance(&mut self) {
        self.next = (self.next + 1) % self.order.len();
    }

    /// Makes `server` the current one.
    pub(super) fn go_to(&mut self, server: usize) {
        if let Some(at) = self.order.iter().position(|other| *other == server) {
            self.next = at;
        }
    }

    /// The current server answered.
    pub(super) const fn answered(&mut self) {
        self.failures = 0;
    }

    /// The current server failed: goes on to the next. How long to pause first, in milliseconds: nothing
    /// inside a round, then twice as long with every round.
    pub(super) fn failed(&mut self) -> u64 {
        self.advance();
        self.failures += 1;
        if !self.failures.is_multiple_of(self.order.len()) {
            return 0;
        }
        let round = u32::try_from(self.failures / self.order.len()).unwrap_or(u32::MAX);
        let pause_ms = PAUSE_MIN_MS.saturating_mul(1 << round.min(6).saturating_sub(1)).min(PAUSE_MAX_MS);
        // Half of it is jitter, so that the clients of a server do not come back in step.
        pause_ms / 2 + self.rng.u64(..=pause_ms / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_server_has_its_turn_in_a_round() {
        let mut servers = Servers::new(5, 7);
        let mut tried: Vec<usize> = (0..5)
            .map(|_| {
                let server = servers.current();
                servers.advance();
                server
            })
            .collect();
        tried.sort_unstable();
        assert_eq!(tried, [0, 1, 2, 3, 4]);
    }

    #[test]
    fn pauses_come_after_a_round_and_grow_up_to_a_limit() {
        let mut servers = Servers::new(2, 7);
        assert_eq!(servers.failed(), 0);
        assert!((25..=50).contains(&servers.failed()));
        assert_eq!(servers.failed(), 0);
        assert!((50..=100).contains(&servers.failed()));
        let longest = (0..1000).map(|_| servers.failed()).max();
        assert!(longest <= Some(PAUSE_MAX_MS), "{longest:?}");
        servers.answered();
        assert_eq!(servers.failed(), 0);
    }
}
