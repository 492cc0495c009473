//! DIGEST-MD5 (RFC 2831): a SASL mechanism that proves the knowledge of a password without sending it. Its
//! texts are the tokens of opcode 102.
//!
//! ```text
//! client -> server   (empty)
//! server -> client   realm="zk-sasl-md5",nonce="...",charset=utf-8,algorithm=md5-sess
//! client -> server   charset=utf-8,username="bob",realm="zk-sasl-md5",nonce="...",nc=00000001,cnonce="...",
//!                    digest-uri="zookeeper/zk-sasl-md5",response=...,qop=auth
//! server -> client   rspauth=...
//! ```
//!
//! Here are the syntax of these texts and the hashes in them. Which text follows which, and what is refused,
//! is decided by the server's engine and by the client. The quality of protection is always `auth`: later
//! messages are neither signed nor encrypted.

use std::borrow::Cow;
use std::fmt;

use md5::{Digest, Md5};
use subtle::ConstantTimeEq;

use crate::decode_utf8;

/// The realm of ZooKeeper's servers.
pub const REALM: &str = "zk-sasl-md5";

/// The service that clients of ZooKeeper log in to (`digest-uri`).
pub const DIGEST_URI: &str = "zookeeper/zk-sasl-md5";

/// The longest text of a client, in bytes (RFC 2831, 2.1.2).
pub const RESPONSE_LEN_MAX: usize = 4096;

/// How often a client has used the server's nonce (`nc`): each login has a nonce of its own.
pub const NONCE_COUNT: &str = "00000001";

/// What precedes the hash in the server's last text.
const RSPAUTH: &str = "rspauth=";

/// The text is no list of directives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed directives of DIGEST-MD5")]
pub struct Malformed;

/// The directives of a text: `name=value` or `name="value"`, separated by commas or blanks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directives<'a>(Vec<(&'a [u8], Cow<'a, [u8]>)>);

impl<'a> Directives<'a> {
    /// Parses a text.
    ///
    /// # Errors
    /// See [`Malformed`].
    pub fn parse(text: &'a [u8]) -> Result<Self, Malformed> {
        let mut directives = Vec::new();
        let mut rest = skip(text, |byte| is_blank(byte) || byte == b',');
        while !rest.is_empty() {
            let (name, after) = split(rest, |byte| matches!(byte, b'=' | b',') || is_blank(byte));
            let after = skip(after, is_blank).strip_prefix(b"=").ok_or(Malformed)?;
            let (value, after) = match skip(after, is_blank) {
                [b'"', quoted @ ..] => unquote(quoted)?,
                [] => return Err(Malformed),
                plain => {
                    let (value, after) = split(plain, |byte| byte == b',' || is_blank(byte));
                    (Cow::Borrowed(value), after)
                }
            };
            let is_separated = after.first().is_none_or(|&byte| byte == b',' || is_blank(byte));
            if name.is_empty() || !is_separated {
                return Err(Malformed);
            }
            directives.push((name, value));
            rest = skip(after, |byte| is_blank(byte) || byte == b',');
        }
        Ok(Self(directives))
    }

    /// The value of a directive, if it is there; case is ignored in its name.
    ///
    /// # Errors
    /// It is there more than once.
    pub fn get(&self, name: &str) -> Result<Option<&[u8]>, Malformed> {
        let mut values = self.0.iter().filter(|(key, _)| key.eq_ignore_ascii_case(name.as_bytes()));
        let first = values.next().map(|(_, value)| &**value);
        if values.next().is_some() { Err(Malformed) } else { Ok(first) }
    }

    /// The value of a directive that has to be there once.
    ///
    /// # Errors
    /// It is missing, or there more than once.
    pub fn expect(&self, name: &str) -> Result<&[u8], Malformed> {
        self.get(name)?.ok_or(Malformed)
    }
}

const fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

fn skip(text: &[u8], is_skipped: impl Fn(u8) -> bool) -> &[u8] {
    split(text, |byte| !is_skipped(byte)).1
}

fn split(text: &[u8], ends: impl Fn(u8) -> bool) -> (&[u8], &[u8]) {
    text.split_at(text.iter().position(|&byte| ends(byte)).unwrap_or(text.len()))
}

