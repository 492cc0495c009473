//! When the server's own certificates expire, from when on those who verify them refuse the server; and when
//! the lists of revoked certificates do, from when on the server refuses others.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use ringkeeper_runtime::helper::Helper;
use ringkeeper_runtime::reactor::env::Reactor;
use ringkeeper_runtime::runtime::Runtime;
use ringkeeper_tls::{ClientAuth, Error, ListValidity, Party, Settings, Stores, Validity};

use crate::config::Config;

/// How long before the end the operator is told, at most.
const NOTICE: SignedDuration = SignedDuration::from_hours(30 * 24);

/// Lists of revoked certificates are made anew often: the operator is told in the last part of their time, of
/// so many.
const LIST_PARTS: i32 = 10;

const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The log has what the operator should know when it changes, and once in so many looks: a day.
const TOLD_EVERY: u32 = 24 * 60 * 60;

/// The certificates that a server shows and the lists by which it refuses others, as its files have them.
#[derive(Clone)]
pub(crate) struct OwnCertificates {
    stores: Arc<[Stores<Vec<Found>>]>,
    first: Arc<First>,
}

/// When the first of some expires, seconds since the Unix epoch; -1 while not known.
struct First {
    certificates_s: AtomicI64,
    lists_s: AtomicI64,
}

/// Certificates of the server, or a list of revoked ones.
pub(crate) struct Found {
    party: Party,
    validity: Validity,
    /// Who has issued the list, and the file that it is in. `None` for certificates.
    list: Option<(String, PathBuf)>,
}

/// How long something is valid yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Valid,
    /// Expires soon.
    Expiring,
    /// Has expired, or is not valid yet.
    Invalid,
}

impl OwnCertificates {
    /// Reads the stores. One that cannot be used is left out: whoever loads it says why.
    pub(crate) fn of(config: &Config) -> Self {
        let stores = settings(config).filter_map(|(party, settings)| Self::store(party, settings).ok());
        Self::among(stores.collect())
    }

    fn among(stores: Arc<[Stores<Vec<Found>>]>) -> Self {
        let first = First { certificates_s: AtomicI64::new(-1), lists_s: AtomicI64::new(-1) };
        Self { stores, first: Arc::new(first) }
    }

    fn store(party: Party, settings: Settings) -> Result<Stores<Vec<Found>>, Error> {
        let files = settings.files().map(Path::to_owned).collect();
        Stores::open(files, move || Found::read(party, &settings))
    }

    /// When the first certificate expires, and the first list.
    pub(crate) fn expire_s(&self) -> [i64; 2] {
        let First { certificates_s, lists_s } = &*self.first;
        [certificates_s, lists_s].map(|time| time.load(Ordering::Relaxed))
    }

    /// Looks at the files for as long as the server runs, and logs what the operator should know.
    pub(crate) async fn watch(self, helper: Helper) {
        let mut told = Vec::new();
        for look in 0_u32.. {
            let own = self.clone();
            let judged = helper.run(move || own.look(Timestamp::now())).await.unwrap_or_default();
            let is_told = |judged| told.contains(judged) && !look.is_multiple_of(TOLD_EVERY);
            for (state, says) in judged.iter().filter(|judged| !is_told(*judged)) {
                if *state != State::Valid {
                    tracing::warn!(code = "RK0113", "{says}");
                }
            }
            told = judged;
            Reactor::sleep(LOOK_EVERY).await;
        }
    }

    /// Reads stores that have changed, and judges all. Of one that cannot be used the last contents count:
    /// whoever loads it says why.
    fn look(&self, now: Timestamp) -> Vec<(State, String)> {
        let read: Vec<_> = self
            .stores
            .iter()
            .map(|store| {
                let _ = store.reload_changed();
                store.config()
            })
            .collect();
        let found = || read.iter().flat_map(|found| found.iter());
        let first = |is_list| {
            let ends = found().filter(|found| found.list.is_some() == is_list);
            ends.map(|found| found.validity.until.as_second()).min().unwrap_or(-1)
        };
        self.first.certificates_s.store(first(false), Ordering::Relaxed);
        self.first.lists_s.store(first(true), Ordering::Relaxed);
        found().map(|found| found.judge(now)).collect()
    }
}

/// Where a server's certificates and lists are.
fn settings(config: &Config) -> impl Iterator<Item = (Party, Settings)> {
    let mut of_clients = config.tls.settings.common.clone();
    if config.tls.settings.client_auth == ClientAuth::None {
        // They show no certificates.
        of_clients.revocation_lists = None;
    }
    let clients = config.tls.is_served().then_some((Party::Client, of_clients));
    let linked = !config.servers.is_empty() && config.peer_tls.is_spoken();
    let of_peers = || (Party::Peer, config.peer_tls.settings.0.clone());
    clients.into_iter().chain((linked || config.admin.speaks_tls()).then(of_peers))
}

