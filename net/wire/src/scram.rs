//! SCRAM-SHA-256 (RFC 5802, RFC 7677): a SASL mechanism that proves the knowledge of a password without
//! sending it, to a server that does not know it either. Its messages are the tokens of opcode 102.
//!
//! ```text
//! client -> server   n,,n=bob,r=CLIENT-NONCE
//! server -> client   r=CLIENT-NONCE SERVER-NONCE,s=SALT,i=ITERATIONS
//! client -> server   c=biws,r=CLIENT-NONCE SERVER-NONCE,p=PROOF
//! server -> client   v=SIGNATURE
//! ```
//!
//! Here are the syntax of these messages and the keys. Which message follows which, and what is refused, is
//! decided by the server's engine and by the client. Channel binding is not offered.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// The longest message of a client, in bytes.
pub const MESSAGE_LEN_MAX: usize = 4096;

/// How often a password is hashed: at least as often as RFC 7677 demands, and not so often that a server
/// could keep its clients busy.
pub const ITERATIONS: RangeInclusive<u32> = 4096..=1_000_000;

/// The length of a salt, in bytes.
pub const SALT_LEN: RangeInclusive<usize> = 8..=32;

/// What a stored [`Verifier`] begins with.
const NAME: &str = "SCRAM-SHA-256";

const KEY_LEN: usize = 32;

type Key = [u8; KEY_LEN];

/// The text is no message of SCRAM, or demands what is not offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed message of SCRAM-SHA-256")]
pub struct Malformed;

/// The name or the password has characters that cannot be written in only one way (RFC 4013).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a character is not allowed in names and passwords")]
pub struct Unsuitable;

/// A name or a password in the form in which it is compared and hashed (SASLprep, RFC 4013).
///
/// # Errors
/// See [`Unsuitable`].
pub fn prepared(text: &str) -> Result<String, Unsuitable> {
    stringprep::saslprep(text).map(Into::into).map_err(|_| Unsuitable)
}

/// The client's first message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientFirst<'a> {
    /// For whom the client wants to act, if it has said so.
    pub authzid: Option<String>,
    /// The user's name, [`prepared`].
    pub user: String,
    /// The client's nonce.
    pub nonce: &'a str,
    /// What says that there is no channel binding, and `authzid`.
    pub gs2_header: &'a str,
    /// The rest, which is signed.
    pub bare: &'a str,
}

impl<'a> ClientFirst<'a> {
    /// Whether a token can only be the first message of a client that speaks SCRAM.
    #[must_use]
    pub fn is_begun_by(token: &[u8]) -> bool {
        [&b"n,"[..], b"y,", b"p="].iter().any(|flag| token.starts_with(flag))
    }

    /// Parses a message.
    ///
    /// # Errors
    /// It is malformed, or demands channel binding or an extension.
    pub fn parse(message: &'a [u8]) -> Result<Self, Malformed> {
        let message = text(message)?;
        let (flag, rest) = message.split_once(',').ok_or(Malformed)?;
        let (authzid, bare) = rest.split_once(',').ok_or(Malformed)?;
        if !matches!(flag, "n" | "y") {
            return Err(Malformed);
        }
        let authzid = match authzid {
            "" => None,
            named => Some(unescaped(named.strip_prefix("a=").ok_or(Malformed)?)?),
        };
        let mut attributes = bare.split(',');
        let user = prepared(&unescaped(value(&mut attributes, "n=")?)?).map_err(|_| Malformed)?;
        let nonce = nonce(value(&mut attributes, "r=")?)?;
        Ok(Self { authzid, user, nonce, gs2_header: &message[..message.len() - bare.len()], bare })
    }
}

/// The server's first message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFirst<'a> {
    /// The client's nonce, followed by the server's.
    pub nonce: &'a str,
    /// The salt of the user's password.
    pub salt: Vec<u8>,
    /// How often the password is hashed.
    pub iterations: u32,
}

impl<'a> ServerFirst<'a> {
    /// Parses a message.
    ///
    /// # Errors
    /// It is malformed, demands an extension, or is out of the bounds of [`SALT_LEN`] and [`ITERATIONS`].
    pub fn parse(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut attributes = text(message)?.split(',');
        let nonce = nonce(value(&mut attributes, "r=")?)?;
        let salt = decoded(value(&mut attributes, "s=")?)?;
        let iterations = value(&mut attributes, "i=")?.parse().map_err(|_| Malformed)?;
        if !ITERATIONS.contains(&iterations) || !SALT_LEN.contains(&salt.len()) {
            return Err(Malformed);
        }
        Ok(Self { nonce, salt, iterations })
    }
}

