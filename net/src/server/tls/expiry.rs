//! When the server's own certificates expire, from when on those who verify them refuse the server.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use ringkeeper_runtime::helper::Helper;
use ringkeeper_runtime::reactor::env::Reactor;
use ringkeeper_runtime::runtime::Runtime;
use ringkeeper_tls::{Error, Party, Settings, Stores, Validity};

use crate::config::Config;

/// How long before the end the operator is told.
const NOTICE: SignedDuration = SignedDuration::from_hours(30 * 24);

const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The log has what the operator should know when it changes, and once in so many looks: a day.
const TOLD_EVERY: u32 = 24 * 60 * 60;

/// The certificates that a server shows, as its files have them.
#[derive(Clone)]
pub(crate) struct OwnCertificates {
    stores: Arc<[Stores<Option<Found>>]>,
    /// When the first of them expires, seconds since the Unix epoch; -1 while not known.
    expire_s: Arc<AtomicI64>,
}

/// What a store has.
#[derive(Clone)]
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
    /// Reads the stores. One that cannot be used is left out: whoever loads it says why.
    pub(crate) fn of(config: &Config) -> Self {
        let stores =
            settings(config).filter_map(|(party, settings)| Self::store(party, settings.clone()).ok());
        Self { stores: stores.collect(), expire_s: Arc::new(AtomicI64::new(-1)) }
    }

    fn store(party: Party, settings: Settings) -> Result<Stores<Option<Found>>, Error> {
        let files = settings.files().map(Path::to_owned).collect();
        Stores::open(files, move || Found::read(party, &settings))
    }

    /// As its field.
    pub(crate) fn expire_s(&self) -> i64 {
        self.expire_s.load(Ordering::Relaxed)
    }

    /// Looks at the files for as long as the server runs, and logs what the operator should know.
    pub(crate) async fn watch(self, helper: Helper) {
        let mut told = Vec::new();
        for look in 0_u32.. {
            let own = self.clone();
            let judged = helper.run(move || own.look(Timestamp::now())).await.unwrap_or_default();
            if judged != told || look.is_multiple_of(TOLD_EVERY) {
                for (_, says) in judged.iter().filter(|(state, _)| *state != State::Valid) {
                    tracing::warn!(code = "RK0113", "{says}");
                }
                told = judged;
            }
            Reactor::sleep(LOOK_EVERY).await;
        }
    }

    /// Reads stores that have changed, and judges all. Of one that cannot be used the last contents count, as
    /// they do in handshakes: whoever loads it says why.
    fn look(&self, now: Timestamp) -> Vec<(State, String)> {
        let read = self.stores.iter().filter_map(|store| {
            let _ = store.reload_changed();
            (*store.config()).clone()
        });
        let found: Vec<_> = read.collect();
        let first = found.iter().map(|found| found.validity.until.as_second()).min();
        self.expire_s.store(first.unwrap_or(-1), Ordering::Relaxed);
        found.iter().map(|found| found.judge(now)).collect()
    }
}

/// Where a server's certificates are.
fn settings(config: &Config) -> impl Iterator<Item = (Party, &Settings)> {
    let clients = config.tls.is_served().then_some((Party::Client, &config.tls.settings.common));
    let linked = !config.servers.is_empty() && config.peer_tls.is_spoken();
    let peers = (linked || config.admin.speaks_tls()).then_some((Party::Peer, &config.peer_tls.settings.0));
    clients.into_iter().chain(peers)
}

impl Found {
    /// What all stores of a configuration have. One that cannot be used is left out: whoever loads it says
    /// why.
    pub(crate) fn all(config: &Config) -> impl Iterator<Item = Self> {
        settings(config).filter_map(|(party, settings)| Self::read(party, settings).ok().flatten())
    }

    fn read(party: Party, settings: &Settings) -> Result<Option<Self>, Error> {
        Ok(settings.validity(party)?.map(|validity| Self { party, validity }))
    }

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
    use ringkeeper_testkit::Authority;
    use ringkeeper_tls::StoreSettings;

    use super::*;

    #[test]
    fn new_certificates_are_judged_at_the_next_look_and_unusable_ones_are_not() {
        let authority = Authority::new("ca").expect("a key");
        let [valid, other] = ["CN=a", "CN=b"].map(|name| authority.issue(name, &[]).expect("a key"));
        let expired = authority.issue_expired("CN=a").expect("a key");
        let folder = tempfile::tempdir().expect("a folder");
        let [path, new] = ["own.pem", "new.pem"].map(|name| folder.path().join(name));
        // Replaced: files that are written one after the other may have one time.
        let write = |pem: String| {
            std::fs::write(&new, pem).and_then(|()| std::fs::rename(&new, &path)).expect("written");
        };
        write(expired.store());
        let settings = Settings { key_store: StoreSettings::at(&path), ..Settings::default() };
        let store = OwnCertificates::store(Party::Client, settings).expect("read");
        let own = OwnCertificates { stores: [store].into(), expire_s: Arc::new(AtomicI64::new(-1)) };
        let look = || {
            let state = own.look("2026-01-01T00:00:00Z".parse().expect("a time"))[0].0;
            (state, own.expire_s())
        };
        let of_expired = look();
        assert_eq!(of_expired, (State::Invalid, 978_307_200));
        write(valid.store());
        let of_valid = look();
        assert!(of_valid.0 == State::Valid && of_valid.1 > of_expired.1, "{of_valid:?}");
        for unusable in ["nothing".to_owned(), format!("{}{}", other.key, expired.certificate)] {
            write(unusable);
            assert_eq!(look(), of_valid);
        }
        write(expired.store());
        assert_eq!(look(), of_expired);
    }

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
