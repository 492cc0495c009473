//! The subject of a certificate as Java prints it (`X500Principal.getName`, RFC 2253): the id of the scheme
//! `x509`. ACLs compare it letter by letter, so every letter has to be Java's.

use std::fmt::Write;

use rustls::pki_types::CertificateDer;

use crate::der::{Element, Elements};

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

/// The tags of the version, of the extensions, and of a URI among alternative names.
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
const URI: u8 = 0x86;

/// The extension with the alternative names of the subject.
const ALTERNATIVE_NAMES: &str = "2.5.29.17";

/// The subject of a certificate. `None` if the certificate is malformed.
#[must_use]
pub fn subject(certificate: &CertificateDer<'_>) -> Option<String> {
    name(parties(certificate)?.subject.value)
}

/// The URIs among the alternative names of a certificate's subject. `None` if the certificate is malformed.
#[must_use]
pub fn uris(certificate: &CertificateDer<'_>) -> Option<Vec<String>> {
    let Some(extensions) = fields(certificate)?.find(|field| field.tag == EXTENSIONS) else {
        return Some(Vec::new());
    };
    let mut uris = Vec::new();
    for extension in Element::first(extensions.value)?.inside() {
        let mut parts = extension.inside();
        if parts.next()?.identifier()? == ALTERNATIVE_NAMES {
            let names = Element::first(parts.last()?.value)?;
            let texts = names.inside().filter(|name| name.tag == URI).map(|name| name.value.to_owned());
            uris.extend(texts.map(String::from_utf8).collect::<Result<Vec<_>, _>>().ok()?);
        }
    }
    Some(uris)
}

/// Who signed a certificate, and for whom.
pub(crate) struct Parties<'a> {
    pub(crate) issuer: Element<'a>,
    pub(crate) subject: Element<'a>,
}

/// The parties of a certificate. `None` if it is malformed.
pub(crate) fn parties<'a>(certificate: &'a CertificateDer<'_>) -> Option<Parties<'a>> {
    let mut fields = fields(certificate)?;
    // Behind serial number and algorithm; validity stands between the two.
    Some(Parties { issuer: fields.nth(2)?, subject: fields.nth(1)? })
}

/// What a certificate says, without its version, which those of version 1 lack: the serial number first.
pub(crate) fn fields<'a>(certificate: &'a CertificateDer<'_>) -> Option<impl Iterator<Item = Element<'a>>> {
    let to_be_signed = Element::first(Element::first(certificate)?.value)?;
    Some(to_be_signed.inside().filter(|field| field.tag != VERSION))
}

/// The name that consists of these relative names.
pub(crate) fn name(bytes: &[u8]) -> Option<String> {
    let mut names: Vec<_> = Elements(bytes).map(relative_name).collect::<Option<_>>()?;
    names.reverse();
    Some(names.join(","))
}

fn relative_name(set: Element<'_>) -> Option<String> {
    let attributes: Option<Vec<_>> = set.inside().map(attribute).collect();
    Some(attributes?.join("+"))
}

fn attribute(pair: Element<'_>) -> Option<String> {
    let mut parts = pair.inside();
    let (kind, value) = (parts.next()?, parts.next()?);
    let identifier = kind.identifier()?;
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
    fn a_certificates_subject_and_uris_are_found_in_it() {
        let authority = ringkeeper_testkit::Authority::new("ca").expect("a key");
        let issued = authority.issue("the client", &["localhost"]).expect("a key");
        let pem = issued.certificate.as_bytes();
        let certificate = rustls::pki_types::pem::PemObject::from_pem_slice(pem).expect("PEM");
        assert!(subject(&certificate).expect("a subject").starts_with("CN=the client"));
        assert_eq!(subject(&CertificateDer::from(&certificate[..60])), None);
        assert_eq!(uris(&certificate), Some(Vec::new()));
        let named = ["spiffe://example.org/a", "localhost", "https://example.org/"];
        let issued = authority.issue("the client", &named).expect("a key");
        let pem = issued.certificate.as_bytes();
        let certificate = rustls::pki_types::pem::PemObject::from_pem_slice(pem).expect("PEM");
        assert_eq!(uris(&certificate), Some(vec![named[0].to_owned(), named[2].to_owned()]));
    }
}
