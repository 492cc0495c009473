//! An object of the store: what it holds, checksummed or encrypted.
//!
//! ```text
//!  0          8         9       16                48
//!  +----------+---------+-------+-----------------+---------
//!  | magic    | sealing | zeros | SHA-256 or salt | contents
//!  | RKBACKUP | 0 or 1  |       |                 |
//!  +----------+---------+-------+-----------------+---------
//! ```
//!
//! - Sealing 0: the checksum covers the object's name and its contents.
//! - Sealing 1: the contents are encrypted with AES-256-GCM, and its tag is behind them. Each object has a
//!   key of its own, derived from the operator's by HKDF with the salt, which is random, and the name. So the
//!   nonce may be zero, and no object can be put in another's place.

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::digest::{Context, SHA256};
use ring::hkdf;

const MAGIC: &[u8; 8] = b"RKBACKUP";
const SEALING_AT: usize = MAGIC.len();
const PROOF_AT: usize = 16;
const PROOF_BYTES: usize = 32;
const CONTENTS_AT: usize = PROOF_AT + PROOF_BYTES;

const PLAIN: u8 = 0;
const ENCRYPTED: u8 = 1;

/// The operator's key.
#[derive(Clone)]
pub struct Key([u8; 32]);

/// It is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a key: 64 hexadecimal digits are wanted, as `openssl rand -hex 32` writes them")]
pub struct KeyError;

/// Why an object cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unopened {
    /// It is not a backup's.
    #[error("it is no object of a backup")]
    Foreign,
    /// It was changed, or has another object's name.
    #[error("it is damaged: its checksum is not that of its contents")]
    Damaged,
    /// There is no key.
    #[error("it is encrypted: name the key's file with --key-file")]
    NoKey,
    /// It was encrypted with another key, or changed.
    #[error("it was encrypted with another key, or is damaged")]
    OtherKey,
    /// A key is given, and it is not encrypted.
    #[error("it is not encrypted, although there is a key: without --key-file it would be trusted")]
    Clear,
}

impl std::str::FromStr for Key {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let text = text.trim().as_bytes();
        let mut key = [0; 32];
        if text.len() != 64 {
            return Err(KeyError);
        }
        for (byte, digits) in key.iter_mut().zip(text.chunks(2)) {
            let digits = std::str::from_utf8(digits).map_err(|_| KeyError)?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| KeyError)?;
        }
        Ok(Self(key))
    }
}

impl Key {
    fn of_object(&self, salt: &[u8], name: &str) -> LessSafeKey {
        let secret = hkdf::Salt::new(hkdf::HKDF_SHA256, salt).extract(&self.0);
        let info = [name.as_bytes()];
        let key = secret.expand(&info, &AES_256_GCM).expect("a key is shorter than HKDF's limit");
        LessSafeKey::new(UnboundKey::from(key))
    }
}

fn nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; 12])
}

fn checksum(name: &str, contents: &[u8]) -> [u8; PROOF_BYTES] {
    let mut context = Context::new(&SHA256);
    context.update(name.as_bytes());
    context.update(&[0]);
    context.update(contents);
    *context.finish().as_ref().first_chunk().expect("as long")
}

/// An object of this name.
///
/// # Errors
/// There are no random numbers.
pub(crate) fn close(name: &str, contents: &[u8], key: Option<&Key>) -> Result<Vec<u8>, getrandom::Error> {
    let mut object = vec![0; CONTENTS_AT];
    object[..SEALING_AT].copy_from_slice(MAGIC);
    object.extend_from_slice(contents);
    let Some(key) = key else {
        object[SEALING_AT] = PLAIN;
        object[PROOF_AT..CONTENTS_AT].copy_from_slice(&checksum(name, contents));
        return Ok(object);
    };
    object[SEALING_AT] = ENCRYPTED;
    getrandom::fill(&mut object[PROOF_AT..CONTENTS_AT])?;
    let (head, contents) = object.split_at_mut(CONTENTS_AT);
    let key = key.of_object(&head[PROOF_AT..], name);
    let tag = key.seal_in_place_separate_tag(nonce(), Aad::empty(), contents);
    let tag = tag.expect("an object is shorter than 64 GiB");
    object.extend_from_slice(tag.as_ref());
    Ok(object)
}

/// What an object of this name holds.
///
/// # Errors
/// See [`Unopened`].
pub(crate) fn open(name: &str, mut object: Vec<u8>, key: Option<&Key>) -> Result<Vec<u8>, Unopened> {
    if object.len() < CONTENTS_AT || object[..SEALING_AT] != MAGIC[..] {
        return Err(Unopened::Foreign);
    }
    if object[SEALING_AT + 1..PROOF_AT].iter().any(|byte| *byte != 0) {
        return Err(Unopened::Damaged);
    }
    let mut contents = object.split_off(CONTENTS_AT);
    let proof = &object[PROOF_AT..];
    match (object[SEALING_AT], key) {
        (PLAIN, None) if checksum(name, &contents)[..] == *proof => Ok(contents),
        (PLAIN, None) => Err(Unopened::Damaged),
        (PLAIN, Some(_)) => Err(Unopened::Clear),
        (ENCRYPTED, None) => Err(Unopened::NoKey),
        (ENCRYPTED, Some(key)) => {
            let opened = key.of_object(proof, name).open_in_place(nonce(), Aad::empty(), &mut contents);
            let length = opened.map_err(|_| Unopened::OtherKey)?.len();
            contents.truncate(length);
            Ok(contents)
        }
        _ => Err(Unopened::Foreign),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(digit: &str) -> Key {
        digit.repeat(64).parse().expect("a key")
    }

    #[test]
    fn an_object_is_opened_by_its_name_and_key_alone() {
        let (one, two) = (key("1"), key("2"));
        for sealed in [None, Some(&one)] {
            let object = close("a", b"contents", sealed).expect("random numbers");
            assert_eq!(open("a", object.clone(), sealed), Ok(b"contents".to_vec()));
            assert!(open("b", object.clone(), sealed).is_err(), "another name");
            assert!(open("a", object.clone(), Some(&two)).is_err(), "another key");
            for at in 0..object.len() {
                let mut changed = object.clone();
                changed[at] ^= 1;
                assert!(open("a", changed, sealed).is_err(), "byte {at}");
            }
            assert!(open("a", object[..object.len() - 1].to_vec(), sealed).is_err(), "cut short");
        }
        let clear = close("a", b"contents", None).expect("made");
        assert_eq!(open("a", clear, Some(&one)), Err(Unopened::Clear));
        let sealed = close("a", b"contents", Some(&one)).expect("made");
        assert_eq!(open("a", sealed.clone(), None), Err(Unopened::NoKey));
        assert!(!sealed.windows(8).any(|window| window == b"contents"));
    }

    #[test]
    fn a_key_is_sixty_four_hexadecimal_digits() {
        assert!(format!("{}\n", "0f".repeat(32)).parse::<Key>().is_ok());
        for text in ["", "00", &"0g".repeat(32), &"00".repeat(33)] {
            assert_eq!(text.parse::<Key>().err(), Some(KeyError), "{text}");
        }
    }
}
