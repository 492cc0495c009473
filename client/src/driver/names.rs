#[cfg(feature = "hosted")]
use std::sync::{Mutex, PoisonError};

use uuid::Uuid;

/// Where the words come from by which recipes know their own znodes again.
pub(super) enum Names {
    /// The system's entropy.
    Random,
    /// A seed.
    #[cfg(feature = "hosted")]
    Seeded(Mutex<fastrand::Rng>),
}

impl Names {
    pub(super) fn draw(&self) -> Uuid {
        match self {
            Self::Random => Uuid::new_v4(),
            #[cfg(feature = "hosted")]
            Self::Seeded(rng) => {
                let word = rng.lock().unwrap_or_else(PoisonError::into_inner).u128(..);
                uuid::Builder::from_random_bytes(word.to_be_bytes()).into_uuid()
            }
        }
    }
}

#[cfg(feature = "hosted")]
impl Names {
    pub(super) fn seeded(seed: u64) -> Self {
        Self::Seeded(Mutex::new(fastrand::Rng::with_seed(seed)))
    }
}