/// `r=NONCE,s=SALT,i=ITERATIONS`.
impl fmt::Display for ServerFirst<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { nonce, salt, iterations } = self;
        write!(f, "r={nonce},s={},i={iterations}", STANDARD.encode(salt))
    }
}

/// The client's last message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientFinal<'a> {
    /// The header of the first message, again.
    pub gs2_header: Vec<u8>,
    /// The client's nonce, followed by the server's.
    pub nonce: &'a str,
    /// That the client knows the password.
    pub proof: [u8; KEY_LEN],
    /// What precedes the proof, which is signed.
    pub without_proof: &'a str,
}

impl<'a> ClientFinal<'a> {
    /// Parses a message.
    ///
    /// # Errors
    /// See [`Malformed`].
    pub fn parse(message: &'a [u8]) -> Result<Self, Malformed> {
        let (without_proof, proof) = text(message)?.rsplit_once(",p=").ok_or(Malformed)?;
        let mut attributes = without_proof.split(',');
        let gs2_header = decoded(value(&mut attributes, "c=")?)?;
        let nonce = nonce(value(&mut attributes, "r=")?)?;
        let proof = decoded(proof)?.try_into().map_err(|_| Malformed)?;
        Ok(Self { gs2_header, nonce, proof, without_proof })
    }
}

fn text(message: &[u8]) -> Result<&str, Malformed> {
    std::str::from_utf8(message).map_err(|_| Malformed)
}

/// The value of the next attribute, which has to be this one.
fn value<'a>(attributes: &mut impl Iterator<Item = &'a str>, name: &str) -> Result<&'a str, Malformed> {
    attributes.next().and_then(|attribute| attribute.strip_prefix(name)).ok_or(Malformed)
}

/// A nonce is printable ASCII.
fn nonce(text: &str) -> Result<&str, Malformed> {
    let is_nonce = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
    is_nonce.then_some(text).ok_or(Malformed)
}

fn decoded(base64: &str) -> Result<Vec<u8>, Malformed> {
    STANDARD.decode(base64).map_err(|_| Malformed)
}

/// The name in which `=2C` stands for a comma and `=3D` for an equals sign.
fn unescaped(name: &str) -> Result<String, Malformed> {
    let mut parts = name.split('=');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (c, rest) = match (part.strip_prefix("2C"), part.strip_prefix("3D")) {
            (Some(rest), _) => (',', rest),
            (_, Some(rest)) => ('=', rest),
            _ => return Err(Malformed),
        };
        plain.push(c);
        plain.push_str(rest);
    }
    if plain.is_empty() || plain.contains('\0') { Err(Malformed) } else { Ok(plain) }
}

fn escaped(name: &str) -> String {
    name.replace('=', "=3D").replace(',', "=2C")
}

/// What a server keeps of a password. Nobody can log in with it, but somebody who reads it can try passwords.
///
/// ```text
/// SCRAM-SHA-256$ITERATIONS:SALT$STORED-KEY:SERVER-KEY
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Verifier {
    salt: Vec<u8>,
    iterations: u32,
    stored_key: Key,
    server_key: Key,
}

impl Verifier {
    /// The salt of the password.
    #[must_use]
    pub fn salt(&self) -> &[u8] {
        &self.salt
    }

    /// How often the password is hashed.
    #[must_use]
    pub const fn iterations(&self) -> u32 {
        self.iterations
    }

    /// Whether somebody who knows the password has made `proof` for the exchange. Takes the same time for
    /// every proof.
    #[must_use]
    pub fn has_proof(&self, exchange: &str, proof: &[u8; KEY_LEN]) -> bool {
        let client_key = xor(&hmac(&self.stored_key, exchange), proof);
        let stored_key: Key = Sha256::digest(client_key).into();
        stored_key.ct_eq(&self.stored_key).into()
    }

    /// The server's last message.
    #[must_use]
    pub fn server_final(&self, exchange: &str) -> String {
        server_final(&self.server_key, exchange)
    }
}

impl fmt::Display for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [salt, stored_key, server_key] =
            [&self.salt[..], &self.stored_key, &self.server_key].map(|bytes| STANDARD.encode(bytes));
        write!(f, "{NAME}${}:{salt}${stored_key}:{server_key}", self.iterations)
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Verifier")
    }
}