/// The value before the closing quote, and what follows that quote. A backslash stands before a byte that is
/// taken as it is.
fn unquote(text: &[u8]) -> Result<(Cow<'_, [u8]>, &[u8]), Malformed> {
    let (plain, mut rest) = split(text, |byte| matches!(byte, b'"' | b'\\'));
    let mut value = Cow::Borrowed(plain);
    loop {
        match rest {
            [b'"', after @ ..] => return Ok((value, after)),
            [b'\\', byte, after @ ..] => {
                value.to_mut().push(*byte);
                rest = after;
            }
            [byte, after @ ..] if *byte != b'\\' => {
                value.to_mut().push(*byte);
                rest = after;
            }
            _ => return Err(Malformed),
        }
    }
}

/// `value` in quotes.
#[must_use]
pub fn quote(value: &[u8]) -> Vec<u8> {
    let mut quoted = vec![b'"'];
    for &byte in value {
        if matches!(byte, b'"' | b'\\' | 127) || (byte < 32 && !is_blank(byte)) {
            quoted.push(b'\\');
        }
        quoted.push(byte);
    }
    quoted.push(b'"');
    quoted
}

/// The server's first text.
#[must_use]
pub fn challenge(nonce: &str) -> String {
    format!("realm=\"{REALM}\",nonce=\"{nonce}\",charset=utf-8,algorithm=md5-sess")
}

/// The hash of user, realm and password. Whoever knows it can log in as the user.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret([u8; 16]);

impl Secret {
    /// The secret of a user in a realm.
    #[must_use]
    pub fn new(user: &str, realm: &str, password: &str) -> Self {
        let mut hash = Md5::new();
        hash.update(latin(user));
        hash.update(":");
        hash.update(latin(realm));
        hash.update(":");
        hash.update(latin(password));
        Self(hash.finalize().into())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// A text is hashed as ISO 8859-1 if that has all its characters, otherwise as UTF-8 (RFC 2831, 2.1.2.1).
fn latin(text: &str) -> Vec<u8> {
    let bytes: Option<Vec<u8>> = text.chars().map(|char| u8::try_from(char).ok()).collect();
    bytes.unwrap_or_else(|| text.as_bytes().to_vec())
}

/// What both sides hash to show that they know the secret.
#[derive(Clone, Copy, Debug)]
pub struct Proof<'a> {
    /// The user's secret.
    pub secret: &'a Secret,
    /// The server's nonce.
    pub nonce: &'a [u8],
    /// The client's nonce.
    pub cnonce: &'a [u8],
    /// For whom the client wants to act, if it has said so.
    pub authzid: Option<&'a [u8]>,
    /// The service that the client has named.
    pub digest_uri: &'a [u8],
}

impl Proof<'_> {
    /// The client's proof (`response`), 32 hexadecimal digits.
    #[must_use]
    pub fn response(&self) -> String {
        self.value("AUTHENTICATE")
    }

    /// Whether `response` is the client's proof. Takes the same time for every text of the same length.
    #[must_use]
    pub fn has_response(&self, response: &[u8]) -> bool {
        self.response().as_bytes().ct_eq(response).into()
    }

    /// The server's proof: its last text.
    #[must_use]
    pub fn rspauth(&self) -> String {
        format!("{RSPAUTH}{}", self.value(""))
    }

    fn value(&self, method: &str) -> String {
        let mut a1 = Md5::new();
        a1.update(self.secret.0);
        for part in [Some(self.nonce), Some(self.cnonce), self.authzid].into_iter().flatten() {
            a1.update(":");
            a1.update(part);
        }
        let mut a2 = Md5::new();
        a2.update(method);
        a2.update(":");
        a2.update(self.digest_uri);
        let (a1, a2) = (hex(a1), hex(a2));
        let mut value = Md5::new();
        let parts: [&[u8]; 6] =
            [a1.as_bytes(), self.nonce, NONCE_COUNT.as_bytes(), self.cnonce, b"auth", a2.as_bytes()];
        for (number, part) in parts.into_iter().enumerate() {
            if number > 0 {
                value.update(":");
            }
            value.update(part);
        }
        hex(value)
    }
}

