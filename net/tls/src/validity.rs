//! From when until when certificates, and lists of revoked ones, are valid.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use rustls::pki_types::CertificateDer;

use crate::der::{Element, INTEGER};
use crate::name::{fields, name};
use crate::{Error, Party, Settings};

/// Tags of times (RFC 5280, section 4.1.2.5): the first has a year of two digits.
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// When certificates, or a list of revoked ones, are valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// They begin to be.
    pub from: Timestamp,
    /// They end to be.
    pub until: Timestamp,
}

/// When a list of revoked certificates is valid (`thisUpdate`, `nextUpdate`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListValidity {
    /// Who has issued the list, as Java prints it.
    pub issuer: String,
    /// From when until when it is valid.
    pub validity: Validity,
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

    /// When the lists of revoked certificates are valid: the first of each issuer, since that one counts.
    ///
    /// # Errors
    /// The file cannot be used.
    pub fn list_validities(&self, party: Party) -> Result<Vec<ListValidity>, Error> {
        let mut lists: Vec<ListValidity> = Vec::new();
        for list in self.read_revocation_lists(party)?.iter().filter_map(|list| of_list(list)) {
            if lists.iter().all(|other| other.issuer != list.issuer) {
                lists.push(list);
            }
        }
        Ok(lists)
    }
}

fn of(certificate: &CertificateDer<'_>) -> Option<Validity> {
    // Behind serial number, algorithm and issuer.
    let mut times = fields(certificate)?.nth(3)?.inside().map(time);
    Some(Validity { from: times.next()??, until: times.next()?? })
}

/// `None` if the list is malformed, or has no end (RFC 5280, section 5.1).
fn of_list(list: &[u8]) -> Option<ListValidity> {
    let to_be_signed = Element::first(Element::first(list)?.value)?;
    let mut fields = to_be_signed.inside().skip_while(|version| version.tag == INTEGER);
    // Behind the algorithm.
    let issuer = name(fields.nth(1)?.value)?;
    let validity = Validity { from: time(fields.next()?)?, until: time(fields.next()?)? };
    Some(ListValidity { issuer, validity })
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
    use crate::der::SEQUENCE;

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

    #[test]
    fn the_first_list_of_each_issuer_counts() {
        let [one, other] = ["one", "other"].map(|name| Authority::new(name).expect("a key"));
        let list =
            |authority: &Authority, is_valid| authority.revocation_list(&[], is_valid).expect("signed");
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("crl.pem");
        std::fs::write(&path, [list(&one, false), list(&other, true), list(&one, true)].concat())
            .expect("written");
        let settings = Settings { revocation_lists: Some(path), ..Settings::default() };
        let lists = settings.list_validities(Party::Client).expect("read");
        let lists: Vec<_> = lists
            .iter()
            .map(|ListValidity { issuer, validity: Validity { from, until } }| {
                format!("{issuer} {from} {until}")
            })
            .collect();
        assert_eq!(
            lists,
            [
                "CN=one 2001-01-01T00:00:00Z 2001-02-01T00:00:00Z",
                "CN=other 2001-01-01T00:00:00Z 4000-02-01T00:00:00Z"
            ]
        );
    }

    #[test]
    fn a_list_that_is_cut_short_or_has_no_end_is_left_out() {
        let element = |tag, parts: &[&[u8]]| crate::der::encoded(tag, parts);
        let algorithm = element(SEQUENCE, &[]);
        let issuer = element(SEQUENCE, &[]);
        let time = element(UTC_TIME, &[b"260101000000Z"]);
        let list = |fields: &[&[u8]]| element(SEQUENCE, &[&element(SEQUENCE, fields)]);
        let version = element(INTEGER, &[&[1]]);
        let whole = list(&[&version, &algorithm, &issuer, &time, &time]);
        assert!(of_list(&whole).is_some());
        for at in 0..whole.len() {
            assert_eq!(of_list(&whole[..at]), None, "{at}");
        }
        assert_eq!(of_list(&list(&[&version, &algorithm, &issuer, &time, &algorithm])), None);
    }
}
