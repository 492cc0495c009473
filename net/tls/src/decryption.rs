//! What a password decrypts: PBES2 (RFC 8018), in which keys and stores are encrypted today, and the schemes
//! that PKCS12 had before (RFC 7292, appendices B and C), which Java 8 and OpenSSL 1 still wrote.

use std::num::NonZeroU32;

use aes::{Aes128, Aes192, Aes256};
use cbc::cipher::block_padding::Pkcs7;
use cbc::cipher::{BlockCipherDecrypt, BlockModeDecrypt, KeyInit, KeyIvInit};
use des::TdesEde3;
use rc2::Rc2;
use ring::digest::{self, Context, SHA1_FOR_LEGACY_USE_ONLY};
use ring::pbkdf2;

use crate::der::{Element, INTEGER, OCTETS, SEQUENCE};

/// Rounds of key derivation for one file, all its parts together: several seconds. Java takes as many for
/// one part, and writes 10,000.
const ROUNDS_MAX: u32 = 5_000_000;

/// A password, and how often it may still be tried.
pub(crate) struct Decryption<'a> {
    password: &'a str,
    rounds_left: u32,
}

/// What a key that PKCS12 derives is for.
#[derive(Clone, Copy)]
pub(crate) enum Purpose {
    Key = 1,
    InitialVector = 2,
    Authentication = 3,
}

/// A block cipher in CBC mode.
#[derive(Clone, Copy)]
enum Cipher {
    Aes128,
    Aes192,
    Aes256,
    TripleDes,
    /// With a key of 40 bits.
    Rc2,
}

impl<'a> Decryption<'a> {
    pub(crate) const fn with(password: &'a str) -> Self {
        Self { password, rounds_left: ROUNDS_MAX }
    }

    /// Opens an EncryptedPrivateKeyInfo (RFC 5958): a private key in PKCS#8.
    pub(crate) fn private_key(&mut self, info: Element<'_>) -> Result<Vec<u8>, String> {
        let mut parts = info.inside();
        let (algorithm, data) = parts.next().zip(parts.value_of(OCTETS)).ok_or_else(damaged)?;
        let key = self.open(algorithm, data)?;
        // One in so many wrong passwords leaves something that looks decrypted.
        let whole = Element::first(&key).filter(|first| first.tag == SEQUENCE).map(|first| first.whole.len());
        if whole == Some(key.len()) { Ok(key) } else { Err(wrong()) }
    }

    /// Decrypts `data`, which was encrypted as an AlgorithmIdentifier says.
    pub(crate) fn open(&mut self, algorithm: Element<'_>, data: &[u8]) -> Result<Vec<u8>, String> {
        let mut parts = algorithm.inside();
        let scheme = parts.next().and_then(Element::identifier).ok_or_else(damaged)?;
        let parameters = parts.next().ok_or_else(damaged)?;
        let cipher = match scheme.as_str() {
            "1.2.840.113549.1.5.13" => return self.open_pbes2(parameters, data),
            "1.2.840.113549.1.12.1.3" => Cipher::TripleDes,
            "1.2.840.113549.1.12.1.6" => Cipher::Rc2,
            _ => return Err(unknown("encryption", &scheme)),
        };
        let (salt, rounds) = salt_and_rounds(parameters).ok_or_else(damaged)?;
        let key_len = cipher.key_len();
        let key = self.pkcs12_key(&SHA1_FOR_LEGACY_USE_ONLY, Purpose::Key, salt, rounds, key_len)?;
        let vector = self.pkcs12_key(
            &SHA1_FOR_LEGACY_USE_ONLY,
            Purpose::InitialVector,
            salt,
            rounds,
            Cipher::DES_BLOCK,
        )?;
        cipher.open(&key, &vector, data)
    }

    fn open_pbes2(&mut self, parameters: Element<'_>, data: &[u8]) -> Result<Vec<u8>, String> {
        let mut parts = parameters.inside();
        let (derivation, encryption) = parts.next().zip(parts.next()).ok_or_else(damaged)?;
        let mut encryption = encryption.inside();
        let cipher = encryption.next().and_then(Element::identifier).ok_or_else(damaged)?;
        let cipher = match cipher.as_str() {
            "2.16.840.1.101.3.4.1.2" => Cipher::Aes128,
            "2.16.840.1.101.3.4.1.22" => Cipher::Aes192,
            "2.16.840.1.101.3.4.1.42" => Cipher::Aes256,
            "1.2.840.113549.3.7" => Cipher::TripleDes,
            _ => return Err(unknown("cipher", &cipher)),
        };
        let vector = encryption.value_of(OCTETS).ok_or_else(damaged)?;
        let mut derivation = derivation.inside();
        let function = derivation.next().and_then(Element::identifier).ok_or_else(damaged)?;
        if function != "1.2.840.113549.1.5.12" {
            return Err(unknown("key derivation", &function));
        }
        let parameters = derivation.next().ok_or_else(damaged)?;
        let (salt, rounds) = salt_and_rounds(parameters).ok_or_else(damaged)?;
        // The key's length, which may stand in between, is the cipher's.
        let hash = match parameters.inside().skip(2).find(|part| part.tag != INTEGER) {
            None => pbkdf2::PBKDF2_HMAC_SHA1,
            Some(algorithm) => {
                let hash =
                    Element::first(algorithm.value).and_then(Element::identifier).ok_or_else(damaged)?;
                match hash.as_str() {
                    "1.2.840.113549.2.7" => pbkdf2::PBKDF2_HMAC_SHA1,
                    "1.2.840.113549.2.9" => pbkdf2::PBKDF2_HMAC_SHA256,
                    "1.2.840.113549.2.10" => pbkdf2::PBKDF2_HMAC_SHA384,
                    "1.2.840.113549.2.11" => pbkdf2::PBKDF2_HMAC_SHA512,
                    _ => return Err(unknown("hash", &hash)),
                }
            }
        };
        let mut key = vec![0; cipher.key_len()];
        pbkdf2::derive(hash, self.spend(rounds)?, salt, self.password.as_bytes(), &mut key);
        cipher.open(&key, vector, data)
    }

