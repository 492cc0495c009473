//! ZooKeeper's throttle of sessions (`connection_throttle_*`), off by default: a token bucket, and a share of
//! the clients that is refused at random while the bucket keeps running empty.
//!
//! Each client that asks for a session costs tokens, which flow back at a constant rate. A client without
//! tokens is disconnected and tries another server. The bucket alone favours those who come first after each
//! refill; the random share ("BLUE: A New Class of Active Queue Management Algorithms") does not.

use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use crate::message::{ConnId, Submission, Submitted};
use crate::metrics::Totals;

/// Settings of the throttle, with ZooKeeper's meaning and defaults.
#[derive(Clone, Debug, PartialEq)]
pub struct ConnectionThrottleSettings {
    /// Tokens of a full bucket; 0: there is no throttle (`connection_throttle_tokens`).
    pub tokens: u32,
    /// Every so many milliseconds (`connection_throttle_fill_time`), at least 1.
    pub fill_time_ms: u32,
    /// so many tokens flow back (`connection_throttle_fill_count`).
    pub fill_count: u32,
    /// How often the random share is adjusted, in milliseconds; `None`: there is none
    /// (`connection_throttle_freeze_time`).
    pub freeze_time_ms: Option<u32>,
    /// What the share, 0 to 1, grows by if the bucket is empty (`connection_throttle_drop_increase`).
    pub drop_increase: f64,
    /// What it shrinks by (`connection_throttle_drop_decrease`)
    pub drop_decrease: f64,
    /// if at most this part of the bucket is missing (`connection_throttle_decrease_ratio`).
    pub decrease_ratio: f64,
    /// Whether sessions cost as many tokens as their weight, instead of one. Then bucket and flow are
    /// multiplied by the weight of a new session (`connection_throttle_weight_enabled`).
    pub weighted: bool,
    /// The weight of a new session (`connection_throttle_global_session_weight`).
    pub new_session_weight: u32,
    /// The weight of a session that comes back (`connection_throttle_renew_session_weight`).
    pub resumed_session_weight: u32,
    /// The weight of a new local session, and the least weight of the other two
    /// (`connection_throttle_local_session_weight`).
    pub local_session_weight: u32,
}

impl Default for ConnectionThrottleSettings {
    fn default() -> Self {
        Self {
            tokens: 0,
            fill_time_ms: 1,
            fill_count: 1,
            freeze_time_ms: None,
            drop_increase: 0.02,
            drop_decrease: 0.002,
            decrease_ratio: 0.0,
            weighted: false,
            new_session_weight: 3,
            resumed_session_weight: 2,
            local_session_weight: 1,
        }
    }
}

impl ConnectionThrottleSettings {
    /// The tokens that a new session and a resumed one cost.
    fn costs(&self) -> (u64, u64) {
        let weight = |weight: u32| u64::from(weight.max(self.local_session_weight));
        if self.weighted {
            (weight(self.new_session_weight), weight(self.resumed_session_weight))
        } else {
            (1, 1)
        }
    }

    /// The tokens that a new local session costs.
    fn local_cost(&self) -> u64 {
        if self.weighted { u64::from(self.local_session_weight) } else { 1 }
    }
}

/// What the throttle shows of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ConnectionThrottleReport {
    /// The share of clients that is refused at random, 0 to 1 (`connection_drop_probability`).
    pub drop_probability: f64,
    /// The tokens that were missing whenever a client was admitted (`connection_token_deficit`).
    pub deficit: Totals,
}

/// The throttle of one server.
#[derive(Debug)]
pub(super) struct ConnectionThrottle {
    settings: ConnectionThrottleSettings,
    tokens_max: u64,
    tokens: u64,
    filled_ms: u64,
    adjusted_ms: u64,
    random: ChaCha12Rng,
    report: ConnectionThrottleReport,
}

impl ConnectionThrottle {
    /// A full bucket, or none.
    pub(super) fn new(settings: &ConnectionThrottleSettings, random_seed: [u8; 32]) -> Option<Self> {
        let tokens_max = u64::from(settings.tokens) * settings.costs().0;
        // The leader draws passwords from the same seed.
        let mut random = ChaCha12Rng::from_seed(random_seed);
        random.set_stream(1);
        (tokens_max > 0).then(|| Self {
            settings: settings.clone(),
            tokens_max,
            tokens: tokens_max,
            filled_ms: 0,
            adjusted_ms: 0,
            random,
            report: ConnectionThrottleReport::default(),
        })
    }

    pub(super) const fn report(&self) -> ConnectionThrottleReport {
        self.report
    }

    /// Removes the sessions that are refused, and returns the connections that asked for them. New sessions
    /// are local if `opens_locally`.
    pub(super) fn refuse(
        &mut self,
        now_ms: u64,
        submissions: &mut Vec<Submission>,
        opens_locally: bool,
    ) -> Vec<ConnId> {
        let (new, resumed) = self.settings.costs();
        let new = if opens_locally { self.settings.local_cost() } else { new };
        let refused = submissions.extract_if(.., |submission| match submission.what {
            Submitted::Open { .. } => !self.admits(now_ms, new),
            Submitted::Reattach { .. } => !self.admits(now_ms, resumed),
            Submitted::Write { .. } | Submitted::Sync | Submitted::Detach | Submitted::Upgrade { .. } => {
                false
            }
        });
        refused.map(|submission| submission.conn).collect()
    }

