//! The alarms of the broadcast: logged, and kept for monitoring while they last.

use std::cell::RefCell;

use ringkeeper_engine::zab::Alarm;

use crate::rate_limiter::RateLimiter;

/// A condition that lasts is detected again at each heartbeat or connection. It is logged once in this time,
/// and counts as over when it was not raised for as long.
const REPEAT_MS: u64 = 60_000;

/// Alarms that are remembered; a server seldom has more than one.
const ALARMS_MAX: usize = 16;

/// The alarms of the last minute.
#[derive(Debug, Default)]
pub struct Alarms {
    raised: RefCell<Vec<Raised>>,
    lines: RateLimiter,
}

#[derive(Debug)]
struct Raised {
    alarm: Alarm,
    logged_ms: u64,
    last_ms: u64,
}

/// The code of its event (docs/events.md).
const fn code(alarm: &Alarm) -> &'static str {
    match alarm {
        Alarm::ForeignCluster { .. } => "RK0310",
        Alarm::OtherVoters { .. } => "RK0311",
        Alarm::Founded { .. } => "RK0312",
        Alarm::LogDiverged { .. } => "RK0313",
        Alarm::OldCopy { .. } => "RK0314",
        Alarm::SecondProcess { .. } => "RK0315",
        Alarm::EpochBeyondReason { .. } => "RK0316",
        Alarm::EpochLedTwice { .. } => "RK0317",
        Alarm::CommittedTruncation { .. } => "RK0318",
    }
}

impl Alarms {
    /// Takes an alarm, and logs it unless it was logged a short time ago.
    pub fn raise(&self, now_ms: u64, alarm: Alarm) {
        let is_new = self.note(now_ms, alarm);
        if is_new && self.lines.admit(now_ms) {
            tracing::error!(code = code(&alarm), "{alarm}");
        }
    }

    /// Whether such an alarm was raised within the last minute.
    pub fn lasts(&self, now_ms: u64, such: impl Fn(&Alarm) -> bool) -> bool {
        let raised = self.raised.borrow();
        raised.iter().any(|raised| such(&raised.alarm) && now_ms < raised.last_ms + REPEAT_MS)
    }

    /// Remembers an alarm; whether it is to be logged.
    fn note(&self, now_ms: u64, alarm: Alarm) -> bool {
        let mut raised = self.raised.borrow_mut();
        raised.retain(|raised| now_ms < raised.last_ms + REPEAT_MS);
        if let Some(known) = raised.iter_mut().find(|raised| raised.alarm == alarm) {
            known.last_ms = now_ms;
            let is_due = now_ms >= known.logged_ms + REPEAT_MS;
            if is_due {
                known.logged_ms = now_ms;
            }
            return is_due;
        }
        if raised.len() == ALARMS_MAX {
            raised.remove(0);
        }
        raised.push(Raised { alarm, logged_ms: now_ms, last_ms: now_ms });
        true
    }
}

#[cfg(test)]
mod tests {
    use ringkeeper_wire::ServerId;

    use super::*;

    const TWINS: Alarm = Alarm::SecondProcess { server: ServerId(2) };

    fn is_twins(alarm: &Alarm) -> bool {
        *alarm == TWINS
    }

    #[test]
    fn an_alarm_that_is_raised_every_second_is_logged_once_a_minute() {
        let alarms = Alarms::default();
        let logged = (0..180).filter(|second| alarms.note(second * 1000, TWINS)).count();
        assert_eq!(logged, 3);
        assert!(alarms.lasts(180_000, is_twins));
    }

    #[test]
    fn an_alarm_that_is_not_raised_again_is_over() {
        let alarms = Alarms::default();
        alarms.raise(0, TWINS);
        assert!(alarms.lasts(REPEAT_MS - 1, is_twins));
        assert!(!alarms.lasts(REPEAT_MS, is_twins));
    }

    #[test]
    fn few_alarms_are_remembered() {
        let alarms = Alarms::default();
        (0..1000).for_each(|id| alarms.raise(0, Alarm::SecondProcess { server: ServerId(id) }));
        assert_eq!(alarms.raised.borrow().len(), ALARMS_MAX);
    }
}
