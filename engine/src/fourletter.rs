//! Four-letter words: the plain-text questions that operators, load balancers and monitoring ask on the client port
//! (protocol reference 7.1).

mod whitelist;
mod word;

/// The answer to a word that is switched off.
#[must_use]
pub fn not_in_whitelist(word: Word) -> String {
    format!("{word} is not executed because it is not in the whitelist.\n")
}

pub use whitelist::Whitelist;
pub use word::{Command, Word};