    fn admits(&mut self, now_ms: u64, cost: u64) -> bool {
        self.refill(now_ms);
        if let Some(freeze_time_ms) = self.settings.freeze_time_ms {
            self.adjust(now_ms, u64::from(freeze_time_ms));
            if self.draw() < self.report.drop_probability {
                return false;
            }
        }
        let Some(left) = self.tokens.checked_sub(cost) else { return false };
        self.tokens = left;
        self.report.deficit.record(self.tokens_max - left);
        true
    }

    fn refill(&mut self, now_ms: u64) {
        let (elapsed_ms, fill_time_ms) =
            (now_ms.saturating_sub(self.filled_ms), u64::from(self.settings.fill_time_ms.max(1)));
        if elapsed_ms > fill_time_ms {
            let flow = u64::from(self.settings.fill_count) * self.settings.costs().0;
            let tokens = elapsed_ms.saturating_mul(flow) / fill_time_ms;
            self.tokens = self.tokens.saturating_add(tokens).min(self.tokens_max);
            self.filled_ms = now_ms;
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "a number of tokens below 2^53")]
    fn adjust(&mut self, now_ms: u64, freeze_time_ms: u64) {
        if now_ms.saturating_sub(self.adjusted_ms) <= freeze_time_ms {
            return;
        }
        self.adjusted_ms = now_ms;
        let (missing, max) = ((self.tokens_max - self.tokens) as f64, self.tokens_max as f64);
        let ConnectionThrottleSettings { drop_increase, drop_decrease, decrease_ratio, .. } = self.settings;
        let share = &mut self.report.drop_probability;
        if self.tokens == 0 {
            *share = (*share + drop_increase).min(1.0);
        } else if missing <= (max * decrease_ratio).round() {
            *share = (*share - drop_decrease).max(0.0);
        }
    }

    /// A number from 0 to less than 1.
    fn draw(&mut self) -> f64 {
        f64::from(self.random.next_u32()) / (f64::from(u32::MAX) + 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn throttle(settings: ConnectionThrottleSettings) -> ConnectionThrottle {
        ConnectionThrottle::new(&settings, [7; 32]).expect("there are tokens")
    }

    /// How many of `asked` clients are admitted at the moment.
    fn admitted(throttle: &mut ConnectionThrottle, now_ms: u64, cost: u64, asked: u64) -> usize {
        (0..asked).filter(|_| throttle.admits(now_ms, cost)).count()
    }

    #[test]
    fn without_tokens_there_is_no_throttle() {
        assert!(ConnectionThrottle::new(&ConnectionThrottleSettings::default(), [7; 32]).is_none());
    }

    #[test]
    fn tokens_flow_back_up_to_the_full_bucket() {
        let mut throttle = throttle(ConnectionThrottleSettings {
            tokens: 5,
            fill_time_ms: 100,
            fill_count: 2,
            ..ConnectionThrottleSettings::default()
        });
        // As in ZooKeeper, tokens flow only after more than `fill_time_ms`, then for all of the time.
        for (now_ms, expected) in [(0, 5), (100, 0), (101, 2), (201, 0), (350, 4), (10_000, 5)] {
            assert_eq!(admitted(&mut throttle, now_ms, 1, 9), expected, "after {now_ms} ms");
        }
        let expected = Totals { count: 16, sum: 15 + 9 + 14 + 15, min: 1, max: 5 };
        assert_eq!(throttle.report().deficit, expected);
    }

    #[test]
    fn weights_multiply_bucket_and_flow_by_that_of_a_new_session() {
        let settings = ConnectionThrottleSettings {
            tokens: 4,
            fill_time_ms: 1_000,
            weighted: true,
            ..ConnectionThrottleSettings::default()
        };
        assert_eq!(settings.costs(), (3, 2));
        let (new, resumed) = settings.costs();
        assert_eq!(admitted(&mut throttle(settings.clone()), 0, new, 9), 4);
        let mut empty = throttle(settings.clone());
        assert_eq!(admitted(&mut empty, 0, resumed, 9), 6);
        assert_eq!(admitted(&mut empty, 2_000, new, 9), 2);
        let raised = ConnectionThrottleSettings { local_session_weight: 5, ..settings };
        assert_eq!(raised.costs(), (5, 5), "as in ZooKeeper, none is less than that of a local session");
    }

    #[test]
    fn an_empty_bucket_raises_the_share_that_is_refused_and_a_full_one_lowers_it() {
        let mut throttle = throttle(ConnectionThrottleSettings {
            tokens: 10,
            fill_time_ms: 1_000,
            fill_count: 0,
            freeze_time_ms: Some(10),
            drop_increase: 0.5,
            drop_decrease: 0.25,
            ..ConnectionThrottleSettings::default()
        });
        assert_eq!(admitted(&mut throttle, 0, 1, 20), 10);
        assert!(throttle.report().drop_probability.abs() < 1e-9, "not adjusted yet");
        for (now_ms, expected) in [(20, 0.5), (30, 0.5), (31, 1.0), (60, 1.0)] {
            throttle.admits(now_ms, 1);
            assert!((throttle.report().drop_probability - expected).abs() < 1e-9, "after {now_ms} ms");
        }
        throttle.tokens = throttle.tokens_max;
        for (now_ms, expected) in [(80, 0.75), (100, 0.5)] {
            throttle.adjust(now_ms, 10);
            assert!((throttle.report().drop_probability - expected).abs() < 1e-9, "after {now_ms} ms");
        }
        throttle.settings.freeze_time_ms = Some(u32::MAX);
        (throttle.tokens, throttle.tokens_max) = (1_000, 1_000);
        let about_half = admitted(&mut throttle, 100, 1, 1_000);
        assert!((400..600).contains(&about_half), "{about_half}");
    }
}
