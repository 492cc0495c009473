//! Seals: between servers that share a secret and speak in the clear, each frame ends with a proof that the
//! peer has sent it on this connection, after the one before. Where there is TLS, TLS does as much.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Length of a seal: the first bytes of an HMAC-SHA256.
pub(super) const SEAL_BYTES: usize = 16;

/// The seals of both directions of a connection; none where the frames have none.
#[derive(Default)]
pub(super) struct Seals {
    pub(super) sent: Option<Seal>,
    pub(super) received: Option<Seal>,
}

/// Seals the frames of one direction, or checks those of the other one.
pub(super) struct Seal {
    /// With the direction's key.
    mac: Hmac<Sha256>,
    /// Number of frames so far.
    frames: u64,
}

/// A frame that the peer has not sent, or not at this place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a frame was changed, left out or repeated on its way")]
pub(super) struct Broken;

impl Seal {
    /// With a key that no other direction of any connection has.
    pub(super) fn new(key: &[u8; 32]) -> Self {
        Self { mac: Hmac::new_from_slice(key).expect("HMAC takes keys of any length"), frames: 0 }
    }

    /// The seal of the next frame, which consists of these parts.
    pub(super) fn next(&mut self, parts: [&[u8]; 2]) -> [u8; SEAL_BYTES] {
        let mac = self.of(parts).finalize().into_bytes();
        *mac.first_chunk().expect("it is longer")
    }

    /// Checks the seal of the next frame, and returns what stands before it.
    ///
    /// # Errors
    /// It is not the seal of this frame.
    pub(super) fn open<'a>(&mut self, frame: &'a [u8]) -> Result<&'a [u8], Broken> {
        let (message, seal) = frame.split_last_chunk::<SEAL_BYTES>().ok_or(Broken)?;
        self.of([message, &[]]).verify_truncated_left(seal).map_err(|_| Broken)?;
        Ok(message)
    }

    fn of(&mut self, parts: [&[u8]; 2]) -> Hmac<Sha256> {
        let mut mac = self.mac.clone();
        mac.update(&self.frames.to_le_bytes());
        self.frames += 1;
        parts.iter().for_each(|part| mac.update(part));
        mac
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_opened_as_they_were_sealed_and_in_their_order_alone() {
        let sealed = |seal: &mut Seal, parts: [&[u8]; 2]| [parts[0], parts[1], &seal.next(parts)].concat();
        let mut sender = Seal::new(&[1; 32]);
        let frames = [sealed(&mut sender, [b"one", b""]), sealed(&mut sender, [b"tw", b"o"])];
        let open = |key: u8, frames: &[&[u8]]| -> Result<Vec<Vec<u8>>, Broken> {
            let mut seal = Seal::new(&[key; 32]);
            frames.iter().map(|frame| seal.open(frame).map(<[u8]>::to_vec)).collect()
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