impl FromStr for Verifier {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<_> = text.split(['$', ':']).collect();
        let [NAME, iterations, salt, stored_key, server_key] = parts[..] else {
            return Err(format!("not of the form {NAME}$ITERATIONS:SALT$STORED-KEY:SERVER-KEY"));
        };
        let key = |base64| decoded(base64).ok().and_then(|key| Key::try_from(key).ok());
        let iterations = iterations.parse().ok().filter(|iterations| ITERATIONS.contains(iterations));
        let salt = decoded(salt).ok().filter(|salt| SALT_LEN.contains(&salt.len()));
        let iterations =
            iterations.ok_or_else(|| format!("the number of iterations has to be in {ITERATIONS:?}"))?;
        let salt = salt.ok_or_else(|| format!("the salt has to be base64 of {SALT_LEN:?} bytes"))?;
        let (Some(stored_key), Some(server_key)) = (key(stored_key), key(server_key)) else {
            return Err(format!("a key has to be base64 of {KEY_LEN} bytes"));
        };
        Ok(Self { salt, iterations, stored_key, server_key })
    }
}

/// What a password gives with a salt. Whoever knows it can log in.
#[derive(Clone, PartialEq, Eq)]
pub struct Keys {
    client_key: Key,
    verifier: Verifier,
}

impl Keys {
    /// The keys of a password. Takes long: it is hashed so many times.
    ///
    /// # Errors
    /// See [`Unsuitable`].
    pub fn derive(password: &str, salt: &[u8], iterations: u32) -> Result<Self, Unsuitable> {
        let mut salted = [0; KEY_LEN];
        pbkdf2::pbkdf2_hmac::<Sha256>(prepared(password)?.as_bytes(), salt, iterations, &mut salted);
        let client_key = hmac(&salted, "Client Key");
        let verifier = Verifier {
            salt: salt.to_owned(),
            iterations,
            stored_key: Sha256::digest(client_key).into(),
            server_key: hmac(&salted, "Server Key"),
        };
        Ok(Self { client_key, verifier })
    }

    /// What a server keeps.
    #[must_use]
    pub const fn verifier(&self) -> &Verifier {
        &self.verifier
    }

    /// Whether they are those of the password with the server's salt.
    #[must_use]
    pub fn fit(&self, challenge: &ServerFirst<'_>) -> bool {
        (&*self.verifier.salt, self.verifier.iterations) == (&*challenge.salt, challenge.iterations)
    }

    /// The client's last message, and the last message of a server that knows the verifier. `bare` is the
    /// client's first message without [`GS2_HEADER`], `server_first` the server's, with this nonce.
    #[must_use]
    pub fn respond(&self, bare: &str, server_first: &str, nonce: &str) -> (String, String) {
        let without_proof = format!("c={},r={nonce}", STANDARD.encode(GS2_HEADER));
        let exchange = exchange(bare, server_first, &without_proof);
        let proof = xor(&hmac(&self.verifier.stored_key, &exchange), &self.client_key);
        let message = format!("{without_proof},p={}", STANDARD.encode(proof));
        (message, self.verifier.server_final(&exchange))
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keys")
    }
}

/// What our client's first message begins with: no channel binding, nobody to act for.
pub const GS2_HEADER: &str = "n,,";

/// A client's first message without [`GS2_HEADER`].
///
/// # Errors
/// See [`Unsuitable`].
pub fn client_first_bare(user: &str, nonce: &str) -> Result<String, Unsuitable> {
    Ok(format!("n={},r={nonce}", escaped(&prepared(user)?)))
}

/// What both sides sign.
#[must_use]
pub fn exchange(client_first_bare: &str, server_first: &str, client_final_without_proof: &str) -> String {
    format!("{client_first_bare},{server_first},{client_final_without_proof}")
}

fn server_final(server_key: &Key, exchange: &str) -> String {
    format!("v={}", STANDARD.encode(hmac(server_key, exchange)))
}

fn hmac(key: &Key, message: &str) -> Key {
    let mut hmac = Hmac::<Sha256>::new_from_slice(key).expect("keys have any length");
    hmac.update(message.as_bytes());
    hmac.finalize().into_bytes().into()
}