/// A client's response to the server's challenge, and the last text of a server that knows the password.
/// `cnonce` is the client's nonce.
///
/// # Errors
/// The challenge is malformed.
pub fn respond(
    challenge: &[u8],
    user: &str,
    password: &str,
    cnonce: &str,
) -> Result<(Vec<u8>, String), Malformed> {
    let directives = Directives::parse(challenge)?;
    let nonce = directives.expect("nonce")?;
    let realm = directives.get("realm")?.unwrap_or(REALM.as_bytes());
    let proof = Proof {
        secret: &Secret::new(user, &decode_utf8(realm), password),
        nonce,
        cnonce: cnonce.as_bytes(),
        authzid: None,
        digest_uri: DIGEST_URI.as_bytes(),
    };
    let mut response = b"charset=utf-8,qop=auth".to_vec();
    for (name, value) in [
        ("username", user.as_bytes()),
        ("realm", realm),
        ("nonce", nonce),
        ("cnonce", proof.cnonce),
        ("digest-uri", proof.digest_uri),
    ] {
        response.extend_from_slice(format!(",{name}=").as_bytes());
        response.extend(quote(value));
    }
    response.extend_from_slice(format!(",nc={NONCE_COUNT},response={}", proof.response()).as_bytes());
    Ok((response, proof.rspauth()))
}

fn hex(hash: Md5) -> String {
    use std::fmt::Write;
    let mut text = String::with_capacity(32);
    for byte in hash.finalize() {
        write!(text, "{byte:02x}").expect("a string takes everything");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn directives(text: &str) -> Option<Vec<(String, String)>> {
        let text_of = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
        let Directives(list) = Directives::parse(text.as_bytes()).ok()?;
        Some(list.iter().map(|(name, value)| (text_of(name), text_of(value))).collect())
    }

    /// A login of Java's client at Apache ZooKeeper 3.9.5.
    #[test]
    fn both_proofs_are_those_of_apache_zookeeper() {
        let proof = Proof {
            secret: &Secret::new("bob", REALM, "pw"),
            nonce: b"c6YxFnpNi7Kfjyy9H/tlPbTRnMMHGk7tUIxCRxTO",
            cnonce: b"J8BMtBanVZ2zRA+bi9k5iqZBo5+Q977rJ76ty1hC",
            authzid: Some(b"bob"),
            digest_uri: DIGEST_URI.as_bytes(),
        };
        assert!(proof.has_response(b"7335bc67895f905f43943667bc93a431"));
        assert!(!proof.has_response(b"7335bc67895f905f43943667bc93a432"));
        assert!(!proof.has_response(b""));
        assert_eq!(proof.rspauth(), "rspauth=d46142c2e7a6c6e78c943731952c6b5f");
        assert_ne!(Proof { authzid: None, ..proof }.rspauth(), proof.rspauth());
    }

    #[test]
    fn texts_are_hashed_as_latin_1_where_that_has_all_characters() {
        assert_eq!(latin("m\u{fc}ller"), b"m\xfcller");
        assert_eq!(latin("\u{fc}\u{100}"), "\u{fc}\u{100}".as_bytes());
    }

    #[test]
    fn directives_are_separated_by_commas_or_blanks() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let two = Some(vec![pair("a", "1"), pair("b", "2, \"x\"")]);
        for text in [
            r#"a=1,b="2, \"x\"""#,
            r#" ,, a = 1 ,, b	= "2, \"\x\"" ,"#,
            "a=1\r\nb=\"2\\, \\\"x\\\"\"",
            r#"a="1" b="2, \"x\"""#,
        ] {
            assert_eq!(directives(text), two, "{text}");
        }
        assert_eq!(directives("a=,b=1"), Some(vec![pair("a", ""), pair("b", "1")]));
        assert_eq!(directives(""), Some(Vec::new()));
    }

    #[test]
    fn other_texts_are_malformed() {
        for text in ["a", "a b", "a=", "=1", "a,b=1", "a=\"1", "a=\"1\\", "a=\"1\"2", "a=1,=2"] {
            assert_eq!(directives(text), None, "{text}");
        }
        let twice = Directives::parse(b"A=1,a=2").expect("well formed");
        assert_eq!((twice.get("a"), twice.get("b")), (Err(Malformed), Ok(None)));
    }

    proptest! {
        #[test]
        fn any_quoted_value_is_read_back(value: Vec<u8>) {
            let text = [b"a=1, name=".to_vec(), quote(&value), b",b=2".to_vec()].concat();
            let directives = Directives::parse(&text).expect("well formed");
            prop_assert_eq!(directives.expect("NAME"), Ok(&*value));
            prop_assert_eq!(directives.expect("b"), Ok(&b"2"[..]));
        }

        #[test]
        fn no_text_is_too_strange_to_be_judged(text: Vec<u8>) {
            let _ = Directives::parse(&text);
        }
    }
}
