//! The passwords that Apache ZooKeeper gives to sessions.

use ringkeeper_wire::{PASSWORD_LEN, SessionId};

/// `ZooKeeperServer.superSecret`.
const SECRET: i64 = 0xB341_5C00;

/// The password of a session: bytes of `java.util.Random`, seeded with the session's number
/// (`ZooKeeperServer.generatePasswd`). A client that has it continues its session here.
#[must_use]
pub fn session_password(session: SessionId) -> [u8; PASSWORD_LEN] {
    let mut random = JavaRandom::new(session.0 ^ SECRET);
    let mut password = [0; PASSWORD_LEN];
    for word in password.chunks_exact_mut(4) {
        word.copy_from_slice(&random.next_u32().to_le_bytes());
    }
    password
}

/// The linear congruential generator that the documentation of `java.util.Random` prescribes.
struct JavaRandom(u64);

impl JavaRandom {
    const MULTIPLIER: u64 = 0x5_DEEC_E66D;
    const MASK: u64 = (1 << 48) - 1;

    const fn new(seed: i64) -> Self {
        Self((seed.cast_unsigned() ^ Self::MULTIPLIER) & Self::MASK)
    }

    #[expect(clippy::cast_possible_truncation, reason = "the upper 32 of 48 bits")]
    const fn next_u32(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(Self::MULTIPLIER).wrapping_add(0xB) & Self::MASK;
        (self.0 >> 16) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_those_of_javas_generator() {
        // `new java.util.Random(id ^ 0xB3415C00L).nextBytes(password)`, OpenJDK 17.
        for (id, password) in [
            (0x100_000b_5d3b_0000, 0x277e_71ea_28f2_32b4_ddd6_2114_b152_d148_u128),
            (0x2000_0000_0000_0001, 0x054c_c74a_3732_7db2_15e7_02e2_0c73_f005),
            (-5, 0xd471_44b5_e45e_45c4_9c3b_7fdc_d662_57ba),
        ] {
            assert_eq!(session_password(SessionId(id)), password.to_be_bytes(), "{id:x}");
        }
    }
}
