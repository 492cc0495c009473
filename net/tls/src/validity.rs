//! From when until when certificates are valid.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use rustls::pki_types::CertificateDer;

use crate::der::Element;
use crate::name::fields;
use crate::{Error, Party, Settings};

/// Tags of times (RFC 5280, section 4.1.2.5): the first has a year of two digits.
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// When certificates are valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// They begin to be.
    pub from: Timestamp,
    /// They end to be.
    pub until: Timestamp,
}

impl Settings {
    /// When all certificates are valid that this end shows. `None` if one of them cannot be read.
    ///
    /// # Errors
    /// The key store cannot be used: those who load it go on with the last one.
    pub fn validity(&self, party: Party) -> Result<Option<Validity>, Error> {
        let Some(mut store) = self.key_store.open(party.key_store())? else { return Ok(None) };
        let key = store.take_identity()?.certified(&self.cipher_suites.provider());
        let key = key.map_err(|reason| store.unusable(&reason))?;
        Ok(key
            .cert
            .iter()
            .map(of)
            .reduce(|a, b| {
                let (a, b) = (a?, b?);
                Some(Validity { from: a.from.max(b.from), until: a.until.min(b.until) })
            })
            .flatten())
    }
}

fn of(certificate: &CertificateDer<'_>) -> Option<Validity> {
    // Behind serial number, algorithm and issuer.
    let mut times = fields(certificate)?.nth(3)?.inside().map(time);
    Some(Validity { from: times.next()??, until: times.next()?? })
}

fn time(element: Element<'_>) -> Option<Timestamp> {
    let digits = str::from_utf8(element.value).ok()?;
    let text = match element.tag {
        UTC_TIME if digits < "50" => format!("20{digits}"),
        UTC_TIME => format!("19{digits}"),
        GENERALIZED_TIME => digits.to_owned(),
        _ => return None,
    };
    let time = DateTime::strptime("%Y%m%d%H%M%SZ", text).ok()?;
    TimeZone::UTC.to_timestamp(time).ok()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use ringkeeper_testkit::Authority;

    use super::*;
    use crate::StoreSettings;

    fn read(tag: u8, digits: &str) -> Option<String> {
        let bytes = crate::der::encoded(tag, &[digits.as_bytes()]);
        time(Element::first(&bytes)?).map(|time| time.to_string())
    }

    #[test]
    fn times_of_both_kinds_are_read() {
        assert_eq!(read(UTC_TIME, "491231235959Z").as_deref(), Some("2049-12-31T23:59:59Z"));
        assert_eq!(read(UTC_TIME, "500101000000Z").as_deref(), Some("1950-01-01T00:00:00Z"));
        assert_eq!(read(GENERALIZED_TIME, "20500228010203Z").as_deref(), Some("2050-02-28T01:02:03Z"));
        for (tag, digits) in [(UTC_TIME, "491331235959Z"), (UTC_TIME, ""), (0x0c, "491231235959Z")] {
            assert_eq!(read(tag, digits), None, "{digits}");
        }
    }

    #[test]
    fn a_chain_is_valid_while_all_of_its_certificates_are() {
        let authority = Authority::new("CN=authority").expect("made");
        let [valid, expired] = [authority.issue("CN=a", &[]), authority.issue_expired("CN=a")];
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("own.pem");
        let until = |pem: &str| {
            std::fs::write(&path, pem).expect("written");
            let settings = Settings { key_store: StoreSettings::at(Path::new(&path)), ..Settings::default() };
            settings.validity(Party::Peer).expect("a key").expect("certificates").until.to_string()
        };
        let (valid, expired) = (valid.expect("made"), expired.expect("made"));
        assert!(until(&valid.store()).as_str() > "2030");
        let chain = [valid.store(), expired.certificate].concat();
        assert_eq!(until(&chain), "2001-01-01T00:00:00Z");
    }
}
