//! Ids and passwords of sessions that one server makes by itself, without the log.

use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use ringkeeper_wire::{ServerId, SessionId};

/// The streams of the seed that leaders draw passwords from are numbered by their epochs, which have 32 bits.
const FIRST_STREAM: u64 = 1 << 40;

/// Which sessions are made; each kind has a stream of random numbers of its own.
#[derive(Clone, Copy, Debug)]
pub(super) enum Issued {
    /// Those of the read-only mode.
    ReadOnly = 0,
    /// Local ones.
    Local = 1,
}

/// Makes sessions.
#[derive(Debug)]
pub(super) struct Issuer {
    server: ServerId,
    random: ChaCha12Rng,
}

impl Issuer {
    pub(super) fn new(server: ServerId, random_seed: [u8; 32], issued: Issued) -> Self {
        let mut random = ChaCha12Rng::from_seed(random_seed);
        random.set_stream(FIRST_STREAM + issued as u64);
        Self { server, random }
    }

    /// An id that looks like one of the ensemble's, and is none of those that are `taken`, with a password.
    ///
    /// The other 56 bits are random: servers need not agree on them, and no client can guess the session of
    /// another.
    pub(super) fn issue(&mut self, taken: impl Fn(SessionId) -> bool) -> (SessionId, [u8; 16]) {
        let session = loop {
            let mut bytes = self.random.next_u64().to_be_bytes();
            bytes[0] = self.server.0.to_le_bytes()[0];
            let session = SessionId(i64::from_be_bytes(bytes));
            // With no bit behind the server's, it could be 0, or the mark of a container.
            if session.0 << 8 != 0 && !taken(session) {
                break session;
            }
        };
        let mut password = [0; 16];
        self.random.fill_bytes(&mut password);
        (session, password)
    }
}
