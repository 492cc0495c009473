//! The replicated state: one value that every server computes alike from the log.

/// Everything that transactions change. Cloning it shares its structure.
#[derive(Clone, Debug, Default)]
pub struct State {}
