//! Seals: between servers that share a secret and have no TLS, each frame is encrypted, and ends with a proof
//! that the peer has sent it on this connection, after the one before. TLS does as much, and more: here
//! whoever learns the secret can read what was recorded before.

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};

/// Length of a seal: the tag of AES-256-GCM.
pub(super) const SEAL_BYTES: usize = 16;

/// The seals of both directions of a connection; none where the frames have none.
#[derive(Default)]
pub(super) struct Seals {
    pub(super) sent: Option<Seal>,
    pub(super) received: Option<Seal>,
}

/// Seals the frames of one direction, or checks those of the other one.
pub(super) struct Seal {
    key: LessSafeKey,
    /// Number of frames so far, and the nonce of the next one.
    frames: u64,
}

/// A frame that the peer has not sent, or not at this place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a frame was changed, left out or repeated on its way")]
pub(super) struct Broken;

impl Seal {
    /// With a key that no other direction of any connection has.
    pub(super) fn new(key: &[u8; 32]) -> Self {
        let key = UnboundKey::new(&AES_256_GCM, key).expect("the key has the cipher's length");
        Self { key: LessSafeKey::new(key), frames: 0 }
    }

    /// Encrypts the next frame, and returns its seal.
    pub(super) fn close(&mut self, frame: &mut [u8]) -> [u8; SEAL_BYTES] {
        let nonce = self.nonce();
        let tag = self.key.seal_in_place_separate_tag(nonce, Aad::empty(), frame);
        *tag.expect("frames are shorter than 64 GiB").as_ref().first_chunk().expect("a tag is as long")
    }

    /// Decrypts the next frame, which has its seal behind it.
    ///
    /// # Errors
    /// It is not the seal of this frame.
    pub(super) fn open<'a>(&mut self, frame: &'a mut [u8]) -> Result<&'a mut [u8], Broken> {
        let nonce = self.nonce();
        self.key.open_in_place(nonce, Aad::empty(), frame).map_err(|_| Broken)
    }

    fn nonce(&mut self) -> Nonce {
        let mut nonce = [0; 12];
        nonce[..8].copy_from_slice(&self.frames.to_le_bytes());
        self.frames += 1;
        Nonce::assume_unique_for_key(nonce)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_opened_as_they_were_sealed_and_in_their_order_alone() {
        let mut sender = Seal::new(&[1; 32]);
        let frames = [*b"one", *b"two"].map(|mut frame| {
            let seal = sender.close(&mut frame);
            [&frame[..], &seal].concat()
        });
        let open = |key: u8, frames: &[&[u8]]| -> Result<Vec<Vec<u8>>, Broken> {
            let mut seal = Seal::new(&[key; 32]);
            frames.iter().map(|frame| seal.open(&mut frame.to_vec()).map(|frame| frame.to_vec())).collect()
        };
        let [one, two] = [&frames[0][..], &frames[1]];
        assert_eq!(open(1, &[one, two]), Ok(vec![b"one".to_vec(), b"two".to_vec()]));
        for (what, outcome) in [
            ("another key", open(2, &[one])),
            ("left out", open(1, &[two])),
            ("repeated", open(1, &[one, one])),
            ("cut short", open(1, &[&one[..one.len() - 1]])),
            ("shorter than a seal", open(1, &[&one[..SEAL_BYTES - 1]])),
            ("empty", open(1, &[b""])),
        ] {
            assert_eq!(outcome, Err(Broken), "{what}");
        }
        for at in 0..one.len() {
            let mut changed = one.to_vec();
            changed[at] ^= 1;
            assert_eq!(open(1, &[&changed]), Err(Broken), "byte {at}");
        }
    }
}