fn xor(one: &Key, other: &Key) -> Key {
    std::array::from_fn(|at| one[at] ^ other[at])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The example of RFC 7677, 3.
    const CLIENT_FIRST: &str = "n,,n=user,r=rOprNGfwEbeRWgbNEkqO";
    const SERVER_FIRST: &str =
        "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
    const CLIENT_FINAL: &str = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                                p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
    const SERVER_FINAL: &str = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";

    #[test]
    fn the_example_of_the_standard_is_made_and_verified() {
        let challenge = ServerFirst::parse(SERVER_FIRST.as_bytes()).expect("a message");
        assert_eq!(challenge.to_string(), SERVER_FIRST);
        let keys = Keys::derive("pencil", &challenge.salt, challenge.iterations).expect("suitable");
        let bare = client_first_bare("user", "rOprNGfwEbeRWgbNEkqO").expect("suitable");
        assert_eq!(format!("{GS2_HEADER}{bare}"), CLIENT_FIRST);
        assert!(keys.fit(&challenge));
        let messages = keys.respond(&bare, SERVER_FIRST, challenge.nonce);
        assert_eq!(messages, (CLIENT_FINAL.to_owned(), SERVER_FINAL.to_owned()));

        let first = ClientFirst::parse(CLIENT_FIRST.as_bytes()).expect("a message");
        assert_eq!((&*first.user, first.authzid, first.gs2_header), ("user", None, GS2_HEADER));
        let last = ClientFinal::parse(CLIENT_FINAL.as_bytes()).expect("a message");
        assert_eq!((&*last.gs2_header, last.nonce), (GS2_HEADER.as_bytes(), challenge.nonce));
        let verifier: Verifier = keys.verifier().to_string().parse().expect("read back");
        let exchange = exchange(first.bare, SERVER_FIRST, last.without_proof);
        assert!(verifier.has_proof(&exchange, &last.proof));
        assert!(!verifier.has_proof(&exchange[1..], &last.proof));
        assert_eq!(verifier.server_final(&exchange), SERVER_FINAL);
    }

    #[test]
    fn a_first_message_is_told_from_the_tokens_of_other_mechanisms() {
        for token in ["n,,n=a,r=b", "y,,n=a,r=b", "p=tls-unique,,n=a,r=b", "n,a=x,"] {
            assert!(ClientFirst::is_begun_by(token.as_bytes()), "{token}");
        }
        for token in ["", "n", "username=\"bob\"", "nonce=\"x\"", "`\u{1}"] {
            assert!(!ClientFirst::is_begun_by(token.as_bytes()), "{token}");
        }
    }

    #[test]
    fn messages_that_are_none_are_refused() {
        for first in [
            "",
            "n,",
            "n,,",
            "n,,n=a",
            "n,,r=b",
            "p=tls-unique,,n=a,r=b",
            "n,x=1,n=a,r=b",
            "n,a=,n=a,r=b",
            "n,,n=,r=b",
            "n,,n=a=,r=b",
            "n,,n=a=2D,r=b",
            "n,,n=a,r=",
            "n,,n=a,r=b c",
            "n,,m=x,n=a,r=b",
            "x,,n=a,r=b",
            "n,,n=\0,r=b",
        ] {
            assert_eq!(ClientFirst::parse(first.as_bytes()), Err(Malformed), "{first}");
        }
        for last in ["", "c=biws", "c=biws,r=a", "r=a,c=biws,p=AA==", "c=biws,r=a,p=AA==", "c=!,r=a,p=AA=="] {
            assert_eq!(ClientFinal::parse(last.as_bytes()), Err(Malformed), "{last}");
        }
        let salt = STANDARD.encode([1; 16]);
        for server in [
            "r=a".to_owned(),
            format!("r=a,s={salt}"),
            format!("r=a,s={salt},i=4095"),
            format!("r=a,s={salt},i=1000001"),
            format!("m=x,r=a,s={salt},i=4096"),
            "r=a,s=AA==,i=4096".to_owned(),
            "e=other-error".to_owned(),
        ] {
            assert_eq!(ServerFirst::parse(server.as_bytes()), Err(Malformed), "{server}");
        }
        for verifier in ["", "md5$x", "SCRAM-SHA-256$1:AAAAAAAAAAA=$AA==:AA==", "SCRAM-SHA-256$4096:AA==$x:y"]
        {
            assert!(verifier.parse::<Verifier>().is_err(), "{verifier}");
        }
    }

    #[test]
    fn names_and_passwords_are_compared_in_one_form() {
        assert_eq!(prepared("I\u{ad}X\u{2168}"), Ok("IXIX".to_owned()), "RFC 4013, 3");
        assert_eq!(prepared("\u{7}"), Err(Unsuitable));
        let derive = |password| Keys::derive(password, b"12345678", 1).expect("suitable");
        assert_eq!(derive("\u{aa}"), derive("a"));
    }

    proptest! {
        #[test]
        fn any_name_is_read_back(user in "[^\0\\p{C}\\p{Z}\\p{M}]{1,20}") {
            if let Ok(bare) = client_first_bare(&user, "x") {
                let message = format!("{GS2_HEADER}{bare}");
                let first = ClientFirst::parse(message.as_bytes()).expect("a message");
                prop_assert_eq!(first.user, prepared(&user).expect("it was suitable"));
            }
        }

        #[test]
        fn no_message_is_too_strange_to_be_judged(message: Vec<u8>) {
            let _ = (ClientFirst::parse(&message), ClientFinal::parse(&message));
            let _ = ServerFirst::parse(&message);
            let _ = String::from_utf8_lossy(&message).parse::<Verifier>();
        }
    }
}