    /// Derives a key as PKCS12 does by itself (RFC 7292, appendix B.2).
    pub(crate) fn pkcs12_key(
        &mut self,
        hash: &'static digest::Algorithm,
        purpose: Purpose,
        salt: &[u8],
        rounds: u32,
        len: usize,
    ) -> Result<Vec<u8>, String> {
        let block_len = hash.block_len();
        let password: Vec<u8> = self.password.encode_utf16().chain([0]).flat_map(u16::to_be_bytes).collect();
        let mut input: Vec<u8> = filled(salt, block_len).chain(filled(&password, block_len)).collect();
        let mut key = Vec::new();
        while key.len() < len {
            let rounds = self.spend(rounds)?;
            let mut context = Context::new(hash);
            context.update(&vec![purpose as u8; block_len]);
            context.update(&input);
            let mut digest = context.finish();
            for _ in 1..rounds.get() {
                digest = digest::digest(hash, digest.as_ref());
            }
            key.extend_from_slice(digest.as_ref());
            let addend: Vec<u8> = digest.as_ref().iter().copied().cycle().take(block_len).collect();
            input.chunks_mut(block_len).for_each(|block| add_one_more(block, &addend));
        }
        key.truncate(len);
        Ok(key)
    }

    fn spend(&mut self, rounds: u32) -> Result<NonZeroU32, String> {
        let rounds = NonZeroU32::new(rounds).ok_or_else(damaged)?;
        self.rounds_left = self.rounds_left.checked_sub(rounds.get()).ok_or_else(|| {
            format!("asks for more than {ROUNDS_MAX} rounds of key derivation: write it anew with fewer")
        })?;
        Ok(rounds)
    }
}

impl Cipher {
    const DES_BLOCK: usize = 8;

    const fn key_len(self) -> usize {
        match self {
            Self::Rc2 => 5,
            Self::Aes128 => 16,
            Self::Aes192 | Self::TripleDes => 24,
            Self::Aes256 => 32,
        }
    }

    fn open(self, key: &[u8], vector: &[u8], data: &[u8]) -> Result<Vec<u8>, String> {
        let opened = match self {
            Self::Aes128 => cbc_opened::<Aes128>(key, vector, data),
            Self::Aes192 => cbc_opened::<Aes192>(key, vector, data),
            Self::Aes256 => cbc_opened::<Aes256>(key, vector, data),
            Self::TripleDes => cbc_opened::<TdesEde3>(key, vector, data),
            Self::Rc2 => cbc_opened::<Rc2>(key, vector, data),
        };
        opened.ok_or_else(wrong)
    }
}

fn cbc_opened<C: BlockCipherDecrypt + KeyInit>(key: &[u8], vector: &[u8], data: &[u8]) -> Option<Vec<u8>> {
    cbc::Decryptor::<C>::new_from_slices(key, vector).ok()?.decrypt_padded_vec::<Pkcs7>(data).ok()
}

/// What the parameters of a key derivation begin with.
fn salt_and_rounds(parameters: Element<'_>) -> Option<(&[u8], u32)> {
    let mut parts = parameters.inside();
    parts.value_of(OCTETS).zip(parts.next().and_then(Element::number))
}

/// The bytes again and again, up to a multiple of the block's length.
fn filled(bytes: &[u8], block_len: usize) -> impl Iterator<Item = u8> {
    bytes.iter().copied().cycle().take(bytes.len().next_multiple_of(block_len))
}

/// block = block + addend + 1, as big-endian numbers, without what is carried out of the block.
fn add_one_more(block: &mut [u8], addend: &[u8]) {
    let mut carried = true;
    for (byte, added) in block.iter_mut().zip(addend).rev() {
        let (sum, over) = byte.overflowing_add(*added);
        let (sum, over_too) = sum.overflowing_add(carried.into());
        (*byte, carried) = (sum, over || over_too);
    }
}

pub(crate) fn damaged() -> String {
    "is damaged".to_owned()
}

/// The two cannot be told apart.
pub(crate) fn wrong() -> String {
    "has another password, or is damaged".to_owned()
}

pub(crate) fn unknown(what: &str, identifier: &str) -> String {
    format!("has an unknown {what} ({identifier}): `openssl pkcs12` or `openssl pkcs8` can write it anew")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_cannot_ask_for_more_rounds_than_it_has() {
        let mut decryption = Decryption::with("a");
        let mut derive = |rounds| {
            decryption.pkcs12_key(&SHA1_FOR_LEGACY_USE_ONLY, Purpose::Key, b"salt", rounds, 8).map(drop)
        };
        assert_eq!(derive(1000), Ok(()));
        for rounds in [ROUNDS_MAX - 999, u32::MAX] {
            assert!(derive(rounds).expect_err("refused").contains("rounds of key derivation"));
        }
        assert!(derive(0).is_err());
    }
}