impl Found {
    /// What all stores of a configuration have. One that cannot be used is left out: whoever loads it says
    /// why.
    pub(crate) fn all(config: &Config) -> impl Iterator<Item = Self> {
        settings(config).filter_map(|(party, settings)| Self::read(party, &settings).ok()).flatten()
    }

    fn read(party: Party, settings: &Settings) -> Result<Vec<Self>, Error> {
        let certificates = settings.validity(party)?.map(|validity| Self { party, validity, list: None });
        let mut found = Vec::from_iter(certificates);
        if let Some(file) = &settings.revocation_lists {
            let lists = settings.list_validities(party)?.into_iter();
            found.extend(lists.map(|ListValidity { issuer, validity }| {
                let list = Some((issuer, file.clone()));
                Self { party, validity, list }
            }));
        }
        Ok(found)
    }

    /// What it means at this time, in a sentence with the remedy.
    pub(crate) fn judge(&self, now: Timestamp) -> (State, String) {
        let Self { party, validity: Validity { from, until }, list } = self;
        if let Some((issuer, file)) = list {
            return self.judge_list(now, issuer, file);
        }
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

    /// A list counts from when it is read on, so that it can only be too old.
    fn judge_list(&self, now: Timestamp, issuer: &str, file: &Path) -> (State, String) {
        let Self { party, validity: Validity { from, until }, .. } = self;
        let list = format!("the list of revoked certificates of {issuer}");
        let refused = format!("{party}s with certificates of this issuer are refused");
        let remedy = format!("put a new one into {} ({})", file.display(), party.revocation_lists());
        if now >= *until {
            let says = format!("{list} expired at {until}, {refused}: {remedy}, which is read again at once");
            (State::Invalid, says)
        } else if until.duration_since(now) < NOTICE.min(until.duration_since(*from) / LIST_PARTS) {
            let remedy = format!("{remedy} before, which is read again at once");
            (State::Expiring, format!("{list} expires at {until}, then {refused}: {remedy}"))
        } else {
            (State::Valid, format!("{list} for {party}s is valid until {until}"))
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
        let own = OwnCertificates::among([store].into());
        let look = || {
            let state = own.look("2026-01-01T00:00:00Z".parse().expect("a time"))[0].0;
            (state, own.expire_s()[0])
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
        let found = Found { party: Party::Peer, validity, list: None };
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

    #[test]
    fn lists_of_revoked_certificates_are_told_of_in_the_last_tenth_of_their_time() {
        let time = |text: &str| text.parse::<Timestamp>().expect("a time");
        let validity = Validity { from: time("2026-01-01T00:00:00Z"), until: time("2026-01-11T00:00:00Z") };
        let found = |validity| {
            let list = Some(("CN=ca".to_owned(), "/etc/crl.pem".into()));
            Found { party: Party::Client, validity, list }
        };
        for (now, state, says) in [
            (
                "2025-12-31T00:00:00Z",
                State::Valid,
                "of CN=ca for clients is valid until 2026-01-11T00:00:00Z",
            ),
            ("2026-01-10T00:00:00Z", State::Valid, ""),
            (
                "2026-01-10T00:00:01Z",
                State::Expiring,
                "put a new one into /etc/crl.pem (ringkeeper.ssl.crlFile) before",
            ),
            (
                "2026-01-11T00:00:00Z",
                State::Invalid,
                "of CN=ca expired at 2026-01-11T00:00:00Z, clients with certificates of this issuer are refused",
            ),
        ] {
            let (judged, said) = found(validity).judge(time(now));
            assert!(judged == state && said.contains(says), "{now}: {judged:?}, {said}");
        }
        let long = found(Validity { until: time("2036-01-01T00:00:00Z"), ..validity });
        assert_eq!(long.judge(time("2035-12-02T00:00:00Z")).0, State::Valid);
        assert_eq!(long.judge(time("2035-12-02T00:00:01Z")).0, State::Expiring);
    }

    #[test]
    fn a_new_list_is_judged_at_the_next_look() {
        let authority = Authority::new("ca").expect("a key");
        let folder = tempfile::tempdir().expect("a folder");
        let [path, new] = ["crl.pem", "new.pem"].map(|name| folder.path().join(name));
        let write = |is_valid| {
            let list = authority.revocation_list(&[], is_valid).expect("signed");
            std::fs::write(&new, list).and_then(|()| std::fs::rename(&new, &path)).expect("written");
        };
        write(false);
        let settings = Settings { revocation_lists: Some(path.clone()), ..Settings::default() };
        let store = OwnCertificates::store(Party::Peer, settings).expect("read");
        let own = OwnCertificates::among([store].into());
        let look = || own.look("2026-01-01T00:00:00Z".parse().expect("a time"))[0].0;
        assert_eq!((look(), own.expire_s()), (State::Invalid, [-1, 980_985_600]));
        write(true);
        assert_eq!((look(), own.expire_s()), (State::Valid, [-1, 64_063_267_200]));
    }
}
