//! The subject of a certificate as Java prints it (`X500Principal.getName`, RFC 2253): the id of the scheme
//! `x509`. ACLs compare it letter by letter, so every letter has to be Java's.

use std::fmt::Write;

use rustls::pki_types::CertificateDer;

/// The attributes that have a keyword; others are shown as object identifiers.
const KEYWORDS: [(&str, &str); 9] = [
    ("2.5.4.3", "CN"),
    ("2.5.4.6", "C"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.9", "STREET"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("0.9.2342.19200300.100.1.25", "DC"),
    ("0.9.2342.19200300.100.1.1", "UID"),
];

/// ASN.1 strings: UTF8String, PrintableString, T61String, IA5String, GeneralString, UniversalString,
/// BMPString.
const STRING_TAGS: [u8; 7] = [12, 19, 20, 22, 27, 28, 30];

const OBJECT_IDENTIFIER: u8 = 6;

/// The tag of a version, which certificates of X.509 version 1 lack.
const VERSION: u8 = 0xa0;

/// The subject of a certificate. `None` if the certificate is malformed.
#[must_use]
pub fn subject(certificate: &CertificateDer<'_>) -> Option<String> {
    let to_be_signed = Element::first(Element::first(certificate)?.value)?;
    let mut fields = Elements(to_be_signed.value).filter(|field| field.tag != VERSION);
    // Behind serial number, algorithm, issuer and validity.
    let subject = fields.nth(4)?;
    name(subject.value)
}

/// The name that consists of these relative names.
fn name(bytes: &[u8]) -> Option<String> {
    let mut names: Vec<_> = Elements(bytes).map(relative_name).collect::<Option<_>>()?;
    names.reverse();
    Some(names.join(","))
}

fn relative_name(set: Element<'_>) -> Option<String> {
    let attributes: Option<Vec<_>> = Elements(set.value).map(attribute).collect();
    Some(attributes?.join("+"))
}

fn attribute(pair: Element<'_>) -> Option<String> {
    let mut parts = Elements(pair.value);
    let (kind, value) = (parts.next()?, parts.next()?);
    let identifier = dotted(kind)?;
    let keyword = KEYWORDS.iter().find(|(known, _)| *known == identifier).map(|(_, keyword)| *keyword);
    match keyword.filter(|_| STRING_TAGS.contains(&value.tag)) {
        Some(keyword) => Some(format!("{keyword}={}", escaped(&String::from_utf8_lossy(value.value)))),
        None => {
            let mut text = format!("{}=#", keyword.unwrap_or(&identifier));
            value.whole.iter().try_for_each(|byte| write!(text, "{byte:02x}")).ok()?;
            Some(text)
        }
    }
}

/// An object identifier as numbers with dots between them.
fn dotted(identifier: Element<'_>) -> Option<String> {
    if identifier.tag != OBJECT_IDENTIFIER {
        return None;
    }
    let mut numbers = Vec::new();
    let mut number = 0_u64;
    for byte in identifier.value {
        number = number.checked_mul(128)? | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            numbers.push(std::mem::take(&mut number));
        }
    }
    // The first two share a number.
    let (first, rest) = numbers.split_first()?;
    let root = (*first / 40).min(2);
    let all = [root, *first - 40 * root].into_iter().chain(rest.iter().copied());
    Some(all.map(|number| number.to_string()).collect::<Vec<_>>().join("."))
}

/// A backslash before what has a meaning in a name, and before blanks at either end.
fn escaped(text: &str) -> String {
    let is_blank = |c: char| c == ' ' || c == '\r';
    let (lead, trail) =
        (text.len() - text.trim_start_matches(is_blank).len(), text.trim_end_matches(is_blank).len());
    let mut name = String::with_capacity(text.len());
    for (at, c) in text.char_indices() {
        match c {
            '\0' => name.push_str("\\00"),
            ',' | '=' | '+' | '<' | '>' | '#' | ';' | '"' | '\\' => name.extend(['\\', c]),
            _ if at < lead || at >= trail => name.extend(['\\', c]),
            _ => name.push(c),
        }
    }
    name
}

/// One element of DER: tag, value, and both with the length between them.
#[derive(Clone, Copy)]
struct Element<'a> {
    tag: u8,
    value: &'a [u8],
    whole: &'a [u8],
}

/// Elements one after the other; ends before one that is malformed.
struct Elements<'a>(&'a [u8]);

impl<'a> Element<'a> {
    fn first(bytes: &'a [u8]) -> Option<Self> {
        Elements(bytes).next()
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Element<'a>;

    fn next(&mut self) -> Option<Element<'a>> {
        let (&[tag, length], rest) = self.0.split_first_chunk()?;
        let (length, rest) = if length < 0x80 {
            (usize::from(length), rest)
        } else {
            let (digits, rest) = rest.split_at_checked(usize::from(length & 0x7f).min(4))?;
            (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
        };
        let (value, rest) = rest.split_at_checked(length)?;
        let whole = &self.0[..self.0.len() - rest.len()];
        self.0 = rest;
        Some(Element { tag, value, whole })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_hex(hex: &str) -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex")).collect()
    }

    #[test]
    fn names_are_printed_as_java_prints_them() {
        // `new X500Principal(bytes).getName()` of OpenJDK 17.
        for (der, printed) in [
            (
                "306e310b300906035504061302555331133011060355040a0c0a41636d652c20496e632e31123010060a099226\
                 8993f22c6401010c027531310b30090603550405130237373114301206092a864886f70d01090116056140622e\
                 633113301106035504030c0a636c69656e74206f6e65",
                "CN=client one,1.2.840.113549.1.9.1=#16056140622e63,2.5.4.5=#13023737,UID=u1,O=Acme\\, Inc.,C=US",
            ),
            (
                "30193117301506035504030c0e2023613d622b633c643e3b225c20",
                "CN=\\ \\#a\\=b\\+c\\<d\\>\\;\\\"\\\\\\ ",
            ),
            ("30173115301306035504030c0c5a6fc3ab20e4b8ad0100780d", "CN=Zo\u{eb} \u{4e2d}\u{1}\\00x\\\r"),
            ("300f310d300b06035504031e0400610062", "CN=\\00a\\00b"),
            ("300d310b300906035504031402e961", "CN=\u{fffd}a"),
            ("300d310b3009060355040304020102", "CN=#04020102"),
            (
                "305d3114300806035504030c01623008060355040b0c01613111300f060a0992268993f22c6401191601\
                 78310a300806035504070c016c310a300806035504080c0173310a300806035504090c0174310e300c0603\
                 55040c0c057469746c65",
                "2.5.4.12=#0c057469746c65,STREET=t,ST=s,L=l,DC=x,CN=b+OU=a",
            ),
            ("300b3109300706035504030c00", "CN="),
            ("300e310c300a060588378d8f0b0c0171", "2.999.214923=#0c0171"),
            ("3000", ""),
        ] {
            let der = of_hex(der);
            let printed_here = Element::first(&der).and_then(|whole| name(whole.value));
            assert_eq!(printed_here.as_deref(), Some(printed));
        }
    }

    #[test]
    fn a_certificates_subject_is_found_in_it() {
        let authority = ringkeeper_testkit::Authority::new("ca").expect("a key");
        let issued = authority.issue("the client", &["localhost"]).expect("a key");
        let pem = issued.certificate.as_bytes();
        let certificate = rustls::pki_types::pem::PemObject::from_pem_slice(pem).expect("PEM");
        assert!(subject(&certificate).expect("a subject").starts_with("CN=the client"));
        assert_eq!(subject(&CertificateDer::from(&certificate[..60])), None);
    }
}
