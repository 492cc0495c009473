//! Four-letter words: the plain-text questions that operators, load balancers and monitoring ask on the
//! client port (docs/protocol.md, 10.1). Tools parse the answers, down to blanks and line ends.

mod answer;
mod dump;
mod mntr;
mod report;
#[cfg(test)]
mod tests;
mod whitelist;
mod word;

pub use answer::{counted_znodes, format, operation};
pub use report::{Mode, ServerReport};
pub use whitelist::Whitelist;
pub use word::{Command, Word};

/// The answer to a word that is switched off.
#[must_use]
pub fn not_in_whitelist(word: Word) -> String {
    format!("{word} is not executed because it is not in the whitelist.\n")
}
