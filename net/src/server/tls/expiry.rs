//! When the server's own certificates expire, from when on those who verify them refuse the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use ringkeeper_runtime::helper::Helper;
use ringkeeper_runtime::reactor::env::Reactor;
use ringkeeper_runtime::runtime::Runtime;
use ringkeeper_tls::{Party, Settings, Validity};

use crate::config::Config;

/// How long before the end the operator is told.
const NOTICE: SignedDuration = SignedDuration::from_hours(30 * 24);

const LOOK_EVERY: Duration = Duration::from_hours(1);

/// The log has what the operator should know once in so many looks.
const TOLD_EVERY: u32 = 24;

/// The certificates that a server shows.
#[derive(Clone)]
pub(crate) struct OwnCertificates {
    stores: Arc<[(Party, Settings)]>,
    /// When the first of them expires, seconds since the Unix epoch; -1 while not known.
    expire_s: Arc<AtomicI64>,
}

/// What a store has.
pub(crate) struct Found {
    pub(crate) party: Party,
    pub(crate) validity: Validity,
}

/// How long certificates are valid yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Valid,
    /// They expire soon.
    Expiring,
    /// They have expired, or are not valid yet.
    Invalid,
}

impl OwnCertificates {
    pub(crate) fn of(config: &Config) -> Self {
        let clients = config.tls.is_served().then_some((Party::Client, &config.tls.settings.common));
        let linked = !config.servers.is_empty() && config.peer_tls.is_spoken();
        let peers =
            (linked || config.admin.speaks_tls()).then_some((Party::Peer, &config.peer_tls.settings.0));
        let stores = clients.into_iter().chain(peers).map(|(party, settings)| (party, settings.clone()));
        Self { stores: stores.collect(), expire_s: Arc::new(AtomicI64::new(-1)) }
    }

    /// As its field.
    pub(crate) fn expire_s(&self) -> i64 {
        self.expire_s.load(Ordering::Relaxed)
    }

    /// Reads the stores. One that cannot be used is left out: whoever loads it says why.
    pub(crate) fn find(&self) -> Vec<Found> {
        let read = |(party, settings): &(Party, Settings)| {
            settings.validity(*party).ok().flatten().map(|validity| Found { party: *party, validity })
        };
        self.stores.iter().filter_map(read).collect()
    }

    /// Reads the stores for as long as the server runs, and logs what the operator should know.
    pub(crate) async fn watch(self, helper: Helper) {
        for look in 0_u32.. {
            let own = self.clone();
            let found = helper.run(move || own.find()).await.unwrap_or_default();
            let first = found.iter().map(|found| found.validity.until.as_second()).min();
            self.expire_s.store(first.unwrap_or(-1), Ordering::Relaxed);
            for found in found.iter().filter(|_| look.is_multiple_of(TOLD_EVERY)) {
                match found.judge(Timestamp::now()) {
                    (State::Valid, _) => {}
                    (_, says) => tracing::warn!(code = "RK0113", "{says}"),
                }
            }
            Reactor::sleep(LOOK_EVERY).await;
        }
    }
}

impl Found {
    /// What it means at this time, in a sentence with the remedy.
    pub(crate) fn judge(&self, now: Timestamp) -> (State, String) {
        let Self { party, validity: Validity { from, until } } = self;
        let key = party.key_store();
        if now < *from {
            let remedy = format!("set this machine's clock, or put others into {key}");
            (State::Invalid, format!("the certificates for {party}s are valid from {from} on: {remedy}"))
        } else if now >= *until {
            let remedy = format!("put new ones into {key}, which is read again at once");
            (State::Invalid, format!("the certificates for {party}s expired at {until}: {remedy}"))
        } else if until.duration_since(now) < NOTICE {
            let remedy = format!("put new ones into {key} before, which is read again at once");
            (State::Expiring, format!("the certificates for {party}s expire at {until}: {remedy}"))
        } else {
            (State::Valid, format!("those for {party}s are valid until {until}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_judged_by_the_time() {
        let time = |text: &str| text.parse::<Timestamp>().expect("a time");
        let validity = Validity { from: time("2026-01-01T00:00:00Z"), until: time("2027-01-01T00:00:00Z") };
        let found = Found { party: Party::Peer, validity };
        for (now, state, says) in [
            ("2025-12-31T23:59:59Z", State::Invalid, "valid from 2026-01-01T00:00:00Z on"),
            ("2026-01-01T00:00:00Z", State::Valid, "valid until 2027-01-01T00:00:00Z"),
            ("2026-12-02T00:00:00Z", State::Valid, "until"),
            (
                "2026-12-02T00:00:01Z",
                State::Expiring,
                "put new ones into ssl.quorum.keyStore.location before",
            ),
            ("2027-01-01T00:00:00Z", State::Invalid, "expired at 2027-01-01T00:00:00Z: put new ones into"),
        ] {
            let (judged, said) = found.judge(time(now));
            assert!(judged == state && said.contains(says), "{now}: {judged:?}, {said}");
        }
    }
}
